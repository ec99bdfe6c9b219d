"""The step without a profiler: what of the host's time recording took, by a step that is told, or by count.

Calibration brings the replay to a step that is told, by one factor, kappa: the share of the host's time that is left.
Without one, what recording costs is taken off by count.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.assumptions import Assumption, replay
from timesink.knowledge.calls import DEVICE_MEMORY, KERNEL_LAUNCH, CallKind
from timesink.knowledge.ranges import PROFILER_STEP, WORKERS_NEXT_BATCH
from timesink.model.arrays import Float64Array, Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, RANGES
from timesink.records import replace
from timesink.units import NS_PER_US
from timesink.whatif import Case
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph
from timesink.whatif.host import recorded_time, thread_rows
from timesink.whatif.network import EdgeKind
from timesink.whatif.periods import Anchors, StepWindows

_KAPPA_MOST: Final = 1.1  # by chance a step without the profiler takes a little longer than one with it
_TRIED: Final = 22  # replays, in steps of 0.05
_ENDS: Final = (0.1, 0.9)  # of what is likely, as the ends of every price
_ALIKE: Final = 1.25  # times: a host that is known so well makes steps that are as well known as any replay
_ROUNDS: Final = 4  # of sharing out a cost: what is left of it after these is a hundredth
_BETWEEN: Final = 50  # pieces of each, 0.001 long, in which the step is a straight line


def calibrate(graph: Graph, step_ns: float, windows: StepWindows, *, same_run: bool = False) -> tuple[Graph, ...]:
    """The graph with host time scaled by kappa, so that its median step is the unprofiled `step_ns`: by `Case`, as much
    as may be left, what is expected, and as little; the expected one alone where that is all the same.

    A profiler pays per event it records. Where it is one whose kappa is known (0.40, give or take 0.10), time inside
    recorded operators, calls and frames shrinks; what two deviations of that do not explain, a slower host does, which
    took longer for everything. Elsewhere all host time shrinks. Device time is left alone. Kappa is the share of the
    inflated host time that is left. It is the mean of what is likely by normal errors, whose logarithm is

        -1/2 ((step(kappa) / step_ns - 1) / 0.015)^2 - 1/2 ((kappa - usual) / deviation)^2

    by the step that it gives, and by what it usually is for this profiler, or is by estimate. Where the device takes
    the whole step, any host that is quick enough gives that step: then the second decides among those, and of what is
    not recorded on a slow host that part is left which half of the power says that estimates are divided by: the other
    half is in what kappa usually is there. Of the `same_run`, on the same cores, its host is what recording by count
    leaves. Where the device takes longer than the step, no host explains it: its work took less without the profiler,
    and the step that is looked for is what it took.
    """
    anchors = Anchors(graph, windows)
    if not len(windows):
        return (graph,)
    slowdown = _typical(graph, anchors) / step_ns
    inflated, known, least = _recorded_shares(graph), _usual_kappa(graph), 1.0
    hostless = _typical(_scaled(graph, replay.KAPPA_LEAST.value, np.ones_like(inflated)), anchors)
    is_hidden, step_ns = hostless > (1 - 2 * replay.STEP_NOISE.value) * step_ns, max(step_ns, hostless)
    if is_hidden and same_run:
        return tuple(replace(counted, slowdown=slowdown) for counted in deflate(graph, same_cores=True))
    if known is not None:
        usual, deviation = known
        recorded = _scaled(graph, usual - 2 * deviation, inflated)
        if _typical(recorded, anchors) > (1 + 2 * replay.STEP_NOISE.value) * step_ns:
            graph, known, least = recorded, (1.0, math.inf), usual - 2 * deviation
    rest = 1.0
    if known is None or least < 1.0:
        inflated = np.ones_like(inflated)
    elif (slower := _slower(graph, replay.QUICKER_AGAIN_POWER.value / 2)) > 1.0:
        rest = 1.0 / slower if is_hidden else 1.0
    usual, deviation = known or _estimated_kappa(graph)
    least_kappa, finer = replay.KAPPA_LEAST.value, (_TRIED - 1) * _BETWEEN + 1
    coarse, fine = (np.linspace(least_kappa, _KAPPA_MOST, count) for count in (_TRIED, finer))
    tried = [_typical(_scaled(graph, float(kappa), inflated, rest), anchors) for kappa in coarse]
    off = (np.interp(fine, coarse, tried) / step_ns - 1) / replay.STEP_NOISE.value
    unlikely = off**2 + ((fine - usual) / deviation) ** 2
    likely = np.exp((unlikely.min() - unlikely) / 2)
    least_left, most_left = np.interp(_ENDS, np.cumsum(likely) / likely.sum(), fine)
    kappa = min(float(np.average(fine, weights=likely)), 1.0)
    left = [kappa] if most_left < _ALIKE * least_left else [max(most_left, kappa), kappa, min(least_left, kappa)]
    return tuple(
        replace(_scaled(graph, float(share), inflated, rest), kappa=float(share) * least, slowdown=slowdown)
        for share in left
    )


def deflate(graph: Graph, cases: Iterable[Case] = Case, *, same_cores: bool = False) -> tuple[Graph, ...]:
    """The graph with the estimated cost of recording taken off the host's time, for want of an unprofiled step.

    One graph per `Case`: little is taken off in the cautious one, much in the hopeful one. Every call, operator, range
    and frame that the rank recorded has its cost (`_recorded`), half of it where it begins and half where it ends. It
    comes out of the time of its thread near there, all of it where operators nest and there is so much time, and no
    thread loses more than its records cost: what lasts longer, such as a collection of garbage, a wait for a loader, or
    a call of milliseconds, is the program's own, and so is all time in which nothing was recorded.

    What is left near there takes less, too, on a host whose launches are slow; not on the `same_cores`.
    """
    graph = _without_contention(graph)
    program, edges = graph.program, graph.network.edges
    host, thread_of = graph.host_edges()
    begin, end = program.points.time_ns[edges.src[host]], program.points.time_ns[edges.dst[host]]
    near_ns, recorded = replay.NEAR_CALL_US.ns // 2, _recorded(graph.table, program.rank)
    slowness = host_slowness(graph.table(API_CALLS), program.rank)
    shared = 1.0 if same_cores else max(slowness * replay.QUICK_LAUNCH_US.value / replay.QUICK_LAUNCH_US.high, 1.0)
    near, nested = _near_records(graph, near_ns), graph.table(HOST_OPS).height > 0
    called = program.points.call[edges.src[host]]
    in_call = (called >= 0) & (called == program.points.call[edges.dst[host]])
    taken = {case: np.zeros(host.size) for case in cases}
    for thread, (sides_ns, cost_us) in _sides(recorded, program.rank, program.calls.threads).items():
        own, shortened = thread_of == thread, near[thread]
        within = shortened.covered_ns(begin[own], end[own])
        around = np.maximum(shortened.covered_ns(begin[own] - near_ns, end[own] + near_ns), 1)
        first, last = np.searchsorted(sides_ns, begin[own] - near_ns), np.searchsorted(sides_ns, end[own] + near_ns)
        likely_ns = nested * NS_PER_US * slowness**replay.SLOW_HOST_POWER.value * cost_us[Case.EXPECTED.value][-1]
        for case, of_case in taken.items():
            slower = NS_PER_US * slowness ** replay.SLOW_HOST_POWER.at(case)
            paid_ns, one_ns = slower * cost_us[case.value], slower * recorded[0][1].at(case)
            most_ns = within * (1.0 - replay.KEPT_AT_LEAST.at(case))
            most_ns[in_call[own]] = np.minimum(most_ns[in_call[own]], one_ns)
            lost_ns = np.minimum(within * (paid_ns[last] - paid_ns[first]) / around, most_ns)
            for _ in range(_ROUNDS):  # many records crowd a few edges: others lose what is expected of the rest
                total_ns = max(float(lost_ns.sum()), 1.0)
                lost_ns = np.minimum(lost_ns * (min(paid_ns[-1], max(total_ns, likely_ns)) / total_ns), most_ns)
            of_case[own] = within - shared ** -replay.QUICKER_AGAIN_POWER.at(case) * (within - lost_ns)
    ranges = graph.table(RANGES)
    fetches = ranges.filter(matches(ranges["name"], WORKERS_NEXT_BATCH))
    return tuple(_shortened(graph, of_case, end - begin, fetches) for of_case in taken.values())


def _shortened(graph: Graph, taken_ns: Float64Array, lengths_ns: Int64Array, fetches: pl.DataFrame) -> Graph:
    """The graph with so much taken off each host edge, but for `fetches`, batches that other processes make.

    Those come when they came: a process that asks for one sooner, by what was taken off since the last that it waited
    for, waits for it so much longer.
    """
    length, (host, _) = np.maximum(lengths_ns, 1), graph.host_edges()
    left = 1.0 - float(taken_ns.sum()) / max(float(np.maximum(graph.network.edges.weight_ns[host], 0).sum()), 1.0)
    shorter = _launched_sooner(_scaled(graph, 0.0, taken_ns / length, peers=left), taken_ns)
    program = graph.program
    if not fetches.height:
        return shorter
    sooner_ns, source = program.observed_ns - shorter.replay().time_ns, graph.network.edges.src[host]
    for thread, first, last in thread_rows(fetches, program.rank, program.calls.threads):
        begin, end = (fetches[name].to_numpy()[first:last] for name in ("start_ns", "end_ns"))
        own = np.flatnonzero(program.points.thread[source] == thread)
        at = own[np.maximum(places(program.points.time_ns[source[own]], begin, True) - 1, 0)]
        most_ns = np.maximum.accumulate(sooner_ns[source[at]])
        waited = end - begin > NS_PER_US * replay.NEAR_CALL_US.high
        np.subtract.at(taken_ns, at[waited], np.diff(most_ns[waited], prepend=most_ns[:1]))
    return _launched_sooner(_scaled(graph, 0.0, taken_ns / length, peers=left), taken_ns)


def _launched_sooner(graph: Graph, taken_ns: Float64Array) -> Graph:
    """The graph in which work begins sooner by what was taken off the call that launches it, as it follows on that.

    Under Nsight Systems, which records a call before the driver does its part: a kernel begins a microsecond after a
    launch of 11 us. torch.profiler writes its record behind that.
    """
    if graph.table(HOST_OPS).height:
        return graph
    program, edges, (host, _) = graph.program, graph.network.edges, graph.host_edges()
    launches, weight, sooner_ns = graph.edges_of(EdgeKind.LAUNCH), edges.weight_ns.copy(), np.zeros(len(program.points))
    sooner_ns[edges.dst[host]] = taken_ns
    call = program.blocks.call[graph.block_of(edges.dst[launches])]
    least_ns = np.minimum(weight[launches], program.costs.gap_ns)
    weight[launches] = np.maximum(weight[launches] - sooner_ns[program.points.end_of[call]].astype(np.int64), least_ns)
    return graph.with_network(graph.network.with_costs(weight, edges.unexplained_ns))


def quicken(graph: Graph, kept: float) -> Graph:
    """The graph with that share of all host time left."""
    return _scaled(graph, kept, np.ones(graph.host_edges()[0].size))


def _recorded(table: Callable[[Table], pl.DataFrame], rank: int) -> list[tuple[pl.DataFrame, Assumption]]:
    """What a rank's host paid for to be recorded, and what each row cost: by torch.profiler, if there are operators."""
    calls, operators, ranges, frames = (_of_host(table(of), rank) for of in (API_CALLS, HOST_OPS, RANGES, FRAMES))
    if not table(HOST_OPS).height:
        return [(rows, replay.CALL_COST_US) for rows in (calls, ranges, frames)]
    return [
        (calls, replay.EVENT_COST_US),
        (operators, replay.EVENT_COST_US),
        (operators if frames.height else operators.clear(), replay.STACK_COST_US),
        (frames, replay.FRAME_COST_US),
        (ranges, replay.RANGE_COST_US),
        (ranges.filter(matches(ranges["name"], PROFILER_STEP)), replay.STEP_COST_US),
    ]


