"""What every table of one export shares while it is turned into canonical tables.

That is what the export says of itself (the clock, the version, what was traced, what nsys reports as lost), the texts
and ranks its numbers stand for, and how parts of a table are put into its order.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from timesink._native import sorted_order
from timesink.knowledge import nsys_tables, profiler_texts
from timesink.knowledge.nsys_tables import ExportTable
from timesink.knowledge.ranges import NUMBER
from timesink.model.schema import Table, has_one_value, lean
from timesink.model.trace import ImportNote, NoteKind, noted
from timesink.readers.nsys import export as sources
from timesink.readers.nsys.export import Export
from timesink.readers.nsys.identifiers import Ranks, Strings, process_of, thread_of
from timesink.records import Record, field, replace
from timesink.untrusted.masking import kept_variables

_LATEST_NS = 1 << 62  # beyond it, adding the session's start could overflow
_WARNING, _ERROR = 2, 3
_DRIVERS = {"NvDriverVersion": "GPU driver", "CudaDriverVersion": "CUDA of the driver"}
_LONGEST_MESSAGE = 200
_GROUP_KEYS = 2  # as many columns as the compiled order takes


class CaptureInfo(Record):
    """`origin_ns` is added to the export's times; `traced` names what nsys was asked to record (Cuda, NvtxEvents), so
    that a missing table means that nothing happened; `settings` are versions and allow-listed variables."""

    origin_ns: int
    version: str | None
    host: str | None
    traced: frozenset[str]
    settings: dict[str, str]


def capture_of(export: Export, notes: list[ImportNote]) -> CaptureInfo:
    """Read the export's descriptions of itself."""
    meta = {name: value for source in nsys_tables.EXPORT_META for name, value in export.read(source).iter_rows()}
    captured = export.read(nsys_tables.CAPTURE_META).filter(pl.col("name") == "CAPTURE_EVENT_TYPE")["value"]
    traced = {value for value in captured if value}
    of_cuda = (*sources.DEVICE_WORK, nsys_tables.CALLS, nsys_tables.SYNCHRONISATIONS)
    traced |= {"Cuda" for source in of_cuda if source.name in export.tables}
    traced |= {"NvtxEvents"} if nsys_tables.NVTX.name in export.tables else set()
    system: dict[str, str] = dict(export.read(nsys_tables.SYSTEM_INFO).drop_nulls().unique("name", keep="first").rows())
    notes.extend(_reported_losses(export))
    return CaptureInfo(
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
    start = export.read(nsys_tables.SESSION_START)["utcEpochNs"].drop_nulls()
    if len(start) and 0 < start[0] < _LATEST_NS:
        return int(start[0])
    message = "the file does not say when the session began: times count from its start, not on a wall clock"
    notes.append(ImportNote(NoteKind.ASSUMED, message))
    return 0


def with_sound_times(frame: pl.DataFrame, origin_ns: int, notes: list[ImportNote], table: str) -> pl.DataFrame:
    """The rows whose times make sense, on the trace's clock. Drops rows that end before they start, and counts them."""
    columns = [name for name in ("start", "end", "timestamp") if name in frame.columns]
    sound = pl.all_horizontal(pl.col(name).is_between(-_LATEST_NS, _LATEST_NS).fill_null(True) for name in columns)
    if "end" in columns:
        sound = sound & (pl.col("end") >= pl.col("start")).fill_null(True)
    mask = frame.select(sound).to_series()
    if not mask.all():
        notes.extend(noted(NoteKind.DATA_LOSS, f"rows of {table} end before they start", int((~mask).sum()), table))
        frame = frame.filter(mask)
    return frame.with_columns(pl.col(name) + origin_ns for name in columns) if origin_ns else frame


def _warned(times: int) -> str:
    return f"Nsight Systems warned {times:,} times" if times > 1 else "Nsight Systems warned"


def _reported_losses(export: Export) -> list[ImportNote]:
    """Warnings of nsys that events are missing, and its errors; each distinct message once."""
    frame = export.read(nsys_tables.DIAGNOSTICS).filter(pl.col("severity").is_in([_WARNING, _ERROR]))
    messages: dict[str, tuple[str, int]] = {}
    for severity, told in frame.iter_rows():
        text = " ".join((told or "").split())
        if text and (severity == _ERROR or profiler_texts.LOST_EVENTS.search(text)):
            key = re.sub(NUMBER, "#", text)
            first, count = messages.get(key, (text, 0))
            messages[key] = (first, count + 1)
    return [
        ImportNote(NoteKind.DATA_LOSS, f"{_warned(count)}: {text[:_LONGEST_MESSAGE].rstrip('.')}", count, whole=True)
        for text, count in messages.values()
    ]


_THEIRS: Final = {
    "start_ns": "start", "end_ns": "end", "correlation": "correlationId", "context": "contextId", "stream": "streamId",
    "device": "deviceId", "graph_id": "graphId", "graph_node_id": "graphNodeId", "registers": "registersPerThread",
    "event_id": "eventId", "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX",
    "block_y": "blockY", "block_z": "blockZ",
}  # fmt: skip
"""How exports call the columns of the canonical tables, where they call them otherwise."""


class ExportReading(Record):
    """One export being read. `notes` grows; everything else is fixed."""

    export: Export
    capture: CaptureInfo
    strings: Strings
    ranks: Ranks
    notes: list[ImportNote] = field(default_factory=list)

    def has(self, *tables: ExportTable) -> bool:
        """Whether the export holds one of the tables."""
        return any(source.name in self.export.tables for source in tables)

    def rows(self, source: ExportTable) -> pl.DataFrame:
        """The table's sound rows, on the trace's clock."""
        return self.timed(self.export.read(source), source)

    def timed(self, frame: pl.DataFrame, source: ExportTable) -> pl.DataFrame:
        """The rows whose times make sense, on the trace's clock."""
        return with_sound_times(frame, self.capture.origin_ns, self.notes, source.name)

    def note(self, kind: NoteKind, message: str, count: int, table: Table | str) -> None:
        """Say something of so many rows, if there are any."""
        self.notes.extend(noted(kind, message, count, table))

    def whose(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        """Rank, process and thread of each row, by its serialized id, which is taken out of `frame`; rank and process
        where it has none."""
        if "globalTid" not in frame.columns:
            return {"rank": self.ranks.of(frame["process"]), "process": frame["process"]}
        ids = frame.drop_in_place("globalTid")
        process = process_of(ids)
        return {"rank": self.ranks.of(process), "process": process, "thread": thread_of(ids)}

    def part(self, table: Table, frame: pl.DataFrame, **columns: Any) -> pl.DataFrame:
        """Rows of an export as rows of the canonical table, in their order: whose each is, what the export has under
        the table's names or its own, and `columns`. The columns are taken out of `frame`, so that a large one is not
        held twice.
        """
        if not columns.keys() & {"rank", "process"} and "rank" not in frame.columns:
            columns |= self.whose(frame)
        for ours in table.columns:
            for name in (ours, _THEIRS.get(ours, ours)):
                if ours not in columns and name in frame.columns:
                    columns[ours] = frame.drop_in_place(name)
        return part_of(table, columns)

    def table(self, table: Table, frame: pl.DataFrame, **columns: Any) -> pl.DataFrame:
        """The canonical table of one part."""
        return combined(table, [self.part(table, frame, **columns)])


def part_of(table: Table, columns: Mapping[str, Any]) -> pl.DataFrame:
    """A checked frame of the table, in the order given: `combined` puts such parts in the table's order."""
    return replace(table, sorted_by=()).build(columns)


def combined(table: Table, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The parts as one table in its declared order; rows that tie keep the order of the parts.

    Takes the columns out of the parts, one after the other: a large table is held once, and one column of it twice.
    """
    if not parts:
        return table.empty()
    keys = {name: _joined(parts, name) for name in table.sorted_by}
    order = _order(keys)
    columns = []
    for name in table.columns:
        column = lean(keys.pop(name) if name in keys else _joined(parts, name))
        columns.append(column if order is None or _says_one_thing(column) else column[order])
    return table.check(pl.DataFrame(columns))


def _joined(parts: Sequence[pl.DataFrame], name: str) -> pl.Series:
    return pl.concat([part.drop_in_place(name) for part in parts], rechunk=True)


def _says_one_thing(column: pl.Series) -> bool:
    return column.null_count() == len(column) or (column.dtype.is_integer() and has_one_value(column))


def _order(keys: Mapping[str, pl.Series]) -> pl.Series | None:
    """The rows in ascending order of the keys, of which the last are times; None where they stand so. Profilers write
    each thread's and each stream's events nearly in order, so what has the same other keys is sorted on its own."""
    times = [key.to_numpy() for name, key in keys.items() if name.endswith("_ns")]
    others = [key for name, key in keys.items() if not name.endswith("_ns") and not _says_one_thing(key)]
    groups = [key.cast(pl.Int64).to_numpy() for key in others[-_GROUP_KEYS:]]
    order = sorted_order(groups, times[0], times[-1])
    for key in reversed(others[:-_GROUP_KEYS]):
        held = key.to_numpy() if order is None else key.to_numpy()[order]
        by_key = np.argsort(held, kind="stable").astype(np.uint32)
        order = by_key if order is None else order[by_key]
    return None if order is None else pl.Series(order)
