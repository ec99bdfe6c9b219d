"""Loading data on threads that launch GPU work: how long it takes, and how long a GPU idles meanwhile.

Loading is what its name says is loading: PyTorch's DataLoader ranges and frames, and ranges or operators named alike.
Where no name of a rank does, the host work at the head of a step, up to the copy that brings the batch, is taken for
it: a step whose first device work is a copy from host memory began by making what it copies. That stretch goes from the
step's mark to the last such copy call before any other launch, less the CUDA calls inside it. It is an inference: a
program that logs or polls there has that counted too. A copy later in a step (a scalar, a mask) is no batch. Steps
known by their kernels only have no mark on the host: there it is host work of more than half a millisecond from one
launch to the copy that comes next, of more than a value.

A launching thread may also wait for something to do: a server for its next request.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge import frames
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import WAITS
from timesink.knowledge.programs import FRAMEWORKS
from timesink.knowledge.ranges import LOADING, OPERATOR, TORCH_NEXT_BATCH
from timesink.measures.idle.causes import computes_on_host
from timesink.measures.idle.sends import launching_calls, sent_again
from timesink.measures.steps.marks import StepMarker, step_marks
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.known import program_kind, trains
from timesink.measures.timeline.synchronisations import blocking_calls
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.names import matches
from timesink.model.nesting import THREAD, slice_of, thread_slices
from timesink.model.schema import picked
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, HOST_STACKS, OS_CALLS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_SCHEMA: Final = pl.Schema(
    {"rank": pl.Int32(), "process": pl.Int64(), "thread": pl.Int64(), "name": pl.String()}
    | dict.fromkeys(("start_ns", "end_ns"), pl.Int64())
)


class RankInput(Record, eq=False):
    """One rank: `loading` is the union of its data loading on launching threads.

    `name` is the range with the most time, None where loading carries no name and is inferred from the copy that ends
    it; `thread` is the thread with the most.
    """

    name: str | None
    thread: int
    loading: Intervals


class InputPipeline(Record, eq=False):
    """Per rank with any data loading on a launching thread; `frame` lists its ranges and stretches.

    Columns: rank, process, thread, name (null where inferred), start_ns, end_ns. Named ranges on threads
    that launch nothing (workers) cost the GPU nothing directly and are left out. Where the trace records no launches,
    every thread may be the launching one.
    """

    by_rank: Mapping[int, RankInput]
    frame: pl.DataFrame

    def __getitem__(self, rank: int) -> RankInput:
        return self.by_rank[rank]


@remembered
def input_pipeline(trace: Trace) -> InputPipeline:
    """Find data loading, and the idle time it coincides with."""
    named, launching = _named_rows(trace), _launching_threads(trace)
    if launching.height:
        named = named.join(launching, on=THREAD, how="semi", maintain_order="left")
    rows = pl.concat([named, _between_epochs(trace, named), _inferred_rows(trace).join(named, on="rank", how="anti")])
    rows = rows.sort(*THREAD, "start_ns", "end_ns", "name")
    return InputPipeline(
        by_rank={rank: _rank(rows.filter(pl.col("rank") == rank)) for rank in rows["rank"].unique().sort()},
        frame=rows,
    )


def input_prepared(trace: Trace, rank: int) -> Intervals:
    """When launching threads of the rank prepared input."""
    found = input_pipeline(trace).by_rank.get(rank)
    return found.loading if found else Intervals.none()


def _named_rows(trace: Trace) -> pl.DataFrame:
    parts = [pl.DataFrame(schema=_SCHEMA)]
    for table, pattern in ((RANGES, LOADING), (HOST_OPS, LOADING), (FRAMES, frames.LOADING)):
        frame = trace.get(table)
        if (loads := matches(frame["name"], pattern)).any():
            loading = frame.filter(loads & ~matches(frame["name"], OPERATOR))
            parts.append(loading.select(*THREAD, pl.col("name").cast(pl.String), "start_ns", "end_ns"))
    return pl.concat(parts)


def _between_epochs(trace: Trace, named: pl.DataFrame) -> pl.DataFrame:
    """Stretches from one fetch of a DataLoader to its thread's next, with no CUDA call between them.

    The first fetch found its epoch over, the second is of the next one: in between the workers were started anew, which
    PyTorch does not mark. A program that has work to do between two batches launches something.
    """
    parts = [pl.DataFrame(schema=_SCHEMA)]
    if not (named_so := matches(named["name"], TORCH_NEXT_BATCH)).any():
        return parts[0]
    fetches = named.filter(named_so).sort(*THREAD, "start_ns")
    for key, own in fetches.partition_by(THREAD, as_dict=True, maintain_order=True).items():
        thread = dict(zip(THREAD, key, strict=True))
        calls = trace.get(API_CALLS).filter(**thread)["start_ns"].to_numpy()
        over, begin = own["end_ns"].to_numpy()[:-1], own["start_ns"].to_numpy()[1:]
        nothing = (np.searchsorted(calls, over) == np.searchsorted(calls, begin)) & (begin > over)
        between = own[:-1].filter(pl.Series(nothing))
        parts.append(between.with_columns(pl.Series("start_ns", over[nothing]), pl.Series("end_ns", begin[nothing])))
    return pl.concat(parts)


def _inferred_rows(trace: Trace) -> pl.DataFrame:
    """Stretches at the heads of steps, or before copies, less CUDA calls; the thread is the one that copies. What other
    programs than those of a framework compute before they copy is no input."""
    parts, marks = [pl.DataFrame(schema=_SCHEMA)], step_marks(trace)
    if marks.marker is not None and program_kind(trace) in FRAMEWORKS:
        again = sent_again(trace).select(*THREAD, "start_ns")
        launching, calls = launching_calls(trace), trace.get(API_CALLS)
        if again.height:
            launching = launching.with_columns(brings=pl.col("brings") & ~_among(launching, again))
        by_kernels = marks.marker is StepMarker.KERNEL_PATTERN
        heads = _before_copies(launching) if by_kernels else _heads(marks.frame, launching)
        heads = heads.filter(~_computed(trace, heads))
        for key, part in heads.partition_by(THREAD, as_dict=True, maintain_order=True).items():
            thread = dict(zip(THREAD, key, strict=True))
            head = Intervals.union_of(part["host_start_ns"].to_numpy(), part["copy_start_ns"].to_numpy())
            called = Intervals.of(calls[slice(*slice_of(calls, THREAD, key))])
            stretches = head - called - waits_for_work(trace).get(thread["rank"], Intervals.none())
            rows = pl.DataFrame({"start_ns": stretches.start_ns, "end_ns": stretches.end_ns})
            if by_kernels:
                rows = rows.filter(pl.col("end_ns") - pl.col("start_ns") > fixes.CAPTURED_WITHIN_US.ns)
            rows = rows.with_columns(name=None, **{column: pl.lit(value) for column, value in thread.items()})
            parts.append(rows.select(_SCHEMA.names()).cast(_SCHEMA))
    return pl.concat(parts)


def _among(calls: pl.DataFrame, others: pl.DataFrame) -> pl.Series:
    """Which calls, in order of their thread and start, are among the others."""
    both = calls.select(*THREAD, "start_ns").join(
        others.with_columns(found=True), on=[*THREAD, "start_ns"], how="left", maintain_order="left"
    )
    return both["found"].fill_null(False)


def _computed(trace: Trace, heads: pl.DataFrame) -> pl.Series:
    """Which heads are mostly operators that compute on the CPU: these are named, and may run on the GPU."""
    ops, flags = trace.get(HOST_OPS), np.zeros(heads.height, np.bool_)
    computes = ops.filter(pl.Series(computes_on_host(trace)))
    for key, first, last in thread_slices(computes):
        mine = np.flatnonzero(heads.select(_of_thread(key)).to_series().to_numpy())
        begin, end = (heads[name].to_numpy()[mine] for name in ("host_start_ns", "copy_start_ns"))
        flags[mine] = 2 * Intervals.of(computes[first:last]).covered_ns(begin, end) > end - begin
    return pl.Series(flags)


def _of_thread(key: tuple[int, int, int]) -> pl.Expr:
    return pl.all_horizontal(pl.col(name) == value for name, value in zip(THREAD, key, strict=True))


def _before_copies(calls: pl.DataFrame) -> pl.DataFrame:
    """The same columns as of heads: from each thread's launch before it to each call that brings more than a value."""
    before = calls.select(
        *THREAD, "start_ns", "brings", "bytes", pl.col("start_ns").shift().over(THREAD).alias("host_start_ns")
    )
    brought = before.filter(
        pl.col("brings"), pl.col("bytes") > fixes.VALUE_BYTES.value, pl.col("host_start_ns").is_not_null()
    )
    return brought.select(*THREAD, "host_start_ns", copy_start_ns="start_ns")


