"""The program's start, in which CUDA loads kernels and libraries and sets up the device.

The first launch of a kernel loads it or its module, the first allocation makes a context: single calls of a tenth of a
millisecond to seconds, while the device has nothing to do. Later launches and allocations take microseconds.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import LAUNCH, LOADS_LIBRARY, CallKind, call_kinds
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record, field
from timesink.units import NS_PER_MS

_TOO_LONG = assumed.START_UP_FIRST_LAUNCH_MS, assumed.START_UP_LAUNCH_MS, assumed.START_UP_CALL_MS
_NEVER = 1 << 62  # ns, later than any clock's time
_SETS_UP = (CallKind.OTHER, CallKind.ALLOCATE, CallKind.FREE)  # the others wait for the device, copies too


class StartUp(Record):
    """`count` calls set up the device for `idle_ns` of the `span_ns` of all devices; `longest` took `longest_ns`.

    `calls`: when, by rank. A span begins with the calls of the program's own work before the device has any.
    """

    calls: Mapping[int, Intervals] = field(default_factory=dict)
    count: int = 0
    idle_ns: int = 0
    span_ns: int = 0
    longest: str = ""
    longest_ns: int = 0

    @property
    def share(self) -> float:
        """Idle time in such calls over the span of the devices, 0 to 1."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0

    @property
    def is_most(self) -> bool:
        """Whether the trace is the program's start, and what little comes back in it no loop of steps."""
        return 0 < self.span_ns <= 2 * self.idle_ns

    def holds(self, stretches: pl.DataFrame) -> pl.Series:
        """Which of some stretches (rank, start_ns, end_ns) have such a call in them."""
        start_ns, end_ns, rank = (stretches[name].to_numpy() for name in ("start_ns", "end_ns", "rank"))
        held = np.zeros(stretches.height, np.bool_)
        for own, calls in self.calls.items():
            held |= (rank == own) & (calls.covered_ns(start_ns, end_ns) > 0)
        return pl.Series(held)


@remembered
def start_up(trace: Trace) -> StartUp:
    """Calls that neither wait nor copy, too long for what they do, during which a device of their rank stood idle.

    Before the device's first work only launches count, and what is called after the first operator: a program that is
    recorded whole makes its context before it has anything to do.
    """
    first, launch, other = (each.value * NS_PER_MS for each in _TOO_LONG)
    length = pl.col("end_ns") - pl.col("start_ns")
    calls = trace.get(API_CALLS).with_row_index("row").filter(length >= min(first, launch, other))  # few of many
    sets_up = pl.Series(np.isin(call_kinds(calls["name"]), _SETS_UP), dtype=pl.Boolean)
    launches = matches(calls["name"], LAUNCH)
    least_ns = pl.when(_loads(trace, calls)).then(first).when(launches).then(launch).otherwise(other)
    calls = calls.filter(sets_up & (length >= least_ns)).sort("end_ns", "start_ns")
    if not calls.height:
        return StartUp()
    idle_ns, led_ns, idle = 0, 0, np.zeros(calls.height, np.int64)
    by_rank = {rank: Intervals.of(calls.filter(pl.col("rank") == rank)) for rank in calls["rank"].unique()}
    at_work = matches(calls["name"], LAUNCH) | (calls["start_ns"] > (trace.get(HOST_OPS)["start_ns"].min() or _NEVER))
    for (rank, _), line in device_timeline(trace).by_device.items():
        own = calls["rank"] == rank
        ahead = Intervals.of(calls.filter(own & at_work & (calls["end_ns"] <= line.span_start_ns)))
        waiting = line.idle | ahead
        led_ns += ahead.total_ns
        idle_ns += (by_rank.get(rank, Intervals.none()) & waiting).total_ns
        waited = waiting.covered_ns(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
        idle = np.maximum(idle, np.where(own.to_numpy(), waited, 0))
    longest, span_ns = calls.row(int(idle.argmax()), named=True), sum(line.span_ns for line in device_timeline(trace))
    length_ns = longest["end_ns"] - longest["start_ns"]
    return StartUp(by_rank, int((idle > 0).sum()), idle_ns, span_ns + led_ns, longest["name"], length_ns)


def _loads(trace: Trace, calls: pl.DataFrame) -> pl.Series:
    """Which of some calls load a library of kernels, or launched a kernel for the first time."""
    names, call = trace.get(DEVICE_OPS)["name"].to_physical().to_numpy(), launch_links(trace).call
    linked = np.flatnonzero(call >= 0)
    firsts = call[linked[np.unique(names[linked], return_index=True)[1]]] if calls.height else call[:0]
    return matches(calls["name"], LOADS_LIBRARY) | calls["row"].is_in(pl.Series(firsts, dtype=pl.UInt32).implode())
