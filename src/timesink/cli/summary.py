"""`timesink summary`: the figures, without judgement.

`timesink tables`: what a file holds, as timesink sees it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import read_traces


def command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows per table.")] = 10,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    window: options.Window = None,
    linked_only: options.LinkedOnly = False,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show budget, steps, kernels, copies, waits and launches.

    Figures only: `timesink diagnose` says which of them matter.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window, linked_only=linked_only)
    with working("measuring"):
        from timesink.views.summary import summary_page

        page = summary_page(trace, top)
    target.page(page)
    return 0


def tables(
    paths: options.Paths,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    window: options.Window = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """List what a trace holds and what was lost on the way."""
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window)
    from timesink.views.summary import tables_page

    target.page(tables_page(trace))
    return 0
