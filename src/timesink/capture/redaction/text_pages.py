"""Text: logs of torch.compile by record, CSV pages of Nsight Compute by column, other text by line."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.capture.redaction.trace_json import dumped
from timesink.knowledge import private_texts, profiler_texts
from timesink.untrusted.plain_json import parsed

_LINE = re.compile(private_texts.LOG_LINE)
_HEADER = re.compile(profiler_texts.PAGE_HEADER)
_DIGEST = "has_payload"
_PRIVATE_COLUMNS = frozenset(("Process Name", "Host Name"))


def redact_text(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Write the text with nothing but what is known."""
    unpacked = Unpacked(source)
    for piece in unpacked.pieces():
        cleaner.learn_from(piece)
    with writing(target) as file:
        for line in _cleaned(unpacked, cleaner):
            file.write(f"{line}\n".encode("utf-8", "replace"))
    return [*([unpacked.damage] if unpacked.damage else []), *cleaner.summary()]


def _cleaned(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """A page as a page; else line by line, records of a log with the payload that is theirs."""
    head = next(unpacked.raw(), b"").decode("utf-8", "replace")
    if _HEADER.search(head):
        yield from _page(unpacked.whole().decode("utf-8-sig", "replace"), cleaner)
        return
    record: _Record | None = None
    for line in unpacked.lines():
        if record is not None and line.startswith("\t"):
            record.payload.append(line[1:])
            continue
        if record is not None:
            yield from record.written(cleaner)
        record = _record(line)
        if record is None:
            yield _plain(line, cleaner)
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
        new = _payload(old, cleaner)
        if digest is not None:
            kept[_DIGEST] = hashlib.md5(new.encode(), usedforsecurity=False).hexdigest() if sound else "0"
        yield f"{self.head}{cleaner.words(self.where)}] {dumped(kept)}"
        if self.payload:
            yield from (f"\t{line}" for line in new.split("\n"))


def _record(line: str) -> _Record | None:
    found = _LINE.match(line)
    if found is None or not found["rest"].startswith('{"'):
        return None
    try:
        envelope = parsed(found["rest"])
    except ValueError:
        return None
    return _Record(found["head"], found["where"], envelope) if isinstance(envelope, dict) else None


def _payload(text: str, cleaner: Cleaner) -> str:
    """A payload that is JSON as JSON, any other line by line."""
    if text[:1] in ("{", "["):
        try:
            return dumped(cleaner.value(parsed(text)))
        except ValueError:
            pass
    return "\n".join(cleaner.words(line) for line in text.split("\n"))


def _plain(line: str, cleaner: Cleaner) -> str:
    found = _LINE.match(line)
    if found is None:
        return cleaner.words(line)
    return f"{found['head']}{cleaner.words(found['where'])}] {cleaner.words(found['rest'])}"


def _page(text: str, cleaner: Cleaner) -> Iterator[str]:
    """The page with the columns that are known. Lines of others before it are dropped, those after it emptied."""
    header = _HEADER.search(text)
    if header is None:
        return
    if header.start():
        cleaner.removed["lines before the page"] += text[: header.start()].count("\n")
    rows = csv.reader(io.StringIO(text[header.start() :], newline=""))
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
    return head in private_texts.PAGE_COLUMNS or (("__" in head or head.islower()) and cleaner.label(head) == head)


def _column(head: str, cleaner: Cleaner) -> Callable[[str], str]:
    if head in _PRIVATE_COLUMNS:
        return cleaner.private
    return cleaner.symbol if head == "Kernel Name" else lambda cell: _cell(cell, cleaner)


def _cell(cell: str, cleaner: Cleaner) -> str:
    """A number as it is printed anywhere, or a label."""
    return (
        cell
        if not any(map(str.isalpha, cell)) and len(cell) <= 24 and cell.count(".") < 3 and ":" not in cell
        else cleaner.label(cell)
    )


def _row(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return out.getvalue()
