"""Pipelines: which ranks are stages, how long each works per step, and how much of that overlaps.

Stage times of an OverlapScore (`pipeline-bubble.md`) must be those of stages that contend with nobody, or their sum is
too large.

Stages come from a trace of several ranks here, and in `stage_logs` from timestamps that a program logged itself.

A `Schedule` says what is left empty by the number of micro-batches, by uneven stages, and by all the rest. With p
stages that work T each on a step of m micro-batches, and v chunks of the model on each rank, the stages fill and drain
for T (p - 1) / (v m): a share (p - 1) / (v m + p - 1) of the step, for GPipe, 1F1B and interleaved 1F1B alike
(arXiv:2104.04473). Uneven stages wait for the longest in each of the m - 1 turns in between. What is left of a step are
transfers, launches and waiting: its excess.

    p = 2, m = 4, v = 1, both stages 8 ms:    ideal step 8 + 8 / 4 = 10 ms, a fifth of it is bubble
    stages of 10 and 6 ms:                    (10 + 6) / 4 + 10 x 3 / 4 = 11.5 ms, 1.5 of them because they are uneven
"""

import math
import re
from typing import Final

import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT
from timesink.knowledge.ranges import SCHEDULED, STAGE
from timesink.measures.communication import communication
from timesink.measures.communication.collectives import exchange_runs
from timesink.measures.communication.matching import exchanges_alike
from timesink.measures.communication.waits import waiting_in_collectives
from timesink.measures.ranks.job import Job, job, ranks_of
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.ranges import range_projection
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.tables import RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record, replace


class PipelineStage(Record):
    """One stage of a pipeline and its usual time per item or step."""

    name: str
    time_ns: float


class OverlapScore(Record):
    """How much stages overlap; `period_ns` is the time from one item (or step) to the next, `stages` do the work of
    one."""

    stages: tuple[PipelineStage, ...]
    period_ns: float

    @property
    def serial_ns(self) -> float:
        """The time of all stages, one after another."""
        return sum(stage.time_ns for stage in self.stages)

    @property
    def longest(self) -> PipelineStage:
        """The stage that no overlap hides; ties go to the first."""
        return max(self.stages, key=lambda stage: stage.time_ns)

    @property
    def hidden_ns(self) -> float:
        """Stage time that ran at the same time as other stages, per period."""
        return max(0.0, self.serial_ns - self.period_ns)

    @property
    def bubble_ratio(self) -> float:
        """Share of the period in which the stages stood still, averaged over them: 1 - sum / (stages x period).

        For p equal stages and m micro-batches this is the (p - 1) / (m + p - 1) of GPipe (arXiv:1811.06965).
        """
        if self.period_ns <= 0 or not self.stages:
            return 0.0
        return max(0.0, 1.0 - self.serial_ns / (len(self.stages) * self.period_ns))

    @property
    def headroom_ns(self) -> float:
        """What perfect overlap would take off the period."""
        return max(0.0, self.period_ns - self.longest.time_ns) if self.stages else 0.0

    @property
    def score(self) -> float | None:
        """Hidden time over the time that could be hidden, 0 to 1; None for fewer than two stages that do any work."""
        if not self.stages:
            return None
        possible = self.serial_ns - self.longest.time_ns
        return min(1.0, self.hidden_ns / possible) if possible > 0 else None


class Pipeline(Record):
    """A job whose `ranks` are stages: they mostly send and receive, or ranges of the program name a stage on each
    (`labelled`: the profiler or the ranges say so, else kernel names do).

    `overlap.period_ns` is the median step, a stage's time the median computation in its steps. Computation during
    communication counts as it ran, so a stage slowed by its own transfers makes the score too high, never too low.
    `micro_batches` is the number of receives per step of the rank with the fewest: at the ends of a pipeline
    activations come in, or gradients come back, once for each; None where none are recorded.
    """

    ranks: tuple[int, ...]
    overlap: OverlapScore
    micro_batches: int | None
    labelled: bool


@remembered
def pipeline(trace: Trace) -> Pipeline | None:
    """The pipeline of a trace of several ranks; None where its ranks are no stages."""
    named = _named_ranks(trace)
    if len(ranks_of(trace)) < 2 or (not named and any(runs.are_most for runs in exchange_runs(trace))):
        return None  # stages work between their messages
    return pipeline_of(job(trace), named)


