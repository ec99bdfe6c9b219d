"""Rules on a device that does nothing, and who keeps it waiting: a place is the idle time of one device, by its causes.

A finding stands where that time passes a share of the step. `waiting_row` serves other topics too.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare, fill_template
from timesink.diagnosis.rule import Limits, rule_texts
from timesink.diagnosis.verdicts import (
    Claim,
    Clear,
    Evidence,
    Found,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.diagnosis.words import per_period, per_what
from timesink.fixes import Fix
from timesink.fixes.advised import LESS_HOST_WORK, NO_RECOMPILATION
from timesink.fixes.compute import CUDA_GRAPH
from timesink.fixes.transfers import KEEP_MEMORY, LOADER_WORKERS, ONE_PROCESS_PER_GPU, REMOVE_SYNC
from timesink.knowledge.calls import DEVICE_SYNC, OF_MEMORY, call_kinds
from timesink.knowledge.kernel_traits import OF_PYTHON
from timesink.knowledge.operators import ALLOCATES
from timesink.knowledge.ranges import COMPILE_WORK, CONVOLVES, GARBAGE_COLLECTION, OPERATOR
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.communication.collectives import pickled_per_step
from timesink.measures.communication.structures import host_functions
from timesink.measures.compile.graph_capture import graph_obstacle
from timesink.measures.habits.debugging import launches_block
from timesink.measures.idle.before_launches import launching_time, slow_calls
from timesink.measures.idle.blame import idle_blame, is_effective
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time, python_time, system_time, unrecorded_ns
from timesink.measures.idle.input_pipeline import input_pipeline, loading_windows, waits_for_work
from timesink.measures.kernels import median_kernel_ns
from timesink.measures.repeats.units import launched_again
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import begun_per_step, per_step_ns, period_name, period_ns, step_windows
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.known import known
from timesink.measures.timeline.launches import DeviceLaunches, launches
from timesink.measures.timeline.quality import profiler_cost
from timesink.measures.timeline.replay import deflated_pricers, pricers
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    FRAMES,
    HOST_OPS,
    RANGES,
    SOURCES,
)
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.startup import regex
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.whatif import Change, Target
from timesink.whatif.changes.host import DropCompiler, RemoveSyncs
from timesink.whatif.pricing import Pricer
from timesink.whatif.unprofiled import quicken


def waiting_row(blamed: BlamedTime, fix: Fix | None = None, change: Change | None = None, /, **figures: Any) -> Row:
    """A device and its idle time of some causes; `place` is where most of it is: ``aten::item, range forward, thread
    12``, '' where nothing is known."""
    (rank, device), thread = blamed.device, blamed.thread
    names = {"": blamed.host_op or blamed.frame or blamed.call, "range ": blamed.range, "thread ": thread}
    place = ", ".join(f"{joint}{name}" for joint, name in names.items() if name not in (None, ""))
    where = Where(rank, device, None, thread, None, blamed.range, blamed.host_op, None, blamed.file, blamed.line)
    known = {"idle_ratio": blamed.share, "place": place}
    return Row(
        blamed.device, {**known, **figures}, blamed.intervals, change=change, fix=fix, where=where, rows=blamed.rows
    )


def _host_goes(
    time: Callable[[Trace], Iterable[BlamedTime]], whole: str = "", fix: Fix = LESS_HOST_WORK
) -> Callable[[Trace], Rows]:
    """Rows of idle time that goes with the host's work. `whole` names ranges that go as a whole where any is recorded,
    though the device waits in a part of them only."""

    def rows(trace: Trace) -> Iterator[Row]:
        named = bool(whole) and bool(matches(trace.get(RANGES)["name"], whole).any())
        for blamed in time(trace):
            target = Target("range", whole) if named else Target("windows", windows=blamed.host)
            yield waiting_row(blamed, fix, fix.change(target))

    return rows


def _in_python(trace: Trace) -> Iterator[Row]:
    """Named as the greater part of it is; of a program that nothing shows to be Python the code, and so the gain, is
    not known: at most all of it."""
    if not _is_python(trace):
        yield from _if_it_works(trace, python_time(trace), "unrecorded_code", None)
        return
    for blamed in python_time(trace):
        is_told = 2 * unrecorded_ns(trace).get(blamed.device, 0) < blamed.intervals.total_ns
        yield from _if_it_works(trace, (blamed,), "python" if is_told else "unrecorded_python", LESS_HOST_WORK)


def _in_system(trace: Trace) -> Iterator[Row]:
    yield from _if_it_works(trace, system_time(trace), "", LESS_HOST_WORK)


def _if_it_works(trace: Trace, time: Iterable[BlamedTime], variant: str, fix: Fix | None) -> Iterator[Row]:
    """Rows of a variant with a fix. Time that is mostly a wait for work, such as a request, has none: what would end it
    was not recorded, and may be nothing that the program can do."""
    for blamed in time:
        waited = blamed.intervals & waits_for_work(trace).get(blamed.device[0], Intervals.none())
        if 2 * waited.total_ns > blamed.intervals.total_ns:
            yield replace(waiting_row(blamed), claim=Claim({blamed.device: blamed.intervals}, {}), variant="waiting")
        else:
            change = fix.change(Target("windows", windows=blamed.host)) if fix else None
            yield replace(waiting_row(blamed, fix, change), variant=variant)


def _is_python(trace: Trace) -> bool:
    """Whether operators, frames, ranges or kernels of Python's frameworks were recorded; of a profiler of theirs only
    what ran on the host counts, which its user may have left out."""
    if trace.get(HOST_OPS).height or trace.get(FRAMES).height:
        return True
    is_nsys = trace.get(SOURCES)["format"].cast(pl.String).str.starts_with("nsys").all()
    return is_nsys and bool(
        matches(trace.get(DEVICE_OPS)["name"], OF_PYTHON).any() or matches(trace.get(RANGES)["name"], OPERATOR).any()
    )


def _in_allocator(trace: Trace) -> Iterator[Row]:
    """Time in an operator that only allocates, without a call, is told as that: the pool grew, unrecorded."""
    for blamed in blamed_time(trace, ("allocator",)):
        is_unrecorded = blamed.call is None and bool(regex(ALLOCATES).search(blamed.host_op or ""))
        change = KEEP_MEMORY.change(Target("windows", windows=blamed.host))
        yield replace(waiting_row(blamed, KEEP_MEMORY, change), variant="unrecorded" if is_unrecorded else "")


def _in_compiler(trace: Trace) -> Iterator[Row]:
    """Nothing is compiled any more; trials are made within the compiler's ranges, or else until the step is over."""
    for blamed in blamed_time(trace, ("compile",)):
        rank = blamed.device[0]
        tables = (trace.get(table).filter(pl.col("rank") == rank) for table in (RANGES, HOST_OPS))
        named = [Intervals.of(part.filter(matches(part["name"], COMPILE_WORK)).sort("start_ns")) for part in tables]
        trials = Intervals.union_all(named)
        if not len(trials):
            kept = steps(trace).kept.filter(pl.col("rank") == rank)
            windows = Intervals.union_of(kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy())
            trials = from_first(Intervals.union_all(blamed.host.values()), windows)
        waits, tried = (Target("windows", windows=part) for part in (blamed.host, dict.fromkeys(blamed.host, trials)))
        variant = "search" if regex(CONVOLVES).search(blamed.host_op or "") else "compiler"
        yield replace(waiting_row(blamed, NO_RECOMPILATION, DropCompiler(waits, tried)), variant=variant)


