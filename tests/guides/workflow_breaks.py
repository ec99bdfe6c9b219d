"""What a row of the page of taught workflows is held by: the commands that take its step, what they must print, and
breaks of the product, each of which the row's test must catch."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from timesink.model.presentable import Origin
from timesink.model.trace import Trace
from timesink.records import field_names, replace
from timesink.views import Sheet

_BETWEEN = re.compile(r"""[\s│─█▏▒░,"<>]+""")
_EDGES = ".,;:()[]{}"
_TOGETHER = 3  # words with none between them


class Column(NamedTuple):
    """A column of a table whose numbers are 3 % too large, and whose texts are not told."""

    sheet: str
    column: str


class Words(NamedTuple):
    """Words that are printed no more."""

    said: str


class Instead(NamedTuple):
    """The command as if an option, a default or a file were ignored."""

    ask: str


Break = Column | Words | Instead


class Row(NamedTuple):
    """`asks` are commands of timesink, run in turn, or files; all of `shows` is printed, the words of each in their
    order and close together. `code` is the exit code of the last, None
    where a busy machine decides it."""

    step: str
    asks: tuple[str, ...]
    shows: tuple[str, ...]
    breaks: tuple[Break, ...]
    code: int | None = 0


class Held(NamedTuple):
    """A test that holds a row, `only` those cases of it whose names have that; and a line of the product that reads
    otherwise, which it must catch: file below src/timesink, text, text instead."""

    test: str
    file: str
    text: str
    instead: str
    only: str = ""


def printed_words(text: str) -> list[str]:
    return [word for part in _BETWEEN.split(text) if (word := part.strip(_EDGES)) and word not in "–…-"]


def is_shown(phrase: str, text: str) -> bool:
    """Whether the words come in their order, with at most a few others between them."""
    wanted, said = printed_words(phrase), printed_words(text)
    most = 3 * len(wanted) + 8 if len(wanted) > _TOGETHER else len(wanted)
    for begin in (at for at, word in enumerate(said) if word == wanted[0]):
        left = iter(said[begin : begin + most])
        if all(any(word == one for one in left) for word in wanted):
            return True
    return False


def broken(value: Any, by: Column) -> Any:
    """A result with that break; captures that it carries stay as they are."""
    if isinstance(value, Sheet) and value.key == by.sheet:
        at = next((at for at, column in enumerate(value.columns) if column.key == by.column), None)
        return value if at is None else replace(value, rows=tuple(_with(row, at) for row in value.rows))
    if isinstance(value, Struct) and not isinstance(value, (Trace, Origin)):
        found = {name: getattr(value, name) for name in field_names(value)}
        changed = {name: broken(one, by) for name, one in found.items()}
        return replace(value, **{name: one for name, one in changed.items() if one is not found[name]})
    if isinstance(value, tuple):
        parts = [broken(one, by) for one in value]
        made = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value if all(one is old for one, old in zip(parts, value, strict=True)) else made
    if isinstance(value, Mapping):
        return {name: broken(one, by) for name, one in value.items()}
    return value


def _with(row: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    cell = row[at]
    is_number = isinstance(cell, (int, float)) and not isinstance(cell, bool)
    return (*row[:at], type(cell)(round(cell * 1.03, 9) + (cell != 0) * isinstance(cell, int)) if is_number else None,
            *row[at + 1 :])  # fmt: skip
