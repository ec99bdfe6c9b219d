"""`timesink report`: the diagnosis as a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.diagnose import chosen_rules, parsed_limits
from timesink.cli.output import sink
from timesink.cli.progress import working
from timesink.cli.reading import read_traces
from timesink.reporters.formats import Format


def command(
    paths: options.Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE|-", help="Write to this file, all of it or nothing.")
    ] = Path("report.html"),
    ranks: options.Ranks = None,
    only: options.Only = None,
    skip: options.Skip = None,
    limits: options.LimitValues = None,
    window: options.Window = None,
    linked_only: options.LinkedOnly = False,
    no_cache: options.NoCache = False,
) -> int:
    """Write the diagnosis as one HTML file with timelines.

    The file loads nothing: it can be mailed, attached to a ticket and opened without a network. It holds names from the
    trace and the paths given here.
    """
    target = sink(Format.HTML, output, True, paths)
    overrides = parsed_limits(limits or ())
    rules = chosen_rules(only or (), skip or ())
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window, linked_only=linked_only)
    with working("writing the report"):
        from timesink.cli.html_report import html_report
        from timesink.engine import diagnose

        text = html_report(trace, diagnose(trace, rules, overrides))
    target.write(text)
    return 0
