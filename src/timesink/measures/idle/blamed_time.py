"""Idle time of the steady steps by cause, with the place that accounts for most of it.

Idle time in which the host worked towards the next launch (`before_launches.launching_time`) is told apart from idle
time in which it did something else (`python_time`). Unrecorded time between operators and calls can be either:
framework dispatch (module calls, wrappers, and all of it where no operators were recorded) takes microseconds at a
time, so short stretches count as dispatch and long ones as Python.

A place is a thread with the call, operator, range and frame that it was in. Places are told of a slice of stretches at
a time, and added up: a long trace has as many stretches as kernels, and few places.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.profiler_texts import EMITTED_OPERATOR
from timesink.knowledge.ranges import COMPILED_CALL
from timesink.measures.idle.blame import idle_blame, intervals_of
from timesink.measures.idle.causes import computes_on_host
from timesink.measures.lines import sampled_line
from timesink.measures.lines.stacks import own_frames
from timesink.measures.steps import steps
from timesink.measures.steps.parts import range_labels
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.attribution import push_pop_ranges
from timesink.model.arrays import slices
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.nesting import numbered_rows, slice_of
from timesink.model.schema import SHOWN_ROWS, picked
from timesink.model.tables import FRAMES, HOST_STACKS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_Column = TypeVar("_Column", pl.Expr, pl.Series)
_PYTHON: Final = ("python", "unrecorded_code", "logging", "checkpoint")


class BlamedTime(Record, eq=False):
    """Idle time of one device for a set of causes: its intervals, its mean per step, and its share of the step.

    The step is the recorded window where there are no steps. `host` holds the same time per (process, thread) that kept
    the device waiting. `thread`, `call`, `host_op`, `range`, `frame` name the place with the most of that time (None
    where no name was recorded); `file` and `line` are the program's own frame around it, where stacks were recorded.
    Names are untrusted text. `rows` are rows of `device_ops` that ended the longest stretches.
    """

    device: Device
    intervals: Intervals
    per_step_ns: float
    step_ns: float
    host: Mapping[tuple[int, int], Intervals]
    thread: int | None
    call: str | None
    host_op: str | None
    range: str | None
    frame: str | None
    rows: tuple[int, ...]
    file: str | None = None
    line: int | None = None

    @property
    def share(self) -> float:
        """Share of the step, 0 to 1."""
        return self.per_step_ns / self.step_ns if self.step_ns else 0.0


def blamed_time(trace: Trace, causes: Collection[str], wanted: pl.Expr | None = None) -> tuple[BlamedTime, ...]:
    """Per device that did any work, in order: the idle stretches of these causes, and of them those `wanted`."""
    if wanted is not None:
        return _blame_devices(trace, causes, wanted)
    known, key = _by_causes(trace), tuple(causes)
    if key not in known:
        known[key] = _blame_devices(trace, causes)
    return known[key]


@remembered
def _by_causes(_: Trace) -> dict[tuple[str, ...], tuple[BlamedTime, ...]]:
    return {}


def _blame_devices(trace: Trace, causes: Collection[str], wanted: pl.Expr | None = None) -> tuple[BlamedTime, ...]:
    chosen = pl.col("cause").is_in(list(causes))
    stretches = idle_blame(trace).stretches
    rows = stretches.select(chosen if wanted is None else chosen & wanted).to_series()
    stretches = picked(stretches[READ], rows)
    by_device = intervals_of(stretches)
    blamed = []
    for device in device_timeline(trace).by_device:
        first, last = slice_of(stretches, ("rank", "device"), device)
        blamed.append(_blamed(trace, device, stretches[first:last], by_device.get(device, Intervals.none())))
    return tuple(blamed)


@remembered
def python_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in Python and other host work that launches nothing, outside input, waits and operators."""
    own = (pl.col("cause") != "unrecorded_code") | unrecorded_python(pl.col)
    return blamed_time(trace, _PYTHON, own & ~pl.lit(in_computing(trace)))


