"""`timesink summary`: the figures, without judgement. `timesink tables`: what a file holds, as timesink sees it."""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli.options import LinkedOnly, PageOutput, Paths, Reading
from timesink.cli.output import working


def command(
    paths: Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows per table.")] = 10,
    linked_only: LinkedOnly = False,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show budget, steps, kernels, copies, waits and launches.

    Figures only: `timesink diagnose` says which of them matter.
    """
    target = writing.sink(paths)
    trace = reading.trace(paths, linked_only=linked_only)
    with working("measuring"):
        from timesink.views.summary import summary_page

        page = summary_page(trace, top)
    target.show(page)
    return 0


def tables(paths: Paths, *, writing: PageOutput, reading: Reading) -> int:
    """List what a trace holds and what was lost on the way."""
    from timesink.views.summary import tables_page

    target = writing.sink(paths)
    target.show(tables_page(reading.trace(paths)))
    return 0
