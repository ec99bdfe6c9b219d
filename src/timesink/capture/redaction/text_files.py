"""Traces of PyTorch's profiler event by event, other JSON whole; logs of torch.compile by record, CSV pages of Nsight
Compute by column, other text by line.

Of a trace the members and arguments that readers know are kept (`private_texts`), names of kernels as symbols, all
other texts word by word. Of another document the members are kept whose names are words of software.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import DECODER, NUMBER_MARK, Cleaner, Number, is_private, json_in, write_json
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.knowledge import kept_texts, ncu_texts, private_texts
from timesink.untrusted import read_rows

_SPACE = " \t\r\n"
_ENDLESS = 1 << 28  # characters of one value; a trace's events have a few hundred
_TRACE = "traceEvents"


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


def redact_json(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Traces event by event, other documents as values."""
    is_trace = any(f'"{_TRACE}"' in piece for piece in Unpacked(unpacked.path).pieces())
    with writing(target) as file:
        try:
            _Writer(_Scanner(unpacked.pieces()), file, cleaner, is_trace).documents()
        except (_Damage, RecursionError):
            unpacked.damage = unpacked.damage or "it is damaged or cut off; what follows the damage is left out"


class _Writer:
    def __init__(self, scanner: _Scanner, file: IO[bytes], cleaner: Cleaner, is_trace: bool) -> None:
        self._in, self._file, self._cleaner, self._is_trace = scanner, file, cleaner, is_trace
        self._written = False  # whether a member was

    def documents(self) -> None:
        """One document, or several one after the other, as lines of JSON are."""
        while mark := self._in.next():
            if mark == "{" and self._is_trace:
                self._members()
            elif mark == "[":
                self._list(self._element)
            else:
                self._put(self._cleaner.value(self._in.value()))
            self._file.write(b"\n")

    def _parts(self, opening: str, closing: str) -> Iterator[bool]:
        """Step over what stands around the members of an object or a list; whether the next one is the first."""
        self._in.skip(opening)
        self._file.write(opening.encode())
        first = True
        while self._in.next() != closing:
            if not first:
                self._in.skip(",")
            yield first
            first = False
        self._in.skip(closing)
        self._file.write(f"\n{closing}".encode())

    def _members(self) -> None:
        self._written = False
        for _ in self._parts("{", "}"):
            key = self._in.value()
            self._in.skip(":")
            self._member(key)

    def _member(self, key: Any) -> None:
        """Write one member where it is known."""
        if not isinstance(key, str):
            raise _Damage
        if key not in kept_texts.TRACE_KEYS:
            self._in.value()
            self._cleaner.removed["members of unknown names"] += 1
            return
        self._file.write((b",\n" if self._written else b"\n") + json.dumps(key).encode() + b": ")
        self._written = True
        if key == _TRACE and self._in.next() == "[":
            self._list(lambda value: clean_event(value, self._cleaner))
        else:
            self._put(self._cleaner.value(self._in.value(), key))

    def _list(self, clean: Callable[[Any], Any]) -> None:
        for first in self._parts("[", "]"):
            cleaned = clean(self._in.value())
            self._file.write(b"\n" if first else b",\n")
            self._put(cleaned)

    def _element(self, value: Any) -> Any:
        """Of a list at the top: an event, where it looks like one."""
        return (
            clean_event(value, self._cleaner)
            if isinstance(value, dict) and "ph" in value
            else self._cleaner.value(value)
        )

    def _put(self, value: Any) -> None:
        self._file.write(write_json(value).encode())


def clean_event(value: Any, cleaner: Cleaner) -> Any:
    """One event of a trace: its known members, and of its arguments the known ones."""
    if not isinstance(value, dict):
        return cleaner.value(value)
    category = value.get("cat")
    kept = {key: inner for key, inner in value.items() if key in kept_texts.EVENT_KEYS}
    if len(kept) < len(value):
        cleaner.removed["members of unknown names"] += len(value) - len(kept)
    for key, inner in kept.items():
        if key == "args" and isinstance(inner, dict):
            kept[key] = _clean_arguments(inner, cleaner)
        elif key == "name" and isinstance(inner, str) and str(category) in kept_texts.KERNEL_KINDS:
            kept[key] = cleaner.symbol(inner)
        elif not isinstance(inner, (int, float, Number)) and not _is_kept(key, inner):
            kept[key] = cleaner.value(inner)
    return kept


def _is_kept(key: str, value: Any) -> bool:
    """Whether a text of an event is a mark of one letter, or the number of a process or thread."""
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _LONGEST
    return value in kept_texts.MARKS_OF_EVENTS or (is_number and key in kept_texts.NUMBERED)


