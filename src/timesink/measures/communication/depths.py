"""The period of a pipeline if more items were in it at a time: a replay of its stages, with what waiting costs them.

A receive that waits is a kernel that spins: it holds multiprocessors and slows what runs beside it. Where items go one
at a time hardly anything runs beside one; where they overlap nearly everything does. So a stage has a time of its own,
without a receive beside it, and a `slowdown` while one waits. The slowdown is measured where a kernel of the same shape
ran both ways on any rank, else it is the multiprocessors that the receives hold: 16 of 132 leave 116, and slow the rest
by 132 / 116.

The replay: the first stage takes the next item when one of `depth` has come back; the others take items in order and
have the receive of the next one posted while they work on this one. A receive waits on the first stage while any item
is away, on the others until the next item is there.

What the stages of a pipeline would take if their batch were cut in more pieces.

`pipeline-bubble.md` says what a piece takes. Kernels of the optimizer run once a step.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT
from timesink.knowledge.kernels import PRODUCTS
from timesink.measures.communication import kernel_runs
from timesink.measures.communication.pipelines import Pipeline, Schedule, pipeline
from timesink.measures.kernels.facts import NO_FAULT, kernel_facts, multiprocessors
from timesink.measures.ranks.job import job
from timesink.measures.timeline.known import trains
from timesink.model.arrays import Float64Array
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif import Case
from timesink.whatif.unprofiled import recording_us

_ROUNDING: Final = 1e-9  # of a stage: floats of 53 bits are exact to less
_ITEMS: Final = 64  # of a replay; its second half is taken: by then the pipeline is full


class Stage(Record):
    """One rank: what an item costs it while no receive waits beside it, and how many times as long beside one."""

    alone_ns: float
    slowdown: float


class Depths(Record):
    """A pipeline through which items go one at a time: its `stages` in order, and `move_ns` from one to the next.

    `measured`: the slowdown is that of kernels that ran both ways; else it follows from multiprocessors.
    """

    stages: tuple[Stage, ...]
    move_ns: float
    measured: bool

    def period_ns(self, depth: int) -> float:
        """Between one item and the next, with `depth` of them in the pipeline."""
        return replayed_period_ns(self.stages, self.move_ns, depth)


@remembered
def depths(trace: Trace) -> Depths | None:
    """The stages of a pipeline as a replay needs them; None where the trace shows no pipeline of one item at a time."""
    line = pipeline(trace)
    if line is None or line.micro_batches not in (None, 1):
        return None
    known, slowdown = _measure_slowdowns(trace), waiting_slowdown(trace, line)
    stages = tuple(
        Stage(stage.time_ns / known.of_rank.get(rank, 1.0), slowdown)
        for rank, stage in zip(line.ranks, line.overlap.stages, strict=True)
    )
    moved = max(0.0, line.overlap.period_ns - line.overlap.serial_ns) / len(stages)
    return Depths(stages, moved, known.usual is not None)


def waiting_slowdown(trace: Trace, line: Pipeline) -> float:
    """How many times as long a stage takes while a receive waits beside it."""
    usual = _measure_slowdowns(trace).usual
    return usual if usual is not None else 1 / (1 - _held_share(trace, line))


class _Slowdowns(Record):
    """`of_rank`: how many times as long as alone the rank's kernels took as they ran; `usual`: of those beside."""

    of_rank: dict[int, float]
    usual: float | None


