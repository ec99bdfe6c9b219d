"""The collectives of all ranks replayed together, with one rank's own lateness taken away.

ByteDance's what-if for stragglers (OSDI'25) on the level of collectives: a call begins when the call that held it ends,
or as long after its anchor as it did, and it ends as long after the last arrival as it did. With nothing changed the
replay gives every observed time; what lies between collectives is kept as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.lateness import Lateness

Numbers = npt.NDArray[np.int64]

# What a replayed gain may be off by, of itself: p10 to p90 of replays, as for one rank's graph (whatif.pricing).
REPLAY_ERROR_RATIO: Final = 0.1


@dataclass(frozen=True, slots=True)
class Balanced:
    """What the job gains where `ranks` come as their peers do: between the first and the last anchor, in all and as a
    share. `gain_ns` of `span_ns`; nothing is said of what happens outside."""

    ranks: tuple[int, ...]
    gain_ns: int
    span_ns: int

    @property
    def gain_ratio(self) -> float:
        """Share of the time that goes."""
        return self.gain_ns / self.span_ns if self.span_ns else 0.0


def balanced(late: Lateness, ranks: Collection[int]) -> Balanced:
    """The gain where these ranks lose their own lateness."""
    chosen = tuple(sorted(set(ranks)))
    if late.anchors.size < 2:
        return Balanced(chosen, 0, 0)
    before = _ends(late.calls)
    after = replayed_ends(late, chosen)
    in_order = sorted(late.anchors.tolist(), key=lambda anchor: (before[anchor], anchor))
    first, last = in_order[0], in_order[-1]
    return Balanced(chosen, before[last] - after[last], before[last] - before[first])


def replayed_ends(late: Lateness, ranks: Collection[int]) -> dict[int, int]:
    """When each instance is over (its last end), with the own lateness of these ranks taken away."""
    calls = late.calls.sort("ready_ns", "instance", "rank", "device")
    member = calls.select(pl.struct("rank", "device").rank("dense")).to_series().to_numpy().astype(np.int64) - 1
    instance = calls["instance"].to_numpy()
    arrival, end, ready = (calls[name].to_numpy() for name in ("arrival_ns", "end_ns", "ready_ns"))
    saved = np.where(np.isin(calls["rank"].to_numpy(), list(ranks)), calls["own_ns"].to_numpy(), 0)
    held_by, anchor = calls["follows"].to_numpy(), calls["anchor"].to_numpy()
    size = int(instance.max()) + 1 if instance.size else 0
    # How far each call's end has moved to earlier, by member and instance; missing calls have not moved.
    moved = np.zeros((int(member.max()) + 1 if member.size else 0, size), np.int64)
    over: dict[int, int] = {}
    edges = np.flatnonzero(np.diff(instance, prepend=-1, append=-1))
    for first, after in pairwise(edges):
        rows = slice(first, after)
        who = member[rows]
        by_anchor = np.where(anchor[rows] >= 0, moved[who, anchor[rows]], 0) + saved[rows]
        earlier = np.where(held_by[rows] >= 0, moved[who, held_by[rows]], by_anchor)
        begin = arrival[rows] - earlier
        here = int(begin.max())
        finish = np.maximum(here + end[rows] - ready[rows], begin)
        moved[who, instance[first]] = end[rows] - finish
        over[int(instance[first])] = int(finish.max())
    return over


def _ends(calls: pl.DataFrame) -> dict[int, int]:
    return dict(calls.group_by("instance").agg(pl.col("end_ns").max()).rows())
