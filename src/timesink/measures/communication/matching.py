"""Which calls of different ranks are one collective, and which send is which receive.

Collectives are matched by group and sequence number, else by order: each rank's calls become a sequence of tokens (kind
and size), and sequences are aligned. Training repeats itself, so a window that opened a step late looks the same
shifted by a step. Among shifts that match equally well the clocks decide: calls that belong together end within
microseconds of each other, always equally far apart; a wrong step shows the jitter of whole steps.

Messages between two ranks keep their order, so the n-th send from one to the other is the n-th receive there; where
windows opened at different messages, the sequences are aligned by size. Sequence numbers do not help here: each rank
counts its own sends and receives to all peers together. Batches (one kernel for several sends and receives) and traces
without labels name no peer: they are matched only where two ranks run such kernels, each being the other's peer.
"""

from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import ALL_TO_ALL, BARRIERS, EXCHANGE, POINT_TO_POINT
from timesink.model.arrays import Int64Array, median
from timesink.records import Record

# No more shifts than this are tried: periods beyond it need sequence numbers.
_SHIFTS: Final = 512
# Matching blocks take quadratic time: sequences with gaps are compared up to this length.
_LONGEST_FOR_GAPS: Final = 4_000
_MEMBER: Final = ["rank", "device"]


class TokenSequence(Record, eq=False):
    """Calls of one rank in order: a number for what each is, and when it ended by that rank's clock."""

    token: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return int(self.token.size)


def align_sequences(reference: TokenSequence, other: TokenSequence) -> tuple[Int64Array, Int64Array]:
    """Positions in the reference and in the other that are the same call: two arrays of one length, both ascending.

    The shift is the one whose ends agree best, but the nearest to 0 unless another agrees twice as well. Where no shift
    makes all tokens of the overlap equal, calls are missing, and the common blocks are taken.

        reference  tokens  a b a b a    ends  0  10  20  30  40
        other      tokens    b a b      ends    510 520 530     shift 1: always 500 apart
        result             0 1 2 3 4  ->  positions 1, 2, 3 and 0, 1, 2
    """
    if not len(reference) or not len(other):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    shifts = _fitting_shifts(reference.token.tobytes(), other.token.tobytes())
    if shifts:
        spreads_ns = [_spread_ns(reference, other, shift) for shift in shifts]
        best = int(np.argmin(spreads_ns))
        chosen = best if spreads_ns[best] * assumed.SHIFT_BETTER.value < spreads_ns[0] else 0
        ours, theirs = _overlap(len(reference), len(other), shifts[chosen])
        return np.arange(ours.start, ours.stop), np.arange(theirs.start, theirs.stop)
    return _matching_blocks(reference.token, other.token)


def _overlap(reference: int, other: int, shift: int) -> tuple[slice, slice]:
    """All pairs of positions i + shift of the reference and i of the other, for sequences of these lengths.

    reference  other  shift   positions
        5        3      1     1 2 3  and  0 1 2
        5        3      4     4      and  0
        5        3     -1     0 1    and  1 2
    """
    first, end = max(0, -shift), min(other, reference - shift)
    return slice(first + shift, end + shift), slice(first, end)


@lru_cache(maxsize=8)  # most ranks of a group make the same calls
def _fitting_shifts(reference_tokens: bytes, other_tokens: bytes) -> tuple[int, ...]:
    """Shifts at which all tokens of the overlap are equal and it is long enough, the nearest to 0 first."""
    reference, other = np.frombuffer(reference_tokens, np.int64), np.frombuffer(other_tokens, np.int64)
    shorter = min(reference.size, other.size)
    least = max(1, int(np.ceil(assumed.SHIFT_OVERLAP.value * shorter)))
    shifts = sorted(range(least - other.size, reference.size - least + 1), key=lambda shift: (abs(shift), shift))
    overlaps = ((shift, *_overlap(reference.size, other.size, shift)) for shift in shifts[:_SHIFTS])
    return tuple(shift for shift, ours, theirs in overlaps if (reference[ours] == other[theirs]).all())


def _spread_ns(reference: TokenSequence, other: TokenSequence, shift: int) -> float:
    """The median absolute deviation of the differences of ends: small where calls really belong together."""
    ours, theirs = _overlap(len(reference), len(other), shift)
    apart = other.end_ns[theirs] - reference.end_ns[ours]
    return median(np.abs(apart - median(apart)))


