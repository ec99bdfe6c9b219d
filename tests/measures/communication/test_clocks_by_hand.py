"""The parts of the alignment of clocks, worked by hand with every coefficient other than zero."""

import numpy as np
import polars as pl
import pytest

from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication import clocks
from timesink.measures.communication.clock_bounds import UNKNOWN, Visits
from timesink.measures.communication.clocks import Clock, Clocks


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


BOUNDS = clocks._Bounds(array(0, 1_000_000), array(-50, 0), array(50, 20))


def test_bounds_between_two_calls_by_hand() -> None:
    """Drift may add 500 ns in 1,000,000: of each call's bounds, widened so, what both allow."""
    assert assumed.DRIFT_MOST.value == pytest.approx(500e-6)
    low, high = BOUNDS.at(array(0, 100_000, 900_000, 1_000_000, 1_100_000, -100_000, 900_001))
    assert low.tolist() == [-50, -100, -50, 0, -50, -100, -50]
    assert high.tolist() == [50, 100, 70, 20, 70, 100, 70]
    tight = clocks._Bounds(array(0, 1_000_000, 2_000_000), array(-50, 0, 1_300), array(50, 20, 1_400))
    low, high = tight.at(array(-100_000, 1_500_000))  # only the nearest calls say what the bounds are
    assert (low.tolist(), high.tolist()) == ([-100, 1_050], [100, 270])
    low, high = clocks._Bounds(array(), array(), array()).at(array(5))
    assert (low.tolist(), high.tolist()) == ([-UNKNOWN], [UNKNOWN])


def test_bounds_of_a_clock_are_those_of_its_bounded_calls_in_order() -> None:
    many = np.ones(5, np.bool_)
    visits = Visits(array(1, 1, 0, 1, 1), array(0, 1, 0, 2, 3), array(9, 3, 1, 5, 7), array(9, 9, 9, 9, 9), many, many)
    bounds = clocks._Bounds.of(visits, array(-1, -2, -3, -UNKNOWN, -5), array(1, 2, 3, 4, UNKNOWN), 1)
    assert (bounds.time_ns.tolist(), bounds.low_ns.tolist(), bounds.high_ns.tolist()) == ([3, 9], [-2, -1], [2, 1])


def test_a_fit_at_other_times() -> None:
    assert clocks._Fit(100, 0.01, 1_000, 3).at(array(1_000, 2_000, 0, 1_060)).tolist() == [100, 110, 90, 101]


def test_common_ends_and_medians_by_hand() -> None:
    clock, instance = array(0, 1, 1, 2), array(0, 0, 1, 1)
    assert clocks._common_end(clock, instance, array(5, 9, 4, 8)).tolist() == [5, 5, 6, 6]
    assert clocks._group_medians(array(0, 2, 2, 2), array(7, 1, 9, 3), array(5, 6, 7)).tolist() == [7, 6, 3]


def test_how_far_back_a_call_proves_that_others_had_come() -> None:
    """Two calls of an all-reduce, of 900 and of 500 us: each begins at most 500 us and the error of clocks before it
    ends; other kinds begin where they begin, the ends of a broadcast are not alike, and of a message one side holds."""
    rows = [("allreduce", 0, 0, 900), ("allreduce", 0, 450, 950), ("allreduce", 1, 10, 90), ("broadcast", 2, 0, 900),
            ("broadcast", 2, 800, 900), ("send", 3, 5, 70), ("recv", 3, 20, 80)]  # fmt: skip
    times = [(start * 1_000, end * 1_000) for _, _, start, end in rows]
    calls = pl.DataFrame(
        {"kind": [row[0] for row in rows], "instance": [row[1] for row in rows],
         "start_ns": [start for start, _ in times], "end_ns": [end for _, end in times]}
    )  # fmt: skip
    visits = clocks._read_visits(calls, array(*range(7)))
    slack = assumed.CLOCK_ERROR_US.ns
    assert visits.start_ns.tolist() == [400_000 - slack, *(start for start, _ in times[1:])]
    assert visits.end_ns.tolist() == [end for _, end in times]
    assert visits.holds.tolist() == [True] * 6 + [False]
    assert visits.held.tolist() == [True] * 5 + [False, True]


def test_first_offsets_reach_one_clock_after_another() -> None:
    clock, instance, end = array(0, 1, 1, 2, 3), array(0, 0, 1, 1, 9), array(0, 7, 30, 33, 50)
    assert clocks._guess_offsets(clock, instance, end).tolist() == [0, 7, 10, 0]
    # of three collectives the median difference; of those reached the latest end
    clock, instance = array(0, 1, 0, 1, 0, 1, 2, 2), array(0, 0, 1, 1, 2, 2, 0, 2)
    assert clocks._guess_offsets(clock, instance, array(10, 14, 20, 25, 30, 99, 18, 40)).tolist() == [0, 5, 9]


