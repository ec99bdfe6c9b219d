"""The laws of the one step and of the checks catch what they are there for: each falsehood is made by itself."""

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.gate import checks, steps
from tests.gate.answers import Answers, answers_of
from tests.tables import trace_of

from timesink.diagnosis.verdicts import Quantity
from timesink.measures.timeline import device_gaps
from timesink.readers import read
from timesink.records import replace
from timesink.views import Page
from timesink.views.statement import checks_page

DEMO = Path(str(files("timesink.cli").joinpath("demo"))) / "gpt_before.json.xz"


@pytest.fixture(scope="module")
def true() -> Answers:
    return answers_of(DEMO.name, read(DEMO), (DEMO,))


def test_what_is_said_keeps_them(true: Answers) -> None:
    assert [fault for law in (*steps.LAWS, *steps.OF_PAGES, *checks.LAWS) for fault in law(true)] == []


def with_doors(of: Answers, **doors: str) -> Answers:
    false = Answers(of.name, of.trace, of.diagnosis, of.paths)
    false.__dict__.update(doors={**of.doors, **doors}, plan=of.plan, plan_of_server=of.plan_of_server)
    return false


def another_bar(of: Answers, change: Callable[[dict[str, float]], object]) -> Answers:
    document = json.loads(of.doors["json"])
    change(document["step_parts"][0])
    return with_doors(of, json=json.dumps(document))


def dearer(of: Answers) -> Answers:
    (card, first), *others = of.diagnosis.findings
    first = replace(first, recoverable=Quantity(2.9, "ms", low=1.0, high=2.9))
    return Answers(of.name, of.trace, replace(of.diagnosis, findings=((card, first), *others)), of.paths)


def another_rung(of: Answers) -> Answers:
    false = with_doors(of)
    rungs = of.plan_of_server["rungs"]
    rungs = [rungs[0], {**rungs[1], "step_ms": rungs[1]["step_ms"] - 0.3}, *rungs[2:]]
    false.__dict__["plan_of_server"] = {**of.plan_of_server, "rungs": rungs}
    return false


def another_plan(of: Answers) -> Answers:
    false = with_doors(of)
    false.__dict__["plan"] = of.plan.replace("changes, 10.3 ms to", "changes, 12.4 ms to")
    return false


FALSE: dict[str, tuple[Callable[[Answers], Iterator[str]], Callable[[Answers], Answers]]] = {
    "a bar of other windows": (
        steps.bar_is_of_the_windows,
        lambda of: another_bar(of, lambda step: step.update(step_ms=20.0)),
    ),
    "a step more": (
        steps.bar_is_of_the_windows,
        lambda of: another_bar(of, lambda step: step.update(steps=12)),
    ),
    "a part that the rows do not have": (
        steps.bar_is_of_the_windows,
        lambda of: another_bar(of, lambda step: step["parts"][0].update(ms=7.0)),  # type: ignore[index, attr-defined]
    ),
    "a sentence of another step": (
        steps.one_step_on_a_page,
        lambda of: with_doors(of, md=of.doors["md"].replace("of the 12.4 ms step", "of the 11.4 ms step", 1)),
    ),
    "a plan of another step": (steps.every_door_begins_with_one_step, another_plan),
    "an estimate that nothing is a share of": (
        steps.every_door_begins_with_one_step,
        lambda of: with_doors(of, **{"-v": of.doors["-v"].replace("an estimated 10.3 ms", "an estimated 9.3 ms")}),
    ),
    "a rung that begins elsewhere": (steps.plan_adds_up, another_rung),
    "more is saved than is taken": (steps.price_within_its_time, dearer),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_step_is_caught(name: str, true: Answers) -> None:
    law, falsified = FALSE[name]
    assert list(law(falsified(true))) != []


@pytest.mark.parametrize(
    ("told", "false"),
    [
        ("3,263 gaps in the capture", "3,262 gaps in the capture"),
        ("572 kernels under", "57 kernels under"),
        ("24 copies in the capture; ", ""),
        ("0 kernels of collectives", "1 kernel of collectives"),
        ("take 0.04 % of the step", "take 4.04 % of the step"),
    ],
)
def test_a_false_count_is_caught(told: str, false: str, true: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = checks_page(true.trace).sheets[0]
    rows = tuple(tuple(str(cell).replace(told, false) for cell in row) for row in sheet.rows)
    assert rows != sheet.rows
    monkeypatch.setattr(checks, "checks_page", lambda _: Page("checks", (replace(sheet, rows=rows),)))
    assert list(checks.checks_are_counts(true)) != []


def test_idle_gpus_are_not_clear(true: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = checks_page(true.trace).sheets[0]
    rows = tuple((row[0], "clear", *row[2:]) for row in sheet.rows)
    monkeypatch.setattr(checks, "checks_page", lambda _: Page("checks", (replace(sheet, rows=rows),)))
    assert [fault for fault in checks.checks_are_counts(true) if "GPU idle gaps: clear with 3" in fault]


@pytest.mark.parametrize(
    ("runs", "gaps"),
    [
        ([(0, 10), (20, 20), (30, 40)], 1),
        ([(0, 0), (5, 5), (10, 20)], 1),
        ([(0, 10), (15, 15), (20, 20)], 1),
        ([(0, 10), (20, 20), (20, 30)], 1),
        ([(0, 10), (10, 10), (10, 20)], 0),
        ([(0, 30), (10, 20), (25, 25), (40, 50)], 1),
    ],
)
def test_what_has_no_length_parts_no_gap(runs: list[tuple[int, int]], gaps: int) -> None:
    rows = "\n".join(f"| k | k | {start} | {end} |" for start, end in runs)
    trace = trace_of(f"| device_ops | name | start_us | end_us |\n{rows}")
    assert checks.counted(trace)["GPU idle gaps"] == device_gaps(trace).op.size == gaps
