"""What host threads did: CUDA calls, operating-system calls, the profiler's own work, when threads ran, and ranges.

Synchronisations are here, too, with the edges that cudaStreamWaitEvent draws between streams. nsys records as ranges
what NVTX names, MPI and library calls, and who held the Python lock; the last becomes states of threads.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink import _native
from timesink.knowledge.calls import SYNC_KINDS
from timesink.knowledge.ranges import PYTHON_LOCK
from timesink.model.names import matches
from timesink.model.schema import Table, nulls
from timesink.model.tables import (
    API_CALLS,
    EVENT_WAITS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    SYNCS,
    THREAD_STATES,
    THREADS,
    SyncKind,
)
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import identifiers
from timesink.readers.nsys.export import (
    CALLS,
    CUBLAS,
    CUDA_EVENTS,
    CUDA_OVERHEAD,
    CUDNN,
    MPI,
    NVTX,
    OS_RUNTIME,
    OVERHEAD,
    SCHEDULING,
    SYNCHRONISATIONS,
    THREAD_NAMES,
    Export,
)
from timesink.readers.nsys.identifiers import UNNAMED, process_of
from timesink.readers.nsys.operators import operators
from timesink.readers.nsys.session import ExportReading, combined, part_of

# TRACE_PROCESS_EVENT_CUDA_RUNTIME and _DRIVER, and _OS_RUNTIME: rows of other classes are no calls. They repeat a call
# for its back trace, or mark that profiling began and ended.
CUDA_CALL_CLASSES = (0, 1)
OS_CALL_CLASSES = (27,)
# OVERHEAD_CUPTI_BUFFER_FLUSH, _INSTRUMENTATION and _RESOURCE; the other types are CUDA's own work.
_PROFILERS_OWN = (3, 4, 5)


def api_calls(session: ExportReading) -> pl.DataFrame:
    """`api_calls`, named without CUPTI's version suffix."""
    frame = _of_class(session, session.rows(CALLS), CUDA_CALL_CLASSES, API_CALLS)
    frame = frame.drop("eventClass")
    columns = {
        **session.whose(frame.drop_in_place("globalTid")),
        "name": session.strings.call_names(frame.drop_in_place("nameId")),
        "start_ns": frame.drop_in_place("start"),
        "end_ns": frame.drop_in_place("end"),
        "correlation": frame.drop_in_place("correlationId"),
    }
    part = part_of(API_CALLS, columns)
    columns.clear()
    return combined(API_CALLS, [part])


def os_calls(session: ExportReading) -> pl.DataFrame:
    """`os_calls`."""
    frame = _of_class(session, session.rows(OS_RUNTIME), OS_CALL_CLASSES, OS_CALLS)
    columns = {**session.whose(frame["globalTid"]), "name": session.strings.names(frame["nameId"])}
    return combined(OS_CALLS, [part_of(OS_CALLS, {**columns, "start_ns": frame["start"], "end_ns": frame["end"]})])


def _of_class(session: ExportReading, frame: pl.DataFrame, classes: tuple[int, ...], table: Table) -> pl.DataFrame:
    """The rows of these event classes, and those without one."""
    called = frame["eventClass"].is_in(classes).fill_null(True)
    if called.all():
        return frame
    message = f"rows beside the {table} that are no calls: repeats for back traces, marks of the profiler"
    session.notes.append(ImportNote(NoteKind.SKIPPED, message, int((~called).sum()), table.name))
    return frame.filter(called)


def profiler_overhead(session: ExportReading) -> pl.DataFrame:
    """`profiler_overhead`: nsys's own rows, and those of CUPTI that are the profiler's work, not CUDA's."""
    frame = session.rows(OVERHEAD)
    parts = [part_of(PROFILER_OVERHEAD, _overhead(session, frame))]
    if session.has(CUDA_OVERHEAD):
        every = session.rows(CUDA_OVERHEAD)
        own = every["overheadType"].is_in(_profiler_types(session))
        parts.append(part_of(PROFILER_OVERHEAD, _overhead(session, every.filter(own))))
        for name, count in session.strings.names(every.filter(~own)["nameId"]).value_counts(sort=True).iter_rows():
            message = f"overhead of CUDA itself, not of the profiler: {name}"
            session.notes.append(ImportNote(NoteKind.SKIPPED, message, count, CUDA_OVERHEAD.name))
    return combined(PROFILER_OVERHEAD, parts)


