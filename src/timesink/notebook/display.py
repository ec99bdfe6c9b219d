"""How results show themselves: in a notebook, and written in every format.

The floors that hold the classes may not import the one that writes them, so `attach` registers the writer with
`model.presentable` once a public name such as `timesink.read` is used. `offer` tells IPython of the classes by
name, for objects that were made without the public names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, Final

from timesink.model.presentable import Origin, Presentable
from timesink.records import Record
from timesink.units import time_text

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.outcomes import GateResult
    from timesink.views import Page, figures


def attach() -> None:
    """Register what writes results; nothing else is imported for it."""
    Presentable.writer = staticmethod(_written)


def offer() -> None:
    """Register with the running IPython, if there is one; to be called as often as one likes."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        register(shell)


def register(shell: Any) -> None:
    """Register with this shell."""
    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), html in _HTML_OF.items():
        formatter.for_type_by_name(module, name, html)


def _written(result: Any, form: str) -> str:
    """The result in that format; ``notebook`` is a fragment of HTML."""
    if form == "notebook":
        return _HTML_OF[type(result).__module__, type(result).__name__](result)
    from timesink.model.trace import Trace
    from timesink.render import Format, Style, written
    from timesink.views.summary import contents_page

    if isinstance(result, Trace):
        return written(contents_page(result), Format(form), Style(origin=origin_of("tables", result)))
    return written(result, Format(form), Style(origin=result.origin))


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Verdict, figures and findings."""
    from timesink.render.html.shell import diagnosis_fragment

    return diagnosis_fragment(diagnosis)


def page_html(page: Page) -> str:
    """Every table of the page."""
    from timesink.render.html.shell import page_fragment

    return page_fragment(page)


def trace_html(trace: Trace) -> str:
    """What the trace holds, and what was lost on the way."""
    from timesink.views.summary import contents_page

    return page_html(contents_page(trace))


def comparison_html(result: GateResult) -> str:
    """The verdict, what moved, and why."""
    from timesink.render.gate import page

    return page_html(page(result))


_HTML_OF: dict[tuple[str, str], Callable[[Any], str]] = {
    ("timesink.diagnosis.verdicts", "Diagnosis"): diagnosis_html,
    ("timesink.model.trace", "Trace"): trace_html,
    ("timesink.notebook.trace", "AnsweringTrace"): trace_html,
    ("timesink.verify.outcomes", "GateResult"): comparison_html,
    ("timesink.views", "Page"): page_html,
}


_TALLEST: Final = 640  # pixels: a screen of a notebook; longer timelines scroll


class TimelinePicture(Record, eq=False):
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


def origin_of(command: str, *traces: Trace) -> Origin:
    """What the JSON of an answer says of where it comes from."""
    return Origin(command, tuple(path for trace in traces for path in _files_of(trace)))


def _files_of(trace: Trace) -> list[str]:
    from timesink.model.tables import SOURCES

    if SOURCES not in trace:
        return [trace.source]
    return [str(path) for path in trace[SOURCES]["path"].unique(maintain_order=True)]
