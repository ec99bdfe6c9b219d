"""Prices: a bound where nothing can be replayed, a replay where a change is stated, never more than what is claimed."""

from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.idle.test_blamed_time import STEPPED
from tests.tables import trace_of

from timesink.diagnosis import estimates, gains, pricing, sharing
from timesink.diagnosis.pricing import Priced, bound_price, price, within_claim
from timesink.diagnosis.sharing import share_claims
from timesink.diagnosis.verdicts import Bottleneck, Card, Claim, Finding, Quantity, Where
from timesink.measures.communication.pipelines import Schedule
from timesink.measures.ranks.paces import estimated_step_ns
from timesink.measures.timeline.replay import pricers
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.whatif.changes.host import MergeUnits, RemoveSyncs
from timesink.whatif.pricing import Price

MS = 1_000_000


def finding(claim: Intervals, **more: object) -> Finding:
    made = Finding("m", Bottleneck.HOST_SYNC, Where(rank=0, device=0), (), "do", "check", Claim({(0, 0): claim}))
    return replace(made, **more)  # type: ignore[arg-type]


def claimed(found: Finding, trace: Trace) -> Quantity:
    """The price of a finding, held to what it claims."""
    return within_claim(price(found, trace), found, trace)


@pytest.fixture
def trace() -> Trace:
    return trace_of(STEPPED)


def test_without_a_change_the_price_is_the_bound_of_the_claim(trace: Trace) -> None:
    bounded = finding(Intervals.one(0, 54 * MS))
    assert bound_price(bounded, trace) == Quantity(9.0, "ms", low=0.0, high=9.0)
    priced = price(bounded, trace.with_unprofiled_step(9.0 * MS))
    assert priced.by == "bound"
    assert priced.gain.value == pytest.approx(9.0, rel=0.01)


def test_of_a_bound_the_estimated_cost_of_recording_is_taken_off(trace: Trace) -> None:
    low_ns, expected_ns, high_ns = estimated_step_ns(trace) or (0.0, 0.0, 0.0)
    assert low_ns <= expected_ns <= high_ns <= 9.01 * MS
    ratio = expected_ns / pricers(trace)[0].step_ns
    assert price(finding(Intervals.one(0, 54 * MS)), trace).gain.value == pytest.approx(9.0 * ratio)


def test_what_a_rule_states_itself_stands(trace: Trace) -> None:
    stated = Quantity(1.5, "ms", low=1.0, high=2.0)
    assert price(finding(Intervals.none(), stated=stated), trace) == Priced(stated, "stated")


def test_a_change_is_replayed_and_held_to_the_claim(trace: Trace) -> None:
    change = RemoveSyncs()
    whole = claimed(finding(Intervals.one(0, 54 * MS), change=change), trace)
    assert whole.low is not None
    assert whole.high is not None
    assert 0.2 < whole.value < 0.4
    assert whole.low <= whole.value <= whole.high
    part = claimed(finding(Intervals.one(9 * MS, 9 * MS + 60_000), change=change), trace)
    bound = bound_price(finding(Intervals.one(9 * MS, 9 * MS + 60_000)), trace)
    assert part.value == pytest.approx(bound.value, rel=0.02)


@pytest.mark.parametrize(("value", "high"), [(0.0, 2.0), (1.0, 5.0), (4.0, 5.0)])
def test_of_a_gain_that_is_expected_to_be_nothing_no_more_is_said_than_is_claimed(
    value: float, high: float, trace: Trace
) -> None:
    """Claimed are 2 ms of each step; replays win 0, 1 and 4 ms, and 5 at best."""
    starts = range(0, 54, 9)
    claim = Intervals.union_all([Intervals.one(start * MS, (start + 2) * MS) for start in starts])
    replayed = Priced(Quantity(value, "ms", low=0.0, high=5.0), "replay")
    told = trace.with_unprofiled_step(pricers(trace)[0].step_ns)
    assert within_claim(replayed, finding(claim), told).most == pytest.approx(high, rel=0.02)