def _overhead(session: ExportReading, frame: pl.DataFrame) -> dict[str, pl.Series | None]:
    return {
        **session.whose(frame["globalTid"]),
        "name": session.strings.names(frame["nameId"]),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"] if "correlationId" in frame.columns else None,
    }


def _profiler_types(session: ExportReading) -> list[int]:
    labels = identifiers.labels(session.export, "ENUM_CUPTI_OVERHEAD_TYPE")
    return sorted(number for number, label in labels.items() if "(Profiler)" in label) or list(_PROFILERS_OWN)


def scheduled(session: ExportReading) -> pl.DataFrame:
    """Part of `thread_states`: when each thread was on a processor, and what it did between two such intervals.

    An interval whose other end is outside the capture is left out. Rows are in the order of the file.
    """
    events = session.rows(SCHEDULING).sort("globalTid", "start", maintain_order=True)
    same = pl.col("globalTid") == pl.col("globalTid").shift(-1)
    turns = pl.col("isSchedIn") != pl.col("isSchedIn").shift(-1)
    spans = events.with_columns(pl.col("start").shift(-1).alias("end")).filter(same & turns)
    states = {
        number: label
        for number, label in identifiers.labels(session.export, "ENUM_SAMPLING_THREAD_STATE").items()
        if number
    }
    away = spans["threadState"].replace_strict(states, default="Unscheduled", return_dtype=pl.String)
    running = pl.Series(["Running"]).new_from_index(0, spans.height)
    columns = {
        **session.whose(spans["globalTid"]),
        "state": running.zip_with(spans["isSchedIn"] == 1, away.fill_null("Unscheduled")),
        "start_ns": spans["start"],
        "end_ns": spans["end"],
    }
    return part_of(THREAD_STATES, columns)


def threads(session: ExportReading, processes: frozenset[int]) -> pl.DataFrame:
    """`threads` of the processes that were traced; nsys lists those of the whole machine.

    A thread with several names gets the one of the lowest priority number: the program's own before the system's.
    """
    frame = session.export.read(THREAD_NAMES)
    frame = frame.with_columns(process_of(frame["globalTid"]), session.strings.of(frame["nameId"]).alias("name"))
    frame = frame.filter(pl.col("process").is_in(sorted(processes)) & (pl.col("name").fill_null("") != ""))
    frame = frame.sort("priority", maintain_order=True).unique("globalTid", keep="first", maintain_order=True)
    return THREADS.build({**session.whose(frame["globalTid"]), "name": frame["name"]})


_NONE = (1 << 32) - 1  # how CUPTI writes "no stream" and "no event"


