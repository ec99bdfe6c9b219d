"""The change of an optimizer step: a few fused kernels in place of many."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.ranges import OPTIMIZER_STEP
from timesink.model.record import dataclass
from timesink.whatif.change import Case, Selection, Target, Touches, calls_within, host_windows
from timesink.whatif.changes.kernels import OfKernels, shorten
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

# PyTorch's own range around an optimizer's step, and the names people give theirs.
OPTIMIZER: Final = Target("range", OPTIMIZER_STEP)


@dataclass(frozen=True, slots=True, eq=False)
class FuseOptimizer(OfKernels):
    """Each optimizer step launches a few fused kernels: host time becomes a fixed part and a part per former launch.

    The kernels keep a third of their time: unfused AdamW moves about five times the 28 bytes per parameter that one
    pass needs (read parameter, gradient and two moments, write three of them, 4 bytes each), SGD with momentum three
    times. `host` are the ranges of the steps; launches outside of them are taken row by row.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    host: Target = OPTIMIZER

    @classmethod
    def of(cls, kernels: Selection, host: Target = OPTIMIZER) -> FuseOptimizer:
        """Fuse the kernels of the selection."""
        return cls(shorten("fuse-optimizer", kernels, unfused=fixes.OPTIMIZER_KERNELS), host)

    @classmethod
    def over_lists(cls, kernels: Selection) -> FuseOptimizer:
        """Update lists of parameters in place of one after another."""
        return cls(shorten("foreach", kernels, unfused=fixes.FOREACH_KERNELS))

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return "fuse-optimizer" if self.host is OPTIMIZER else f"fuse-optimizer {self.host}"

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = np.isin(graph.rows_of_ops(), self.kernels.rows)
        if not ops.any():
            return graph
        edit = Edit(self.kernels.rewrite(graph, case))
        edit.close_gaps(ops, 0)
        launching = graph.program.launching(ops)
        fixed_us, per_launch_us = fixes.OPTIMIZER_FIXED_US.at(case), fixes.OPTIMIZER_LAUNCH_US.at(case)
        windows = host_windows(graph, self.host)
        edit.replace_launches(windows, launching, fixed_us, per_launch_us)
        outside = launching & ~calls_within(graph, windows)
        edit.replace_launches(edit.launch_rows(outside), outside, fixed_us, per_launch_us)
        return edit.done()
