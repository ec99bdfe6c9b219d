"""Which calls of different ranks are one collective: by group and sequence number, else by aligned order.

Which call of one rank is which call of another, where no sequence numbers say so: aligned sequences of tokens.

Training repeats itself, so a window that opened a step late looks the same shifted by a step. Among shifts that match
equally well the clocks decide: calls that really belong together end within microseconds of each other, always equally
far apart; a wrong step shows the jitter of whole steps.

Which send is which receive: by who sends to whom, in order.

PyTorch says of each send and receive its peer. Messages between two ranks keep their order, so the n-th send from one
to the other is the n-th receive there, windows that opened at different messages aside: those are aligned by size.
Sequence numbers do not help: each rank counts its own sends and receives to all peers together. Batches (one kernel
for several sends and receives) and traces without labels say no peer: they are matched only where two ranks run such
kernels, because then each is the other's peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.collectives import BARRIERS, EXCHANGE, POINT_TO_POINT
from timesink.model.arrays import Int64Array

# The least share of the shorter sequence that a shift must cover.
_OVERLAP: Final = 0.5
# A shift takes the place of the plain one only where its ends agree this many times better.
_BETTER: Final = 2.0
# No more shifts than this are tried: periods beyond it need sequence numbers.
_SHIFTS: Final = 512
_LONGEST_FOR_GAPS: Final = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """Calls of one rank in order: what each is, and when it ended by that rank's clock."""

    token: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return int(self.token.size)


def align_sequences(reference: TokenSequence, other: TokenSequence) -> tuple[Int64Array, Int64Array]:
    """Positions in the reference and in the other that are the same call, ascending."""
    if not len(reference) or not len(other):
        return _pair(range(0), range(0))
    shifts = _fitting_shifts(reference.token, other.token)
    if shifts:
        spread = [_spread_ns(reference, other, shift) for shift in shifts]
        best = int(np.argmin(spread))
        chosen = best if spread[best] * _BETTER < spread[0] else 0
        return _overlap(len(reference), len(other), shifts[chosen])
    return _matching_blocks(reference.token, other.token)


def _overlap(reference: int, other: int, shift: int) -> tuple[Int64Array, Int64Array]:
    """Position i + shift of the reference is position i of the other."""
    first, last = max(0, -shift), min(other, reference - shift)
    place = np.arange(first, last, dtype=np.int64)
    return place + shift, place


def _fitting_shifts(reference: Int64Array, other: Int64Array) -> list[int]:
    """Shifts at which every call of the overlap is of the same kind, the nearest to none first."""
    shorter = min(reference.size, other.size)
    least = max(1, int(np.ceil(_OVERLAP * shorter)))
    every = sorted(range(least - other.size, reference.size - least + 1), key=lambda shift: (abs(shift), shift))
    found = []
    for shift in every[:_SHIFTS]:
        mine, theirs = _overlap(reference.size, other.size, shift)
        if np.array_equal(reference[mine], other[theirs]):
            found.append(shift)
    return found


def _spread_ns(reference: TokenSequence, other: TokenSequence, shift: int) -> float:
    """How far the differences of ends lie from their median, in the median."""
    mine, theirs = _overlap(len(reference), len(other), shift)
    apart = other.end_ns[theirs] - reference.end_ns[mine]
    return float(np.median(np.abs(apart - np.median(apart))))


