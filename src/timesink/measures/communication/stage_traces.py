"""Stages of a pipeline from a trace of its ranks, as `stage_logs` has them from logs.

Ranges that name a stage (``pp:stage0:A``, ``stage 1 forward``, ``PP:2F3``) are its parts: each lasts from the first to
the last of the device work launched in it, as events around it would tell. An item is a step; the parts of its
micro-batches add up. Where no range names a stage, ranks that mostly send and receive are the stages, and the
computation in a step is what one of them works; so too where the ranges hold little of it, such as those around a
backward pass whose kernels another thread launches and nothing links.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.pipelines import pipeline, stage_ranges
from timesink.measures.communication.stage_logs import ITEMS, SPANS, LoggedRank, StageLogs, stage_logs
from timesink.measures.ranks.job import job, ranks_of
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.model.arrays import median
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered


def traced_stages(trace: Trace, skip: int = 0) -> StageLogs:
    """The stages of a trace, without the first `skip` steps. Raises `UnreadableTrace` where it shows none."""
    parts = stage_ranges(trace)
    ranks = _stages_by_ranges(trace, parts)
    if not _hold_the_work(trace, ranks):
        ranks = _stages_by_steps(trace) or ranks
    path = Path(str(trace.source))
    if not ranks:
        raise UnreadableTrace(
            path,
            "no stages: no range on several ranks names one, and no ranks mostly send and receive",
            remedy="read the traces of all ranks; name ranges pp:stage0:A; or give logs of timesink.stages()",
        )
    clocks = job(trace).members.filter(pl.col("rank").is_in([rank.rank for rank in ranks]))["clock"]
    return stage_logs(path, ranks, clocks.n_unique() == 1 and clocks.null_count() == 0, skip, trace.facts)


@remembered
def stages_of(trace: Trace) -> StageLogs | None:
    """The stages of a trace of several ranks, whose `score` every answer prints; None where it shows none."""
    try:
        return traced_stages(trace) if len(ranks_of(trace)) > 1 else None
    except UnreadableTrace:
        return None


def _hold_the_work(trace: Trace, ranks: Sequence[LoggedRank]) -> bool:
    """Whether the ranges hold most of what each rank computes; autograd's work is in none where nothing links it."""
    computed = dict(job(trace).steps.group_by("rank").agg(pl.col("compute_ns").median()).rows())
    least = assumed.STAGE_RANGES.value
    return bool(ranks) and all(
        median(rank.items["stage_ns"].to_numpy()) >= least * computed.get(rank.rank, 0.0) for rank in ranks
    )


def _stages_by_ranges(trace: Trace, parts: pl.DataFrame) -> list[LoggedRank]:
    """A stage per rank whose ranges name one; items are steps, or the number of the range where there are no steps."""
    kept = steps(trace).kept.select("rank", "step", "host_start_ns", "host_end_ns").sort("host_start_ns")
    ranks = []
    for (rank,), parts_of_rank in parts.partition_by("rank", as_dict=True, maintain_order=True).items():
        own = _number_items(parts_of_rank.sort("start_ns"), kept.filter(pl.col("rank") == rank))
        names = tuple(own["part"].unique().sort().to_list())
        rows = [
            (0.0, float(item), last, spans.total_ns, None, None)
            for (item,), some in own.partition_by("item", as_dict=True, maintain_order=True).items()
            for last, spans in [(some["last_ns"].max(), _union_work(some))]
        ]
        if rows:
            spans = own.select(
                pl.lit(0.0).alias("step"),
                pl.col("item").cast(pl.Float64),
                "part",
                begin_ns="first_ns",
                end_ns="last_ns",
            )
            ranks.append(LoggedRank(int(rank), names, _union_work(own), _items(rows), spans))
    return sorted(ranks, key=lambda found: found.rank) if len(ranks) > 1 else []


def _number_items(parts: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The parts of a rank with the `item` of each: its step, or how many of its name came before."""
    if not kept.height:
        return parts.with_columns(item=pl.int_range(pl.len()).over("part"))
    joined = parts.join_asof(
        kept.drop("rank"), left_on="start_ns", right_on="host_start_ns", strategy="backward", check_sortedness=False
    )
    return joined.filter(pl.col("start_ns") < pl.col("host_end_ns")).with_columns(item=pl.col("step"))


def _union_work(spans: pl.DataFrame) -> Intervals:
    return Intervals.union_of(spans["first_ns"].to_numpy(), spans["last_ns"].to_numpy())


def _stages_by_steps(trace: Trace) -> list[LoggedRank]:
    """A stage per rank of a pipeline: what it computes in a step."""
    line = pipeline(trace)
    if line is None:
        return []
    lines, ranks = device_timeline(trace).by_device, []
    for rank in line.ranks:
        own = job(trace).steps.filter(pl.col("rank") == rank)
        rows = [(0.0, float(step), end, ns, None, None) for step, end, ns in own["step", "end_ns", "compute_ns"].rows()]
        work = Intervals.union_all(part.compute for key, part in lines.items() if key[0] == rank)
        ranks.append(LoggedRank(rank, ("computation",), work, _items(rows), pl.DataFrame(schema=SPANS)))
    return ranks


def _items(rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, ITEMS, orient="row", strict=False).sort("step", "item")
