"""Traces of PyTorch's profiler event by event, other JSON whole; logs by record, pages of Nsight Compute by column.

Of a trace the members and arguments that readers know are kept, of another document those whose names are words of
software; of other text the words, line by line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import DECODER, Cleaner, is_figure_at, is_private, json_in, write_json
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import kept_texts, ncu_texts, private_texts
from timesink.untrusted import read_rows

_ENDLESS = 1 << 28  # characters of one value; a trace's events have a few hundred
_md5 = partial(hashlib.md5, usedforsecurity=False)
_TRACE, _DIGEST = "traceEvents", "has_payload"


class _Scanner:
    """Takes values from a text that comes in pieces."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._text, self._at = pieces, "", 0

    def next(self) -> str:
        """The next character that is no white space, left where it is; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def skip(self, wanted: str) -> None:
        """Step over one character."""
        if self.next() != wanted or not wanted:
            raise ValueError
        self._at += 1

    def parts(self, brackets: str) -> Iterator[str]:
        """Step over what stands around the members of an object or a list; what to write before each."""
        self.skip(brackets[0])
        before = "\n"
        while self.next() != brackets[1]:
            yield before
            before = ",\n"
            if self.next() != brackets[1]:
                self.skip(",")
        self.skip(brackets[1])

    def value(self) -> Any:
        """One value, whole."""
        self.next()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value
            except ValueError:
                if len(self._text) - self._at > _ENDLESS or not self._more():
                    raise

    def _more(self) -> bool:
        """Take as much again as is waiting, so that a long value is not tried too often."""
        waiting, more = self._text[self._at :], ""
        while len(more) <= len(waiting) and (piece := next(self._pieces, None)) is not None:
            more += piece
        self._text, self._at = waiting + more, 0
        return bool(more)


def cleaned_json(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """Traces event by event, other documents as values; of one document, or of several in a row, as lines of JSON."""
    is_trace = any(f'"{_TRACE}"'.encode() in piece for piece in unpacked.overlapping())
    scanner = _Scanner(unpacked.pieces())
    try:
        while mark := scanner.next():
            yield from _members(scanner, cleaner) if mark == "{" and is_trace else _written(scanner, cleaner)
            yield "\n"
    except (ValueError, RecursionError):
        unpacked.damage = unpacked.damage or "it is damaged or cut off; what follows the damage is left out"


def _members(scanner: _Scanner, cleaner: Cleaner) -> Iterator[str]:
    """The known members of a trace."""
    before = "\n"
    yield "{"
    for _ in scanner.parts("{}"):
        key = str(scanner.value())
        scanner.skip(":")
        if key in kept_texts.TRACE_KEYS:
            yield f"{before}{json.dumps(key)}: "
            yield from _written(scanner, cleaner, key)
            before = ",\n"
        else:
            scanner.value()
            cleaner.keeps(key, is_open=False)  # which counts it
    yield "\n}"


def _written(scanner: _Scanner, cleaner: Cleaner, key: str = "") -> Iterator[str]:
    """A value; of a list of events, and of one at the top, each element when it is read."""
    if scanner.next() != "[" or key not in ("", _TRACE):
        yield write_json(cleaner.value(scanner.value(), key))
        return
    yield "["
    for before in scanner.parts("[]"):
        value = scanner.value()
        is_event = isinstance(value, dict) and (key or "ph" in value)
        is_kernel = is_event and str(value.get("cat")) in kept_texts.KERNEL_KINDS
        place = kept_texts.KERNEL_EVENT if is_kernel else kept_texts.EVENT if is_event else "words"
        yield before + write_json(cleaner.value(value, place=place))
    yield "\n]"


def cleaned_settings(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """YAML, TOML and the like: what stands at a private key goes whole, whatever is below it too."""
    private_indent: int | None = None
    for line in unpacked.lines():
        found = private_texts.SETTING.match(line)
        indent = len(line) - len(line.lstrip())
        if private_indent is not None and (not line.strip() or indent > private_indent):
            new = " " * indent + cleaner.private(line.strip())
        elif found is None:
            new, private_indent = cleaner.words(line), None
        else:
            key, given = found["key"], found["value"].strip()
            is_number = private_texts.PROCESS.match(given) is not None
            is_hidden = is_private(key, given.strip("\"'") or "x") or (is_number and not is_figure_at(key, given))
            private_indent = indent if is_hidden else None
            new = cleaner.words(found["head"]) + cleaner.at("private" if is_hidden else "process", given)
        yield f"{new}\n"


def cleaned_text(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """Pages of Nsight Compute by column, logs by record, other texts by line."""
    head = next(unpacked.raw(), b"").decode("utf-8", "replace")
    clean = _page if ncu_texts.PAGE_HEADER.search(head) else _lines
    try:
        yield from (f"{line}\n" for line in clean(unpacked, cleaner))
    except ValueError as error:
        raise refused(f"{unpacked.path.name} cannot be redacted: {error}", "export the page again") from None


def _lines(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """Line by line; below a record of a structured log its payload, of which the record has the digest."""
    for line, below in _with_below(unpacked.lines()):
        found = private_texts.LOG_LINE.match(line)
        head, rest = "", line
        if found is not None:
            begun, where, rest = found.span("level")[0], found.span("where")[0], found["rest"]
            head = f"{cleaner.words(line[:begun])}{line[begun:where]}{cleaner.words(found['where'])}] "
        envelope = json_in(rest) if found else None
        if isinstance(envelope, dict):
            digest, old = envelope.pop(_DIGEST, None), "\n".join(below)
            kept, new = cleaner.value(envelope), cleaner.payload(old)
            if digest is not None:
                kept[_DIGEST] = _md5(new.encode()).hexdigest() if digest == _md5(old.encode()).hexdigest() else "0"
            yield head + write_json(kept)
            yield from (f"\t{one}" for one in new.split("\n") if below)
        else:
            yield head + cleaner.words(rest)
            yield from (f"\t{cleaner.words(one)}" for one in below)


def _with_below(lines: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    """Each line with those below it that begin with a tab, as payloads of a log do."""
    above = next(lines, None)
    while above is not None:
        below, following = list[str](), next(lines, None)
        while following is not None and following.startswith("\t"):
            below.append(following[1:])
            following = next(lines, None)
        yield above, below
        above = following


def _page(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """The page with the columns that are known. Lines of others before it are dropped, those after it emptied."""
    text = unpacked.whole().decode("utf-8-sig", "replace")
    header = ncu_texts.PAGE_HEADER.search(text)
    begin = header.start() if header else len(text)
    if lines := text.count("\n", 0, begin):
        cleaner.removed["lines before the page"] += lines
    heads, units = list[str](), True
    for row in read_rows(text[begin:]):
        if not heads:
            heads = row
            counters = [head for head in row if ("__" in head or head.islower()) and cleaner.words(head) == head]
            places = dict.fromkeys(counters, "figure") | kept_texts.PAGE_COLUMNS
            columns = [(at, places[head]) for at, head in enumerate(row) if head in places]
            if len(columns) < len(heads):
                cleaner.removed["columns of unknown names"] += len(heads) - len(columns)
        if row == heads:
            yield _row(heads[at] for at, _ in columns)
        elif len(row) > 1 and (row[0].isdecimal() or (units and not row[0])):
            yield _row(cleaner.at(place, row[at]) for at, place in columns if at < len(row))
            units = False
        elif row:
            yield "removed"


def _row(cells: Iterable[str]) -> str:
    return ",".join('"{}"'.format(cell.replace('"', '""')) for cell in cells)
