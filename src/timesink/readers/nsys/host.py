"""What host threads did: CUDA calls, operating-system calls, the profiler's own work, when threads ran.

Synchronisations are here, too, with the edges that cudaStreamWaitEvent draws between streams.
"""

import polars as pl

from timesink.knowledge import nsys_tables
from timesink.knowledge.calls import SYNC_KINDS
from timesink.model import tables as canonical
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.trace import NoteKind
from timesink.readers.nsys.identifiers import SYNC, labels, process_of
from timesink.readers.nsys.session import ExportReading, combined

# TRACE_PROCESS_EVENT_CUDA_RUNTIME and _DRIVER, and _OS_RUNTIME: rows of other classes are no calls. They repeat a call
# for its back trace, or mark that profiling began and ended.
CUDA_CALL_CLASSES = (0, 1)
OS_CALL_CLASSES = (27,)
# OVERHEAD_CUPTI_BUFFER_FLUSH, _INSTRUMENTATION and _RESOURCE; the other types are CUDA's own work.
_PROFILERS_OWN = (3, 4, 5)


def api_calls(session: ExportReading) -> pl.DataFrame:
    """`api_calls`, named without CUPTI's version suffix."""
    frame = _of_class(session, session.rows(nsys_tables.CALLS), CUDA_CALL_CLASSES, canonical.API_CALLS)
    name = session.strings.call_names(frame.drop_in_place("nameId"))
    parts = [session.part(canonical.API_CALLS, frame, name=name)]
    del name
    return combined(canonical.API_CALLS, parts)


def os_calls(session: ExportReading) -> pl.DataFrame:
    """`os_calls`."""
    frame = _of_class(session, session.rows(nsys_tables.OS_RUNTIME), OS_CALL_CLASSES, canonical.OS_CALLS)
    return session.table(canonical.OS_CALLS, frame, name=session.strings.names(frame["nameId"]))


def _of_class(session: ExportReading, frame: pl.DataFrame, classes: tuple[int, ...], table: Table) -> pl.DataFrame:
    """The rows of these event classes, and those without one."""
    called = frame.drop_in_place("eventClass").is_in(classes).fill_null(True)
    message = f"rows beside the {table} that are no calls: repeats for back traces, marks of the profiler"
    session.note(NoteKind.SKIPPED, message, int((~called).sum()), table)
    return frame if called.all() else frame.filter(called)


def profiler_overhead(session: ExportReading) -> pl.DataFrame:
    """`profiler_overhead`: nsys's own rows, and those of CUPTI that are the profiler's work, not CUDA's."""
    frames = [session.rows(nsys_tables.OVERHEAD)]
    if session.has(nsys_tables.CUDA_OVERHEAD):
        stated = labels(session.export, nsys_tables.OVERHEAD_TYPES)
        types = sorted(number for number, label in stated.items() if "(Profiler)" in label) or list(_PROFILERS_OWN)
        every = session.rows(nsys_tables.CUDA_OVERHEAD)
        own = every["overheadType"].is_in(types)
        frames.append(every.filter(own))
        for name, count in session.strings.names(every.filter(~own)["nameId"]).value_counts(sort=True).iter_rows():
            message = f"overhead of CUDA itself, not of the profiler: {name}"
            session.note(NoteKind.SKIPPED, message, count, nsys_tables.CUDA_OVERHEAD.name)
    parts = [
        session.part(canonical.PROFILER_OVERHEAD, rows, name=session.strings.names(rows["nameId"])) for rows in frames
    ]
    return combined(canonical.PROFILER_OVERHEAD, parts)


def scheduled(session: ExportReading) -> pl.DataFrame:
    """Part of `thread_states`: when each thread was on a processor, and what it did between two such intervals.

    An interval whose other end is outside the capture is left out. Rows are in the order of the file.
    """
    events = session.rows(nsys_tables.SCHEDULING).sort("globalTid", "start", maintain_order=True)
    same = pl.col("globalTid") == pl.col("globalTid").shift(-1)
    turns = pl.col("isSchedIn") != pl.col("isSchedIn").shift(-1)
    spans = events.with_columns(pl.col("start").shift(-1).alias("end")).filter(same & turns)
    states = {number: label for number, label in labels(session.export, nsys_tables.SCHEDULER_STATES).items() if number}
    away = spans["threadState"].replace_strict(states, default="Unscheduled", return_dtype=pl.String)
    running = pl.Series(["Running"]).new_from_index(0, spans.height)
    state = running.zip_with(spans["isSchedIn"] == 1, away.fill_null("Unscheduled"))
    return session.part(canonical.THREAD_STATES, spans, state=state)


