"""Clocks placed together, worked by hand: from calls to offsets, and whether ranks that share a clock agree."""

from statistics import median

import numpy as np
import polars as pl
import pytest

from timesink.measures.communication import clocks
from timesink.measures.communication.clocks import align_clocks

CALL = {"instance": pl.Int64, "rank": pl.Int32, "kind": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def frame(*rows: tuple[int, int, str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=CALL, orient="row").with_columns(device=pl.col("rank"), rigorous=True)


def job(*hosts: str | None, visible: int | None = None) -> pl.DataFrame:
    ranks = list(range(len(hosts)))
    columns = {"rank": ranks, "clock": hosts, "host": hosts, "device": ranks, "visible_devices": [visible] * len(hosts)}
    types = {"rank": pl.Int32, "clock": pl.String, "host": pl.String, "device": pl.Int32, "visible_devices": pl.Int64}
    return pl.DataFrame(columns, schema_overrides=types)


@pytest.fixture
def collective() -> pl.DataFrame:
    return frame((0, 0, "allreduce", 0, 100), (0, 1, "allreduce", 1_090, 1_110))


@pytest.fixture
def pair() -> pl.DataFrame:
    return frame((1, 0, "send", 200, 210), (1, 1, "recv", 1_200, 1_300))


def test_collectives_place_a_clock_and_pairs_bound_it(collective: pl.DataFrame, pair: pl.DataFrame) -> None:
    """Neither began after the other ended: at least 1090 - 100, at most 1110 - 0; received no earlier than sent: at
    most 1300 - 200. Common ends say 1110 - 100, wherever the pair ended."""
    aligned = align_clocks(collective, job("a", "b"), pair)
    assert [(one.ranks, one.offset_ns, one.error_ns, one.calls) for one in aligned.clocks] == [
        ((0,), 0, 0, 2), ((1,), 1_010, 90, 2),
    ]  # fmt: skip
    assert aligned.calls.select("instance", "rank", "offset_ns").rows() == [(0, 0, 0), (0, 1, 1_010)]
    assert aligned.pairs.select("instance", "rank", "offset_ns", "error_ns").rows() == [(1, 0, 0, 0), (1, 1, 1_010, 90)]
    assert aligned.calls.columns == [*collective.columns, "offset_ns", "error_ns"]
    assert (aligned.shared_clock_ok, aligned.assumed_shared) == (None, False)
    assert align_clocks(collective, job("a", "b")).clocks[1].error_ns == 100


def test_pairs_place_a_clock_that_collectives_do_not_reach(collective: pl.DataFrame, pair: pl.DataFrame) -> None:
    aligned = align_clocks(collective.filter(rank=0), job("a", "b"), pair)
    assert [one.offset_ns for one in aligned.clocks] == [0, 1_090]
    assert aligned.clocks[1].error_ns is None  # nothing says how late it may be
    assert [one.ranks for one in align_clocks(pair.clear(), job("b", "a", "b")).clocks] == [(0, 2), (1,)]


def test_ranks_that_seem_to_share_a_host_share_its_clock() -> None:
    together = frame((0, 0, "allreduce", 0, 100), (0, 1, "allreduce", 5, 101))
    aligned = align_clocks(together, job(None, None, visible=2))
    assert (len(aligned.clocks), aligned.assumed_shared, aligned.shared_clock_ok) == (1, True, True)
    assert not align_clocks(together, job(None, None, visible=1)).assumed_shared


@pytest.mark.parametrize(
    ("shift", "agree"), [(0, True), (100, True), (101, False), (-100, True), (-101, False)]
)  # fmt: skip
def test_ranks_of_one_clock_agree_where_neither_began_after_the_other_ended(shift: int, agree: bool) -> None:
    calls = frame(
        (0, 0, "allreduce", 1_100, 1_200), (0, 1, "allreduce", 1_100 + shift, 1_200 + shift),
        (1, 0, "allreduce", 9_100, 9_200), (1, 1, "allreduce", 9_100, 9_200),  # what one clock shows does not drift
    )  # fmt: skip
    shared = pl.DataFrame({"rank": [0, 1], "clock": ["a", "a"]}, schema_overrides={"rank": pl.Int32})
    assert clocks._shared_clock_ok(calls, shared) is agree
    assert clocks._shared_clock_ok(calls, shared.with_columns(clock=pl.Series(["a", "b"]))) is None
    assert clocks._shared_clock_ok(calls.clear(), shared) is None
    assert clocks._shared_clock_ok(calls.clear(), shared.clear()) is None


def test_ranks_of_one_clock_agree_over_others_too() -> None:
    """Rank 1 is at least -40 ahead of rank 0, and rank 2 at least 50 ahead of rank 1 a moment later: 10 of rank 0."""
    calls = frame(
        (0, 0, "allreduce", 100, 200), (0, 1, "allreduce", 160, 260), (1, 1, "allreduce", 1_000, 1_100),
        (1, 2, "allreduce", 1_150, 1_250),
    )  # fmt: skip
    shared = pl.DataFrame({"rank": [0, 1, 2], "clock": ["a"] * 3}, schema_overrides={"rank": pl.Int32})
    assert clocks._shared_clock_ok(calls.filter(instance=0), shared) is True
    assert clocks._shared_clock_ok(calls, shared) is False


ENDS = [(1, 0, 48_128), (2, 0, 4_096), (0, 1, 159_744), (1, 1, 142_336), (2, 1, 110_592), (0, 2, 225_280),
        (1, 2, 248_832)]  # fmt: skip


def test_offsets_and_common_ends_follow_from_each_other_in_turn() -> None:
    """Clock, collective, end: each round takes common ends by the offsets so far, and the median difference from them.
    The level of the fit is the fifth of such medians."""
    first = {clock: min(end for other, _, end in ENDS if other == clock) for clock in range(3)}
    offset = {0: 0, 1: 114_688, 2: 106_496}  # the first guess, one clock after another
    own = np.array([end - first[clock] for clock, _, end in ENDS])
    guess = clocks._guess_offsets(np.array([row[0] for row in ENDS]), np.array([row[1] for row in ENDS]), own)
    assert dict(enumerate(guess.tolist())) == offset
    for _ in range(5):
        common = {}
        for instance in range(3):
            at = {clock: end - first[clock] - offset[clock] for clock, other, end in ENDS if other == instance}
            common[instance] = at.get(0, median(at.values()))
        offset = {
            number: int(median(end - first[clock] - common[at] for clock, at, end in ENDS if clock == number))
            for number in offset
        }
    rows = [(clock, instance, end - 10, end) for clock, instance, end in ENDS]
    fits = clocks._fit_clocks(
        pl.DataFrame(rows, schema=["clock_number", "instance", "start_ns", "end_ns"], orient="row")
    )
    assert offset == {0: 0, 1: 107_792, 2: 107_144}
    assert {number: fit.offset_ns for number, fit in fits.items()} == {
        number: level + first[number] - first[0] for number, level in offset.items()
    }


def line(*parts: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Calls of one clock: so many, every so many ns, with differences that rise by so much from one to the next."""
    start, difference = [0], [0]
    for count, every, rise in parts:
        for _ in range(count):
            start.append(start[-1] + every)
            difference.append(difference[-1] + rise)
    return np.array(start[1:]), np.array(difference[1:])


EVERY = 1 << 27  # twelve calls last over a second


def test_a_slope_runs_between_the_outer_thirds() -> None:
    """Fifteen calls with 8 ns each; the middle third says nothing, however far it is off."""
    start, difference = line((15, EVERY, 8))
    difference[5:10] += 90_000 * np.arange(5)
    fit = clocks._fit_line(start, difference, 0, is_reference=False)
    assert fit.drift_ratio == pytest.approx(8 / EVERY)


@pytest.mark.parametrize(("rise", "is_drift"), [(3, False), (4, True), (6, True)])
def test_a_drift_is_four_times_the_scatter_and_of_a_nanosecond_at_least(rise: int, is_drift: bool) -> None:
    """Four calls, four between and four that are `rise` ns later: less than 4 ns are noise where nothing scatters."""
    start, _ = line((12, EVERY, 0))
    difference = np.array([0] * 4 + [rise // 2] * 4 + [rise] * 4)
    fit = clocks._fit_line(start, difference, 0, is_reference=False)
    assert bool(fit.drift_ratio) is is_drift


def test_a_drift_needs_twelve_calls_over_a_second() -> None:
    start, difference = line((12, 1_000_000, 50))
    start = start - start[0]
    start[-1] = 1_000_000_000  # a whole second from the first
    assert clocks._fit_line(start, difference, 0, is_reference=False).drift_ratio > 0
    start[1:] = 1_000_000_000  # a second in which nothing is known
    assert clocks._fit_line(start, difference, 0, is_reference=False).drift_ratio == 0
    start[1:-1], start[-1] = np.arange(1, 11) * 1_000_000, 2_000_000_000
    assert clocks._fit_line(start[1:], difference[1:], 0, is_reference=False).drift_ratio == 0
