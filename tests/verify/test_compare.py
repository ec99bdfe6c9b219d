import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.strategies import traces
from tests.tables import trace_of

from timesink.diagnosis.verdicts import Bottleneck, Card, Diagnosis, Evidence, Finding, Quantity, StepFigures, Where
from timesink.measures.steps import steps
from timesink.measures.steps.parts import pacing_windows, step_kinds, step_series
from timesink.measures.timeline import device_timeline
from timesink.model.tables import RANGES
from timesink.model.trace import StepChoice, Trace
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.gate import changed_findings, finding_text, ranges
from timesink.render.schemas import schema
from timesink.verify.apportioning import apportion
from timesink.verify.calibration import RunDeviation, batch_logs, judge_captures
from timesink.verify.compare import (
    comparability,
    compare_captures,
    finding_changes,
    match_parts,
    range_changes,
    single_changes,
)
from timesink.verify.outcomes import Fate, Outcome, RangeSide, Reason


@given(st.lists(st.integers(0, 10**12), max_size=20), st.integers(1, 1000))
def test_apportioned_parts_sum_to_the_rounded_mean_and_are_off_by_less_than_one(totals: list[int], count: int) -> None:
    shares = apportion(totals, count)
    assert abs(sum(shares) - sum(totals) / count) <= 0.5
    assert all(abs(share - total / count) < 1 for share, total in zip(shares, totals, strict=True))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=12), st.data())
def test_every_part_is_matched_once_and_equal_ones_with_each_other(
    before: list[tuple[str, str]], data: st.DataObject
) -> None:
    after = data.draw(st.permutations(before))[: data.draw(st.integers(0, 12))]
    pairs = match_parts(before, after, lambda one: one, lambda one: one[0])
    assert sorted(old for old, _ in pairs if old) == sorted(before)
    assert sorted(new for _, new in pairs if new) == sorted(after)
    assert all(old == new for old, new in pairs if new)


def test_what_is_alike_by_the_first_function_is_a_pair_first() -> None:
    a, b, c, d = ("gemm", "forward"), ("gemm", "backward"), ("gemm", "backward"), ("gemm", "forward")
    assert match_parts([a, b], [c, d], lambda one: one, lambda one: one[0]) == [(a, d), (b, c)]
    assert match_parts([a], [], lambda one: one) == [(a, None)]


@settings(deadline=None, max_examples=examples(25))
@given(traces())
def test_kinds_of_time_sum_to_the_steps(trace: Trace) -> None:
    windows, kinds = pacing_windows(trace), step_kinds(trace)
    assert sum(kinds.values()) == int((windows["end_ns"] - windows["start_ns"]).sum())
    assert all(time_ns >= 0 for time_ns in kinds.values())
    if steps(trace).windows.height:
        assert int(step_series(trace).sum()) == sum(kinds.values())


def test_ranges_stand_side_by_side_as_the_mean_of_each_name() -> None:
    def made(ranges_: str, end_us: int) -> Trace:
        return trace_of(f"""
            | ranges | name | start_us | end_us |
            {ranges_}

            | device_ops | name | start_us | end_us   | correlation |
            | k          | gemm |       20 | {end_us} |           1 |

            | api_calls | name             | start_us | end_us | correlation |
            | c         | cudaLaunchKernel |       12 |     13 |           1 |
            """)

    before = made("| a | forward | 10 | 30 |\n| b | forward | 40 | 50 |\n| c | old | 60 | 61 |", 60)
    after = made("| a | forward | 10 | 22 |\n| b | new | 30 | 31 |", 40)
    changes = {one.name: one for one in range_changes(before, after)}
    assert changes["forward"].before == RangeSide(2, 15_000.0, 20_000.0)
    assert changes["forward"].after == RangeSide(1, 12_000.0, 20_000.0)
    assert changes["old"].after is changes["new"].before is None
    assert list(changes) == ["forward", "new", "old"]
    sheet = ranges(compare_captures((before, after)))
    assert sheet.rows[0] == ("forward", 2, 1, 15_000.0, 12_000.0, -3_000.0, 20_000.0, 20_000.0, 0.0)
    jsonschema.validate(json.loads(render(compare_captures((before, after)), Format.JSON)), schema("gate"))
    bare = replace(after, tables={table: frame for table, frame in after.tables.items() if table != RANGES})
    assert range_changes(before, bare) == range_changes(bare, before) == ()


