"""Figures and cells as text for people: the unit is scaled, a figure keeps three digits."""

from __future__ import annotations

import math
import re
from textwrap import fill
from typing import assert_never

from timesink.diagnosis.verdicts import Quantity
from timesink.units import NS_PER_MS, NS_PER_S, NS_PER_US, bytes_text, rate_text, share_text, time_text
from timesink.untrusted.scrub import defuse_lines, scrub, scrub_sentence
from timesink.views.page import Cell, Field

_NS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
_BYTES = {"bytes": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_RATES = {
    **{unit: (size, "B/s") for unit, size in (("bytes/s", 1.0), ("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9))},
    **{unit: (1.0, unit) for unit in ("FLOP/s", "Hz")},
}
_SHARES = ("ratio", "share")
# Stands for a space at which no line may be broken; scrubbed text cannot hold it, being private use.
TIE = "\ue000"
# The space between a figure and its unit, of any sentence.
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kMGT]?B(?:/s)?)(?![\w]))")


def value_text(value: float, unit: str) -> str:
    """One figure with its unit: ``12.3 ms``, ``48.0 %``, ``1,234 kernels``."""
    if not math.isfinite(value):
        return "unknown"
    if unit in _NS:
        return time_text(value * _NS[unit])
    if unit in _SHARES:
        return share_text(value)
    if unit in _BYTES:
        return bytes_text(value * _BYTES[unit])
    if unit in _RATES:
        size, name = _RATES[unit]
        return rate_text(value * size, name)
    return f"{number_text(value)} {unit}".rstrip()


def limit_value_text(value: float, unit: str) -> str:
    """A limit as it was written, without digits it never had: ``10 %``, ``2 ms``."""
    return f"{100 * value:.4g} %" if unit in _SHARES else f"{value:g} {unit}".rstrip()


def number_text(value: float) -> str:
    """A plain number: whole ones with separators, others with three digits or more."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.3g}"


def quantity_text(quantity: Quantity) -> str:
    """The figure, and the interval it lies in where that is known."""
    text = value_text(quantity.value, quantity.unit)
    if quantity.low is None and quantity.high is None:
        return text
    low = "…" if quantity.low is None else value_text(quantity.low, quantity.unit)
    high = "…" if quantity.high is None else value_text(quantity.high, quantity.unit)
    return f"{text} ({low} to {high})"


def cell_text(cell: Cell, column: Field) -> str:
    """A value scaled for people; `–` where it is not known."""
    match cell:
        case None:
            return "–"
        case bool():
            return "yes" if cell else "no"
        case int() | float():
            text = value_text(cell, column.unit) if column.unit not in ("", "1") else number_text(cell)
            return f"+{text}" if column.is_change and cell > 0 else text
        case str() if column.words:
            return column.words.get(cell) or scrub(cell)
        case str():
            return scrub(cell) if column.is_name else scrub_sentence(cell)
        case _:
            assert_never(cell)


def tied(text: str) -> str:
    """The text with every figure tied to its unit by `TIE`, so that wrapping does not part them."""
    return _FIGURE.sub(TIE, text)


def filled(text: str, width: int) -> str:
    """The text in lines of that width, every figure beside its unit."""
    return fill(tied(text), width).replace(TIE, " ")


def printed(text: str) -> str:
    """What a terminal is sent: without trailing blanks, and with no line a log would obey."""
    return defuse_lines("\n".join(line.rstrip() for line in text.replace(TIE, " ").split("\n")))
