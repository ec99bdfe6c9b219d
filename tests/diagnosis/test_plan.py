"""Laws of a plan: changes win together what one replay says, never more than the step, whatever their order.

Laws of the order of a plan: what is expected counts, what leads on, and the change of the first finding first.
"""

from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from benchmarks.ladders.score import in_order
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import shifted
from tests.tables import trace_of

import timesink
from timesink.diagnosis import headline, pricing
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan import WORTH, Joint, ladder
from timesink.diagnosis.plan.candidate import candidates
from timesink.diagnosis.plan.ladder import Plan, _superfluous, plan
from timesink.diagnosis.plan.order import best, expected
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Finding, Quantity, Where
from timesink.fixes.table import BY_NAME, FIXES
from timesink.knowledge.programs import ProgramKind
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.habits import repeated_calls
from timesink.measures.kernels import one_stream
from timesink.measures.timeline.known import known
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.views.plan import page_of
from timesink.whatif.changes.transfers import PinCopies
from timesink.whatif.edit import Together

BEFORE = min(Path(str(files("timesink.cli").joinpath("demo"))).glob("*before*.json.xz"))
NEAR_MS = 1e-4


@cache
def joint() -> Joint:
    """The demo, whose faults are of the host and of the device."""
    trace = timesink.read(BEFORE)
    step_ms = headline.step_ms(trace)
    assert step_ms
    return Joint(trace, 0, step_ms, candidates(diagnose(trace), known(trace).program))


@cache
def climbed(trace: Trace | None = None) -> Plan:
    return plan(joint().trace if trace is None else trace)


SETS = st.lists(st.sampled_from(sorted(BY_NAME)), min_size=1, max_size=4, unique=True)


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
    most_ms = step_ms  # what is not known of a step before is not known after it
    for rung, before_ms in zip(made.rungs, [step_ms, *(rung.after.value for rung in made.rungs)], strict=False):
        low, high = rung.after.low, rung.after.high
        assert low is not None
        assert high is not None
        assert rung.before_ms == pytest.approx(before_ms)
        assert made.floor_ms <= rung.after.value + NEAR_MS
        assert 0 <= low <= rung.after.value <= high <= most_ms + NEAR_MS
        every = joint().gain([one.id for one in made.rungs[: made.rungs.index(rung) + 1]])
        assert every is not None
        assert high >= min(step_ms - (every.low or 0.0), most_ms) - NEAR_MS  # what they leave open together is said
        most_ms = high
        assert rung.gain.value >= WORTH.default * step_ms
        assert rung.cumulative_ms == pytest.approx(step_ms - rung.after.value)
    assert all(gain.value < WORTH.default * step_ms or not made.rungs for gain in made.left.values()) or made.left


def test_a_plan_counts_all_that_a_fix_wins_and_a_diagnosis_what_its_finding_claims_of_it() -> None:
    trace = joint().trace
    card, first = diagnose(trace).findings[0]
    (named,) = [fix for fix in FIXES if card.name.replace("-", "_") in fix.answers][:1]
    claimed, gain = first.recoverable, climbed().singles[named.name]
    assert claimed is not None
    assert claimed.value <= gain.value <= claimed.most


