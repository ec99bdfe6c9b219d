"""The dependency graph of each rank, built once per trace, and what is replayed of it: prices and the critical path.

Idle blame reads the parts of the graph, prices replay it. A long trace is replayed in excerpts, so that its whole
program would serve the blame alone: it is then read without the graph's nodes, and not kept.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.communication.late_hosts import waited_for_hosts
from timesink.measures.steps import steps
from timesink.measures.steps.slow_steps import slow, slow_rates, usual_weights, weights, weights_in
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, Int64Array, flag_at
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, EVENT_WAITS, FRAMES, HOST_OPS, PROFILER_OVERHEAD, RANGES, SYNCS
from timesink.model.trace import Trace, remembered
from timesink.whatif import Case
from timesink.whatif.critical_path import PathPieces, path_pieces
from timesink.whatif.graph import Graph, Program, RankWork, ranks_of
from timesink.whatif.periods import Anchors, StepWindows
from timesink.whatif.pricing import Pricer
from timesink.whatif.unprofiled import calibrate, deflate

# A trace with more device ops than this is only ever replayed in excerpts: its program as a graph is not kept.
_OPS_KEPT: Final = 200_000
# A replay of about this many device ops says as much as one of millions, and a price stays well below a second.
_OPS_REPLAYED: Final = 20_000
# An excerpt has this many stretches, spread evenly so that a drift over the run shows, of at least so many steps.
_STRETCHES: Final = 4
_STEPS_IN_STRETCH: Final = 3  # of at least so many steps


@remembered
def programs(trace: Trace) -> Mapping[int, Program]:
    """Per rank: its calls, device ops, and what each waited for."""
    return {rank: Program.read(trace, rank) for rank in ranks_of(trace)}


def work_of(trace: Trace, rank: int) -> RankWork:
    """What a rank did: its program where that is kept anyway, else its parts alone."""
    if trace.get(DEVICE_OPS).height <= _OPS_KEPT:
        return programs(trace)[rank]
    return RankWork.read_work(trace, rank)


@remembered
def graphs(trace: Trace) -> Mapping[int, Graph]:
    """Per rank: the graph that a what-if replays."""
    return {rank: Graph.of(program, trace.tables) for rank, program in programs(trace).items()}


@remembered
def pricers(trace: Trace) -> Mapping[int, Pricer]:
    """A pricer per rank whose GPU has steady steps. Of a long trace it replays a few stretches, spread evenly."""
    worked = set(steps(trace).windows["rank"].unique())  # a memory snapshot has steps, and nothing to replay
    windows_by_rank = step_windows(trace)
    found, waited = dict[int, Pricer](), waited_for_hosts(trace)
    for rank, windows in windows_by_rank.items():
        if rank in worked:
            graph, chosen = _select_steps(trace, rank, windows)
            found[rank] = Pricer(graph.waiting_for_hosts(*waited[rank]) if rank in waited else graph, chosen)
    for rank in slow_rates(trace):
        if rank in found:
            found[rank] = found[rank].weighing(weights_in(trace, rank, found[rank].periods_ns))
    if trace.left_out:  # the host may have stood still in another step than the one that is long on the device
        found = {rank: pricer.weighing(usual_weights(pricer.periods_ns)) for rank, pricer in found.items()}
    return found


def calibrated_pricers(trace: Trace) -> Mapping[int, Pricer]:
    """The same with host time scaled so that a step takes as long as it does without a profiler.

    Where that time is not known (`unprofiled_step_ns`), those of the trace as it is. Where some steps are slow, the
    known mean step says how often they come, if that is about as often as in the trace.
    """
    return _calibrated(trace)[0]


def calibrated_ends(trace: Trace) -> Mapping[int, tuple[Pricer, ...]]:
    """The same with the most and the least of the host's time that may be left, where the step does not tell: a device
    that takes all of it hides the host, and another change may uncover it."""
    return _calibrated(trace)[1]


@remembered
def _calibrated(trace: Trace) -> tuple[Mapping[int, Pricer], Mapping[int, tuple[Pricer, ...]]]:
    if (step_ns := trace.unprofiled_step_ns) is None:
        return pricers(trace), {}
    found, ends = dict[int, Pricer](), dict[int, tuple[Pricer, ...]]()
    for rank, pricer in pricers(trace).items():
        expected, windows = pricer, None
        if pricer.anchors.windows.uneven:
            expected = deflated_pricers(trace)[rank][Case.EXPECTED.value]
            windows = _reweigh_slow_steps(expected, step_ns)
        if windows is not None:
            found[rank] = Pricer(expected.graph, windows, pricer.residual_ratio)
        else:
            windows = pricer.anchors.windows
            cases = calibrate(pricer.graph, step_ns, windows, same_run=bool(trace.unprofiled_steps_ns))
            every = [Pricer(graph, windows, pricer.residual_ratio) for graph in cases]
            found[rank] = every[len(every) // 2]
            ends[rank] = tuple(one for one in every if one is not found[rank])
    return found, ends


# How often slow steps come is off the few that a capture shows by this factor at most.
_RATE_FACTOR: Final = 3.0


def _reweigh_slow_steps(pricer: Pricer, step_ns: float) -> StepWindows | None:
    """The windows with slow steps as often as gives the known mean step; None where no likely rate does.

    Steps of 2.5 and 53 ms, the slow one of five, and 19.8 ms known: slow is a share of (19.8 - 2.5) / (53 - 2.5).
    """
    windows, periods = pricer.anchors.windows, pricer.periods_ns
    long = slow(periods)
    if not long.any():
        return None
    usual_ns, slow_ns = float(periods[~long].mean()), float(periods[long].mean())
    seen, rate = float(windows.weight[long].sum() / windows.weight.sum()), (step_ns - usual_ns) / (slow_ns - usual_ns)
    if not seen / _RATE_FACTOR <= rate <= min(_RATE_FACTOR * seen, 1.0):
        return None
    return StepWindows(windows.start_ns, windows.end_ns, weights(rate, periods))


@remembered
def deflated_pricers(trace: Trace) -> Mapping[int, tuple[Pricer, ...]]:
    """The same with what recording costs the host taken off by estimate: one pricer per `Case`, for little, the
    expected and much cost. Ranks are compared by the hosts that they had."""
    every = pricers(trace)
    return {
        rank: tuple(
            Pricer(graph, pricer.anchors.windows, pricer.residual_ratio)
            for graph in deflate(pricer.graph, same_cores=len(every) > 1)
        )
        for rank, pricer in every.items()
    }


def steps_by_case_ns(cases: Sequence[Pricer]) -> list[float]:
    """The mean step per `Case`: the less recording is taken to cost, the longer."""
    return list(accumulate((case.step_ns for case in cases), min))


def step_without_profiler_ns(trace: Trace, rank: int) -> float:
    """The mean step of a rank without a profiler, in ns: as told, else as estimated. `KeyError` for a rank without
    steps to replay."""
    steps_ns = steps_by_case_ns(deflated_pricers(trace)[rank])
    return trace.unprofiled_step_ns or steps_ns[Case.EXPECTED.value]


def step_windows(trace: Trace) -> Mapping[int, StepWindows]:
    """Host windows of the kept steps of each rank: those of `Steps.host`."""
    return {
        int(rank): StepWindows.alike(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        for (rank,), rows in steps(trace).host.group_by("rank", maintain_order=True)
    }


def _select_steps(trace: Trace, rank: int, windows: StepWindows) -> tuple[Graph, StepWindows]:
    """The graph to replay and its windows: all of it, or of a long trace an excerpt.

    Of 100 steps with 100,000 ops, 20 are replayed: `_STRETCHES` runs of 5, each with the step before it to bring the
    queues to their usual depth. That lead is in the graph and not in the windows::

        run  lead  steps
        0    0     1 to 5
        1    31    32 to 36
        2    62    63 to 67
        3    94    95 to 99
    """
    op_count = max(int((trace.get(DEVICE_OPS)["rank"] == rank).sum()), 1)
    step_count = max(_STRETCHES * _STEPS_IN_STRETCH, int(len(windows) * _OPS_REPLAYED / op_count))
    if len(windows) <= step_count:
        return graphs(trace)[rank], windows
    length = step_count // _STRETCHES
    first = np.linspace(1, len(windows) - length, _STRETCHES).astype(np.int64)
    chosen = np.unique(first[:, None] + np.arange(length))
    within = Intervals.union_of(
        np.concatenate((windows.start_ns[chosen], windows.start_ns[first - 1])),
        np.concatenate((windows.end_ns[chosen], windows.start_ns[first])),
    )
    excerpt, op_rows = _excerpt(trace, rank, within)
    graph = Graph.of(Program.read(excerpt, rank), excerpt.tables, op_rows)
    return graph, StepWindows.alike(windows.start_ns[chosen], windows.end_ns[chosen])


def _excerpt(trace: Trace, rank: int, within: Intervals) -> tuple[Trace, Int64Array]:
    """The calls made within the time, the device ops they launched, what the host did; and those ops' rows."""
    calls, ops, call_of_op = trace.get(API_CALLS), trace.get(DEVICE_OPS), launch_links(trace).call
    called = _starts_in(calls, rank, within)
    launched = np.where(call_of_op >= 0, flag_at(called, call_of_op), _starts_in(ops, rank, within))
    tables = {API_CALLS: calls.filter(pl.Series(called)), DEVICE_OPS: ops.filter(pl.Series(launched))}
    for table in (SYNCS, EVENT_WAITS):
        if table in trace:
            tables[table] = trace[table].filter(pl.Series(_starts_in(trace[table], rank, within)))
    for table in (HOST_OPS, RANGES, FRAMES, PROFILER_OVERHEAD):
        if table in trace:
            frame = trace[table]
            touched = within.covered_ns(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()) > 0
            tables[table] = frame.filter(pl.Series(touched) & (frame["rank"] == rank))
    return Trace(trace.source, tables, trace.notes), np.flatnonzero(launched)


def _starts_in(frame: pl.DataFrame, rank: int, within: Intervals) -> BoolArray:
    start = frame["start_ns"].to_numpy()
    return np.asarray((within.covered_ns(start, start + 1) > 0) & (frame["rank"] == rank).to_numpy(), np.bool_)


@remembered
def critical_path(trace: Trace) -> Mapping[int, PathPieces]:
    """Per rank with steady steps and a dependency graph: the path from the first of them to the end of the last.

    It is the path of the unchanged replay, so every piece is where it was observed. A piece that no weight explains
    in full keeps its whole length: the path says what was waited for, not why it took that long.
    """
    windows = step_windows(trace)
    return {
        rank: path_pieces(graph, graph.replay(), Anchors(graph, windows[rank]))
        for rank, graph in graphs(trace).items()
        if rank in windows
    }
