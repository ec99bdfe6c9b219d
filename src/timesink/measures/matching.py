"""Which calls of different ranks are one collective: by group and sequence number, else by aligned order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.token_alignment import TokenSequence, aligned
from timesink.model.collective_kinds import BARRIERS, EXCHANGE

_MEMBER = ["rank", "device"]
_CROWD = 3


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
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


def matched(calls: pl.DataFrame) -> Matched:
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
    found = _numbered(found)
    return Matched(found, calls.height, able.height - found.height, calls.height - able.height, by_order)


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
        [_one_lane(lane) for _, lane in sorted(pl.concat(lanes).partition_by("lane", as_dict=True).items())]
    )


def _one_lane(lane: pl.DataFrame) -> pl.DataFrame:
    lane = lane.sort(*_MEMBER, "start_ns", "end_ns", maintain_order=True)
    token = lane.select(pl.struct("kind", "bytes").rank("dense")).to_series().to_numpy().astype(np.int64)
    lane = lane.with_columns(pl.Series("token", token))
    members = lane.partition_by(_MEMBER, maintain_order=True)
    reference = max(members, key=lambda member: member.height)
    group, number = reference["group"][0] or "", int(reference["lane"][0])
    parts = []
    for member in members:
        place = np.full(member.height, -1, np.int64)
        mine, theirs = aligned(_sequence(reference), _sequence(member))
        place[theirs] = mine
        parts.append(member.with_columns(pl.Series("place", place)).filter(pl.col("place") >= 0))
    key = pl.format("{} order {}.{}", pl.lit(group), pl.lit(number), "place").alias("match")
    return pl.concat(parts).with_columns(key).drop("lane", "token", "place")


def _sequence(member: pl.DataFrame) -> TokenSequence:
    return TokenSequence(member["token"].to_numpy(), member["end_ns"].to_numpy())


def _numbered(found: pl.DataFrame) -> pl.DataFrame:
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
