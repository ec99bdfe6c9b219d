"""The ranks of a large job that a diagnosis looks into: those that stand out, with their neighbors.

Every rank is read and compared, but what a fix would win is asked of a few: a thousand ranks that do the same are told
by the one that others wait for, the one that computes most, the one that stands idle most, and the first. Ranks next
to each other share a host, and with it what is exchanged most often, so that each comes with the rest of its eight.
"""

from typing import Final

import polars as pl

from timesink.knowledge.op_class import COMMUNICATION, class_of_ops
from timesink.measures.ranks.parity import ranks_text
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

MOST: Final = 64
"""Ranks that are all looked into: about ten seconds."""
_NEIGHBORS: Final = 8  # GPUs of a host


def telling(trace: Trace) -> Trace:
    """The trace of the ranks that are looked into; of 64 or fewer all of them."""
    return trace if len(trace.rank_numbers) <= MOST else _part(trace)


@remembered
def _part(trace: Trace) -> Trace:
    ranks, wanted = trace.rank_numbers, outstanding(trace)
    blocks = {ranks.index(rank) // _NEIGHBORS for rank in wanted}
    return trace.of_ranks([rank for at, rank in enumerate(ranks) if at // _NEIGHBORS in blocks])


@remembered
def outstanding(trace: Trace) -> tuple[int, ...]:
    """The rank that waits least in collectives, for which the others wait; the one that computes most; the one that
    stands idle most; and the first: ascending, each once."""
    length = pl.col("end_ns") - pl.col("start_ns")
    talks = pl.Series("talks", class_of_ops(trace).to_physical().to_numpy() == COMMUNICATION)
    by_rank = (
        trace.get(DEVICE_OPS)
        .select("rank", "start_ns", "end_ns", talks)
        .group_by("rank")
        .agg(
            length.filter("talks").sum().alias("talks_ns"),
            length.filter(~pl.col("talks")).sum().alias("computes_ns"),
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("span_ns"),
        )
        .sort("rank")
    )
    if not by_rank.height:
        return trace.rank_numbers[:1]
    idle = by_rank["span_ns"] - by_rank["talks_ns"] - by_rank["computes_ns"]
    at = (by_rank["talks_ns"].arg_min(), by_rank["computes_ns"].arg_max(), idle.arg_max())
    return tuple(sorted({trace.rank_numbers[0], *(int(by_rank["rank"][place]) for place in at if place is not None)}))


def telling_text(trace: Trace) -> str:
    """Which ranks are looked into; "" where all are."""
    if telling(trace) is trace:
        return ""
    told, every = len(telling(trace).rank_numbers), len(trace.rank_numbers)
    return (
        f"{told} of {every:,} ranks are diagnosed: {ranks_text(outstanding(trace))} and their neighbors, as the first "
        "and those that stand out; timesink ranks compares all, --rank N looks into another"
    )
