"""Take out of captures what names people, machines and secrets: what is known to be software's stays, all else goes.

Redact any capture file, by its kind: into a new file, never over the old one. SECURITY.md says what was tried.

The proof of a redacted copy: each text in it with the class that lets it stay, read by walks of its own. A text that no
class admits is a leak: the copy is refused. The walks know formats, not what the redaction does; a member that it
forgot to clean is met here.
"""

from __future__ import annotations

import pickletools
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from timesink.capture.errors import CaptureError, failure, refused
from timesink.capture.redaction.binary_files import redact_ncu, redact_snapshot
from timesink.capture.redaction.cleaner import JSON_BEGINS, Cleaner, is_common, is_library_symbol, is_placeholder
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.capture.redaction.packed import SHORTEST, Unpacked, find_leaks
from timesink.capture.redaction.pages import redact_page
from timesink.capture.redaction.text_files import redact_json, redact_settings, redact_text
from timesink.knowledge import kept_texts, private_texts
from timesink.untrusted import read_rows
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.whole_file import whole_file

Redaction = Callable[[Unpacked, Path, Cleaner], object]
"""Writes a file anew to the path, with nothing but what is known."""
_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_BY_SUFFIX: dict[str, Redaction] = {
    **dict.fromkeys((".json", ".jsonl"), redact_json),
    **dict.fromkeys((".txt", ".md", ".markdown", ".csv", ".log", ".ranks", ".out", ".err"), redact_text),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".ini", ".cfg", ".env"), redact_settings),
    **dict.fromkeys((".html", ".htm"), redact_page),
    **dict.fromkeys((".pickle", ".pkl"), redact_snapshot),
}


@dataclass(frozen=True, slots=True)
class Redacted:
    """The new file or folder, one phrase per kind of thing that was taken out of it, and what stayed: how often each
    text stands in the copy, by the class that lets it stay and the text."""

    path: Path
    removed: tuple[str, ...]
    stayed: Counter[tuple[str, str]]


def redact(source: Path, target: Path | None = None, names: Iterable[str] = ()) -> Redacted:
    """Copy a capture or a text with nothing but what is known to be software's. `names`: hosts and users to look for.

    Every text of the new file is read back and has to belong to a class that may stay, and the file is searched for
    every name that was learnt and for the shapes of secrets; where one is found, there is no new file. A folder is
    copied file by file, in the words of one cleaner. Kernels keep their names: one that is called after a customer says
    so.
    """
    if not source.exists():
        raise refused(f"there is no file {source}", "check the path")
    where = target if target is not None else default_target(source)
    if where.exists() and where.samefile(source):
        raise refused(f"{source} would be overwritten", "choose another --output")
    if source.is_dir():
        return _redact_folder(source, where, names)
    cleaner = Cleaner(names)
    return Redacted(where, *_redact_file(source, where, cleaner))


def _redact_file(source: Path, where: Path, cleaner: Cleaner) -> tuple[tuple[str, ...], Counter[tuple[str, str]]]:
    """What was taken out of one file, and what stayed."""
    kind, unpacked = _kind(source), Unpacked(source)
    Unpacked(source).refuse_bomb()
    with whole_file(where) as part:
        kind(unpacked, part, cleaner)
        removed = (*filter(None, [unpacked.damage]), *cleaner.summary())
        stayed, unknown = prove(part, cleaner, source.suffixes)
        left = find_leaks(part, cleaner.names)
        if unknown:
            left.append(f"{len(unknown)} texts that no class lets stay")
        if left:
            what = f"{source.name} was not redacted: its copy would still hold {', '.join(left)}"
            raise failure(what, "report this as a bug, with the kind of file")
    return removed, stayed


