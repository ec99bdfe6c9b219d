"""`timesink kernels`: what limits each profiled kernel, and how much it could gain at most.

`timesink roofline`: how near each profiled kernel comes to each roof, as a table and as a picture.

`timesink next`: the exact ncu command for the few kernels of a timeline that are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli.options import NoCache, PageOutput, Paths
from timesink.cli.output import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.render.formats import Format
from timesink.render.values import filled
from timesink.units import share_text, time_text
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.views.kernels import NextKernel

_COMMAND_CHARACTERS = 2000

ReportFile = Annotated[
    Path,
    typer.Argument(
        metavar="REPORT",
        help="A Nsight Compute report (.ncu-rep, .ncu-repz) or its CSV page (raw or details).",
        show_default=False,
    ),
]


def command(
    report: ReportFile,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="REPORT", help="Compare with this earlier report.", show_default=False),
    ] = None,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Show what limits each profiled kernel and the most it could gain.

    With --format json `kernels` has one entry per launch, in report order.
    """
    target = writing.sink([report] if against is None else [report, against])
    trace = read_profiles(report, not no_cache)
    with working("explaining the kernels"):
        if against is not None:
            from timesink.views.kernels import comparison_page

            page = comparison_page(read_profiles(against, not no_cache), trace)
            target.show(page)
            return 0
        if target.form is Format.JSON:
            from timesink.render.json import SCHEMA_VERSION, json_text
            from timesink.views.kernels import kernel_entries

            target.write(json_text({"schema_version": SCHEMA_VERSION, "kernels": kernel_entries(trace)}))
            return 0
        from timesink.views.kernels import kernels_page

        target.show(kernels_page(trace))
    return 0


def read_profiles(path: Path, cache: bool) -> Trace:
    """The file as a trace that holds kernel profiles, else `UsageError`."""
    from timesink.model.tables import KERNEL_PROFILES

    trace = read_traces([path], cache=cache)
    if KERNEL_PROFILES not in trace:
        raise UsageError(
            f"{path} holds no kernel profiles",
            remedy="give a Nsight Compute report; `timesink next` prints the command",
        )
    return trace


def roofline(
    report: ReportFile,
    svg: Annotated[
        bool, typer.Option("--svg", help="Write an SVG picture [default: where FILE ends in .svg].")
    ] = False,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Draw the roofline of profiled kernels.

    Peaks come from the report's own counters at the clock it was profiled at; a datasheet stands in where it has none,
    and the page says so.
    """
    target = writing.sink([report])
    trace = read_profiles(report, not no_cache)
    with working("drawing the roofline"):
        from timesink.views.roofline import roofline_chart, roofline_page

        if svg or (target.path is not None and target.path.suffix.lower() == ".svg"):
            from timesink.render.svg import roofline_svg

            target.write(roofline_svg(roofline_chart(report.name, trace)))
        else:
            target.show(roofline_page(trace))
    return 0


def next_command(
    paths: Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Kernels to look at.")] = 3,
    program: Annotated[
        str, typer.Option("--program", metavar="CMD", help="The program to profile.")
    ] = "python train.py",
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Print the ncu command for the kernels worth a closer look.

    Chosen by their time in the steady steps. Each command skips the launches before the first steady step and profiles
    as many as the kernel has shapes, at most four.
    """
    target = writing.sink(paths)
    trace = read_traces(paths, cache=not no_cache)
    from timesink.views.kernels import next_kernels, next_page

    with working("choosing kernels"):
        chosen = next_kernels(trace, program, top)
    target.show(next_page(chosen)) if target.form is not Format.TEXT else target.write(_text(chosen, target.width))
    return 0


def _text(chosen: Sequence[NextKernel], width: int) -> str:
    """Each command on a line of its own, whole, so that it can be copied."""
    from timesink.views.kernels import NEXT_NOTES

    blocks = []
    for kernel in chosen:
        target = kernel.target
        shapes = f" of {target.grids} shapes" if target.grids > 1 else ""
        why = (
            f"{scrub(target.function)}: {time_text(target.step_ns)} of a step ({share_text(target.step_ratio)}), "
            f"{target.per_step} launches{shapes}, mean {time_text(target.mean_ns)}; "
            f"replays alone {time_text(kernel.replays_ns)} per launch"
        )
        blocks.append(f"{filled(why, width)}\n  {scrub(kernel.command, _COMMAND_CHARACTERS)}\n")
    return "\n".join(blocks) + "".join(f"\n{filled(f'note: {note}', width)}" for note in NEXT_NOTES) + "\n"
