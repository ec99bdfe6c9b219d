"""What the stages of a pipeline would take if their batch were cut in more pieces.

A kernel that leaves multiprocessors idle is no faster on a piece of the batch; one that fills them is, until a piece is
so short that starting and ending it is most of its time. What adds the gradients of a piece to those before it works on
all weights, however small the piece is: it runs for every piece but the first. The CPU launches every kernel once a
piece. Kernels of the optimizer run once a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.kernels import PRODUCTS
from timesink.measures.communication.pipelines import Pipeline, Schedule
from timesink.measures.kernels.facts import NO_FAULT, kernel_facts, multiprocessors
from timesink.measures.ranks.job import job
from timesink.measures.timeline.known import trains
from timesink.model.arrays import Float64Array
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif.change import Case
from timesink.whatif.unprofiled import recording_us

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
