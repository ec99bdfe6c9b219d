"""`timesink idle`: why each GPU waited."""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import read_traces


def command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of the table of places.")] = 15,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    window: options.Window = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show what each GPU waited for while it was idle.

    Every gap is blamed whole and once; what nothing explains is called unexplained.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window)
    with working("blaming idle time"):
        from timesink.views.idle import idle_page

        page = idle_page(trace, top)
    target.page(page)
    return 0