def threads(session: ExportReading, processes: frozenset[int]) -> pl.DataFrame:
    """`threads` of the processes that were traced; nsys lists those of the whole machine.

    A thread with several names gets the one of the lowest priority number: the program's own before the system's.
    """
    frame = session.export.read(nsys_tables.THREAD_NAMES)
    frame = frame.with_columns(process_of(frame["globalTid"]), session.strings.of(frame["nameId"]).alias("name"))
    frame = frame.filter(pl.col("process").is_in(sorted(processes)) & (pl.col("name").fill_null("") != ""))
    frame = frame.sort("priority", maintain_order=True).unique("globalTid", keep="first", maintain_order=True)
    return canonical.THREADS.build({**session.whose(frame), "name": frame["name"]})


_NONE = (1 << 32) - 1  # how CUPTI writes "no stream" and "no event"


def syncs_and_waits(session: ExportReading, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`syncs` and `event_waits`; `calls` is `api_calls`."""
    rows = _sync_rows(session, calls)
    waits = rows.filter((pl.col("kind") == "stream_wait_event") & pl.col("stream").is_not_null()).with_row_index("row")
    recorded = (
        _last_records(session, waits) if session.has(nsys_tables.CUDA_EVENTS) and waits.height else pl.DataFrame()
    )
    return session.table(canonical.SYNCS, rows), session.part(
        canonical.EVENT_WAITS,
        waits.drop("row").hstack(recorded.get_columns()),
        start_ns=waits["call_ns"].fill_null(waits["start"]),
    ).sort(canonical.EVENT_WAITS.sorted_by, maintain_order=True)


def _sync_rows(session: ExportReading, calls: pl.DataFrame) -> pl.DataFrame:
    """The table with our columns, and start and name of the call that asked.

    Nsight Systems up to 2025.3 numbers a cudaStreamSynchronize as "stream wait"; the call's own name is believed.
    """
    frame = session.rows(nsys_tables.SYNCHRONISATIONS)
    process = process_of(frame["globalPid"])
    numbers = frame["syncType"].fill_null(frame["deprecatedSyncType"])
    frame = frame.with_columns(
        process,
        session.ranks.of(process).alias("rank"),
        SYNC.words_of(session.export, numbers).fill_null("unknown").alias("stated"),
        pl.col("streamId").replace(_NONE, None).alias("stream"),
        pl.col("eventId").replace(_NONE, None).alias("event_id"),
        pl.col("correlationId").alias("correlation"),
    )
    asked = calls.filter(matches(calls["name"], "|".join(pattern for pattern, _ in SYNC_KINDS)))
    name = pl.col("name").cast(pl.String)
    kinds = (pl.when(name.str.contains(pattern)).then(pl.lit(kind)) for pattern, kind in reversed(SYNC_KINDS))
    called = pl.coalesce(*kinds).cast(canonical.SyncKind).alias("called")
    asked = asked.select("process", "correlation", called, pl.col("start_ns").alias("call_ns"))
    asked = asked.unique(["process", "correlation"], keep="first", maintain_order=True)
    frame = frame.join(asked, on=["process", "correlation"], how="left", maintain_order="left")
    kind = frame["called"].fill_null(frame["stated"])
    message = "synchronizations that nsys numbers as another kind than the call that asked for them; the call counts"
    session.note(NoteKind.ASSUMED, message, int((kind != frame["stated"]).sum()), canonical.SYNCS)
    return frame.with_columns(kind.alias("kind"))


def _last_records(session: ExportReading, waits: pl.DataFrame) -> pl.DataFrame:
    """Stream and correlation of the last record of its event before each wait (by correlation id), which is what it
    waits for; null where that was not recorded.

    Where both sides carry CUPTI's synchronisation id, it must agree: an event may be recorded again and again.
    """
    events = session.export.read(nsys_tables.CUDA_EVENTS)
    sync_id = pl.col("eventSyncId").replace([0, _NONE], None).alias("sync_id")
    records = events.select(
        process_of(events["globalPid"]),
        sync_id,
        pl.col("eventId").alias("event_id"),
        pl.col("streamId").alias("waited_stream"),
        pl.col("correlationId").alias("record_correlation"),
        pl.col("correlationId").alias("at"),
    )
    records = records.drop_nulls("at").sort("at", maintain_order=True)
    waits = waits.with_columns(sync_id, pl.col("correlation").alias("at")).sort("at", maintain_order=True)
    found = ("waited_stream", "record_correlation")
    exact, last = (
        waits.join_asof(
            records,
            on="at",
            by=["process", "event_id", *also_by],
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        ).select("row", *found)
        for also_by in (["sync_id"], [])
    )
    both = exact.join(last, on="row", how="left", suffix="_last").sort("row")
    return both.select(pl.coalesce(name, f"{name}_last").alias(name) for name in found)