def from_first(parts: Intervals, windows: Intervals) -> Intervals:
    """Of each window the time from where the first of the parts in it begins: [3, 4) and [6, 7) in [0, 10) give
    [3, 10)."""
    place = np.searchsorted(parts.start_ns, windows.start_ns)
    first = np.append(parts.start_ns, np.iinfo(np.int64).max)[place]
    inside = first < windows.end_ns
    return Intervals.union_of(first[inside], windows.end_ns[inside])


_PICKLED: Final = "collectives that send a length of 8 bytes and then bytes, as all_gather_object does"
_TENSORS: Final = "Gather metrics as one tensor every N steps; all_gather_object waits twice."
_QUICKER: Final = (0.8, 0.6, 0.4, 0.2)  # of the time of a CPU that is as fast as estimates allow: truth may be less
_SLOWED: Final = ("dispatch", "cuda_call", "python", "unrecorded_code", "launch_latency", "optimizer", "profiler")


def _prepared(trace: Trace) -> Rows:
    """Idle time in the preparation of input, and how long that takes: the longest named loading, else the host work
    before the batch is copied."""
    pipeline = input_pipeline(trace)
    if not pipeline.by_rank:
        return NotApplicable("no range, operator or copy shows where input is prepared")
    rows = []
    for blamed in blamed_time(trace, ("loader",)):
        rank = blamed.device[0]
        longest = pipeline.by_rank.get(rank)
        preparing_ns = per_step_ns(trace, blamed.device, longest.loading) if longest else 0.0
        what = f"thread {longest.thread} prepares input" if longest else "the CPU prepares input"
        what += f" in {longest.name}" if longest and longest.name is not None else ""
        change = LOADER_WORKERS.change(Target("windows", windows=loading_windows(trace, rank)))
        workers = math.ceil(preparing_ns / max(blamed.step_ns - blamed.per_step_ns, 1.0))
        is_longer = time_text(preparing_ns) != time_text(blamed.per_step_ns)
        figures = {
            "what": what,
            "preparing_ms": preparing_ns / NS_PER_MS,
            "longer_ns": preparing_ns if is_longer else None,
            "whole": "each step" if period_name(trace) == "step" else "the recorded window",
            "workers": workers if workers > 1 else None,
        }
        rows.append(waiting_row(blamed, LOADER_WORKERS, change, **figures))
    return rows