def test_a_rank_that_cannot_be_replayed_is_promised_no_more_than_another_wins_by_the_same_change(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nine milliseconds are claimed on a rank, another rank wins 0.25 by the change: 0.25, and at most 9."""
    won = Quantity(0.25, "ms", low=0.1, high=0.5)
    monkeypatch.setattr(pricing, "pricers", lambda _: {0: pricers(trace)[0], 1: None})
    monkeypatch.setattr(pricing, "price_change", lambda _, rank, *rest: Priced(won, "replay") if rank else None)
    bounded = finding(Intervals.one(0, 54 * MS))
    told = trace.with_unprofiled_step(9.0 * MS)
    alone, one_of_two = price(bounded, told), price(replace(bounded, change=RemoveSyncs()), told)
    assert alone.gain.value == pytest.approx(9.0, rel=0.01)
    assert one_of_two == Priced(replace(alone.gain, value=0.25), "bound")


def test_a_shorter_unprofiled_step_lowers_what_host_work_can_win(trace: Trace) -> None:
    change = finding(Intervals.one(0, 54 * MS), change=RemoveSyncs())
    told = trace.with_unprofiled_step(8.0 * MS)
    profiled, true = claimed(change, trace), claimed(change, told)
    assert true.value < profiled.value
    assert true.value <= 8.0


def test_values_together_never_exceed_the_step(trace: Trace) -> None:
    card = Card("AAA101", "a", "s", "d", "0.1")
    large = finding(Intervals.none(), recoverable=Quantity(7.0, "ms", low=6.0, high=8.0))
    shared = share_claims([(card, large), (card, large)], trace, 9.0)
    assert [found.recoverable.value for _, found in shared if found.recoverable] == pytest.approx([7.0, 2.0])


@pytest.mark.parametrize(
    ("needed_ms", "value", "most", "left"),
    [(3.0, 0.0, 5.0, 5.0), (3.0, 0.0, 7.0, 6.0), (8.5, 0.0, 5.0, 0.5), (9.0, 0.0, 5.0, 0.0), (12.0, 0.0, 5.0, 0.0),
     (8.5, 0.2, 5.0, 5.0)],
)  # fmt: skip
def test_idle_time_of_which_nothing_is_expected_may_be_what_the_device_does_not_need(
    needed_ms: float, value: float, most: float, left: float, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler may make a GPU idle for longer than the step without it leaves; of a step of 9 ms."""
    monkeypatch.setattr(sharing, "is_of_idle_time", lambda *_: True)
    monkeypatch.setattr(pricing, "busy_ms", lambda *_: 0.0)
    monkeypatch.setattr(sharing, "busy_ms", lambda *_: 0.0)
    monkeypatch.setattr(pricing, "needed_ms", lambda _: {0: needed_ms})
    monkeypatch.setattr(sharing, "needed_ms", lambda _: {0: needed_ms})
    one = finding(Intervals.none(), recoverable=Quantity(value, "ms", low=0.0, high=most))
    ((_, found),) = share_claims([(Card("AAA101", "a", "s", "d", "0.1"), one)], trace, 9.0)
    assert found.recoverable is not None
    assert (found.recoverable.value, found.recoverable.most) == pytest.approx((value, left))


@pytest.mark.parametrize(
    ("needed_ms", "slowed_ms", "won"),
    [((3.0, 3.0), 0.0, 4.0), ((3.0, 6.0), 0.0, 3.0), ((3.0, 8.5), 0.0, 0.5), ((3.0, 8.5), 1.0, 1.5),
     ((3.0, 12.0), 0.0, 0.0), ((8.0, 3.0), 0.0, 1.0)],
)  # fmt: skip
def test_idle_time_of_a_rank_wins_no_more_than_the_ranks_do_not_need_that_it_exchanges_with(
    needed_ms: tuple[float, float], slowed_ms: float, won: float, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step of 9 ms, unless exchanges change for all ranks: what kernels lose beside exchanges they do not need."""
    calls = pl.DataFrame({"rank": [0, 1]})
    monkeypatch.setattr(pricing, "may_communicate", lambda _: True)
    monkeypatch.setattr(pricing, "collective_waits", lambda _: SimpleNamespace(matched=SimpleNamespace(calls=calls)))
    monkeypatch.setattr(sharing, "is_of_idle_time", lambda *_: True)
    monkeypatch.setattr(pricing, "busy_ms", lambda *_: 0.0)
    monkeypatch.setattr(sharing, "busy_ms", lambda *_: 0.0)
    monkeypatch.setattr(pricing, "needed_ms", lambda _: dict(enumerate(needed_ms)) | {2: 9.0})
    monkeypatch.setattr(sharing, "needed_ms", lambda _: dict(enumerate(needed_ms)) | {2: 9.0})
    monkeypatch.setattr(pricing, "slowed_ns", lambda _: {1: slowed_ms * MS})
    one = finding(Intervals.none(), recoverable=Quantity(4.0, "ms", low=0.0, high=5.0))
    card = Card("AAA101", "a", "s", "d", "0.1")
    ((_, found),) = share_claims([(card, one)], trace, 9.0)
    assert found.recoverable is not None and found.recoverable.value == pytest.approx(won)
    ((_, merged),) = share_claims([(card, replace(one, change=MergeUnits({}, 2.0)))], trace, 9.0)
    assert merged.recoverable is not None and merged.recoverable.value == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("exposed_ms", "needed_ms", "share"),
    [((4.0, 4.0), (9.0, 9.0), 1.0), ((4.0, 1.0), (9.0, 9.0), 0.25), ((4.0, 1.0), (9.0, 7.0), 0.75),
     ((4.0, 1.0), (9.0, 5.0), 1.0), ((1.0, 4.0), (9.0, 9.0), 1.0), ((4.0, 0.0), (7.0, 9.0), 0.0)],
)  # fmt: skip
def test_a_job_hides_what_the_rank_does_that_hides_least(
    exposed_ms: tuple[float, float], needed_ms: tuple[float, float], share: float, trace: Trace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of two ranks the first is asked; what the other needs less of the step it has to spare."""
    monkeypatch.setattr(pricing, "exposed_transfers", lambda _: dict(zip([(0, 0), (1, 1)], exposed_ms, strict=True)))
    monkeypatch.setattr(pricing, "per_step_ns", lambda _, __, ms: ms * MS)
    monkeypatch.setattr(pricing, "needed_ms", lambda _: dict(enumerate(needed_ms)))
    monkeypatch.setattr(pricing, "held_ms", lambda *_: max(needed_ms))
    assert pricing._hidden_by_all(0, trace) == pytest.approx(share)


@pytest.mark.parametrize(
    ("gain", "left"),
    [((0.4, 0.0, 1.1), 0.0), ((0.1, 0.0, 0.9), 0.0), ((0.8, 0.0, 2.0), 0.8), ((0.4, 0.1, 1.1), 0.4),
     ((3.0, 0.0, 9.0), 3.0), ((-1.0, -2.0, 0.0), -1.0)],
)  # fmt: skip
def test_a_gain_within_the_error_of_a_replay_that_may_be_nothing_is_a_bound(
    gain: tuple[float, float, float], left: float
) -> None:
    """A replay of a step of 28 ms is off by 0.72 at its ninetieth percentile; the upper end stands."""
    found = gains.beyond_error(Quantity(gain[0], "ms", gain[1], gain[2]), 28.0)
    assert found == Quantity(left, "ms", gain[1], gain[2])


@pytest.mark.parametrize(
    ("hosts_ms", "together", "left"),
    [((3.0, 7.0, 2.0), {0, 1, 2}, 3.0), ((3.0, 7.0, 2.0), {0, 2}, 4.0), ((3.0, None, 5.0), {0, 1, 2}, 4.0),
     ((3.0, 7.0, 2.0), {1, 2}, 4.0), ((8.0, 3.0, 2.0), {0, 1}, 2.0), ((3.0, 5.5, 9.0), {0, 1, 2}, 1.0)],
)  # fmt: skip
def test_shorter_kernels_leave_the_slowest_host_of_a_job_its_time(
    hosts_ms: tuple[float | None, ...], together: set[int], left: float, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step of 10 ms kernels of 4 ms go on rank 0; a rank that cannot be replayed says nothing."""
    unknown = {rank: "no steps" for rank, ms in enumerate(hosts_ms) if ms is None}
    told = {
        rank: SimpleNamespace(
            step_ns=10e6, host_ns=(ms or 0) * 1e6, device_ns=1e6, unreplayable=rank in unknown or None
        )
        for rank, ms in enumerate(hosts_ms)
    }
    monkeypatch.setattr(pricing, "step_without_profiler_ns", lambda *_: 10e6)
    monkeypatch.setattr(pricing, "expected_pricer", lambda rank, _: told[rank])
    monkeypatch.setattr(pricing, "pricers", lambda _: told)
    monkeypatch.setattr(pricing, "_exchanging", lambda _: together)
    gain = pricing._beside_host(Quantity(4.0, "ms", low=3.5, high=4.5), 0, trace.with_unprofiled_step(10e6))
    assert gain.value == pytest.approx(left)
    assert pricing._slowest_host(trace) not in unknown


@pytest.mark.parametrize(
    ("stage_ms", "period_ms", "items", "held_ms"),
    [((8.0, 8.0), 20.0, 4, 10.0), ((8.0, 4.0), 20.0, 4, 9.0), ((8.0, 8.0), 20.0, 1, 16.0),
     ((8.0, 8.0), 7.9, 4, 8.0), ((6.0, 6.0, 12.0), 30.0, 12, 13.0)],
)  # fmt: skip
def test_stages_need_what_they_fill_and_drain_in(
    stage_ms: tuple[float, ...], period_ms: float, items: int, held_ms: float, trace: Trace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """However they go through it today: one at a time, or a step of them beside the next."""
    stages = tuple(ms * MS for ms in stage_ms)
    plan = Schedule(stages, period_ms * MS, 1 if period_ms > sum(stage_ms) else items, 1, "", items)
    monkeypatch.setattr(pricing, "schedule", lambda _: plan)
    monkeypatch.setattr(pricing, "pipeline", lambda _: SimpleNamespace(ranks=(0, 1)))
    assert pricing.held_ms(0, trace) == pytest.approx(held_ms)
    assert pricing.held_ms(9, trace) == 0.0


@given(*[st.floats(-20 * MS, 20 * MS)] * 3)
def test_a_change_that_wins_is_not_said_to_lose_and_one_that_loses_may_lose_more(
    gain_ns: float, low_ns: float, high_ns: float
) -> None:
    found = gains.quantity_ms(gain_ns, low_ns, high_ns)
    assert found.value == pytest.approx(gain_ns / MS)
    assert found.low is not None and found.low <= found.value <= found.most
    assert found.low >= 0.0 if gain_ns >= 0.0 else found.low == pytest.approx(min(low_ns, gain_ns) / MS)


@given(spread=st.floats(0.0, 0.3), count=st.integers(4, 60), value=st.floats(-3.0, 8.0), room=st.floats(0.0, 2.0))
def test_a_gain_is_known_no_better_than_steps_repeat(spread: float, count: int, value: float, room: float) -> None:
    """Told steps of 9 ms, half of them so much longer as the others are shorter: wider by their spread over the root of
    their number."""
    steps_ns = tuple(9.0 * MS * (1.0 + (spread if at % 2 else -spread)) for at in range(2 * (count // 2)))
    told = trace_of(STEPPED).with_unprofiled_step(9.0 * MS, steps_ns)
    gain = Quantity(value, "ms", low=value - room, high=value + room)
    wider = estimates.as_repeated(gain, 0, told)
    assert wider.value == value
    error = gains.TO_P90 * 1.2533 * 1.4826 * spread * (2 / len(steps_ns)) ** 0.5 * (9.0 - value)
    assert wider.most - value == pytest.approx((room**2 + error**2) ** 0.5, rel=1e-3, abs=1e-9)
    assert (wider.low or 0.0) == pytest.approx(
        max(value - (room**2 + error**2) ** 0.5, 0.0 if value >= 0 else -100.0), rel=1e-3, abs=1e-6
    )


@given(st.floats(0.0, 5.0), st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.lists(st.floats(0.0, 9.0), max_size=2))
def test_what_a_hidden_host_uncovers_is_as_unsure_as_that_host(
    gain: float, below: float, above: float, others: list[float]
) -> None:
    """What a change wins with more or less of the host's time left is another error than that of its replay."""
    replayed = Price(10.0, gain, gain - below, gain + above)
    hosts = {0: tuple(SimpleNamespace(gain_ns=lambda _, one=one: one, step_ns=10.0) for one in others)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "calibrated_ends", lambda _: hosts)
        low, high = estimates._beside_hosts(RemoveSyncs(), 0, replayed, Trace("made", {}))
    less, more = gain - min([gain, *others]), max([gain, *others]) - gain
    assert gain - low == pytest.approx((below**2 + less**2) ** 0.5, abs=1e-9)
    assert high - gain == pytest.approx((above**2 + more**2) ** 0.5, abs=1e-9)
