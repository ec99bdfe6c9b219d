"""Whether rounds are steps: rare work proves it, an optimizer's step, a loss, a batch, that comes in every step and in
no layer; and what shows that rounds are the layers of one pass, the turns of streams, or the replay of one graph.

    rounds       |--|--|--|--|--|--|--|--|
    loss          .  .  .  .  .  .  .  .    in nearly every round: these are steps
    optimizer        .     .     .     .    in every second round: a step is two of these, which are micro-batches
    look-up      .                          in one round only: these are the layers of one pass
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.kernel_traits import FUSED_OPTIMIZER, LOOKS_UP, UPDATES, UPDATES_ONE
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.knowledge.ranges import LAYER, LOOK_UP, LOSS, NEXT_BATCH, ONE_PASS, OPTIMIZER_STEP
from timesink.measures.steps.launch_sequences import PROCESS, LaunchSequence
from timesink.measures.timeline.start_up import start_up
from timesink.model.arrays import Int64Array, median
from timesink.model.names import matches, of_each
from timesink.model.tables import FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace


class StepOrigin(StrEnum):
    """How steps are known: marked by the profiler or the user, found by rare work that recurs in them, or guessed."""

    MARKED = "marked"
    FOUND = "found"
    GUESSED = "guessed"


class Work(StrEnum):
    """Work of which every step has some."""

    OPTIMIZER = "optimizer"
    LOSS = "loss"
    BATCH = "batch"
    LOOK_UP = "look-up"
    FIRST_LAYER = "first layer"


_NAMED: Final = {Work.OPTIMIZER: OPTIMIZER_STEP, Work.LOSS: LOSS, Work.BATCH: NEXT_BATCH, Work.LOOK_UP: LOOK_UP}
_KERNELS: Final = {Work.OPTIMIZER: f"{FUSED_OPTIMIZER}|{UPDATES}|{UPDATES_ONE}", Work.LOOK_UP: LOOKS_UP}
_PROVING: Final = (Work.OPTIMIZER, Work.LOSS, Work.BATCH)
_PRODUCTS: Final = (KernelFamily.GEMM, KernelFamily.GEMV, KernelFamily.CONVOLUTION, KernelFamily.ATTENTION)


def work_times(
    trace: Trace, process: tuple[int, int], launched: LaunchSequence | None = None
) -> dict[Work, Int64Array]:
    """When rare work of a process begins, by the names of its ranges and operators; with what it launched, of what they
    say nothing by the names of kernels."""
    tables = (trace.get(RANGES), trace.get(HOST_OPS))
    found = {
        work: np.concatenate([_begun(frame, pattern, process) for frame in tables]) for work, pattern in _NAMED.items()
    }
    if launched is not None:
        names = launched.ops["name"]
        kernels = {work: matches(names, pattern) for work, pattern in _KERNELS.items()}
        kernels[Work.LOSS] = of_each(names, lambda name: decode(name).family is KernelFamily.LOSS, pl.Boolean())
        for work, rows in kernels.items():
            if not found[work].size:
                found[work] = launched.time_ns[rows.to_numpy()]
    found[Work.FIRST_LAYER] = _first_layers(trace, process)
    begun_ns = None if launched is None else launched.time_ns  # a range begins in the round of what it launches first
    for work, times in found.items():
        at = times if begun_ns is None else begun_ns[np.searchsorted(begun_ns, times).clip(max=begun_ns.size - 1)]
        found[work] = np.sort(at)
    return {work: times for work, times in found.items() if times.size}


def _first_layers(trace: Trace, process: tuple[int, int]) -> Int64Array:
    """When the first of the numbered layers of a model begins."""
    ranges = trace.get(RANGES)
    if not (named := matches(ranges["name"], LAYER)).any():
        return np.empty(0, np.int64)
    own = (pl.col("rank") == process[0]) & (pl.col("process") == process[1])
    layers = ranges.filter(named).filter(own).sort("start_ns").with_columns(pl.col("name").cast(pl.String))
    return layers.filter(pl.col("name") == pl.col("name").first())["start_ns"].to_numpy()


def _begun(frame: pl.DataFrame, pattern: str, process: tuple[int, int]) -> Int64Array:
    if not (named := matches(frame["name"], pattern)).any():
        return np.empty(0, np.int64)
    rows = frame.filter(named).filter((pl.col("rank") == process[0]) & (pl.col("process") == process[1]))
    return rows["start_ns"].to_numpy()


def proven(begun_ns: Int64Array, work: Mapping[Work, Int64Array]) -> tuple[Int64Array, StepOrigin] | None:
    """Which rounds begin a step, and how that is known; None where rare work shows that they are parts of one.

    `begun_ns` says when each round begins, ascending; the last one may be cut off unless it stands alone. Where an
    optimizer's step comes in every second round, or every eighth, so many are one step: a round after it begins the
    next.
    """
    rounds = max(begun_ns.size - 1, 1)
    holding = {}
    for work_kind, times_ns in work.items():
        at = np.unique(np.searchsorted(begun_ns, times_ns, side="right") - 1)
        holding[work_kind] = at[(at >= 0) & (at < rounds)]
    share = {work_kind: at.size / rounds for work_kind, at in holding.items()}
    for outer, origin in ((Work.OPTIMIZER, StepOrigin.FOUND), (Work.FIRST_LAYER, StepOrigin.GUESSED)):
        if share.get(outer, 1.0) < assumed.ROUNDS_AT_HOME.value:
            every = np.unique(np.diff(holding[outer]))
            if every.size != 1:
                return None
            first = holding[outer][0] + (outer is Work.OPTIMIZER)  # an optimizer ends a step, a first layer begins one
            starts = np.arange(first % every[0], begun_ns.size, every[0])
            return (starts, origin) if starts.size >= assumed.REPEATS.whole else None
    if max(share.get(work_kind, 0.0) for work_kind in _PROVING) >= assumed.ROUNDS_AT_HOME.value:
        return np.arange(begun_ns.size), StepOrigin.FOUND
    is_part = min(share.values(), default=1.0) < 1 - assumed.ROUNDS_AT_HOME.value
    return None if is_part else (np.arange(begun_ns.size), StepOrigin.GUESSED)


def are_parts(trace: Trace, launched: LaunchSequence, begun_ns: Int64Array) -> bool:
    """Whether rounds without rare work are parts of something that runs once, and no steps; of one launch, say."""
    starts = launched.next_to(begun_ns)
    return (
        starts.size < begun_ns.size
        or start_up(trace).is_most
        or _take_turns(launched.ops["stream"].to_numpy(), starts)
        or _overlap(launched.ops, starts)
        or _ends_anew(launched, starts)
        or _within_one_pass(trace, launched, starts)
    )


def hold_most(launched: LaunchSequence, begun_ns: Int64Array) -> bool:
    """Whether rounds hold most of what the device ran, some kernel among it: what holds less is a phase of the program,
    such as the copies ahead of its work, and no step. The last round may be cut off, or go on to the recording's end:
    it counts as no longer than the longest before. What most of their time runs comes back from round to round: rounds
    of other kernels each, such as one version of an algorithm after another, are no steps."""
    starts = launched.next_to(begun_ns)
    if starts.size < 2 or not launched.ops["kind"][starts[0] : starts[-1]].is_in(["kernel", "graph"]).any():
        return False
    length_ns = (launched.ops["end_ns"] - launched.ops["start_ns"]).to_numpy()
    *whole, last = np.add.reduceat(length_ns, starts).tolist()
    if sum(whole) + min(last, max(whole)) < assumed.STEPS_HOLD.value * length_ns.sum():
        return False
    return starts.size < assumed.REPEATS.whole or _come_back(launched.ops[starts[0] : starts[-1]], starts)


def _come_back(ops: pl.DataFrame, starts: Int64Array) -> bool:
    """Whether kernels that two whole rounds have, or more, by their names, take most of all kernels' time in them."""
    rounds = pl.Series("round", np.repeat(np.arange(starts.size - 1), np.diff(starts)))
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("length")
    kernels = ops.hstack([rounds]).filter(pl.col("kind") != "copy", pl.col("kind") != "set")
    names = kernels.group_by("name").agg(length, pl.col("round").n_unique())
    again = names.filter(pl.col("round") >= 2)["length"]
    return bool(again.to_numpy().sum() >= assumed.STEPS_HOLD.value * names["length"].to_numpy().sum())


