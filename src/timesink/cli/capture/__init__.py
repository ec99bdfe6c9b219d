"""`timesink capture`: run a program under the right profiler, with the right flags."""

from __future__ import annotations

import typer

from timesink.cli.capture.ncu import ncu
from timesink.cli.capture.nsys import nsys
from timesink.cli.capture.torch import torch

app = typer.Typer(
    help="Record a program with torch.profiler, nsys or ncu.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("torch")(torch)
app.command("nsys")(nsys)
app.command("ncu")(ncu)
