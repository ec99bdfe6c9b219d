"""The README shows what a command answers, and the page of workflows what each of their steps shows."""

import re
from pathlib import Path

import pytest
from benchmarks.faults import suite
from tests.docs.commands import DOCS

import write_pages
import write_screens
from timesink.diagnosis.engine import diagnose
from timesink.readers import read
from timesink.render import Format, render

ROOT = Path(__file__).resolve().parents[2]


def test_links_lead_to_files_of_a_plain_clone() -> None:
    notes = [page for part in ("benchmarks", "fuzz", "packaging") for page in sorted((ROOT / part).rglob("*.md"))]
    kept = [*ROOT.glob("*.md"), *notes, *sorted((ROOT / "docs").rglob("*.md"))]
    assert write_pages.broken_links(ROOT, kept) == []


def test_first_contact_defect_28_the_diagnosis_of_the_first_page_is_that_of_the_bundled_capture() -> None:
    shown, _ = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    capture = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
    printed = iter(render(diagnose(read(capture, cache=False)), Format.TEXT).splitlines())
    missing = [line for line in shown.splitlines() if line.strip() and line not in printed]  # in their order
    assert missing == []


def test_the_picture_of_a_report_says_what_the_report_says() -> None:
    """`python tools/picture_report.py docs/images/report.png` takes it anew."""
    image = pytest.importorskip("PIL.Image")
    capture = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
    with image.open(ROOT / "docs" / "images" / "report.png") as picture:
        said = picture.text["Description"]
    statement = diagnose(read([capture], cache=False)).statement
    assert " ".join(said.split()) in statement and len(said) > 100


def test_the_screen_of_a_trial_is_what_is_printed_of_one() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert write_screens.with_screens(text) == text, "python tools/write_screens.py"
    assert write_screens.with_screens(text.replace("26.2 ms", "26.3 ms")) == text
    (screen,) = re.findall(r"screen: try -->\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert screen.count("26.2 ms") > 1 and max(map(len, screen.splitlines())) <= 100


def test_the_numbers_of_planted_programs_are_those_of_the_registry() -> None:
    healthy = sum(fault.bottleneck == suite.HEALTHY for fault in suite.FAULTS)
    said = f"{len(suite.FAULTS) - healthy} faults and {healthy} healthy programs"
    assert said in (ROOT / "README.md").read_text("utf-8")


WHOLE = ("The Nsight workflow", "Three views of a step", "The Nsight Systems lab")


def test_every_step_shows_something_and_says_what_is_missing() -> None:
    text = (DOCS / "explanation" / "workflows.md").read_text(encoding="utf-8")
    seen = []
    for section in text.split("\n## ")[1:]:
        lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
        for step, command, printed, status in ([cell.strip(" |") for cell in line] for line in lines if len(line) == 4):
            if step == "step":
                continue
            word, _, rest = status.partition(":")
            assert word.startswith("works") or (word == "partly" and rest), step
            assert (command and printed) or step == "no desktop needed", step
            if section.startswith(WHOLE):
                assert word.startswith("works"), step
            seen.append(step)
    assert len(seen) > 70
