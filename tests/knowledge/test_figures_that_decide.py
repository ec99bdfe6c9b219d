"""Assumed figures at which an answer changes, each met from both sides: planted faults seldom come so near to them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from timesink.measures.communication import clocks
from timesink.measures.communication.matching import TokenSequence, align_sequences
from timesink.measures.memory import classes
from timesink.measures.ranks import lateness
from timesink.measures.steps import loops, spikes
from timesink.whatif import device

SECOND_NS = 10**9


def drift(calls: int, span_ns: int, per_ns: float, scatter_ns: int = 0) -> float:
    """The drift that is found in the ends of so many collectives."""
    start = np.linspace(0, span_ns, calls).astype(np.int64)
    apart = per_ns * start + scatter_ns * np.where(np.arange(calls) % 2, 1, -1)
    return clocks._fit_line(start, apart.astype(np.int64), 0, is_reference=False).drift_ratio


def test_a_drift_is_fitted_over_twelve_calls_and_a_second() -> None:
    assert drift(12, SECOND_NS, 1e-4) == pytest.approx(1e-4, rel=1e-3)
    assert drift(11, SECOND_NS, 1e-4) == 0
    assert drift(12, SECOND_NS - 1000, 1e-4) == 0


def test_two_clocks_drift_apart_by_five_parts_in_ten_thousand_at_most() -> None:
    assert drift(30, SECOND_NS, 6e-4) == 5e-4


@pytest.mark.parametrize(("times", "kept"), [(4.4, True), (3.6, False)])
def test_a_drift_rises_four_times_above_the_scatter(times: float, kept: bool) -> None:
    run_ns = SECOND_NS * 40 / 59  # from the middle of the first third of 60 calls to that of the last
    assert (drift(60, SECOND_NS, 1e-4, round(1e-4 * run_ns / times)) != 0) is kept


def launch_cost(values: list[int]) -> int:
    """The low quantile of the latencies of one group."""
    found = np.array(values, np.int64)
    return int(
        device._quantiles_by(np.zeros(max(len(values), 1), np.int32)[: found.size], found, found >= 0, (0.1,))[0][0]
    )


def test_a_latency_is_taken_from_five_launches_and_from_fewer_at_most_twenty_microseconds() -> None:
    assert launch_cost([30_000] * 5) == 30_000
    assert launch_cost([30_000] * 4) == 20_000
    assert launch_cost([]) == 6_000


@pytest.mark.parametrize(("scatter", "shift"), [(22, 1), (17, 0)])
def test_a_shift_is_taken_where_its_ends_agree_twice_as_well(scatter: int, shift: int) -> None:
    """Calls of one kind, whose distances scatter, so that the ends of the plain shift do; those of the next by 5."""
    random = np.random.default_rng(7)
    plain = np.cumsum(1000 + np.rint(scatter * random.standard_normal(40))).astype(np.int64)
    ours = TokenSequence(np.zeros(40, np.int64), plain)
    theirs = TokenSequence(np.zeros(39, np.int64), plain[1:] + 5 * random.permutation([-1, 0, 1] * 13))
    reference, _ = align_sequences(ours, theirs)
    assert int(reference[0]) == shift


@pytest.mark.parametrize(("shift", "found"), [(10, True), (11, False)])
def test_a_shift_covers_half_of_the_shorter_sequence(shift: int, found: bool) -> None:
    """Twenty calls of one kind, of which the other rank has the last ten, or nine, and goes on."""
    ends = np.cumsum(1000 + np.random.default_rng(7).integers(0, 500, 40)).astype(np.int64)
    kinds = np.zeros(20, np.int64)
    reference, _ = align_sequences(TokenSequence(kinds, ends[:20]), TokenSequence(kinds, ends[shift : shift + 20]))
    assert (int(reference[0]) == shift) is found


def test_a_step_stands_out_by_a_fifth_among_four() -> None:
    def out(*periods: int) -> list[int]:
        return spikes._standing_out(np.array(periods, np.int64)).tolist()

    assert out(1000, 1000, 1000, 1210) == [3]
    assert out(1000, 1000, 1000, 1190) == []
    assert out(1000, 1000, 1210) == []


@pytest.mark.parametrize(("times", "stands_out"), [(6.3, True), (5.7, False)])
def test_a_step_stands_out_by_six_deviations(times: float, stands_out: bool) -> None:
    usual = [10_000 - 1000, 10_000 + 1000] * 20
    slow = 10_000 + times * 1.4826 * 1000
    found = spikes._standing_out(np.array([*usual, 10_000, 10_000, round(slow)], np.int64))
    assert bool(found.size) is stands_out


def test_a_count_of_rounds_is_a_multiple_within_a_tenth() -> None:
    assert loops._paces(np.array([10, 10, 10, 41], np.int64)).tolist()[-1] == 10


def test_rounds_are_regular_where_three_in_four_are_within_a_quarter_of_the_usual_distance() -> None:
    def regular(*distances: int) -> bool:
        return loops._is_regular(np.cumsum([0, *distances]).astype(np.int64))

    assert regular(100, 100, 100, 124, 76, 100, 100, 100)
    assert regular(100, 100, 100, 100, 100, 100, 130, 130)
    assert not regular(100, 100, 100, 100, 100, 130, 130, 130)


def test_a_collective_follows_the_one_that_ended_twenty_microseconds_before() -> None:
    def holder(after_ns: int) -> int:
        arrival, end = np.array([0, 100 + after_ns], np.int64), np.array([100, 90_000], np.int64)
        return int(lateness._held_by(arrival, end, np.zeros(2, np.int64), np.array([5, 6], np.int64))[1])

    assert (holder(20_000), holder(20_001)) == (5, -1)


@pytest.mark.parametrize(("held", "found"), [(11, [3]), (9, [])])
def test_a_collective_held_up_half_of_its_ranks(held: int, found: list[int]) -> None:
    calls = pl.DataFrame(
        {"instance": [3] * 20, "holds": [True] * held + [False] * (20 - held), "complete": [True] * 20}
    )
    assert lateness._anchors(calls).tolist() == found


@pytest.mark.parametrize(("alike", "found"), [(4, True), (3, False)])
def test_four_blocks_of_one_size_are_a_cache(alike: int, found: bool) -> None:
    yes, no = np.ones(alike, bool), np.zeros(alike, bool)
    lives = SimpleNamespace(persists=yes, size=np.full(alike, 4096), shown={"known": yes, "module": no, "data": no})
    assert bool(classes._alike(lives, yes).any()) is found
