"""`timesink compile`: what torch.compile did, by its log, by a trace, or by both."""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli.options import NoCache, PageOutput, Paths, Ranks
from timesink.cli.output import working
from timesink.cli.reading import read_traces


def command(
    paths: Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of each table.")] = 20,
    ranks: Ranks = None,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Show graph breaks, recompilations and compile times.

    With a trace, also how many compiled regions a step runs. PATHs are logs (TORCH_TRACE, TORCH_LOGS), traces, or both
    of one run.
    """
    target = writing.sink(paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache)
    with working("summing up compilation"):
        from timesink.views.compile import compile_page

        page = compile_page(trace, top)
    target.show(page)
    return 0