@remembered
def unrecorded_ns(trace: Trace) -> dict[Device, int]:
    """Per device: how much of `python_time` was not recorded."""
    stretches, sums = idle_blame(trace).stretches, Counter[Device]()
    rows = np.flatnonzero(unrecorded_python(stretches.get_column).to_numpy())
    read = [stretches[key].to_numpy()[rows].tolist() for key in ("rank", "device", "start_ns", "end_ns")]
    for rank, device, start_ns, end_ns in zip(*read, strict=True):
        sums[rank, device] += end_ns - start_ns
    return dict(sums)


@remembered
def in_computing(trace: Trace) -> pl.Series:
    """Which stretches of `IdleBlame.stretches` are of operators that compute on the CPU."""
    stretches = idle_blame(trace).stretches
    within = np.append(computes_on_host(trace), False)[stretches["host_op_row"].fill_null(-1).to_numpy()]
    return (stretches["cause"] == "python") & pl.Series(within, dtype=pl.Boolean)


def system_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in calls into the operating system, and between those that move data, outside input."""
    return blamed_time(trace, ("os_call",))


def unrecorded_python(column: Callable[[str], _Column]) -> _Column:
    """Whether an unrecorded stretch is Python rather than dispatch, by columns of stretches or what stands for them."""
    length_ns = column("end_ns") - column("start_ns")
    return (column("cause") == "unrecorded_code") & (length_ns >= assumed.DISPATCH_MOST_US.ns)


def _blamed(trace: Trace, device: Device, stretches: pl.DataFrame, intervals: Intervals) -> BlamedTime:
    """The time of one device: the part of its stretches inside `intervals`."""
    return BlamedTime(
        device=device,
        intervals=intervals,
        per_step_ns=per_step_ns(trace, device, intervals),
        step_ns=period_ns(trace, device),
        **(placed(trace, stretches, intervals) if len(intervals) else NOWHERE),
    )


_PLACE: Final = ["thread", "call", "host_op", "range", "frame"]
READ: Final = [
    *("rank", "device", "start_ns", "end_ns", "host", "op_row"),
    *("call_row", "os_call_row", "host_op_row", "range_row", "frame_row"),
]  # fmt: skip
"""Columns of `IdleBlame.stretches` that are read here."""
NOWHERE: Final[dict[str, Any]] = {"host": {}, "rows": (), **dict.fromkeys(_PLACE)}


def placed(trace: Trace, stretches: pl.DataFrame, intervals: Intervals) -> dict[str, Any]:
    """Who kept the device waiting inside `intervals`, and the place with the most of that time."""
    length = pl.Series("length", intervals.covered_ns(stretches["start_ns"], stretches["end_ns"]))
    stretches = stretches.hstack([length])
    length_ns, start_ns = length.to_numpy(), stretches["start_ns"].to_numpy()
    longest = np.flatnonzero(length_ns >= max(length.top_k(SHOWN_ROWS).min(), 1))  # type: ignore[type-var]
    longest = longest[np.lexsort((start_ns[longest], -length_ns[longest]))][:SHOWN_ROWS]
    place = (
        _by_place(trace, stretches)
        .filter(pl.col("length") == pl.col("length").max())
        .with_columns(pl.col(name).cast(pl.String) for name in _PLACE[1:])
        .sort(_PLACE, nulls_last=True)
        .row(0, named=True)
    )
    file, line = _own_line(trace, stretches, place)
    return {
        "host": _by_thread(trace, stretches, intervals),
        "rows": tuple(stretches["op_row"].gather(longest).to_list()),
        "file": file,
        "line": line,
        **{name: place[name] for name in _PLACE},
    }


def _told(trace: Trace, stretches: pl.DataFrame) -> pl.DataFrame:
    """The stretches with their places."""
    told = idle_blame(trace).told(stretches, *_PLACE)
    return told.with_columns(_range_places(trace, told["range"]))


def _by_place(trace: Trace, stretches: pl.DataFrame) -> pl.DataFrame:
    """Each place once, with the `length` of its stretches."""
    parts = []
    for rows in slices(0, stretches.height):
        told = _told(trace, stretches[rows])
        number, first = numbered_rows(told[_PLACE])
        total_ns = pl.Series("length", summed(number, told["length"].to_numpy(), first.size))
        parts.append(told[_PLACE][first].hstack([total_ns]))
    return parts[0] if len(parts) == 1 else pl.concat(parts).group_by(_PLACE).agg(pl.col("length").sum())


def _own_line(trace: Trace, stretches: pl.DataFrame, place: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """File and line of the program's own frame around most of the time at the place."""
    if not (trace.get(FRAMES).height or trace.get(HOST_STACKS).height):
        return None, None
    if not trace.get(FRAMES).height:
        line = sampled_line(trace, idle_blame(trace).told(stretches, "process", "thread"))
        return (line.file, line.line) if line else (None, None)
    stretches = _told(trace, stretches)
    here = pl.all_horizontal(pl.col(name).cast(pl.String).eq_missing(pl.lit(place[name])) for name in _PLACE[1:])
    there = stretches.filter(here, pl.col("thread").eq_missing(pl.lit(place["thread"])))
    there = there.drop_nulls("frame_row")
    if not there.height:
        return None, None
    own, at = own_frames(trace), there["frame_row"].to_numpy()
    named = there.select(pl.Series("row", own.row[at]), pl.Series("called", own.line[at]), "length")
    named = named.filter(pl.col("row") >= 0)
    if not named.height:
        return None, None
    defined = trace.get(FRAMES).select(pl.col("file").cast(pl.String), "line").with_row_index("row")
    known = pl.when(pl.col("called") >= 0).then("called").otherwise("line").alias("line")
    at_lines = named.join(defined.cast({"row": pl.Int64}), on="row", maintain_order="left").with_columns(known)
    most = at_lines.group_by("file", "line").agg(pl.col("length").sum())
    file, line, _ = most.sort("length", "file", "line", descending=[True, False, False]).row(0)
    return file, line