def pipeline_of(job: Job, named: tuple[int, ...] = ()) -> Pipeline | None:
    """The pipeline of a job; None where its ranks are no stages or no steady step is known. `named`: ranks whose
    ranges say that they are stages."""
    ranks = named or _stage_ranks(job.calls)
    steps = job.steps.filter(pl.col("rank").is_in(ranks))
    if len(ranks) < 2 or steps["rank"].n_unique() < len(ranks):
        return None
    each = (
        steps.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
        .group_by("rank")
        .agg(pl.col("period_ns", "compute_ns").median())
        .sort("rank")
    )
    stages = tuple(PipelineStage(f"rank {rank}", compute) for rank, compute in each.select("rank", "compute_ns").rows())
    period = each["period_ns"].median()
    labelled = bool(named) or bool(job.calls.filter(pl.col("rank").is_in(ranks))["labelled"].any())
    assert isinstance(period, float)
    return Pipeline(ranks, OverlapScore(stages, period), _count_micro_batches(job, steps), labelled)


def _stage_ranks(calls: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that mostly send and receive. An exchange without a label counts where it is no all-to-all."""
    calls = calls.with_columns(alike=exchanges_alike(calls))
    sends = pl.col("kind").is_in(list(POINT_TO_POINT)) | ((pl.col("kind") == EXCHANGE) & ~pl.col("alike"))
    shares = calls.group_by("rank").agg(sends.mean().alias("share"))
    return tuple(shares.filter(pl.col("share") > assumed.PIPELINE_SHARE.value)["rank"].sort().to_list())


def _named_ranks(trace: Trace) -> tuple[int, ...]:
    """Ranks on which ranges name stages, each rank stages of its own; none where ranks share a stage."""
    named = stage_ranges(trace).select("rank", "stage").unique()
    shared = named["stage"].n_unique() < named.height
    return () if shared or named["rank"].n_unique() < 2 else tuple(named["rank"].unique().sort().to_list())


_QUARTILES: Final = (0.25, 0.75)  # half of the pieces lie between, whatever the longest and the shortest are


def _count_micro_batches(job: Job, steps: pl.DataFrame) -> int | None:
    """Receives of a step, by the rank with the fewest; where kernel names tell only that messages pass, those that
    follow a piece of work: forward and back in one, or in two, of which the way back takes twice as long."""
    received = job.calls.filter(pl.col("kind") == "recv")
    if untold := not received.height:
        piece = pl.col("work_before_ns").quantile(_QUARTILES[1]).over("rank") * assumed.PIECE.value
        received = job.calls.filter(pl.col("kind") == EXCHANGE).filter(pl.col("work_before_ns") > piece)
    most: dict[int, tuple[int, float]] = {}
    for rank, start, end in steps.select("rank", "start_ns", "end_ns").rows():
        own = received.filter((pl.col("rank") == rank) & pl.col("start_ns").is_between(start, end, "left"))
        quick, slow = (own["work_before_ns"].quantile(part, "linear") or 1.0 for part in _QUARTILES)
        most[rank] = max(most.get(rank, (0, 1.0)), (own.height, slow / quick))
    count, ratio = min((one for one in most.values() if one[0]), default=(None, 1.0))
    return (count + 1) // 2 if untold and count is not None and ratio > assumed.WAY_BACK.value else count


_TIMES = dict.fromkeys(("start_ns", "first_ns", "last_ns"), pl.Int64)
_STAGE_RANGES = pl.Schema({"rank": pl.Int32, "stage": pl.Int64, "part": pl.String, **_TIMES})


@remembered
def stage_ranges(trace: Trace) -> pl.DataFrame:
    """One row per range that names a stage and launched device work: rank, stage, part, start_ns (of the host),
    first_ns and last_ns (of the device). `part` names the stage and what is done: ``stage0:A``, ``stage2:F``."""
    names = trace.get(RANGES)["name"].unique().to_list()
    rows = [(name, *part) for name in names if (part := _parse_part(name)) is not None]
    if not rows:
        return pl.DataFrame(schema=_STAGE_RANGES)
    ranges = range_projection(trace).select("rank", "name", "host_start_ns", "first_ns", "last_ns")
    schema = pl.Schema({"name": ranges.schema["name"], "stage": pl.Int64(), "part": pl.String()})
    known = pl.DataFrame(rows, schema, orient="row")
    joined = ranges.join(known, on="name", how="inner", maintain_order="left")
    return joined.select("rank", "stage", "part", pl.col("host_start_ns").alias("start_ns"), "first_ns", "last_ns")


def _parse_part(name: str) -> tuple[int, str] | None:
    """The stage that a range names, and what is done there."""
    if scheduled := re.search(SCHEDULED, name):
        stage = int(scheduled["stage"])
        return stage, f"stage{stage}:{scheduled['action']}"
    if named := re.search(STAGE, name):
        stage = int(named["stage"])
        return stage, f"stage{stage}:{named['part']}" if named["part"] else f"stage{stage}"
    return None


def paced_by_host(trace: Trace, step_ns: float) -> float:
    """The share of `step_ns`, the step without a profiler, in which a pipeline waits for one rank's launches: the GPU
    that stands least in messages is idle so long, beyond what recording makes the step longer. 0 where it stands
    longer: then stages wait for each other's computation."""
    line = pipeline(trace)
    if line is None:
        return 0.0
    recorded_ns = line.overlap.period_ns
    standing_ns, idle_ns = min(
        (per_step_ns(trace, key, part.exposed_communication), per_step_ns(trace, key, part.idle))
        for key, part in device_timeline(trace).by_device.items()
        if key[0] in line.ranks
    )
    own_ns = idle_ns - max(recorded_ns - step_ns, 0.0)
    return own_ns / max(step_ns, 1.0) if own_ns > standing_ns else 0.0


@remembered
def between_stages(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU of a pipeline: when a send or receive ran there, its wait for the other stage included."""
    line = pipeline(trace)
    if line is None:
        return {}
    sends = job(trace).calls.filter(
        pl.col("rank").is_in(line.ranks) & pl.col("kind").is_in([*POINT_TO_POINT, EXCHANGE])
    )
    return intervals_by(sends, "rank", "device")


@remembered
def exposed_transfers(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU that communicates: when it does with no computation beside it, less waiting for the last rank where all
    ranks were read, less what the stages of a pipeline send: they wait for each other's computation, and less where
    most exchanges are short and in rows: there the CPU is late, and nothing beside them would hide it."""
    waited, staged, none = waiting_in_collectives(trace), between_stages(trace), Intervals.none()
    rows = {runs.device: runs.lost for runs in exchange_runs(trace) if runs.are_most}
    return {
        (one.rank, one.device): one.exposed
        - Intervals.union_all(part.get((one.rank, one.device), none) for part in (waited, staged, rows))
        for one in communication(trace)
        if one.kernel_count
    }


class Schedule(Record):
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
    def title(self) -> str:
        """``1F1B, 8 micro-batches in 2 chunks a rank``."""
        chunks = f" in {self.chunks} chunks a rank" if self.chunks > 1 else ""
        return f"{f'{self.name}, ' if self.name else ''}{self.micro_batches} micro-batches{chunks}"

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

    def gain_ns(
        self, micro_batches: int, slowdown: float, cut_ns: tuple[float, ...] | None = None
    ) -> tuple[float, float, float]:
        """What a step of more micro-batches would win: if every one of them has the excess of one of today's, half of
        it, none. `slowdown` counts where nothing overlaps today; `cut_ns`: what the stages would take."""
        slower = slowdown if self.micro_batches == 1 else 1.0
        cut = replace(self, stage_ns=cut_ns or self.stage_ns)
        whole = self.period_ns - self.excess_ns - cut.filled_ns(micro_batches, self.chunks, slower)
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
    counted = _count_parts(trace, ranges)
    count = counted or line.micro_batches or 1
    name = "interleaved" if chunks > 1 else _order(trace, line, count)
    stages = tuple(stage.time_ns for stage in line.overlap.stages)
    recorded = Schedule(stages, max(line.overlap.period_ns, *stages), count, chunks, name, count)
    if (line.overlap.score or 0.0) < assumed.SERIAL_SCORE.value:
        recorded = replace(recorded, micro_batches=1, chunks=1, name="")
    least_ns = min(recorded.period_ns, recorded.filled_ns(recorded.micro_batches, recorded.chunks))
    return replace(recorded, period_ns=max(least_ns, min(recorded.period_ns, trace.unprofiled_step_ns or math.inf)))


def _count_parts(trace: Trace, ranges: pl.DataFrame) -> int | None:
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