def series(rng: np.random.Generator, ratio: float, run_sd: float, ar: float = 0.3, steps_: int = 120) -> np.ndarray:
    from scipy import signal

    noise = signal.lfilter([np.sqrt(1 - ar**2)], [1, -ar], rng.standard_normal(steps_ + 50))[50:]
    return 0.01 * ratio * np.exp(run_sd * rng.standard_normal()) * (1 + 0.01 * noise)


def test_two_captures_are_never_a_verdict_without_a_calibration() -> None:
    rng = np.random.default_rng(0)
    verdict = judge_captures(series(rng, 1, 0), series(rng, 1.5, 0), 0.02, None)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.ONE_RUN_A_SIDE)
    assert verdict.effect is not None
    assert verdict.effect.low > 1.4


def test_an_assumed_deviation_gives_a_tagged_verdict() -> None:
    rng = np.random.default_rng(0)
    verdict = judge_captures(series(rng, 1, 0), series(rng, 1.5, 0), 0.02, RunDeviation.stated(0.01))
    assert (verdict.outcome, verdict.tagged) == (Outcome.SLOWER, True)


@pytest.mark.slow
def test_calibrated_comparisons_leave_out_no_change_at_most_one_time_in_twenty() -> None:
    rng = np.random.default_rng(1)
    wrong = said = slower = 0
    for _ in range(2000):
        runs = 0.005 * rng.standard_normal(10)
        deviation = RunDeviation(float(runs.std(ddof=1)), 9, False)
        verdict = judge_captures(series(rng, 1, 0.005), series(rng, 1, 0.005), 0.01, deviation)
        if verdict.effect is not None:
            said += 1
            wrong += verdict.effect.excludes_one
            slower += verdict.outcome in (Outcome.SLOWER, Outcome.FASTER)
    assert said > 1800
    assert wrong / said <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / said)
    assert slower / said <= 0.005


@pytest.mark.slow
def test_a_five_percent_slow_down_is_found_with_a_calibration() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(500):
        deviation = RunDeviation(float((0.005 * rng.standard_normal(10)).std(ddof=1)), 9, False)
        found += (
            judge_captures(series(rng, 1, 0.005), series(rng, 1.05, 0.005), 0.01, deviation).outcome is Outcome.SLOWER
        )
    assert found / 500 >= 0.9


def test_batches_are_equal_contiguous_and_at_most_eight() -> None:
    assert len(batch_logs(np.ones(120))) == 8
    assert batch_logs(np.arange(1.0, 10)) == pytest.approx(np.log([2.5, 4.5, 6.5, 8.5]))


@pytest.mark.parametrize(
    ("before", "reason"),
    [([1.0] * 7, Reason.TOO_FEW_RUNS), ([], Reason.TOO_FEW_RUNS), ([0.0] * 10, Reason.BAD_VALUES),
     ([float("nan")] * 10, Reason.BAD_VALUES), (list(np.linspace(1, 2, 200)), Reason.NOT_STEADY),
     (list(np.linspace(1, 2, 40)), Reason.DRIFT)],
)  # fmt: skip
def test_what_cannot_be_judged_says_why(before: list[float], reason: Reason) -> None:
    verdict = judge_captures(before, [1.0] * 200, 0.02, RunDeviation.stated(0.01))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, reason)
    assert verdict.to_resolve


def test_captures_of_different_gpus_formats_or_rank_counts_are_invalid_unless_allowed() -> None:
    differing = {"gpu": ("H100", "H200"), "git": ("a", "b")}
    verdict = comparability(differing, (), 0.02)
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, Reason.OTHER_ENVIRONMENT)
    assert comparability(differing, ("gpu",), 0.02) is None
    assert comparability({"git": ("a", "b")}, (), 0.02) is None
    assert comparability({"ranks": ("1", "8")}, (), 0.02).reason is Reason.OTHER_WORK  # type: ignore[union-attr]


