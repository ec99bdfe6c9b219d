"""Items of a pipeline as one SVG picture: their period as bars, a line for each stage, and below the bubble of each.

Plain marks, no script, no outside file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from timesink.render.svg import COLOURS
from timesink.units import share_text, time_text
from timesink.untrusted.scrub import scrub
from timesink.views.figures import StageChart

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 420, 70, 230, 40, 50
_STRIP: Final = 60  # pixels of the bubble, below the times
_PERIOD, _BUBBLE = "#e3e3e3", "#b0b0b0"
_LABELS: Final = 12  # at most, along the items
_HEADROOM: Final = 1.05  # above the highest bar


def stage_svg(chart: StageChart) -> str:
    """The picture as SVG text. Its names are escaped."""
    highest = _HEADROOM * max([*chart.period_ns, *(time for _, times in chart.stages for time in times)], default=1.0)
    keys = [("period", _PERIOD, _median_text(chart.period_ns))]
    keys += [(name, _colour(at), _median_text(times)) for at, (name, times) in enumerate(chart.stages)]
    bubble = sorted(chart.bubble_ratio)[len(chart.bubble_ratio) // 2] if chart.bubble_ratio else 0.0
    keys.append(("bubble", _BUBBLE, share_text(bubble)))
    title = escape(scrub(chart.title))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12"><title>{title}</title><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
        f'<text x="{_LEFT}" y="22" font-size="13">{title}</text>'
    )
    return "\n".join([head, *_times(chart, highest), *_bubbles(chart), *_keys(keys), "</svg>\n"])


def _times(chart: StageChart, highest: float) -> Iterator[str]:
    """The axis, a bar for each period, a line for each stage."""
    low = _HEIGHT - _BOTTOM - _STRIP
    for part in range(5):
        y = _y(highest * part / 4, highest)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#d0d0d0"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{time_text(highest * part / 4)}</text>'
    wide = max(0.5, 0.8 * _step(chart))
    for at, period in enumerate(chart.period_ns):
        y = _y(period, highest)
        tip = f"<title>item {escape(scrub(chart.items[at]))}: period {time_text(period)}</title>"
        x = round(_x(at, chart) - wide / 2, 1)
        yield f'<rect x="{x}" y="{y}" width="{wide:.1f}" height="{round(low - y, 1)}" fill="{_PERIOD}">{tip}</rect>'
    for number, (name, times) in enumerate(chart.stages):
        points = " ".join(f"{_x(at, chart)},{_y(time, highest)}" for at, time in enumerate(times))
        tip = f"<title>{escape(scrub(name))}</title>"
        yield f'<polyline fill="none" stroke="{_colour(number)}" stroke-width="2" points="{points}">{tip}</polyline>'


def _bubbles(chart: StageChart) -> Iterator[str]:
    """The share of each period in which stages stood still, from nothing to all, and the numbers of items."""
    low = _HEIGHT - _BOTTOM
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{low}" y2="{low}" stroke="#808080"/>'
    yield f'<text x="{_LEFT - 6}" y="{low}" text-anchor="end">bubble</text>'
    wide, tall = max(0.5, 0.8 * _step(chart)), _STRIP - 12
    every = max(1, -(-len(chart.items) // _LABELS))
    for at, ratio in enumerate(chart.bubble_ratio):
        height, name = round(tall * min(max(ratio, 0.0), 1.0), 1), escape(scrub(chart.items[at]))
        x, tip = _x(at, chart), f"<title>item {name}: bubble {share_text(ratio)}</title>"
        yield (
            f'<rect x="{round(x - wide / 2, 1)}" y="{low - height}" width="{wide:.1f}" height="{height}" '
            f'fill="{_BUBBLE}">{tip}</rect>'
        )
        if at % every == 0:
            yield f'<text x="{x}" y="{low + 16}" text-anchor="middle">{name}</text>'
    yield f'<text x="{(_LEFT + _WIDTH - _RIGHT) // 2}" y="{_HEIGHT - 10}" text-anchor="middle">item</text>'


def _keys(keys: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    for number, (name, colour, value) in enumerate(keys):
        y, x = _TOP + 20 * number, _WIDTH - _RIGHT + 14
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y + 10}">{escape(scrub(name))} {escape(value)}</text>'


def _median_text(times: Sequence[float]) -> str:
    return time_text(sorted(times)[len(times) // 2]) if times else ""


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _step(chart: StageChart) -> float:
    return (_WIDTH - _LEFT - _RIGHT) / max(len(chart.items), 1)


def _x(at: int, chart: StageChart) -> float:
    return round(_LEFT + (at + 0.5) * _step(chart), 1)


def _y(time: float, highest: float) -> float:
    low = _HEIGHT - _BOTTOM - _STRIP
    return round(low - (low - _TOP) * (time / highest if highest else 0.0), 1)