def _after_waits(trace: Trace) -> Rows:
    if not synchronisations(trace).calls.height:
        return NotApplicable("no call in the trace blocks the CPU")
    removed = REMOVE_SYNC.change()
    return [
        replace(waiting_row(blamed, REMOVE_SYNC, removed), variant=_variant_of_waits(trace, blamed))
        for blamed in blamed_time(trace, ("sync",))
    ]


def _variant_of_waits(trace: Trace, blamed: BlamedTime) -> str:
    """Whether a device's waits are for all of it; or "unread", where no copy to the CPU ends in those that most of the
    time is charged to."""
    if not blamed.host_op and DEVICE_SYNC.search(blamed.call or ""):
        return "device"
    first, past = slice_of(trace[DEVICE_OPS], ("rank", "device"), blamed.device)
    ops, stretches = trace[DEVICE_OPS][first:past], idle_blame(trace).on(blamed.device)
    copied_ns = np.sort(ops["end_ns"].filter(ops["copy_kind"] == "d2h").to_numpy())
    start_ns, end_ns, call = (stretches[name].to_numpy() for name in ("start_ns", "end_ns", "call_row"))
    charged = (stretches["cause"] == "sync").to_numpy() & (call >= 0)
    row, length_ns = call[charged].astype(np.int64), (end_ns - start_ns)[charged]
    begun, done = (np.searchsorted(copied_ns, trace[API_CALLS][at].to_numpy()[row]) for at in ("start_ns", "end_ns"))
    return "unread" if 2 * length_ns[done > begun].sum() < length_ns.sum() else ""


def _count_waits(trace: Trace, row: Row, _: object) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """How many blocking calls a step makes, and objects it exchanges pickled."""
    rank = row.device[0]
    calls = synchronisations(trace).calls.filter(pl.col("rank") == rank)["start_ns"]
    count, pickled, per = begun_per_step(trace, rank, calls), pickled_per_step(trace, rank), per_what(trace)
    facts = [Evidence("blocking calls", Quantity(count, per), "calls within the steps")]
    facts += [Evidence("pickled objects", Quantity(pickled, per), _PICKLED)] if pickled else []
    objects = {"objects": per_period(trace, pickled), "gather": _TENSORS} if pickled else {}
    return {"calls": per_period(trace, count), **objects}, tuple(facts)


def _check_waits(trace: Trace, limits: Limits) -> Verdict:
    """Undecided where waits may cost more with the profiler's cost taken off, and in the trace little of that."""
    verdict = _HOST_SYNC.check(trace, limits)
    if isinstance(verdict, NotApplicable | Undecided) or trace.unprofiled_step_ns is not None:
        return verdict
    hidden = max((_hidden_share(trace, limits["idle_ratio"], rank) for rank in pricers(trace)), default=0.0)
    if not hidden:
        return verdict
    return Undecided(
        "the profiler slows the CPU, which hides its waits; without it they may cost about "
        f"{share_text(hidden)} of the step",
        "time a step without the profiler and pass --unprofiled-step-ms",
        most_ratio=hidden,
    )


