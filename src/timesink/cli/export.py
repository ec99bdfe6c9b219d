"""`timesink report --export`: a trace in the formats of other tools. `--open`: a trace in the Perfetto UI.

`--serve`: a report whose timeline holds every event.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from timesink.cli import asked, completion
from timesink.cli.options import NO_BROWSER, PATHS, PricedReading
from timesink.cli.output import working
from timesink.cli.parameters import Option
from timesink.errors import UsageError
from timesink.untrusted import scrub_sentence
from timesink.untrusted.whole_file import whole_file

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace

COLLAPSED = ".collapsed"
# What the file of each format of another tool is called, the usual name first; a table of the trace is called .parquet,
# .csv or .json.
NAMED = {
    "perfetto": (".pftrace", ".perfetto-trace"),
    "speedscope": (".speedscope.json",),
    "collapsed": (COLLAPSED,),
    "table": (".parquet", ".csv", ".json"),
}
WHOLE = tuple(end for to, ends in NAMED.items() if to != "table" for end in ends)


class StackTime(StrEnum):
    """Which time of a call path."""

    GPU = "gpu"
    IDLE = "idle"
    HOST = "host"


def export(
    paths: Annotated[list[Path], PATHS],
    to: Annotated[
        Literal["perfetto", "speedscope", "collapsed", "table"] | None,
        Option(
            "--export", "FORMAT", "perfetto, speedscope, collapsed, or table with --table [default: as FILE is named]."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            "--output -o",
            "FILE",
            "FILE.pftrace, .speedscope.json or .collapsed; with --table also .parquet, .csv, .json.",
            must=asked.place,
        ),
    ] = None,
    table: Annotated[
        str | None,
        Option("--table", "NAME", "The table to write; timesink show tables lists them.", complete=completion.tables),
    ] = None,
    time: Annotated[
        StackTime, Option("--time", "", "The time of FILE.collapsed: of the GPU, its idle time, the CPU's.")
    ] = StackTime.GPU,
    *,
    reading: PricedReading,
) -> int:
    """Write a trace for Perfetto, speedscope or flame graphs, or one of its tables.

    A Perfetto trace holds everything that has a start and an end, and on tracks of its own what timesink found:
    steps, idle time by cause, the critical path, the time each finding claims, queue depth, bytes being copied.
    """
    output = _named(output, to, table)
    if any(path.exists() and output.exists() and output.samefile(path) for path in paths):
        raise UsageError(f"{output} is an input of this command", remedy="choose another file for --output")
    trace = reading.trace(paths)
    from timesink.diagnosis.engine import diagnose
    from timesink.diagnosis.undiagnosable import check_timeline

    if table is None:
        check_timeline(trace, "timeline")
    with working(f"writing {output.name}"), _whole(output) as part:
        if table is not None:
            from timesink.export.held import table_named, write_table

            write_table(table_named(trace, table), part)
        elif output.suffix.lower() in (COLLAPSED, ".json"):
            _write_stacks(trace, part, time if output.suffix.lower() == COLLAPSED else None)
        else:
            _write_perfetto(trace, diagnose(trace), part)
    return 0


def _named(output: Path | None, to: str | None, table: str | None) -> Path:
    """The file to write, whose name says its format; a `UsageError` where it does not, or says another."""
    if output is None and to not in (None, "table"):
        output = Path(f"trace{NAMED[to][0]}")
    if output is None:
        raise UsageError("missing output file", remedy="give -o FILE")
    if to is not None and not output.name.lower().endswith(NAMED[to]):
        raise UsageError(
            f"a file for {to} is not called {output}",
            remedy=f"give -o FILE{', or FILE'.join(NAMED[to])}, or leave --export out: the name alone says the format",
        )
    if (table is None) != output.name.lower().endswith(WHOLE):
        raise UsageError(
            f"cannot tell a format for this from the name {output}",
            remedy="give -o FILE.pftrace, FILE.speedscope.json or FILE.collapsed, or --table NAME with -o "
            "FILE.parquet, .csv or .json",
        )
    return output


def _write_stacks(trace: Trace, path: Path, time: StackTime | None) -> None:
    """That time by call path for a flame graph; without one, everything for speedscope."""
    from timesink.export.tracks import write_collapsed, write_speedscope

    with path.open("w", encoding="utf-8") as file:
        if time is None:
            write_speedscope(trace, file)
        else:
            write_collapsed(trace, file, time.value)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """`whole_file`, which tells people what cannot be written."""
    try:
        with whole_file(path) as part:
            yield part
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", remedy="choose another --output") from error


UI = "https://ui.perfetto.dev"


def serve(
    paths: Annotated[list[Path], PATHS],
    port: Annotated[int, Option("--port", "PORT", "The port on 127.0.0.1; 0 for any.", least=0, most=65535)] = 0,
    no_browser: Annotated[bool, NO_BROWSER] = False,
    *,
    reading: PricedReading,
) -> int:
    """Show a report whose timeline holds every event.

    For traces too large for one file. The page asks this machine for what it shows: the timeline at once, and the
    report with its findings when it is made. Only 127.0.0.1 is listened on, only the printed link is answered, and
    nothing can be changed. Ctrl-C ends it.
    """
    from timesink.cli.serve import serve_trace

    serve_trace(paths, lambda: reading.trace(paths), port, no_browser)
    return 0


def open_trace(
    paths: Annotated[list[Path], PATHS],
    finding: Annotated[int | None, Option("--finding", "N", "Open at the Nth finding.", least=1)] = None,
    at: Annotated[
        str | None, Option("--at", "START:END", "Open at this stretch, as of --window.", must=asked.window)
    ] = None,
    origin: Annotated[str, Option("--origin", "URL", "A Perfetto UI of your own.", must=asked.origin)] = UI,
    no_browser: Annotated[bool, NO_BROWSER] = False,
    timeout: Annotated[float, Option("--timeout", "S", "How long to wait, in seconds.", least=1)] = 120.0,
    *,
    reading: PricedReading,
) -> int:
    """Show a trace in the Perfetto UI.

    The trace is served once, to that page alone, from 127.0.0.1:9001, the one address Perfetto's policy allows. It
    stays in your browser. The command ends when the page has taken it.
    """
    if finding is not None and at is not None:
        raise UsageError("--finding and --at name two places", remedy="give one of them")
    trace = reading.trace(paths)
    import webbrowser

    from timesink.diagnosis.engine import diagnose
    from timesink.diagnosis.undiagnosable import check_timeline
    from timesink.export.perfetto import PORT, deep_link, serve_once

    check_timeline(trace, "timeline")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.pftrace"
        with working("making the Perfetto trace"):
            diagnosis = diagnose(trace)
            _write_perfetto(trace, diagnosis, file)
        link = deep_link(origin, _window(trace, diagnosis, finding) if at is None else _stretch(trace, at))
        sys.stdout.write(f"{link}\n")
        if finding is None and at is None:
            _list_findings(trace, diagnosis, origin)
        sys.stdout.flush()
        started = None if no_browser else webbrowser.open
        taken = serve_once(file, origin, timeout, on_ready=(lambda: started(link)) if started else None)
    if not taken:
        raise UsageError(
            f"no page took the trace from 127.0.0.1:{PORT} in {timeout:g} s", remedy="open the link, or raise --timeout"
        )
    return 0


def _write_perfetto(trace: Trace, diagnosis: Diagnosis | None, path: Path) -> None:
    from timesink.export.perfetto import write_perfetto

    with path.open("wb") as file:
        write_perfetto(trace, diagnosis, file)


def _window(trace: Trace, diagnosis: Diagnosis, number: int | None) -> tuple[int, int] | None:
    """The stretch of time around that finding, the same as in the report."""
    if number is None:
        return None
    if number > len(diagnosis.findings):
        raise UsageError(f"there is no finding {number}", remedy=f"the diagnosis has {len(diagnosis.findings)}")
    stretch = _place(trace, diagnosis, number)
    if stretch is None:
        raise UsageError(f"finding {number} has no place in time", remedy="leave --finding out")
    return stretch


def _stretch(trace: Trace, at: str) -> tuple[int, int]:
    """That stretch on the clock of the trace, counted from its first event as `--window` is."""
    from timesink.model.span import Span
    from timesink.model.window import Window

    window = Window.of(Span.parse(at), *(trace.extent_ns or (0, 0)))
    return window.start_ns, min(window.end_ns, window.last_ns)


def _place(trace: Trace, diagnosis: Diagnosis, number: int) -> tuple[int, int] | None:
    from timesink.views.timeline.finding_window import window_of

    window = window_of(trace, diagnosis.findings[number - 1][1])
    return None if window is None else (window.start_ns, window.end_ns)


def _list_findings(trace: Trace, diagnosis: Diagnosis, origin: str) -> None:
    """Each finding with the link that opens the trace at its window; the file is served to whichever comes first."""
    from timesink.export.perfetto import deep_link

    for number, (card, finding) in enumerate(diagnosis.findings, start=1):
        place = _place(trace, diagnosis, number)
        link = "no place in time" if place is None else deep_link(origin, place)
        sys.stdout.write(f"finding {number}: {card.code} {scrub_sentence(finding.message)}\n  {link}\n")
