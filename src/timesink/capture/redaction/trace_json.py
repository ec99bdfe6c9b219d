"""JSON: traces of PyTorch's profiler event by event, other documents whole.

Of a trace the members and arguments that readers know are kept (`private_texts`), names of kernels as symbols, all
other texts word by word. Of another document the members are kept whose names are words of software.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from timesink.capture.redaction.cleaner import Cleaner, Number
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.knowledge import private_texts

_SPACE = " \t\r\n"
_MARKED = re.compile(private_texts.MARKED_NUMBER)
_ENDLESS = 1 << 28  # characters of one value; a trace's events have a few hundred
_TRACE = "traceEvents"


class _Damage(Exception):
    """The text ends or goes on in a way that is no JSON."""


class _Scanner:
    """Takes values from a text that comes in pieces."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._text, self._at = pieces, "", 0
        # numbers with a point keep their digits: a time in microseconds has more than a double holds
        self._decode = json.JSONDecoder(strict=False, parse_float=Number).raw_decode

    def next(self) -> str:
        """The next character that is no white space, left where it is; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def skip(self, wanted: str) -> None:
        """Step over one character."""
        if self.next() != wanted or not wanted:
            raise _Damage
        self._at += 1

    def value(self) -> Any:
        """One value, whole."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError:
                if len(self._text) - self._at > _ENDLESS or not self._more():
                    raise _Damage from None
                continue
            except RecursionError:
                raise _Damage from None
            if end < len(self._text) or not self._more():
                self._at = end
                return value

    def _more(self) -> bool:
        """Take as much again as is waiting, so that a long value is not tried too often."""
        waiting, taken = self._text[self._at :], []
        while (piece := next(self._pieces, None)) is not None:
            taken.append(piece)
            if sum(map(len, taken)) >= max(len(waiting), 1):
                break
        self._text, self._at = waiting + "".join(taken), 0
        return any(taken)


def redact_json(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Write the document with nothing but what is known."""
    kind = _learn(source, cleaner)
    unpacked = Unpacked(source)
    with writing(target) as file:
        try:
            _Writer(_Scanner(unpacked.pieces()), file, cleaner, kind).documents()
        except (_Damage, RecursionError):
            unpacked.damage = unpacked.damage or "it is damaged or cut off; what follows the damage is left out"
    return [*([unpacked.damage] if unpacked.damage else []), *cleaner.summary()]


def _learn(source: Path, cleaner: Cleaner) -> str:
    """Learn the names that the whole text tells of; whether it is a trace."""
    kind, tail = "", ""
    for piece in Unpacked(source).pieces():
        cleaner.learn_from((tail + piece).replace(private_texts.ESCAPED_SLASH, "/"))
        kind = kind or (_TRACE if f'"{_TRACE}"' in piece else "")
        tail = piece[-200:]  # a name that a piece cuts in two
    return kind


class _Writer:
    def __init__(self, scanner: _Scanner, file: IO[bytes], cleaner: Cleaner, kind: str) -> None:
        self._in, self._file, self._cleaner, self._kind = scanner, file, cleaner, kind
        self._written = False  # whether a member was

    def documents(self) -> None:
        """One document, or several one after the other, as lines of JSON are."""
        while mark := self._in.next():
            if mark == "{" and self._kind:
                self._members()
            elif mark == "[":
                self._list(self._element)
            else:
                self._put(self._cleaner.value(self._in.value()))
            self._file.write(b"\n")

    def _members(self) -> None:
        self._in.skip("{")
        self._file.write(b"{")
        self._written, first = False, True
        while self._in.next() != "}":
            if not first:
                self._in.skip(",")
            key = self._in.value()
            self._in.skip(":")
            self._member(key)
            first = False
        self._in.skip("}")
        self._file.write(b"\n}")

    def _member(self, key: Any) -> None:
        """Write one member where it is known."""
        if not isinstance(key, str):
            raise _Damage
        if key not in private_texts.TRACE_KEYS:
            self._in.value()
            self._cleaner.removed["members of unknown names"] += 1
            return
        self._file.write((b",\n" if self._written else b"\n") + json.dumps(key).encode() + b": ")
        self._written = True
        if key == _TRACE and self._in.next() == "[":
            self._list(lambda value: event(value, self._cleaner))
        else:
            self._put(self._cleaner.value(self._in.value(), key))

    def _list(self, clean: Callable[[Any], Any]) -> None:
        self._in.skip("[")
        self._file.write(b"[")
        first = True
        while self._in.next() != "]":
            if not first:
                self._in.skip(",")
            cleaned = clean(self._in.value())
            self._file.write(b"\n" if first else b",\n")
            self._put(cleaned)
            first = False
        self._in.skip("]")
        self._file.write(b"\n]")

    def _element(self, value: Any) -> Any:
        """Of a list at the top: an event, where it looks like one."""
        return event(value, self._cleaner) if isinstance(value, dict) and "ph" in value else self._cleaner.value(value)

    def _put(self, value: Any) -> None:
        self._file.write(dumped(value).encode())


def dumped(value: Any) -> str:
    """The value as JSON, numbers in the digits they were written with."""
    return _MARKED.sub(r"\1", json.dumps(value))


def event(value: Any, cleaner: Cleaner) -> Any:
    """One event of a trace: its known members, and of its arguments the known ones."""
    if not isinstance(value, dict):
        return cleaner.value(value)
    category = value.get("cat")
    kept = {key: inner for key, inner in value.items() if key in private_texts.EVENT_KEYS}
    if len(kept) < len(value):
        cleaner.removed["members of unknown names"] += len(value) - len(kept)
    for key, inner in kept.items():
        if key == "args" and isinstance(inner, dict):
            kept[key] = _arguments(inner, cleaner)
        elif key == "name" and isinstance(inner, str) and str(category) in private_texts.KERNEL_KINDS:
            kept[key] = cleaner.symbol(inner)
        elif not isinstance(inner, (int, float, Number)):
            kept[key] = cleaner.value(inner)
    return kept


def _arguments(given: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    kept = {}
    for key, value in given.items():
        if key in private_texts.KERNEL_ARGUMENTS and isinstance(value, str):
            kept[key] = cleaner.symbol(value)
        elif key in private_texts.ARGUMENT_KEYS or cleaner.is_metric(key):
            kept[key] = cleaner.value(value)
        else:
            cleaner.removed["members of unknown names"] += 1
    return kept
