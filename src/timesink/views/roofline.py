"""The table and the chart of `timesink roofline`: how near each profiled kernel comes to each roof."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.measures.counters.counters import kernel_counters
from timesink.measures.counters.roofline import LEVELS, KernelRoofline, kernel_rooflines
from timesink.model.trace import Trace
from timesink.views.figures import Ceiling, Point, RooflineChart, Slope
from timesink.views.page import Cell, Field, Page, Sheet

_COLUMNS = (
    Field("id", "id", "1"),
    Field("kernel", "kernel", is_name=True, is_kernel=True),
    Field("dram_ratio", "DRAM", "ratio"),
    Field("l2_ratio", "L2", "ratio"),
    Field("l1_ratio", "L1", "ratio"),
    Field("roof", "best arithmetic"),
    Field("compute_ratio", "of it", "ratio"),
    Field("mix_ratio", "of its mix", "ratio"),
    Field("intensity", "op/DRAM B", "1"),
    Field("side", "side"),
)


def roofline_page(trace: Trace) -> Page:
    """One row per profiled launch: its share of each roof, its intensity, and its side of the DRAM ridge."""
    lines = kernel_rooflines(trace)
    named = zip(kernel_counters(trace), lines, strict=True)
    rows = tuple((number, *_row(kernel.function, line)) for number, (kernel, line) in enumerate(named))
    sources = tuple(f"peaks from: {source}" for source in sorted({line.source for line in lines if line is not None}))
    note = "shares of each roof at the profiled clock; side: left or right of the DRAM ridge"
    return Page("roofline", (Sheet("roofline", "share of each roof", _COLUMNS, rows, note),), sources)


def _row(name: str, line: KernelRoofline | None) -> tuple[Cell, ...]:
    if line is None:
        return (name, None, None, None, None, None, None, None, "not measured")
    levels = [None if (roof := line.memory_of(level)) is None else roof.share for level in ("dram", "l2", "l1")]
    best = max(line.compute, key=lambda roof: roof.share, default=None)
    arithmetic: tuple[Cell, ...] = (None, None, None) if best is None else (best.label, best.share, best.mix_share)
    side = {True: "memory", False: "compute", None: None}[line.is_memory_side]
    return (name, *levels, *arithmetic, line.intensity("dram"), side)


def roofline_chart(title: str, trace: Trace) -> RooflineChart:
    """The profiled kernels of a trace under their roofs."""
    return chart_of(title, [kernel.function for kernel in kernel_counters(trace)], kernel_rooflines(trace))


def chart_of(title: str, names: Sequence[str], lines: Sequence[KernelRoofline | None]) -> RooflineChart:
    """Roofs at the highest clock of the report; one point per kernel and memory level that has bytes and operations."""
    known = [(name, line) for name, line in zip(names, lines, strict=True) if line is not None]
    slopes: dict[str, float] = {}
    ceilings: dict[str, float] = {}
    points = []
    for name, line in known:
        for roof in line.memory:
            if roof.peak_bytes_per_s:
                slopes[roof.level] = max(slopes.get(roof.level, 0.0), roof.peak_bytes_per_s)
        for work in line.compute:
            if work.peak_flops:
                ceilings[work.label] = max(ceilings.get(work.label, 0.0), work.peak_flops)
        flops = sum(work.flops for work in line.compute if work.flops)
        for level in LEVELS:
            intensity = line.intensity(level)
            if intensity and flops:
                points.append(Point(name, level.upper(), intensity, flops / (line.duration_ns / 1e9)))
    return RooflineChart(
        f"roofline of {title}",
        tuple(Slope(level.upper(), slopes[level]) for level in LEVELS if level in slopes),
        tuple(Ceiling(label, flops) for label, flops in sorted(ceilings.items(), key=lambda item: -item[1])),
        tuple(points),
    )
