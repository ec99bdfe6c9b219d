"""Laws of a plan: changes win together what one replay says, never more than the step, whatever their order."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import shifted

import timesink
from timesink.diagnosis import headline
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan import joint as joint_module
from timesink.diagnosis.plan.candidates import candidates
from timesink.diagnosis.plan.catalogue import BY_ID, CHANGES
from timesink.diagnosis.plan.joint import WORTH, Joint
from timesink.diagnosis.plan.ladder import Plan, plan
from timesink.model.trace import Trace
from timesink.views.plan import page_of
from timesink.whatif.changes import Together

BEFORE = min(Path(str(files("timesink.cli").joinpath("demo"))).glob("*before*.json.gz"))
NEAR_MS = 1e-4


@cache
def joint() -> Joint:
    """The demo, whose faults are of the host and of the device."""
    trace = timesink.read(BEFORE)
    step_ms = headline.step_ms(trace)
    assert step_ms
    return Joint(trace, 0, step_ms, candidates(trace, diagnose(trace)))


@cache
def climbed(trace: Trace | None = None) -> Plan:
    return plan(joint().trace if trace is None else trace)


SETS = st.lists(st.sampled_from(sorted(BY_ID)), min_size=1, max_size=4, unique=True)


@given(SETS)
@settings(max_examples=6, derandomize=True, deadline=None)
def test_what_changes_win_together_is_ordered_and_at_most_the_step(names: list[str]) -> None:
    chosen = [name for name in names if name in joint().offered]
    gain = joint().gain(chosen)
    assert gain is not None
    assert 0 <= (gain.low or 0.0) <= gain.value <= (gain.high or 0.0) <= joint().step_ms + NEAR_MS


@given(SETS)
@settings(max_examples=4, derandomize=True, deadline=None)
def test_the_order_in_which_changes_are_applied_does_not_matter(names: list[str]) -> None:
    made = joint()
    effective = made.effective(name for name in names if name in made.offered)
    parts = made.parts(effective)
    steps = []
    for order in (parts, parts[::-1]):
        graph = Together(tuple(order)).rewrite(made.pricer.graph)
        steps.append(made.pricer.anchors.periods(graph.replay()).mean() / 1e6)
    assert steps[0] == pytest.approx(steps[1], rel=0.01)  # rounded shares, and launches that go after one another


@pytest.mark.parametrize(
    "pair", [("compile", "fused_attention"), ("compile", "padding"), ("fused_optimizer", "foreach")]
)
def test_changes_of_the_same_time_win_at_most_what_each_wins_alone(pair: tuple[str, str]) -> None:
    alone = [joint().gain({name}) for name in pair]
    both = joint().gain(pair)
    assert both is not None
    assert both.value <= sum(gain.value for gain in alone if gain) + NEAR_MS


def test_the_rungs_of_a_ladder_meet_and_end_above_the_floor() -> None:
    made = climbed()
    assert len(made.rungs) >= 3
    step_ms = made.step_ms
    assert step_ms is not None
    for rung, before_ms in zip(made.rungs, [step_ms, *(rung.after.value for rung in made.rungs)], strict=False):
        low, high = rung.after.low, rung.after.high
        assert low is not None
        assert high is not None
        assert rung.before_ms == pytest.approx(before_ms)
        assert made.floor_ms <= rung.after.value + NEAR_MS
        assert 0 <= low <= rung.after.value <= high <= rung.before_ms + NEAR_MS
        assert rung.gain.value >= WORTH.default * step_ms
        assert rung.cumulative_ms == pytest.approx(step_ms - rung.after.value)
    assert all(gain.value < WORTH.default * step_ms or not made.rungs for gain in made.left.values()) or made.left


def test_a_plan_prices_the_fix_of_a_finding_as_the_diagnosis_does() -> None:
    trace = joint().trace
    diagnosis = diagnose(trace)
    card, first = diagnosis.findings[0]
    (named,) = [change for change in CHANGES if card.name.replace("-", "_") in change.rules][:1]
    assert climbed().singles[named.id] == first.recoverable


def test_autocast_costs_the_host_fifteen_microseconds_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_module, "products_per_step", lambda *_: 100.0)
    without, with_casts = (joint()._beside_host_ms(frozenset(names)) for names in (["tf32"], ["bf16"]))
    assert without - with_casts == pytest.approx(1.5)
    assert joint()._beside_host_ms(frozenset(["bf16", "compile"])) == without


def test_shifted_times_give_the_same_plan() -> None:
    trace = joint().trace
    one, other = climbed(), climbed(shifted(trace, 10**9))
    assert [rung.id for rung in one.rungs] == [rung.id for rung in other.rungs]
    assert [rung.after.value for rung in one.rungs] == pytest.approx([rung.after.value for rung in other.rungs])


def test_without_steps_there_is_no_plan_and_it_says_why() -> None:
    trace = timesink.read(BEFORE, window="0ms:3ms")
    made = climbed(trace)
    assert not made.rungs
    assert made.refused == "no complete step was found, and a plan is per step"
    assert page_of(made, "x").title == f"no plan: {made.refused} (x)"


def test_changes_of_the_catalogue_name_only_each_other() -> None:
    named = {other for change in CHANGES for other in (*change.subsumes, *change.excludes, *change.needs)}
    assert named <= set(BY_ID)