def _matching_blocks(reference: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Matching blocks of sequences in which calls are missing."""
    first, second = reference[:_LONGEST_FOR_GAPS].tolist(), other[:_LONGEST_FOR_GAPS].tolist()
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    pairs = [(block.a + at, block.b + at) for block in blocks for at in range(block.size)]
    return _pair([a for a, _ in pairs], [b for _, b in pairs])


def _pair(first: range | list[int], second: range | list[int]) -> tuple[Int64Array, Int64Array]:
    return np.array(first, np.int64), np.array(second, np.int64)


_MEMBER = ["rank", "device"]
_CROWD = 3


@dataclass(frozen=True, slots=True, eq=False)
class MatchedCollectives:
    """`calls`: the calls that have a counterpart, with `instance` (one number per collective), `size` (ranks found in
    it), `complete` (all ranks of its group are), `rigorous` (nobody can leave before everybody has come).

    An exchange that runs as sends and receives counts as a barrier where three or more ranks run equally many, but is
    not rigorous: its name does not prove it. `unmatched_count` calls have no counterpart among the ranks read;
    `one_sided_count` sends, receives and others that cannot be told to wait for everybody are left out on purpose.
    `by_order_count` were matched without sequence numbers.
    """

    calls: pl.DataFrame
    call_count: int
    unmatched_count: int
    one_sided_count: int
    by_order_count: int

    @property
    def unmatched_ratio(self) -> float:
        """Share of the calls that could have a counterpart and have none."""
        looked_at = self.call_count - self.one_sided_count
        return self.unmatched_count / looked_at if looked_at else 0.0


def match_collectives(calls: pl.DataFrame) -> MatchedCollectives:
    """Match the calls of a `Job`."""
    able = calls.filter(pl.col("kind").is_in([*BARRIERS]) | ((pl.col("kind") == EXCHANGE) & exchanges_alike(calls)))
    parts: list[pl.DataFrame] = []
    by_order = 0
    for _, part in sorted(able.partition_by("group", as_dict=True, maintain_order=True).items(), key=_group_key):
        numbered = _by_sequence(part)
        if numbered is None:
            numbered = _by_order(part)
            by_order += numbered.height
        parts.append(numbered)
    found = pl.concat(parts) if parts else able.with_columns(pl.lit("").alias("match"))
    found = _number_instances(found)
    return MatchedCollectives(found, calls.height, able.height - found.height, calls.height - able.height, by_order)


def exchanges_alike(calls: pl.DataFrame) -> pl.Series:
    """Whether exchanges may be all-to-alls of a group: three or more ranks run them, all equally many.

    Two ranks, or ranks in the middle of a chain that run more of them, may just as well send to each other.
    """
    counts = calls.filter(pl.col("kind") == EXCHANGE).group_by("group", *_MEMBER).len()
    groups = counts.group_by("group").agg(pl.len().alias("members"), pl.col("len").n_unique().alias("counts"))
    alike = groups.filter((pl.col("members") >= _CROWD) & (pl.col("counts") == 1)).select("group", alike=pl.lit(True))
    joined = calls.select("group").join(alike, on="group", how="left", nulls_equal=True, maintain_order="left")
    return joined["alike"].fill_null(False)


def _group_key(entry: tuple[tuple[object, ...], pl.DataFrame]) -> str:
    return str(entry[0][0] or "")


def _by_sequence(part: pl.DataFrame) -> pl.DataFrame | None:
    """Keyed by sequence number, or None where some are missing, repeated, or name calls that cannot be one."""
    if part["sequence"].null_count() or part.select("sequence", *_MEMBER).is_duplicated().any():
        return None
    kinds = part.group_by("sequence").agg(pl.col("kind", "bytes").n_unique())
    alike = ((kinds["kind"] == 1) & (kinds["bytes"] == 1)).mean()
    if not isinstance(alike, float) or alike < 1.0:
        return None
    return part.with_columns(pl.format("{} #{}", pl.col("group").fill_null(""), "sequence").alias("match"))


def _by_order(part: pl.DataFrame) -> pl.DataFrame:
    """Keyed by place in the longest member's order, lane by lane where all members use equally many streams."""
    members = part.partition_by(_MEMBER, maintain_order=True)
    streams = {member["stream"].n_unique() for member in members}
    in_lanes = len(streams) == 1
    lanes = [
        member.with_columns(
            pl.col("stream").rank("dense").cast(pl.Int64).alias("lane")
            if in_lanes
            else pl.lit(1, pl.Int64).alias("lane")
        )
        for member in members
    ]
    return pl.concat(
        [_match_lane(lane) for _, lane in sorted(pl.concat(lanes).partition_by("lane", as_dict=True).items())]
    )


def _match_lane(lane: pl.DataFrame) -> pl.DataFrame:
    lane = lane.sort(*_MEMBER, "start_ns", "end_ns", maintain_order=True)
    token = lane.select(pl.struct("kind", "bytes").rank("dense")).to_series().to_numpy().astype(np.int64)
    lane = lane.with_columns(pl.Series("token", token))
    members = lane.partition_by(_MEMBER, maintain_order=True)
    reference = max(members, key=lambda member: member.height)
    group, number = reference["group"][0] or "", int(reference["lane"][0])
    parts = []
    for member in members:
        place = np.full(member.height, -1, np.int64)
        mine, theirs = align_sequences(_sequence(reference), _sequence(member))
        place[theirs] = mine
        parts.append(member.with_columns(pl.Series("place", place)).filter(pl.col("place") >= 0))
    key = pl.format("{} order {}.{}", pl.lit(group), pl.lit(number), "place").alias("match")
    return pl.concat(parts).with_columns(key).drop("lane", "token", "place")


def _sequence(member: pl.DataFrame) -> TokenSequence:
    return TokenSequence(member["token"].to_numpy(), member["end_ns"].to_numpy())


def _number_instances(found: pl.DataFrame) -> pl.DataFrame:
    """Instances with at least two members, numbered by the first member's start, then by key."""
    found = found.sort(*_MEMBER, "start_ns", "end_ns", "match")
    instances = found.group_by("match", maintain_order=True).agg(
        pl.len().alias("size"), pl.col("start_ns").first().alias("begun")
    )
    instances = instances.filter(pl.col("size") > 1).sort("begun", "match").with_row_index("instance").drop("begun")
    joined = found.join(instances, on="match", how="inner").with_columns(
        pl.col("instance").cast(pl.Int64),
        pl.col("size").cast(pl.Int32),
        pl.col("kind").is_in([*BARRIERS]).alias("rigorous"),
    )
    widest = pl.col("size").max().over(pl.col("group").fill_null(""))
    whole = pl.col("size") >= pl.coalesce("group_size", widest)
    return joined.with_columns(whole.alias("complete")).drop("match").sort("instance", *_MEMBER)


_KEYS = ["group", "low", "high", "sender"]


@dataclass(frozen=True, slots=True, eq=False)
class MatchedMessages:
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


def match_messages(calls: pl.DataFrame, first_instance: int = 0) -> MatchedMessages:
    """Match the sends and receives of a `Job`. Instances are numbered from `first_instance` by start, then channel."""
    exchange = (pl.col("kind") == EXCHANGE) & ~exchanges_alike(calls)
    looked_at = calls.filter(pl.col("kind").is_in([*POINT_TO_POINT]) | exchange)
    parts = [_match_channel(part) for part in _channels(looked_at)]
    found = pl.concat([_number_messages(looked_at.clear(), np.zeros(0, np.int64)), *parts])
    order = found.group_by("channel", "place").agg(pl.col("start_ns").min()).sort("start_ns", "channel", "place")
    order = order.with_row_index("instance", offset=first_instance).drop("start_ns")
    whole = found.join(order, on=["channel", "place"], how="inner").with_columns(
        pl.col("instance").cast(pl.Int64),
        size=pl.lit(2, pl.Int32),
        rigorous=pl.col("kind").is_in([*POINT_TO_POINT]),
        complete=pl.lit(True),
    )
    whole = whole.drop("channel", "place", "low", "high", "sender").sort("instance", "rank", "device", "start_ns")
    return MatchedMessages(whole, looked_at.height, looked_at.height - whole.height)


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


def _match_channel(channel: pl.DataFrame) -> pl.DataFrame:
    """The calls of one channel that have a counterpart, with their `place` in it."""
    sides = channel.sort("rank", "start_ns", "end_ns", "device", maintain_order=True).partition_by(
        "rank", maintain_order=True
    )
    if len(sides) != 2:
        return _number_messages(channel.clear(), np.zeros(0, np.int64))
    first, second = align_sequences(*(_message_sequence(side) for side in sides))
    place = np.arange(first.size, dtype=np.int64)
    return pl.concat([_number_messages(side[rows], place) for side, rows in zip(sides, (first, second), strict=True)])


def _message_sequence(side: pl.DataFrame) -> TokenSequence:
    return TokenSequence(side["bytes"].fill_null(-1).to_numpy(), side["end_ns"].to_numpy())


def _number_messages(side: pl.DataFrame, place: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    blank = {"low": pl.Int32, "high": pl.Int32, "sender": pl.Int32, "channel": pl.Int64}
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in blank.items() if name not in side.columns]
    return side.with_columns(*missing).with_columns(pl.Series("place", place, pl.Int64))