def _hidden_share(trace: Trace, limit: float, rank: int) -> float:
    """What the waits of a rank cost at most, whatever its CPU takes without the profiler, where with a CPU as fast as
    it may be by estimate they pass the limit and no good part of it is seen in the trace, nor expected; else 0."""
    _, expected, fastest = deflated_pricers(trace)[rank]
    if not fastest.step_ns or fastest.step_ns - fastest.busy_ns <= limit * fastest.step_ns:
        return 0.0  # without its waits the host still leaves the device its work
    profiled, likely, hidden = (
        pricer.gain_ns(RemoveSyncs()) / pricer.step_ns for pricer in (pricers(trace)[rank], expected, fastest)
    )
    seen = [part.share for part in blamed_time(trace, ("sync",)) if part.device[0] == rank]
    if hidden <= limit or is_effective(max(profiled, likely, *seen), hidden):
        return 0.0
    quicker = (Pricer(quicken(fastest.graph, kept), fastest.anchors.windows) for kept in _QUICKER)
    return max(hidden, *(pricer.gain_ns(RemoveSyncs()) / pricer.step_ns for pricer in quicker))


def _before_launches(trace: Trace) -> Rows:
    """Devices whose median kernel is shorter than the median interval between launches."""
    if launches_block(trace):
        why = "launches are blocking, so that the CPU is never ahead of the GPU"
        return Undecided(why, "unset CUDA_LAUNCH_BLOCKING and capture again")
    queues, kernel_ns = launches(trace), median_kernel_ns(trace)
    held_ns = {part.device: part.per_step_ns for part in slow_calls(trace) if len(part.intervals)}
    starved = [
        (blamed, queue, interval_ns)
        for blamed in launching_time(trace)
        for queue in (queues[blamed.device],)
        if (queue.interval_p50_ns or 0.0) > kernel_ns.get(blamed.device, 0.0)
        and not (blamed.device in held_ns and queue.launches_per_step and queue.launches_per_step <= _ONE_LAUNCH)
        for interval_ns in (_interval_ns(blamed, queue),)
    ]
    if not starved:
        return Clear(tuple(map(_queue_fact, queues.values())))
    obstacle = graph_obstacle(trace)
    fixes: dict[str, tuple[Fix, Change] | tuple[Fix] | tuple[()]] = {
        "": (CUDA_GRAPH, captured := CUDA_GRAPH.change()),  # of the whole host: one price for all devices
        "allocates": (CUDA_GRAPH, captured),
        "data_parallel": (ONE_PROCESS_PER_GPU,),
        "waits": (REMOVE_SYNC, REMOVE_SYNC.change()),
    }
    fix = fixes.get(obstacle.kind if obstacle else "", ())
    rows = [
        waiting_row(
            blamed,
            *fix,
            interval_ns=interval_ns,
            launches=queue.launches_per_step,
            empty_ratio=queue.empty_queue_ratio,
            held=obstacle and obstacle.name,
            repeated=_repeated(trace, blamed),
        )
        for blamed, queue, interval_ns in starved
    ]
    variant = obstacle.kind if obstacle else "captured" if _is_replayed(trace) else ""
    waited = {"variant": "waits", "bottleneck": Bottleneck.HOST_SYNC, "change": None, "fix": None}
    return [
        replace(row, **waited) if _is_waited_for(trace, row.device) else replace(row, variant=variant) for row in rows
    ]


def _is_waited_for(trace: Trace, device: Device) -> bool:
    """Whether a blocking call has drained the device before nearly all of its launches: what the CPU does from there to
    the next launch is on time for nothing, and no graph can hold the waits."""
    # One wait may stand behind many gaps, for a CPU that is late once stays late: so waits are counted, not gaps.
    # That a call of memory waits is not what it is for: no such call is needed, and allocating once takes it away.
    gaps = idle_blame(trace).on(device)
    ended, waits = gaps["op_row"].n_unique(), gaps["sync_row"].drop_nulls().unique()
    of_memory = np.isin(call_kinds(trace.get(API_CALLS)["name"][waits]), OF_MEMORY)
    return bool(ended > 1 and np.count_nonzero(~of_memory) >= _NEARLY_ALL * ended)


_NEARLY_ALL: Final = 0.75  # of the stretches: some launches follow a wait by chance


def _is_replayed(trace: Trace) -> bool:
    """Whether CUDA graphs replay most of what the devices run."""
    shared, is_graph = launch_links(trace).shared, (trace[DEVICE_OPS]["kind"] == "graph").to_numpy()
    return bool(2 * (shared | is_graph).sum() > shared.size)


_ONE_LAUNCH: Final = 1.5  # per step: there is nothing to launch together


def _interval_ns(blamed: BlamedTime, queue: DeviceLaunches) -> float:
    """From one launch to the next on average: the median of launches that come in bursts is no rate."""
    if queue.launches_per_step:
        return blamed.step_ns / queue.launches_per_step
    return blamed.step_ns / max(queue.launch_count, 1)


