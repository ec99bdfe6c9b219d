"""Lateness of ranks, worked by hand with every coefficient other than zero."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.assumptions import replay
from timesink.measures.ranks import lateness as of
from timesink.measures.ranks import paces as paces_of
from timesink.measures.ranks import why_late as why_of
from timesink.measures.ranks import worth as worth_of
from timesink.measures.ranks.lateness import Lateness, evened_out, lateness_of, latest_rank, rebalanced
from timesink.model.intervals import Intervals

COLUMNS = {
    "instance": pl.Int64, "rank": pl.Int32, "device": pl.Int32, "stream": pl.Int64, "start_ns": pl.Int64,
    "arrival_ns": pl.Int64, "end_ns": pl.Int64, "offset_ns": pl.Int64, "error_ns": pl.Int64, "work_before_ns": pl.Int64,
    "wait_ns": pl.Int64, "exposed_wait_ns": pl.Int64, "exposed_transfer_ns": pl.Int64, "holds": pl.Boolean,
    "complete": pl.Boolean, "rigorous": pl.Boolean,
}  # fmt: skip
KEYS = (
    "instance",
    "rank",
    "arrival_ns",
    "end_ns",
    "work_before_ns",
    "wait_ns",
    "exposed_wait_ns",
    "exposed_transfer_ns",
)
OFFSET = {0: 0, 1: 1_000_000, 2: 0}
# Collectives 3, 5 and 8 hold everybody; 4, of ranks 1 and 2 only, and 9 hold nobody. Rank 0 computes 900 us from 3 to
# 5, of which its peers do 500; rank 1 has a network of its own between 5 and 8, where rank 2's host is late.
US = 1_000
CALLS = [
    (3, 0, 100, 200, 40, 0, 0, 50), (3, 1, 90, 200, 30, 10, 10, 60), (3, 2, 80, 200, 20, 20, 20, 70),
    (4, 1, 400, 450, 150, 5, 5, 30), (4, 2, 420, 450, 155, 3, 3, 27),
    (5, 0, 1100, 1200, 900, 0, 0, 60), (5, 1, 700, 1200, 500, 400, 400, 70), (5, 2, 710, 1200, 510, 390, 390, 80),
    (8, 0, 1600, 2005, 400, 300, 300, 90), (8, 1, 1650, 2000, 400, 250, 250, 90), (8, 2, 1900, 2000, 410, 0, 0, 90),
    (9, 0, 2105, 2200, 100, 0, 0, 0), (9, 1, 2100, 2200, 100, 0, 0, 0), (9, 2, 2100, 2200, 100, 0, 0, 0),
]  # fmt: skip


def waits_of(rows: list[tuple[int, ...]] = CALLS, **changed: Any) -> Any:
    def one(row: tuple[int, ...]) -> dict[str, object]:
        found: dict[str, Any] = {
            key: value if key in ("instance", "rank") else value * US for key, value in zip(KEYS, row, strict=True)
        }
        offset = OFFSET[found["rank"]]
        return found | {
            "device": 0, "stream": 7, "start_ns": found["arrival_ns"] + offset, "end_ns": found["end_ns"] + offset,
            "offset_ns": offset, "error_ns": 10 * US, "holds": found["instance"] not in (0, 4, 9), "complete": True,
            "rigorous": True,
        } | {key: value for key, value in changed.items() if key in COLUMNS}  # fmt: skip

    calls = pl.DataFrame([one(row) for row in rows], schema=COLUMNS)
    steps = pl.DataFrame(
        {"rank": [0, 1, 1, 2], "device": [0] * 4, "step": [0, 0, 1, 0], "start_ns": [5_000, 0, 1_000, 0],
         "end_ns": [6_000, 1_000, 2_000, 1_000], "compute_ns": [600, 100, 300, 400],
         "host_busy_ns": [750, 100, 650, None], "recorded_ns": [50, 200, 50, None]},
        schema_overrides={"rank": pl.Int32, "device": pl.Int32},
    )  # fmt: skip
    everything = {(rank, 0): Intervals.one(-(10**9), 10**9) for rank in range(3)}
    return SimpleNamespace(
        calls=calls,
        pairs=calls.clear(),
        instances=pl.DataFrame(
            {"instance": [3, 4, 5, 8], "last_rank": [0, 2, 0, 2]}, schema_overrides={"last_rank": pl.Int32}
        ),
        job=SimpleNamespace(exposed=changed.get("exposed", everything), steps=steps),
    )


@pytest.fixture(autouse=True)
def exposed_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "exposed_by_device", lambda exposed: exposed)


def test_own_lateness_and_its_causes_by_hand() -> None:
    """From 3's end at 200: rank 0 comes to 5 after 900, its peers after 500 and 510, so that it is 390 late.

    It computed 900, the others, with what 4 had before it, 650 and 665: 235 of the 390 are its GPU's. To 4 rank 2 came
    20 late, of which it computed 5. From 5's end at 1200 the ranks need 400, 450 and 700: rank 2 is 250 late, of which
    it computes 10 more than the median of 400.
    """
    late = lateness_of(waits_of())
    assert late.anchors.tolist() == [3, 5, 8]
    calls = {(row["instance"], row["rank"]): row for row in late.calls.to_dicts()}
    assert [calls[5, rank]["own_ns"] for rank in range(3)] == [390 * US, 0, 0]
    assert (calls[5, 0]["device_ns"], calls[5, 0]["network_ns"], calls[5, 0]["host_ns"]) == (235 * US, 0, 155 * US)
    assert [calls[8, rank]["own_ns"] for rank in range(3)] == [0, 0, 250 * US]
    assert (calls[8, 2]["device_ns"], calls[8, 2]["network_ns"], calls[8, 2]["host_ns"]) == (10 * US, 0, 240 * US)
    assert [calls[5, rank]["behind_ns"] for rank in range(3)] == [390 * US, 0, 0]
    assert [
        (calls[3, r]["anchor"], calls[3, r]["since_anchor_ns"], calls[3, r]["work_since_ns"]) for r in range(3)
    ] == [(-1, 0, 0)] * 3
    assert (calls[4, 2]["own_ns"], calls[4, 2]["device_ns"], calls[4, 2]["host_ns"]) == (20 * US, 5 * US, 15 * US)
    assert [calls[5, rank]["since_anchor_ns"] for rank in range(3)] == [900 * US, 500 * US, 510 * US]
    assert [calls[5, rank]["work_since_ns"] for rank in range(3)] == [900 * US, 650 * US, 665 * US]
    assert calls[5, 1]["waited_since_ns"] == 5 * US
    assert calls[5, 1]["moved_since_ns"] == 45 * US
    assert late.span_ns == 1_805 * US
    assert late.epochs.rows() == [
        (0, 3, 390 * US, 0), (1, 3, 0, (5 + 30 + 400) * US), (2, 3, 20 * US, (3 + 27 + 390) * US),
        (0, 5, 0, 300 * US), (1, 5, 0, 250 * US), (2, 5, 250 * US, 0),
    ]  # fmt: skip
    assert late.host_busy.rows() == [(0, 0.7), (1, 0.3)]
    ranks = late.ranks.to_dicts()
    assert [row["own_ns"] for row in ranks] == [390 * US, 0, 270 * US]
    assert [row["late_count"] for row in ranks] == [1, 0, 2]
    assert [row["last_count"] for row in ranks] == [2, 0, 2]
    assert [row["since_ns"] for row in ranks] == [200 * US, None, 200 * US]
    assert {row["anchors"] for row in ranks} == {3}


def test_what_a_rank_is_late_by_of_each_anchor_adds_up_by_hand() -> None:
    """Of two calls after one anchor that are equally late the first one's causes count; a nanosecond is late."""
    calls = pl.DataFrame(
        [(0, 6, 3, 30, 10, 20, 0, 900, 100), (0, 5, 3, 30, 5, 5, 20, 870, 70), (0, 7, 4, 1, 0, 1, 0, 1_500, 90),
         (0, 2, -1, 99, 99, 0, 0, 9, 9), (1, 6, 3, 0, 0, 0, 0, 800, 0)],
        schema=["rank", "instance", "anchor", "own_ns", "device_ns", "network_ns", "host_ns", "arrival_ns",
                "since_anchor_ns"], orient="row",
    )  # fmt: skip
    steps = pl.DataFrame(schema=dict.fromkeys(("rank", "compute_ns", "start_ns", "end_ns"), pl.Int64))
    given = SimpleNamespace(instances=pl.DataFrame({"last_rank": [0, 0]}), job=SimpleNamespace(steps=steps))
    found = of._sum_by_rank(calls, given, 900)
    assert found.select(
        "rank", "own_ns", "device_ns", "network_ns", "host_ns", "late_count", "since_ns", "last_count", "anchors"
    ).rows() == [(0, 31, 5, 6, 20, 2, 800, 2, 2), (1, 0, 0, 0, 0, 0, None, 0, 2)]


