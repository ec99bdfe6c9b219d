"""The tables of `timesink summary`, one function per measure, and of `timesink tables`: what a trace holds."""

from __future__ import annotations

import polars as pl

from timesink.knowledge.ranges import NUMBER
from timesink.measures.kernels.kernels import kernels
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import attribution
from timesink.measures.timeline.copies import copies
from timesink.measures.timeline.device_timeline import DeviceTimeline, device_timeline
from timesink.measures.timeline.launches import DeviceLaunches, launches
from timesink.measures.timeline.quality import Quality, quality
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.names import mapped
from timesink.model.tables import ALL, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.views.counters import counters_sheets
from timesink.views.host import COUNT, calls_sheets, ranges_sheet
from timesink.views.page import DEVICE, RANK, Field, Fields, Page, Sheet, figures, first_rows, names, rows_of, sheet_of


def summary_page(trace: Trace, top: int) -> Page:
    """Every table, `top` rows each at most."""
    tables = (_budget, _steps, _kernels, _operators, _copies, _waits, ranges_sheet, _launches, _quality)
    sheets = (*(table(trace) for table in tables), *calls_sheets(trace), *counters_sheets(trace))
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count} rows)" for note in trace.notes)
    return Page(f"Summary of {trace.source}", tuple(first_rows(sheet, top) for sheet in sheets), notes)


def timed_kernels_page(trace: Trace, top: int) -> Page:
    """The kernels of a timeline that take most, and nothing else."""
    return Page(f"Kernels of {trace.source}", (first_rows(_kernels(trace), top),))


def _budget(trace: Trace) -> Sheet:
    columns: Fields[DeviceTimeline] = (
        RANK,
        DEVICE,
        *figures(span_ns="span", busy_ratio="busy", compute_ns="compute"),
        (Field("exposed_comm_ns", "exposed comm.", unit="ns"), lambda line: line.exposed_communication_ns),
        *figures(exposed_copy_ns="exposed copy", idle_ns="idle time", idle_ratio="idle"),
    )
    note = "compute hides communication, both hide copies; compute + exposed communication + exposed copy + idle = span"
    return sheet_of("budget", "Time budget", device_timeline(trace), columns, note)


def _steps(trace: Trace) -> Sheet:
    measured = steps(trace)
    columns = (RANK, *figures(count="steps", p50_ns="p50", p90_ns="p90", p99_ns="p99", max_ns="max"))
    rows = tuple(
        (rank, times.count, times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns)
        for rank, times in sorted(measured.by_rank.items())
    )
    dropped = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(measured.dropped.items()))
    origin = f"marked by {measured.marker_name}" if measured.marker_name else "no marker"
    return Sheet("steps", "Steps", columns, rows, f"{origin}; left out: {dropped or 'none'}")


def _kernels(trace: Trace) -> Sheet:
    columns = (
        RANK,
        DEVICE,
        *figures(time_ratio="share", total_ns="total"),
        COUNT,
        *figures(mean_ns="mean", max_ns="longest"),
        Field("name", "kernel", is_name=True, is_kernel=True),
    )
    note = "share of the kernel durations of the device, summed; kernels that ran at once count in full"
    return Sheet("kernels", "Kernels", columns, rows_of(kernels(trace), columns), note)


def _operators(trace: Trace) -> Sheet:
    columns = (
        RANK,
        *figures(self_device_ns="self GPU", total_device_ns="total GPU", calls="calls"),
        *figures(kernels="kernels", self_host_ns="self host"),
        Field("name", "operator", is_name=True),
    )
    attributed = attribution(trace)
    frame = attributed.operators.sort(["self_device_ns", "name"], descending=[True, False])
    note = f"{attributed.unattributed_count} GPU operations belong to no operator"
    return Sheet("operators", "Operators by GPU time", columns, rows_of(frame, columns), note)


