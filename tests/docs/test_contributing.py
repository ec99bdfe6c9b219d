"""The table of CONTRIBUTING that says where things are names files that exist and speak of what was asked."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEAKS_OF = {
    "the blame of an idle gap": "class IdleBlame",
    "what a fix of computing answers and changes": "training.FUSED_OPTIMIZER",
    "the H100's peak": "H100",
    "what an optimizer step is called": "OPTIMIZER_STEP",
    "the sentence of a verdict": "def without_finding",
    "the HTML timeline": "timeline",
    "the Kineto number parser": "parse_digits",
    "the bound on false alarms": "def false_alarm",
    "the exit code of a failed gate": "def exit_code",
    "the redaction of a path": "path",
}


def test_ten_things_are_where_contributing_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (the .+?|what .+?) \| `(.+?)` \|$", text, re.MULTILINE))
    assert set(rows) == set(SPEAKS_OF)
    for question, place in rows.items():
        assert SPEAKS_OF[question] in (ROOT / place).read_text("utf-8"), question
