"""`timesink redact`: take out of a capture what names people, machines and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli.capture import translated
from timesink.cli.options import NoColor, format_option
from timesink.cli.output import sink
from timesink.render.formats import Format


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A capture or a report.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The new file [default: NAME.redacted.*].", show_default=False
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="Another host or user to look for; may be repeated."),
    ] = None,
    form: Annotated[Format | None, format_option("Page")] = None,
    no_color: NoColor = False,
) -> int:
    """Take what names people, machines and secrets out of a capture.

    Environment, command lines, folders, host and user names go, and what was removed is said. Takes Nsight
    Systems exports (.sqlite), PyTorch profiler traces (.json, .json.gz), Nsight Compute reports (.ncu-rep) and
    text or JSON reports. Names that look like none of these stay: look at what you share.
    """
    from timesink.capture.redaction import redact
    from timesink.views.page import Field, Page, Sheet

    with translated():
        done = redact(file, output, names or ())
    rows = tuple((text,) for text in done.removed) or (("nothing was found",),)
    sheet = Sheet("removed", "Removed", (Field("what", "what"),), rows)
    sink(form, None, no_color, [file]).show(Page(f"Redacted copy: {done.path}", (sheet,)))
    return 0