@pytest.mark.parametrize(
    ("host_ms", "device_ms", "recorded_ms", "won"),
    [
        (7.0, 6.0, 7.0, (2.0, 3.0, 3.256)),  # 3 of it are left, give or take 0.256: a replay's error of nothing won
        (8.0, 6.0, 8.0, (1.744, 2.0, 2.256)),
        (2.0, 6.0, 2.0, (2.0, 4.0, 6.0)),
        (7.0, 6.0, 12.0, (2.0, 3.0, 3.81)),  # recording took 5 of the host's time: 1.28 of 0.12 of it, and 0.256
        (9.5, 9.6, 12.0, (0.266, 0.727, 6.0)),  # hidden behind the device: of 9.5 +- 0.36, below 9.6, 9.27 is expected
    ],
)
def test_shorter_kernels_win_their_time_as_far_as_the_host_leaves_room(
    monkeypatch: pytest.MonkeyPatch, host_ms: float, device_ms: float, recorded_ms: float, won: tuple[float, ...]
) -> None:
    """Of a step of 10 ms, replayed as one of 20, kernels of 4 go, 2 to 6."""
    trace = joint().trace.with_unprofiled_step(10e6)
    told = Mock(step_ns=20e6, host_ns=host_ms * 2e6, device_ns=device_ms * 2e6, unreplayable=None)
    monkeypatch.setattr(pricing, "expected_pricer", lambda *_: told)
    monkeypatch.setattr(pricing, "pricers", lambda _: {0: Mock(host_ns=recorded_ms * 2e6)})
    gain = pricing._beside_host(Quantity(4.0, "ms", low=2.0, high=6.0), 0, trace)
    assert (gain.low, gain.value, gain.high) == pytest.approx(won, abs=0.01)
    assert pricing._beside_host(gain, 1, trace) is gain  # a rank without a host


LAYER = [1, 2, 3, 4, 5]
MODEL = [6, *LAYER, *LAYER, *LAYER, 7]


@pytest.mark.parametrize(
    ("step", "products", "calls"),
    [
        ([*MODEL, *MODEL, 8, 9], {3}, 2),
        ([*MODEL, *MODEL, *MODEL, 8], {3, 7}, 3),
        ([*MODEL, *MODEL, 8, 9], {3, 9}, None),  # a product outside: layers of a larger model
        ([6, *LAYER, *LAYER, 7], {3}, None),  # layers
        ([*MODEL, 8, 9], {3}, None),
        ([*MODEL, 8, *MODEL, 9], {3}, None),  # something between
        (MODEL * 6, {3}, None),  # a loop in time
        *(([*first, *LAYER * count, 8, 9], {3}, None) for first in ([6], []) for count in (4, 6, 8, 9, 12)),  # a stack
        ([6, *2 * LAYER, 6, *2 * LAYER, 7], {3}, 2),  # with an embedding each, a model of two
    ],
)
def test_calls_of_a_modelin_a_row_are_told_from_layers(step: list[int], products: set[int], calls: int | None) -> None:
    codes = np.array(step * 3)
    found = repeated_calls._calls(codes, np.isin(codes, list(products)), 3)
    assert (None if found is None else found.count.tolist()) == (None if calls is None else [calls] * 3)
    if found is not None:
        assert len(found.again()) == 3 * (calls - 1 if calls else 0) * found.length


def test_grids_fill_multiprocessors_with_one_block_each_or_with_as_many_as_threads_allow() -> None:
    """Of 10 multiprocessors 5 blocks of 128 threads fill half, or of 16 blocks on each a 32nd; 20 blocks all, or 1/8.

    A second call of 5 us, of which 1 is what any kernel takes: with all of them filled 4 of 5 remain, with half none.
    """
    trace = trace_of("""
| devices | device | sm_count |
| gpu | 0 | 10 |

| device_ops | kind | name | start_us | end_us | grid_x | grid_y | grid_z | block_x | block_y | block_z |
| half | kernel | gemm | 0 | 5 | 5 | 1 | 1 | 128 | 1 | 1 |
| all | kernel | gemm | 5 | 10 | 20 | 1 | 1 | 128 | 1 | 1 |
| unknown | kernel | gemm | 10 | 15 | | | | | | |
| sums | kernel | ncclDevKernel_AllReduce_Sum | 15 | 20 | 2 | 1 | 1 | 640 | 1 | 1 |
| messages | kernel | ncclDevKernel_SendRecv | 20 | 25 | 2 | 1 | 1 | 640 | 1 | 1 |
""")
    fills, packed = one_stream.fills(trace)
    assert fills.tolist() == [0.5, 1.0, 1.0, 1.0, 1.0]  # twice the bytes take twice the time
    assert packed.tolist() == [1 / 32, 1 / 8, 1.0, 1.0, 1.0]
    remaining = repeated_calls.remaining_share(trace, np.arange(5), fills, np.full(5, 2))
    assert remaining.tolist() == [0.0, 0.8, 0.8, 0.8, 0.8]


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
    assert page_of(made, "x").title == f"no plan: {made.refused} · x"


