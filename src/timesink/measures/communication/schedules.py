"""What a pipeline's schedule leaves empty: by the number of micro-batches, by uneven stages, and by all the rest.

With p stages that work T each on a step of m micro-batches, and v chunks of the model on each rank, the stages fill and
drain for T (p - 1) / (v m): a share (p - 1) / (v m + p - 1) of the step, for GPipe, 1F1B and interleaved 1F1B alike
(arXiv:2104.04473). Uneven stages wait for the longest in each of the m - 1 turns in between. What is left of a step are
transfers, launches and waiting: its excess.

    p = 2, m = 4, v = 1, both stages 8 ms:    ideal step 8 + 8 / 4 = 10 ms, a fifth of it is bubble
    stages of 10 and 6 ms:                    (10 + 6) / 4 + 10 x 3 / 4 = 11.5 ms, 1.5 of them because they are uneven
"""

from __future__ import annotations

import math

import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.kernel_traits import OF_BACKWARD
from timesink.knowledge.ranges import AUTOGRAD_OPERATOR, OPTIMIZER_STEP
from timesink.measures.communication.pipelines import Pipeline, pipeline
from timesink.measures.communication.stage_traces import stage_ranges
from timesink.measures.ranks.job import job
from timesink.measures.steps.steps import steps
from timesink.model.names import matches
from timesink.model.record import dataclass, replace
from timesink.model.tables import DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a step of `items` goes through `stage_ns`, the time that each stage works on it: in `micro_batches` that
    overlap (1 where the items go one at a time), `chunks` of the model on each rank. `name`: GPipe, 1F1B or
    interleaved; '' where the order of messages does not tell.

    `period_ns` is that without a profiler where it was measured: recording costs a step of many small pieces much.
    `is_continuous`: a step begins before the one before it has left the pipeline, so nothing fills and drains.
    """

    stage_ns: tuple[float, ...]
    period_ns: float
    micro_batches: int
    chunks: int
    name: str
    items: int = 1

    @property
    def is_serial(self) -> bool:
        """One item at a time."""
        return self.micro_batches == 1 and not self.is_continuous

    @property
    def mean_ns(self) -> float:
        """What a stage works on average."""
        return sum(self.stage_ns) / len(self.stage_ns)

    @property
    def is_continuous(self) -> bool:
        """The period is shorter than filling and draining allow."""
        return self.period_ns < (1 - assumed.SERIAL_SCORE.value) * self.filled_ns(self.micro_batches, self.chunks)

    @property
    def ideal_ratio(self) -> float:
        """(p - 1) / (v m + p - 1); 0 where steps overlap."""
        return 0.0 if self.is_continuous else ideal_bubble(len(self.stage_ns), self.micro_batches, self.chunks)

    @property
    def filling_ns(self) -> float:
        """What a stage stands still, on average, while even stages would fill and drain."""
        return (
            0.0 if self.is_continuous else self.mean_ns * (len(self.stage_ns) - 1) / (self.chunks * self.micro_batches)
        )

    @property
    def uneven_ns(self) -> float:
        """What it stands still because the longest stage takes longer than the mean one."""
        turns = 1.0 if self.is_continuous else (self.micro_batches - 1) / self.micro_batches
        return turns * (max(self.stage_ns) - self.mean_ns)

    @property
    def excess_ns(self) -> float:
        """What is left of the period: transfers, launches, waiting."""
        return max(0.0, self.period_ns - self.mean_ns - self.filling_ns - self.uneven_ns)

    def filled_ns(self, micro_batches: int, chunks: int = 1, slowdown: float = 1.0) -> float:
        """A step of so many micro-batches without any excess; stages that overlap are so many times as long."""
        fill = (sum(self.stage_ns) - max(self.stage_ns)) / (chunks * micro_batches)
        last = max(self.stage_ns)
        overlapped = (micro_batches - 1) / micro_batches
        return fill + last * (1 - overlapped) + last * overlapped * slowdown

    def gain_ns(self, micro_batches: int, slowdown: float) -> tuple[float, float, float]:
        """What a step of more micro-batches would win: if every one of them has the excess of one of today's, half of
        it, none. `slowdown` counts where nothing overlaps today."""
        slower = slowdown if self.micro_batches == 1 else 1.0
        whole = self.period_ns - self.excess_ns - self.filled_ns(micro_batches, self.chunks, slower)
        growth = self.excess_ns * (micro_batches / self.micro_batches - 1) if self.micro_batches > 1 else 0.0
        return whole - growth, whole - growth / 2, whole


def ideal_bubble(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """The share of a step in which equal stages stand still."""
    return (stages - 1) / (chunks * micro_batches + stages - 1)


@remembered
def schedule(trace: Trace) -> Schedule | None:
    """The schedule of the pipeline in a trace of its ranks; None where there is no pipeline."""
    line = pipeline(trace)
    if line is None:
        return None
    ranges = stage_ranges(trace).filter(pl.col("rank").is_in(line.ranks))
    chunks = max(ranges.group_by("rank").agg(pl.col("stage").n_unique())["stage"].to_list(), default=1)
    counted = _counted(trace, ranges)
    count = counted or line.micro_batches or 1
    name = "interleaved" if chunks > 1 else _order(trace, line, count)
    stages = tuple(stage.time_ns for stage in line.overlap.stages)
    recorded = Schedule(stages, max(line.overlap.period_ns, *stages), count, chunks, name, count)
    if (line.overlap.score or 0.0) < assumed.SERIAL_SCORE.value:
        recorded = replace(recorded, micro_batches=1, chunks=1, name="")
    least_ns = min(recorded.period_ns, recorded.filled_ns(recorded.micro_batches, recorded.chunks))
    return replace(recorded, period_ns=max(least_ns, min(recorded.period_ns, trace.unprofiled_step_ns or math.inf)))


@remembered
def trains(trace: Trace) -> bool:
    """Whether steps end in an update of the model, so that items of one step cannot overlap those of the next."""
    names = pl.concat([trace.get(table)["name"].cast(pl.String).unique() for table in (RANGES, HOST_OPS)])
    kernels = trace.get(DEVICE_OPS)["name"].unique()
    return bool(matches(names, f"{OPTIMIZER_STEP}|{AUTOGRAD_OPERATOR}").any() or matches(kernels, OF_BACKWARD).any())


def _counted(trace: Trace, ranges: pl.DataFrame) -> int | None:
    """How often a step has the most frequent part of a stage."""
    kept = steps(trace).kept.select("rank", "step", "host_start_ns", "host_end_ns").sort("host_start_ns")
    if not ranges.height or not kept.height:
        return None
    inside = ranges.sort("start_ns").join_asof(
        kept, left_on="start_ns", right_on="host_start_ns", by="rank", strategy="backward", check_sortedness=False
    )
    counts = inside.filter(pl.col("start_ns") < pl.col("host_end_ns")).group_by("rank", "step", "part").len()
    most = counts.group_by("rank", "step").agg(pl.col("len").max())["len"].median()
    return round(most) if isinstance(most, float) else None


def _order(trace: Trace, line: Pipeline, micro_batches: int) -> str:
    """By how many micro-batches the first rank has sent and not got back: all (GPipe), or one a stage (1F1B)."""
    rank, stages = line.ranks[0], len(line.ranks)
    if micro_batches <= stages + 1:
        return ""
    own = job(trace).steps.filter(pl.col("rank") == rank)
    calls = job(trace).calls.filter(pl.col("rank") == rank).sort("end_ns")
    way = pl.when(pl.col("kind") == "send").then(1).when(pl.col("kind") == "recv").then(-1).otherwise(0)
    peaks = []
    for start, end in own.select("start_ns", "end_ns").rows():
        inside = calls.filter(pl.col("start_ns").is_between(start, end, "left"))
        peak = inside.select(way.cum_sum().max()).item() if inside.height else None
        peaks += [] if peak is None else [int(peak)]
    usual = sorted(peaks)[len(peaks) // 2] if peaks else 0
    if usual >= micro_batches - 1:
        return "GPipe"
    return "1F1B" if 0 < usual <= stages + 1 else ""
