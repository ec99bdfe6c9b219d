"""NVTX ranges, MPI calls, library calls, and the Python lock, which nsys all records as ranges."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink import _native
from timesink.model.tables import RANGES, THREAD_STATES
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import CUBLAS, CUDNN, MPI, NVTX, Export
from timesink.readers.nsys.processes import UNNAMED, process_of
from timesink.readers.nsys.session import Session, joined, unsorted

# Event types of NVTX_EVENTS (ENUM_NSYS_EVENT_TYPE): these have kept their numbers from 2021 to 2026.
_MARK, _DOMAIN, _PUSH_POP, _START_END = 34, 75, 59, 60
_SYMBOLS = {
    "NvtxMark": _MARK,
    "NvtxDomainCreate": _DOMAIN,
    "NvtxPushPopRange": _PUSH_POP,
    "NvtxStartEndRange": _START_END,
}
_GIL = r"^(?:Holding|Waiting for) GIL"


def ranges_and_lock_states(session: Session) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`ranges`, and the part of `thread_states` that nsys's Python lock trace recorded as ranges."""
    named = _nvtx(session)
    lock = named.filter(pl.col("lock"))
    parts = [named.filter(~pl.col("lock")).drop("lock"), _library(session)]
    return _nested(pl.concat(parts)), unsorted(
        THREAD_STATES,
        {
            **{name: lock[name] for name in ("rank", "process", "thread", "start_ns", "end_ns")},
            "state": lock["name"],
        },
    )


def _nvtx(session: Session) -> pl.DataFrame:
    frame = session.rows(NVTX)
    kind = frame["eventType"].replace_strict(_event_types(session.export), default=None, return_dtype=pl.Int32)
    frame = frame.with_columns(kind.alias("kind"), process_of(frame["globalTid"]), _text(session, frame).alias("name"))
    domains = _domains(frame)
    if marks := frame.filter(pl.col("kind") == _MARK).height:
        session.notes.append(
            ImportNote(NoteKind.SKIPPED, "NVTX marks have no duration and are not kept", marks, NVTX.name)
        )
    frame = frame.filter(pl.col("kind").is_in([_PUSH_POP, _START_END]))
    frame = _closed(session, frame, "NVTX ranges")
    frame = frame.join(domains, on=["process", "domainId"], how="left", maintain_order="left")
    other = (pl.col("domainId") != 0) & pl.col("domain").is_null()
    frame = frame.with_columns(
        pl.when(other).then(pl.format("domain {}", "domainId")).otherwise("domain").alias("domain"),
        lock=pl.col("name").str.contains(_GIL) & (pl.col("domainId") != 0).fill_null(False),
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
        }
    )


def _library(session: Session) -> pl.DataFrame:
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
}


def _nested(frame: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with the depth of each: how many ranges of its thread, of any domain or kind, enclose it."""
    order = ["rank", "process", "thread", "start_ns", "end_ns"]
    frame = frame.sort(order, descending=[False, False, False, False, True], maintain_order=True)
    group = frame.select(pl.struct("rank", "process", "thread").rle_id()).to_series().cast(pl.Int64)
    _, depth, _ = _native.enclose(*(_contiguous(column) for column in (group, frame["start_ns"], frame["end_ns"])))
    columns = {name: frame[name] for name in ("rank", "process", "thread", "domain", "name", "start_ns", "end_ns")}
    kinds = pl.Series(["push_pop", "start_end"], dtype=RANGES.columns["kind"].dtype)
    kind = kinds.gather(frame["start_end"].cast(pl.UInt32))
    return joined(RANGES, [unsorted(RANGES, {**columns, "kind": kind, "depth": pl.Series(depth)})])


def _contiguous(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ascontiguousarray(column.to_numpy(), dtype=np.int64)


def _text(session: Session, frame: pl.DataFrame) -> pl.Series:
    """A range's own text, else the registered string it refers to."""
    own = frame["text"].replace("", None)
    return own.fill_null(session.strings.of(frame["textId"])).fill_null(UNNAMED) if frame.height else own


def _domains(frame: pl.DataFrame) -> pl.DataFrame:
    created = frame.filter((pl.col("kind") == _DOMAIN) & (pl.col("domainId") != 0))
    return created.select("process", "domainId", pl.col("name").alias("domain")).unique(
        ["process", "domainId"], keep="last", maintain_order=True
    )


def _closed(session: Session, frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Ranges that have an end; the others were open when the capture stopped."""
    kept = frame.drop_nulls("end")
    if lost := frame.height - kept.height:
        message = f"{what} that were still open when the capture ended"
        session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, RANGES.name))
    return kept


def domain_numbers(export: Export) -> set[int]:
    """The export's numbers of the events that name a domain."""
    return {number for number, ours in _event_types(export).items() if ours == _DOMAIN}


def range_numbers(export: Export) -> set[int]:
    """The export's numbers of the two kinds of range."""
    return {number for number, ours in _event_types(export).items() if ours in (_PUSH_POP, _START_END)}


def _event_types(export: Export) -> dict[int, int]:
    """The export's numbers of the event types we read, as ours."""
    told = enums.symbols(export, "ENUM_NSYS_EVENT_TYPE")
    return {
        **{ours: ours for ours in _SYMBOLS.values()},
        **{number: _SYMBOLS[name] for number, name in told.items() if name in _SYMBOLS},
    }
