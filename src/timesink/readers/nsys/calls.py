"""What host threads did: CUDA calls, operating-system calls, the profiler's own work, and when threads ran.

Synchronisations, and the edges that cudaStreamWaitEvent draws between streams.
"""

from __future__ import annotations

import polars as pl

from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    EVENT_WAITS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    SYNCS,
    THREAD_STATES,
    THREADS,
    SyncKind,
)
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import (
    CALLS,
    CUDA_EVENTS,
    CUDA_OVERHEAD,
    OS_RUNTIME,
    OVERHEAD,
    SCHEDULING,
    SYNCHRONISATIONS,
    THREAD_NAMES,
)
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import Session, joined, unsorted

# TRACE_PROCESS_EVENT_CUDA_RUNTIME and _DRIVER, and _OS_RUNTIME: rows of other classes are no calls. They repeat a call
# for its back trace, or mark that profiling began and ended.
CUDA_CALL_CLASSES = (0, 1)
OS_CALL_CLASSES = (27,)
# OVERHEAD_CUPTI_BUFFER_FLUSH, _INSTRUMENTATION and _RESOURCE; the other types are CUDA's own work.
_PROFILERS_OWN = (3, 4, 5)


def api_calls(session: Session) -> pl.DataFrame:
    """`api_calls`, named without CUPTI's version suffix."""
    frame = _of_class(session, session.rows(CALLS), CUDA_CALL_CLASSES, API_CALLS)
    columns = {
        **session.whose(frame["globalTid"]),
        "name": session.strings.call_names(frame["nameId"]),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"],
    }
    del frame
    return joined(API_CALLS, [unsorted(API_CALLS, columns)])


def os_calls(session: Session) -> pl.DataFrame:
    """`os_calls`."""
    frame = _of_class(session, session.rows(OS_RUNTIME), OS_CALL_CLASSES, OS_CALLS)
    columns = {**session.whose(frame["globalTid"]), "name": session.strings.names(frame["nameId"])}
    return joined(OS_CALLS, [unsorted(OS_CALLS, {**columns, "start_ns": frame["start"], "end_ns": frame["end"]})])


def _of_class(session: Session, frame: pl.DataFrame, classes: tuple[int, ...], table: Table) -> pl.DataFrame:
    """The rows of these event classes, and those without one."""
    called = frame["eventClass"].is_in(classes).fill_null(True)
    if called.all():
        return frame
    message = f"rows beside the {table} that are no calls: repeats for back traces, marks of the profiler"
    session.notes.append(ImportNote(NoteKind.SKIPPED, message, int((~called).sum()), table.name))
    return frame.filter(called)


def profiler_overhead(session: Session) -> pl.DataFrame:
    """`profiler_overhead`: nsys's own rows, and those of CUPTI that are the profiler's work, not CUDA's."""
    frame = session.rows(OVERHEAD)
    parts = [unsorted(PROFILER_OVERHEAD, _overhead(session, frame))]
    if session.has(CUDA_OVERHEAD):
        every = session.rows(CUDA_OVERHEAD)
        own = every["overheadType"].is_in(_profiler_types(session))
        parts.append(unsorted(PROFILER_OVERHEAD, _overhead(session, every.filter(own))))
        for name, count in session.strings.names(every.filter(~own)["nameId"]).value_counts(sort=True).iter_rows():
            message = f"overhead of CUDA itself, not of the profiler: {name}"
            session.notes.append(ImportNote(NoteKind.SKIPPED, message, count, CUDA_OVERHEAD.name))
    return joined(PROFILER_OVERHEAD, parts)


def _overhead(session: Session, frame: pl.DataFrame) -> dict[str, pl.Series | None]:
    return {
        **session.whose(frame["globalTid"]),
        "name": session.strings.names(frame["nameId"]),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"] if "correlationId" in frame.columns else None,
    }


def _profiler_types(session: Session) -> list[int]:
    labels = enums.labels(session.export, "ENUM_CUPTI_OVERHEAD_TYPE")
    return sorted(number for number, label in labels.items() if "(Profiler)" in label) or list(_PROFILERS_OWN)


def scheduled(session: Session) -> pl.DataFrame:
    """Part of `thread_states`: when each thread was on a processor, and what it did between two such intervals.

    An interval whose other end lies outside the capture is left out. In file order, unsorted.
    """
    events = session.rows(SCHEDULING).sort("globalTid", "start", maintain_order=True)
    same = pl.col("globalTid") == pl.col("globalTid").shift(-1)
    turns = pl.col("isSchedIn") != pl.col("isSchedIn").shift(-1)
    spans = events.with_columns(pl.col("start").shift(-1).alias("end")).filter(same & turns)
    states = {
        number: label for number, label in enums.labels(session.export, "ENUM_SAMPLING_THREAD_STATE").items() if number
    }
    away = spans["threadState"].replace_strict(states, default="Unscheduled", return_dtype=pl.String)
    running = pl.Series(["Running"]).new_from_index(0, spans.height)
    columns = {
        **session.whose(spans["globalTid"]),
        "state": running.zip_with(spans["isSchedIn"] == 1, away.fill_null("Unscheduled")),
        "start_ns": spans["start"],
        "end_ns": spans["end"],
    }
    return unsorted(THREAD_STATES, columns)


def threads(session: Session, processes: frozenset[int]) -> pl.DataFrame:
    """`threads` of the processes that were traced; nsys lists those of the whole machine.

    A thread with several names gets the one of the lowest priority number: the program's own before the system's.
    """
    frame = session.export.read(THREAD_NAMES)
    frame = frame.with_columns(process_of(frame["globalTid"]), session.strings.of(frame["nameId"]).alias("name"))
    frame = frame.filter(pl.col("process").is_in(sorted(processes)) & (pl.col("name").fill_null("") != ""))
    frame = frame.sort("priority", maintain_order=True).unique("globalTid", keep="first", maintain_order=True)
    return THREADS.build({**session.whose(frame["globalTid"]), "name": frame["name"]})


