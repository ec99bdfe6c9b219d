"""Which send is which receive: by who sends to whom, in order.

PyTorch says of each send and receive its peer. Messages between two ranks keep their order, so the n-th send from one
to the other is the n-th receive there, windows that opened at different messages aside: those are aligned by size.
Sequence numbers do not help: each rank counts its own sends and receives to all peers together. Batches (one kernel
for several sends and receives) and traces without labels say no peer: they are matched only where two ranks run such
kernels, because then each is the other's peer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.matching import exchanges_alike
from timesink.measures.token_alignment import TokenSequence, aligned
from timesink.model.collective_kinds import EXCHANGE, POINT_TO_POINT

_KEYS = ["group", "low", "high", "sender"]


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """`calls`: sends and receives that have a counterpart, with `instance` (one number per pair), `size` (2),
    `complete` and `rigorous` (the message cannot arrive before it is sent; false where who sends is not known).

    `call_count` sends, receives and exchanges were looked at; `unmatched_count` of them have no counterpart among the
    ranks read, or say too little to tell it.
    """

    calls: pl.DataFrame
    call_count: int
    unmatched_count: int

    @property
    def unmatched_ratio(self) -> float:
        """Share of the calls looked at that have no counterpart."""
        return self.unmatched_count / self.call_count if self.call_count else 0.0


def paired(calls: pl.DataFrame, first_instance: int = 0) -> Paired:
    """Match the sends and receives of a `Job`. Instances are numbered from `first_instance` by start, then channel."""
    exchange = (pl.col("kind") == EXCHANGE) & ~exchanges_alike(calls)
    looked_at = calls.filter(pl.col("kind").is_in([*POINT_TO_POINT]) | exchange)
    parts = [_matched(part) for part in _channels(looked_at)]
    found = pl.concat([_numbered(looked_at.clear(), np.zeros(0, np.int64)), *parts])
    order = found.group_by("channel", "place").agg(pl.col("start_ns").min()).sort("start_ns", "channel", "place")
    order = order.with_row_index("instance", offset=first_instance).drop("start_ns")
    whole = found.join(order, on=["channel", "place"], how="inner").with_columns(
        pl.col("instance").cast(pl.Int64),
        size=pl.lit(2, pl.Int32),
        rigorous=pl.col("kind").is_in([*POINT_TO_POINT]),
        complete=pl.lit(True),
    )
    whole = whole.drop("channel", "place", "low", "high", "sender").sort("instance", "rank", "device", "start_ns")
    return Paired(whole, looked_at.height, looked_at.height - whole.height)


def _channels(looked_at: pl.DataFrame) -> list[pl.DataFrame]:
    """Calls by who sends to whom, or by the two ranks where that is not said; one such direction per frame."""
    mute = looked_at.filter(pl.col("peer").is_null())
    told = [looked_at.filter(pl.col("peer").is_not_null())]
    ranks = mute["rank"].unique().sort().to_list()
    if len(ranks) == 2 and (mute["kind"] == EXCHANGE).all():
        told.append(mute.with_columns(peer=(sum(ranks) - pl.col("rank")).cast(pl.Int32)))
    whole = pl.concat(told).with_columns(
        low=pl.min_horizontal("rank", "peer"),
        high=pl.max_horizontal("rank", "peer"),
        sender=pl.when(pl.col("kind") == "send").then("rank").when(pl.col("kind") == "recv").then("peer"),
    )
    parts = whole.sort(*_KEYS, nulls_last=True, maintain_order=True).partition_by(_KEYS, maintain_order=True)
    return [part.with_columns(channel=pl.lit(at, pl.Int64)) for at, part in enumerate(parts)]


def _matched(channel: pl.DataFrame) -> pl.DataFrame:
    """The calls of one channel that have a counterpart, with their `place` in it."""
    sides = channel.sort("rank", "start_ns", "end_ns", "device", maintain_order=True).partition_by(
        "rank", maintain_order=True
    )
    if len(sides) != 2:
        return _numbered(channel.clear(), np.zeros(0, np.int64))
    first, second = aligned(*(_sequence(side) for side in sides))
    place = np.arange(first.size, dtype=np.int64)
    return pl.concat([_numbered(side[rows], place) for side, rows in zip(sides, (first, second), strict=True)])


def _sequence(side: pl.DataFrame) -> TokenSequence:
    return TokenSequence(side["bytes"].fill_null(-1).to_numpy(), side["end_ns"].to_numpy())


def _numbered(side: pl.DataFrame, place: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    blank = {"low": pl.Int32, "high": pl.Int32, "sender": pl.Int32, "channel": pl.Int64}
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in blank.items() if name not in side.columns]
    return side.with_columns(*missing).with_columns(pl.Series("place", place, pl.Int64))
