"""Offsets and drifts injected into the collectives of real runs, a thousand times: is the truth within the stated
bound?

python -m benchmarks.ranks.clock_trials ../shared/data/public/kineto/dlrm_8rank [--trials 1000]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from timesink.measures.communication.clocks import align_clocks
from timesink.measures.communication.matching import match_collectives
from timesink.measures.ranks.job import job
from timesink.readers import read

# Clocks run at most 500 ppm apart: each drifts by at most half of that.
LARGEST_OFFSET_NS, LARGEST_DRIFT = 5_000_000_000, 240e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows whose true offset lay outside the stated bound, the share that had one, how far estimates were off."""

    violations: int
    bounded: float
    worst_estimate_ns: int
    median_bound_ns: float


def grown(calls: pl.DataFrame, copies: int) -> pl.DataFrame:
    """A run that repeats its matched collectives, so that clocks have time to drift."""
    span = int(calls["end_ns"].max() - calls["start_ns"].min()) + 5_000_000
    count = int(calls["instance"].max()) + 1
    return pl.concat(
        calls.with_columns(
            pl.col("start_ns") + copy * span, pl.col("end_ns") + copy * span, pl.col("instance") + copy * count
        )
        for copy in range(copies)
    )


def one_trial(calls: pl.DataFrame, random: np.random.Generator) -> Outcome:
    """Ranks of one true clock get clocks of their own; what comes back is held against the truth."""
    ranks = calls["rank"].unique().sort().to_list()
    scale = 10.0 ** random.uniform(3, np.log10(LARGEST_OFFSET_NS))
    offset = {rank: int(random.uniform(-scale, scale)) for rank in ranks}
    drift = {rank: random.uniform(-LARGEST_DRIFT, LARGEST_DRIFT) * random.integers(0, 2) for rank in ranks}
    begun = int(calls["start_ns"].min())

    def shown(rank: int, instant: np.ndarray) -> np.ndarray:
        return instant + offset[rank] + np.rint(drift[rank] * (instant - begun)).astype(np.int64)

    parts = []
    for (rank,), mine in calls.partition_by("rank", as_dict=True, maintain_order=True).items():
        start, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        truth = shown(rank, start) - shown(ranks[0], start)
        parts.append(
            mine.with_columns(
                pl.Series("start_ns", shown(rank, start)),
                pl.Series("end_ns", shown(rank, end)),
                pl.Series("truth", truth),
            )
        )
    members = pl.DataFrame(
        {
            "rank": ranks,
            "device": ranks,
            "host": None,
            "clock": [f"file {rank}" for rank in ranks],
            "visible_devices": 8,
        },
        schema_overrides={"rank": pl.Int32, "device": pl.Int32, "host": pl.String, "visible_devices": pl.Int32},
    )
    found = align_clocks(pl.concat(parts), members).calls
    off = (found["offset_ns"] - found["truth"]).abs()
    known = found["error_ns"].is_not_null()
    return Outcome(
        violations=int((off.filter(known) > found["error_ns"].filter(known)).sum()),
        bounded=float(known.mean() or 0.0),
        worst_estimate_ns=int(off.max() or 0),
        median_bound_ns=float(found["error_ns"].median() or 0.0),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="+")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=100)
    options = parser.parse_args()
    calls = grown(match_collectives(job(read(options.run)).calls).calls, options.copies)
    begin = time.perf_counter()
    outcomes = [one_trial(calls, np.random.default_rng(seed)) for seed in range(options.trials)]
    worst = max(outcome.worst_estimate_ns for outcome in outcomes)
    failed = sum(outcome.violations > 0 for outcome in outcomes)
    median = float(np.median([outcome.median_bound_ns for outcome in outcomes]))
    estimate = float(np.median([outcome.worst_estimate_ns for outcome in outcomes]))
    print(
        f"{options.trials} trials of {calls.height} calls, {time.perf_counter() - begin:.0f} s: outside the bound in "
        f"{failed}; "
        f"estimates off by at most {worst / 1e3:.1f} us ({estimate / 1e3:.1f} us in the median trial), "
        f"bound in the median {median / 1e3:.0f} us"
    )


if __name__ == "__main__":
    main()
