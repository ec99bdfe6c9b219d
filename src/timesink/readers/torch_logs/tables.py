"""A log as a trace: its compile events on one clock, its losses as notes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.tables import COMPILE_EVENTS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.ranks import rank_in_name
from timesink.readers.torch_logs.events import Events
from timesink.readers.torch_logs.lines import Losses, records
from timesink.readers.torch_logs.records import Structured, Text

_ZONE_NS = 900 * 1_000_000_000  # time zones differ by quarters of an hour


def read_log(path: Path, form: str) -> Trace:
    """Every record of the log. `UnreadableTrace` where there is none, or the file cannot be read."""
    losses, events, ranks, count = Losses(), Events(), set[int](), 0
    structured, text = Structured(events), Text(events)
    for record in records(_lines(path), losses):
        count += 1
        if record.rank is not None:
            ranks.add(record.rank)
        if record.envelope is not None:
            structured.take(record)
        else:
            text.take(record)
    if not count:
        raise UnreadableTrace(path, "no record of PyTorch's loggers can be read", remedy="give the log as written")
    structured.finish()
    text.finish()
    events.finish()
    rank = min(ranks) if ranks else rank_in_name(path) or 0
    tables = {COMPILE_EVENTS: _table(events, rank), SOURCES: _source(path, form, rank)}
    return Trace(str(path), tables, _notes(losses, events, ranks))


def _lines(path: Path) -> Iterator[str]:
    """Lines as the digests count them: only a newline ends one."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
            for line in stream:
                yield line.rstrip("\n")
    except OSError as error:
        raise UnreadableTrace(path, error.strerror or str(error), remedy="check the path") from error


def _table(events: Events, rank: int) -> pl.DataFrame:
    offset_ns = _offset_ns(events)
    schema = {name: dtype for name, dtype in COMPILE_EVENTS.schema.items() if name not in ("rank", "process")}
    rows = [{name: row.get(name) for name in schema} for row in events.rows]
    frame = pl.DataFrame(rows, schema=schema)
    columns = {name: frame[name] for name in schema}
    for name in ("start_ns", "end_ns"):
        columns[name] = frame[name] + offset_ns
    return COMPILE_EVENTS.build({"rank": rank, "process": 0, **columns})


def _offset_ns(events: Events) -> int:
    """From the log's clock to the time since 1970: a year and a time zone; 0 where no record tells."""
    if not events.offsets_ns:
        return 0
    return round(median(events.offsets_ns) / _ZONE_NS) * _ZONE_NS


def _source(path: Path, form: str, rank: int) -> pl.DataFrame:
    return SOURCES.build({"path": [str(path)], "format": form, "rank": rank, "size_bytes": path.stat().st_size})


def _notes(losses: Losses, events: Events, ranks: set[int]) -> tuple[ImportNote, ...]:
    name = COMPILE_EVENTS.name
    loss, assumed, skipped = NoteKind.DATA_LOSS, NoteKind.ASSUMED, NoteKind.SKIPPED
    said = [
        (loss, "records whose JSON is broken", losses.records),
        (loss, "payloads that are not what was written (their MD5 differs)", losses.payloads),
        *((loss, what, count) for what, count in sorted(events.stray.items())),
        (skipped, "lines that are no record of PyTorch's loggers", losses.foreign),
    ]
    notes = [ImportNote(kind, what, count, name) for kind, what, count in said if count]
    if not events.offsets_ns:
        text = "the log states no year and no time zone: its times are right to each other only"
        notes.append(ImportNote(assumed, text, len(events.rows), name))
    if len(ranks) > 1:
        listed = ", ".join(map(str, sorted(ranks)))
        notes.append(ImportNote(assumed, f"one log of ranks {listed}: all counted as the first", len(ranks), name))
    return tuple(notes)
