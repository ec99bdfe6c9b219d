"""Which call launched each device op. Identity is (rank, process, correlation): never order, never a list of names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.correlation import launching_calls
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class LaunchLinks:
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where none is in the window.

    `shared` marks ops whose call launched several: the kernels of one graph launch.
    """

    call: Int64Array
    shared: BoolArray

    @property
    def linked(self) -> BoolArray:
        """Which ops have a launch record."""
        return self.call >= 0

    @property
    def linked_count(self) -> int:
        """How many ops have a launch record."""
        return int(np.count_nonzero(self.call >= 0))

    def launching(self, height: int) -> BoolArray:
        """Which of the `height` rows of `api_calls` launched any device op."""
        flags = np.zeros(height, np.bool_)
        flags[self.call[self.linked]] = True
        return flags


@remembered
def launch_links(trace: Trace) -> LaunchLinks:
    """Join device ops to the calls that launched them.

    Where several calls carry one correlation (a driver call inside a runtime call), the first row, which encloses the
    others, is the launch.
    """
    calls = trace.get(API_CALLS)
    call = launching_calls(trace.get(DEVICE_OPS), calls)
    return LaunchLinks(call=call, shared=_shared(call, calls.height))


def _shared(call: Int64Array, height: int) -> BoolArray:
    linked = call >= 0
    owned = np.bincount(call[linked], minlength=max(height, 1))
    return np.asarray(linked & (owned[np.where(linked, call, 0)] > 1))
