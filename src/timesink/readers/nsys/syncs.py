"""Synchronisations, and the edges that cudaStreamWaitEvent draws between streams."""

from __future__ import annotations

import polars as pl

from timesink.model.names import matches
from timesink.model.tables import EVENT_WAITS, SYNCS, SyncKind
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import CUDA_EVENTS, SYNCHRONISATIONS
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import Session, joined, unsorted

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