def _heads(step_frame: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, process, thread, host_start_ns, copy_start_ns of each step that begins with copies from host memory.

    The last call of the unbroken run of copies at a step's begin ends its head; of a step from 0 with these calls the
    head is [0, 40), whatever is copied after the kernel::

        call starts  brings
        30           true
        40           true, the end of the head
        55           false, a kernel
        60           true, no batch
    """
    parts = [pl.DataFrame(schema={name: _SCHEMA[name] for name in THREAD})]
    for key, own in step_frame.sort("host_start_ns").partition_by(THREAD[:2], as_dict=True).items():
        made = picked(calls, (calls["rank"] == key[0]) & (calls["process"] == key[1]))
        begin, end = own["host_start_ns"].to_numpy(), own["host_end_ns"].to_numpy()
        until, called = np.minimum(end, np.append(begin[1:], end[-1:])), made["start_ns"].to_numpy()
        first, last = places(called, begin, False), places(called, until, False)
        kernels = np.flatnonzero(~made["brings"].to_numpy())
        unbroken = np.append(kernels, called.size)[places(kernels, first, False)]
        copy = np.minimum(unbroken, last) - 1
        found = copy >= first
        head = own.select(*THREAD[:2], "host_start_ns").filter(pl.Series(found))
        parts.append(head.hstack(made[copy[found]].select("thread", copy_start_ns="start_ns")))
    return pl.concat(parts, how="diagonal")


def _launching_threads(trace: Trace) -> pl.DataFrame:
    calls = trace.get(API_CALLS)
    launching = launch_links(trace).launching(calls.height)
    threads = [key for key, first, last in thread_slices(calls) if launching[first:last].any()]
    return pl.DataFrame(threads, schema={name: _SCHEMA[name] for name in THREAD}, orient="row")


def _rank(rows: pl.DataFrame) -> RankInput:
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("time")
    times = rows.group_by("thread", "name").agg(length)
    thread, name, _ = times.sort(["time", "thread", "name"], descending=[True, False, False]).row(0)
    return RankInput(name, thread, Intervals.of(rows))


def loading_windows(trace: Trace, rank: int) -> dict[tuple[int, int], Intervals]:
    """Per (process, thread) of a rank, when it was loading: the host time that a fed input pipeline would not spend."""
    return intervals_by(input_pipeline(trace).frame.filter(pl.col("rank") == rank), "process", "thread")


_SHOW_THREADS: Final = (FRAMES, OS_CALLS, HOST_STACKS)


@remembered
def waits_for_work(trace: Trace) -> dict[int, Intervals]:
    """Per rank, when a thread that launches was in a frame or call that waits for somebody else, in a program that only
    infers. Where nothing of what its threads do was recorded, also when it may have waited (`_between_passes`)."""
    found = _between_passes(trace) | _sampled_waits(trace)
    for table, pattern in ((FRAMES, frames.WAITS), (OS_CALLS, WAITS)):
        if (rows := trace.get(table)).height and (waits := rows.filter(matches(rows["name"], pattern))).height:
            calls = trace.get(API_CALLS)
            launching = calls.select(THREAD).filter(pl.Series(launch_links(trace).launching(calls.height)))
            own = waits.join(launching.unique(), on=THREAD, how="semi")
            for (rank,), of_rank in own.partition_by("rank", as_dict=True).items():
                waited = Intervals.union_of(*of_rank.select("start_ns", "end_ns"))
                found[rank] = waited | found.get(rank, Intervals.none())
    return {} if not found or trains(trace) else found


def _sampled_waits(trace: Trace) -> dict[int, Intervals]:
    """Per rank where lines were sampled: from sample to sample of a thread that launches, where both show the wait."""
    samples = trace.get(HOST_STACKS).filter(pl.col("kind") == "sample")
    if not samples.height:
        return {}
    calls = trace.get(API_CALLS)
    launching = calls.select(THREAD).filter(pl.Series(launch_links(trace).launching(calls.height))).unique()
    inner = samples["stack"].cast(pl.String).str.split(";").list.first()
    waits = samples.select(*THREAD, "time_ns", waits=matches(inner, frames.WAITS))
    waits = waits.join(launching, on=THREAD, how="semi")
    both = pl.col("waits") & pl.col("waits").shift(-1).over(THREAD)
    stretches = waits.with_columns(end_ns=pl.col("time_ns").shift(-1).over(THREAD), both=both).filter("both")
    stretches = stretches.rename({"time_ns": "start_ns"}).drop_nulls("end_ns")
    return {rank: Intervals.of(part) for (rank,), part in stretches.sort("start_ns").group_by("rank")}


def _between_passes(trace: Trace) -> dict[int, Intervals]:
    """Per rank where nothing tells whether threads run: from the end of a blocking call, which gave an answer, to the
    thread's next call, where that is long, and most of a thread's time. After an answer of many bytes the CPU works on
    it."""
    found: dict[int, Intervals] = {}
    calls = trace.get(API_CALLS)
    if any(trace.get(table).height for table in _SHOW_THREADS):
        return found
    answers, launches = np.zeros(calls.height, bool), launch_links(trace).launching(calls.height)
    answers[blocking_calls(trace)["call"].to_numpy()] = True
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    read = _bytes_read(trace)
    for (rank, _, _), first, last in thread_slices(calls):
        rows = first + np.flatnonzero((answers | launches)[first:last])
        long = answers[rows[:-1]] & (start[rows[1:]] - end[rows[:-1]] > fixes.CAPTURED_WITHIN_US.ns)
        before = np.maximum(rows[:-1] - 1, first)  # a wait follows the copy that it waits for
        long &= np.maximum(read[rows[:-1]], read[before]) < _WORKED_ON_BYTES
        waited = Intervals.union_of(end[rows[:-1]][long], start[rows[1:]][long])
        if rows.size and 2 * waited.total_ns > end[rows[-1]] - start[rows[0]]:
            found[rank] = waited | found.get(rank, Intervals.none())
    return found


_WORKED_ON_BYTES: Final = 1 << 16  # ids of tokens for thousands of requests are fewer


def _bytes_read(trace: Trace) -> Int64Array:
    """The bytes that each row of `api_calls` copies to the host."""
    ops, call = trace.get(DEVICE_OPS), launch_links(trace).call
    reads = np.flatnonzero((ops["copy_kind"] == "d2h").fill_null(False).to_numpy() & (call >= 0))
    found = np.zeros(trace.get(API_CALLS).height, np.int64)
    found[call[reads]] = ops["bytes"].fill_null(0).to_numpy()[reads]
    return found
