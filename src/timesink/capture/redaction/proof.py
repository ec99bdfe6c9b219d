"""The proof of a redacted copy: each text in it with the class that lets it stay, read by walks of its own.

A text that no class admits is a leak: the copy is refused. The walks know formats, not what the redaction does; a
member that it forgot to clean is met here.
"""

from __future__ import annotations

import pickletools
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

from timesink.capture.redaction.cleaner import JSON_BEGINS, Cleaner, is_common, is_library_symbol, is_placeholder
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import private_texts
from timesink.untrusted.plain_csv import read_rows
from timesink.untrusted.plain_json import parsed

_WORD = re.compile(private_texts.WORD)
_NAMED: dict[str, Callable[[str], object]] = {
    "function of a library": is_library_symbol,
    "call of CUDA or of a library": re.compile(private_texts.CALL).match,
    "metric": re.compile(private_texts.METRIC).match,
    "instruction": re.compile(private_texts.OPCODE).match,
}
_OF_FORMATS = frozenset(
    (*private_texts.TRACE_KEYS, *private_texts.EVENT_KEYS, *private_texts.ARGUMENT_KEYS, *private_texts.PAGE_COLUMNS,
     *private_texts.KERNEL_ARGUMENTS, *private_texts.NSYS_COLUMNS,
     *(name for kinds in private_texts.NSYS_COLUMNS.values() for names in kinds for name in names.split()))
)  # fmt: skip
_LITERAL = re.compile(private_texts.LITERAL, re.DOTALL)
_SCALAR = re.compile(private_texts.SCALAR, re.DOTALL)
_DIGEST_OF_PAYLOAD = re.compile(private_texts.DIGEST_OF_PAYLOAD)
Texts = Iterator[str]


def stays_as(text: str, symbols: Iterable[str]) -> str:
    """The class that lets a text stay; "" where none does. `symbols`: what stands where kernels and functions do."""
    if text in _OF_FORMATS:
        return "key or column that a reader takes"
    words = _WORD.findall(text)
    if not any(map(str.isalpha, text)):
        return "number"
    if all(is_placeholder(word) or not any(map(str.isalpha, word)) for word in words):
        return "placeholder"
    if all(is_placeholder(word) or is_common(word) for word in words):
        return "words of software"
    named = next((means for means, is_one in _NAMED.items() if is_one(text)), "")
    return named or ("name of a kernel or function" if text in symbols else "")


def prove(path: Path, cleaner: Cleaner, suffixes: Sequence[str]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """How often each text stands in the copy, by its class and itself; and what no class admits. `suffixes` are those
    of the source: a copy may have any name."""
    found = Counter(inner for text in _texts(path, suffixes) for inner in _inside(text))
    classes = {text: stays_as(text, cleaner.symbols) for text in found}
    return Counter({(classes[text], text): count for text, count in found.items()}), [
        text for text, means in classes.items() if not means
    ]


def _texts(path: Path, suffixes: Sequence[str]) -> Texts:
    head = next(Unpacked(path).raw(), b"")[:16]
    kind = next((suffix.lower() for suffix in reversed(suffixes) if suffix not in (".gz", ".xz")), "")
    if head.startswith(b"SQLite format 3"):
        return _of_tables(path)
    if head.startswith(b"\x80"):
        return (value for _, value, _ in pickletools.genops(Unpacked(path).whole()) if isinstance(value, str))
    if head.startswith(b"NVR\0"):
        return iter(())  # the message is written field by field; `find_leaks` reads its bytes
    walks = {".json": _of_json, ".jsonl": _of_json, ".html": _of_page, ".htm": _of_page}
    return walks.get(kind, _of_lines)(Unpacked(path))


def _of_lines(unpacked: Unpacked) -> Texts:
    """Cells of a page; lines of any other text, without digests."""
    for line in (_DIGEST_OF_PAYLOAD.sub("", line) for line in unpacked.lines()):
        yield from _cells(line) if line.startswith('"') and line.endswith('"') else [line]


def _inside(text: str) -> Texts:
    """The text; where JSON is in it, what each of its strings spells, and what is no string and no number."""
    if (at := text.find(JSON_BEGINS)) < 0:
        yield text
        return
    yield text[:at] + _SCALAR.sub(" ", text[at:])
    for spelled in _literals([text[at:]]):
        yield from _inside(spelled)


def _cells(line: str) -> list[str]:
    """The cells of a line of a page; the line itself where it is none."""
    try:
        return next(read_rows(line))
    except ValueError:
        return [line]


def _of_tables(path: Path) -> Texts:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master").fetchall():
            yield table
            rows = db.execute('SELECT * FROM "{}"'.format(table.replace('"', '""')))
            yield from (name for name, *_ in rows.description)
            for row in rows:
                yield from (cell for cell in row if isinstance(cell, str))


def _of_json(unpacked: Unpacked) -> Texts:
    return _literals(unpacked.pieces())


def _literals(pieces: Iterable[str]) -> Texts:
    """Every text that JSON holds, keys too, of a damaged document as well."""
    waiting = ""
    for piece in pieces:
        text, end = waiting + piece, 0
        for found in _LITERAL.finditer(text):
            yield _spelled(found.group())
            end = found.end()
        waiting = text[end:]


def _spelled(literal: str) -> str:
    """The text that a string of JSON spells; the string as it stands where it is damaged."""
    try:
        return str(parsed(literal, strict=False))
    except ValueError:
        return literal[1:-1]


def _of_page(unpacked: Unpacked) -> Texts:
    page = _Texts()
    page.feed("".join(unpacked.pieces()))
    page.close()
    return iter(page.found)


class _Texts(HTMLParser):
    """What a page shows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.found += [value for name, value in attrs if value and name not in ("content", "d", "style")]

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script", "template"):
            self.found.append(data)
