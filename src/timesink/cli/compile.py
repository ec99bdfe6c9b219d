"""`timesink compile`: what torch.compile did, by its log, by a trace, or by both."""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import read_traces


def command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of each table.")] = 20,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show graph breaks, recompilations and compile times.

    With a trace, also how many compiled regions a step runs. PATHs are logs (TORCH_TRACE, TORCH_LOGS), traces, or both
    of one run.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache)
    with working("summing up compilation"):
        from timesink.views.compile import compile_page

        page = compile_page(trace, top)
    target.page(page)
    return 0