def _of_host(rows: pl.DataFrame, rank: int) -> pl.DataFrame:
    """A rank's rows in a host table, of processes that are known."""
    first, last = slice_of(rows, ("rank",), (rank,))
    return rows[first + int(np.searchsorted(rows["process"][first:last], 0)) : last]


def recording_us(table: Callable[[Table], pl.DataFrame], rank: int) -> tuple[float, ...]:
    """What it cost a rank's host to record what is in its tables, by case.

    A slow or busy host pays more for each event: how slow it is, its quickest launches say.
    """
    slowness = host_slowness(table(API_CALLS), rank)
    recorded = _recorded(table, rank)
    return tuple(
        float(slowness ** replay.SLOW_HOST_POWER.at(case)) * sum(rows.height * cost.at(case) for rows, cost in recorded)
        for case in Case
    )


def _sides(
    recorded: list[tuple[pl.DataFrame, Assumption]], rank: int, threads: Sequence[tuple[int, int]]
) -> dict[int, tuple[Int64Array, Float64Array]]:
    """By number of a thread when its records begin and end, in order, and by case what was paid for them before each,
    in us."""
    parts: dict[int, list[tuple[pl.DataFrame, Assumption]]] = {}
    for rows, cost in recorded:
        for thread, first, last in thread_rows(rows, rank, threads):
            parts.setdefault(thread, []).append((rows[first:last], cost))
    sides = {}
    for thread, of_thread in parts.items():
        side = np.concatenate([part[name].to_numpy() for part, _ in of_thread for name in ("start_ns", "end_ns")])
        order = np.argsort(side, kind="stable")
        halves = np.array([(cost.low, cost.value, cost.high) for _, cost in of_thread]).T / 2
        paid_us = np.repeat(halves, [2 * part.height for part, _ in of_thread], axis=1)[:, order].cumsum(axis=1)
        sides[thread] = side[order], np.concatenate((np.zeros((len(Case), 1)), paid_us), axis=1)
    return sides


