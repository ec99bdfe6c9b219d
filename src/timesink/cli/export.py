"""`timesink export`: a trace in the formats of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.progress import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.whole_file import whole_file

if TYPE_CHECKING:
    from timesink.model.trace import Trace

WHOLE = (".pftrace", ".perfetto-trace", ".speedscope.json")


def command(
    paths: options.Paths,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="FILE.pftrace or FILE.speedscope.json; with --table also .parquet, .csv, .json.",
        ),
    ],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="The table to write; timesink tables lists them.", show_default=False
        ),
    ] = None,
    ranks: options.Ranks = None,
    no_findings: Annotated[
        bool, typer.Option("--no-findings", help="Leave the diagnosis out of the timeline.")
    ] = False,
    window: options.Window = None,
    no_cache: options.NoCache = False,
) -> int:
    """Write a trace for Perfetto or speedscope, or one of its tables.

    A Perfetto trace holds everything that has a start and an end, and on tracks of its own what timesink found:
    steps, idle time by cause, the critical path, the time each finding claims, queue depth, bytes being copied.
    """
    if (table is None) != output.name.lower().endswith(WHOLE):
        raise UsageError(
            f"{output} is no file to write this to",
            remedy="give -o FILE.pftrace or FILE.speedscope.json, or --table NAME with -o FILE.parquet, .csv or .json",
        )
    if any(path.exists() and output.exists() and output.samefile(path) for path in paths):
        raise UsageError(f"{output} is an input of this command", remedy="choose another file for --output")
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window)
    with working(f"writing {output.name}"), whole(output) as part:
        if table is None and output.suffix.lower() == ".json":
            from timesink.exports.speedscope import write_speedscope

            with part.open("w", encoding="utf-8") as file:
                write_speedscope(trace, file)
        elif table is None:
            perfetto_file(trace, part, findings=not no_findings)
        else:
            from timesink.exports.files import table_named, write_table

            write_table(table_named(trace, table), part)
    return 0


def perfetto_file(trace: Trace, path: Path, *, findings: bool) -> None:
    """The trace as a Perfetto file."""
    from timesink.engine import diagnose
    from timesink.exports.perfetto import write_perfetto

    with path.open("wb") as file:
        write_perfetto(trace, diagnose(trace) if findings else None, file)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """`whole_file`, which tells people what cannot be written."""
    try:
        with whole_file(path) as part:
            yield part
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", remedy="choose another --output") from error
