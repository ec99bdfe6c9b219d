"""The picker of the page "Which tool first?" answers as `timesink doctor` does, in a browser without a network."""

from pathlib import Path

import pytest
from tests.browser.pages import launched, needs_browser
from tests.docs.commands import ROOT

import site_pages
from timesink.capture.choice import ANSWERS, GAUGES, QUESTIONS, UNSURE, choose, command_of
from timesink.cli.which import KnownFigures
from timesink.records import field_names

SYMPTOMS = (
    "step slow, GPU utilisation 60 %",
    "step slow, gpu busy 95 percent",
    "CUDA out of memory after 300 steps",
    "ranks wait for each other in nccl all-reduce",
    "one kernel has bank conflicts and low occupancy",
    "my vLLM server has a latency of 2 s",
    "torch.compile recompiles at every step",
    "a C++ program without Python",
    "is overlap real, or do the stages run one after the other?",
    "which line is slow",
    "multi-GPU overlap",
    "how full is NVLink",
    "the job hangs in a barrier",
    "rollouts wait for the policy",
    "FP8 is not faster",
    "where does the start-up time go",
    "it got slower after an upgrade",
    "training is slow",
    "",
    "constructor",
    "é GPU idle Δ",
)


def test_every_answer_can_be_the_picked_one() -> None:
    assert {choose(symptom).answer.name for symptom in SYMPTOMS} == {answer.name for answer in ANSWERS}


KNOWN: tuple[dict[str, float], ...] = (
    {"gpu_busy": 60},
    {"gpu_busy": 95},
    {"gpu_busy": 95, "one_kernel": 45},
    {"gpu_busy": 95, "short_kernels": 80},
    {"gpu_busy": 60, "one_kernel": 20},
    {"ranks": 8},
    {"ranks": 1},
    {"one_kernel": 15, "short_kernels": 45},
    {"gpu_busy": 90, "step_ms": 20_000},
    {"one_kernel": 50, "step_ms": 20_000},
    {},
)


@pytest.mark.parametrize(
    ("known", "name", "words"),
    [
        (KNOWN[0], "gaps", ("utilization 60 %",)),
        (KNOWN[1], "step", ("utilization 95 %",)),
        (KNOWN[2], "kernel", ("kernel 45%",)),
        (KNOWN[3], "gaps", ("short 80%",)),
        (KNOWN[4], "gaps", ("utilization 60 %",)),
        (KNOWN[5], "ranks", ("8 ranks",)),
        (KNOWN[6], "step", ()),
        (KNOWN[7], "step", ()),
    ],
)
def test_figures_speak_for_captures(known: dict[str, float], name: str, words: tuple[str, ...]) -> None:
    chosen = choose("", gauges=known)
    assert (chosen.answer.name, chosen.matched) == (name, words)


def test_a_slow_step_is_captured_a_few_times_and_only_where_steps_are_counted() -> None:
    few = command_of(choose("slow", gauges={"step_ms": 10_000}).answer, ["x"])
    assert few == ["timesink", "capture", "torch", "--settle", "1", "--timed", "2", "--steps", "2", "--", "x"]
    for symptom in ("one kernel", "a server", "C++ program"):
        assert "--timed" not in command_of(choose(symptom, gauges={"step_ms": 10_000}).answer, ["x"])


def test_the_options_of_the_command_are_the_gauges() -> None:
    assert list(field_names(KnownFigures)) == [gauge.name for gauge in GAUGES]


@pytest.mark.slow
def test_the_sliders_answer_as_the_command_does(tmp_path: Path) -> None:
    """The page's own parts without the site around them."""
    needs_browser()
    text = site_pages.which_page()
    parts = text[text.index('<div id="which">') : text.index("## The rules")]
    script = (ROOT / "docs" / "assets" / "which.js").read_text("utf-8")
    path = tmp_path / "which.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{parts}<script>{script}</script>", "utf-8")
    with launched(str(tmp_path / "profile")) as browser:
        page = browser.new_page()
        page.goto(path.as_uri())
        for symptom in ("", "GPU utilisation 30 %", "training is slow"):
            page.fill("#which-symptom", symptom)
            for known in KNOWN:
                while (forget := page.locator("#which-gauges button:visible")).count():
                    forget.first.click()
                for name, value in known.items():
                    page.fill(f"#which-{name}", f"{value:g}")
                expected = choose(symptom, gauges=known)
                lines, unsure = page.locator("#which-answer p").all_inner_texts(), f"{UNSURE}: {' '.join(QUESTIONS)}"
                assert lines[0] == f"type: {' '.join(command_of(expected.answer, ['python', 'train.py']))}", known
                assert lines[1].removeprefix("because of: ") == (", ".join(expected.matched) or unsure)
        assert page.get_by_label("ranks", exact=True).count() == 1


@pytest.mark.slow
def test_the_page_answers_as_the_command_does(tmp_path: Path, published: Path) -> None:
    needs_browser()
    with launched(str(tmp_path / "profile")) as browser:
        page = browser.new_page()
        page.goto((published / "site" / "how-to" / "which-tool.html").as_uri())
        for symptom in SYMPTOMS:
            page.fill("#which-symptom", symptom)
            expected = choose(symptom)
            lines = page.locator("#which-answer p").all_inner_texts()
            assert page.get_attribute("#which-answer", "data-answer") == expected.answer.name, symptom
            assert lines[0] == f"type: {' '.join(command_of(expected.answer, ['python', 'train.py']))}"
            if expected.matched:
                assert lines[1] == f"because of: {', '.join(expected.matched)}"
            assert lines[2] == f"why: {expected.answer.why}"
        page.fill("#which-symptom", "<img src=x onerror=alert(1)> idle")
        assert page.locator("#which-answer img").count() == 0
