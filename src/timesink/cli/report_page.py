"""The report for a browser, put together: the diagnosis, what it rests on, memory, and kernels that were profiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.render.html import Appendix

MEMORY_ROWS = 10


def html_report(trace: Trace, diagnosis: Diagnosis) -> str:
    """The whole report of a trace as one HTML document."""
    from timesink.render.html import render
    from timesink.views.report import report_of

    return render(report_of(trace, diagnosis), [*_memory(trace), *_kernels(trace)])


def _memory(trace: Trace) -> Iterator[Appendix]:
    """Memory over time and who holds the peak, where allocations were recorded."""
    from timesink.measures.memory.ledger import memory_ledger
    from timesink.render.html import Appendix
    from timesink.views.memory import memory_page, memory_picture

    ledgers = memory_ledger(trace)
    if any(ledger.peak_bytes for ledger in ledgers.values()):
        yield Appendix("memory", "Memory", memory_page(trace, MEMORY_ROWS, None), (memory_picture(trace),))


def _kernels(trace: Trace) -> Iterator[Appendix]:
    """The limiter of each profiled kernel and its place under the roofs, where kernels were profiled."""
    from timesink.measures.counters.limiter import kernel_limits
    from timesink.model.tables import KERNEL_PROFILES
    from timesink.render.html import Appendix
    from timesink.render.svg import roofline_svg
    from timesink.views.kernels import kernel_details, kernels_page
    from timesink.views.roofline import chart_of

    if KERNEL_PROFILES not in trace:
        return
    known = [one for one in kernel_limits(trace) if one is not None and one.roofline is not None]
    chart = chart_of("profiled kernels", [one.kernel.function for one in known], [one.roofline for one in known])
    pictures = (roofline_svg(chart),) if chart.points else ()
    yield Appendix("profiled", "Profiled kernels", kernels_page(trace), pictures, tuple(kernel_details(trace)))
