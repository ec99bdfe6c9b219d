"""The verdict of one window that a training recorded: a report and a row beside it, and an index page of all windows.

`timesink.capture.trainer` ends by becoming this program: ``python -m timesink.cli.verdict ROOT NAME``, where NAME is
the folder of the window below ROOT.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from timesink.capture.trainer import PAGES, slug
from timesink.cli.options import of_run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.undiagnosable import check_diagnosis
from timesink.errors import TimesinkError
from timesink.readers import read
from timesink.render.html import html_report, render_index
from timesink.untrusted import scrub_sentence, spending
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole
from timesink.views.verify import WindowRow, row_of


def judge_window(root: Path, name: str) -> None:
    """Diagnose the window, print what limits it, keep report and row, and renew the index."""
    pages, window, report = root / PAGES, root / name, f"{slug(name)}.html"
    pages.mkdir(exist_ok=True)
    recorded = datetime.fromtimestamp(max(file.stat().st_mtime for file in window.iterdir()), UTC)
    when = recorded.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    try:
        with spending.watched():
            trace = of_run(read([window], cache=False), None, [window])
            diagnosis = diagnose(trace)
            check_diagnosis(trace, diagnosis)
            row = row_of(name, when, diagnosis, report)
            _say(root, pages, row)
            write_whole(pages / report, html_report(trace, diagnosis))
    except (TimesinkError, OSError) as error:
        named = "" if name in str(error) else f"{window}: "
        sys.stderr.write(f"timesink: skipped: {scrub_sentence(f'{named}{error}')}\n")
        row = WindowRow(name, when, error=str(error))
    write_whole(pages / f"{slug(name)}.json", json.dumps(row.stored(), indent=1) + "\n")
    write_whole(pages / "index.html", render_index(f"Captures in {root.resolve()}", kept_rows(pages)))


def kept_rows(pages: Path) -> list[WindowRow]:
    """The rows of all windows, the newest first; what is none is left out."""
    found = []
    for path in pages.glob("*.json"):
        try:
            found.append(WindowRow.of(document(path)))
        except (OSError, ValueError):
            continue
    return sorted((row for row in found if row), key=lambda row: (row.recorded, row.name), reverse=True)


def _say(root: Path, pages: Path, row: WindowRow) -> None:
    """The verdict in a few lines."""
    first = f"timesink: {root / row.name}: {row.bottleneck.replace('_', ' ')}: {row.statement}"
    lines = [scrub_sentence(line) for line in (first, *row.saves, row.left, f"report: {pages / row.report}")]
    sys.stdout.write(lines[0] + "\n" + "".join(f"  {line}\n" for line in lines[1:]))
    sys.stdout.flush()


if __name__ == "__main__":
    judge_window(Path(sys.argv[1]), sys.argv[2])
