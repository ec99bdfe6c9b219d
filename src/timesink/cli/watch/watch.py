"""`timesink watch`: diagnose what appears in a folder, and keep an index page of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.capture.window_verdict import PAGES, slug
from timesink.cli.capture import translated
from timesink.cli.options import argument, flag, option
from timesink.cli.reading import of_run
from timesink.cli.watch.folder import FoundCapture, Settling, places
from timesink.errors import TimesinkError, UsageError
from timesink.model.record import dataclass
from timesink.untrusted.plain_json import document
from timesink.untrusted.scrub import scrub_sentence
from timesink.untrusted.whole_file import write_whole
from timesink.views.verify import Watched

if TYPE_CHECKING:
    from timesink.capture.figure_logs import Log


def command(
    folder: Annotated[Path, argument("DIR", "Where captures appear, at any depth.")],
    once: Annotated[bool, flag("--once", "Diagnose what is there, and end.")] = False,
    name: Annotated[
        list[str] | None, option("--name", "NAME", "Only this capture, by its path below DIR; may be repeated.")
    ] = None,
    every: Annotated[float, option("--every", "S", "Seconds between two looks.", min=0.1)] = 5.0,
    quiet_for: Annotated[
        float, option("--quiet-for", "S", "How long a file must not have grown to be read.", min=0.0)
    ] = 3.0,
    log: Annotated[
        list[str] | None,
        option("--log", "NAME", "Figures and the link also to wandb, mlflow or tensorboard; may be repeated."),
    ] = None,
) -> int:
    """Diagnose captures as they appear in a folder.

    The folder DIR/timesink holds the reports and index.html, which is replaced whole. A capture of timesink is read
    once its manifest is there, any other file once it has stopped growing. What cannot be read is named there and left
    alone until it changes. Nothing is read twice, also after a restart.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", remedy="give the folder that captures are written to")
    from timesink.capture.figure_logs import opened

    pages = folder / PAGES
    with translated():
        logs = opened(tuple(log or ()), pages, starts_runs=True)
    watch = FolderWatch(folder, pages, frozenset(name or ()), logs)
    settling = Settling(quiet_for)
    try:
        while True:
            growing = watch.look(settling)
            if once and not growing:
                return 0
            time.sleep(min(every, max(quiet_for / 2, 0.05)) if once else every)
    finally:
        for one in logs:
            one.close()


@dataclass(frozen=True, slots=True)
class FolderWatch:
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
        from timesink.diagnosis.engine import diagnose
        from timesink.diagnosis.undiagnosable import check_diagnosis
        from timesink.readers import read
        from timesink.render.html import html_report
        from timesink.views.verify import watched

        try:
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
            sys.stderr.write(f"timesink: skipped: {scrub_sentence(named + str(error))}\n")
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


def _say(root: Path, pages: Path, row: Watched) -> None:
    """The verdict in a few lines."""
    first = f"timesink: {root / row.name}: {row.bottleneck.replace('_', ' ')}: {row.statement}"
    lines = [first, *row.saves, row.left, f"report: {pages / row.report}"]
    shown = [scrub_sentence(line) for line in lines]
    sys.stdout.write(shown[0] + "\n" + "".join(f"  {line}\n" for line in shown[1:]))
    sys.stdout.flush()