@remembered
def _measure_slowdowns(trace: Trace) -> _Slowdowns:
    """Kernels of one shape beside communication against those without, whichever rank ran them.

    A kernel that only begins beside a message that is about to end is called free: alone it is no faster.
    """
    runs = kernel_runs(trace)
    shape = [name for name in runs.columns if name.startswith(("name", "grid", "block"))]
    alone = runs.filter("free").group_by(shape).agg(pl.col("length_ns").median().alias("alone_ns"))
    joined = runs.join(alone, on=shape, how="left", nulls_equal=True)
    length = pl.col("length_ns")
    beside = joined.filter("beside").drop_nulls("alone_ns")
    as_alone = pl.when("beside").then(pl.min_horizontal("alone_ns", length)).otherwise(length).fill_null(length)
    ranks = joined.group_by("rank").agg(slowed=length.sum() / as_alone.sum())
    total = float(beside["alone_ns"].sum())
    usual = max(1.0, float(beside["length_ns"].sum()) / total) if total else None
    return _Slowdowns(dict(ranks.rows()), usual)


def _held_share(trace: Trace, line: Pipeline) -> float:
    """The share of a GPU's multiprocessors that a waiting receive holds; 0 where the trace does not tell."""
    calls = job(trace).calls.filter(pl.col("rank").is_in(line.ranks))
    calls = calls.filter(pl.col("kind").is_in([*POINT_TO_POINT, EXCHANGE]))
    key = ["rank", "device", "stream", "start_ns"]
    blocks = trace.get(DEVICE_OPS).join(calls.select(key), on=key, how="semi")["grid_x"].median()
    counts = trace.get(DEVICES).filter(pl.col("rank").is_in(line.ranks))["sm_count"].drop_nulls()
    if not isinstance(blocks, float) or not counts.len():
        return 0.0
    return min(0.5, blocks / int(counts.to_list()[0]))


def replayed_period_ns(stages: tuple[Stage, ...], move_ns: float, depth: int) -> float:
    """Run items through the stages, event by event, and take the time between the last of them.

    Stages of 4 and 3 with nothing in between and no slowdown: 7 at depth 1, 4 from depth 2 on.
    """
    last, now = len(stages) - 1, 0.0
    arrived, left = [depth] + [0] * last, [0.0] * len(stages)
    coming: list[tuple[float, int]] = []  # when an item reaches which stage
    ends: list[float] = []
    while len(ends) < _ITEMS:
        for at, stage in enumerate(stages):
            if not left[at] and arrived[at]:
                arrived[at] -= 1
                left[at] = max(stage.alone_ns, 1.0)
        away = depth - arrived[0] - bool(left[0])
        waits = [away > 0, *(not count for count in arrived[1:])]
        pace = [1 / stage.slowdown if waiting else 1.0 for stage, waiting in zip(stages, waits, strict=True)]
        events = [left[at] / pace[at] for at in range(len(stages)) if left[at]] + [time - now for time, _ in coming]
        passed = min(events)
        now += passed
        for at, stage in enumerate(stages):
            if not left[at]:
                continue
            left[at] -= passed * pace[at]
            if left[at] <= _ROUNDING * max(stage.alone_ns, 1.0):
                left[at] = 0.0
                coming.append((now + move_ns, (at + 1) % len(stages)))
                if at == 0:
                    ends.append(now)
        for _, at in [item for item in coming if item[0] <= now]:
            arrived[at] += 1
        coming = [item for item in coming if item[0] > now]
    half = _ITEMS // 2
    return (ends[-1] - ends[half - 1]) / (_ITEMS - half)


_PIECES = 3  # of a step, at least: of two, what runs once may as well run once a step
_OF_TRAINING = 3  # products of a layer: forward, and back for its input and its weights


class CutStage(Record, eq=False):
    """`time_ns` of a stage a step, and `host_ns` of its CPU, less recording; of its kernels `length_ns` and `least_ns`,
    what a piece of each takes at least: 0 where it is not cut."""

    time_ns: float
    host_ns: float
    length_ns: Float64Array
    least_ns: Float64Array

    def cut_ns(self, pieces: float) -> float:
        """The step of the stage if each of its kernels were cut so: one of 20 us whose pieces take 5 us at least, in 8
        pieces, takes twice as long."""
        longer = np.maximum(self.length_ns, pieces * self.least_ns)
        ratio = float(longer.sum() / self.length_ns.sum()) if self.length_ns.size else 1.0
        return max(self.time_ns * ratio, self.host_ns * pieces)


