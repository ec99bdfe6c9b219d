"""Kernels that a fix makes shorter, each by a share of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timesink.whatif.changes.case import Case, Touches
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

Rows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ShortenKernels:
    """Device ops at these `rows` of `device_ops` keep a share of their time; those of share 0 do not run at all.

    `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row. Launches still cost the host what
    they cost: a fix that also saves launches wins at least this.
    """

    what: str
    rows: Rows
    keep: tuple[Shares, Shares, Shares]

    @property
    def label(self) -> str:
        """The change in one line."""
        return f"shorten {self.what}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.DEVICE

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
        return edit.done()
