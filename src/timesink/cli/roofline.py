"""`timesink roofline`: how near each profiled kernel comes to each roof, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.kernels import Report, profiled
from timesink.cli.output import sink
from timesink.cli.progress import working

if TYPE_CHECKING:
    from timesink.measures.kernel_roofline import KernelRoofline
    from timesink.reporters.sheets import Page


def command(
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
        from timesink.measures.kernel_counters import kernel_counters
        from timesink.measures.kernel_roofline import kernel_rooflines

        names = [kernel.function for kernel in kernel_counters(trace)]
        lines = kernel_rooflines(trace)
        if svg or (output is not None and Path(output).suffix.lower() == ".svg"):
            from timesink.cli.roofline_chart import chart_of
            from timesink.reporters.roofline_svg import svg as drawn

            target.write(drawn(chart_of(report.name, names, lines)))
        else:
            target.page(_page(names, lines))
    return 0


def _page(names: list[str], lines: tuple[KernelRoofline | None, ...]) -> Page:
    from timesink.reporters.sheets import Cell, Column, Page, Sheet

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