def calls_of(rows: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["clock_number", "instance", "start_ns", "end_ns"], orient="row")


def test_the_point_estimate_by_hand() -> None:
    """Ends by each clock's first: 0 and 200 against 0 and 204: median difference 2, and 1140 - 100 between firsts."""
    fits = clocks._fit_clocks(calls_of([(0, 0, 60, 100), (0, 1, 160, 300), (1, 0, 1050, 1140), (1, 1, 1240, 1344)]))
    assert (fits[0].offset_ns, fits[0].drift_ratio, fits[0].middle_ns) == (0, 0.0, 110)
    assert (fits[1].offset_ns, fits[1].drift_ratio, fits[1].middle_ns, fits[1].residual_ns) == (1042, 0.0, 1145, 2)
    assert clocks._fit_clocks(calls_of([]).cast(pl.Int64)) == {}


def line(count: int, slope: float, every_ns: int, wobble: int = 0) -> tuple[np.ndarray, np.ndarray]:
    start = np.arange(count, dtype=np.int64) * every_ns + 5_000
    difference = np.rint(slope * (start - 5_000)).astype(np.int64) + 700 + wobble * array(*range(count)) % 3
    return start, difference


def test_a_line_of_one_clock_by_hand() -> None:
    window, least = assumed.DRIFT_WINDOW_US.ns, assumed.DRIFT_CALLS.whole
    every = -(-window // (least - 1))
    start, difference = line(least, 40e-6, every)
    fit = clocks._fit_line(start, difference, 1_000, is_reference=False)
    middle = 5_000 + every * (least - 1) // 2
    assert (fit.drift_ratio, fit.middle_ns) == (pytest.approx(40e-6, rel=1e-3), middle)
    assert fit.offset_ns == pytest.approx(1_700 + 40e-6 * (middle - 5_000), abs=2)
    assert fit.residual_ns <= 1
    fast = clocks._fit_line(*line(least, -520e-6, every), 0, is_reference=False)
    assert fast.drift_ratio == pytest.approx(-assumed.DRIFT_MOST.value)  # faster than any clock drifts
    level = int(np.median(difference))
    noise = round(float(np.median(np.abs(difference - level))))
    for flat in (
        clocks._fit_line(start[:-1], difference[:-1], 1_000, is_reference=False),  # too few
        clocks._fit_line(*line(least, 40e-6, every - 1_000), 1_000, is_reference=False),  # too short
    ):
        assert (flat.drift_ratio, flat.offset_ns > 1_700) == (0.0, True)
    reference = clocks._fit_line(start, difference, 1_000, is_reference=True)
    assert (reference.offset_ns, reference.drift_ratio, reference.residual_ns) == (0, 0.0, noise)
    far = array(*(700 + 90_000 * (number % 3) for number in range(least)))
    assert clocks._fit_line(start, far, 0, is_reference=False).drift_ratio == 0.0  # scatter, no drift


def test_the_slope_runs_from_third_to_third() -> None:
    """Twelve calls 0.1 s apart, k-th difference 10,000 k + 10 k^3: medians 15,045 and 103,645 of thirds 0.8 s apart."""
    assert assumed.DRIFT_CALLS.whole <= 12
    k = np.arange(12, dtype=np.int64)
    fit = clocks._fit_line(100_000_000 * k, 10_000 * k + 10 * k**3, 0, is_reference=False)
    assert fit.drift_ratio == pytest.approx((103_645 - 15_045) / 800_000_000)


@pytest.mark.parametrize(
    ("fit", "low", "high", "offset", "error", "consistent"),
    [(10, -5, 15, 10, 15, True), (30, -5, 15, 15, 20, True), (-9, -5, 15, -5, 20, True), (10, 20, 5, 10, None, False),
     (10, None, None, 10, None, True), (10, 7, 7, 7, 0, True), (10, -UNKNOWN, 15, 10, None, True),
     (10, -5, UNKNOWN, 10, None, True)],
)  # fmt: skip
def test_an_offset_is_moved_into_its_bounds(
    fit: int, low: int | None, high: int | None, offset: int, error: int | None, consistent: bool
) -> None:
    bounds = clocks._Bounds(array(), array(), array())
    if low is not None and high is not None:
        bounds = clocks._Bounds(array(100), array(low), array(high))
    frame = pl.DataFrame({"start_ns": [100]})
    clock, placed = clocks._place_calls(frame, clocks._Fit(fit, 0.0, 100, 3), bounds, 1)
    assert (clock.offset_ns, clock.error_ns, clock.consistent, clock.residual_ns) == (offset, error, consistent, 3)
    assert placed.select("offset_ns", "error_ns").row(0) == (offset, error)
    first, placed = clocks._place_calls(frame, clocks._Fit(fit, 0.0, 100, 3), bounds, 0)
    assert (first.offset_ns, first.error_ns, placed.select("offset_ns", "error_ns").row(0)) == (0, 0, (0, 0))
    assert (first.residual_ns, first.drift_ratio, first.consistent) == (3, 0.0, True)
    silent, placed = clocks._place_calls(frame, None, bounds, 2)
    assert (silent.offset_ns, silent.error_ns, silent.residual_ns) == (0, None, 0)
    assert placed.select("offset_ns", "error_ns").row(0) == (0, None)


def test_the_worst_error_is_that_of_the_farther_bound_at_any_call() -> None:
    clock, placed = clocks._place_calls(
        pl.DataFrame({"start_ns": [0, 500_000, 1_000_000]}), clocks._Fit(10, 0.0, 0, 3), BOUNDS, 1
    )
    assert placed["error_ns"].to_list() == [60, 260, 10]
    assert (clock.offset_ns, clock.error_ns, clock.calls) == (10, 260, 3)


def test_one_contradiction_leaves_no_error_known() -> None:
    bounds = clocks._Bounds(array(0, 10**9), array(-5, 20), array(15, 5))
    clock, placed = clocks._place_calls(pl.DataFrame({"start_ns": [0, 10**9]}), clocks._Fit(10, 0.0, 0, 3), bounds, 1)
    assert (clock.consistent, clock.error_ns, placed["error_ns"].to_list()) == (False, None, [None, None])


def shown(*clock: tuple[int, int | None, bool]) -> Clocks:
    every = tuple(Clock((n,), offset, error, 0.0, 0, 1, good) for n, (offset, error, good) in enumerate(clock))
    return Clocks(every, pl.DataFrame(), pl.DataFrame(), None)


HOME = {"rank": [0, 1], "host": [None, None], "device": [0, 1], "visible_devices": [2, 2]}


@pytest.mark.parametrize(
    ("members", "offset", "error", "same"),
    [
        ({}, 5, 5, True), ({}, -5, 5, True), ({}, 6, 5, False), ({}, 0, None, False),
        ({}, assumed.SAME_CLOCK_US.ns + 1, 10**12, False), ({}, assumed.SAME_CLOCK_US.ns, 10**12, True),
        ({"host": ["a", None]}, 5, 5, False), ({"device": [0, 0]}, 5, 5, False),
        ({"visible_devices": [2, 3]}, 5, 5, False),
        ({"visible_devices": [1, 1]}, 5, 5, False), ({"visible_devices": [None, None]}, 5, 5, False),
        ({"rank": [0, 0]}, 5, 5, False), ({"rank": [0, 0], "device": [0, 0]}, 5, 5, False),
        ({"visible_devices": [8, 8]}, 5, 5, True),
    ],
)  # fmt: skip
def test_ranks_seem_to_share_a_host(members: dict[str, list], offset: int, error: int | None, same: bool) -> None:
    frame = pl.DataFrame(HOME | members, schema_overrides={"host": pl.String, "visible_devices": pl.Int64})
    assert clocks._on_one_host(frame, shown((0, 0, True), (offset, error, True))) is same
    assert not clocks._on_one_host(frame, shown((0, 0, True), (offset, error, False)))
    assert not clocks._on_one_host(frame, shown((0, 0, True)))
    assert not clocks._on_one_host(frame, shown((0, 0, True), (offset, error, True), (99, 5, True)))


def test_the_worst_error_of_all_clocks() -> None:
    assert shown((0, 0, True), (5, 9, True), (5, 3, True)).worst_error_ns == 9
    assert shown((0, 0, True), (5, None, True)).worst_error_ns is None
    assert shown().worst_error_ns == 0


def test_clocks_are_numbered_by_the_lowest_rank_with_calls() -> None:
    members = pl.DataFrame({"rank": [0, 1, 2, 3], "clock": ["x", "y", "y", None]})
    numbered = clocks._number_clocks(members, pl.DataFrame({"rank": [2, 3]}))
    assert numbered.rows() == [(0, "x", 2), (1, "y", 0), (2, "y", 0), (3, "rank 3", 1)]


@pytest.mark.parametrize(
    ("rows", "connected"),
    [([(0, 0), (1, 0)], True), ([(0, 0), (1, 1)], False), ([(0, 0), (1, 0), (1, 1), (2, 1)], True),
     ([(0, 0), (1, 0), (2, 1), (3, 1)], False), ([(0, 5)], True)],
)  # fmt: skip
def test_calls_connect_clocks_that_meet(rows: list[tuple[int, int]], connected: bool) -> None:
    calls = pl.DataFrame(rows, schema=["clock_number", "instance"], orient="row")
    assert clocks._connects_all(calls, calls) is connected
    more = pl.concat([calls, pl.DataFrame({"clock_number": [9], "instance": [9]})])
    assert not clocks._connects_all(calls, more)