@pytest.mark.parametrize(
    ("steps", "device"),
    [
        ([], 200),  # not known
        ([(0, 300, 900), (1, 300, 900)], 0),  # it computes as much a step, but not while the others wait
        ([(0, 290, 900), (1, 300, 900)], 0),
        ([(0, 390, 900), (1, 300, 900)], 90),
        (
            [(0, 390, 900), (0, 190, 900), (1, 200, 900), (2, 400, 900)],
            90,
        ),  # of its steps, and the least of the others'
        ([(0, 250, 450), (1, 400, 900)], 100),  # shares of steps
        ([(0, 900, 900), (1, 300, 900)], 200),  # it computes more, but is not as late
        ([(1, 300, 900)], 200),
    ],
)
def test_a_rank_is_late_by_its_gpu_for_no_more_than_it_computes_more(
    steps: list[tuple[int, int, int]], device: int
) -> None:
    """Between two collectives that the others wait in, and compute beside, it computes 200 more than they do."""
    calls = pl.DataFrame(
        [(0, 5, 3, 300, 200, 40, 60, 800, 70), (1, 5, 3, 0, 0, 0, 0, 500, 0)],
        schema=["rank", "instance", "anchor", "own_ns", "device_ns", "network_ns", "host_ns", "arrival_ns",
                "since_anchor_ns"], orient="row",
    )  # fmt: skip
    schema = dict.fromkeys(("rank", "compute_ns", "end_ns"), pl.Int64)
    frame = pl.DataFrame(steps, schema=schema, orient="row").with_columns(pl.col("end_ns") + 70, start_ns=70)
    given = SimpleNamespace(instances=pl.DataFrame({"last_rank": [0]}), job=SimpleNamespace(steps=frame))
    found = of._sum_by_rank(calls, given, 900).select("own_ns", "device_ns", "network_ns", "host_ns").row(0)
    assert found == (300, device, 40, 260 - device)