def _by_thread(trace: Trace, stretches: pl.DataFrame, intervals: Intervals) -> dict[tuple[int, int], Intervals]:
    host, (start, end) = stretches["host"], (stretches[name].to_numpy() for name in ("start_ns", "end_ns"))
    numbers = (host.fill_null(-1) if host.null_count() else host).to_numpy()
    return {
        idle_blame(trace).threads[number]: inside
        for number in np.unique(numbers[numbers >= 0]).tolist()
        if len(inside := Intervals.union_of(start[own := numbers == number], end[own]) & intervals)
    }


def _range_places(trace: Trace, ranges: pl.Series) -> pl.Series:
    """Range names as places in the program, alike in every step: numbers that run on are left out (`range_labels`), and
    a range that marks a step, an operator or a compiled graph is no place of its own, and becomes null."""
    labels, marker = _labels(trace), steps(trace).marker_name
    numbered = pl.col("text").str.strip_prefix(marker or "").str.strip_chars("#0123456789") == ""

    def place(texts: pl.Series) -> pl.Series:
        places = texts.replace_strict(list(labels), list(labels.values()), default=texts) if labels else texts
        both = pl.DataFrame({"text": texts, "range": places})
        is_own = [~pl.col("text").str.contains(one) for one in (EMITTED_OPERATOR, COMPILED_CALL)]
        is_place = pl.all_horizontal(pl.col("range") != "", ~numbered, *is_own)
        return both.select(pl.when(is_place).then("range")).to_series().cast(pl.Categorical)

    return mapped(ranges, place, pl.Categorical)


@remembered
def _labels(trace: Trace) -> dict[str, str]:
    named = push_pop_ranges(trace).select(pl.col("name").cast(pl.String)).with_columns(range_labels(trace))
    return dict(named.unique("name").iter_rows())
