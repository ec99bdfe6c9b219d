"""Make the two files of a new rule, every place to fill in marked with "...".

python tools/new_rule.py IDL101 device-starved --topic idle
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

RULES = Path(__file__).resolve().parents[1] / "src" / "timesink" / "rules"

RULE = '''"""...: one sentence, what the rule finds.

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

from timesink.diagnosis.verdicts import (
    Bottleneck,
    Card,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    Quantity,
    Verdict,
    Where,
)
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.tables import DEVICE_OPS
from timesink.diagnosis.rule import Facts, Limits, Rule


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found where ... is over the limit."""
    lines = facts(device_timeline)
    share = lines.idle_ns / lines.span_ns if lines.span_ns else 0.0
    limit = limits["idle_ratio"]
    shown = Evidence("idle share", Quantity(share, "ratio"), "...", limit=Quantity(limit, "ratio"), table="device_ops")
    if share <= limit:
        return Clear((shown,))
    finding = Finding(
        message=f"... {{share:.1%}} ... (limit {{limit:.0%}})",
        bottleneck=Bottleneck.LAUNCH_BOUND,
        where=Where(),
        evidence=(shown,),
        advice="...",
        verify="...",
    )
    return Found((finding,))


RULE = Rule(
    card=Card("{code}", "{name}", "...", __doc__ or "", since="{since}"),
    needs=(DEVICE_OPS,),
    check=check,
    limits={{"idle_ratio": Limit(0.1, "ratio", why="...", source="...")}},
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
    parser.add_argument("--since", default="0.1.0", help="version it first appears in")
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
    words = {"code": asked.code, "name": asked.name, "since": asked.since}
    for path, text in ((module, RULE), (module.with_suffix(".cases.md"), CASES)):
        path.write_text(text.format(**words), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
