"""The page that names the first capture, and the order of all pages of the documentation."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from timesink.capture.choice import COSTS, as_data
from timesink.render.markdown import code, escaped

DOCS = Path(__file__).resolve().parents[1] / "docs"
SITE = DOCS.parent / "mkdocs.yml"
GROUPS = {
    "Tutorial": ("tutorial", "first-step"),
    "How to": (
        "how-to",
        "install which-tool capture trainer diagnose-a-trace report perfetto query read-a-kernel-report memory "
        "compile-and-spikes many-ranks verify ci-gate configure agents agents-in-a-repository python write-a-rule",
    ),
    "Explanation": ("explanation", "life-of-a-datum what-a-trace-cannot-say science accuracy other-tools"),
    "Commands": ("commands", "index"),
    "Rules": ("rules", "index"),
    "Tables": ("tables", "index"),
    "Python": ("python", "index Trace Diagnosis Finding Page GateResult"),
    "JSON": ("json", "index"),
    "Decisions": ("decisions", ""),
}
TITLES = {"which-tool": "Which tool first?: "}  # the others are called as their heading says
_NAVIGATION = re.compile(r"^nav:\n(?:  .*\n)*", re.MULTILINE)
_PICKER = """<div id="which"><p><label for="which-symptom">What is wrong?</label><br>
<input id="which-symptom" type="text" size="60" value="step slow, GPU utilisation 60 %"></p>
<div id="which-gauges"></div>
<div id="which-answer" role="status" aria-live="polite"></div></div>
"""


def with_navigation(text: str) -> str:
    """mkdocs.yml with every page of docs/ in its navigation: those named here first, then the others by name."""
    lines = ["nav:", "  - index.md"]
    for group, (folder, first) in GROUPS.items():
        names = sorted(path.stem for path in (DOCS / folder).glob("*.md"))
        ordered = [name for name in first.split() if name in names]
        ordered += [name for name in names if name not in ordered]
        lines += [f"  - {group}:", *(f"      - {TITLES.get(name, '')}{folder}/{name}.md" for name in ordered)]
    lines.append("  - assumptions.md")
    return _NAVIGATION.sub("\n".join(lines) + "\n", text)


def _spoken_for(gauge: dict[str, Any]) -> str:
    """What a figure speaks for, on either side of its limit."""
    unit = f" {gauge['unit']}".rstrip()
    sides = ((gauge["above"], f"from {gauge['at']:g}{unit} on"), (gauge["below"], f"under {gauge['at']:g}{unit}"))
    said = ", ".join(f"*{answer}* {where}" for answer, where in sides if answer)
    return said or f"fewer steps from {gauge['at']:g}{unit} on"


def which_page() -> str:
    """The rules of `timesink which` as a table, and as data for the picker of docs/assets/which.js."""
    rules = as_data()
    data = json.dumps(rules, sort_keys=True).replace("<", "\\u003c").replace("&", "\\u0026")
    rows = [
        f"| {one['name']} | {code(shlex.join(one['command']), in_table=True)} | {escaped(one['why'])} | "
        f"{escaped(one['not_others'])} | {escaped(one['read_first'])} |"
        for one in rules["answers"]
    ]
    return f"""# Which tool first?

Say what is wrong, and move the sliders whose figures you know. The answer is the capture to begin with: that of the
rule below of which most words stand in your sentence. In a terminal the same rules answer
`timesink which "step slow, GPU utilisation 60 %"`, with `--short-kernels`, `--one-kernel`, `--ranks` and `--step-ms`.

{_PICKER}
<script type="application/json" id="which-rules">{data}</script>

## The rules

| about | type | why | why not another tool | read first |
|---|---|---|---|---|
{chr(10).join(rows)}

Figures count as their words do:

| figure | speaks for |
|---|---|
{chr(10).join(f"| {escaped(one['label'])} | {_spoken_for(one)} |" for one in rules["gauges"])}

Where no word of any rule occurs, *step* is where to begin.

## What a capture costs

{chr(10).join(f"- **{tool}**: {cost}." for tool, cost in COSTS.items())}

[Capture](capture.md) has the measured figures.
"""