def test_fixes_name_only_each_other() -> None:
    named = {other for fix in FIXES for other in (*fix.subsumes, *fix.excludes, *fix.needs, *fix.after)}
    assert named <= set(BY_NAME)


def test_pinned_copies_are_offered_where_no_finding_asks_and_are_a_finding_s_own_where_one_does() -> None:
    diagnosis = diagnose(joint().trace)
    asked = [named for named in diagnosis.findings if named[0].name == "pageable-copies"]
    (unasked,) = (
        one for one in candidates(replace(diagnosis, findings=()), ProgramKind.PYTORCH) if one.fix.name == "pin_memory"
    )
    assert [type(part) for part in unasked.parts(joint().trace, 0, frozenset(), eased=False)] == [PinCopies]
    own = [one for one in candidates(diagnosis, ProgramKind.PYTORCH) if one.fix.name == "pin_memory"]
    assert [one.findings for one in own] == [tuple(asked)]


@pytest.mark.parametrize(
    ("cause", "late_rank", "parts_on", "is_one"),
    [
        ("pageable-copies", 1, (1,), True),
        ("pageable-copies", 1, (1, 1), True),
        ("pageable-copies", 1, (0,), False),
        ("pageable-copies", 1, (0, 1), False),
        ("host-python", 1, (1,), False),
        ("", 1, (1,), False),
    ],
)
def test_a_late_rank_and_what_makes_it_late_are_one_step(
    cause: str, late_rank: int, parts_on: tuple[int, ...], is_one: bool
) -> None:
    """Where all that a fix mends is why the rank is late, making the rank early does that too."""
    cards, ms = {rule.card.name: rule.card for rule in all_rules()}, Quantity(5.0, "ms")
    where = Where(rank=late_rank, device=late_rank)
    late = Finding("m", Bottleneck.STRAGGLER, where, (), "do", "check", stated=ms, cause=cause)
    pinned = Finding(
        "m", Bottleneck.HOST_TO_DEVICE_COPY, where, (), "do", "check", stated=ms, fix=BY_NAME["pin_memory"]
    )
    parts = [(cards["pageable-copies"], replace(pinned, where=Where(rank=rank))) for rank in parts_on]
    named = ((cards["straggler"], late), *parts)
    made = candidates(replace(diagnose(joint().trace), findings=named), ProgramKind.PYTORCH)
    found = {one.fix.name: one for one in made}
    assert found["straggler"].fix.subsumes == (("pin_memory",) if is_one else ())
    together = Joint(joint().trace, 0, joint().step_ms, list(found.values())).effective({"straggler", "pin_memory"})
    assert together == ({"straggler"} if is_one else {"straggler", "pin_memory"})


@pytest.mark.parametrize(
    ("cause", "fix", "is_unknown"),
    [
        (Bottleneck.UNRECORDED_CODE, None, True),
        (Bottleneck.UNRECORDED_CODE, "less_host_work", False),  # Python, though nothing says where
        (Bottleneck.LATE_START, None, True),
        (Bottleneck.HOST_PYTHON, "less_host_work", False),
        (Bottleneck.HOST_SYNC, None, False),
    ],
)
def test_what_has_no_change_yet_is_no_step_of_the_plan(cause: Bottleneck, fix: str | None, is_unknown: bool) -> None:
    found = Finding(
        "m", cause, Where(rank=0), (), "do", "check", stated=Quantity(5.0, "ms"), fix=BY_NAME[fix] if fix else None
    )
    card = next(rule.card for rule in all_rules() if rule.card.name == "host-python")
    made = candidates(replace(diagnose(joint().trace), findings=((card, found),)), ProgramKind.PYTORCH)
    assert any(one.findings for one in made) is not is_unknown


