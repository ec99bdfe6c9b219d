"""The view of `timesink report`: a trace and its diagnosis as the plain data that the page for a browser shows.

`report_of` makes it for the command line, the server for agents, notebooks and Python alike, and
`timesink.render.html.render` writes it as one file:

    page = render(report_of(trace, diagnose(trace)))
"""

import sys
from collections.abc import Iterator

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.knowledge.kernel_names import short_name, types_told
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.idle.blame import idle_by_step
from timesink.measures.kernels import kernel_lengths, kernels
from timesink.measures.memory import memory_ledger
from timesink.measures.ranks.telling import telling
from timesink.measures.steps import step_times, steps
from timesink.measures.steps.per_step import step_budgets as budgets_by_step
from timesink.measures.steps.spikes import spikes
from timesink.measures.timeline import Device, of_device
from timesink.measures.timeline.attribution import operator_times
from timesink.model.arrays import median
from timesink.model.tables import DEVICE_OPS, HOST_OPS, KERNEL_PROFILES, RANGES
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.views import Report, Section, Sheet, listed, without_columns
from timesink.views.figures import StepSeries, Timeline
from timesink.views.plan import page_of, plan
from timesink.views.summary import ranges_page
from timesink.views.timeline import Claims, timeline_of
from timesink.views.timeline.finding_window import marked, window_of
from timesink.views.timeline.flames import areas_of, flames_of
from timesink.views.timeline.runs import LIVE_RUNS, MOST_RUNS, fitted

SHOWN_RANKS = 8  # one node; a row of pictures each


def step_series(trace: Trace) -> tuple[StepSeries, ...]:
    """The ranks with the slowest median, in order of rank; a rank with several GPUs is shown by its first one."""
    measured = steps(trace)
    slowest = sorted(measured.by_rank, key=lambda rank: (-(measured.by_rank[rank].p50_ns or 0.0), rank))[:SHOWN_RANKS]
    timed = {rank: measured.windows.filter(pl.col("rank") == rank) for rank in sorted(slowest)}
    return tuple(_series(trace, rank, rows) for rank, rows in timed.items() if rows.height)


def _series(trace: Trace, rank: int, rows: pl.DataFrame) -> StepSeries:
    device = int(rows["device"].min())  # type: ignore[arg-type]
    rows = rows.filter(pl.col("device") == device).sort("step")
    times = step_times(rows["period_ns"].to_numpy())
    return StepSeries(
        rank=rank,
        numbers=tuple(rows["step"].to_list()),
        labels=tuple(steps(trace).labels_of(rows)),
        period_ns=tuple(rows["period_ns"].to_list()),
        p50_ns=times.p50_ns,
        p90_ns=times.p90_ns,
        p99_ns=times.p99_ns,
        spikes=_standing_out(trace, (rank, device), rows),
        parts=tuple(_step_parts(trace, (rank, device))) if rows.height <= _MOST_BARS else (),
    )


_MOST_BARS = 1000  # a pixel each


