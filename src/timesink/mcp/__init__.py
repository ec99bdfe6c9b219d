"""timesink for coding agents: a Model Context Protocol server of few tools, each of which answers a task.

It reads files under the roots it was given, marks every text that a trace may have dictated, and runs no program but
the commands that were declared when it was started. Here is what every answer is made of: values with units and
origins, foreign text marked as such, within a budget.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from timesink.diagnosis.verdicts import Evidence, Quantity
from timesink.untrusted import scrub, scrub_values, shortened
from timesink.untrusted.masking import redacted, without_tokens

BUDGET_BYTES = 4_000
"""The longest answer. What is left out has a handle: a cursor, a number, or a resource."""
_LEAST_ROWS = 5
NAME_CHARACTERS = 120
SENTENCE_CHARACTERS = 400
MARK = "_untrusted_text"


def named(text: str | None) -> str | None:
    """A name from a trace, short and without what tells secrets; it goes under a key that ends in `MARK`."""
    return None if text is None else scrub(redacted(text), NAME_CHARACTERS)


def sentence(text: str) -> str:
    """A sentence that may quote a trace; it too goes under a marked key."""
    return shortened(scrub(without_tokens(text), 2 * SENTENCE_CHARACTERS), SENTENCE_CHARACTERS)


def quantity(amount: Quantity | None) -> dict[str, Any] | None:
    """A value with its unit and bounds, three or more digits of each."""
    if amount is None:
        return None
    low, high = rounded(amount.low), rounded(amount.high)
    shown = {"value": rounded(amount.value), "unit": amount.unit, "low": low, "high": high}
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


def fitted(document: dict[str, Any], rows: str, cursor: int = 0, spare: Sequence[str] = ()) -> dict[str, Any]:
    """The document with as many items of the list `rows` as fit, and a cursor where some are left for another call.

    Where not even `_LEAST_ROWS` items fit, the keys of `spare` go, one by one; their names then stand under `left_out`.
    """
    clean: dict[str, Any] = scrub_values(document)
    gone: list[str] = []
    least = min(_LEAST_ROWS, len(clean[rows]))
    for key in spare:
        if _fits(_first(clean, rows, least, cursor)):
            break
        if clean.pop(key, None):
            gone.append(key)
            clean["left_out"] = gone
    kept = len(clean[rows])
    while kept and not _fits(_first(clean, rows, kept, cursor)):
        kept -= 1
    return _first(clean, rows, kept, cursor)


def _first(document: dict[str, Any], rows: str, kept: int, cursor: int) -> dict[str, Any]:
    """The document with the first `kept` rows, and the cursor of the next one where that is not all."""
    items = document[rows]
    if kept == len(items):
        return document
    return {**document, rows: items[:kept], "truncated": True, "next_cursor": cursor + max(kept, 1)}


def _fits(document: dict[str, Any]) -> bool:
    return len(text(document)) <= BUDGET_BYTES


def paged(document: dict[str, Any], rows: str, cursor: int, of: int) -> dict[str, Any]:
    """The document with as many of the rows shown as fit; where some of all `of` are left, the cursor to go on from."""
    end = cursor + len(document[rows])
    return fitted(document | ({"truncated": True, "next_cursor": end} if of > end else {}), rows, cursor)


def text(document: dict[str, Any]) -> str:
    """The document as compact JSON, as it goes to the agent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
