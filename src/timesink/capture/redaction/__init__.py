"""Take out of captures what names people, machines and secrets.

Redact any capture file, by its kind: into a new file, never over the old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.redaction.cleaner import Cleaner, redact_json, redact_text
from timesink.capture.redaction.ncu_report import redact_ncu
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.untrusted.whole_file import whole_file

_TEXT = (".txt", ".md", ".markdown", ".csv", ".html", ".log", ".xml")


@dataclass(frozen=True, slots=True)
class Redacted:
    """The new file, and one phrase per kind of thing that was taken out of it."""

    path: Path
    removed: tuple[str, ...]


def redact(source: Path, target: Path | None = None, names: Iterable[str] = ()) -> Redacted:
    """Copy a capture or report without what names people, machines and secrets. `names`: hosts and users to look for.

    A secret in a place that looks like neither (a kernel called after a customer) stays: look at what you share.
    """
    if not source.is_file():
        raise CaptureError(Fault.REQUEST, f"there is no file {source}", remedy="check the path")
    where = target if target is not None else default_target(source)
    if where.exists() and where.samefile(source):
        raise CaptureError(Fault.REQUEST, f"{source} would be overwritten", remedy="choose another --output")
    cleaner = Cleaner(names)
    with whole_file(where) as part:
        removed = _by_kind(source, part, cleaner)
    return Redacted(where, tuple(removed))


def default_target(source: Path) -> Path:
    """`run.json.gz` becomes `run.redacted.json.gz`."""
    stem, dot, rest = source.name.partition(".")
    return source.with_name(f"{stem}.redacted{dot}{rest}")


def _by_kind(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    with source.open("rb") as file:
        head = file.read(16)
    suffixes = [suffix for suffix in source.suffixes if suffix != ".gz"]
    last = suffixes[-1] if suffixes else ""
    if head.startswith(b"SQLite format 3"):
        shutil.copyfile(source, target)
        return redact_sqlite(target, cleaner)
    if head.startswith(b"NVR\0"):
        return redact_ncu(source, target, cleaner)
    if last == ".json":
        return redact_json(source, target, cleaner)
    if last in _TEXT:
        return redact_text(source, target, cleaner)
    if last in (".nsys-rep", ".qdrep"):
        raise CaptureError(
            Fault.REQUEST,
            f"{source.name} is in nsys' own format, which only nsys can write",
            remedy="share its export instead: nsys export --type sqlite, then timesink redact on that",
        )
    raise CaptureError(
        Fault.REQUEST,
        f"{source.name} is no kind of file that timesink can redact",
        remedy="give an nsys .sqlite, a .json or .json.gz trace, a .ncu-rep, or a text report",
    )
