"""Traces of PyTorch's profiler event by event, other JSON whole; logs of torch.compile by record, CSV pages of Nsight
Compute by column, other text by line.

Of a trace the members and arguments that readers know are kept (`kept_texts`), names of kernels as symbols, all
other texts word by word. Of another document the members are kept whose names are words of software.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import DECODER, Cleaner, is_figure_at, is_private, json_in, write_json
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.knowledge import kept_texts, ncu_texts, private_texts
from timesink.untrusted import read_rows

_SPACE = " \t\r\n"
_ENDLESS = 1 << 28  # characters of one value; a trace's events have a few hundred
_TRACE, _DIGEST = "traceEvents", "has_payload"


class _Damage(Exception):
    """The text ends or goes on in a way that is no JSON."""


class _Scanner:
    """Takes values from a text that comes in pieces."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._text, self._at = pieces, "", 0

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

    def parts(self, brackets: str) -> Iterator[None]:
        """Step over what stands around the members of an object or a list."""
        self.skip(brackets[0])
        while self.next() != brackets[1]:
            yield
            if self.next() != brackets[1]:
                self.skip(",")
        self.skip(brackets[1])

    def value(self) -> Any:
        """One value, whole."""
        self.next()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except ValueError:
                if len(self._text) - self._at > _ENDLESS or not self._more():
                    raise _Damage from None
                continue
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


def redact_json(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Traces event by event, other documents as values; of one document, or of several in a row, as lines of JSON."""
    is_trace = any(f'"{_TRACE}"'.encode() in piece for piece in unpacked.overlapping())
    scanner = _Scanner(unpacked.pieces())
    with writing(target) as file:
        try:
            while mark := scanner.next():
                for text in _members(scanner, cleaner) if mark == "{" and is_trace else _written(scanner, cleaner):
                    file.write(text.encode())
                file.write(b"\n")
        except (_Damage, RecursionError):
            unpacked.damage = unpacked.damage or "it is damaged or cut off; what follows the damage is left out"


def _members(scanner: _Scanner, cleaner: Cleaner) -> Iterator[str]:
    """The known members of a trace."""
    before = "{\n"
    for _ in scanner.parts("{}"):
        key = scanner.value()
        scanner.skip(":")
        if str(key) not in kept_texts.TRACE_KEYS:
            scanner.value()
            cleaner.value({str(key): None}, place=kept_texts.TRACE_KEYS)  # which counts it
            continue
        yield f"{before}{json.dumps(key)}: "
        before = ",\n"
        yield from _written(scanner, cleaner, key)
    yield "\n}" if before == ",\n" else "{\n}"


def _written(scanner: _Scanner, cleaner: Cleaner, key: str = "") -> Iterator[str]:
    """A value; of a list of events, and of one at the top, each element when it is read."""
    if scanner.next() != "[" or key not in ("", _TRACE):
        yield write_json(cleaner.value(scanner.value(), key))
        return
    before = "[\n"
    for _ in scanner.parts("[]"):
        value = scanner.value()
        is_event = isinstance(value, dict) and (key or "ph" in value)
        is_kernel = is_event and str(value.get("cat")) in kept_texts.KERNEL_KINDS
        place = kept_texts.KERNEL_EVENT if is_kernel else kept_texts.EVENT if is_event else "words"
        yield before + write_json(cleaner.value(value, place=place))
        before = ",\n"
    yield "\n]" if before == ",\n" else "[\n]"


def redact_settings(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """YAML, TOML and the like: what stands at a private key goes whole, whatever is below it too."""
    private_indent: int | None = None
    with writing(target) as file:
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
            file.write(f"{new}\n".encode("utf-8", "replace"))


def redact_text(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Pages of Nsight Compute by column, logs by record, other texts by line."""
    head = next(unpacked.raw(), b"").decode("utf-8", "replace")
    clean = _clean_page if ncu_texts.PAGE_HEADER.search(head) else _clean_lines
    with writing(target) as file:
        try:
            for line in clean(unpacked, cleaner):
                file.write(f"{line}\n".encode("utf-8", "replace"))
        except ValueError as error:
            raise refused(f"{unpacked.path.name} cannot be redacted: {error}", "export the page again") from None


def _clean_lines(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """Line by line, records of a log with the payload that stands below them behind tabs."""
    record: _Record | None = None
    for line in unpacked.lines():
        if record is not None and line.startswith("\t"):
            record.payload.append(line[1:])
            continue
        if record is not None:
            yield from record.written(cleaner)
        found, record = private_texts.LOG_LINE.match(line), None
        if found is None:
            yield cleaner.words(line)
            continue
        begun, where = found.span("level")[0], found.span("where")[0]
        head = f"{cleaner.words(line[:begun])}{line[begun:where]}{cleaner.words(found['where'])}] "
        if isinstance(envelope := json_in(found["rest"]), dict):
            record = _Record(head, envelope, [])
        else:
            yield head + cleaner.words(found["rest"])
    if record is not None:
        yield from record.written(cleaner)


class _Record(NamedTuple):
    """A line of a structured log, and the payload below it."""

    head: str
    envelope: dict[str, Any]
    payload: list[str]

    def written(self, cleaner: Cleaner) -> Iterator[str]:
        """Its lines: the digest of a payload is that of the new one."""
        digest = self.envelope.pop(_DIGEST, None)
        kept = cleaner.value(self.envelope)
        old = "\n".join(self.payload)
        new = cleaner.payload(old)
        if digest is not None:
            kept[_DIGEST] = _digest(new) if digest == _digest(old) else "0"
        yield self.head + write_json(kept)
        yield from (f"\t{line}" for line in new.split("\n") if self.payload)


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _clean_page(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """The page with the columns that are known. Lines of others before it are dropped, those after it emptied."""
    text = unpacked.whole().decode("utf-8-sig", "replace")
    header = ncu_texts.PAGE_HEADER.search(text)
    if header is None:
        return
    if header.start():
        cleaner.removed["lines before the page"] += text[: header.start()].count("\n")
    rows = read_rows(text[header.start() :])
    heads = next(rows)
    columns = [(at, place) for at, head in enumerate(heads) if (place := _column(head, cleaner))]
    if len(columns) < len(heads):
        cleaner.removed["columns of unknown names"] += len(heads) - len(columns)
    yield _row(heads[at] for at, _ in columns)
    units = True
    for row in rows:
        if row == heads:
            yield _row(heads[at] for at, _ in columns)
        elif len(row) > 1 and (row[0].isdecimal() or (units and not row[0])):
            yield _row(cleaner.at(place, row[at]) for at, place in columns if at < len(row))
            units = False
        elif row:
            yield "removed"


def _column(head: str, cleaner: Cleaner) -> str:
    """What the cells of a column may be; "" of one that is not known. Counters have numbers."""
    is_counter = ("__" in head or head.islower()) and cleaner.words(head) == head
    return kept_texts.PAGE_COLUMNS.get(head, "figure" if is_counter else "")


def _row(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return out.getvalue()
