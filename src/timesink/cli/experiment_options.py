"""Options of the commands that run programs, declared once so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- CMD...", help="The program and its arguments; no shell runs.", show_default=False),
]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="CMD", help="The unchanged program, as one quoted command.", show_default=False),
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="CMD", help="The changed program, as one quoted command.", show_default=False),
]
Toggle = Annotated[
    str | None,
    typer.Option(
        "--toggle", metavar="NAME=A/B", help="The change is this variable: A before, B after.", show_default=False
    ),
]
StepPattern = Annotated[
    str | None,
    typer.Option(
        "--step-pattern",
        metavar="REGEX",
        help="Read step times from the output; a group (?P<ms>...) (or s, us, ns) holds value and unit.",
        show_default=False,
    ),
]
ReceiptPattern = Annotated[
    str | None,
    typer.Option(
        "--receipt-pattern",
        metavar="REGEX",
        help="With --step-pattern: what each run computed (a loss, a checksum); its last match must agree.",
        show_default=False,
    ),
]
StepsJson = Annotated[
    str | None,
    typer.Option(
        "--steps-json",
        metavar="FILE[:KEY]",
        help="Read step times from a JSON file that every run writes; a key ending in _ms, _us, _ns says the unit.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="S", help="Longest a single run may take, in seconds.")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Keep every run's output and steps in this folder.", show_default=False),
]
Threshold = Annotated[
    str, typer.Option("--threshold", metavar="SHARE", help="Changes of step time under this do not matter.")
]
Looks = Annotated[str, typer.Option("--pairs", metavar="N,N,...", help="Numbers of pairs after which to look.")]
WarmUpPairs = Annotated[
    int,
    typer.Option(
        "--warm-up-pairs", min=0, metavar="N", help="Pairs run first and not counted; 0 where caches are already warm."
    ),
]
Tolerance = Annotated[
    str, typer.Option("--receipt-tolerance", metavar="SHARE", help="Receipts that are numbers may differ by this.")
]
Suite = Annotated[str, typer.Option("--suite", metavar="NAME", help="Name of what is compared, in reports and files.")]
Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="Where baselines, calibrations and the ledger lie.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 where nothing can be said.")]
LedgerEntry = Annotated[
    int | None,
    typer.Option("--ledger", metavar="N", help="Close this entry of the ledger with the outcome.", show_default=False),
]
Junit = Annotated[
    Path | None, typer.Option("--junit-xml", metavar="FILE", help="Also as JUnit XML.", show_default=False)
]
OpenMetrics = Annotated[
    Path | None, typer.Option("--openmetrics", metavar="FILE", help="Also as OpenMetrics text.", show_default=False)
]
CodeQuality = Annotated[
    Path | None,
    typer.Option("--gitlab-codequality", metavar="FILE", help="Also as GitLab Code Quality.", show_default=False),
]
Comment = Annotated[
    Path | None,
    typer.Option("--comment", metavar="FILE", help="Also as a pull-request comment (Markdown).", show_default=False),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-file", metavar="FILE", help="A file that is part of the work; may be repeated.", show_default=False
    ),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="NAME=VALUE",
        help="A fact of the work (shape, world size); may be repeated.",
        show_default=False,
    ),
]
