"""The text report says everything once, in the order a tired reader needs it, and wraps without breaking figures."""

import re
from typing import Any

import pytest
from tests.render.diagnoses import card, diagnosis, healthy

from timesink.diagnosis.verdicts import DeviceFigures, Quantity, Ruling, StepFigures, Undecided, Where
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.tables import limit_value_text, quantity_text, value_text
from timesink.render.text import console_text, text_console
from timesink.views import Page


def flat(text: str) -> str:
    return " ".join(text.split())


def test_verdict_figures_findings_and_the_rest_follow_each_other() -> None:
    text = render(diagnosis(), Format.TEXT, width=100, verbose=True)
    marks = ("bottleneck input_pipeline", "steps ", "compute", "1.  INP101", "because", "at  ", "do  ", "check")
    rest = ("clear  ", "n/a  ", "undecided  ", "note  ")
    places = [text.index(mark) for mark in (*marks, *rest)]
    assert places == sorted(places)


def test_the_verdict_is_one_sentence_to_paste() -> None:
    lines = render(diagnosis(), Format.TEXT, width=160, verbose=True).splitlines()
    assert lines[0] == "bottleneck input_pipeline"
    assert lines[1] == "data_load on thread 1234 takes 3.10 ms of the 12.3 ms step; the GPU waits 2.40 ms of it."


(_ENTRY,) = diagnosis().findings
WAITING = tuple(Ruling(card(f"SYN{n}", f"rule-{n}"), Undecided("no api_calls", "capture it")) for n in (101, 102))
CUT = StepFigures(0, None, None, None, source="ProfilerStep", dropped=("1 cut off",))
TWICE = (_ENTRY, (_ENTRY[0], replace(_ENTRY[1], message="transform takes 1.00 ms")))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "GPU idle in data_load: 19.5 % (limit 10 %); gaps under the range (device_ops rows 1, 5, 9, 13, 17 and 2"),
        ({}, "undecided SYN101 host-sync: no table api_calls in data_load. To decide: timesink capture data_load"),
        ({}, "10 steps (ProfilerStep data_load): p50 12.3 ms, p90 12.9 ms (p99 needs more steps)"),
        ({}, "left out: 2 warm-up data_load"),
        ({"rulings": WAITING}, "undecided SYN101 rule-101, SYN102 rule-102: no api_calls. To decide: capture it"),
        ({"findings": TWICE}, "also transform takes 1.00 ms: saves 2.10 ms (17.5 % of the step), 500 us to 2.40 ms"),
        ({"steps": CUT}, "no complete step (ProfilerStep); left out: 1 cut off"),
        ({"steps": StepFigures(1, 5.0, None, None)}, "1 step: p50 5.00 ms (p90 and p99 need more steps)"),
    ],
)
def test_what_is_said_of_evidence_steps_and_rules(changed: dict[str, Any], said: str) -> None:
    assert said in flat(render(replace(diagnosis(), **changed), Format.TEXT, width=100, verbose=True))


@pytest.mark.parametrize("said", ["bottleneck none", "no steps found", "no GPU work in the trace"])
def test_a_trace_without_steps_or_gpus_says_so(said: str) -> None:
    assert said in flat(render(healthy(), Format.TEXT, width=100, verbose=True))


@pytest.mark.parametrize("width", [60, 72, 100, 160])
def test_no_line_is_wider_than_asked_and_no_figure_is_parted_from_its_unit(width: int) -> None:
    text = render(diagnosis(), Format.TEXT, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(r"\d\n\s*(?:ms|%|us|GB)\b", text)
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_job_of_many_gpus_shows_the_first_sixteen_and_counts_the_rest() -> None:
    devices = tuple(DeviceFigures(rank, 0, "H200", 100, 90, 10, 90, 0, 0) for rank in range(1000))
    text = render(replace(diagnosis(), devices=devices), Format.TEXT, width=100, verbose=True)
    assert "984 more GPUs are not shown" in text
    assert text.count("H200") == 16


def test_one_rule_on_a_thousand_ranks_is_one_finding_with_the_others_beneath() -> None:
    (entry, *_) = diagnosis().findings
    places = tuple((entry[0], replace(entry[1], where=Where(rank=rank, device=0))) for rank in range(1000))
    text = flat(render(replace(diagnosis(), findings=places), Format.TEXT, verbose=True))
    assert text.count("INP101 input-pipeline") == 1
    assert text.count("Prefetch what data_load makes.") == 1
    assert "also rank 1, GPU 0: saves 2.10 ms (17.5 % of the step), 500 us to 2.40 ms" in text
    assert "995 more places (--format json lists them)" in text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.48, "ratio", "48.0 %"),
        (1.2e9, "ns", "1.20 s"),
        (0.9209, "s", "921 ms"),
        (25.5e9, "bytes", "25.5 GB"),
        (27.7, "GB/s", "27.7 GB/s"),
        (1234, "kernels", "1,234 kernels"),
        (3, "", "3"),
        (2.345, "1", "2.35"),
        (float("nan"), "ms", "unknown"),
    ],
)
def test_units_are_scaled_for_people(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit).removesuffix(" 1") == text


def test_a_limit_keeps_the_digits_it_was_written_with() -> None:
    assert limit_value_text(0.1, "ratio") == "10 %"
    assert limit_value_text(0.025, "ratio") == "2.5 %"
    assert limit_value_text(2.0, "ms") == "2 ms"
    assert quantity_text(Quantity(5.0, "ms", high=6.0)) == "5.00 ms (… to 6.00 ms)"


def test_text_in_a_notebook_is_returned_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    console = text_console(80, colour=False)
    console.print("busy")
    assert console_text(console) == "busy\n"


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize(
    ("note", "command"),
    [
        ("to measure: timesink try --only loader_workers,fused_optimizer,compile_graph -- python train.py", True),
        ("no baseline: make one: timesink gate baseline update --suite train --reason 'first' -- python t.py", True),
        ("record operators: timesink capture torch, or torch.autograd.profiler.emit_nvtx under nsys do it", False),
        ("timesink diagnose report.nsys-rep, the report that it looked at, says what each of them costs here", False),
        ("a step has one name: that of the pattern, which timesink takes from what the program calls it", False),
    ],
)
def test_a_command_that_a_note_ends_in_can_be_copied_at_any_width(note: str, command: bool, width: int) -> None:
    lines = render(Page("A page", (), (note,)), Format.TEXT, width=width).splitlines()
    own = [line.strip() for line in lines if line.startswith("  timesink ")]
    assert own == ([f"timesink {note.rpartition(': timesink ')[2]}"] if command else [])
    assert all(len(line) <= width for line in lines if not line.startswith("  timesink "))