def syncs_and_waits(session: ExportReading, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`syncs` and `event_waits`; `calls` is `api_calls`."""
    rows = _sync_rows(session, calls)
    columns = {name: rows[name] for name in ("rank", "process", "context", "stream", "kind", "correlation", "event_id")}
    spans = {"device": rows["deviceId"], "start_ns": rows["start"], "end_ns": rows["end"]}
    syncs = combined(SYNCS, [part_of(SYNCS, {**columns, **spans})])
    return syncs, _waits(session, rows.filter(pl.col("kind") == "stream_wait_event"))


def _sync_rows(session: ExportReading, calls: pl.DataFrame) -> pl.DataFrame:
    """The table with our columns, and start and name of the call that asked.

    Nsight Systems up to 2025.3 numbers a cudaStreamSynchronize as "stream wait"; the call's own name is believed.
    """
    frame = session.rows(SYNCHRONISATIONS)
    process = process_of(frame["globalPid"])
    kinds = identifiers.sync_kinds(session.export)
    frame = frame.with_columns(
        process,
        session.ranks.of(process).alias("rank"),
        identifiers.as_sync(frame["syncType"].fill_null(frame["deprecatedSyncType"]), kinds).alias("stated"),
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


def _waits(session: ExportReading, waits: pl.DataFrame) -> pl.DataFrame:
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


def _last_records(session: ExportReading, waits: pl.DataFrame) -> pl.DataFrame:
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


_ANY_CALL = "|".join(pattern for pattern, _ in SYNC_KINDS)


def _kind_of_call(names: pl.Series) -> pl.Series:
    texts = names.cast(pl.String)
    kind = nulls(SyncKind, len(texts))
    for pattern, word in SYNC_KINDS:
        same = pl.Series([word], dtype=SyncKind).new_from_index(0, len(texts))
        kind = same.zip_with(texts.str.contains(pattern), kind)
    return kind


# Event types of NVTX_EVENTS (ENUM_NSYS_EVENT_TYPE): these have kept their numbers from 2021 to 2026.
_CATEGORY, _MARK, _DOMAIN, _PUSH_POP, _START_END = 33, 34, 75, 59, 60
_SYMBOLS = {
    "NvtxCategory": _CATEGORY,
    "NvtxMark": _MARK,
    "NvtxDomainCreate": _DOMAIN,
    "NvtxPushPopRange": _PUSH_POP,
    "NvtxStartEndRange": _START_END,
}


def ranges_and_lock_states(session: ExportReading) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`ranges`, the part of `thread_states` that nsys's Python lock trace recorded as ranges, and the `host_ops` that a
    program recorded as ranges."""
    named = _nvtx(session)
    lock = named.filter(pl.col("lock"))
    parts = [named.filter(~pl.col("lock")).drop("lock"), _library(session)]
    return (
        _nested(pl.concat(parts)),
        part_of(
            THREAD_STATES,
            {
                **{name: lock[name] for name in ("rank", "process", "thread", "start_ns", "end_ns")},
                "state": lock["name"],
            },
        ),
        operators(named),
    )


def _nvtx(session: ExportReading) -> pl.DataFrame:
    frame = session.rows(NVTX)
    kind = frame["eventType"].replace_strict(_event_types(session.export), default=None, return_dtype=pl.Int32)
    named = session.strings.own_or_of(frame["text"], frame["textId"]).fill_null(UNNAMED)
    frame = frame.with_columns(kind.alias("kind"), process_of(frame["globalTid"]), named.alias("name"))
    domains, categories = _domains(frame), _categories(frame)
    if marks := frame.filter(pl.col("kind") == _MARK).height:
        session.notes.append(
            ImportNote(NoteKind.SKIPPED, "NVTX marks have no duration and are not kept", marks, NVTX.name)
        )
    frame = frame.filter(pl.col("kind").is_in([_PUSH_POP, _START_END]))
    frame = _closed(session, frame, "NVTX ranges")
    frame = frame.join(domains, on=["process", "domainId"], how="left", maintain_order="left")
    keys = ["process", "domainId", "category"]
    frame = frame.join(categories, on=keys, how="left", maintain_order="left", nulls_equal=True)
    other = (pl.col("domainId") != 0) & pl.col("domain").is_null()
    frame = frame.with_columns(
        pl.when(other).then(pl.format("domain {}", "domainId")).otherwise("domain").alias("domain"),
        lock=pl.col("name").str.contains(PYTHON_LOCK) & (pl.col("domainId") != 0).fill_null(False),
    )
    return pl.DataFrame(
        {
            **session.whose(frame["globalTid"]),
            "domain": frame["domain"],
            "name": frame["name"],
            "start_ns": frame["start"],
            "end_ns": frame["end"],
            "start_end": frame["kind"] == _START_END,
            "lock": frame["lock"],
            "category": frame["category_name"].fill_null(frame["category"].replace(0, None).cast(pl.String)),
            "color": frame["color"],
            "payload": frame.select(pl.coalesce(pl.col(name).cast(pl.Float64) for name in _PAYLOADS)).to_series(),
        }
    )


def _library(session: ExportReading) -> pl.DataFrame:
    """MPI, cuBLAS and cuDNN calls as ranges of a domain of that name; exports keep them in tables of their own."""
    parts = []
    for source, domain in (*((source, "MPI") for source in MPI), (CUBLAS, "cuBLAS"), (CUDNN, "cuDNN")):
        frame = _closed(session, session.rows(source), f"{domain} calls") if session.has(source) else None
        if frame is None or not frame.height:
            continue
        ids = frame["textId"] if "textId" in frame.columns else frame["nameId"]
        parts.append(
            pl.DataFrame(
                {
                    **session.whose(frame["globalTid"]),
                    "domain": pl.Series([domain]).new_from_index(0, frame.height),
                    "name": session.strings.of(ids).fill_null(UNNAMED),
                    "start_ns": frame["start"],
                    "end_ns": frame["end"],
                    "start_end": pl.Series([False]).new_from_index(0, frame.height),
                    **{name: pl.repeat(None, frame.height, dtype=_SCHEMA[name], eager=True) for name in _ATTACHED},
                }
            )
        )
    return pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA)


