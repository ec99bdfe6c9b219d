"""Clocks: injected offsets and drifts come back, within the bound that is stated, always."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.ranks.clock_trials import grown, one_trial
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.jobs_by_hand import Drift, collectives, job_of, on_clocks

from timesink.measures.communication.clock_bounds import UNKNOWN, Visits, offset_bounds
from timesink.measures.communication.clocks import align_clocks
from timesink.measures.communication.matching import match_collectives
from timesink.measures.ranks.job import job
from timesink.readers import read

TRIALS = 40  # benchmarks/ranks/clock_trials.py runs a thousand


def brute_force(visits: Visits) -> tuple[list[int], list[int]]:
    """Offsets against clock 0 by Floyd-Warshall over all pairs of clocks."""
    count = visits.clocks
    most = np.full((count, count), np.inf)
    np.fill_diagonal(most, 0)
    for instance in np.unique(visits.instance):
        rows = np.flatnonzero(visits.instance == instance)
        for r in rows:
            for s in rows:
                a, b = visits.clock[r], visits.clock[s]
                most[a, b] = min(most[a, b], visits.end_ns[r] - visits.start_ns[s])
    for via in range(count):
        most = np.minimum(most, most[:, [via]] + most[[via], :])
    return [int(-most[0, r]) if np.isfinite(most[0, r]) else -UNKNOWN for r in range(count)], [
        int(most[r, 0]) if np.isfinite(most[r, 0]) else UNKNOWN for r in range(count)
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 400), st.integers(0, 400)),
        min_size=1, max_size=12, unique_by=lambda row: row[:2],
    )
)  # fmt: skip
def test_limits_are_the_shortest_paths_of_all_pairs(rows: list[tuple[int, int, int, int]]) -> None:
    # Every start lies before every end, so that the limits contradict nobody.
    rows = [(0, rank, 0, 1000) for rank in range(1)] + rows
    rows = list({(clock, instance): (clock, instance, s, 1000 + e) for clock, instance, s, e in rows}.values())
    clock, instance, start, end = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    everybody = np.ones(clock.size, np.bool_)
    visits = Visits(clock, instance, start, end, holds=everybody, held=everybody)
    low, high = offset_bounds(visits, 0.0)
    wanted_low, wanted_high = brute_force(visits)
    assert [int(x) for x in high] == [wanted_high[clock] for clock in visits.clock]
    assert [int(x) for x in low] == [wanted_low[clock] for clock in visits.clock]


def test_a_short_collective_tightens_the_limits_of_all_others() -> None:
    calls = collectives([[0, 500_000], [10_000_000, 10_000_100]], [100_000, 2_000])
    shown = on_clocks(calls, {1: Drift(offset_ns=7_000_000)})
    clock = align_clocks(match_collectives(shown).calls, job_of(shown).members).clocks[1]
    # At the second: start_1 - end_0 <= offset - 7 ms <= end_1 - start_0, an interval of 4.1 us; drift over 10 ms adds.
    assert clock.offset_ns == 7_000_000
    assert clock.error_ns is not None
    assert clock.error_ns <= 2_100 + 500e-6 * 10_600_000 + 1


@pytest.fixture(scope="module")
def hundredfold(shared_data: Path) -> pl.DataFrame:
    """The collectives of a real run of eight ranks, a hundred times over."""
    return grown(match_collectives(job(read([shared_data / "public/kineto/dlrm_8rank"])).calls).calls, 100)


@pytest.mark.parametrize("seed", range(TRIALS))
def test_offsets_and_drift_in_a_real_run_come_back_within_the_stated_bound(
    seed: int, hundredfold: pl.DataFrame
) -> None:
    outcome = one_trial(hundredfold, np.random.default_rng(seed))
    assert outcome.violations == 0
    assert outcome.bounded == 1.0


def test_drift_is_seen_where_the_window_is_long_enough() -> None:
    arrival = [[at * 50_000_000, at * 50_000_000 + 1_000 * (at % 3)] for at in range(60)]
    calls = collectives(arrival, [20_000] * 60)
    shown = on_clocks(calls, {1: Drift(offset_ns=-3_000_000_000, ratio=40e-6)})
    clock = align_clocks(match_collectives(shown).calls, job_of(shown).members).clocks[1]
    assert clock.drift_ratio == pytest.approx(40e-6, rel=0.02)
    assert clock.consistent


def test_a_wrong_match_contradicts_every_constant_clock() -> None:
    calls = collectives([[0, 0], [1_000_000, 1_000_000]], [1_000, 1_000]).filter(pl.col("rank") < 2)
    crossed = calls.with_columns(
        instance=pl.when(pl.col("rank") == 0)
        .then(pl.col("start_ns").rank("dense"))
        .otherwise(3 - pl.col("start_ns").rank("dense"))
        .over("rank")
        .cast(pl.Int64),
        size=pl.lit(2, pl.Int32), rigorous=pl.lit(True), complete=pl.lit(True),
    )  # fmt: skip
    assert not align_clocks(crossed, job_of(calls).members).clocks[1].consistent


def test_ranks_of_one_host_share_its_clock_and_are_checked_against_it() -> None:
    calls = collectives([[0, 40, 90], [10_000, 10_020, 10_000]], [500, 500])
    hosts = {0: "a", 1: "a", 2: "b"}
    true = align_clocks(match_collectives(calls).calls, job_of(calls, hosts).members)
    assert [clock.ranks for clock in true.clocks] == [(0, 1), (2,)]
    assert true.shared_clock_ok is True
    shown = on_clocks(calls, {1: Drift(offset_ns=5_000)})
    assert align_clocks(match_collectives(shown).calls, job_of(shown, hosts).members).shared_clock_ok is False


def test_without_a_common_collective_nothing_limits_a_clock() -> None:
    calls = collectives([[0, 40]], [500])
    other = calls.with_columns(pl.lit("other").alias("group"), rank=pl.col("rank") + 2)
    both = pl.concat([calls, other])
    clocks = align_clocks(match_collectives(both).calls, job_of(both).members)
    assert [clock.error_ns is None for clock in clocks.clocks] == [False, False, True, True]
    assert clocks.worst_error_ns is None