def _repeated(trace: Trace, blamed: BlamedTime) -> str | None:
    """What runs again and again before which most of that time passes."""
    unit = launched_again(trace, blamed.per_step_ns / period_ns(trace, blamed.device))
    each = " in each step" if period_name(trace) == "step" else ""
    return None if unit is None else f"{unit.said}, which run {unit.per_step:,.0f} times{each}"


def _queue_fact(queue: DeviceLaunches) -> Evidence:
    fact = rule_texts("launch-bound").facts[1]
    label = fill_template(fact.label, {"device": queue.device})
    return Evidence(label, Quantity(queue.empty_queue_ratio, fact.unit), fact.how)


def _slowed_by_profiler(trace: Trace) -> Rows:
    """Devices that wait for a host of which Python stacks were recorded; no more than recording costs is charged."""
    heavy = {cost.rank: cost for cost in profiler_cost(trace) if cost.heavy}
    if not heavy:
        return NotApplicable("no Python stacks were recorded")
    rows = []
    for blamed in blamed_time(trace, _SLOWED):
        if (cost := heavy.get(blamed.device[0])) is None:
            continue
        whole = cost.cost_ns >= period_ns(trace, blamed.device)
        explained = cost.cost_ns / blamed.per_step_ns if blamed.per_step_ns else 0.0
        row = waiting_row(
            blamed,
            explained_ratio=explained,
            frames=cost.frames,
            operators=cost.operators,
            cost_ms=cost.cost_ns / NS_PER_MS,
            cost="about as long" if whole else f"about {time_text(cost.cost_ns)}",
        )
        rows.append(replace(row, stated=Quantity.ms(min(cost.cost_ns, blamed.per_step_ns), 0.0, blamed.per_step_ns)))
    return rows


def _starting_late(trace: Trace) -> Iterator[Row]:
    for blamed in blamed_time(trace, ("unexplained",)):
        longest_ns = int(blamed.intervals.lengths_ns.max(initial=0))
        is_one = time_text(longest_ns) == time_text(blamed.per_step_ns)
        row = waiting_row(blamed, longest_ns=longest_ns, longest=None if is_one else longest_ns)
        late = blamed.intervals.start_ns.size
        is_held = bool(late) and host_functions(trace).get(blamed.device[0], 0) >= late
        yield replace(row, variant="held") if is_held else row


def _check_late_start(trace: Trace, limits: Limits) -> Verdict:
    """Undecided where records are missing, since what ran meanwhile may be among them; and where most of it is one
    delay and no step comes back that could have another: it is of the start, or the device waits for what was launched
    before the recording."""
    verdict = _LATE_START.check(trace, limits)
    if isinstance(verdict, Found) and (missing := known(trace).missing):
        most = max(finding.evidence[0].measured.value for finding in verdict.findings)
        why = f"GPU work starts late, but what runs before it may be missing, as {missing[0].why}"
        return Undecided(why, missing[0].to_decide, most_ratio=most)
    lone = [part for part in blamed_time(trace, ("unexplained",)) if _is_one_delay(trace, part)]
    if not isinstance(verdict, Found) or not lone:
        return verdict
    again = tuple(found for found in verdict.findings if all(part.device not in found.claim.intervals for part in lone))
    if again:
        return Found(again)
    longest = max(lone, key=lambda part: part.share)
    late = time_text(int(longest.intervals.lengths_ns.max()))
    why = f"GPU {longest.device[1]} starts {late} late once, and no step shows that this recurs"
    return Undecided(why, "record ten steps", most_ratio=longest.share)


def _is_one_delay(trace: Trace, blamed: BlamedTime) -> bool:
    delays_ns = blamed.intervals.lengths_ns
    return step_windows(trace, blamed.device)[0].size < 2 and bool(2 * delays_ns.max(initial=0) > delays_ns.sum())


_HOST_SYNC: Final = declare("host-sync", _after_waits, details=_count_waits)

_LATE_START: Final = declare("late-start", _starting_late)

RULES: Final = (
    declare("input-pipeline", _prepared),
    replace(_HOST_SYNC, check=_check_waits),
    declare("launch-bound", _before_launches),
    declare("host-python", _in_python),
    declare(
        "garbage-collection", _host_goes(lambda trace: blamed_time(trace, ("garbage_collection",)), GARBAGE_COLLECTION)
    ),
    declare("allocator", _in_allocator),
    declare("recompilation", _in_compiler),
    declare("operating-system", _in_system),
    replace(_LATE_START, check=_check_late_start),
    declare("profiler-overhead", _slowed_by_profiler),
)
