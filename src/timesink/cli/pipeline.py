"""`timesink pipeline`: what stages that a program logged say of its period."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from timesink.cli.options import ExitZero, PageOutput
from timesink.render.formats import Format

if TYPE_CHECKING:
    from timesink.views.page import Page
    from timesink.views.pipeline import PipelineGate

Logs = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG",
        help="Stage times of each rank, JSON lines or CSV: columns tA0, tA1 of part A, tB0, tB1 of part B, ...",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """How logs are read."""

    unit: Annotated[
        Literal["s", "ms", "us", "ns"],
        typer.Option("--unit", metavar="UNIT", help="Unit of times that state none: s, ms, us or ns."),
    ] = "s"
    columns: Annotated[
        str,
        typer.Option(
            "--columns", metavar="PARTS", show_default=False,
            help="Columns of each part: encode=t_in..t_out,send=t_out..t_sent. Parts send, recv, transfer move data.",
        ),
    ] = ""  # fmt: skip
    skip: Annotated[
        int, typer.Option("--skip-items", min=0, metavar="N", help="Items of each step to leave out first.")
    ] = 0

    def page(self, logs: list[Path], against: list[Path], gate: PipelineGate) -> tuple[Page, bool]:
        """What the logs say, or what changed from them to others; and whether that passes the gate."""
        from timesink.views.pipeline import compared_page, logged_page

        how = (self.unit, self.columns, self.skip)
        return compared_page(logs, against, gate, *how) if against else logged_page(logs, gate, *how)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """What fails."""

    min_overlap: Annotated[
        float, typer.Option("--min-overlap", min=0.0, max=1.0, metavar="SCORE", help="Fail below this OverlapScore.")
    ] = 0.30
    max_period_ms: Annotated[
        float | None,
        typer.Option(
            "--max-period-ms", min=0.0, metavar="MS", show_default=False, help="Fail above this median period."
        ),
    ] = None


def command(
    logs: Logs,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="LOG",
            show_default=False,
            help="Logs of the run after a change, one for each rank: say what it bought.",
        ),
    ] = None,
    exit_zero: ExitZero = False,
    *,
    reading: LogReading,
    limits: PipelineLimits,
    writing: PageOutput,
) -> int:
    """Say whether the period of a pipeline is its longest stage or their sum.

    OverlapScore = hidden time / (sum of stages - longest stage), item by item. All that a rank works on an item is one
    stage; the clocks of ranks are not compared. timesink.stages() writes such logs.
    """
    from timesink.units import NS_PER_MS
    from timesink.views.pipeline import PipelineGate, in_text

    target = writing.sink([*logs, *(against or [])])
    most = None if limits.max_period_ms is None else limits.max_period_ms * NS_PER_MS
    page, passed = reading.page(logs, against or [], PipelineGate(limits.min_overlap, most))
    target.show(in_text(page) if target.form is Format.TEXT else page)
    return 0 if passed or exit_zero else 1
