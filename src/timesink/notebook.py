"""How a notebook shows traces, diagnoses and comparisons, and the comparison a notebook asks for.

A front end asks an object for `_repr_html_`, but the floors that hold these classes may not import the one that writes
HTML. So `attach` gives them the method from here once a public name such as `timesink.read` is used, and `offer` tells
IPython of the classes by name, for objects that were made without the public names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.outcomes import GateResult


def compare(before: Trace, after: Trace) -> GateResult:
    """What moved between two captures, in parts that sum to the change of the step, and what became of the findings.

    Its verdict is inconclusive: one capture per side holds no noise between runs. `timesink verify` decides.
    """
    from timesink.diagnosis.engine import diagnose
    from timesink.verify.compare import compare_captures

    attach()
    return compare_captures((before, after), (diagnose(before), diagnose(after)))


def attach() -> None:
    """Give `_repr_html_` to the types whose modules are loaded; nothing is imported for it."""
    for (module, name), html in _HTML_OF.items():
        if module in sys.modules:
            getattr(sys.modules[module], name)._repr_html_ = html


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


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Verdict, figures and findings."""
    from timesink.render.html.shell import diagnosis_fragment

    return diagnosis_fragment(diagnosis)


def trace_html(trace: Trace) -> str:
    """What the trace holds, and what was lost on the way."""
    from timesink.render.html.shell import page_fragment
    from timesink.views.summary import contents_page

    return page_fragment(contents_page(trace))


def comparison_html(result: GateResult) -> str:
    """The verdict, what moved, and why."""
    from timesink.render.gate.pages import page
    from timesink.render.html.shell import page_fragment

    return page_fragment(page(result))


_HTML_OF: dict[tuple[str, str], Callable[[Any], str]] = {
    ("timesink.diagnosis.verdicts", "Diagnosis"): diagnosis_html,
    ("timesink.model.trace", "Trace"): trace_html,
    ("timesink.verify.outcomes", "GateResult"): comparison_html,
}
