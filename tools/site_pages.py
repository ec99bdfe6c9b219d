"""The page that names the first capture, and the table of false verdicts."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scipy import stats

from timesink.capture import choice
from timesink.render.markdown import code, escaped

DOCS = Path(__file__).resolve().parents[1] / "docs"
VERDICTS = DOCS.parent / "benchmarks" / "verify_example" / "README.md"
_COUNTED = DOCS.parent / "benchmarks" / "false_verdicts.json"
_SIMULATED = re.compile(r"(?<=<!-- simulated -->\n).*?(?=<!-- end of simulated -->)", re.DOTALL)
_PICKER = """<div id="which"><p><label for="which-symptom">What is wrong?</label><br>
<input id="which-symptom" type="text" size="60" value="step slow, GPU utilization 60 %"></p>
<div id="which-gauges"></div>
<div id="which-answer" role="status" aria-live="polite"></div></div>
"""


def with_verdicts(text: str) -> str:
    """The page with the table of false verdicts that `benchmarks.false_verdicts` counted."""
    kept = json.loads(_COUNTED.read_text(encoding="utf-8"))
    number, by_command = kept["experiments"], kept["commands"]
    lines = [
        f"`python -m benchmarks.false_verdicts`, {number:,} sessions for each kind of noise (seeds "
        f"({kept['seed']}, noise, 0 to {number - 1})):",
        "",
        "| noise | unchanged, called changed | +2 %, any verdict | +5 %, faster or no difference "
        "| interval without the truth | unchanged, decided in 12 pairs | +5 %, decided in 12 pairs |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in kept["noise"].items():
        missed = max(found[f"missed at {change}"] for change in ("0%", "2%", "5%"))
        false = [found[f"false at {change}"] for change in ("0%", "2%", "5%")]
        power = [found[f"soon at {change}"] / number for change in ("0%", "5%")]
        cells = [*(_rate(count, number) for count in (*false, missed)), *(f"{100 * share:.1f} %" for share in power)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    tried = by_command["experiments"]
    wrong = ", ".join(
        f"{by_command[f'false at {change}']} of {by_command[f'tried at {change}']} {where}"
        for change, where in (("0%", "without a change"), ("2%", "at +2 %"), ("5%", "at +5 %"))
    )
    lines += [
        "",
        f"Through the command line, with a program that hands these step times over: {tried} sessions, of which "
        f"{by_command['as by Python']} end as by Python; false are {wrong}.",
    ]
    return _SIMULATED.sub(lambda _: "\n".join(lines) + "\n", text)


def _rate(count: int, number: int) -> str:
    """A share, and the interval of 95 % (Clopper and Pearson) that it is known by."""
    at = stats.binomtest(count, number).proportion_ci(method="exact")
    return f"{100 * count / number:.1f} % ({100 * at.low:.1f} to {100 * at.high:.1f})"


def _spoken_for(gauge: dict[str, Any]) -> str:
    """What a figure speaks for, on either side of its limit."""
    unit = f" {gauge['unit']}".rstrip()
    sides = ((gauge["above"], f"from {gauge['at']:g}{unit} on"), (gauge["below"], f"under {gauge['at']:g}{unit}"))
    said = ", ".join(f"*{answer}* {where}" for answer, where in sides if answer)
    return said or f"fewer steps from {gauge['at']:g}{unit} on"


def _rules() -> dict[str, Any]:
    """The rules of `choice.choose` as plain data, for a page that answers without Python. `words` are regular
    expressions that mean the same in JavaScript."""
    answers = [
        {
            "name": answer.name,
            "tool": answer.tool,
            "command": choice.command_of(answer, ["python", "train.py"]),
            **{name: getattr(answer, name) for name in ("why", "not_others")},
            "cost": choice.COSTS[answer.tool],
            "read_first": answer.read_first,
            "words": answer.patterns,
            "counts_steps": answer.counts_steps,
        }
        for answer in choice.ANSWERS
    ]
    return {
        "answers": answers,
        "gauges": [{**asdict(gauge), "said": gauge.patterns} for gauge in choice.GAUGES],
        "units": dict(choice._UNITS),
        "slow_step_ms": choice._SLOW_STEP_MS,
        "fewer_steps": list(choice._FEWER_STEPS),
        "percent": choice._PERCENT.pattern,
        "unsure": f"{choice.UNSURE}: {' '.join(choice.QUESTIONS)}",
        "speaks_of_use": list(choice._SPEAKS_OF_USE),
    }


def which_page() -> str:
    """The rules of `timesink doctor` as a table, and as data for the picker of docs/assets/which.js."""
    rules = _rules()
    data = json.dumps(rules, sort_keys=True).replace("<", "\\u003c").replace("&", "\\u0026")
    rows = [
        f"| {one['name']} | {code(shlex.join(one['command']), in_table=True)} | {escaped(one['why'])} | "
        f"{escaped(one['not_others'])} | {escaped(one['read_first'])} |"
        for one in rules["answers"]
    ]
    return f"""# Which tool first?

Say what is wrong, and move the sliders whose figures you know. The answer is the capture to begin with: that of the
rule below of which most words stand in your sentence. In a terminal the same rules answer
`timesink doctor "step slow, GPU utilization 60 %"`. Figures may stand in the sentence: "80 % of kernels are short",
"one kernel takes 45 %", "8 ranks", "a step takes 20 s".

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

{chr(10).join(f"- **{tool}**: {cost}." for tool, cost in choice.COSTS.items())}

[Capture](capture.md) has the measured figures.
"""
