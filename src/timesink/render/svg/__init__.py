"""Charts as SVG: plain marks, no script, no outside file. A page takes them as they are, a file by `chart_file`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from timesink.render.svg.heat import heat_svg
from timesink.render.svg.ladder import ladder_svg
from timesink.render.svg.memory import map_svg, memory_svg
from timesink.render.svg.pen import standing_alone
from timesink.render.svg.roofline import roofline_svg
from timesink.render.svg.stages import gantt_svg, stage_svg
from timesink.views.figures import (
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

_DRAWN: Final[Mapping[type, Callable[[Any], str]]] = {
    LadderChart: ladder_svg,
    RooflineChart: roofline_svg,
    MemoryChart: memory_svg,
    MapChart: map_svg,
    HeatChart: heat_svg,
    StageChart: stage_svg,
    GanttChart: gantt_svg,
}


def chart_svg(chart: Chart) -> str:
    """The chart for a page, whose colours it takes."""
    return _DRAWN[type(chart)](chart)


def chart_file(chart: Chart) -> str:
    """The chart as the text of a file."""
    return standing_alone(chart_svg(chart))