def _clean_arguments(given: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    kept = {}
    for key, value in given.items():
        if key in kept_texts.KERNEL_ARGUMENTS and isinstance(value, str):
            kept[key] = cleaner.symbol(value)
        elif key in kept_texts.SHAPES:
            kept[key] = _shapes(value, cleaner)
        elif key in kept_texts.ARGUMENT_KEYS or cleaner.is_metric(key):
            kept[key] = cleaner.value(value)
        else:
            cleaner.removed["members of unknown names"] += 1
    return kept


def _shapes(value: Any, cleaner: Cleaner) -> Any:
    """Texts that are sizes, in lists or alone."""
    if isinstance(value, list):
        return [_shapes(inner, cleaner) for inner in value]
    is_shape = isinstance(value, str) and value.isascii() and private_texts.SHAPE.match(value)
    return value if is_shape else cleaner.value(value)


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
                given = found["value"].strip()
                private = is_private(found["key"], given.strip("\"'") or "x")
                private_indent = indent if private else None
                head = cleaner.words(found["head"])
                kept = cleaner.private(given) if private and given else cleaner.value(_plain_value(given), found["key"])
                new = f"{head}{kept}".replace(NUMBER_MARK, "")
            file.write(f"{new}\n".encode("utf-8", "replace"))


_LONGEST = 13  # digits of an amount


def _plain_value(given: str) -> Any:
    return Number(given) if given.isascii() and given.isdecimal() and len(given) <= _LONGEST else given


_DIGEST = "has_payload"
_PRIVATE_COLUMNS = frozenset(("Process Name", "Host Name"))
# How the numbers of a column look; other known columns hold texts, and columns of counters any number.
_FORMS = {
    **dict.fromkeys(("Block Size", "Grid Size"), private_texts.BLOCK),
    **dict.fromkeys(("ID", "Device", "Context", "Stream", "CC"), private_texts.PLACE),
    **dict.fromkeys(("Process ID", "Metric Value", "Kernel Time", "Estimated Speedup"), private_texts.CELL),
}


def redact_text(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Pages of Nsight Compute by column, logs by record, other texts by line."""
    with writing(target) as file:
        try:
            for line in _clean_lines(unpacked, cleaner):
                file.write(f"{line}\n".encode("utf-8", "replace"))
        except ValueError as error:
            raise refused(f"{unpacked.path.name} cannot be redacted: {error}", "export the page again") from None


def _clean_lines(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """A page as a page; else line by line, records of a log with the payload that is theirs."""
    head = next(unpacked.raw(), b"").decode("utf-8", "replace")
    if ncu_texts.PAGE_HEADER.search(head):
        yield from _clean_page(unpacked.whole().decode("utf-8-sig", "replace"), cleaner)
        return
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
        elif isinstance(envelope := json_in(found["rest"]), dict):
            record = _Record(found["head"], found["where"], envelope)
        else:
            yield f"{found['head']}{cleaner.words(found['where'])}] {cleaner.words(found['rest'])}"
    if record is not None:
        yield from record.written(cleaner)


class _Record:
    """A line of a structured log, and the payload below it."""

    def __init__(self, head: str, where: str, envelope: dict[str, Any]) -> None:
        self.head, self.where, self.envelope, self.payload = head, where, envelope, list[str]()

    def written(self, cleaner: Cleaner) -> Iterator[str]:
        """Its lines: the digest of a payload is that of the new one."""
        digest = self.envelope.pop(_DIGEST, None)
        kept = cleaner.value(self.envelope)
        old = "\n".join(self.payload)
        sound = digest == hashlib.md5(old.encode(), usedforsecurity=False).hexdigest()
        new = cleaner.payload(old)
        if digest is not None:
            kept[_DIGEST] = hashlib.md5(new.encode(), usedforsecurity=False).hexdigest() if sound else "0"
        yield f"{self.head}{cleaner.words(self.where)}] {write_json(kept)}"
        if self.payload:
            yield from (f"\t{line}" for line in new.split("\n"))


def _clean_page(text: str, cleaner: Cleaner) -> Iterator[str]:
    """The page with the columns that are known. Lines of others before it are dropped, those after it emptied."""
    header = ncu_texts.PAGE_HEADER.search(text)
    if header is None:
        return
    if header.start():
        cleaner.removed["lines before the page"] += text[: header.start()].count("\n")
    rows = read_rows(text[header.start() :])
    heads = next(rows)
    columns = [(at, _column(head, cleaner)) for at, head in enumerate(heads) if _is_known(head, cleaner)]
    if len(columns) < len(heads):
        cleaner.removed["columns of unknown names"] += len(heads) - len(columns)
    yield _row([heads[at] for at, _ in columns])
    units = True
    for row in rows:
        if row == heads:
            yield _row([heads[at] for at, _ in columns])
        elif len(row) > 1 and (row[0].isdecimal() or (units and not row[0])):
            yield _row([clean(row[at]) for at, clean in columns if at < len(row)])
            units = False
        elif row:
            yield "removed"


def _is_known(head: str, cleaner: Cleaner) -> bool:
    return head in kept_texts.PAGE_COLUMNS or (("__" in head or head.islower()) and cleaner.metric(head) == head)


def _column(head: str, cleaner: Cleaner) -> Callable[[str], str]:
    if head in _PRIVATE_COLUMNS:
        return cleaner.private
    if head == "Kernel Name":
        return cleaner.symbol
    form = _FORMS.get(head) or (None if head in kept_texts.PAGE_COLUMNS else private_texts.CELL)
    return lambda cell: cell if form and cell.isascii() and form.match(cell) else cleaner.metric(cell)


def _row(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return out.getvalue()
