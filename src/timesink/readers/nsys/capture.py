"""What the export says of itself: the clock, the version, what was traced, and what nsys reports as lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from timesink.kept_variables import kept_variables
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import (
    CALLS,
    CAPTURE_META,
    DEVICE_WORK,
    DIAGNOSTICS,
    EXPORT_META,
    NVTX,
    SESSION_START,
    SYSTEM_INFO,
    Export,
)

_LATEST_NS = 1 << 62  # beyond it, adding the session's start could overflow
_WARNING, _ERROR = 2, 3
_LOSS = re.compile(
    r"not all .{1,60} events might have been collected|dropped|\blost\b|overflow|incomplete|buffer.{0,40}\bfull\b"
    r"|exceed|truncat|missing events",
    re.IGNORECASE,
)
_DRIVERS = {"NvDriverVersion": "GPU driver", "CudaDriverVersion": "CUDA of the driver"}
_NUMBER = re.compile(r"\d+")
_LONGEST_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class Capture:
    """`origin_ns` is added to the export's times; `traced` names what nsys was asked to record (Cuda, NvtxEvents);
    `settings` are versions and allow-listed variables."""

    origin_ns: int
    version: str | None
    host: str | None
    traced: frozenset[str]
    settings: dict[str, str]

    def records(self, what: str) -> bool:
        """Whether nsys was asked for it, so that a missing table means that nothing happened."""
        return what in self.traced


def capture_of(export: Export, notes: list[ImportNote]) -> Capture:
    """Read the export's descriptions of itself."""
    meta = {name: value for source in EXPORT_META for name, value in export.read(source).iter_rows()}
    captured = export.read(CAPTURE_META).filter(pl.col("name") == "CAPTURE_EVENT_TYPE")["value"]
    traced = {value for value in captured if value}
    traced |= {"Cuda"} if any(source.name in export.tables for source in (*DEVICE_WORK, CALLS)) else set()
    traced |= {"NvtxEvents"} if NVTX.name in export.tables else set()
    system: dict[str, str] = dict(export.read(SYSTEM_INFO).drop_nulls().unique("name", keep="first").rows())
    notes.extend(_reported_losses(export))
    return Capture(
        origin_ns=_origin(export, meta, notes),
        version=meta.get("EXPORT_PRODUCT_VERSION") or None,
        host=system.get("Hostname") or None,
        traced=frozenset(traced),
        settings=_settings(system),
    )


def _settings(system: Mapping[str, str]) -> dict[str, str]:
    """Drivers, and of the environment what an allow-list names; the rest of it is not even kept."""
    drivers = {said: system[name] for name, said in _DRIVERS.items() if system.get(name)}
    pairs = (entry.partition("=") for entry in system.get("DeviceEnvironment", "").split(";"))
    return drivers | kept_variables({name: value for name, _, value in pairs})


def _origin(export: Export, meta: dict[str, str | None], notes: list[ImportNote]) -> int:
    """UTC time of the export's zero, in ns. Exports count from the start of the session unless they were normalised."""
    if (meta.get("EXPORT_PARAM_TIME_NORMALIZE") or "").lower() == "true":
        return 0
    start = export.read(SESSION_START)["utcEpochNs"].drop_nulls()
    if len(start) and 0 < start[0] < _LATEST_NS:
        return int(start[0])
    message = "the file does not say when the session began: times count from its start, not on a wall clock"
    notes.append(ImportNote(NoteKind.ASSUMED, message))
    return 0


def timed(frame: pl.DataFrame, origin_ns: int, notes: list[ImportNote], table: str) -> pl.DataFrame:
    """The rows whose times make sense, on the trace's clock. Drops rows that end before they start, and counts them."""
    columns = [name for name in ("start", "end", "timestamp") if name in frame.columns]
    sound = pl.all_horizontal(pl.col(name).is_between(-_LATEST_NS, _LATEST_NS).fill_null(True) for name in columns)
    if "end" in columns:
        sound = sound & (pl.col("end") >= pl.col("start")).fill_null(True)
    mask = frame.select(sound).to_series()
    if not mask.all():
        lost = int((~mask).sum())
        notes.append(ImportNote(NoteKind.DATA_LOSS, f"rows of {table} end before they start", lost, table))
        frame = frame.filter(mask)
    return frame.with_columns(pl.col(name) + origin_ns for name in columns) if origin_ns else frame


def _reported_losses(export: Export) -> list[ImportNote]:
    """Warnings of nsys that events are missing, and its errors; each distinct message once."""
    frame = export.read(DIAGNOSTICS).filter(pl.col("severity").is_in([_WARNING, _ERROR]))
    told: dict[str, tuple[str, int]] = {}
    for severity, text in frame.iter_rows():
        if text and (severity == _ERROR or _LOSS.search(text)):
            key = _NUMBER.sub("#", text)
            first, count = told.get(key, (text, 0))
            told[key] = (first, count + 1)
    return [
        ImportNote(NoteKind.DATA_LOSS, f"nsys reports: {text.strip()[:_LONGEST_MESSAGE]}", count)
        for text, count in told.values()
    ]