def test_more_than_one_difference_is_not_one_change(shared_data: Path) -> None:
    from timesink.readers import read

    trace = read([shared_data / "own" / "kineto" / "gpt_after.json.gz"])
    two = compare_captures((trace, trace), facts=({"torch": "2.10", "batch": "8"}, {"torch": "2.11", "batch": "16"}))
    assert any(note.startswith("not one change: 2 facts differ") for note in two.notes)
    one = compare_captures((trace, trace), facts=({"batch": "8"}, {"batch": "16"}))
    assert not any("not one change" in note for note in one.notes)


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [("own/kineto/gpt_before.json.gz", "own/kineto/gpt_after.json.gz", "idle: input pipeline -"),
     ("public/kineto/resnet50_workers0*", "public/kineto/resnet50_workers4*", "idle: input pipeline -"),
     ("public/nsys/h100_2gpu_before.sqlite", "public/nsys/h100_2gpu_after.sqlite", "idle: framework dispatch +")],
)  # fmt: skip
def test_real_captures_show_the_known_change_and_sum_to_it(
    shared_data: Path, before: str, after: str, moved: str
) -> None:
    from timesink.readers import read

    # The last two hold one pass over the blocks of a model: the block is what repeats.
    sides = [read([next(shared_data.glob(pattern))]) for pattern in (before, after)]
    if "2gpu" in before:
        sides = [trace.with_steps(StepChoice("FSDP::pre_forward")) for trace in sides]
    result = compare_captures((sides[0], sides[1]))
    largest = sorted(result.contributions, key=lambda part: -abs(part.delta_ns))[:3]
    means = next(row for row in result.rows if row.gated)
    assert means.before is not None
    assert means.after is not None
    assert moved in [f"{part.name} {'+' if part.delta_ns > 0 else '-'}" for part in largest]
    assert sum(part.delta_ns for part in result.contributions) == pytest.approx(
        (means.after - means.before) * 1e9, abs=1
    )
    for trace in sides:
        assert step_kinds(trace)["compute"] <= sum(budget.compute_ns for budget in device_timeline(trace))


MS = 1e6
STEADY = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.1]


def test_one_step_that_shortens_is_told_though_the_median_stays() -> None:
    before = [24.0 * MS, *(MS * value for value in STEADY)]
    after = [17.04 * MS, *(MS * value for value in STEADY)]
    assert single_changes(before, after, 0.02) == [
        "step 1 of 9: 24.0 ms before, 17.0 ms after (-29.0 %), where the median step changes by +0.0 %"
    ]


def test_steps_that_all_shorten_alike_leave_none_apart() -> None:
    assert single_changes([MS * value for value in STEADY], [0.7 * MS * value for value in STEADY], 0.02) == []


@pytest.mark.parametrize(("last", "told"), [(10.15, 0), (10.25, 1)])
def test_a_change_below_the_threshold_is_not_told(last: float, told: int) -> None:
    """The other steps do not change at all, so that the threshold of 2 % alone decides: 10.2."""
    before = [10.0 * MS] * 8
    assert len(single_changes(before, [*before[:-1], last * MS], 0.02)) == told


@pytest.mark.parametrize(("before", "after"), [(4, 4), (8, 7), (0, 0)])
def test_few_steps_or_unequally_many_are_not_paired(before: int, after: int) -> None:
    assert single_changes([10.0] * before, [10.0] * (after - 1) + [30.0] * bool(after), 0.02) == []


def test_scatter_alone_seldom_stands_apart() -> None:
    """Noise of 3 % on both sides of twenty steps: 1.35 % of captures name a step, since a deviation of twenty may
    come out small (two million drawn of the definition). Of 4,000 that is 54; over 120 has a probability below 1e-12.
    """
    noise = np.random.default_rng(20_261_122).normal(0, 0.03, (4_000, 2, 20))
    told = [single_changes(*(10 * MS * np.exp(pair)).tolist(), 0.02) for pair in noise]
    assert 0 < sum(map(bool, told)) <= 120


@given(st.permutations(range(9)))
def test_only_pairs_matter_not_their_order(order: list[int]) -> None:
    before = [MS * value for value in [24.0, *STEADY]]
    after = [MS * value for value in [17.04, *STEADY]]
    told = single_changes([before[at] for at in order], [after[at] for at in order], 0.02)
    assert [line.partition(":")[2] for line in told] == [
        " 24.0 ms before, 17.0 ms after (-29.0 %), where the median step changes by +0.0 %"
    ]
    assert told[0].startswith(f"step {order.index(0) + 1} of 9")


