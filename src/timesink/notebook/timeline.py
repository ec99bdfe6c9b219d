"""The timeline of a trace in a notebook: what `Trace.timeline` returns."""

from __future__ import annotations

from html import escape
from typing import Final

from timesink.startup import dataclass
from timesink.units import time_text
from timesink.views import figures

_TALLEST: Final = 640  # pixels: a screen of a notebook; longer timelines scroll


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimelinePicture:
    """The timeline of the report as an object: a notebook shows it, with zoom, search, links and budgets of stretches.

    It stands in a frame that may run nothing but the page's own script, and reaches neither the notebook nor a network.

    >>> trace = timesink.read("run.json.gz")
    >>> trace.timeline()
    <TimelinePicture of 148 ms: 1 rank, 8 lanes, 34,054 events>
    """

    timeline: figures.Timeline

    def to_html(self) -> str:
        """One whole page that loads nothing.

        >>> timesink.read("run.json.gz").timeline().to_html()[:15]
        '<!doctype html>'
        """
        from timesink.render.html import timeline_page

        return timeline_page(self.timeline)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = sum(37 if lane.kind == "op" else 22 + 15 * len(lane.rows) for lane in self.timeline.lanes)
        style = f"width:100%;height:{min(_TALLEST, 260 + rows)}px;border:0"
        page = escape(self.to_html()).encode("ascii", "xmlcharrefreplace").decode()  # whatever encodes the notebook
        return f'<iframe title="timeline" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        shown, ranks = self.timeline, {lane.rank for lane in self.timeline.lanes}
        events = sum(int(row.count.sum()) for lane in shown.lanes for row in lane.rows)
        length = time_text(shown.end_ns - shown.start_ns)
        return (
            f"<TimelinePicture of {length}: {len(ranks)} rank{'s' if len(ranks) != 1 else ''}, "
            f"{len(shown.lanes)} lanes, {events:,} events>"
        )
