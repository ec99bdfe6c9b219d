"""Make the page of a new rule, every place to fill in marked with "...", its declaration and its cases.

python tools/new_rule.py IDL101 device-starved --topic idle
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

FIRST = "0.1.0"
ROOT = Path(__file__).resolve().parents[1]

MODULE = '''"""Rules about {topic}."""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline import device_timeline
from timesink.model.trace import Trace


def _rows(trace: Trace) -> Rows:
    """A row per device: ..."""
    devices = {{(line.rank, line.device): line.idle for line in device_timeline(trace)}}
    return [
        Row(device, {{"idle_ratio": share_of_step(trace, device, idle)}}, time=idle) for device, idle in devices.items()
    ]


RULES: Final = (declare("{name}", _rows),)
'''
PAGE = """... (one sentence: what the rule finds).

## What it detects
...

## Why it matters
...

## How it is measured
...

## What to do
...

## When it misleads
...

# Texts

- Code: CODE
- Bottleneck: launch_bound
- Needs: device_ops
- Reads: api_calls, host_ops, ranges
- Message: device {device} ... {time} ...
- Advice: ...
- Verify: ...
- Fact idle_ratio: idle share of device {device}
  - How: ... (how it is measured)
  - Table: device_ops
- Limit idle_ratio: > 0.1
  - Why: ...
  - Source: ...
- Reference: https://...
"""
CASES = """# Cases of {name}

## Over the limit it is found
- Verdict: found launch_bound

| device_ops | name | start_ms | end_ms |
|------------|------|---------:|-------:|
| a kernel   | gemm |        0 |   4.45 |
| the next   | gemm |     5.55 |     10 |

## Just under the limit it is clear
- Verdict: clear

| device_ops | name | start_ms | end_ms |
|------------|------|---------:|-------:|
| a kernel   | gemm |        0 |   4.55 |
| the next   | gemm |     5.45 |     10 |

## Without device work it cannot look
- Verdict: undecided

| host_ops | name      | start_ms | end_ms |
|----------|-----------|---------:|-------:|
| an op    | aten::add |        0 |      1 |
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the files of a new rule.")
    parser.add_argument("code", help="three letters and three digits, never used before: IDL101")
    parser.add_argument("name", help="the pattern, not the remedy, in lower case: device-starved")
    parser.add_argument("--topic", required=True, help="file and folder under src/timesink/rules")
    parser.add_argument("--since", default=FIRST, help="version it first appears in")
    parser.add_argument("--into", type=Path, default=ROOT, help="another root of the project")
    asked = parser.parse_args()
    if not re.fullmatch(r"[A-Z]{3}[0-9]{3}", asked.code) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", asked.name):
        parser.error("a code is three letters and three digits, a name is lower-case words joined by '-'")
    rules = asked.into / "src" / "timesink" / "rules"
    module, page = rules / f"{asked.topic}.py", rules / asked.topic / f"{asked.name}.md"
    cases = asked.into / "tests" / "rules" / asked.topic / page.name
    taken = [path for path in rules.rglob("*.md") if f"Code: {asked.code}" in path.read_text(encoding="utf-8")]
    if page.exists() or taken:
        parser.error(f"already there: {taken[0] if taken else page}")
    for folder in (page.parent, cases.parent):
        folder.mkdir(parents=True, exist_ok=True)
    since = "" if asked.since == FIRST else f"\n- Since: {asked.since}"
    page.write_text(PAGE.replace("Code: CODE", f"Code: {asked.code}{since}"), encoding="utf-8")
    cases.write_text(CASES.format(name=asked.name), encoding="utf-8")
    print(page, cases, sep="\n")
    if module.exists() or any(page.parent.glob("*.py")):
        print(f'Add to the RULES of {asked.topic}:\n    declare("{asked.name}", _rows),')
    else:
        module.write_text(MODULE.format(topic=asked.topic, name=asked.name), encoding="utf-8")
        print(module)
    return 0


if __name__ == "__main__":
    sys.exit(main())