_NONE = (1 << 32) - 1  # how CUPTI writes "no stream" and "no event"
_BY_CALL = {
    r"^cu(?:da)?StreamWaitEvent": "stream_wait_event",
    r"^cu(?:da)?StreamSynchronize": "stream",
    r"^cu(?:da)?Event(?:Synchronize|Query)": "event",
    r"^(?:cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize)": "device",
}


def syncs_and_waits(session: Session, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`syncs` and `event_waits`; `calls` is `api_calls`."""
    rows = _sync_rows(session, calls)
    columns = {name: rows[name] for name in ("rank", "process", "context", "stream", "kind", "correlation", "event_id")}
    spans = {"device": rows["deviceId"], "start_ns": rows["start"], "end_ns": rows["end"]}
    syncs = joined(SYNCS, [unsorted(SYNCS, {**columns, **spans})])
    return syncs, _waits(session, rows.filter(pl.col("kind") == "stream_wait_event"))


def _sync_rows(session: Session, calls: pl.DataFrame) -> pl.DataFrame:
    """The table with our columns, and start and name of the call that asked.

    Nsight Systems up to 2025.3 numbers a cudaStreamSynchronize as "stream wait"; the call's own name is believed.
    """
    frame = session.rows(SYNCHRONISATIONS)
    process = process_of(frame["globalPid"])
    kinds = enums.sync_kinds(session.export)
    frame = frame.with_columns(
        process,
        session.ranks.of(process).alias("rank"),
        enums.as_sync(frame["syncType"].fill_null(frame["deprecatedSyncType"]), kinds).alias("stated"),
        pl.col("contextId").alias("context"),
        pl.col("streamId").replace(_NONE, None).alias("stream"),
        pl.col("eventId").replace(_NONE, None).alias("event_id"),
        pl.col("correlationId").alias("correlation"),
    )
    asked = calls.filter(matches(calls["name"], _ANY_CALL))
    asked = asked.select(
        "process", "correlation", _kind_of_call(asked["name"]).alias("called"), pl.col("start_ns").alias("call_ns")
    )
    asked = asked.unique(["process", "correlation"], keep="first", maintain_order=True)
    frame = frame.join(asked, on=["process", "correlation"], how="left", maintain_order="left")
    kind = frame["called"].fill_null(frame["stated"])
    if wrong := int((kind != frame["stated"]).sum()):
        message = (
            "synchronisations that nsys numbers as another kind than the call that asked for them; the call counts"
        )
        session.notes.append(ImportNote(NoteKind.ASSUMED, message, wrong, SYNCS.name))
    return frame.with_columns(kind.alias("kind"))


def _waits(session: Session, waits: pl.DataFrame) -> pl.DataFrame:
    """Each wait with the last record of its event before it (by correlation id), where that was recorded."""
    waits = waits.filter(pl.col("stream").is_not_null()).with_row_index("row")
    found = _last_records(session, waits) if session.has(CUDA_EVENTS) and waits.height else None
    columns = {name: waits[name] for name in ("rank", "process", "context", "stream", "event_id", "correlation")}
    return EVENT_WAITS.build(
        {
            **columns,
            "device": waits["deviceId"],
            "waited_stream": None if found is None else found["recorded_stream"],
            "record_correlation": None if found is None else found["record"],
            "start_ns": waits["call_ns"].fill_null(waits["start"]),
        }
    )


def _last_records(session: Session, waits: pl.DataFrame) -> pl.DataFrame:
    """Stream and correlation of the record that each wait waits for; a record after the wait cannot be it.

    Where both sides carry CUPTI's synchronisation id, it must agree: an event may be recorded again and again.
    """
    events = session.export.read(CUDA_EVENTS)
    records = (
        events.select(
            process_of(events["globalPid"]).alias("process"),
            pl.col("eventId").alias("event_id"),
            pl.col("eventSyncId").replace([0, _NONE], None).alias("sync_id"),
            pl.col("streamId").alias("recorded_stream"),
            pl.col("correlationId").alias("record"),
        )
        .drop_nulls("record")
        .sort("record", maintain_order=True)
    )
    waits = waits.with_columns(
        pl.col("eventSyncId").replace([0, _NONE], None).alias("sync_id"), pl.col("correlation").alias("at")
    )
    waits = waits.sort("at", maintain_order=True)
    exact, last = (_latest_before(waits, records, by) for by in (["sync_id"], []))
    both = exact.join(last, on="row", how="left", suffix="_last").sort("row")
    return both.select(
        pl.col("recorded_stream").fill_null(pl.col("recorded_stream_last")),
        pl.col("record").fill_null(pl.col("record_last")),
    )


def _latest_before(waits: pl.DataFrame, records: pl.DataFrame, also_by: list[str]) -> pl.DataFrame:
    """For each wait the last record of the same event, and of what `also_by` names, with a smaller correlation."""
    return waits.join_asof(
        records.with_columns(pl.col("record").alias("at")),
        on="at",
        by=["process", "event_id", *also_by],
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    ).select("row", "recorded_stream", "record")


_ANY_CALL = "|".join(_BY_CALL)


def _kind_of_call(names: pl.Series) -> pl.Series:
    texts = names.cast(pl.String)
    kind = pl.Series([None], dtype=SyncKind).new_from_index(0, len(texts))
    for pattern, word in _BY_CALL.items():
        same = pl.Series([word], dtype=SyncKind).new_from_index(0, len(texts))
        kind = same.zip_with(texts.str.contains(pattern), kind)
    return kind