def _step_parts(trace: Trace, device: Device) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What each step of a device is made of: its work, then its idle time by cause."""
    rank, gpu = device
    rows = budgets_by_step(trace).filter(of_device((rank, gpu))).sort("step")
    work = ("compute", "compute_ns"), ("communication", "exposed_communication_ns"), ("copy", "exposed_copy_ns")
    times = {kind: rows[column].to_numpy() for kind, column in work} | idle_by_step(trace, device)
    yield from ((kind, tuple(ns.tolist())) for kind, ns in times.items() if ns.any())


def _standing_out(trace: Trace, device: Device, rows: pl.DataFrame) -> tuple[tuple[int, str], ...]:
    """The long steps themselves: a spike names the step in which its cause struck, which may be the one after."""
    causes: dict[int, str] = {}
    for spike in spikes(trace).found:
        if spike.device == device:
            alike = rows.filter(pl.col("period_ns") == spike.period_ns)["step"].to_list()
            causes[min(alike, key=lambda step: (abs(step - spike.step), step))] = spike.kind.value
    return tuple(sorted(causes.items()))


# Bounds of the size of a report: as many as people look at.
SHOWN_WINDOWS = 8
SHOWN_NAMES = 40  # a screenful
SHOWN_MEMORY_ROWS = 10
SHOWN_RANGES = 15  # a screen of them: the rest is in timesink show


def report_of(trace: Trace, diagnosis: Diagnosis, *, full: bool = False) -> Report:
    """Everything the report shows; `full` keeps every event in the timeline, which marks the costliest finding of each
    rule, eight at most."""
    most = sys.maxsize if full else MOST_RUNS
    return _report(trace, diagnosis, timeline_of(telling(trace), claims_of(diagnosis), most))


def live_report(trace: Trace, diagnosis: Diagnosis) -> tuple[Report, Timeline | None]:
    """What a page shows of itself, and the timeline of every event, which it asks for what it shows at close sight."""
    whole = timeline_of(telling(trace), claims_of(diagnosis), sys.maxsize)
    return _report(trace, diagnosis, None if whole is None else fitted(whole, LIVE_RUNS)), whole


def _report(whole: Trace, diagnosis: Diagnosis, timeline: Timeline | None) -> Report:
    trace = telling(whole)
    windows = {
        position: marked(timeline, number, window)
        for position, number, _, finding in _first_of_each(diagnosis)
        if timeline is not None and (window := window_of(trace, finding)) is not None
    }
    return Report(
        diagnosis=diagnosis,
        budgets=diagnosis.budgets,
        series=step_series(trace),
        timeline=timeline,
        windows=windows,
        flames=flames_of(trace) if timeline is not None else (),
        areas=areas_of(trace) if timeline is not None else None,
        kernels=kernels_sheet(trace),
        operators=_operators(trace),
        sections=tuple(_sections(whole, diagnosis)),
    )


def claims_of(diagnosis: Diagnosis) -> Claims:
    """What the timeline marks of a diagnosis."""
    return [(number, finding.name, finding) for _, number, _, finding in _first_of_each(diagnosis)]


def _first_of_each(diagnosis: Diagnosis) -> list[tuple[int, int, Card, Finding]]:
    """Position, number in the report, card and finding of each one that the timeline marks."""
    first: dict[tuple[str, str], tuple[int, int, Card, Finding]] = {}
    for position, (card, finding) in enumerate(diagnosis.findings):
        first.setdefault((card.code, finding.advice), (position, len(first) + 1, card, finding))
    return list(first.values())[:SHOWN_WINDOWS]


def _sections(whole: Trace, diagnosis: Diagnosis) -> Iterator[Section]:
    """The pages that other commands show, each where the trace holds what it is about, and imported only there; that of
    the ranks compares all of them."""
    trace = telling(whole)
    if (made := plan(trace, diagnosis)).rungs:
        yield Section("plan", "Plan", page_of(made, trace.source))
    if trace.get(DEVICE_OPS)["rank"].n_unique() > 1:
        from timesink.views.ranks import page_of_trace

        if (page := page_of_trace(whole, SHOWN_RANKS)).charts:
            yield Section("ranks", "Ranks", page)
    if trace.get(RANGES).height:
        yield Section("ranges", "Ranges", ranges_page(trace, SHOWN_RANGES, tree=True))
    if any(ledger.peak_bytes for ledger in memory_ledger(trace).values()):
        from timesink.views.memory import memory_page

        yield Section("memory", "Memory", memory_page(trace, SHOWN_MEMORY_ROWS, None))
    if KERNEL_PROFILES in trace:
        from timesink.views.kernels import kernel_details, kernels_page
        from timesink.views.roofline import roofline_chart, why_no_chart

        chart = roofline_chart("profiled kernels", trace)
        page = kernels_page(trace)
        without = () if chart.points else why_no_chart(trace)
        page = replace(page, charts=(chart,) if chart.points else (), notes=(*without, *page.notes))
        yield Section("profiled", "Profiled kernels", page, tuple(kernel_details(trace)))


def kernel_times(trace: Trace) -> pl.DataFrame:
    """Every kernel of every device with its times, in the order of the measure `kernels`."""
    if DEVICE_OPS not in trace:
        return pl.DataFrame()
    return kernels(trace).with_columns(pl.col("name").cast(pl.String))


_BARS = 24  # of a histogram the size of a word
_DEVICE = ("rank", "device")  # columns that say nothing where all rows have the same


def kernels_sheet(trace: Trace) -> Sheet | None:
    """The costliest kernels, with how their launches spread; None where there are none."""
    times = kernel_times(trace)
    if times.is_empty():
        return None
    costliest = times.sort("total_ns", "rank", "device", "name", descending=[True, False, False, False])
    shown = costliest.head(SHOWN_NAMES)
    lengths, rows = kernel_lengths(trace, shown["name"].to_list()), []
    wanted = ("rank", "device", "name", "time_ratio", "total_ns", "count", "max_ns")
    for rank, device, name, *cost, longest_ns in shown.select(wanted).iter_rows():
        own = lengths[rank, device, name]
        spread, middle = step_times(own), max(median(own), 1.0)
        reach = min(float(own.min()), middle / 2), max(float(own.max()), middle * 2)  # what is alike looks alike
        ends = np.log(np.maximum(reach, 1.0))
        counts = np.histogram(np.log(np.maximum(own, 1)), _BARS, (ends[0], ends[1]))[0].tolist()
        shape = " ".join(map(str, (*reach, *counts)))
        work = _work(name) or None
        rows.append((rank, device, name, work, *cost, spread.p50_ns, spread.p90_ns, longest_ns, shape))
    note = (
        "share: of the kernel durations of the GPU, summed; kernels that ran at once count in full; "
        "work: as far as the name tells; how long: its launches, from half the median to twice it, or further"
    )
    note += _left(times.height, shown.height)
    return without_columns(listed("report.kernels", rows, note), _DEVICE)


def _left(count: int, shown: int) -> str:
    return f"; the {shown} costliest of {count}" if count > shown else ""


def _work(name: str) -> str:
    """Family and, where the short name beside it has no type, that of the arithmetic: `custom bf16`."""
    decoded = decode(name)
    family = "" if decoded.family is KernelFamily.OTHER else decoded.family.value.replace("_", " ")
    return " ".join(filter(None, (family, "" if types_told(short_name(name)) else decoded.math)))


def _operators(trace: Trace) -> Sheet | None:
    """The operators that cost most GPU time by themselves; None where there are none."""
    if HOST_OPS not in trace:
        return None
    frame = operator_times(trace)
    if frame.is_empty():
        return None
    shown = frame.sort("self_device_ns", "rank", "name", descending=[True, False, False]).head(SHOWN_NAMES)
    note = "self: launched by the operator itself, without the operators inside it" + _left(frame.height, shown.height)
    return without_columns(listed("report.operators", shown, note), _DEVICE)