def _copies(trace: Trace) -> Sheet:
    columns = (
        RANK,
        DEVICE,
        *names(copy_kind="direction", src_memory="from", dst_memory="to"),
        COUNT,
        *figures(bytes="moved", union_ns="time", exposed_ns="no kernel beside"),
        Field("gigabytes_per_s", "rate", unit="GB/s"),
    )
    return Sheet("copies", "Copies", columns, rows_of(copies(trace), columns))


def _waits(trace: Trace) -> Sheet:
    columns = (
        RANK,
        Field("name", "call", is_name=True),
        COUNT,
        *figures(blocked_ns="blocked", drain_ns="GPU ran dry"),
        Field("range", "in range", is_name=True),
    )
    calls = synchronisations(trace).calls
    # A range per step is one place: the numbers in its name are left out.
    places = mapped(calls["range"], lambda names: names.str.replace_all(NUMBER, ""), pl.String)
    frame = (
        calls.with_columns(pl.col("name").cast(pl.String), places.alias("range"))
        .group_by("rank", "name", "range")
        .agg(pl.len().alias("count"), pl.col("blocked_ns", "drain_ns").sum())
        .sort(["drain_ns", "blocked_ns", "rank", "name", "range"], descending=[True, True, False, False, False])
    )
    note = "GPU ran dry: idle time that began while the call waited and ended with work launched after it"
    return Sheet("waits", "Blocking calls", columns, rows_of(frame, columns), note)


def _launches(trace: Trace) -> Sheet:
    columns: Fields[DeviceLaunches] = (
        RANK,
        DEVICE,
        *figures(launch_count="launches", launches_per_step="per step", run_ahead_p50_ns="run-ahead p50"),
        *figures(latency_p50_ns="latency p50", interval_p50_ns="interval p50"),
        (
            Field("empty_queue_ratio", "onto empty queue", unit="ratio"),
            lambda device: device.empty_queue_ratio if device.launch_count else None,
        ),
        Field("host_late_ratio", "GPU waits for host", unit="ratio"),
    )
    note = "run-ahead: from the launch call to the start of its work; GPU waits for host: gaps whose launch came late"
    return sheet_of("launches", "Launches", launches(trace).values(), columns, note)


def _quality(trace: Trace) -> Sheet:
    columns: Fields[Quality] = (
        *figures(device_op_count="GPU operations", linked_ratio="with launch", head_count="begun before"),
        *figures(dead_launch_count="launches without work", graph_ratio="in graphs"),
        *figures(resolution_ns="resolution", overhead_ns="profiler overhead", lost_count="lost"),
    )
    note = "" if DEVICE_OPS in trace else "GPU work was not recorded"
    return sheet_of("quality", "Trace quality", (quality(trace),), columns, note)


_TABLES = (Field("table", "table", is_name=True), *figures(rows="rows", size_bytes="in memory"), Field("doc", "holds"))
_NOTES = (*names(kind="kind", table="table"), Field("count", "rows", unit="1"), Field("message", "note"))


def tables_page(trace: Trace) -> Page:
    """The tables of a trace, those that were not recorded, and the notes of its import."""
    absent = ", ".join(table.name for table in ALL if table not in trace)
    rows = tuple(
        (table.name, trace[table].height, trace[table].estimated_size(), table.doc) for table in ALL if table in trace
    )
    tables = Sheet("tables", "Tables", _TABLES, rows, f"not recorded: {absent}" if absent else "")
    messages = tuple((note.kind.value, note.table or None, note.count or None, note.message) for note in trace.notes)
    return Page(trace.source, (tables, Sheet("import_notes", "What the reader has to say", _NOTES, messages)))


def contents_page(trace: Trace) -> Page:
    """The tables of a trace and what was lost on the way, in short."""
    columns = (Field("table", "table", is_name=True), Field("rows", "rows", unit="1"), Field("doc", "holds"))
    rows = tuple((table.name, trace[table].height, table.doc) for table in ALL if table in trace)
    notes = tuple(f"{note.kind.value}: {note.message}" for note in trace.notes)
    return Page(trace.source, (Sheet("tables", "Tables", columns, rows),), notes)
