"""The captures below a folder, and which of them are written to their end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from timesink.capture.agent.recording import RANKS
from timesink.capture.recorded_run import MANIFEST
from timesink.model.record import dataclass, field
from timesink.untrusted.plain_json import document

SUFFIXES: Final = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".ncu-rep", ".ncu-repz", ".pickle")
_ABANDONED_S: Final = 600.0  # a capture that was interrupted writes no manifest: its traces are then looked at alone


@dataclass(frozen=True, slots=True)
class FoundCapture:
    """A capture: the folder of one that timesink made, or a file alone. `key` changes with names, sizes and times.

    `is_whole` where its manifest says how long its files are, and they are.
    """

    name: str
    paths: tuple[Path, ...]
    key: str
    modified_s: float
    is_whole: bool

    @property
    def recorded(self) -> str:
        """When its files were last written, to the second, in UTC."""
        return (
            datetime.fromtimestamp(self.modified_s, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        )


def places(root: Path, pages: Path) -> list[FoundCapture]:
    """Captures below the root, the newest first; `pages`, hidden folders and links are left out."""
    found = []
    for where, folders, names in os.walk(root):
        folder = Path(where)
        if MANIFEST in names and (sizes := _listed(folder)):
            found += _place(root, folder.relative_to(root).as_posix(), [folder / name for name in sizes], sizes)
            folders.clear()
            continue
        if RANKS in folders and time.time() - folder.stat().st_mtime < _ABANDONED_S:
            folders.clear()  # a capture under way: its manifest is written last
            continue
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != RANKS and folder / name != pages
        )
        for path in _files(folder, names):
            found += _place(root, path.relative_to(root).as_posix(), [path], {})
    return sorted(found, key=lambda place: (-place.modified_s, place.name))


def _files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = folder / name
        if name.endswith(SUFFIXES) and not name.startswith(".") and path.is_file() and not path.is_symlink():
            yield path


def _listed(folder: Path) -> dict[str, int]:
    """Name and size of the files of a capture, as its manifest has them; none where it is no manifest of ours."""
    try:
        manifest = document(folder / MANIFEST)
        entries = manifest["files"] if "timesink_manifest" in manifest else []
        return {str(entry["file"]): int(entry["bytes"]) for entry in entries if "/" not in str(entry["file"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _place(root: Path, name: str, paths: Sequence[Path], sizes: dict[str, int]) -> list[FoundCapture]:
    """The place, unless one of its files has gone meanwhile."""
    try:
        stats = [(path.name, path.stat()) for path in paths]
    except OSError:
        return []
    text = "\n".join(f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)
    is_whole = bool(sizes) and all(sizes[file] == stat.st_size for file, stat in stats)
    key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    newest_s = max(stat.st_mtime for _, stat in stats)
    return [FoundCapture(name if name != "." else root.resolve().name, tuple(paths), key, newest_s, is_whole)]


@dataclass(slots=True)
class Settling:
    """Tells files that are written to their end from those that grow: the same size and time for `quiet_s` seconds."""

    quiet_s: float
    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    def is_ready(self, place: FoundCapture) -> bool:
        """Whether it may be read. A file's age counts where it is first seen, by the clock of this machine."""
        if place.is_whole:
            return True
        now = time.monotonic()
        key, since = self._seen.setdefault(place.name, (place.key, now))
        if key != place.key:
            self._seen[place.name] = (place.key, now)
            return False
        return now - since >= self.quiet_s or (since == now and time.time() - place.modified_s >= self.quiet_s)
