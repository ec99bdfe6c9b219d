"""`timesink open`: a trace in the Perfetto UI, handed over on this machine."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.progress import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.scrub import scrub_sentence

if TYPE_CHECKING:
    from timesink.findings import Diagnosis
    from timesink.model.trace import Trace

UI = "https://ui.perfetto.dev"


def command(
    paths: options.Paths,
    finding: Annotated[
        int | None,
        typer.Option("--finding", min=1, metavar="N", help="Open at the Nth finding.", show_default=False),
    ] = None,
    origin: Annotated[str, typer.Option("--origin", metavar="URL", help="A Perfetto UI of your own.")] = UI,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link; start no browser.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait.")] = 120.0,
    ranks: options.Ranks = None,
    window: options.Window = None,
    no_cache: options.NoCache = False,
) -> int:
    """Show a trace in the Perfetto UI.

    The trace is served once, to that page alone, from 127.0.0.1:9001, the one address Perfetto's policy allows. It
    stays in your browser. The command ends when the page has taken it.
    """
    import webbrowser

    from timesink.exports.handover import PORT, checked_origin, deep_link, serve_once

    checked_origin(origin)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.pftrace"
        with working("making the Perfetto trace"):
            diagnosis = _written(trace, file)
        link = deep_link(origin, _window(trace, diagnosis, finding))
        sys.stdout.write(f"{link}\n")
        if finding is None:
            _list_findings(trace, diagnosis, origin)
        sys.stdout.flush()
        started = None if no_browser else webbrowser.open
        taken = serve_once(file, origin, timeout, on_ready=(lambda: started(link)) if started else None)
    if not taken:
        raise UsageError(
            f"no page took the trace from 127.0.0.1:{PORT} in {timeout:g} s", remedy="open the link, or raise --timeout"
        )
    return 0


def _written(trace: Trace, file: Path) -> Diagnosis:
    from timesink.engine import diagnose
    from timesink.exports.perfetto import write_perfetto

    diagnosis = diagnose(trace)
    with file.open("wb") as stream:
        write_perfetto(trace, diagnosis, stream)
    return diagnosis


def _window(trace: Trace, diagnosis: Diagnosis, number: int | None) -> tuple[int, int] | None:
    """The stretch of time around that finding, the same as in the report."""
    if number is None:
        return None
    if number > len(diagnosis.findings):
        raise UsageError(f"there is no finding {number}", remedy=f"the diagnosis has {len(diagnosis.findings)}")
    found = _place(trace, diagnosis, number)
    if found is None:
        raise UsageError(f"finding {number} has no place in time", remedy="leave --finding out")
    return found


def _place(trace: Trace, diagnosis: Diagnosis, number: int) -> tuple[int, int] | None:
    from timesink.report_model.windows import window_of

    window = window_of(trace, diagnosis.findings[number - 1][1])
    return None if window is None else (window.start_ns, window.end_ns)


def _list_findings(trace: Trace, diagnosis: Diagnosis, origin: str) -> None:
    """Each finding with the link that opens the trace at its window; the file is served to whichever comes first."""
    from timesink.exports.handover import deep_link

    for number, (card, finding) in enumerate(diagnosis.findings, start=1):
        place = _place(trace, diagnosis, number)
        link = "no place in time" if place is None else deep_link(origin, place)
        sys.stdout.write(f"finding {number}: {card.code} {scrub_sentence(finding.message)}\n  {link}\n")
