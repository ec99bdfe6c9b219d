"""Take out of captures what names people, machines and secrets: what is known to be software's stays, all else goes.

Redact any capture file, by its kind: into a new file, never over the old one. SECURITY.md says what was tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from timesink.capture.errors import CaptureError, failure, refused
from timesink.capture.redaction import proof as proofs
from timesink.capture.redaction.binary_files import cleaned_ncu, cleaned_snapshot
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.capture.redaction.packed import Unpacked, writes
from timesink.capture.redaction.pages import cleaned_page
from timesink.capture.redaction.text_files import cleaned_json, cleaned_settings, cleaned_text
from timesink.untrusted.budget import FEWER, crowded
from timesink.untrusted.whole_file import whole_file


class _Kind(NamedTuple):
    """Of a kind of files what writes one anew with nothing but what is known, and the proof's walk over a copy."""

    write: Callable[[Unpacked, Path, Cleaner], None]
    walk: Callable[[Unpacked], proofs.Texts]


_TEXT, _SETTINGS = _Kind(writes(cleaned_text), proofs.of_lines), _Kind(writes(cleaned_settings), proofs.of_lines)
_JSON, _PAGE = _Kind(writes(cleaned_json), proofs.of_json), _Kind(writes(cleaned_page), proofs.of_page)
_SNAPSHOT = _Kind(writes(cleaned_snapshot), proofs.of_pickle)
_BY_HEAD = {
    b"SQLite format 3": _Kind(redact_sqlite, proofs.of_tables),
    # written field by field, and holds bytes of numbers
    b"NVR\0": _Kind(writes(cleaned_ncu), lambda _: iter(())),
    **{b"\x80" + bytes([protocol]): _SNAPSHOT for protocol in range(2, 6)},
}
_BY_SUFFIX = {
    **dict.fromkeys((".json", ".jsonl", ".sarif"), _JSON),
    **dict.fromkeys((".txt", ".md", ".markdown", ".csv", ".log", ".ranks", ".out", ".err", ".collapsed"), _TEXT),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".ini", ".cfg", ".env"), _SETTINGS),
    **dict.fromkeys((".html", ".htm"), _PAGE),
    **dict.fromkeys((".pickle", ".pkl"), _SNAPSHOT),
}
_PACKED = (".gz", ".xz")
_SUFFIXES = (*_BY_SUFFIX, *_PACKED, ".sqlite", ".ncu-rep", ".pt", ".trace")


@dataclass(frozen=True, slots=True)
class Redacted:
    """The new file or folder, one phrase per kind of thing that was taken out of it, and what stayed."""

    path: Path
    removed: tuple[str, ...]
    stayed: proofs.Stayed


def redact(source: Path, target: Path | None = None, names: Iterable[str] = ()) -> Redacted:
    """Copy a capture or a text with nothing but what is known to be software's. `names`: hosts and users to look for.

    Every text of the new file is read back and has to be of the lists of what may stay (`proof`); where one is not,
    there is no new file. A folder is copied file by file, in the words of one cleaner.
    """
    if not source.exists():
        raise refused(f"there is no file {source}", "check the path")
    where = target if target is not None else default_target(source)
    if where.exists() and where.samefile(source):
        raise refused(f"{source} would be overwritten", "choose another --output")
    if source.is_dir() and where.exists():
        raise refused(f"{where} exists already", "choose another --output")
    if source.is_dir() and (why := crowded(source, is_deep=True)):
        raise refused(why, FEWER)
    cleaner, damages, stayed = Cleaner(names), set[str](), proofs.Stayed()
    with whole_file(where) as whole:
        if source.is_dir():
            whole.mkdir()
        for path, kind in _files(source, cleaner):
            inside = whole.joinpath(*(clean_name(part, cleaner) for part in path.relative_to(source).parts))
            unpacked = Unpacked(path)
            unpacked.refuse_bomb()
            inside.parent.mkdir(parents=True, exist_ok=True)
            kind.write(unpacked, inside, cleaner)
            found, left = proofs.prove(Unpacked(inside), kind.walk, cleaner.names)
            if left:
                what = f"{path.name} was not redacted: its copy would still hold {', '.join(left)}"
                raise failure(what, "report this as a bug, with the kind of file")
            damages.add(unpacked.damage)
            stayed += found
    return Redacted(where, (*sorted(damages - {""}), *cleaner.summary()), stayed)


def _files(source: Path, cleaner: Cleaner) -> Iterator[tuple[Path, _Kind]]:
    """The file, or those of a folder whose kinds are taken."""
    if not source.is_dir():
        yield source, _kind(source)
        return
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.is_symlink():
            try:
                yield path, _kind(path)
            except CaptureError:
                cleaner.removed["files of kinds that are not taken"] += 1


def clean_name(name: str, cleaner: Cleaner) -> str:
    """The name of a file or folder: words and a few digits stay in it, as in any text."""
    stem, dot, suffixes = name.partition(".")
    return f"{cleaner.words(stem)}{dot}{'.'.join(map(cleaner.words, suffixes.split('.')))}"


def proof(source: Path, names: Iterable[str] = ()) -> Redacted:
    """What `redact` would take out and what would stay, by class; nothing is written beside the source."""
    with tempfile.TemporaryDirectory(prefix="timesink-proof-") as folder:
        return redact(source, Path(folder) / source.name, names)


def default_target(source: Path) -> Path:
    """`run.json.gz` becomes `run.redacted.json.gz`; what is nobody's word in the name goes."""
    suffixes = "".join(part for part in source.suffixes if part.lower() in _SUFFIXES)
    stem = clean_name(source.name.removesuffix(suffixes), Cleaner())
    return source.with_name(f"{stem}.redacted{suffixes}")


def _kind(source: Path) -> _Kind:
    with source.open("rb") as file:
        head = file.read(16)
    last = next((suffix.lower() for suffix in reversed(source.suffixes) if suffix not in _PACKED), "")
    kind = next((kind for begin, kind in _BY_HEAD.items() if head.startswith(begin)), _BY_SUFFIX.get(last))
    if kind is not None:
        return kind
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