def host_slowness(calls: pl.DataFrame, rank: int) -> float:
    """How many times longer the quick launches of a rank take than on a fast host that does nothing else: at least 1.

    The shortest tenth of them wait for nothing but the host. Launches of 7 us on a host that shares its cores: 2.
    """
    own = _of_host(calls, rank)
    launches = own.filter(matches(own["name"], KERNEL_LAUNCH))
    if launches.height < replay.ENOUGH.whole:
        return 1.0
    quick_ns = float(np.quantile(launches["end_ns"] - launches["start_ns"], replay.INTRINSIC_QUANTILE.value))
    return min(max(quick_ns / replay.QUICK_LAUNCH_US.ns, 1.0), replay.SLOWEST_HOST.value)


def _without_contention(graph: Graph) -> Graph:
    """The graph with calls that waited for a lock of the driver, which torch.profiler holds too, for twice as long as
    the quick ones of their kind take.

    Only where it was measured: cudaMalloc and cudaFree, both of them mostly many times longer than their quick ones,
    and those no quicker, nor any slower, than seen. A lock keeps both waiting. One of them alone takes long by itself:
    a small block is kept in 2 us, a large one unmapped in milliseconds.
    """
    calls, edit, seen = graph.program.calls, Edit(graph), replay.ALLOCATION_SEEN_US
    if not graph.table(HOST_OPS).height:
        return graph
    of_device = matches(graph.table(API_CALLS)["name"], DEVICE_MEMORY).to_numpy()[calls.row]
    for kind in (CallKind.ALLOCATE, CallKind.FREE):
        chosen = np.flatnonzero(of_device & (calls.kind == kind))
        length = calls.lengths_ns[chosen]
        quick_ns = float(np.quantile(length, replay.INTRINSIC_QUANTILE.value)) if chosen.size else 0.0
        if (
            chosen.size < replay.ENOUGH.whole
            or not NS_PER_US * seen.low <= quick_ns < median(length) / replay.ALLOCATION_CONTENDED.value
            or length.max() > NS_PER_US * seen.high
        ):
            return graph
        share = 1.0 - np.minimum(replay.ALLOCATION_SPREAD.value * quick_ns / np.maximum(length, 1), 1.0)
        edit.save_calls(chosen, calls.start_ns[chosen], calls.end_ns[chosen], share)
    return edit.done()


