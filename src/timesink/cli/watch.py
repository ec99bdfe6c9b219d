"""`timesink report --watch`: diagnose captures as they appear in a folder, and keep an index page of them.

First the captures below a folder, and which of them are written to their end; then what is done with them.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from timesink.capture.agent.recording import RANKS
from timesink.capture.figure_logs import Log, open_logs
from timesink.capture.recorded_run import MANIFEST
from timesink.capture.trainer import PAGES, slug
from timesink.cli.capture import translated
from timesink.cli.options import of_run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.undiagnosable import check_diagnosis
from timesink.diagnosis.words import number
from timesink.errors import TimesinkError, UsageError
from timesink.records import Record, State, field
from timesink.untrusted import scrub_sentence, spending
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole
from timesink.views.verify import Watched, watched

SUFFIXES: Final = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".ncu-rep", ".ncu-repz", ".pickle")
_ABANDONED_S: Final = 600.0  # a capture that was interrupted writes no manifest: its traces are then looked at alone


class FoundCapture(Record):
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


class Settling(State):
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


def watch(
    folder: Path,
    once: bool = False,
    name: list[str] | None = None,
    every: float = 5.0,
    quiet_for: float = 3.0,
    log: list[str] | None = None,
) -> int:
    """Diagnose captures as they appear in a folder.

    The folder DIR/timesink holds the reports and index.html, which is replaced whole. A capture of timesink is read
    once its manifest is there, any other file once it has stopped growing. What cannot be read is named there and left
    alone until it changes. Nothing is read twice, also after a restart.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", remedy="give the folder that captures are written to")

    pages = folder / PAGES
    with translated():
        logs = open_logs(tuple(log or ()), pages, starts_runs=True)
    watch = FolderWatch(folder, pages, frozenset(name or ()), logs)
    settling, before = Settling(quiet_for), {row.key for row in watch.rows()}
    if not once:
        _tell(f"watching {folder} every {every:g} s; {pages / 'index.html'} lists what was read; Ctrl-C ends")
    try:
        while True:
            growing = watch.look(settling)
            if once and not growing:
                rows = watch.rows()
                new, failed = sum(row.key not in before for row in rows), sum(bool(row.error) for row in rows)
                found = f"{number(len(rows), 'capture')} in {folder}, {new} new, {failed} that cannot be read"
                _tell(f"{found}; {pages / 'index.html'} lists all")
                return 0
            time.sleep(min(every, max(quiet_for / 2, 0.05)) if once else every)
    finally:
        for one in logs:
            one.close()


class FolderWatch(Record):
    """One folder, where its pages go, and the captures that are wanted: all where none is named."""

    root: Path
    pages: Path
    names: frozenset[str]
    logs: Sequence[Log]

    def look(self, settling: Settling) -> bool:
        """Diagnose what is new and ready, the newest first; whether something still grows."""
        from timesink.readers.formats import is_profile

        known = {row.name: row.key for row in self.rows()}
        wanted = [place for place in places(self.root, self.pages) if not self.names or place.name in self.names]
        growing = False
        for place in wanted:
            if known.get(place.name) == place.key:
                continue
            if not settling.is_ready(place):
                growing = True
            elif place.is_whole or is_profile(place.paths[0]):
                self._keep(self._row(place))
        if not (self.pages / "index.html").exists():
            self._index()
        return growing

    def rows(self) -> list[Watched]:
        """What was kept, the newest first."""
        found = []
        for path in self.pages.glob("*.json"):
            try:
                found.append(Watched.of(document(path)))
            except (OSError, ValueError):
                continue
        return sorted((row for row in found if row), key=lambda row: (row.recorded, row.name), reverse=True)

    def _row(self, place: FoundCapture) -> Watched:
        """Its diagnosis, with a report beside the index; what is wrong with it where it has none."""
        from timesink.readers import read
        from timesink.render.html import html_report

        try:
            with spending.watched():
                trace = of_run(read(place.paths, cache=False), None, place.paths)
                diagnosis = diagnose(trace)
                check_diagnosis(trace, diagnosis)
                report = f"{slug(place.name)}.html"
                row = watched(place.name, place.key, place.recorded, diagnosis, report)
                _say(self.root, self.pages, row)
                self.pages.mkdir(exist_ok=True)
                write_whole(self.pages / report, html_report(trace, diagnosis))
        except (TimesinkError, OSError) as error:
            named = "" if place.paths[0].name in str(error) else f"{self.root / place.name}: "
            _tell(f"skipped: {named}{error}")
            return Watched(place.name, place.key, place.recorded, error=str(error))
        return row

    def _keep(self, row: Watched) -> None:
        """Store the row, renew the index, and tell the logs."""
        self.pages.mkdir(exist_ok=True)
        write_whole(self.pages / f"{slug(row.name)}.json", json.dumps(row.stored(), indent=1) + "\n")
        self._index()
        if not row.error:
            done = sum(not one.error for one in self.rows())
            for log in self.logs:
                log.attach()
                words = {"capture": row.name, "verdict": row.statement, "report": str(self.pages / row.report)}
                log.write(row.figures, words, done)

    def _index(self) -> None:
        from timesink.render.html import render_index

        self.pages.mkdir(exist_ok=True)
        write_whole(self.pages / "index.html", render_index(f"Captures in {self.root.resolve()}", self.rows()))


def _tell(what: str) -> None:
    """What is done, on stderr: verdicts alone are on stdout."""
    sys.stderr.write(f"timesink: {scrub_sentence(what)}\n")


def _say(root: Path, pages: Path, row: Watched) -> None:
    """The verdict in a few lines."""
    first = f"timesink: {root / row.name}: {row.bottleneck.replace('_', ' ')}: {row.statement}"
    lines = [first, *row.saves, row.left, f"report: {pages / row.report}"]
    shown = [scrub_sentence(line) for line in lines]
    sys.stdout.write(shown[0] + "\n" + "".join(f"  {line}\n" for line in shown[1:]))
    sys.stdout.flush()