def cut_stages_ns(trace: Trace, line: Pipeline, plan: Schedule, counts: Iterable[int]) -> dict[int, tuple[float, ...]]:
    """What each stage of a pipeline takes a step once its batch is cut in so many micro-batches, by their number."""
    stages = []
    for rank, stage_ns in zip(line.ranks, plan.stage_ns, strict=True):
        steps = job(trace).steps.filter(pl.col("rank") == rank)
        recorded_ns = recording_us(trace.get, rank)[Case.EXPECTED.value] * NS_PER_US / max(steps.height, 1)
        busy_ns = steps["host_busy_ns"].min()  # of the quickest step: others may hide waits
        host_ns = max(0.0, busy_ns - recorded_ns) if isinstance(busy_ns, int) else 0.0
        stages.append(CutStage(stage_ns, host_ns, *_kernels(trace, rank, steps, plan.micro_batches)))
    return {count: tuple(stage.cut_ns(count / plan.micro_batches) for stage in stages) for count in counts}


def layer_ns(trace: Trace, line: Pipeline, plan: Schedule) -> float:
    """What the longest stage works a step on its smallest layer: a product with what goes with it, and the two products
    of its way back where the program trains. No stage is evened out by less. 0 where no product is known."""
    rank = max(zip(plan.stage_ns, line.ranks, strict=True))[1]
    kernels = _of_rank(trace, rank)
    products = int(kernels["family"].is_in(PRODUCTS).sum())
    passes = plan.items * (_OF_TRAINING if trains(trace) else 1)
    return passes * float(kernels["length"].sum()) / products if products else 0.0


def _of_rank(trace: Trace, rank: int) -> pl.DataFrame:
    """The rank's kernels that are no communication: facts, and whether they leave multiprocessors `idle`."""
    counts = {device: count for (of, device), count in multiprocessors(trace).items() if of == rank}
    held = pl.col("device").replace_strict(counts, default=0, return_dtype=pl.Int64)
    own = kernel_facts(trace).frame.filter(pl.col("rank") == rank, ~pl.col("family").is_in(NO_FAULT))
    return own.with_columns(idle=(pl.col("blocks") < held).fill_null(value=False))


def _kernels(trace: Trace, rank: int, steps: pl.DataFrame, pieces: int) -> tuple[Float64Array, Float64Array]:
    """Length of each of the rank's kernels that is no communication, and what a piece of it takes at least."""
    own = _of_rank(trace, rank)
    whole = pl.col("idle") | _adds_up(own, steps, pieces)
    piece = pl.when(whole).then("length").otherwise(pl.col("length").clip(0, assumed.TINY_US.ns))
    every = own.select("length", least=pl.when("optimizer").then(0).otherwise(piece))
    return every["length"].cast(pl.Float64).to_numpy(), every["least"].cast(pl.Float64).to_numpy()


def _adds_up(own: pl.DataFrame, steps: pl.DataFrame, pieces: int) -> pl.Series:
    """Whether each kernel is one of those that run for every piece of a step but the first; none where products seem
    to: then the pieces were miscounted."""
    if pieces < _PIECES:
        return pl.repeat(False, own.height, eager=True)
    begun = [own["start_ns"].is_between(start, end, "left") for start, end in steps.select("start_ns", "end_ns").rows()]
    counts = own.select(
        "name", "blocks", "family", *(inside.cast(pl.Int32).alias(str(at)) for at, inside in enumerate(begun))
    )
    runs = pl.exclude("name", "blocks", "family").sum().over("name", "blocks")
    found = pl.all_horizontal((runs > 0) & (runs % pieces != 0) & (runs % (pieces - 1) == 0))
    return counts.select(found & ~(found & pl.col("family").is_in(PRODUCTS)).any()).to_series()
