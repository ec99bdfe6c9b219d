"""The table and the chart of `timesink kernels --roofline`: how near each profiled kernel comes to each roof."""

import math
from collections.abc import Iterator, Sequence

from timesink.knowledge.gpus import GpuPeaks, Precision, peaks
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.machine_roofs import machine_roofs
from timesink.measures.counters.roofline import LEVELS, KernelRoofline, kernel_rooflines
from timesink.measures.counters.sheet import KernelSheet, kernel_sheets
from timesink.model.trace import Trace
from timesink.units import bytes_text, rate_text, share_text
from timesink.views import Cell, Page, Sheet, listed
from timesink.views.figures import Ceiling, Point, RooflineChart, Slope
from timesink.views.kernel_sheet import verdict_sentence
from timesink.views.timed_work import TimedWork

_TERA = 1e12
_FIGURES = 12  # columns between the name and the side
_IDS_SHOWN = 12  # of launches without a point, as fit on a line


def roofline_page(title: str, trace: Trace) -> Page:
    """One row per profiled launch: its share of each roof, its intensity, its side of the DRAM ridge, and how its
    operations were counted; then the roofs of each GPU."""
    lines = kernel_rooflines(trace)
    named = zip(kernel_counters(trace), lines, strict=True)
    rows = ((number, *_row(kernel, line)) for number, (kernel, line) in enumerate(named))
    sheets = (listed("roofline.roofline", rows), _machine(trace))
    notes = (*_without_point(lines), *_sources(trace, lines))
    return Page("roofline", sheets, notes, charts=(roofline_chart(title, trace),))


def _row(kernel: KernelCounters, line: KernelRoofline | None) -> tuple[Cell, ...]:
    if line is None:
        return (kernel.name, *[None] * _FIGURES, "not measured", None, None)
    levels = [None if (roof := line.memory_of(level)) is None else roof.share for level in ("dram", "l2", "l1")]
    best, side = line.main, {True: "memory", False: "compute", None: None}[line.is_memory_side]
    arithmetic = (None, None, None) if best is None else (best.label, best.share, best.mix_share)
    rate, how = None, None
    if best is not None and best.flops is not None:
        rate, how = best.flops / line.duration_ns * 1e9, best.how.value
    under = (None, None) if rate is None or not line.ceiling else (line.ceiling / _TERA, rate / line.ceiling)
    specified = _specified(line, peaks(kernel.gpu))
    of_specified = rate / specified if rate and specified else None
    rates = (rate and rate / _TERA, *under, of_specified, line.intensity("dram"), line.ridge)
    return (kernel.name, *levels, *arithmetic, *rates, side, line.flops, how)


def _specified(line: KernelRoofline, sheet: GpuPeaks | None) -> float | None:
    """What the datasheet's roofs allow with the kernel's bytes, at the clock of the datasheet."""
    main, dram = line.main, line.memory_of("dram")
    if sheet is None or main is None or main.precision is None or dram is None or not (dram.bytes and main.flops):
        return None
    if main.path == "cuda" and main.precision is Precision.FP16:
        return None  # specified is the rate of tensor cores
    peak = sheet.flops.get(main.precision)
    return None if peak is None else min(peak, main.flops / dram.bytes * _dram(sheet))


def _dram(sheet: GpuPeaks) -> float:
    return sheet.specified_dram_bytes_per_s or sheet.dram_bytes_per_s


def points_page(points: Sequence[TimedWork], sheet: GpuPeaks, precision: Precision) -> Page:
    """Where work of given operations, bytes and time stands under the roofs of a datasheet."""
    peak, dram = sheet.flops[precision], _dram(sheet)
    placed = []
    for work in points:
        intensity, rate, moved = work.flops / work.bytes, work.flops / work.seconds, work.bytes / work.seconds
        ceiling = min(peak, intensity * dram)
        side = "memory" if intensity * dram < peak else "compute"
        figures = (rate / _TERA, rate / peak, moved / _TERA, moved / dram, ceiling / _TERA, rate / ceiling)
        placed.append((intensity, peak / dram, side, *figures))
    name = f"{sheet.product}, {precision}"
    marks = tuple(Point(str(at), "DRAM", row[0], row[3] * _TERA) for at, row in enumerate(placed))
    chart = RooflineChart(name, (Slope("DRAM", dram),), (Ceiling(f"{precision}", peak, True),), marks)
    too_fast = [row for row in placed if row[-1] > 1]
    notes = [f"{name}: {rate_text(peak, 'FLOP/s')}, DRAM {rate_text(dram, 'B/s')}; {sheet.source}"]
    notes += ["faster than its roof: operations, bytes, time or format are not those of this work"] * bool(too_fast)
    return Page("roofline", (listed("roofline.points", placed),), tuple(notes), charts=(chart,))


