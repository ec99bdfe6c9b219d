"""The report for a browser, put together: the diagnosis, what it rests on, and kernels that were profiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.findings import Diagnosis
    from timesink.model.trace import Trace


def html_report(trace: Trace, diagnosis: Diagnosis) -> str:
    """The whole report of a trace as one HTML document."""
    from timesink.model.tables import KERNEL_PROFILES
    from timesink.report_model import report_of
    from timesink.reporters.html import render

    report = report_of(trace, diagnosis)
    if KERNEL_PROFILES not in trace:
        return render(report)
    from timesink.cli.kernel_sheet import kernels_page
    from timesink.cli.roofline_chart import chart_of
    from timesink.measures.kernel_limiter import kernel_limits
    from timesink.reporters.roofline_svg import svg

    known = [one for one in kernel_limits(trace) if one is not None and one.roofline is not None]
    chart = chart_of("profiled kernels", [one.kernel.function for one in known], [one.roofline for one in known])
    return render(report, (kernels_page(trace),), (svg(chart),) if chart.points else ())
