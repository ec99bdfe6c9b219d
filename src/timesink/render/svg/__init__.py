"""Charts as SVG: plain marks, no script, no outside file. A page takes them as they are, a file by `chart_file`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from timesink.render.svg.pen import (
    INK,
    LINE,
    QUIET,
    Plot,
    colour,
    keys,
    line,
    picture,
    points,
    rect,
    series,
    standing_alone,
    text,
    told,
)
from timesink.render.svg.roofline import roofline_svg
from timesink.units import bytes_text, share_text, time_text
from timesink.views.figures import (
    FREE,
    Chart,
    GanttChart,
    HeatChart,
    LadderChart,
    MapChart,
    MemoryChart,
    RooflineChart,
    StageChart,
)

__all__ = ["chart_file", "chart_svg"]


def chart_svg(chart: Chart) -> str:
    """The chart for a page, whose colours it takes."""
    return _DRAWN[type(chart)](chart)


def chart_file(chart: Chart) -> str:
    """The chart as the text of a file."""
    return standing_alone(chart_svg(chart))


def _draw_ladder(chart: LadderChart) -> str:
    """The step as a bar, and below it what each change takes off and what it leaves."""
    plot, row, bar = Plot(860, 0, 8, 12, 34, 0), 38, 14
    scale = plot.wide / max(chart.step_ns, 1.0)
    left, gone, today = colour("k-compute"), colour("k-finding"), time_text(chart.step_ns)
    marks = [
        text(8, plot.top + 11, f"today: {today}"),
        rect((plot.left, plot.top + 17, chart.step_ns * scale, bar), left, f"the step takes {today}"),
    ]
    for number, rung in enumerate(chart.rungs, 1):
        top = plot.top + number * row + 17
        ends = f"{time_text(rung.low_ns)} to {time_text(rung.high_ns)}"
        saved_ns, kept = rung.before_ns - rung.after_ns, plot.left + rung.after_ns * scale
        taken = f"{rung.name} takes {time_text(saved_ns)} off: {share_text(saved_ns / max(chart.step_ns, 1.0))}"
        low, high = ((plot.left + end_ns * scale, top + bar / 2) for end_ns in (rung.low_ns, rung.high_ns))
        marks += [
            text(8, top - 6, f"{rung.name}: {time_text(rung.after_ns)} ({ends})"),
            rect((plot.left, top, rung.after_ns * scale, bar), left, f"{time_text(rung.after_ns)} is left ({ends})"),
            rect((kept, top, saved_ns * scale, bar), gone, taken),
            line(low, high, INK),
        ]
    bottom = plot.top + (len(chart.rungs) + 1) * row
    marks.append(text(8, bottom + 12, chart.note, fill=QUIET))
    return picture(chart.title, (plot.width, bottom + 24), marks)


_FAINTEST: Final = 0.08  # of the darkest: the least that is more than nothing


def _draw_heat(chart: HeatChart) -> str:
    """A heat map: a row of cells each, the darker the longer."""
    height = min(max(400 // max(len(chart.rows), 1), 8), 22)  # pixels of a row: enough for a name where there are few
    plot = Plot(860, 50 + height * len(chart.rows) + 40, 90, 10, 50, 40)
    most = max((value for row in chart.values_ns for value in row if value is not None), default=0.0)
    marks = [
        text(plot.left, 36, f"blank: none; darkest: {time_text(most)}; grey: not known", fill=QUIET),
        *_heat_cells(chart, plot, height, most),
        text(8, 36, chart.row_title),
        text(plot.left, plot.height - 8, chart.column_title),
    ]
    return picture(chart.title, (plot.width, plot.height), marks)


def _heat_cells(chart: HeatChart, plot: Plot, height: int, most: float) -> Iterator[str]:
    wide = plot.wide / max(len(chart.columns), 1)
    named = max(round(12 / height), 1)  # a name needs twelve pixels
    for at, (name, row) in enumerate(zip(chart.rows, chart.values_ns, strict=True)):
        top = plot.top + at * height
        if at % named == 0:
            yield text(8, top + height / 2 + 4, name)
        for place, value in enumerate(row):
            known = "not known" if value is None else time_text(value)
            tip = f"{chart.row_title} {name}, {chart.column_title} {chart.columns[place]}: {known}"
            fill, shade = (LINE, 1.0) if value is None else (colour("accent"), value / most if most else 0.0)
            dark = _FAINTEST + (1 - _FAINTEST) * shade if shade else 0.0
            box = (plot.left + place * wide, top, max(wide - 0.5, 0.5), height - 0.5)
            yield rect(box, fill, tip, f' fill-opacity="{dark:.3f}"')
    for place in range(0, len(chart.columns), max(round(40 / wide), 1)):
        yield text(plot.left + place * wide, plot.low + 14, chart.columns[place])


def _draw_memory(chart: MemoryChart) -> str:
    """Memory over time as bands of classes on top of one another."""
    plot = Plot(960, 420, 70, 220, 36, 34)
    highest = max((sum(at) for at in zip(*(band.bytes for band in chart.bands), strict=True)), default=0) or 1
    count = len(chart.bands[0].bytes) if chart.bands else 0
    places = [plot.left + plot.wide * at / max(count - 1, 1) for at in range(count)]
    below = [0] * count
    shapes, names = [], []
    for band in chart.bands:
        above = [low + size for low, size in zip(below, band.bytes, strict=True)]
        edge = [(x, plot.y(value, highest)) for x, value in zip(places, above, strict=True)]
        edge += [(x, plot.y(value, highest)) for x, value in zip(reversed(places), reversed(below), strict=True)]
        fill, most = series(band.number), bytes_text(max(band.bytes))
        tip = told(f"{band.name}: at most {most}")
        shapes.append(f'<polygon fill="{fill}" points="{points(edge)}">{tip}</polygon>')
        names.append((f"{band.name}: {most}", fill))
        below = above
    axes = [*plot.scale(highest, bytes_text)]
    for part in range(5):
        when = chart.time_ns[round((len(chart.time_ns) - 1) * part / 4)]
        axes.append(text(plot.left + plot.wide * part / 4, plot.low + 14, time_text(when), anchor="middle"))
    words = "allocator events, in order, with the time since the first"
    axes.append(text((plot.left + plot.end) / 2, plot.height - 6, words, anchor="middle", fill=QUIET))
    legend = keys(plot.end + 12, plot.top, names[::-1])
    return picture(chart.title, (plot.width, plot.height), [*axes, *shapes, *legend])


def _draw_map(chart: MapChart) -> str:
    """The segments of a snapshot one after the other, line by line, each cell in the colour of what it holds."""
    plot, row = Plot(960, 0, 70, 220, 36, 0), 16
    height, wide = plot.top + row * len(chart.lines) + 30, plot.wide / chart.cells
    fills = {code: colour("card") if code == FREE else series(code) for code in chart.names}
    marks = []
    for number, cells in enumerate(chart.lines):
        top, at = plot.top + number * row, 0
        for (segment, code), some in groupby(cells):
            count = len(list(some))
            tip = f"{chart.names[code]}, about {bytes_text(count * chart.cell_bytes)}: {chart.segments[segment]}"
            edge = f' stroke="{LINE}" stroke-width="0.6"' if code == FREE else ""
            marks.append(rect((plot.left + at * wide, top, count * wide, row - 3), fills[code], tip, edge))
            at += count
        starts = [plot.left + at * wide for at in range(1, len(cells)) if cells[at][0] != cells[at - 1][0]]
        marks += [line((x, top - 1), (x, top + row - 2), INK) for x in starts]
        marks.append(text(plot.left - 6, top + 10, bytes_text(number * chart.cells * chart.cell_bytes), anchor="end"))
    largest = sorted(chart.bytes_of.items(), key=lambda item: -item[1])
    shown = [(f"{chart.names[code]}: {bytes_text(size)}", fills[code]) for code, size in largest]
    marks += keys(plot.end + 12, plot.top, shown)
    marks.append(text(plot.left, height - 8, chart.note, fill=QUIET))
    return picture(chart.title, (plot.width, max(height, plot.top + 18 * len(shown) + 20)), marks)


_STRIP: Final = 60  # pixels of the bubbles, below the times
_STAGES: Final = Plot(900, 420, 70, 230, 40, 50 + _STRIP)


def _draw_stages(chart: StageChart) -> str:
    """Items of a pipeline: the period of each as a bar, a line for each stage, and below the bubble."""
    highest = 1.05 * max([*chart.period_ns, *(time for _, times in chart.stages for time in times)], default=1.0)
    period, blank = colour("line"), colour("k-gpu")
    names = [(f"period {_median_text(chart.period_ns)}", period)]
    names += [(f"{name} {_median_text(times)}", series(at)) for at, (name, times) in enumerate(chart.stages)]
    bubble = sorted(chart.bubble_ratio)[len(chart.bubble_ratio) // 2] if chart.bubble_ratio else 0.0
    names.append((f"bubble {share_text(bubble)}", blank))
    step = _STAGES.wide / max(len(chart.items), 1)
    marks = [
        *_STAGES.scale(highest, time_text),
        *_stage_times(chart, highest, step, period),
        *_bubbles(chart, step, blank),
        *keys(_STAGES.end + 14, _STAGES.top, names),
    ]
    return picture(chart.title, (_STAGES.width, _STAGES.height), marks)


def _stage_times(chart: StageChart, highest: float, step: float, fill: str) -> Iterator[str]:
    """A bar for each period, a line for each stage."""
    wide = max(0.5, 0.8 * step)
    for at, period in enumerate(chart.period_ns):
        y = _STAGES.y(period, highest)
        tip = f"item {chart.items[at]}: period {time_text(period)}"
        yield rect((_STAGES.left + (at + 0.5) * step - wide / 2, y, wide, _STAGES.low - y), fill, tip)
    for number, (name, times) in enumerate(chart.stages):
        places = points((_STAGES.left + (at + 0.5) * step, _STAGES.y(time, highest)) for at, time in enumerate(times))
        stroke = f'fill="none" stroke="{series(number)}" stroke-width="2"'
        yield f'<polyline {stroke} points="{places}">{told(name)}</polyline>'


def _bubbles(chart: StageChart, step: float, fill: str) -> Iterator[str]:
    """The share of each period in which stages stood still, from nothing to all, and the numbers of items."""
    low, left, right = _STAGES.low + _STRIP, _STAGES.left, _STAGES.end
    yield line((left, low), (right, low), QUIET)
    yield text(left - 6, low, "bubble", anchor="end")
    wide, tall = max(0.5, 0.8 * step), _STRIP - 12
    every = max(1, -(-len(chart.items) // 12))  # labels at most, along the items
    for at, (item, ratio) in enumerate(zip(chart.items, chart.bubble_ratio, strict=True)):
        height, x = tall * min(max(ratio, 0.0), 1.0), left + (at + 0.5) * step
        yield rect((x - wide / 2, low - height, wide, height), fill, f"item {item}: bubble {share_text(ratio)}")
        if at % every == 0:
            yield text(x, low + 16, item, anchor="middle")
    yield text((left + right) / 2, _STAGES.height - 10, "item", anchor="middle")


def _median_text(times: Sequence[float]) -> str:
    return time_text(sorted(times)[len(times) // 2]) if times else ""


def _draw_gantt(chart: GanttChart) -> str:
    """Who worked on which item, when: a row for each rank, blank where it stood still."""
    plot, lane = Plot(900, 0, 8, 20, 40, 0), 30  # pixels of a rank's row
    whole = max(chart.length_ns, 1)
    low = plot.top + (lane + 14) * len(chart.rows) + 8
    height = low + 52 + 18 * len(chart.parts)
    marks = []
    for part, anchor in enumerate(("", "middle", "middle", "middle", "end")):
        x = plot.left + plot.wide * part / 4
        marks += [line((x, plot.top), (x, low)), text(x, low + 12, time_text(whole * part / 4), anchor=anchor)]
    for number, name in enumerate(chart.rows):
        top = plot.top + number * (lane + 14)
        marks.append(text(plot.left, top + 10, name))
        marks.append(line((plot.left, top + 10 + lane), (plot.end, top + 10 + lane), LINE))
        for span in (span for span in chart.spans if span.row == number):
            length_ns = span.end_ns - span.start_ns
            left, size = plot.left + plot.wide * span.start_ns / whole, max(plot.wide * length_ns / whole, 0.6)
            start = time_text(span.start_ns)
            tip = f"item {span.item}, {chart.parts[span.part]}: {time_text(length_ns)}, from {start}"
            marks.append(rect((left, top + 14, size, lane - 6), series(span.part), tip, f' stroke="{colour("bg")}"'))
            if size > 8 * len(span.item) + 4:
                marks.append(text(left + size / 2, top + 30, span.item, anchor="middle", fill=colour("box-ink")))
    marks += keys(plot.left, low + 24, [(name, series(at)) for at, name in enumerate(chart.parts)])
    marks.append(text(plot.left, height - 8, chart.note, fill=QUIET))
    return picture(chart.title, (plot.width, height), marks)


_DRAWN: Final[Mapping[type, Callable[[Any], str]]] = {
    LadderChart: _draw_ladder,
    RooflineChart: roofline_svg,
    MemoryChart: _draw_memory,
    MapChart: _draw_map,
    HeatChart: _draw_heat,
    StageChart: _draw_stages,
    GanttChart: _draw_gantt,
}
