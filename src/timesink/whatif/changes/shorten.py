"""Kernels that a fix makes shorter, each by a share of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from timesink.whatif.changes.case import Case, Range, Touches
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

Rows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

_NONE: Final = Range.exact(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ShortenKernels:
    """Device ops at these `rows` of `device_ops` keep a share of their time; those of share 0 do not run at all.

    `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row. `launches_saved` is the share of the
    host's time for launches that goes with them. Where `entries` is None that is, for every row, from the end of the
    thread's call before to the end of the launch; else for the ops at `entries` alone, from the end of the thread's
    launch before. At 0, launches cost the host what they cost, and the fix wins at least what is replayed.
    """

    what: str
    rows: Rows
    keep: tuple[Shares, Shares, Shares]
    launches_saved: Range = _NONE
    entries: Rows | None = None

    @property
    def label(self) -> str:
        """The change in one line."""
        return f"shorten {self.what}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH if self.launches_saved.hopeful else Touches.DEVICE

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = graph.program.ops
        keep = self.keep[case.value]
        place = np.searchsorted(self.rows, ops.row)
        found = np.minimum(place, max(self.rows.size - 1, 0))
        mine = (self.rows[found] == ops.row) if self.rows.size else np.zeros(len(ops), bool)
        share = np.where(mine, keep[found] if self.rows.size else 1.0, 1.0)
        gone = mine & (share <= 0.0)
        edit = Edit(graph)
        edit.scale_ops(mine & ~gone, share)
        edit.drop_ops(gone)
        if saved := self.launches_saved.at(case):
            entered = mine if self.entries is None else np.isin(ops.row, self.entries)
            _save_launches(edit, graph, entered, saved, after_launch=self.entries is not None)
        return edit.done()


def _save_launches(edit: Edit, graph: Graph, ops: npt.NDArray[np.bool_], share: float, *, after_launch: bool) -> None:
    """Take a share of the host's time for the launches of these ops away."""
    program = graph.program
    calls = np.unique(program.ops.call[ops & (program.ops.call >= 0)])
    known = np.unique(program.ops.call[program.ops.call >= 0]) if after_launch else np.arange(program.calls.thread.size)
    place = np.searchsorted(known, calls)
    before = known[np.maximum(place - 1, 0)]
    same = (place > 0) & (program.calls.thread[before] == program.calls.thread[calls])
    start = np.where(same, program.calls.end_ns[before], program.calls.start_ns[calls])
    end = np.maximum(program.calls.end_ns[calls], start)
    for thread in np.unique(program.calls.thread[calls]).tolist():
        mine = program.calls.thread[calls] == thread
        edit.save_host_parts(thread, start[mine], end[mine], np.full(int(mine.sum()), share))
