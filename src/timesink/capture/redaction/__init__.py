"""Take out of captures what names people, machines and secrets: what is known to be software's stays, all else goes.

Redact any capture file, by its kind: into a new file, never over the old one. SECURITY.md says what was tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.errors import failure, refused
from timesink.capture.redaction.binary_files import redact_ncu, redact_snapshot
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.capture.redaction.packed import Unpacked, find_leaks
from timesink.capture.redaction.text_files import redact_json, redact_text
from timesink.untrusted.whole_file import whole_file

Redaction = Callable[[Path, Path, Cleaner], list[str]]
_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_BY_SUFFIX: dict[str, Redaction] = {
    **dict.fromkeys((".json", ".jsonl"), redact_json),
    **dict.fromkeys((".txt", ".md", ".markdown", ".csv", ".log"), redact_text),
    **dict.fromkeys((".pickle", ".pkl"), redact_snapshot),
}


@dataclass(frozen=True, slots=True)
class Redacted:
    """The new file, and one phrase per kind of thing that was taken out of it."""

    path: Path
    removed: tuple[str, ...]


def redact(source: Path, target: Path | None = None, names: Iterable[str] = ()) -> Redacted:
    """Copy a capture or a text with nothing but what is known to be software's. `names`: hosts and users to look for.

    The new file is searched for every name that was learnt and for the shapes of secrets; where one is found, there is
    no new file. Kernels keep their names: one that is called after a customer says so.
    """
    _check_there(source)
    where = target if target is not None else default_target(source)
    if where.exists() and where.samefile(source):
        raise refused(f"{source} would be overwritten", "choose another --output")
    kind, cleaner = _kind(source), Cleaner(names)
    Unpacked(source).refuse_bomb()
    with whole_file(where) as part:
        removed = kind(source, part, cleaner)
        if left := find_leaks(part, cleaner.names):
            what = f"{source.name} was not redacted: its copy would still hold {', '.join(left)}"
            raise failure(what, "report this as a bug, with the kind of file")
    return Redacted(where, tuple(removed))


def check(source: Path, names: Iterable[str] = ()) -> tuple[str, ...]:
    """What `redact` would take out of the file, or would refuse it for; nothing where it may be shared as it is."""
    _check_there(source)
    with tempfile.TemporaryDirectory(prefix="timesink-check-") as folder:
        return redact(source, Path(folder) / source.name, names).removed


def default_target(source: Path) -> Path:
    """`run.json.gz` becomes `run.redacted.json.gz`."""
    stem, dot, rest = source.name.partition(".")
    return source.with_name(f"{stem}.redacted{dot}{rest}")


def _check_there(source: Path) -> None:
    if not source.is_file():
        raise refused(f"there is no file {source}", "check the path")


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
        "give an nsys .sqlite, a .json or .json.gz trace, a .ncu-rep, a memory snapshot, a log or a text report",
    )
