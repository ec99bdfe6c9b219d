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
    from timesink.measures.communication.pipelines import read_stage_logs
    from timesink.views.page import Column, Page, Sheet

    target = sink(form, output, no_color, logs)
    overlap = (found := read_stage_logs(logs, unit)).overlap
    score = overlap.score
    passed = score is not None and score >= min_overlap
    stages = Sheet(
        "stages",
        "Stages",
        (Column("stage", "stage", is_name=True), Column("time_ns", "usual time", unit="ns")),
        tuple((stage.name, stage.time_ns) for stage in overlap.stages),
        "median over items",
    )
    figures = Sheet(
        "overlap",
        "Overlap",
        (
            Column("period_ns", "period", unit="ns"),
            Column("serial_ns", "one after another", unit="ns"),
            Column("hidden_ns", "hidden", unit="ns"),
            Column("headroom_ns", "headroom", unit="ns"),
            Column("bubble_ratio", "bubble", unit="ratio"),
            Column("overlap_score", "OverlapScore", unit="1"),
            Column("min_overlap", "at least", unit="1"),
            Column("passed", "passed", is_name=True),
        ),
        ((overlap.period_ns, overlap.serial_ns, overlap.hidden_ns, overlap.headroom_ns, overlap.bubble_ratio,
          None if score is None else round(score, 4), min_overlap, "yes" if passed else "no"),),
        f"{found.items} items; score 0: one stage after another; 1: the period is the longest stage",
    )  # fmt: skip
    target.page(Page("Overlap of logged stages", (stages, figures)))
    return 0 if passed or exit_zero else 1
