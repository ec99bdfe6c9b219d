"""What counters sampled along the timeline say of the steps, of each range and of each family of kernels."""

from __future__ import annotations

from collections.abc import Callable

from timesink.knowledge.metric_names.patterns import SAMPLED
from timesink.measures.counters.sampled import CounterMeans, counter_means
from timesink.model.tables import GPU_METRICS
from timesink.model.trace import Trace
from timesink.views.page import DEVICE, RANK, Cell, Field, Fields, Sheet, sheet_of

_NOTE = "means of the samples taken meanwhile, of the whole GPU; parts with fewer than ten samples are left out"


def counters_sheets(trace: Trace) -> tuple[Sheet, ...]:
    """One table; none where no counters were sampled."""
    if not trace.get(GPU_METRICS).height:
        return ()
    means = counter_means(trace)
    shown = [what for what in SAMPLED if any(what == share.what for mean in means for share in mean.shares)]
    columns: Fields[CounterMeans] = (
        (RANK, lambda mean: mean.device[0]),
        (DEVICE, lambda mean: mean.device[1]),
        Field("part", "part"),
        (Field("name", "name", is_name=True), lambda mean: mean.name or None),
        Field("time_ns", "time", unit="ns"),
        *((Field(_key(what), what, unit="ratio"), _share_of(what)) for what in shown),
        (Field("clock_mhz", "clock", unit="MHz"), lambda mean: round(mean.clock_hz / 1e6) if mean.clock_hz else None),
    )
    return (sheet_of("counters", "Counters sampled along the timeline", means, columns, _NOTE),)


def _key(what: str) -> str:
    return what.lower().replace(" ", "_") + "_ratio"


def _share_of(what: str) -> Callable[[CounterMeans], Cell]:
    return lambda mean: next((share.share for share in mean.shares if share.what == what), None)
