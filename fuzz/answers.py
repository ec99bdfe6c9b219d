"""The invariants of an answer: what no document, text, page or table may say, whatever the input holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from timesink.diagnosis.verdicts import Diagnosis

# Controls other than the newline, bidirectional and other invisible characters, lone surrogates.
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LOG_COMMAND = re.compile(r"^\s*::[a-z]|##\w*\[", re.MULTILINE)
_NEARLY = 1 + 1e-9
_ROUNDED_NS = 1.0  # figures are whole nanoseconds where they are added


def check_text(text: str) -> None:
    """Nothing in words for a terminal or a log acts on it."""
    text.encode("utf-8")
    if found := ACTS.search(text) or _LOG_COMMAND.search(text):
        at = found.start()
        raise AssertionError(f"text holds {found.group()!r}: {text[max(0, at - 60) : at + 60]!r}")


def check_document(document: Any) -> None:
    """Every amount with bounds lies within them and, where it is saved of a step, within the step; rows sum up."""
    for part in _dictionaries(document):
        _check_order(part)
        if "parts" in part and "step_ms" in part:
            _check_sum(part)
        for rungs in part.values():
            if isinstance(rungs, list) and all(isinstance(one, dict) and "after_low_ns" in one for one in rungs):
                _check_rungs(rungs)


def _check_rungs(rungs: Sequence[Mapping[str, Any]]) -> None:
    """Each step of a plan begins where the one before it ends, and may take no longer than that one may."""
    before_ns = most_ns = rungs[0]["before_ns"] if rungs else 0.0
    for rung in rungs:
        _ordered("a rung's beginning", before_ns, rung["before_ns"], before_ns)
        _ordered("a rung", 0.0, rung["after_low_ns"], rung["after_ns"], rung["after_high_ns"], most_ns)
        before_ns, most_ns = rung["after_ns"], rung["after_high_ns"]


def checked_json(text: str) -> Any:
    """The document that a command printed, with its invariants checked: numbers are finite."""
    document = json.loads(text, parse_constant=_refuse)
    check_document(document)
    return document


def check_diagnosis(diagnosis: Diagnosis) -> None:
    """What is saved of a step lies between nothing and that step; no share is more than the whole."""
    for card, finding in diagnosis.findings:
        gain = finding.recoverable
        if gain is None:
            continue
        low = gain.value if gain.low is None else gain.low
        most = math.inf if finding.of_ms is None else finding.of_ms
        _ordered(f"{card.code}: {finding.message[:80]}", 0.0, low, gain.value, gain.most, most)
    for device in diagnosis.devices:
        parts = device.compute_ns + device.exposed_comm_ns + device.exposed_copy_ns + device.idle_ns
        if parts != device.span_ns or device.busy_ns + device.idle_ns != device.span_ns:
            raise AssertionError(f"the parts of a device are not its span: {device}")


def _refuse(name: str) -> float:
    raise AssertionError(f"a document holds {name}")


def _dictionaries(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of a document, the outer ones first."""
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            yield here
            left += here.values()
        elif isinstance(here, list):
            left += here


def _check_order(part: Mapping[str, Any]) -> None:
    bounds = [part.get(key) for key in ("low", "value", "high")]
    numbers = [number for number in bounds if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if part.get("value") is not None and len(numbers) > 1:
        _ordered("bounds", *numbers)


def _check_sum(part: Mapping[str, Any]) -> None:
    total, step = sum(row["ms"] for row in part["parts"]), part["step_ms"]
    count = max(1, part.get("steps") or 1)
    if abs(total - step) > max(1e-9 * abs(step), 1e-6 * _ROUNDED_NS * (1 + len(part["parts"]) / count)):
        raise AssertionError(f"parts sum to {total} ms, the step is {step} ms")


def _ordered(what: str, *numbers: float) -> None:
    for lower, upper in pairwise(numbers):
        if not lower <= upper * _NEARLY + 1e-9:
            raise AssertionError(f"{what}: {lower} is more than {upper}, of {numbers}")
