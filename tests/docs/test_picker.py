"""The picker of the page "Which tool first?" answers as `timesink which` does, in a browser without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.browser.pages import launched, needs_browser
from tests.docs.commands import ROOT

from timesink.capture.choice import ANSWERS, choose, command_of

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
    "training is slow",
    "",
    "constructor",
    "é GPU idle Δ",
)


def test_every_answer_can_be_the_picked_one() -> None:
    assert {choose(symptom).answer.name for symptom in SYMPTOMS} == {answer.name for answer in ANSWERS}


@pytest.mark.slow
def test_the_page_answers_as_the_command_does(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install mkdocs-material)")
    needs_browser()
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)], cwd=ROOT, check=True)
    with launched(str(tmp_path / "profile")) as browser:
        page = browser.new_page()
        page.goto((site / "how-to" / "which-tool.html").as_uri())
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
