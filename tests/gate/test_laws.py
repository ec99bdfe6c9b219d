"""Every sentence of every capture's diagnosis is true, as far as it can be read back into numbers."""

import re
from pathlib import Path

import pytest
from tests.gate.answers import Answers
from tests.gate.causes import causes_are_owned, unrecorded_time_is_named_so
from tests.gate.doors import one_late_rank
from tests.gate.programs import Program
from tests.gate.sentences import false_sentences
from tests.gate.test_gate import captured
from tests.gate.test_siblings import steps, told

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis, Quantity
from timesink.measures.steps.per_step import step_windows
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo() -> tuple[Diagnosis, Trace]:
    trace = read(ROOT / "src/timesink/cli/demo/gpt_before.json.xz")
    return diagnose(trace), trace


def share_of(text: str, name: str, points: float) -> str:
    """The text with the share after `name` changed by so many points."""
    return re.sub(
        rf"({name} (?:is )?)([\d.]+) %", lambda found: f"{found[1]}{float(found[2]) + points:.1f} %", text, count=1
    )


def test_the_unchanged_sentences_pass(demo: tuple[Diagnosis, Trace]) -> None:
    assert false_sentences(*demo) == []


MUTATIONS = {
    "shares sum": lambda d: replace(d, statements=(share_of(d.statements[0], "backward", 1.0),)),
    "by sequence numbers backward": lambda d: replace(
        d, statements=(share_of(share_of(d.statements[0], "backward", -5.0), "outside ranges", 5.0),)
    ),
    "micro-batches": lambda d: replace(d, statements=(f"{d.statements[0]}; 28 micro-batches to an optimizer step",)),
    "generated name": lambda d: replace(d, statements=("attribution: ## Call CompiledFxGraph fabc ## is 100 %",)),
    "more is done than the step holds": lambda d: replace(
        d, statements=("overlap: compute 8.00 ms, copies 7.00 ms of the 9.00 ms step; OverlapScore 0.10 (0 ...)",)
    ),
    "the verdict saves what no finding does": lambda d: replace(
        d, statement=re.sub(r"saves [\d.]+ ms", "saves 9.99 ms", d.statement)
    ),
    "there are no steps": lambda d: replace(d, steps=replace(d.steps, count=0)),
    "is not": lambda d: first(d, message=d.findings[0][1].message.replace(" step ", " step (41.0 %) ")),
    "9.99 ms of the 12.4 ms step stands in no evidence": lambda d: first(
        d, message=d.findings[0][1].message.replace("1.85 ms", "9.99 ms")
    ),
    "stands in no evidence": lambda d: first(d, evidence=()),
    "do not belong here": lambda d: first(d, message="casts take long; 4.29 % of it can go"),
    "not low <= value <= high": lambda d: first(d, recoverable=Quantity(1.5, "ms", low=1.6, high=2.0)),
    "of a step of": lambda d: first(d, recoverable=Quantity(1.5, "ms", low=1.0, high=99.0)),
    "unprofiled step), ": lambda d: replace(
        d, findings=tuple((card, replace(one, of_ms=d.budgets[0].period_ns / 1e6)) for card, one in d.findings)
    ),
    "ms, of [12": lambda d: first(d, which=""),
    "together": lambda d: first(d, recoverable=Quantity(12.0, "ms", low=1.0, high=12.0), of_ms=12.3),
}


def first(diagnosis: Diagnosis, **changed: object) -> Diagnosis:
    """The diagnosis with its first finding changed."""
    (card, finding), *others = diagnosis.findings
    return replace(diagnosis, findings=((card, replace(finding, **changed)), *others))  # type: ignore[arg-type]


@pytest.mark.parametrize("said", MUTATIONS)
def test_a_false_sentence_is_caught(demo: tuple[Diagnosis, Trace], said: str) -> None:
    """First contact defects 3 and 7."""
    diagnosis, trace = demo
    assert any(said in fault for fault in false_sentences(MUTATIONS[said](diagnosis), trace))


def test_a_cause_of_the_step_without_its_finding_is_caught(demo: tuple[Diagnosis, Trace]) -> None:
    """A finding that claims the cause outside of the steps alone is none of it."""
    diagnosis, trace = demo
    assert list(causes_are_owned(Answers("true", trace, diagnosis))) == []
    inside = Intervals.union_of(*step_windows(trace, (0, 0)))
    found = tuple(
        (card, replace(one, claim=replace(one.claim, intervals={(0, 0): one.claim.intervals[0, 0] - inside})))
        for card, one in diagnosis.findings
    )
    (fault,) = causes_are_owned(Answers("false", trace, replace(diagnosis, findings=found)))
    assert fault.startswith("host sync takes 6.68 % of the step, of which findings claim 0%")


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
def test_unrecorded_time_by_another_name_is_caught(profiler: str, tmp_path: Path) -> None:
    program = Program()

    def step() -> None:
        program.launch("void at::native::elementwise_kernel<128, 2>(int)", 2000)
        program.wait()
        program.pause(3000)

    trace, diagnosis = told(steps(program, step), profiler, tmp_path)
    assert list(unrecorded_time_is_named_so(Answers("true", trace, diagnosis))) == []
    assert diagnosis.findings[0][1].bottleneck is Bottleneck.UNRECORDED_CODE
    false = first(diagnosis, bottleneck=Bottleneck.HOST_PYTHON)
    faults = " ".join(unrecorded_time_is_named_so(Answers("false", trace, false)))
    assert "mostly unrecorded" in faults and "below a bar" in faults


@pytest.mark.slow
def test_a_second_price_of_a_late_rank_is_caught(tmp_path: Path) -> None:
    """Steps that are slow on the rank that waits are the doing of the rank that is late."""
    archive = next((ROOT / "benchmarks/faults/captures").glob("*/saved_each_second_step.torch.tar.xz"))
    found = {name: (trace, paths) for name, trace, paths in captured(archive, tmp_path)}
    trace, paths = next(of for name, of in found.items() if name.endswith("high.fault"))
    diagnosis = diagnose(trace)
    assert list(one_late_rank(Answers("true", trace, diagnosis, tuple(paths)))) == []
    dear = Quantity(9.0, "ms", low=0.0, high=9.0)
    false = tuple(
        (card, replace(one, recoverable=dear) if card.code == "SPK101" else one) for card, one in diagnosis.findings
    )
    (fault,) = one_late_rank(Answers("false", trace, replace(diagnosis, findings=false), tuple(paths)))
    assert fault.startswith("a second late rank: 2 steps of 5")
