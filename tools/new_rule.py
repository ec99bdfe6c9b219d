"""Make the two files of a new rule, every place to fill in marked with "...".

python tools/new_rule.py IDL101 device-starved --topic idle
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

FIRST = "0.1.0"
RULES = Path(__file__).resolve().parents[1] / "src" / "timesink" / "rules"

RULE = '''"""... (one sentence: what the rule finds).

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
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline.device_timeline import DeviceTimeline, device_timeline
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where ... is over the limit."""
    return found_or_clear([_judge(trace, line, limits["idle_ratio"]) for line in device_timeline(trace)])


def _judge(trace: Trace, line: DeviceTimeline, limit: float) -> Finding | Evidence:
    device = (line.rank, line.device)
    evidence = Evidence(
        f"idle share of device {{line.device}}",
        Quantity(share_of_step(trace, device, line.idle), "ratio"),
        "... (how it is measured)",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"device {{line.device}} ... {{of_step(trace, device, line.idle)}} ... (limit {{share_text(limit)}})",
        bottleneck=Bottleneck.LAUNCH_BOUND,
        where=Where(rank=line.rank, device=line.device),
        evidence=(evidence,),
        advice="...",
        verify="...",
        claim=Claim({{device: line.idle}}),
    )


RULE = Rule(
    "{code}",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, HOST_OPS, RANGES),
    limits={{"idle_ratio": Limit(0.1, "ratio", why="...", source="...")}},
    references=("https://...",),{since}
)
'''

CASES = """# Cases of {code} {name}

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
    parser = argparse.ArgumentParser(description="Make the two files of a new rule.")
    parser.add_argument("code", help="three letters and three digits, never used before: IDL101")
    parser.add_argument("name", help="the pattern, not the remedy, in lower case: device-starved")
    parser.add_argument("--topic", required=True, help="folder under src/timesink/rules")
    parser.add_argument("--since", default=FIRST, help="version it first appears in")
    parser.add_argument("--into", type=Path, default=RULES, help="another rules folder")
    asked = parser.parse_args()
    if not re.fullmatch(r"[A-Z]{3}[0-9]{3}", asked.code) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", asked.name):
        parser.error("a code is three letters and three digits, a name is lower-case words joined by '-'")
    folder = asked.into / asked.topic
    module = folder / f"{asked.name.replace('-', '_')}.py"
    taken = [path for path in asked.into.rglob("*.py") if f'"{asked.code}"' in path.read_text(encoding="utf-8")]
    if module.exists() or taken:
        parser.error(f"already there: {taken[0] if taken else module}")
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / "__init__.py"
    if not package.exists():
        package.write_text(f'"""Rules about {asked.topic}."""\n', encoding="utf-8")
    since = "" if asked.since == FIRST else f'\n    since="{asked.since}",'
    words = {"code": asked.code, "name": asked.name, "since": since}
    for path, text in ((module, RULE), (module.with_suffix(".cases.md"), CASES)):
        path.write_text(text.format(**words), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