def test_the_network_takes_no_more_than_the_gpu_leaves() -> None:
    """Rank 0 needs 400 more than its peers from 3 to 5, of which it computes 200; a message alone moved for 300."""
    rows = [row for row in CALLS if row[0] == 3] + [
        (4, 0, 500, 800, 300, 0, 0, 300), (5, 0, 1100, 1200, 400, 0, 0, 60),
        (5, 1, 700, 1200, 500, 400, 400, 70), (5, 2, 700, 1200, 500, 400, 400, 80),
    ]  # fmt: skip
    call = lateness_of(waits_of(rows)).calls.filter((pl.col("instance") == 5) & (pl.col("rank") == 0))
    assert call.select("own_ns", "device_ns", "network_ns", "host_ns").row(0) == (400 * US, 200 * US, 200 * US, 0)


def test_a_late_rank_that_computes_less_than_its_peers_is_late_by_its_host() -> None:
    rows = [(5, 0, 1100, 1200, 100, 0, 0, 60) if row[:2] == (5, 0) else row for row in CALLS]
    call = lateness_of(waits_of(rows)).calls.filter((pl.col("instance") == 5) & (pl.col("rank") == 0))
    assert call.select("own_ns", "device_ns", "network_ns", "host_ns").row(0) == (390 * US, 0, 0, 390 * US)


@pytest.mark.parametrize(("stream", "others", "own"), [(1, 1, 0), (None, 1, 390), (None, 0, 390), (None, 2, 390)])
def test_a_call_that_another_held_on_its_stream_is_not_late_of_itself(
    stream: int | None, others: int, own: int
) -> None:
    """Call 0 of rank 0 ends 5 us before its call 5 begins: on the same stream it is what was waited for."""
    waits = waits_of([*CALLS, (0, 0, 1090, 1095, 0, 0, 0, 0)])
    of_stream = pl.when(pl.col("instance") == 0).then(pl.lit(stream, pl.Int64)).otherwise(others)
    waits.calls = waits.calls.with_columns(stream=of_stream)
    calls = lateness_of(waits).calls
    assert calls.filter((pl.col("instance") == 5) & (pl.col("rank") == 0))["own_ns"].item() == own * US


def test_a_call_alone_makes_nobody_late() -> None:
    late = lateness_of(waits_of([CALLS[0]], holds=False))
    assert (late.calls["own_ns"].to_list(), late.span_ns, late.epochs.height) == ([0], 0, 0)


@pytest.mark.parametrize(
    ("changed", "own"),
    [({"error_ns": 389 * US}, 390), ({"error_ns": 390 * US}, 0), ({"error_ns": None}, 0), ({"rigorous": False}, 0),
     ({"complete": False}, 0), ({"holds": False}, 0)],
)  # fmt: skip
def test_lateness_that_is_not_sure_is_none(changed: dict[str, Any], own: int) -> None:
    late = lateness_of(waits_of(**changed)).calls
    assert late.filter((pl.col("instance") == 5) & (pl.col("rank") == 0))["own_ns"].item() == own * US


def test_half_of_the_ranks_make_an_anchor() -> None:
    held = pl.DataFrame({"instance": [1, 1, 2, 2, 3, 3], "holds": [True, False, False, False, True, True],
                         "complete": [True, True, True, True, True, False]})  # fmt: skip
    assert of._find_anchors(held).tolist() == [1]


