"""The page of what people wait for, and its plot, from the figures of `python -m benchmarks.speed_table`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "speed_table.json"
PAGE, PLOT = "explanation/speed-table.md", "images/speed-growth.svg"
# Why a bar is missed, by the beginning of its row: what a profile of it shows.
_WHY = {
    "`plan`": "four fifths are replays of sets of changes: half of it draws them, a seventh replays",
    "`report`": "a third of what it adds is the plan, a third the timeline",
    "`diagnose` again": "the first run after new code is not kept",
    "`diagnose` / `gzip": "imports a sixth, reading a third, and half is rules and prices, which are flat",
    "`diagnose`,": "more than half is imports of Polars, NumPy and the rules",
    "diagnosis": "flat: NumPy and Polars a quarter each, Python, cleared pages and compiled passes a sixth each",
    "a GB": "memory that is touched for the first time",
    "one more GPU": "each GPU's idle time is split by all that the one host does, which grows with them here",
    "one more rank": "tables grow beyond the caches",
}
_INTRO = """# What people wait for

CPU time (user and system) of whole commands, imports included, nothing in the cache but where said. Runs of each
command, in turns, of which the least counts: {runs}. A busy machine moves that less than the clock. {date}, {machine}.

```console
$ python -m benchmarks.peers          # once: the rivals, where the network has them
$ make bench                          # the figures: seven minutes on two quiet cores
$ make docs                           # this page from them
```
"""
_ABSENT = """
Perfetto's trace processor is not here: its package fetches the program itself from a server that this machine does not
reach. Rivals answer other questions than `diagnose`, and less or more. [Speed](speed.md) says how it is quick.
"""
_WIDE, _HIGH, _LEFT, _LOW = 640, 300, 60, 40
_COLORS = ("#1a6fb3", "#b3541a", "#4d8c2b")


def speed_pages() -> Iterator[tuple[str, str]]:
    """Path below docs/ and text of the page and of its plot."""
    made = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| what | figure | bar | | beside it, or why missed |", "|---|---:|---:|---|---|"]
    for one in made["figures"]:
        bar, value = one["bar"], one["value"]
        met = "" if bar is None else "met" if value <= bar else "missed"
        shown = f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
        told = [one["beside"], _why(one["what"]) if met == "missed" else ""]
        limit = "" if bar is None else f"{bar:g} {one['unit']}"
        lines.append(f"| {one['what']} | {shown} {one['unit']} | {limit} | {met} | {'; '.join(filter(None, told))} |")
    picture = f"![CPU seconds by size of the trace](../{PLOT})"
    yield PAGE, "\n".join([_INTRO.format(**made), *lines, "", picture, _ABSENT])
    yield PLOT, plot(made["growth"])


def _why(what: str) -> str:
    return next(why for beginning, why in _WHY.items() if what.startswith(beginning))


def plot(lines: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """CPU seconds over GB of text, both on scales of powers of ten."""
    every: list[Any] = [point for points in lines.values() for point in points]
    low, high = ([math.floor(math.log10(min(p[at] for p in every))) for at in (0, 1)],
                 [math.ceil(math.log10(max(p[at] for p in every))) for at in (0, 1)])  # fmt: skip

    def place(point: Sequence[float]) -> tuple[float, float]:
        across, up = ((math.log10(point[at]) - low[at]) / max(high[at] - low[at], 1) for at in (0, 1))
        return _LEFT + across * (_WIDE - _LEFT - 120), _HIGH - _LOW - up * (_HIGH - 2 * _LOW)

    box = f'viewBox="0 0 {_WIDE} {_HIGH}" font-family="sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', "<title>CPU seconds by size of the trace</title>"]
    for at, unit in ((0, "GB"), (1, "s")):
        for power in range(low[at], high[at] + 1):
            x, y = place((10**power, 10 ** low[1]) if at == 0 else (10 ** low[0], 10**power))
            anchor, dx, dy = ("middle", 0, 18) if at == 0 else ("end", -6, 4)
            parts.append(
                f'<text x="{x + dx:.0f}" y="{y + dy:.0f}" text-anchor="{anchor}">{10.0**power:g} {unit}</text>'
            )
            ends = (x, y, x, _LOW) if at == 0 else (x, y, _WIDE - 120, y)
            parts.append('<path d="M{:.0f} {:.0f}L{:.0f} {:.0f}" stroke="#ccc"/>'.format(*ends))
    for color, (name, points) in zip(_COLORS, lines.items(), strict=False):
        placed = [place(point) for point in sorted(points)]
        path = "L".join(f"{x:.0f} {y:.0f}" for x, y in placed)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        x, y = placed[-1]
        parts.append(f'<text x="{x + 6:.0f}" y="{y + 4:.0f}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>"])
