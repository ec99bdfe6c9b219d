"""`timesink lines`: which lines of the program the GPU's time and its idle time come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli.options import PageOutput, Paths, Reading, Stepping
from timesink.cli.output import working


def command(
    paths: Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of each table.")] = 15,
    source: Annotated[
        Path, typer.Option("--code", metavar="DIR", help="Where the program's files lie.", file_okay=False)
    ] = Path(),
    *,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Show GPU time, idle time and host time by line of the program.

    A kernel belongs to the innermost line outside of libraries that launched it, a kernel of the backward pass to the
    line of its forward operator. Without stacks and samples, ranges stand for lines.
    """
    target = writing.sink(paths)
    trace = stepping.applied(reading.trace(paths))
    with working("following stacks"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.lines import lines_page

        check_device_work(trace, "time by line")
        page = lines_page(trace, top, source)
    target.show(page)
    return 0