def test_a_rung_that_later_ones_make_superfluous_is_said_to_be() -> None:
    """Of 10 ms fewer launches win 6 and a graph 8 with or without them; 6 then need not be won, a wait that a graph
    cannot hold has to."""
    wins = {("fused",): 6.0, ("cuda_graph",): 8.0, ("remove_sync",): 0.0, ("remove_sync", "cuda_graph"): 8.0}
    after = {"fused": (), "cuda_graph": ("remove_sync",), "remove_sync": ()}
    made = Mock(offered={name: Mock(fix=Mock(needs=(), after=others)) for name, others in after.items()})
    made.gain = lambda names: Quantity(wins[tuple(names)], "ms")
    won = Quantity(8.1, "ms")
    assert list(_superfluous(made, ["fused", "cuda_graph"], won, 0.2)) == [
        "fused wins only 100 us more beside the later changes: leave it out if you make those"
    ]
    assert list(_superfluous(made, ["fused", "cuda_graph"], won, 0.05)) == []
    assert list(_superfluous(made, ["remove_sync", "cuda_graph"], won, 0.2)) == []
    made.offered["cuda_graph"].fix.needs = ("fused",)
    assert list(_superfluous(made, ["fused", "cuda_graph"], won, 0.2)) == []


STEP_MS = 100.0


def gain(low: float, value: float, high: float) -> Quantity:
    return Quantity(value, "ms", low, high)


TOGETHER = {
    frozenset[str](): 0.0,
    frozenset({"batch"}): 43.0,
    frozenset({"graph"}): 41.0,
    frozenset({"bf16"}): -27.0,
    frozenset({"batch", "graph"}): 45.0,
    frozenset({"batch", "bf16"}): 32.0,
    frozenset({"graph", "bf16"}): 77.0,
    frozenset({"batch", "graph", "bf16"}): 79.0,
}


def together(names: Collection[str]) -> Quantity:
    return gain(*(3 * [TOGETHER[frozenset(names)]]))


def test_what_is_expected_weighs_the_ends_of_an_interval() -> None:
    assert expected(gain(17, 17, 80)) == pytest.approx(0.3 * 17 + 0.4 * 17 + 0.3 * 80)
    assert expected(Quantity(5.0, "ms", 5.0, None)) == pytest.approx(5.0)
    assert expected(None) == 0.0


def test_a_change_that_leads_further_comes_before_one_that_wins_a_little_more() -> None:
    assert in_order(("batch", "graph", "bf16"), together) == ("graph", "bf16", "batch")


def offered(asked: Mapping[str, Finding], singles: Mapping[str, Quantity], roots: Collection[str]) -> Joint:
    """Changes whose gains add up; `asked` says which finding asks for each."""

    def of(name: str) -> Any:
        findings = ((Mock(code="AAA101"), asked[name]),) if name in asked else ()
        return SimpleNamespace(fix=BY_NAME[name], findings=findings, mends_a_cause=name in roots)

    def joined(names: Collection[str]) -> Quantity:
        known = [singles[name] for name in names if name in singles]
        return gain(*(sum(part) for part in zip((0, 0, 0), *((q.low, q.value, q.high) for q in known), strict=True)))

    def likely(names: Collection[str]) -> float:
        return joined(names).value

    return Mock(offered={name: of(name) for name in singles}, gain=joined, likely_ms=likely, step_ms=STEP_MS)


FIRST, OTHER = Mock(recoverable=gain(20, 48, 60)), Mock(recoverable=gain(5, 9, 20))


