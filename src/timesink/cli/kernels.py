"""`timesink kernels`: what limits each profiled kernel, and how much it could gain at most.

`timesink roofline`: how near each profiled kernel comes to each roof, as a table and as a picture.

`timesink next`: the exact ncu command for the few kernels of a timeline that are worth it.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.render.formats import Format
from timesink.units import share_text, time_text
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.measures.counters.roofline import KernelRoofline
    from timesink.measures.kernels.kernels import KernelTarget
    from timesink.model.trace import Trace
    from timesink.views.page import Page

Report = Annotated[
    Path,
    typer.Argument(
        metavar="REPORT",
        help="A Nsight Compute report (.ncu-rep, .ncu-repz) or its CSV page (raw or details).",
        show_default=False,
    ),
]


def command(
    report: Report,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="REPORT", help="Compare with this earlier report.", show_default=False),
    ] = None,
    form: options.Form = None,
    output: options.Output = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show what limits each profiled kernel and the most it could gain.

    With --format json the result is a list with one entry per launch, in report order.
    """
    target = sink(form, output, no_color, [report] if against is None else [report, against])
    trace = profiled(report, not no_cache)
    with working("explaining the kernels"):
        if against is not None:
            from timesink.views.kernels import comparison_page

            page = comparison_page(profiled(against, not no_cache), trace)
            target.page(page)
            return 0
        if target.form is Format.JSON:
            from timesink.render.json import json_text

            target.write(json_text(entries(trace)))
            return 0
        from timesink.views.kernels import kernels_page

        target.page(kernels_page(trace))
    return 0


def profiled(path: Path, cache: bool) -> Trace:
    """The file as a trace that holds kernel profiles, else `UsageError`."""
    from timesink.model.tables import KERNEL_PROFILES

    trace = read_traces([path], cache=cache)
    if KERNEL_PROFILES not in trace:
        raise UsageError(
            f"{path} holds no kernel profiles",
            remedy="give a Nsight Compute report; `timesink next` prints the command",
        )
    return trace


def entries(trace: Trace) -> list[dict[str, Any]]:
    """One entry per launch. A launch whose counters failed has no limiter: null, not "none"."""
    from timesink.measures.counters.counters import kernel_counters
    from timesink.measures.counters.limiter import kernel_limits
    from timesink.rules.ncu._family import bottleneck_of, explained

    listed = []
    for kernel, limits in zip(kernel_counters(trace), kernel_limits(trace), strict=True):
        nearest = limits.roofline.nearest if limits is not None and limits.roofline is not None else None
        bound = None if limits is None else limits.bounds[limits.limiter]
        listed.append(
            {
                "kernel": kernel.name,
                "id": kernel.profile,
                "time_us": None if kernel.duration_ns is None else kernel.duration_ns / 1e3,
                "limiter": None if limits is None else bottleneck_of(limits).value,
                "roof": None if nearest is None else nearest[0],
                "roof_share": None if nearest is None else nearest[1],
                "bound_speedup": bound,
                "action": "Profile it again: its counters failed or were not collected."
                if limits is None
                else explained(limits).advice,
            }
        )
    return listed