def _usual_kappa(graph: Graph) -> tuple[float, float] | None:
    """What kappa usually is for the profiler that recorded this, and its deviation; None where it was not measured.

    On a slow or busy host recording takes longer by more than the program does: of 0.40 on a fast one, 1 part of
    program to 1.5 of recording, one twice as slow has 1 to 5.2, which is 0.16.
    """
    operators = graph.table(HOST_OPS)
    with_shapes = operators["input_shapes"].null_count() < operators.height
    if not with_shapes or graph.table(FRAMES).height:
        return None
    slower = _slower(graph, replay.SLOW_KAPPA_POWER.value)
    usual = 1.0 / (1.0 + (1.0 / replay.USUAL_KAPPA.value - 1.0) * slower)
    return usual, replay.KAPPA_DEVIATION.value * usual / replay.USUAL_KAPPA.value


def _estimated_kappa(graph: Graph) -> tuple[float, float]:
    """The same of all host time, by what recording is estimated to cost (`deflate`), and by how much quicker the host
    is likely to be that ran the step without a profiler."""
    host, _ = graph.host_edges()
    (deflated,) = deflate(graph, [Case.EXPECTED], same_cores=True)
    whole_ns, left_ns = (float(np.maximum(each.network.edges.weight_ns[host], 0).sum()) for each in (graph, deflated))
    slower = _slower(graph, replay.QUICKER_AGAIN_POWER.value)
    return left_ns / max(whole_ns, 1.0) / slower, replay.ESTIMATE_DEVIATION.value


