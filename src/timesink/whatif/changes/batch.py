"""A larger batch: the same step for more items, with longer kernels and the same work of the host."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.record import dataclass
from timesink.whatif.change import Case, Touches
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class GrowKernels(EditedChange):
    """Kernels and copies of one (rank, device) take so many times as long: `grown[n]` in case n (cautious, expected,
    hopeful), one figure of 1 or more for each of the sorted `rows` of `device_ops`."""

    touches: ClassVar[Touches] = Touches.DEVICE
    factor: int
    device: tuple[int, int]
    rows: Int64Array
    grown: tuple[Float64Array, ...]

    @property
    def label(self) -> str:
        """The change in one line."""
        return f"batch {self.factor}"

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        row = graph.rows_of_ops()
        chosen = np.isin(row, self.rows)
        times = np.ones(len(graph.program.ops))
        times[chosen] = self.grown[case.value][np.searchsorted(self.rows, row[chosen])]
        edit.scale_ops(chosen, times)
