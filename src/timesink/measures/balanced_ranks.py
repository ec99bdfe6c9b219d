"""What the job gains where ranks come as their peers do: the question of ByteDance's straggler study (OSDI'25).

Between two anchors a job is as late as its latest rank. Without the own lateness of some ranks it is as late as the
latest of the others; that gain is real only as far as the others stood waiting for it with nothing to compute, and only
as far as the hosts of the others can keep that pace.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.lateness import Lateness

# What such a gain may be off by, of itself: p10 to p90 of replays of one rank's graph (whatif.pricing).
GAIN_ERROR_RATIO: Final = 0.1


@dataclass(frozen=True, slots=True)
class Balanced:
    """`gain_ns` of `span_ns`, from the first anchor's end to the last one's; nothing is said of what lies outside."""

    ranks: tuple[int, ...]
    gain_ns: int
    span_ns: int

    @property
    def gain_ratio(self) -> float:
        """Share of the time that goes."""
        return self.gain_ns / self.span_ns if self.span_ns else 0.0


def balanced(late: Lateness, ranks: Collection[int]) -> Balanced:
    """The gain where these ranks lose their own lateness. With all ranks given nobody comes later than the median."""
    chosen = tuple(sorted(set(ranks)))
    epochs = late.epochs
    if late.anchors.size < 2 or not epochs.height or not chosen:
        return Balanced(chosen, 0, 0 if late.anchors.size < 2 else late.span_ns)
    theirs = pl.col("rank").is_in(chosen)
    others = epochs.filter(~theirs)
    after = others.group_by("anchor").agg(
        pl.col("own_ns").max().alias("next_ns"), pl.col("stood_ns").min().alias("waited_ns")
    )
    if not others.height:
        after = epochs.group_by("anchor").agg(
            pl.lit(0, pl.Int64).alias("next_ns"), pl.col("stood_ns").max().alias("waited_ns")
        )
    latest = epochs.group_by("anchor").agg(pl.col("own_ns").max())
    gains = latest.join(after, on="anchor", how="inner").select(
        pl.min_horizontal(pl.col("own_ns") - pl.col("next_ns"), "waited_ns").clip(0).sum()
    )
    gain = min(int(gains.item() or 0), _host_slack_ns(late, chosen))
    return Balanced(chosen, max(gain, 0), late.span_ns)


def _host_slack_ns(late: Lateness, chosen: tuple[int, ...]) -> int:
    """How much shorter the span could be before some host outside `chosen` is busy all the time."""
    others = late.host_busy.filter(~pl.col("rank").is_in(chosen))
    hosts = others if others.height else late.host_busy
    busy = hosts["busy_ratio"].max()
    return late.span_ns if not isinstance(busy, float) else int(np.floor(late.span_ns * max(0.0, 1.0 - busy)))
