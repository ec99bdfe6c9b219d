"""Prices: a bound where nothing can be replayed, a replay where a change is stated, never more than what is claimed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.measures.idle.test_blamed_time import STEPPED
from tests.tables import trace_of

from timesink.diagnosis.pricing import bound_price, replay_price, shared
from timesink.diagnosis.rule import Facts
from timesink.diagnosis.verdicts import Bottleneck, Card, Claim, Finding, Quantity, Where
from timesink.model.intervals import Intervals
from timesink.whatif.changes.host import RemoveSyncs

MS = 1_000_000


def finding(claim: Intervals, **more: object) -> Finding:
    made = Finding("m", Bottleneck.HOST_SYNC, Where(rank=0, device=0), (), "do", "check", Claim({(0, 0): claim}))
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.fixture
def facts() -> Facts:
    return Facts(trace_of(STEPPED))


def test_without_a_change_the_price_is_the_bound_of_the_claim(facts: Facts) -> None:
    claimed = finding(Intervals.one(0, 54 * MS))
    assert replay_price(claimed, facts) == bound_price(claimed, facts)
    assert bound_price(claimed, facts) == Quantity(9.0, "ms", low=0.0, high=9.0)


def test_what_a_rule_states_itself_stands(facts: Facts) -> None:
    stated = Quantity(1.5, "ms", low=1.0, high=2.0)
    assert replay_price(finding(Intervals.none(), recoverable=stated), facts) is stated


def test_a_change_is_replayed_and_held_to_the_claim(facts: Facts) -> None:
    whole = replay_price(finding(Intervals.one(0, 54 * MS), change=RemoveSyncs()), facts)
    assert whole.low is not None
    assert whole.high is not None
    assert 0.2 < whole.value < 0.4
    assert whole.low <= whole.value <= whole.high
    part = replay_price(finding(Intervals.one(9 * MS, 9 * MS + 60_000), change=RemoveSyncs()), facts)
    assert part.value == pytest.approx(bound_price(finding(Intervals.one(9 * MS, 9 * MS + 60_000)), facts).value)


def test_a_shorter_unprofiled_step_lowers_what_host_work_can_win(facts: Facts) -> None:
    change = finding(Intervals.one(0, 54 * MS), change=RemoveSyncs())
    told = Facts(facts.trace.with_unprofiled_step(8.9 * MS))
    profiled, true = replay_price(change, facts), replay_price(change, told)
    assert true.value < profiled.value
    assert true.value <= 8.9


def test_values_together_never_exceed_the_step(facts: Facts) -> None:
    card = Card("AAA101", "a", "s", "d", "0.1")
    large = finding(Intervals.none(), recoverable=Quantity(7.0, "ms", low=6.0, high=8.0))
    ranked = [(card, large), (card, large)]
    worth = [found.recoverable.value for _, found in shared(ranked, facts, 9.0) if found.recoverable]
    assert worth == [7.0, 2.0]