def _redact_folder(source: Path, where: Path, names: Iterable[str]) -> Redacted:
    """Copy each file of the folder in the words of one cleaner, and again those in whose copy stands a name that only a
    later file told. `where` must not exist."""
    if where.exists():
        raise refused(f"{where} exists already", "choose another --output")
    cleaner, copies, left_out = Cleaner(names), list[_Copy](), 0
    with tempfile.TemporaryDirectory(prefix=f".writing-{where.name}", dir=where.absolute().parent) as scratch:
        for path in sorted(source.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            try:
                _kind(path)
            except CaptureError:
                left_out += 1
                continue
            (Path(scratch) / f"{len(copies)}").mkdir()
            copies.append(_Copy.of(path, Path(scratch) / f"{len(copies)}" / path.name, cleaner))
        copies = [one.again(cleaner) if one.holds_any(cleaner.names - one.known) else one for one in copies]
        whole = Path(scratch) / "whole"
        whole.mkdir()
        for one in copies:
            inside = whole.joinpath(*(cleaner.words(part) for part in one.source.relative_to(source).parts))
            inside.parent.mkdir(parents=True, exist_ok=True)
            one.path.rename(inside)
        whole.rename(where)
    if left_out:
        cleaner.removed["files of kinds that are not taken"] += left_out
    return Redacted(where, tuple(cleaner.summary()), sum((one.stayed for one in copies), Counter()))


@dataclass(frozen=True, slots=True)
class _Copy:
    """The copy of one file of a folder: the names that were known after it, what was taken out, and what stayed."""

    source: Path
    path: Path
    known: frozenset[str]
    removed: Counter[str]
    stayed: Counter[tuple[str, str]]

    @classmethod
    def of(cls, source: Path, path: Path, cleaner: Cleaner) -> _Copy:
        before = cleaner.removed.copy()
        stayed = _redact_file(source, path, cleaner)[1]
        return cls(source, path, frozenset(cleaner.names), cleaner.removed - before, stayed)

    def holds_any(self, names: Set[str]) -> bool:
        """Whether one of the names may stand in the copy. One too short to be looked for may always."""
        return any(len(name) < SHORTEST for name in names) or bool(names and find_leaks(self.path, names))

    def again(self, cleaner: Cleaner) -> _Copy:
        """The copy made anew, by a cleaner that knows more names."""
        cleaner.removed -= self.removed
        self.path.unlink()
        return _Copy.of(self.source, self.path, cleaner)


def proof(source: Path, names: Iterable[str] = ()) -> Redacted:
    """What `redact` would take out and what would stay, by class; nothing is written beside the source."""
    with tempfile.TemporaryDirectory(prefix="timesink-proof-") as folder:
        return redact(source, Path(folder) / source.name, names)


def default_target(source: Path) -> Path:
    """`run.json.gz` becomes `run.redacted.json.gz`."""
    stem, dot, rest = source.name.partition(".")
    return source.with_name(f"{stem}.redacted{dot}{rest}")


def _kind(source: Path) -> Redaction:
    with source.open("rb") as file:
        head = file.read(16)
    suffixes = [suffix.lower() for suffix in source.suffixes if suffix not in (".gz", ".xz")]
    last = suffixes[-1] if suffixes else ""
    if head.startswith(b"SQLite format 3"):
        return redact_sqlite
    if head.startswith(b"NVR\0"):
        return redact_ncu
    if head.startswith(_PICKLES):
        return redact_snapshot
    if last in _BY_SUFFIX:
        return _BY_SUFFIX[last]
    if last in (".nsys-rep", ".qdrep"):
        raise refused(
            f"{source.name} is in nsys' own format, which only nsys can write",
            "share its export instead: nsys export --type sqlite, then timesink capture --redact on that",
        )
    raise refused(
        f"{source.name} is no kind of file that timesink can redact",
        "give an nsys .sqlite, a .json or .json.gz trace, a .ncu-rep, a memory snapshot, a log, a text or HTML report, "
        "settings (YAML, TOML), or a folder of them",
    )


_NAMED: dict[str, Callable[[str], object]] = {
    "function of a library": is_library_symbol,
    "call of CUDA or of a library": re.compile(private_texts.CALL).match,
    "metric": re.compile(private_texts.METRIC).match,
    "instruction": re.compile(private_texts.OPCODE).match,
}
_OF_FORMATS = frozenset(
    (*kept_texts.TRACE_KEYS, *kept_texts.EVENT_KEYS, *kept_texts.ARGUMENT_KEYS, *kept_texts.PAGE_COLUMNS,
     *kept_texts.KERNEL_ARGUMENTS, *kept_texts.NSYS_COLUMNS,
     *(name for kinds in kept_texts.NSYS_COLUMNS.values() for names in kinds for name in names.split()))
)  # fmt: skip
_LITERAL = re.compile(private_texts.LITERAL, re.DOTALL)
_SCALAR = re.compile(private_texts.SCALAR, re.DOTALL)
Texts = Iterator[str]


def stays_as(text: str, symbols: Iterable[str]) -> str:
    """The class that lets a text stay; "" where none does. `symbols`: what stands where kernels and functions do."""
    if text in _OF_FORMATS:
        return "key or column that a reader takes"
    words = private_texts.WORD.findall(text)
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
    for line in (private_texts.DIGEST_OF_PAYLOAD.sub("", line) for line in unpacked.lines()):
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
