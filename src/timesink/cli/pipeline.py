"""`timesink pipeline`: how well the stages of a program overlap, from the times it logged itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from timesink.cli import options
from timesink.cli.output import sink

Logs = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG",
        help="Stage times of each rank, JSON lines or CSV: columns tA0, tA1 of stage A, tB0, tB1 of stage B, ...",
        show_default=False,
    ),
]
MinOverlap = Annotated[
    float, typer.Option("--min-overlap", min=0.0, max=1.0, metavar="SCORE", help="Fail below this OverlapScore.")
]
Unit = Annotated[Literal["s", "ms", "us", "ns"], typer.Option("--unit", help="Unit of the logged times.")]


def command(
    logs: Logs,
    min_overlap: MinOverlap = 0.30,
    unit: Unit = "s",
    form: options.Form = None,
    output: options.Output = None,
    exit_zero: options.ExitZero = False,
    no_color: options.NoColor = False,
) -> int:
    """Score how much of logged stage times overlaps, and fail below a share.

    OverlapScore = (sum of stages - period) / (sum of stages - longest stage). Each rank's clock is used for its own
    stages only.
    """
    from timesink.views.ranks import logged_stages_page

    target = sink(form, output, no_color, logs)
    page, passed = logged_stages_page(logs, unit, min_overlap)
    target.page(page)
    return 0 if passed or exit_zero else 1
