"""Quantities as text for people: the unit is scaled, the figure keeps three digits.

Untrusted text in Markdown: it shows as written, links nowhere, mentions nobody and breaks no table.

A Rich console that writes into memory: width and colour are decided by the caller, never guessed here.
"""

from __future__ import annotations

import math
import re
from io import StringIO
from typing import TYPE_CHECKING

from timesink.diagnosis.verdicts import Quantity
from timesink.units import NS_PER_MS, NS_PER_S, NS_PER_US, bytes_text, share_text, time_text
from timesink.untrusted.scrub import NAME_CHARACTERS, defuse_lines, scrub, scrub_sentence

if TYPE_CHECKING:
    from rich.console import Console

_NS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
_BYTES = {"bytes": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_BYTES_PER_S = {"bytes/s": 1.0, "B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9}
_SHARES = ("ratio", "share")


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
    if unit in _BYTES_PER_S:
        return f"{bytes_text(value * _BYTES_PER_S[unit])}/s"
    return f"{number_text(value)} {unit}".rstrip()


def limit_value_text(value: float, unit: str) -> str:
    """A limit as it was written, without digits it never had: ``10 %``, ``2 ms``."""
    return f"{100 * value:.4g} %" if unit in _SHARES else f"{value:g} {unit}".rstrip()


def number_text(value: float) -> str:
    """A plain number: whole ones with separators, others with three digits or more."""
    if float(value).is_integer() and abs(value) < 1e15:
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


def recoverable_text(quantity: Quantity | None, period: str = "step") -> str:
    """What a fix would win back per step, or in the window. A bound is called one: a value that is its own upper end is
    `at most`. What costs memory and no time wins back `no time`."""
    if quantity is None:
        return "not priced"
    if quantity.value == quantity.low == quantity.high == 0:
        return "no time"
    if quantity.high is not None and quantity.value >= quantity.high and quantity.low != quantity.high:
        low = "" if not quantity.low else f", at least {value_text(quantity.low, quantity.unit)}"
        return f"at most {value_text(quantity.value, quantity.unit)} per {period}{low}"
    return f"{quantity_text(quantity)} per {period}"


_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>|~&$!])")
# GitHub acts on these after Markdown is done, so a backslash does not help; an empty comment splits them.
_AUTOMATIC = re.compile(r"(@|#)(?=\w)|(:)(?=//)|(\bwww)(?=\.)", re.IGNORECASE)


def escaped(text: str) -> str:
    """A sentence as literal Markdown on one line."""
    literal = _PUNCTUATION.sub(r"\\\1", scrub_sentence(text))
    return _AUTOMATIC.sub(r"\g<0><!-- -->", literal)


def code(text: str, *, in_table: bool = False) -> str:
    """A name as a code span, whatever backticks it holds."""
    name = scrub(text, NAME_CHARACTERS)
    if in_table:
        name = name.replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", name)), default=0)
    if not longest:
        return f"`{name or ' '}`"
    fence = "`" * (longest + 1)
    return f"{fence} {name} {fence}"


# Stands for a space at which no line may be broken; scrubbed text cannot hold it, being private use.
_TIE = "\ue000"
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kMGT]?B(?:/s)?)(?![\w]))")


def paper(width: int, colour: bool) -> Console:
    """A console of that width. Without colour it writes no escape sequence at all."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def tied(text: str) -> str:
    """The text with every figure tied to its unit, so that wrapping does not part them; `printed` unties."""
    return _FIGURE.sub(_TIE, text)


def printed(console: Console) -> str:
    """What was printed on `paper`, without trailing blanks, and with no line a log would obey."""
    assert isinstance(console.file, StringIO)
    lines = (line.rstrip() for line in console.file.getvalue().replace(_TIE, " ").split("\n"))
    return defuse_lines("\n".join(lines))