def test_what_held_a_call_on_its_stream_by_hand() -> None:
    def array(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    held = of._find_holders(
        array(0, 60_000, 60_000, 95_000), array(50_000, 90_000, 70_000, 99_000), array(7, 7, 8, 7), array(1, 2, 3, 4)
    )
    assert held.tolist() == [-1, 1, -1, 2]
    slack = replay.CLOCK_SLACK_US.ns
    for gap, holder in ((0, 1), (slack, 1), (slack + 1, -1), (-1, -1)):
        assert of._find_holders(array(0, 100 + gap), array(100, 900), array(7, 7), array(1, 2)).tolist() == [-1, holder]


def test_standing_is_where_a_call_waits_or_moves_with_nothing_beside_it() -> None:
    waits = waits_of(
        [(1, 0, 100, 200, 0, 30, 0, 0), (2, 0, 300, 400, 0, 50, 0, 0), (6, 0, 150, 160, 0, 10, 0, 0)],
        exposed={(0, 0): Intervals.one(110 * US, 370 * US)},
    )
    waiting, moving = of._measure_standing(waits)[0, 0]
    assert list(zip(waiting.start_ns // US, waiting.end_ns // US, strict=True)) == [(110, 130), (150, 160), (300, 350)]
    assert list(zip(moving.start_ns // US, moving.end_ns // US, strict=True)) == [
        (130, 150), (160, 200), (350, 370),
    ]  # fmt: skip


def late_by(rows: list[tuple[int, int, int, int]], span: int = 1_000, busy: dict[int, float] | None = None) -> Lateness:
    """From (rank, anchor, own, stood)."""
    epochs = pl.DataFrame(rows, schema=["rank", "anchor", "own_ns", "stood_ns"], orient="row")
    ranks = epochs.group_by("rank").agg(pl.col("own_ns").sum(), device_ns=0).sort("rank")
    host = pl.DataFrame({"rank": list(busy or {}), "busy_ratio": list((busy or {}).values())},
                        schema={"rank": pl.Int64, "busy_ratio": pl.Float64})  # fmt: skip
    return Lateness(epochs, ranks, np.array([1, 2]), epochs, span, host)


EPOCHS = [(0, 1, 90, 5), (1, 1, 20, 60), (2, 1, 0, 80), (0, 2, 40, 5), (1, 2, 10, 70), (2, 2, 15, 50)]


@pytest.mark.parametrize(
    ("ranks", "gain"),
    [([0], min(70, 60) + min(25, 50)), ([0, 1], 80 + 25), ([1], 0), ([], 0), ([0, 1, 2], 80 + 40), ([0, 0], 85)],
)
def test_what_a_job_gains_without_own_lateness_by_hand(ranks: list[int], gain: int) -> None:
    assert rebalanced(late_by(EPOCHS), ranks) == gain / 1_000


@pytest.mark.parametrize(
    ("busy", "gain"), [({1: 0.5, 0: 0.99}, 85), ({1: 0.95, 2: 0.3}, 50), ({0: 0.98}, 20), ({1: 1.5}, 0)]
)
def test_hosts_of_the_others_must_keep_the_pace(busy: dict[int, float], gain: int) -> None:
    assert rebalanced(late_by(EPOCHS, busy=busy), [0]) == gain / 1_000


def test_one_anchor_or_no_span_gains_nothing() -> None:
    alone = late_by(EPOCHS)
    alone = Lateness(alone.calls, alone.ranks, np.array([1]), alone.epochs, 1_000, alone.host_busy)
    assert rebalanced(alone, [0]) == 0.0
    assert rebalanced(late_by(EPOCHS, span=0), [0]) == 0.0
    assert rebalanced(late_by(EPOCHS, span=1), [0]) == 1.0
    assert rebalanced(late_by([]), [0]) == 0.0


def test_the_latest_rank_is_the_one_whose_own_price_is_highest() -> None:
    """Ranks that nowhere are the latest alone are not priced: nothing is gained by them."""
    random = np.random.default_rng(5)
    for _ in range(60):
        figures = random.integers(0, (4, 9), size=(3, 4, 2)).tolist()  # small, so that ranks are often equally late
        rows = [(rank, anchor, *figures[anchor][rank]) for anchor in range(3) for rank in range(4)]
        late = late_by(rows)
        prices = {rank: rebalanced(late, [rank]) for rank in range(4)}
        worst = latest_rank(late, range(4))
        assert worst.gain_ratio == max(prices.values())
        assert worst.rank == min(rank for rank, price in prices.items() if price == worst.gain_ratio)


def test_ranks_that_are_nowhere_the_latest_alone_are_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand ranks took a million looks at an epoch."""
    asked: list[object] = []
    monkeypatch.setattr(of, "rebalanced", lambda late, ranks: asked.append(ranks) or rebalanced(late, ranks))
    assert latest_rank(late_by(EPOCHS), [0, 1, 2]).rank == 0
    assert asked == [[0]]


def test_the_latest_rank_and_whether_it_has_most() -> None:
    worst = latest_rank(late_by(EPOCHS), [0, 1, 2])
    assert (worst.rank, worst.gain_ratio, worst.own_ratio, worst.has_most) == (0, 0.085, 26 / 35, True)
    even = latest_rank(late_by([(0, 1, 50, 90), (1, 2, 50, 90), (0, 2, 0, 90), (1, 1, 0, 90)]), [1, 0])
    assert (even.rank, even.gain_ratio, even.own_ratio, even.has_most) == (0, 0.05, 0.5, False)
    alone = latest_rank(late_by([(0, 1, 1, 90)]), [7])
    assert (alone.own_ratio, alone.has_most) == (0.0, False)
    assert latest_rank(late_by([(0, 1, 0, 90)]), [0, 1]).own_ratio == 0.0
    assert latest_rank(late_by([(0, 1, 1, 90)]), [0]).own_ratio == 1.0


def test_work_that_is_spread_and_work_that_goes_by_hand() -> None:
    """Rank 0 computes 600 of a step of 1,000, of which 50 are lost beside communication; its peers 200 and 400.

    Beyond the mean of 550, 200 and 400 there are 166.7, beyond the median of the others 250, of 1,000 a step;
    the others stood for 60 and then 50.
    """
    late, waits = late_by(EPOCHS, span=10_000), waits_of()
    spread, gone = evened_out(waits, late_by([(r, a, o, 50 * s) for r, a, o, s in EPOCHS], span=10_000), 0, {0: 50.0})
    assert (spread, gone) == pytest.approx((1 / 6, 0.25))
    assert evened_out(waits, late, 0, {0: 50.0}) == (0.011, 0.011)
    assert evened_out(waits, late, 1, {}) == evened_out(waits, late, 7, {}) == (0.0, 0.0)


@pytest.mark.parametrize("without", [[0], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize(("device", "gone"), [(30, 0.03), (300, 0.11), (0, 0.0)])
def test_without_steady_steps_of_a_rank_its_lateness_by_computation_is_the_excess(
    without: list[int], device: int, gone: float
) -> None:
    """Of three ranks that of two thirds is gained where it is spread; no more goes than the others stood for."""
    late, waits = late_by(EPOCHS), waits_of()
    ranks = late.ranks.with_columns(device_ns=pl.when(rank=0).then(device).otherwise(0))
    late = Lateness(late.calls, ranks, late.anchors, late.epochs, 1_000, late.host_busy)
    waits.job.steps = waits.job.steps.filter(~pl.col("rank").is_in(without))
    assert evened_out(waits, late, 0, {}) == pytest.approx((gone * 2 / 3, gone))
    assert evened_out(waits, late, 7, {}) == (0.0, 0.0)


def test_one_rank_or_steps_of_no_length_even_nothing_out() -> None:
    waits, late = waits_of(), late_by(EPOCHS, span=10_000)
    waits.job.steps = waits.job.steps.with_columns(end_ns=pl.col("start_ns"))
    assert evened_out(waits, late, 0, {}) == (0.011, 0.011)
    roomy = late_by([(r, a, o, 1_000 * s) for r, a, o, s in EPOCHS], span=10_000)
    assert evened_out(waits, roomy, 0, {0: 299.5}) == pytest.approx((1 / 3, 0.5))  # of 1 ns
    waits.job.steps = waits.job.steps.filter(pl.col("rank") == 0)
    assert evened_out(waits, late, 0, {}) == (0.0, 0.0)


def a_trace(told_ns: float | None = None, ops: pl.DataFrame | None = None) -> Any:
    return SimpleNamespace(unprofiled_step_ns=told_ns, get=lambda _: ops)


E = assumed.GAIN_ERROR.value
NETWORK, DEVICE, HOST = "network_ns", "device_ns", "host_ns"


@pytest.mark.parametrize(
    ("late_by", "given", "worth"),
    [
        (NETWORK, {}, (20 * (1 - E), 20, 20 * (1 + E), 100)),
        (NETWORK, {"told": 80.0}, (16 * (1 - E), 16, 16 * (1 + E), 80)),
        (NETWORK, {"estimated": (10, 300, 90)}, (40 * (1 - E), 40, 40 * (1 + E), 200)),
        (NETWORK, {"estimated": None}, (40 * (1 - E), 40, 40 * (1 + E), 200)),
        (NETWORK, {"gain": 300.0}, (100, 100, 100, 100)),
        (NETWORK, {"gain": -40.0}, (0, 0, 0, 100)),
        (NETWORK, {"gain": 0.2, "profiled": 1.0, "told": 100.0}, (20 * (1 - E), 20, 20 * (1 + E), 100)),
        (NETWORK, {"gain": 0.0, "profiled": 0.0, "told": 100.0}, (0, 0, 0, 100)),
        # its excess goes, or what the replay says if that is more
        (DEVICE, {"spread": 0.3, "gone": 0.5, "more": 0.0}, (20 * (1 - E), 50, 50 * (1 + E), 100)),
        (DEVICE, {"spread": 0.05, "gone": 0.1, "more": 0.0}, (5 * (1 - E), 20, 20 * (1 + E), 100)),
        # of what it has three quarters to do besides, those are spread and the rest goes
        (DEVICE, {"spread": 0.3, "gone": 0.5, "more": 0.75}, (20 * (1 - E), 35, 50 * (1 + E), 100)),
        # its share is spread over all: what goes at most is all of the excess, at least what either says
        (DEVICE, {"spread": 0.3, "gone": 0.5}, (20 * (1 - E), 30, 50 * (1 + E), 100)),
        (DEVICE, {"spread": 0.4, "gone": 0.1}, (20 * (1 - E), 40, 40 * (1 + E), 100)),
        (DEVICE, {"spread": 0.1, "gone": 0.15}, (10 * (1 - E), 10, 20 * (1 + E), 100)),
        (DEVICE, {"spread": 0.0, "gone": 0.5}, (20 * (1 - E), 20, 20 * (1 + E), 100)),
        # no more than the room up to the other ranks, or what is no profiler's
        (HOST, {"room": [0.05, 0.12, 0.3], "own": 10.0}, (0, 12, 20 * (1 + E), 100)),
        (HOST, {"room": [0.05, 0.12, 0.15], "own": 36.0}, (0, 18, 18, 100)),
        (HOST, {"room": [0.15, 0.12, 0.05], "own": 0.0}, (0, 12, 15, 100)),
        (HOST, {"room": [0.5, 0.6, 0.7], "own": 90.0}, (0, 20, 20 * (1 + E), 100)),
        (HOST, {"room": [0.0] * 3, "own": 0.18, "gain": 0.2, "profiled": 1.0, "told": 100.0}, (0, 18, 18, 100)),
        (HOST, {"room": [0.0] * 3, "own": 0.0, "gain": 0.0, "profiled": 0.0, "told": 100.0}, (0, 0, 0, 100)),
        (HOST, {"estimated": None}, (40 * (1 - E), 40, 40 * (1 + E), 200)),
        # where the step is told: what it exceeds the others', however late the rank was when it was recorded
        (HOST, {"told": 100.0}, (0, 0, 0, 100)),
        (HOST, {"told": 160.0}, (0, 0, 0, 160)),
        (HOST, {"told": 190.0, "own": 90.0}, (0, 30, 30 * (1 + E), 190)),
        (HOST, {"told": 200.0}, (0, 40, 40 * (1 + E), 200)),
        (HOST, {"told": 300.0, "estimated": None}, (0, 140, 140 * (1 + E), 300)),
        (HOST, {"told": 399.0, "without": 1.0}, (0, 398, 399, 399)),
        (HOST, {"told": 400.0, "room": [0.1] * 3, "own": 0.0}, (0, 40, 40, 400)),
    ],
)  # fmt: skip
def test_what_a_rank_that_comes_as_its_peers_do_is_worth(
    late_by: str, given: dict[str, Any], worth: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 of a step of 200 ns that takes 100 without the profiler, if nothing else is given."""
    parts = [given.get(name) for name in ("spread", "gone")]
    for name, value in {
        "collective_waits": None, "lateness": None, "slowed_ns": None, "evened_out": parts,
        "estimated_step_ns": given.get("estimated", (90, 100, 110)), "room_beside": given.get("room"),
        "as_often_ns": (given.get("gain", 40.0), given.get("profiled", 200.0)), "_own_host_ns": given.get("own"),
        "_work_share": given.get("more", 1.0), "_without_ns": given.get("without", 160.0),
    }.items():  # fmt: skip
        monkeypatch.setattr(worth_of, name, lambda *_, value=value: value)
    found = worth_of.worth_of_rank(a_trace(given.get("told")), 0, 0.4, late_by)
    assert (found.low_ns, found.gain_ns, found.high_ns, found.step_ns) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("changed", "without"),
    [
        ({}, 30.0),  # 300 ns hold five steps of 60
        ({"held": 0.25}, 45.0),
        ({"busy": [None, 12, 50]}, 40.0),  # less 10 for recording
        ({"busy": [500, None, None]}, 30.0),  # the late rank's own host keeps nobody up
        ({"compute": 100}, 60.0),  # half as many steps, twice as long
        ({"compute": 0}, 100.0),  # nothing is computed in a step: as long as recorded
        ({"anchors": [7]}, 100.0),
    ],
)
def test_the_step_without_a_late_rank_is_that_of_the_time_its_lateness_is_of(
    changed: dict[str, Any], without: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 100 to 400 ns three ranks compute 250, 50 a steady step, and half of it is held up."""
    ranks = [0, 1, 2]
    ends = [(instance, rank, ns) for instance, ns in ((1, 100), (2, 250), (3, 400), (4, 900)) for rank in ranks]
    calls = pl.DataFrame(ends, schema=["instance", "rank", "end_ns"], orient="row").with_columns(device=0)
    busy = changed.get("busy", [None, 12, None])
    steps = pl.DataFrame(
        {"rank": ranks, "compute_ns": changed.get("compute", 50), "host_busy_ns": busy, "recorded_ns": 10},
        schema_overrides={"host_busy_ns": pl.Int64},
    ).with_columns(device=0)
    lines = {(rank, 0): SimpleNamespace(compute=Intervals.one(0, 350)) for rank in ranks}
    anchors = np.array(changed.get("anchors", [1, 2, 3]))
    for name, value in {
        "collective_waits": SimpleNamespace(calls=calls, job=SimpleNamespace(steps=steps)),
        "lateness": SimpleNamespace(anchors=anchors, span_ns=300),
        "device_timeline": SimpleNamespace(by_device=lines),
    }.items():
        monkeypatch.setattr(worth_of, name, lambda *_, value=value: value)
    assert worth_of._without_ns(a_trace(), 0, changed.get("held", 0.5), 200.0) == pytest.approx(without)


@pytest.mark.parametrize(
    ("gain", "given", "may"),
    [(0.25, {}, True), (0.26, {}, False), (0.25, {"late_by": DEVICE}, False), (0.25, {"estimated": None}, False),
     (0.25, {"own": 1.0}, False), (0.5, {"told": 100.0}, True), (0.51, {"told": 100.0}, False),
     (0.5, {"profiled": 1.0, "told": 0.5}, True), (0.51, {"profiled": 1.0, "told": 0.5}, False),
     (0.3, {"profiled": 0.0, "told": 0.5}, True), (0.29, {"recorded": 8}, True), (0.3, {"recorded": 8}, False),
     (0.25, {"of": 2, "recorded": 8}, True), (0.26, {"of": 2, "recorded": 8}, False),
     (0.54, {"told": 100.0, "recorded": 8}, True), (0.55, {"told": 100.0, "recorded": 8}, False)],
)  # fmt: skip
def test_a_host_may_be_late_by_recording_up_to_what_it_adds(
    gain: float, given: dict[str, Any], may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 of 200 ns without the profiler: a quarter; and what recording surely took of the hosts that the gain is held
    against."""
    rows = pl.DataFrame({"rank": [given.get("of", 0), 1], "recorded_ns": [given.get("recorded", 0), 999]})
    monkeypatch.setattr(worth_of, "collective_waits", lambda _: SimpleNamespace(job=SimpleNamespace(steps=rows)))
    monkeypatch.setattr(worth_of, "step_ns", lambda _: given.get("profiled", 200.0))
    monkeypatch.setattr(worth_of, "estimated_step_ns", lambda _: given.get("estimated", (100, 150, 190)))
    monkeypatch.setattr(worth_of, "_own_host_ns", lambda *_: given.get("own", 0.0))
    assert worth_of.may_be_recording(a_trace(given.get("told")), 0, gain, given.get("late_by", HOST)) is may


def kernels(rank: int, name: str, *spans: tuple[int, int], kind: str = "kernel") -> list[dict[str, Any]]:
    return [{"rank": rank, "name": name, "start_ns": start, "end_ns": end, "kind": kind} for start, end in spans]


Runs = dict[str, tuple[int, int]]
PASS: Runs = {"gemm": (10, 80), "relu": (10, 20)}


def share_of_work(ranks: dict[int, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, steps: int = 2) -> float:
    """Of rank 0; its own steps are as many as are given, those of the others two."""
    windows = [(r, n) for r in ranks for n in range(steps if r == 0 else 2)]
    spans = {"rank": [r for r, _ in windows], "device": 0, "start_ns": [1_000 * (1 + n) for _, n in windows]}
    steady = pl.DataFrame(spans).with_columns(end_ns=pl.col("start_ns") + 1_000)
    rows = [row | {"device": 0} for of_rank in ranks.values() for row in of_rank]
    shape = {name: pl.lit(None if name == "grid_x" else 1, pl.Int32) for name in ("grid_x", "grid_y", "grid_z")}
    ops = pl.DataFrame(rows).with_columns(**shape)
    classes = ["communication" if row["name"] == "send" else "compute" for row in rows]
    monkeypatch.setattr(why_of, "class_of_ops", lambda _: pl.Series(classes))
    monkeypatch.setattr(why_of, "collective_waits", lambda _: SimpleNamespace(job=SimpleNamespace(steps=steady)))
    return worth_of._work_share(a_trace(ops=ops), 0)


def steady_steps(rank: int, runs: Runs, steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 1,000 ns from 1,000 ns on in which kernels run so often, all of a name together for so long."""
    return [
        row
        for step in range(1, steps + 1)
        for name, (count, total) in runs.items()
        for row in kernels(rank, name, *((1_000 * step, 1_000 * step + total // count),) * count)
    ]


@pytest.mark.parametrize(
    ("own", "share"),
    [
        ({"gemm": (10, 160), "relu": (10, 40)}, 0.0),  # as often, and twice as slow
        ({"gemm": (15, 120), "relu": (15, 30)}, 1.0),  # half a pass more
        ({"gemm": (20, 160), "relu": (10, 20)}, 0.0),  # one kernel more
        ({**PASS, "mm": (40, 400)}, 0.0),  # a load beside it
        ({**PASS, "narrow": (4, 40), "small": (3, 6)}, 1.0),  # a pass over something else
        ({"gemm": (10, 90), "relu": (10, 20), "narrow": (5, 25), "small": (5, 5)}, 0.75),  # and slower by 10 of 40
        ({"wide": (10, 160), "relu": (10, 20)}, 1.0),  # other kernels: another batch
        ({"gemm": (20, 160), "relu": (20, 20), "send": (99, 990)}, 1.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("peers", [1, 3])
def test_more_of_a_batch_is_work_and_slower_kernels_or_a_load_are_not(
    own: Runs, share: float, peers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several kernels do, as a pass over data does, somebody has to do; what else is beyond the peers goes."""
    others = {rank: steady_steps(rank, PASS) for rank in range(1, peers + 1)}
    assert share_of_work({0: steady_steps(0, own), **others}, monkeypatch) == pytest.approx(share)


def test_work_is_counted_per_steady_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that one rank has more in its window, and what comes before and after, make no work."""
    before = kernels(0, "gemm", (0, 900), (100, 900)) + kernels(0, "relu", *((100, 101),) * 30)
    after = kernels(0, "gemm", (4_000, 4_900)) + kernels(0, "copy", (1_000, 1_900), kind="memcpy")
    slower = {"gemm": (10, 90), "relu": (10, 20)}
    ranks = {0: before + steady_steps(0, slower, 3) + after, 1: steady_steps(1, PASS)}
    assert share_of_work(ranks, monkeypatch, steps=3) == 0.0


@pytest.mark.parametrize(("missing", "share"), [(5, 0.0), (6, 1.0)])
def test_a_rank_may_leave_a_twentieth_of_what_its_peers_run(
    missing: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assumed.SAME_WORK.value == 0.95
    slower, peers = {"gemm": (1, 190)}, {"gemm": (1, 100 - missing), "odd": (1, missing)}
    ranks = {0: steady_steps(0, slower), 1: steady_steps(1, peers)}
    assert share_of_work(ranks, monkeypatch) == share


def test_of_no_peer_all_of_it_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share_of_work({0: steady_steps(0, PASS)}, monkeypatch) == 1.0


@pytest.mark.parametrize(
    ("hosts", "rank", "own"),
    [({0: 50.0, 1: 10.0, 2: 20.0}, 0, 10.0), ({0: 50.0, 1: 10.0, 2: 20.0}, 1, 0.0), ({0: 50.0}, 0, 50.0),
     ({0: 50.0}, 1, 0.0), ({}, 0, 0.0)],
)  # fmt: skip
def test_a_host_s_time_beyond_twice_the_busiest_other_s_is_its_own(
    hosts: dict[int, float], rank: int, own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assumed.HOST_SLOWED.value == 2.0
    cases = {one: tuple(SimpleNamespace(host_ns=ns) for ns in (900.0, 800.0, last)) for one, last in hosts.items()}
    monkeypatch.setattr(worth_of, "deflated_pricers", lambda _: cases)
    assert worth_of._own_host_ns(a_trace(), rank) == own


@pytest.mark.parametrize(
    ("estimated", "paces", "room"),
    [((25, 60, 80), {1: (40, 30, 20), 2: (10, 36, 20)}, [0.5, 0.4, 0.2]),
     ((0, 60, 30), {1: (40, 30, 20), 2: (10, 36, 20)}, [0.0, 0.4, 0.0]), ((25, 60, 80), {}, [1.0, 1.0, 1.0])],
)  # fmt: skip
def test_room_is_what_the_job_takes_beyond_its_slowest_other_rank(
    estimated: tuple[float, float, float], paces: dict[int, tuple[float, ...]], room: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Little is to be gained where recording costs little: then the job's estimated step is the long one."""
    cases = {rank: tuple((500.0, float(alone)) for alone in of_rank) for rank, of_rank in paces.items()}
    monkeypatch.setattr(paces_of, "rank_paces_ns", lambda _: cases | {0: ((99.0, 98.0),) * 3})
    assert paces_of.room_beside(a_trace(), 0, estimated) == pytest.approx(room)


def test_what_kernels_lose_beside_communication_is_a_share_of_the_span_in_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 0 loses 50 of 500 ns, so 10 of a step of 100, and on its other GPU 30 of 100, 20 of them by second turns, so
    18 of 60; that counts.

    Rank 1 has the worse GPU first. What gets faster beside communication loses nothing; so does what takes no time.
    """
    rows = [(0, 0, 50, 0), (0, 1, 10, 20), (1, 3, 0, 80), (1, 4, 10, 0), (2, 0, -5, 0), (3, 0, 0, 0), (4, 0, 7, 0)]
    span = {(0, 0): 500, (0, 1): 100, (1, 3): 100, (1, 4): 100, (2, 0): 100, (3, 0): 0, (4, 0): 1}
    period = {(0, 0): 100.0, (0, 1): 60.0, (1, 3): 10.0, (1, 4): 10.0, (2, 0): 10.0, (3, 0): 10.0, (4, 0): 2.0}
    table = pl.DataFrame(rows, schema=["rank", "device", "excess_ns", "second_turns_ns"], orient="row")
    monkeypatch.setattr(paces_of, "contention", lambda _: table)
    timeline = {device: SimpleNamespace(span_ns=ns) for device, ns in span.items()}
    monkeypatch.setattr(paces_of, "device_timeline", lambda _: timeline)
    monkeypatch.setattr(paces_of, "period_ns", lambda _, device: period[device])
    assert paces_of.slowed_ns(a_trace()) == pytest.approx({0: 18.0, 1: 8.0, 2: 0.0, 3: 0.0, 4: 14.0})


def test_ranks_that_are_late_at_all_are_evened_out(monkeypatch: pytest.MonkeyPatch) -> None:
    late: Any = SimpleNamespace(ranks=pl.DataFrame({"rank": [0, 1, 2, 3], "own_ns": [0, 1, 700, 0]}))
    monkeypatch.setattr(of, "rebalanced", lambda _, ranks: ranks)
    assert of.even_gain(late) == [1, 2]


@pytest.mark.parametrize(
    ("own", "device", "left"),
    [([[40, 0], [0, 40]], 80, 0.5), ([[40, 0], [0, 40]], 40, 0.25), ([[40, 0], [0, 40]], 0, 0.0),
     ([[40, 0, 0, 0], [0, 0, 40, 0]], 80, 0.25), ([[40, 20], [30, 40]], 130, 65 / 80), ([[0, 0]], 0, 0.0),
     ([], 0, 0.0)],
)  # fmt: skip
def test_balance_leaves_the_mean_of_what_is_computed(own: list[list[int]], device: int, left: float) -> None:
    """Of two ranks that compute 40 ns more in turn, each has 20 more in every step then; of hosts nothing is left."""
    rows = [(rank, anchor, ns) for anchor, of_anchor in enumerate(own) for rank, ns in enumerate(of_anchor)]
    schema = {"rank": pl.Int32, "anchor": pl.Int64, "own_ns": pl.Int64}
    ranks = pl.DataFrame({"own_ns": [sum(ns for _, _, ns in rows)], "device_ns": [device]})
    late: Any = SimpleNamespace(epochs=pl.DataFrame(rows, schema=schema, orient="row"), ranks=ranks)
    assert of.left_by_balance(late) == pytest.approx(left)


@pytest.mark.parametrize(
    ("error_ns", "span_ns", "may"), [(None, 1e12, True), (10, 160, False), (10, 159, True), (9, 159, False)]
)
def test_the_error_of_clocks_may_hide_what_is_less_than_it_at_all_anchors(error_ns, span_ns, may):
    waits = SimpleNamespace(clocks=SimpleNamespace(worst_error_ns=error_ns))
    late = SimpleNamespace(anchors=np.arange(4), span_ns=span_ns)
    assert of.may_hide(waits, late, 0.25) == may
