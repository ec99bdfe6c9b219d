"""What timesink says of a capture, and the gain it predicts for one change: written down before that is measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.worked.ladders import Change

TIMESINK = (sys.executable, "-m", "timesink")
NS_PER_MS = 1e6


def asked(*words: str, timeout_s: float = 120.0) -> Any:
    """The JSON that one command of timesink prints."""
    command = [*TIMESINK, *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"timesink {words[0]}: {done.stderr.strip()[-400:] or done.stdout.strip()[-400:]}")
    return json.loads(done.stdout)


def looked_at(capture: Path, changes: list[Change]) -> dict[str, Any]:
    """Diagnosis of a capture, what-if prices of the changes that start from it, and how far products are from bound."""
    diagnosis = asked("diagnose", str(capture))
    prices = {text: priced(capture, text) for text in sorted({c.what_if for c in changes if c.what_if})}
    return {"diagnosis": diagnosis, "what_if": prices, "slack_ms": slack_ms(capture, changes)}


def priced(capture: Path, change: str) -> dict[str, Any]:
    """Low, value and high gain in ms per step of a what-if change, or why it has no price."""
    try:
        price = asked("plan", str(capture), "--change", change)["prices"][0]
    except RuntimeError as refused:
        return {"none_because": str(refused)}
    if price["remark"] and not price["gain_ns"]:
        return {"none_because": price["remark"]}
    return {key: price[f"{name}_ns"] / NS_PER_MS for key, name in (("low", "low"), ("value", "gain"), ("high", "high"))}


def slack_ms(capture: Path, changes: list[Change]) -> dict[str, float]:
    """Per pattern of operators: device time above the attainable bound, in ms per recorded step."""
    wanted = {change.slack_of for change in changes if change.slack_of}
    if not wanted:
        return {}
    from timesink.measures.kernels.attainable import attainable
    from timesink.measures.steps import steps
    from timesink.readers import read

    trace = read(next(capture.glob("rank0.json.gz")))
    rows = attainable(trace).operators.select("name", "device_ns", "bound_ns").rows()
    recorded = max(1, steps(trace).frame.height)
    return {
        pattern: sum(max(0.0, spent - bound) for name, spent, bound in rows if re.search(pattern, name))
        / recorded
        / NS_PER_MS
        for pattern in wanted
    }


def prediction(change: Change, looked: dict[str, Any]) -> dict[str, Any]:
    """Low, value and high gain in ms per step, and what it rests on."""
    named = [found for found in looked["diagnosis"]["findings"] if found["code"] in change.codes]
    if named:
        total = {key: sum(found["recoverable_ms_per_step"][key] for found in named) for key in ("low", "value", "high")}
        return {**total, "from": "finding", "codes": sorted({found["code"] for found in named})}
    price = looked["what_if"].get(change.what_if, {})
    if "value" in price:
        return {**price, "from": f"what-if {change.what_if}", "codes": []}
    most = looked["slack_ms"].get(change.slack_of, 0.0)
    return {"low": 0.0, "value": 0.0, "high": most, "from": "not named", "codes": []}
