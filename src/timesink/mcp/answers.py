"""Answers that fit: plain values with units and origins, within a budget, foreign text marked as such."""

from __future__ import annotations

import json
import math
from typing import Any

from timesink.findings import Evidence, Quantity
from timesink.scrub import scrub, scrub_values, shortened

# About 2,000 tokens at three and a half characters each, the worst of names and figures.
BUDGET_CHARACTERS = 6_800
NAME_CHARACTERS = 120
SENTENCE_CHARACTERS = 400
MARK = "_untrusted_text"


def named(text: str | None) -> str | None:
    """A name from a trace, short; it goes under a key that ends in `MARK`."""
    return None if text is None else scrub(text, NAME_CHARACTERS)


def sentence(text: str) -> str:
    """A sentence that may quote a trace; it too goes under a marked key."""
    return shortened(scrub(text, 2 * SENTENCE_CHARACTERS), SENTENCE_CHARACTERS)


def quantity(found: Quantity | None) -> dict[str, Any] | None:
    """A value with its unit and bounds, three or more digits of each."""
    if found is None:
        return None
    shown = {"value": rounded(found.value), "unit": found.unit, "low": rounded(found.low), "high": rounded(found.high)}
    return {key: value for key, value in shown.items() if value is not None}


def evidence(fact: Evidence) -> dict[str, Any]:
    """A measured fact with where it comes from."""
    shown = {
        f"label{MARK}": sentence(fact.label),
        **(quantity(fact.measured) or {}),
        "limit": quantity(fact.limit),
        f"how{MARK}": sentence(fact.how),
        "source_table": fact.table or None,
        "rows": len(fact.rows) or None,
        "first_rows": list(fact.rows[:3]) or None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def rounded(value: float | None) -> float | int | None:
    """Five significant digits; whole numbers stay whole; what is not finite is not known."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or float(value).is_integer():
        return int(value)
    return float(f"{value:.5g}")


def fitted(document: dict[str, Any], rows: str, cursor: int = 0) -> dict[str, Any]:
    """The document with as many items of the list `rows` as fit, and a cursor where some are left for another call."""
    clean: dict[str, Any] = scrub_values(document)
    items = clean[rows]
    kept = len(items)
    while kept > 1 and len(text({**clean, rows: items[:kept]})) > BUDGET_CHARACTERS:
        kept -= 1
    if kept == len(items):
        return clean
    return {**clean, rows: items[:kept], "truncated": True, "next_cursor": cursor + kept}


def text(document: dict[str, Any]) -> str:
    """The document as compact JSON, as it goes to the agent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