def _matching_blocks(reference: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Positions of the matching blocks (`difflib`) of two sequences in which calls are missing."""
    first, second = reference[:_LONGEST_FOR_GAPS].tolist(), other[:_LONGEST_FOR_GAPS].tolist()
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    pairs = [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]
    positions = np.array(pairs, np.int64).reshape(-1, 2)
    return positions[:, 0], positions[:, 1]


class MatchedCollectives(Record, eq=False):
    """The calls of a job that are one collective.

    `calls`: those with a counterpart, with `instance` (one number per collective), `size` (ranks found in it),
    `complete` (all ranks of its group were found), `rigorous` (nobody can leave before everybody has arrived). An
    exchange that runs as sends and receives counts as a collective where three or more ranks run equally many, but is
    not rigorous: its name does not prove it. Of `call_count` calls, `unmatched_count` have no counterpart among the
    ranks read, `by_order_count` were matched without sequence numbers, and `one_sided_count` (sends, receives and
    others that need not wait for everybody) are left out on purpose.
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
    """Match the collectives among the `calls` of a `Job`, group by group."""
    able = calls.filter(pl.col("kind").is_in([*BARRIERS]) | ((pl.col("kind") == EXCHANGE) & exchanges_alike(calls)))
    parts: list[pl.DataFrame] = []
    by_order = 0
    groups = able.partition_by("group", as_dict=True, maintain_order=True)
    for _, group in sorted(groups.items(), key=lambda entry: str(entry[0][0] or "")):
        keyed = _key_by_sequence(group)
        if keyed is None:
            keyed = _key_by_order(group)
            by_order += keyed.height
        parts.append(keyed)
    matched = _number_instances(pl.concat(parts) if parts else able.with_columns(pl.lit("").alias("match")))
    return MatchedCollectives(matched, calls.height, able.height - matched.height, calls.height - able.height, by_order)


def exchanges_alike(calls: pl.DataFrame) -> pl.Series:
    """Whether exchanges may be all-to-alls of a group: three or more ranks run them, all equally many.

    Two ranks, or ranks in the middle of a chain that run more of them, may just as well send to each other.
    """
    if not (calls["kind"] == EXCHANGE).any():
        return pl.repeat(False, calls.height, eager=True)
    counts = calls.filter(pl.col("kind") == EXCHANGE).group_by("group", *_MEMBER).len()
    groups = counts.group_by("group").agg(pl.len().alias("members"), pl.col("len").n_unique().alias("counts"))
    alike = groups.filter((pl.col("members") >= assumed.CROWD.whole) & (pl.col("counts") == 1)).select(
        "group", alike=pl.lit(True)
    )
    joined = calls.select("group").join(alike, on="group", how="left", nulls_equal=True, maintain_order="left")
    return joined["alike"].fill_null(False)


def _key_by_sequence(group: pl.DataFrame) -> pl.DataFrame | None:
    """Keyed (`match`) by sequence number; None where some are missing, repeated, or name calls that cannot be one."""
    if group["sequence"].null_count() or group.select("sequence", *_MEMBER).is_duplicated().any():
        return None
    kinds = group.with_columns(_size(group)).group_by("sequence").agg(pl.col("kind", "bytes").n_unique())
    alike = ((kinds["kind"] == 1) & (kinds["bytes"] == 1)).mean()
    if not isinstance(alike, float) or alike < 1.0:
        return None
    return group.with_columns(pl.format("{} #{}", pl.col("group").fill_null(""), "sequence").alias("match"))


def _key_by_order(group: pl.DataFrame) -> pl.DataFrame:
    """Keyed (`match`) by position among the longest member's calls.

    Where all members use equally many streams, the n-th stream of each is one lane, and lanes are matched one by one.
    """
    streams = group.group_by(_MEMBER).agg(pl.col("stream").n_unique())["stream"]
    lane = pl.col("stream").rank("dense").over(_MEMBER) if streams.n_unique() == 1 else pl.lit(1)
    lanes = group.with_columns(lane.cast(pl.Int64).alias("lane")).partition_by("lane", as_dict=True)
    return pl.concat([_match_lane(lane) for _, lane in sorted(lanes.items())])


def _match_lane(lane: pl.DataFrame) -> pl.DataFrame:
    lane = lane.sort(*_MEMBER, "start_ns", "end_ns", maintain_order=True)
    lane = lane.with_columns(pl.struct("kind", _size(lane)).rank("dense").alias("token"))
    members = lane.partition_by(_MEMBER, maintain_order=True)
    reference = max(members, key=lambda member: member.height)
    group, number = reference["group"][0] or "", int(reference["lane"][0])
    parts = []
    for member in members:
        ours, theirs = align_sequences(*(_sequence(frame, frame["token"]) for frame in (reference, member)))
        parts.append(member[theirs].with_columns(pl.Series("position", ours)))
    key = pl.format("{} order {}.{}", pl.lit(group), pl.lit(number), "position").alias("match")
    return pl.concat(parts).with_columns(key).drop("lane", "token", "position")


def _size(calls: pl.DataFrame) -> pl.Expr:
    """The bytes by which calls are told apart: none of all-to-alls in which ranks send different amounts, as experts
    that are asked unequally often do."""
    each = calls.filter(pl.col("kind") == ALL_TO_ALL).group_by(_MEMBER).agg(pl.col("bytes").sort())
    uneven = each["bytes"].n_unique() > 1
    return pl.when(pl.lit(uneven) & (pl.col("kind") == ALL_TO_ALL)).then(None).otherwise("bytes").alias("bytes")


def _sequence(calls: pl.DataFrame, token: pl.Series) -> TokenSequence:
    return TokenSequence(token.to_numpy().astype(np.int64), calls["end_ns"].to_numpy())


def _number_instances(keyed: pl.DataFrame) -> pl.DataFrame:
    """Instances with at least two members, numbered by the first member's start, then by key (`match`)."""
    keyed = keyed.sort(*_MEMBER, "start_ns", "end_ns", "match")
    instances = keyed.group_by("match", maintain_order=True).agg(
        pl.len().alias("size"), pl.col("start_ns").first().alias("begun")
    )
    instances = instances.filter(pl.col("size") > 1).sort("begun", "match").with_row_index("instance").drop("begun")
    joined = keyed.join(instances, on="match", how="inner").with_columns(
        pl.col("instance").cast(pl.Int64),
        pl.col("size").cast(pl.Int32),
        pl.col("kind").is_in([*BARRIERS]).alias("rigorous"),
    )
    widest = pl.col("size").max().over(pl.col("group").fill_null(""))
    is_complete = pl.col("size") >= pl.coalesce("group_size", widest)
    return joined.with_columns(is_complete.alias("complete")).drop("match").sort("instance", *_MEMBER)


_KEYS = ["group", "low", "high", "sender"]


class MatchedMessages(Record, eq=False):
    """The sends and receives of a job that are one message.

    `calls`: those with a counterpart, with `instance` (one number per pair), `size` (2), `complete` (true) and
    `rigorous` (the message cannot arrive before it is sent; false where it is not known who sends). `call_count` sends,
    receives and exchanges were looked at; `unmatched_count` of them have no counterpart among the ranks read, or say
    too little to find it.
    """

    calls: pl.DataFrame
    call_count: int
    unmatched_count: int

    @property
    def unmatched_ratio(self) -> float:
        """Share of the calls looked at that have no counterpart."""
        return self.unmatched_count / self.call_count if self.call_count else 0.0


def match_messages(calls: pl.DataFrame, first_instance: int = 0) -> MatchedMessages:
    """Match sends and receives among the `calls` of a `Job`.

    Instances are numbered from `first_instance` by start, then by channel (who sends to whom).
    """
    exchange = (pl.col("kind") == EXCHANGE) & ~exchanges_alike(calls)
    looked_at = calls.filter(pl.col("kind").is_in([*POINT_TO_POINT]) | exchange)
    pairs = pl.concat([_match_channel(channel) for channel in _split_channels(looked_at)])
    message = ["channel", "position"]
    order = pairs.group_by(message).agg(pl.col("start_ns").min()).sort("start_ns", *message)
    order = order.with_row_index("instance", offset=first_instance).drop("start_ns")
    calls = pairs.join(order, on=message, how="inner").with_columns(
        pl.col("instance").cast(pl.Int64),
        size=pl.lit(2, pl.Int32),
        rigorous=pl.col("kind").is_in([*POINT_TO_POINT]),
        complete=pl.lit(True),
    )
    calls = calls.drop(*message, "low", "high", "sender").sort("instance", "rank", "device", "start_ns")
    return MatchedMessages(calls, looked_at.height, looked_at.height - calls.height)


def _split_channels(looked_at: pl.DataFrame) -> list[pl.DataFrame]:
    """An empty frame, then one per direction: who sends to whom, or just two ranks where that is not known."""
    peerless = looked_at.filter(pl.col("peer").is_null())
    addressed = [looked_at.filter(pl.col("peer").is_not_null())]
    ranks = peerless["rank"].unique().sort().to_list()
    if len(ranks) == 2 and (peerless["kind"] == EXCHANGE).all():
        addressed.append(peerless.with_columns(peer=(sum(ranks) - pl.col("rank")).cast(pl.Int32)))
    directed = pl.concat(addressed).with_columns(
        low=pl.min_horizontal("rank", "peer"),
        high=pl.max_horizontal("rank", "peer"),
        sender=pl.when(pl.col("kind") == "send").then("rank").when(pl.col("kind") == "recv").then("peer"),
    )
    parts = directed.sort(*_KEYS, nulls_last=True, maintain_order=True).partition_by(_KEYS, maintain_order=True)
    return [part.with_columns(channel=pl.lit(at, pl.Int64)) for at, part in enumerate([directed.clear(), *parts])]


def _match_channel(channel: pl.DataFrame) -> pl.DataFrame:
    """The calls of one channel that have a counterpart, with their `position` among its messages."""
    sides = channel.sort("rank", "start_ns", "end_ns", "device", maintain_order=True).partition_by(
        "rank", maintain_order=True
    )
    if len(sides) != 2:
        return channel.clear().with_columns(position=pl.lit(0, pl.Int64))
    matching = align_sequences(*(_sequence(side, side["bytes"].fill_null(-1)) for side in sides))
    position = pl.Series("position", np.arange(matching[0].size, dtype=np.int64))
    return pl.concat([side[rows].with_columns(position) for side, rows in zip(sides, matching, strict=True)])