def _slower(graph: Graph, power: float) -> float:
    """How many times longer something takes on the rank's host than on a fast one, by a power of how slow it is."""
    return float(host_slowness(graph.table(API_CALLS), graph.program.rank) ** power)


def _typical(graph: Graph, anchors: Anchors) -> float:
    return median(anchors.periods(graph.replay()))


def _scaled(graph: Graph, kappa: float, inflated: Float64Array, rest: float = 1.0, peers: float | None = None) -> Graph:
    """Host weights times kappa, of the share of each that is inflated, and times `rest` of what remains; what was
    waited for hosts of other ranks times `peers`, kappa where that is not given."""
    network, (host, _) = graph.network, graph.host_edges()
    weight = network.edges.weight_ns.copy()
    kept = kappa * inflated + rest * (1.0 - inflated)
    weight[host] = np.where(weight[host] > 0, np.floor(weight[host] * kept).astype(np.int64), weight[host])
    if graph.late_peers_ns is not None:
        runs = graph.edges_of(EdgeKind.RUN)
        late_ns = graph.late_peers_ns[graph.block_of(network.edges.src[runs])]
        weight[runs] -= np.floor(late_ns * (1.0 - (kappa if peers is None else peers))).astype(np.int64)
    return graph.with_network(network.with_costs(weight, network.edges.unexplained_ns))


def _recorded_shares(graph: Graph) -> Float64Array:
    """The share of each host edge's time that is inside recorded events of its thread; one entry per host edge."""
    program, edges = graph.program, graph.network.edges
    host, thread_of = graph.host_edges()
    begin, end = program.points.time_ns[edges.src[host]], program.points.time_ns[edges.dst[host]]
    covered = np.zeros(host.size)
    for thread, inside in _recorded_time(graph).items():
        own = thread_of == thread
        covered[own] = inside.covered_ns(begin[own], end[own])
    return np.asarray(np.clip(covered / np.maximum(end - begin, 1), 0.0, 1.0), np.float64)


def _recorded_time(graph: Graph, *more: Table, near_ns: int | None = None) -> dict[int, Intervals]:
    """When each thread was in recorded calls, operators and frames, or near where one begins or ends."""
    tables = [graph.table(table) for table in (API_CALLS, HOST_OPS, FRAMES, *more)]
    return recorded_time(tables, graph.program.rank, graph.program.calls.threads, near_ns)


def _near_records(graph: Graph, near_ns: int) -> dict[int, Intervals]:
    """Each thread's time so near to where records begin or end that they may have been paid for in it.

    Of operators inside of them; ranges, and calls where there are no operators, cost before and after themselves too.
    """
    near = _recorded_time(graph, RANGES, near_ns=near_ns)
    if not graph.table(HOST_OPS).height:
        return near
    threads, none = graph.program.calls.threads, Intervals.none()
    ranges = recorded_time([graph.table(RANGES)], graph.program.rank, threads, near_ns)
    inside = _recorded_time(graph)
    return {thread: part & inside.get(thread, none) | ranges.get(thread, none) for thread, part in near.items()}
