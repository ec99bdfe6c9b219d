"""The engine asks every rule once, prices what they find, ranks it, and never counts the same time twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.measures.idle.test_blamed_time import STEPPED
from tests.measures.steps.spike_traces import simulated
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.rule import Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Undecided,
    Verdict,
    Where,
)
from timesink.errors import UsageError
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, GPU_METRICS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace

MS = 1_000_000


def trace() -> Trace:
    """One device, 100 ms: two kernels of 40 ms with 20 ms between them; no steps."""
    ops = DEVICE_OPS.build(
        {
            "rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel",
            "name": ["a", "b"], "start_ns": [0, 60 * MS], "end_ns": [40 * MS, 100 * MS],
        }
    )  # fmt: skip
    return Trace("t", {DEVICE_OPS: ops}, (ImportNote(NoteKind.DATA_LOSS, "lines lost", 3),))


def finding(bottleneck: Bottleneck, start_ms: int, end_ms: int) -> Finding:
    claim = Claim({(0, 0): Intervals.one(start_ms * MS, end_ms * MS)})
    return Finding(f"{bottleneck} costs time", bottleneck, Where(device=0), (), "do", "check", claim)


def rule(code: str, verdict: Verdict, **more: object) -> Rule:
    return Rule(code, lambda trace, limits: verdict, more.pop("needs", (DEVICE_OPS,)), **more)  # type: ignore[arg-type]


def test_findings_are_ranked_by_the_time_they_claim_and_the_first_is_the_verdict() -> None:
    small = rule("AAA101", Found((finding(Bottleneck.HOST_PYTHON, 40, 45),)))
    large = rule("BBB101", Found((finding(Bottleneck.HOST_SYNC, 45, 60),)))
    diagnosis = diagnose(trace(), rules=[small, large])
    assert [(card.code, f.recoverable.value) for card, f in diagnosis.findings if f.recoverable] == [
        ("BBB101", 15.0),
        ("AAA101", 5.0),
    ]
    assert diagnosis.bottleneck is Bottleneck.HOST_SYNC
    assert diagnosis.statement == "host_sync costs time; a fix saves at most 15.0 ms (15.0 % of the window)"


def test_time_claimed_twice_is_counted_once() -> None:
    whole = rule("AAA101", Found((finding(Bottleneck.HOST_SYNC, 40, 60),)))
    part = rule("BBB101", Found((finding(Bottleneck.HOST_PYTHON, 50, 60),)))
    diagnosis = diagnose(trace(), rules=[whole, part])
    worth = [f.recoverable.value for _, f in diagnosis.findings if f.recoverable]
    assert worth == [20.0, 0.0]


def test_a_finding_under_one_percent_of_the_step_is_reported_but_is_not_the_bottleneck() -> None:
    diagnosis = diagnose(trace(), rules=[rule("AAA101", Found((finding(Bottleneck.HOST_SYNC, 59, 60),)))])
    assert diagnosis.bottleneck is Bottleneck.HOST_SYNC
    nearly = Found(
        (Finding("m", Bottleneck.HOST_SYNC, Where(), (), "", "", Claim({(0, 0): Intervals.one(0, MS - 1)})),)
    )
    diagnosis = diagnose(trace(), rules=[rule("AAA101", nearly)])
    assert diagnosis.bottleneck is Bottleneck.NONE
    assert len(diagnosis.findings) == 1
    assert "busy 80.0 %" in diagnosis.statement


def test_a_missing_table_makes_the_rule_undecided_with_the_capture_that_decides_it() -> None:
    asked = rule("AAA101", Clear(()), needs=(DEVICE_OPS, GPU_METRICS), capture="capture counters")
    verdict = diagnose(trace(), rules=[asked]).rulings[0].verdict
    assert verdict == Undecided("the trace has no table gpu_metrics", "capture counters")


def test_every_rule_has_a_ruling_and_notes_are_kept() -> None:
    diagnosis = diagnose(trace(), rules=[rule("AAA101", Clear(())), rule("BBB101", NotApplicable("one device"))])
    assert [ruling.card.code for ruling in diagnosis.rulings] == ["AAA101", "BBB101"]
    assert tuple(map(str, diagnosis.notes)) == (
        "data_loss: lines lost (3 rows)",
        "no steps found: figures per step are for the whole window",
    )


def test_an_override_reaches_its_rule_and_an_unknown_one_is_refused_with_the_alternatives() -> None:
    seen: list[float] = []

    def check(trace: Trace, limits: Limits) -> Verdict:
        seen.append(limits["share"])
        return Clear(())

    asked = Rule("AAA101", check, (DEVICE_OPS,), limits={"share": Limit(0.1, "ratio", "why", "source")})
    diagnose(trace(), rules=[asked], overrides={"AAA101.share": 0.5})
    assert seen == [0.5]
    with pytest.raises(UsageError, match=r"AAA101\.share"):
        diagnose(trace(), rules=[asked], overrides={"AAA101.shore": 0.5})


def test_device_figures_sum_to_the_span() -> None:
    device = diagnose(trace(), rules=[]).devices[0]
    assert device.compute_ns + device.exposed_comm_ns + device.exposed_copy_ns + device.idle_ns == device.span_ns
    assert (device.busy_ns, device.idle_ns) == (80 * MS, 20 * MS)


def test_where_the_profiler_lengthens_the_step_the_device_is_held_against_both() -> None:
    stepped = trace_of(STEPPED)
    source = SOURCES.build({"rank": [0], "path": "t.json", "format": "t"})
    stepped = replace(stepped, tables={**stepped.tables, SOURCES: source})
    as_profiled = diagnose(stepped, rules=[]).statement
    assert "of the 9.00 ms step" in as_profiled
    assert "without the profiler" not in as_profiled
    shorter = diagnose(stepped, rules=[], unprofiled_step_ms=6.0).statement
    assert "of the 9.00 ms step as profiled," in shorter
    assert "of the 6.00 ms it takes without the profiler" in shorter
    alike = diagnose(stepped, rules=[], unprofiled_step_ms=8.9).statement
    assert "without the profiler" not in alike


@pytest.mark.parametrize("kind", ["gc", "recompile", "checkpoint"])
def test_a_few_slow_steps_are_never_the_usual_steps_headline(kind: str) -> None:
    """Of 40 steps one is slow: it comes after what the usual step loses, or is said apart from it."""
    with_loss, alone = (diagnose(simulated(seed, kind)[0]) for seed in (1, 2))
    codes = [card.code for card, _ in with_loss.findings]
    worth = [finding.recoverable.value for _, finding in with_loss.findings if finding.recoverable]
    assert with_loss.bottleneck is Bottleneck.INPUT_PIPELINE
    assert codes[:2] == ["IDL101", "IDL102"]
    assert codes[2] in ("IDL105", "IDL107", "CPY102")
    assert worth[2] > worth[0]  # it costs more, in one step
    assert with_loss.statement.startswith("enumerate(DataLoader)")
    assert alone.statement.startswith("the usual step holds nothing worth a change; ")
    assert alone.bottleneck is alone.findings[0][1].bottleneck