def _machine(trace: Trace) -> Sheet:
    """The roofs of the report's GPUs in TB/s and TFLOP/s."""
    rows = []
    for roof in machine_roofs(trace):
        unit = "TB/s" if roof.level else "TOP/s" if roof.precision is Precision.INT8 else "TFLOP/s"
        figures = (roof.profiled, roof.boost, roof.specified, roof.measured)
        rows.append((roof.gpu, roof.label, unit, *(figure and figure / _TERA for figure in figures)))
    return listed("roofline.roofs", rows)


def _without_point(lines: Sequence[KernelRoofline | None]) -> Iterator[str]:
    """Which launches have no place under the roofs, by why."""
    why: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        reason = "its time was not measured" if line is None else line.why_no_point
        if reason is not None:
            why.setdefault(reason, []).append(str(number))
    for reason, ids in why.items():
        shown = ", ".join(ids[:_IDS_SHOWN]) + (f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else "")
        yield f"no point for id {shown}: {reason}"


def _sources(trace: Trace, lines: Sequence[KernelRoofline | None]) -> Iterator[str]:
    yield from (f"peaks from: {source}" for source in sorted({line.source for line in lines if line is not None}))
    sheets = {sheet.product: sheet for kernel in kernel_counters(trace) if (sheet := peaks(kernel.gpu)) is not None}
    for _, sheet in sorted(sheets.items()):
        yield f"specified of {sheet.product}: {sheet.source}" + (f"; {sheet.note}" if sheet.note else "")


def roofline_chart(title: str, *traces: Trace) -> RooflineChart:
    """The profiled kernels of these traces under their roofs at the highest clock: one point per kernel and memory
    level that has bytes and operations."""
    lines = [line for trace in traces for line in kernel_rooflines(trace) if line is not None]
    slopes: dict[str, float] = {}
    ceilings: dict[str, float] = {}
    for line in lines:
        for roof in line.memory:
            if roof.peak_bytes_per_s:
                slopes[roof.level] = max(slopes.get(roof.level, 0.0), roof.peak_bytes_per_s)
        for work in line.compute:
            if work.peak_flops:
                ceilings[work.label] = max(ceilings.get(work.label, 0.0), work.peak_flops)
    others = {
        roof.label: roof.profiled
        for trace in traces
        for roof in machine_roofs(trace)
        if not roof.level and roof.profiled and roof.label not in ceilings
    }
    roofs = [Ceiling(*item, is_used) for some, is_used in ((ceilings, True), (others, False)) for item in some.items()]
    return RooflineChart(
        f"roofline of {title}",
        tuple(Slope(level.upper(), slopes[level]) for level in LEVELS if level in slopes),
        tuple(sorted(roofs, key=lambda roof: -roof.flops)),
        tuple(point for trace in traces for points in points_of(trace) for point in points),
    )


def why_no_chart(trace: Trace) -> tuple[str, ...]:
    """Why a report of which no kernel has a place under the roofs has no roofline."""
    return tuple(f"no roofline: {why}" for why in _without_point(kernel_rooflines(trace)))


def points_of(trace: Trace) -> list[tuple[Point, ...]]:
    """The points of each profiled launch, in the order of the report."""
    lines = kernel_rooflines(trace)
    return [tuple(_points(sheet, line)) for sheet, line in zip(kernel_sheets(trace), lines, strict=True)]


def _points(sheet: KernelSheet, line: KernelRoofline | None) -> Iterator[Point]:
    if line is None or not line.flops or not (0 < line.flops < math.inf and 0 < line.duration_ns < math.inf):
        return
    rate, verdict = line.flops / (line.duration_ns / 1e9), verdict_sentence(sheet)
    for level in LEVELS:
        roof, intensity = line.memory_of(level), line.intensity(level)
        if roof is not None and intensity and 0 < intensity < math.inf:
            moved = f"{bytes_text(roof.bytes or 0)} of {level.upper()}, {share_text(roof.share)} of that roof"
            yield Point(sheet.kernel.function, level.upper(), intensity, rate, f"{verdict}; {moved}")
