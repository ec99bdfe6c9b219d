"""Items of a pipeline: their period as bars with a line for each stage and the bubble below, and who worked when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from timesink.render.svg.pen import LINE, QUIET, colour, keys, line, picture, points, rect, series, text, told
from timesink.units import share_text, time_text
from timesink.views.figures import GanttChart, StageChart

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 420, 70, 230, 40, 50
_STRIP: Final = 60  # pixels of the bubble, below the times
_LABELS: Final = 12  # at most, along the items
_HEADROOM: Final = 1.05  # above the highest bar
_LANE: Final = 30  # pixels of a rank's row


def stage_svg(chart: StageChart) -> str:
    """The periods, stages and bubbles as SVG."""
    highest = _HEADROOM * max([*chart.period_ns, *(time for _, times in chart.stages for time in times)], default=1.0)
    period, blank = colour("line"), colour("k-gpu")
    names = [(f"period {_median_text(chart.period_ns)}", period)]
    names += [(f"{name} {_median_text(times)}", series(at)) for at, (name, times) in enumerate(chart.stages)]
    bubble = sorted(chart.bubble_ratio)[len(chart.bubble_ratio) // 2] if chart.bubble_ratio else 0.0
    names.append((f"bubble {share_text(bubble)}", blank))
    legend = keys(_WIDTH - _RIGHT + 14, _TOP, names)
    return picture(chart.title, (_WIDTH, _HEIGHT), [*_times(chart, highest, period), *_bubbles(chart, blank), *legend])


def _times(chart: StageChart, highest: float, fill: str) -> Iterator[str]:
    """The axis, a bar for each period, a line for each stage."""
    low = _HEIGHT - _BOTTOM - _STRIP
    for part in range(5):
        y = _y(highest * part / 4, highest)
        yield line((_LEFT, y), (_WIDTH - _RIGHT, y))
        yield text(_LEFT - 6, y + 4, time_text(highest * part / 4), anchor="end")
    wide = max(0.5, 0.8 * _step(chart))
    for at, period in enumerate(chart.period_ns):
        y = _y(period, highest)
        tip = f"item {chart.items[at]}: period {time_text(period)}"
        yield rect((_x(at, chart) - wide / 2, y, wide, low - y), fill, tip)
    for number, (name, times) in enumerate(chart.stages):
        places = points((_x(at, chart), _y(time, highest)) for at, time in enumerate(times))
        stroke = f'fill="none" stroke="{series(number)}" stroke-width="2"'
        yield f'<polyline {stroke} points="{places}">{told(name)}</polyline>'


def _bubbles(chart: StageChart, fill: str) -> Iterator[str]:
    """The share of each period in which stages stood still, from nothing to all, and the numbers of items."""
    low = _HEIGHT - _BOTTOM
    yield line((_LEFT, low), (_WIDTH - _RIGHT, low), QUIET)
    yield text(_LEFT - 6, low, "bubble", anchor="end")
    wide, tall = max(0.5, 0.8 * _step(chart)), _STRIP - 12
    every = max(1, -(-len(chart.items) // _LABELS))
    for at, ratio in enumerate(chart.bubble_ratio):
        height, x = tall * min(max(ratio, 0.0), 1.0), _x(at, chart)
        yield rect(
            (x - wide / 2, low - height, wide, height), fill, f"item {chart.items[at]}: bubble {share_text(ratio)}"
        )
        if at % every == 0:
            yield text(x, low + 16, chart.items[at], anchor="middle")
    yield text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "item", anchor="middle")


def gantt_svg(chart: GanttChart) -> str:
    """Who worked on which item, when: a row for each rank, blank where it stood still."""
    whole, wide = max(chart.length_ns, 1), _WIDTH - 8 - 20
    height = _TOP + (_LANE + 14) * len(chart.rows) + 60 + 18 * len(chart.parts)
    low = _TOP + (_LANE + 14) * len(chart.rows) + 8
    marks = []
    for part in range(5):
        x = 8 + wide * part / 4
        marks += [
            line((x, _TOP), (x, low)),
            text(x, low + 12, time_text(whole * part / 4), anchor=("", "middle", "middle", "middle", "end")[part]),
        ]
    for number, name in enumerate(chart.rows):
        top = _TOP + number * (_LANE + 14)
        marks.append(text(8, top + 10, name))
        marks.append(line((8, top + 14 + _LANE - 4), (8 + wide, top + 14 + _LANE - 4), LINE))
        for span in (span for span in chart.spans if span.row == number):
            left, size = 8 + wide * span.start_ns / whole, max(wide * (span.end_ns - span.start_ns) / whole, 0.6)
            length = time_text(span.end_ns - span.start_ns)
            tip = f"item {span.item}, {chart.parts[span.part]}: {length}, from {time_text(span.start_ns)}"
            marks.append(rect((left, top + 14, size, _LANE - 6), series(span.part), tip, f' stroke="{colour("bg")}"'))
            if size > 8 * len(span.item) + 4:
                marks.append(text(left + size / 2, top + 30, span.item, anchor="middle", fill=colour("box-ink")))
    marks += keys(8, low + 24, [(name, series(at)) for at, name in enumerate(chart.parts)])
    marks.append(text(8, height - 8, chart.note, fill=QUIET))
    return picture(chart.title, (_WIDTH, height), marks)


def _median_text(times: Sequence[float]) -> str:
    return time_text(sorted(times)[len(times) // 2]) if times else ""


def _step(chart: StageChart) -> float:
    return (_WIDTH - _LEFT - _RIGHT) / max(len(chart.items), 1)


def _x(at: int, chart: StageChart) -> float:
    return _LEFT + (at + 0.5) * _step(chart)


def _y(time: float, highest: float) -> float:
    low = _HEIGHT - _BOTTOM - _STRIP
    return low - (low - _TOP) * (time / highest if highest else 0.0)