@pytest.mark.parametrize(
    ("singles", "roots", "wanted"),
    [
        # a change that wins more comes first only where it does so at its least, too
        ({"loader_workers": gain(20, 48, 60), "compile_graph": gain(44, 78, 90)}, {"loader_workers"}, "loader_workers"),
        ({"loader_workers": gain(20, 48, 60), "compile_graph": gain(49, 78, 90)}, {"loader_workers"}, "compile_graph"),
        # what a symptom asks for comes after a cause that wins nearly as much
        ({"tf32": gain(19, 20, 21), "pin_memory": gain(15, 16, 17)}, {"pin_memory"}, "pin_memory"),
        ({"tf32": gain(19, 20, 21), "pin_memory": gain(13, 14, 15)}, {"pin_memory"}, "tf32"),
        # what no finding asks for must win at its least
        ({"padding": gain(1, 30, 60), "tf32": gain(5, 6, 7)}, set(), "tf32"),
        # of two that make the same, the lesser where the greater adds too little
        ({"bf16": gain(20, 21, 22), "tf32": gain(19, 20, 21)}, set(), "tf32"),
        ({"bf16": gain(1, 1.5, 2)}, set(), None),
    ],
)
def test_the_next_change_by_hand(singles: Mapping[str, Quantity], roots: Collection[str], wanted: str | None) -> None:
    asked = {"loader_workers": FIRST, **dict.fromkeys(("compile_graph", "tf32", "pin_memory", "bf16"), OTHER)}
    joint = offered(asked, singles, roots)
    top = FIRST if "loader_workers" in singles else None
    assert best(joint, singles, (), 0.02 * STEP_MS, top) == wanted


@pytest.mark.parametrize(
    ("wins", "counted", "said"),
    [
        (gain(20, 48, 60), 48.0, ""),
        (gain(20, 48, 60), 30.0, "loader_workers wins 48.0 ms, AAA101 is priced at 30.0 ms: the rest is"),
        (gain(20, 30, 60), 48.0, "loader_workers wins 30.0 ms, AAA101 is priced at 48.0 ms: that price leaves out"),
    ],
)
def test_a_plan_says_where_its_price_is_not_the_diagnosis_s(wins: Quantity, counted: float, said: str) -> None:
    finding = Mock(recoverable=gain(counted, counted, counted), fix=None)
    joint = offered({"loader_workers": finding}, {"loader_workers": wins}, ())
    rung = Mock(id="loader_workers", gain=wins)
    found = ladder._beside_diagnosis(joint, [rung], {"loader_workers": wins}, (Mock(code="AAA101"), finding), 2.0)
    told = "".join(found)
    assert told.startswith(said)
    assert bool(told) == bool(said)


def test_a_plan_says_where_its_first_change_is_another_one_for_the_same_finding() -> None:
    finding = Mock(recoverable=gain(30, 30, 30))
    finding.fix.name = "tf32"
    joint = offered({"bf16": finding}, {"bf16": gain(20, 48, 60)}, ())
    rung = Mock(id="bf16", gain=gain(20, 48, 60))
    (told,) = ladder._beside_diagnosis(joint, [rung], {"bf16": rung.gain}, (Mock(code="AAA101"), finding), 2.0)
    assert told == "bf16 wins 48.0 ms, AAA101 is priced at 30.0 ms: that is the price of tf32, which repairs the same"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"loader_workers": gain(20, 48, 60)}, "compile_graph comes before loader_workers, the change for AAA101, "),
        ({"loader_workers": gain(0, 1, 2)}, "loader_workers, for AAA101, the first finding, wins too little"),
        ({}, "AAA101, the first finding, has no change that can be replayed: the plan starts with compile_graph"),
    ],
)
def test_a_plan_says_why_it_does_not_begin_with_the_first_finding(own: Mapping[str, Quantity], said: str) -> None:
    singles = {"compile_graph": gain(49, 78, 90), **own}
    joint = offered({"loader_workers": FIRST, "compile_graph": OTHER}, singles, ())
    rung = Mock(id="compile_graph", gain=singles["compile_graph"])
    (told,) = ladder._beside_diagnosis(joint, [rung], singles, (Mock(code="AAA101"), FIRST), 2.0)
    assert told.startswith(said)


def test_what_may_win_more_is_named_with_its_least() -> None:
    (said,) = ladder._notes((), frozenset(), {"batch_small_calls": Quantity(3.14, "ms", low=0.0, high=5.0)})
    assert said == "batch_small_calls may win another 3.14 ms, perhaps nothing; no finding asks for it"
