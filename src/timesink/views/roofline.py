"""From measured rooflines to the picture's data."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.measures.counters.roofline import LEVELS, KernelRoofline
from timesink.render.svg import Ceiling, Chart, Point, Slope


def chart_of(title: str, names: Sequence[str], lines: Sequence[KernelRoofline | None]) -> Chart:
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
    return Chart(
        f"roofline of {title}",
        tuple(Slope(level.upper(), slopes[level]) for level in LEVELS if level in slopes),
        tuple(Ceiling(label, flops) for label, flops in sorted(ceilings.items(), key=lambda item: -item[1])),
        tuple(points),
    )
