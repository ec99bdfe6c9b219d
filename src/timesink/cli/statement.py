"""`timesink statement`: the sentences that a team writes down of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli.options import PageOutput, Paths, Reading, Stepping
from timesink.cli.output import working
from timesink.render.formats import Format
from timesink.untrusted.scrub import scrub


def command(
    paths: Paths,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="TRACE",
            show_default=False,
            help="The same program before a change: say what became of the step and of graph breaks.",
        ),
    ] = None,
    *,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Print the sentences that a team writes down of a run.

    Where the time goes, how long a step takes, what overlaps and what the compiler made of it, each with its scope:
    steps, facts of the run (--fact of capture), as profiled or not. What a trace does not show is left out.
    """
    target = writing.sink([*paths, *(against or [])])
    trace = stepping.applied(reading.trace(paths))
    before = stepping.applied(reading.trace(against)) if against else None
    with working("writing the statement"):
        from timesink.views.statement import statement_page

        page = statement_page(trace, before)
    if target.form is Format.TEXT:
        lines = (": ".join(str(cell) for cell in row) for row in page.sheets[0].rows)
        target.write("".join(f"{scrub(line)}\n" for line in lines))
    else:
        target.show(page)
    return 0
