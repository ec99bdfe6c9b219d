"""The Python API: what the commands answer, as objects that print shortly, show themselves in a notebook and can be
written (`to_json`, `to_html`, …). `docs/how-to/python.md` shows it.

The floors that hold these classes may not import the one that writes them, so `attach` registers the writer with
`model.presentable` once a public name such as `timesink.read` is used. `offer` tells IPython of the classes by
name, for objects that were made without the public names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from timesink.model.presentable import Presentable

if TYPE_CHECKING:
    from typing import TypeAlias

    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.outcomes import GateResult
    from timesink.views.page import Page

    # What `timesink.read` takes, or what it returned.
    Capture: TypeAlias = Trace | str | Path | Sequence[str | Path]


def diagnose(
    capture: Capture,
    *,
    overrides: Mapping[str, float] = MappingProxyType({}),
    unprofiled_step_ms: float | None = None,
) -> Diagnosis:
    """Name the bottleneck of a trace and price its fix: the object behind `timesink diagnose`.

    `capture` is a trace, or what `timesink.read` takes: a path, a folder, or the files of several ranks. `overrides`
    maps ``"CODE.limit"`` to a value. `unprofiled_step_ms` is the step time without a profiler, in milliseconds.
    """
    from timesink.diagnosis.engine import diagnose as diagnosis_of

    return diagnosis_of(_trace(capture), overrides=overrides, unprofiled_step_ms=unprofiled_step_ms)


def summary(capture: Capture, *, top: int = 10) -> Page:
    """Budget, steps, kernels, copies, waits and launches: `timesink summary`, `top` rows a table."""
    from timesink.views.summary import summary_page

    return summary_page(_trace(capture), top)


def idle(capture: Capture, *, top: int = 15) -> Page:
    """What each GPU waited for while it was idle: `timesink idle`."""
    from timesink.views.idle import idle_page

    return idle_page(_trace(capture), top)


def kernels(capture: Capture) -> Page:
    """What limits each kernel of a Nsight Compute report: `timesink kernels`."""
    from timesink.views.kernels import kernels_page

    return kernels_page(_trace(capture))


def what_if(capture: Capture, *changes: str, unprofiled_step_ms: float | None = None) -> Page:
    """The price of changes before they are made, written as for `timesink what-if --change`.

    `UsageError` for a change that cannot be read, and for a trace without steps.
    """
    from timesink.views.what_if import what_if_page
    from timesink.whatif.changes import parse_change

    return what_if_page(_trace(capture), tuple(parse_change(text) for text in changes), unprofiled_step_ms, False)


def compare(before: Capture, after: Capture) -> GateResult:
    """What moved between two captures, in parts that sum to the change of the step, and what became of the findings.

    Its verdict is inconclusive: one capture per side holds no noise between runs. `timesink verify` decides.
    """
    from timesink.diagnosis.engine import diagnose as diagnosis_of
    from timesink.verify.compare import compare_captures

    traces = _trace(before), _trace(after)
    return compare_captures(traces, (diagnosis_of(traces[0]), diagnosis_of(traces[1])))


def _trace(capture: Capture) -> Trace:
    from timesink.model.trace import Trace
    from timesink.readers import read

    return capture if isinstance(capture, Trace) else read(capture)


def attach() -> None:
    """Register what writes results; nothing else is imported for it."""
    Presentable.writer = staticmethod(_written)


def offer() -> None:
    """Register with the running IPython, if there is one; to be called as often as one likes."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        load_ipython_extension(shell)


def load_ipython_extension(shell: Any) -> None:
    """Register with this shell: what `%load_ext timesink.notebook` calls."""
    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), html in _HTML_OF.items():
        formatter.for_type_by_name(module, name, html)


def _written(result: Any, form: str) -> str:
    """The result in that format; ``notebook`` is a fragment of HTML."""
    if form == "notebook":
        return _HTML_OF[type(result).__module__, type(result).__name__](result)
    from timesink.model.trace import Trace
    from timesink.render import Format, render
    from timesink.views.summary import contents_page

    return render(contents_page(result) if isinstance(result, Trace) else result, Format(form))


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
    from timesink.render.gate.pages import page

    return page_html(page(result))


_HTML_OF: dict[tuple[str, str], Callable[[Any], str]] = {
    ("timesink.diagnosis.verdicts", "Diagnosis"): diagnosis_html,
    ("timesink.model.trace", "Trace"): trace_html,
    ("timesink.verify.outcomes", "GateResult"): comparison_html,
    ("timesink.views.page", "Page"): page_html,
}
