"""What the first page shows is what the program prints."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.faults import suite

from timesink.diagnosis.engine import diagnose
from timesink.readers import read
from timesink.render import Format, render

ROOT = Path(__file__).resolve().parents[2]


def test_first_contact_defect_28_the_diagnosis_of_the_first_page_is_that_of_the_bundled_capture() -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    capture = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.gz"
    printed = iter(render(diagnose(read(capture, cache=False)), Format.TEXT).splitlines())
    missing = [line for line in shown.splitlines() if line.strip() and line not in printed]  # in their order
    assert missing == []


def test_the_numbers_of_planted_programs_are_those_of_the_registry() -> None:
    healthy = sum(fault.bottleneck == suite.HEALTHY for fault in suite.FAULTS)
    said = f"{len(suite.FAULTS) - healthy} faults and {healthy} healthy programs"
    assert said in (ROOT / "README.md").read_text("utf-8")