def _take_turns(streams: Int64Array, starts: Int64Array) -> bool:
    """Whether each round runs on one stream, and no stream has most of them."""
    first, last = np.minimum.reduceat(streams, starts), np.maximum.reduceat(streams, starts)
    most = np.unique(first, return_counts=True)[1].max()
    return bool((first == last).all() and most < assumed.ROUNDS_AT_HOME.value * starts.size)


def _overlap(ops: pl.DataFrame, starts: Int64Array) -> bool:
    """Whether rounds begin on the device while an operation of the one before runs."""
    begun = ops["start_ns"].to_numpy()
    longest = np.maximum.reduceat(ops["end_ns"].to_numpy() - begun, starts)
    return median(np.diff(begun[starts])) < median(longest[:-1])


def _ends_anew(launched: LaunchSequence, starts: Int64Array) -> bool:
    """Whether products follow the last round that are nowhere in the rounds: the head of a model after its layers."""
    last = launched.kinds[starts[-1] :]
    new = ~np.isin(last, launched.kinds[: starts[-1]])
    names = launched.ops["name"][starts[-1] :].filter(pl.Series(new))
    return any(decode(name).family in _PRODUCTS for name in names.cast(pl.String).unique().to_list())


def _within_one_pass(trace: Trace, launched: LaunchSequence, starts: Int64Array) -> bool:
    """Whether a call of a module, or a range that is one pass, holds several rounds."""
    begun_ns = np.sort(launched.time_ns[starts])
    for frame in (trace.get(RANGES), trace.get(FRAMES)):
        if (named := matches(frame["name"], ONE_PASS)).any():
            own = pl.struct(PROCESS) == {"rank": launched.rank, "process": launched.process}
            passes = frame.filter(named).filter(own)
            held = np.searchsorted(begun_ns, passes["end_ns"]) - np.searchsorted(begun_ns, passes["start_ns"])
            if held.max(initial=0) >= assumed.REPEATS.whole:
                return True
    return False