def finding(code: str, ms: float | None, **where: str | int) -> tuple[Card, Finding]:
    recoverable = None if ms is None else Quantity(ms, "ms")
    made = Finding(f"{code} costs", Bottleneck.HOST_SYNC, Where(**where), (), "do", "check", recoverable=recoverable)  # type: ignore[arg-type]
    return Card(code, code.lower(), "", "", "0.1"), made


def diagnosis(*findings: tuple[Card, Finding]) -> Diagnosis:
    return Diagnosis((), StepFigures(0, None, None, None), (), (), findings, Bottleneck.NONE, "")


def fates(before: Diagnosis, after: Diagnosis) -> list[tuple[str, Fate, float | None, float | None]]:
    return [(c.code, c.fate, c.before_ms, c.after_ms) for c in finding_changes(before, after)]


def test_findings_are_gone_new_changed_or_the_same() -> None:
    before = diagnosis(finding("AAA1", 2.0), finding("BBB1", 1.0), finding("CCC1", 1.0))
    after = diagnosis(finding("BBB1", 1.04), finding("CCC1", 1.06), finding("DDD1", 0.5))
    assert fates(before, after) == [
        ("AAA1", Fate.GONE, 2.0, None),
        ("BBB1", Fate.SAME, 1.0, 1.04),
        ("CCC1", Fate.CHANGED, 1.0, 1.06),
        ("DDD1", Fate.NEW, None, 0.5),
    ]


def test_of_two_findings_of_a_code_those_at_one_place_are_matched_first() -> None:
    before = diagnosis(finding("AAA1", 1.0, range="x"), finding("AAA1", 2.0, range="y"))
    after = diagnosis(finding("AAA1", 2.0, range="y"), finding("AAA1", 9.0, range="z"))
    assert {(old, new) for _, _, old, new in fates(before, after)} == {(2.0, 2.0), (1.0, 9.0)}


def test_a_finding_at_another_place_has_moved_and_one_on_another_stream_has_not() -> None:
    before = diagnosis(finding("AAA1", 1.0, range="x", line=3), finding("BBB1", 1.0, stream=7))
    after = diagnosis(finding("AAA1", 1.0, range="y", line=3), finding("BBB1", 1.0, stream=9))
    changes = finding_changes(before, after)
    assert [(one.code, one.fate, one.moved) for one in changes] == [
        ("AAA1", Fate.SAME, True), ("BBB1", Fate.SAME, False),
    ]  # fmt: skip
    assert [finding_text(one).partition(":")[0] for one in changed_findings(changes)] == ["moved"]


def test_a_diagnosis_compared_with_itself_has_only_the_same_findings() -> None:
    one = diagnosis(finding("AAA1", 1.0), finding("AAA1", None), finding("BBB1", 0.0))
    assert {fate for _, fate, _, _ in fates(one, one)} == {Fate.SAME}


@pytest.mark.parametrize(
    ("saved", "share", "said"),
    [
        ((1.0, 0.1), (0.06, 0.09), "saves less than before, yet waits rose from 6.00 % to 9.00 %"),
        ((0.1, 1.0), (0.09, 0.06), "saves more than before, yet waits fell from 9.00 % to 6.00 %"),
        ((1.0, 0.1), (0.09, 0.06), ""),
        ((1.0, 1.0), (0.06, 0.09), ""),
        ((1.0, 0.1), (0.06, 0.06), ""),
    ],
)
def test_a_price_that_falls_while_what_it_is_of_rises_says_both(
    saved: tuple[float, float], share: tuple[float, float], said: str
) -> None:
    """First contact defect B16: a price that fell from 767 us to 225 read like a cure of waits that had grown."""
    sides = []
    for ms, ratio in zip(saved, share, strict=True):
        card, made = finding("IDL102", ms)
        sides.append(diagnosis((card, replace(made, evidence=(Evidence("waits", Quantity(ratio, "ratio"), "timed"),)))))
    (change,) = finding_changes(*sides)
    assert said in change.message and ("yet" in change.message) == bool(said)