_SCHEMA = {
    "rank": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "domain": pl.String,
    "name": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "start_end": pl.Boolean,
    "category": pl.String,
    "color": pl.Int64,
    "payload": pl.Float64,
}
_ATTACHED = ("category", "color", "payload")
_PAYLOADS = ("doubleValue", "floatValue", "int64Value", "uint64Value", "int32Value", "uint32Value")


def _nested(frame: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with the depth of each: how many ranges of its thread, of any domain or kind, enclose it."""
    order = ["rank", "process", "thread", "start_ns", "end_ns"]
    frame = frame.sort(order, descending=[False, False, False, False, True], maintain_order=True)
    group = frame.select(pl.struct("rank", "process", "thread").rle_id()).to_series().cast(pl.Int64)
    _, depth, _ = _native.enclose(*(_contiguous(column) for column in (group, frame["start_ns"], frame["end_ns"])))
    kept = ("rank", "process", "thread", "domain", "name", "start_ns", "end_ns", *_ATTACHED)
    columns = {name: frame[name] for name in kept}
    kinds = pl.Series(["push_pop", "start_end"], dtype=RANGES.columns["kind"].dtype)
    kind = kinds[frame["start_end"].cast(pl.UInt32)]
    return combined(RANGES, [part_of(RANGES, {**columns, "kind": kind, "depth": pl.Series(depth)})])


def _contiguous(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ascontiguousarray(column.to_numpy(), dtype=np.int64)


def _domains(frame: pl.DataFrame) -> pl.DataFrame:
    created = frame.filter((pl.col("kind") == _DOMAIN) & (pl.col("domainId") != 0))
    return created.select("process", "domainId", pl.col("name").alias("domain")).unique(
        ["process", "domainId"], keep="last", maintain_order=True
    )


def _categories(frame: pl.DataFrame) -> pl.DataFrame:
    """The name of each category of a domain."""
    named = frame.filter(pl.col("kind") == _CATEGORY)
    return named.select("process", "domainId", "category", pl.col("name").alias("category_name")).unique(
        ["process", "domainId", "category"], keep="last", maintain_order=True
    )


def _closed(session: ExportReading, frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Ranges that have an end; the others were open when the capture stopped."""
    kept = frame.drop_nulls("end")
    if lost := frame.height - kept.height:
        message = f"{what} that were still open when the capture ended"
        session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, RANGES.name))
    return kept


def domain_numbers(export: Export) -> set[int]:
    """The export's numbers of the events that name a domain or a category."""
    return {number for number, ours in _event_types(export).items() if ours in (_DOMAIN, _CATEGORY)}


def push_pop_numbers(export: Export) -> set[int]:
    """The export's numbers of ranges that are pushed and popped."""
    return {number for number, ours in _event_types(export).items() if ours == _PUSH_POP}


def range_numbers(export: Export) -> set[int]:
    """The export's numbers of the two kinds of range."""
    return {number for number, ours in _event_types(export).items() if ours in (_PUSH_POP, _START_END)}


def _event_types(export: Export) -> dict[int, int]:
    """The export's numbers of the event types we read, as ours."""
    stated = identifiers.symbols(export, "ENUM_NSYS_EVENT_TYPE")
    return {
        **{ours: ours for ours in _SYMBOLS.values()},
        **{number: _SYMBOLS[name] for number, name in stated.items() if name in _SYMBOLS},
    }
