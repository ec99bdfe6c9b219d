"""Options that several commands share, declared once so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.render.formats import Format

TRACES = "Traces: PyTorch profiler JSON, Nsight Systems reports or exports; a folder stands for the traces in it."
Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help=TRACES, show_default=False)]
Form = Annotated[
    Format | None,
    typer.Option(
        "--format", "-f", help="How to write the report [default: text, or as FILE is named].", show_default=False
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE|-", help="Write to this file, all of it or nothing.", show_default=False
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Write no colour (NO_COLOR and FORCE_COLOR count too).")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Read the files anew; keep nothing in the user's cache folder.")
]
Ranks = Annotated[
    list[int] | None,
    typer.Option("--rank", metavar="N", help="Look at this rank only; may be repeated.", show_default=False),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="START:END",
        help="Read only this stretch, counted from the first event, as in 12.5s:13.5s, 800ms: or :3s.",
        show_default=False,
    ),
]
LinkedOnly = Annotated[
    bool,
    typer.Option("--linked-only", help="Leave out GPU work whose launch is not in the trace (TraceLens' convention)."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CODE", help="Apply only this rule; may be repeated.", show_default=False),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="CODE", help="Leave this rule out; may be repeated.", show_default=False),
]
LimitValues = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="CODE.NAME=VALUE", help="Use this limit; may be repeated.", show_default=False),
]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 also where the gate fails.")]