def roofline(
    report: Report,
    form: options.Form = None,
    output: options.Output = None,
    svg: Annotated[
        bool, typer.Option("--svg", help="Write an SVG picture [default: where FILE ends in .svg].")
    ] = False,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Draw the roofline of profiled kernels.

    Peaks come from the report's own counters at the clock it was profiled at; a datasheet stands in where it has none,
    and the page says so.
    """
    target = sink(form, output, no_color, [report])
    trace = profiled(report, not no_cache)
    with working("drawing the roofline"):
        from timesink.measures.counters.counters import kernel_counters
        from timesink.measures.counters.roofline import kernel_rooflines

        names = [kernel.function for kernel in kernel_counters(trace)]
        lines = kernel_rooflines(trace)
        if svg or (output is not None and Path(output).suffix.lower() == ".svg"):
            from timesink.render.svg import roofline_svg
            from timesink.views.roofline import chart_of

            target.write(roofline_svg(chart_of(report.name, names, lines)))
        else:
            target.page(_page(names, lines))
    return 0


def _page(names: list[str], lines: tuple[KernelRoofline | None, ...]) -> Page:
    from timesink.views.page import Cell, Column, Page, Sheet

    columns = (
        Column("id", "id", "1"),
        Column("kernel", "kernel", is_name=True),
        Column("dram_ratio", "DRAM", "ratio"),
        Column("l2_ratio", "L2", "ratio"),
        Column("l1_ratio", "L1", "ratio"),
        Column("roof", "best arithmetic"),
        Column("compute_ratio", "of it", "ratio"),
        Column("mix_ratio", "of its mix", "ratio"),
        Column("intensity", "op/DRAM B", "1"),
        Column("side", "side"),
    )
    rows: list[tuple[Cell, ...]] = []
    for number, (name, line) in enumerate(zip(names, lines, strict=True)):
        if line is None:
            rows.append((number, name, None, None, None, None, None, None, None, "not measured"))
            continue
        levels = [None if (roof := line.memory_of(level)) is None else roof.share for level in ("dram", "l2", "l1")]
        best = max(line.compute, key=lambda roof: roof.share, default=None)
        arithmetic: tuple[Cell, ...] = (None, None, None) if best is None else (best.label, best.share, best.mix_share)
        side = {True: "memory", False: "compute", None: None}[line.is_memory_side]
        rows.append((number, name, *levels, *arithmetic, line.intensity("dram"), side))
    sources = tuple(f"peaks from: {source}" for source in sorted({line.source for line in lines if line is not None}))
    note = "shares of each roof at the profiled clock; side: left or right of the DRAM ridge"
    return Page("roofline", (Sheet("roofline", "share of each roof", columns, tuple(rows), note),), sources)


# Replays of `--set full` on Hopper, from 34 reports of ncu 2025.3; the profiler adds its own overhead to each.
FULL_PASSES = 42
_MOST_LAUNCHES = 4
_COMMAND_CHARACTERS = 2000
_NOTES = (
    f"about {FULL_PASSES} replays per launch, each with the profiler's own overhead and with memory saved and restored",
    "launches are counted from the start of the trace: add those that the program makes before it",
    "then: timesink kernels report_*.ncu-rep, or timesink diagnose TRACE report_*.ncu-rep for the gain per step",
)


def next_command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Kernels to look at.")] = 3,
    program: Annotated[
        str, typer.Option("--program", metavar="COMMAND", help="The program to profile.")
    ] = "python train.py",
    form: options.Form = None,
    output: options.Output = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Print the ncu command for the kernels worth a closer look.

    Chosen by their time in the steady steps. Each command skips the launches before the first steady step and profiles
    as many as the kernel has shapes, at most four.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, cache=not no_cache)
    with working("choosing kernels"):
        from timesink.measures.kernels.kernels import kernel_targets

        chosen = kernel_targets(trace)[:top]
        if not chosen:
            raise UsageError("no kernel runs in the steady steps of this trace", remedy="give a trace with GPU kernels")
    if target.form is Format.TEXT:
        target.write(_text(chosen, program))
    else:
        target.page(_next_page(chosen, program))
    return 0


def ncu_command(target: KernelTarget, program: str) -> str:
    """The command that profiles a few steady launches of the kernel."""
    count = min(max(target.grids, 1), max(target.per_step, 1), _MOST_LAUNCHES)
    words = [
        "ncu",
        "--set",
        "full",
        "--import-source",
        "off",
        "--clock-control",
        "none",
        "--kernel-name-base",
        "function",
        "-k",
        target.pattern,
        "--launch-skip",
        str(target.skip),
        "--launch-count",
        str(count),
        "-o",
        f"report_{''.join(c if c.isalnum() else '_' for c in target.function)[:40]}",
    ]
    return f"{shlex.join(words)} {program}"


def _text(chosen: tuple[KernelTarget, ...], program: str) -> str:
    """Commands stand on lines of their own, whole, so that they can be copied."""
    blocks = []
    for one in chosen:
        shapes = f"{one.per_step} launches of {one.grids} shapes" if one.grids > 1 else f"{one.per_step} launches"
        blocks.append(
            f"{scrub(one.function)}: {time_text(one.step_ns)} of a step ({share_text(one.step_ratio)}), {shapes}, mean "
            f"{time_text(one.mean_ns)}; replays alone {time_text(one.mean_ns * FULL_PASSES)} per launch\n"
            f"  {scrub(ncu_command(one, program), _COMMAND_CHARACTERS)}\n"
        )
    return "\n".join(blocks) + "".join(f"\nnote: {note}" for note in _NOTES) + "\n"


def _next_page(chosen: tuple[KernelTarget, ...], program: str) -> Page:
    from timesink.views.page import Column, Page, Sheet

    columns = (
        Column("kernel", "kernel", is_name=True),
        Column("step_ns", "per step", "ns"),
        Column("step_ratio", "of step", "ratio"),
        Column("mean_ns", "mean", "ns"),
        Column("launches_per_step", "launches", "1"),
        Column("replay_ns", "replays alone", "ns"),
        Column("command", "command"),
    )
    rows = tuple(
        (
            one.function,
            one.step_ns,
            one.step_ratio,
            one.mean_ns,
            one.per_step,
            one.mean_ns * FULL_PASSES,
            ncu_command(one, program),
        )
        for one in chosen
    )
    return Page("kernels worth a closer look", (Sheet("next", "by time per steady step", columns, rows),), _NOTES)
