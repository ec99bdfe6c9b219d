"""The picker of the page "Which tool first?" answers as `timesink doctor` does, in a browser without a network."""

from pathlib import Path

import pytest
from tests.browser.pages import launched, needs_browser
from tests.docs.commands import ROOT

import site_pages
from timesink.capture.choice import ANSWERS, GAUGES, QUESTIONS, UNSURE, choose, command_of, stated

SAID: dict[str, dict[str, float]] = {
    "80 % of the kernels are short": {"short_kernels": 80},
    "80% of all kernels take less than 10 us on the GPU": {"short_kernels": 80},
    "80 % of kernels under 10 us, 8 ranks": {"short_kernels": 80},
    "slow: 62.5 percent short kernels": {"short_kernels": 62.5},
    "tiny kernels make up 45 %": {"short_kernels": 45},
    "one kernel takes 45 % of the GPU time": {"one_kernel": 45},
    "a single kernel is 20 % of the step": {"one_kernel": 20},
    "45 % of the step is spent in one kernel": {"one_kernel": 45},
    "a step takes 20 s": {"step_ms": 20_000},
    "steps of 800 ms": {"step_ms": 800},
    "step time is about 1.5 minutes": {"step_ms": 90_000},
    "12 seconds per step": {"step_ms": 12_000},
    "GPU 95 % busy, one kernel takes 45 %, a step takes 20 s": {"gpu_busy": 95, "one_kernel": 45, "step_ms": 20_000},
    "80 % of kernels are short, GPU utilization 95 percent": {"gpu_busy": 95, "short_kernels": 80},
    # none of them
    "a kernel has 45 % occupancy": {},
    "rank 8 hangs after 300 steps": {},
    "step 20 stalls": {},
    "a latency of 2 s": {},
    "idle for 5 ms of a step": {},
    "20 sheep a step": {},
}

SYMPTOMS = (
    "step slow, GPU utilisation 60 %",
    "step slow, gpu busy 95 percent",
    "is it bandwidth or compute",
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
    *SAID,
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


@pytest.mark.parametrize("symptom", SAID)
def test_a_symptom_may_state_figures(symptom: str) -> None:
    assert stated(symptom)[0] == SAID[symptom]


@pytest.mark.parametrize("share", [10, 15, 45])
def test_a_figure_that_is_said_counts_as_one_that_is_given(share: int) -> None:
    """Its words count no second time: a kernel that takes little is no reason to look at it."""
    said, given = choose(f"slow, one kernel takes {share} %"), choose("slow, ", gauges={"one_kernel": share})
    assert said == given
    short, few = choose(f"{share} % of kernels are short, a step takes 20 s"), {"short_kernels": share, "step_ms": 2e4}
    assert short == choose(", ", gauges=few)
    assert choose("a step takes 20 s", gauges={"step_ms": 1}).answer == choose("").answer


def test_every_figure_of_the_page_can_be_said() -> None:
    """Those of the ranks are a word of their rule."""
    figures = {name for known in SAID.values() for name in known}
    assert figures == {gauge.name for gauge in GAUGES} - {"ranks"}
    assert choose("slow on 8 ranks").answer.name == choose("slow", gauges={"ranks": 8}).answer.name == "ranks"


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
        for symptom in ("", "GPU utilisation 30 %", "training is slow", "one kernel takes 45 %, a step takes 20 s"):
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
