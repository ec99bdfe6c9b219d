"""Ranks of files, and several one-rank traces as one.

Files beside traces: a compile log, a memory snapshot, a kernel report. They speak of a rank and claim none.

A snapshot's memory events take the place of those the profiler recorded for the same rank, which carry no stacks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.tables import (
    ALL,
    COMPILE_EVENTS,
    DEVICES,
    KERNEL_METRICS,
    KERNEL_PROFILES,
    KERNEL_RULES,
    MEMORY_BLOCKS,
    MEMORY_EVENTS,
    MEMORY_MARKS,
    MEMORY_SEGMENTS,
    SOURCES,
)
from timesink.model.trace import ImportNote, NoteKind, Trace

_OF_REPORT = {SOURCES, DEVICES, KERNEL_PROFILES, KERNEL_METRICS, KERNEL_RULES}
_OF_SNAPSHOT = {SOURCES, MEMORY_EVENTS, MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_MARKS}


def is_companion(trace: Trace) -> bool:
    """Whether the trace is a compile log, a memory snapshot or a kernel report."""
    return set(trace.tables) == {COMPILE_EVENTS, SOURCES} or is_snapshot(trace) or is_kernel_report(trace)


def is_kernel_report(trace: Trace) -> bool:
    """Whether the trace holds what an Nsight Compute report holds, and nothing else."""
    return KERNEL_PROFILES in trace and set(trace.tables) <= _OF_REPORT


def is_snapshot(trace: Trace) -> bool:
    """Whether the trace holds what a memory snapshot holds, and nothing else."""
    return MEMORY_SEGMENTS in trace and set(trace.tables) <= _OF_SNAPSHOT


def placed(trace: Trace, rank: int) -> Trace:
    """A snapshot as part of that rank's trace: its rows under the rank."""
    column = pl.lit(rank, dtype=pl.Int32).alias("rank")
    return replace(trace, tables={table: frame.with_columns(column) for table, frame in trace.tables.items()})


def rank_beside(number: int, named: int | None, count: int, held: Sequence[int]) -> int:
    """The rank a snapshot speaks of: the one its name states, else by position where there are as many as ranks."""
    if named is not None:
        return named
    return held[number] if count == len(held) else number


def without_known_devices(trace: Trace, parts: Sequence[Trace]) -> Trace:
    """A kernel report less the devices that the traces beside it describe: profiled alone, a GPU is the same GPU."""
    if DEVICES not in trace or not any(DEVICES in part for part in parts):
        return trace
    keys = ["rank", "device"]
    known = pl.concat([part[DEVICES].select(keys) for part in parts if DEVICES in part])
    return replace(trace, tables={**trace.tables, DEVICES: trace[DEVICES].join(known, on=keys, how="anti")})


def without_their_memory(trace: Trace, ranks: set[int]) -> Trace:
    """The trace less its own memory events of those ranks."""
    if MEMORY_EVENTS not in trace:
        return trace
    kept = trace[MEMORY_EVENTS].filter(~pl.col("rank").is_in(sorted(ranks)))
    return replace(trace, tables={**trace.tables, MEMORY_EVENTS: kept})


_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def rank_in_name(path: Path) -> int | None:
    """The rank a file name states (``rank3``, ``worker_3``), if it states one."""
    found = _RANK_IN_NAME.search(path.name)
    return int(found[1]) if found else None


def joined(traces: Sequence[Trace], files: Sequence[Path]) -> Trace:
    """One trace of several. Rows keep each table's order, because every order begins with the rank."""
    if not traces:
        raise UnreadableTrace("", "no file to read", remedy="name at least one trace")
    pairs = list(zip(traces, files, strict=True))
    beside = [pair for pair in pairs if is_companion(pair[0])]
    if len(beside) < len(pairs):  # a log or a snapshot beside traces speaks of a rank and claims none
        pairs = [pair for pair in pairs if not is_companion(pair[0])]
        traces, files = [trace for trace, _ in pairs], [file for _, file in pairs]
    else:
        beside = []
    parts, notes = _distinct(traces, files)
    logs = _placed(beside, parts)
    described = {rank for log in logs if is_snapshot(log) for rank in log.ranks}
    parts = [without_their_memory(part, described) for part in parts] if described else parts
    parts.sort(key=lambda part: part.ranks[:1])
    tables = {}
    for table in ALL:
        frames = [part[table] for part in parts if table in part]
        frames += [log[table] for log in logs if table in log]
        if frames:
            whole = pl.concat(frames, how="vertical", rechunk=False)
            tables[table] = table.check(whole.sort(table.sorted_by, maintain_order=True) if table.sorted_by else whole)
        if 0 < sum(table in part for part in parts) < len(parts):
            without = [str(rank) for part in parts if table not in part for rank in part.ranks]
            message = f"no {table} recorded on rank {', '.join(without)}, though on others"
            notes.append(ImportNote(NoteKind.ASSUMED, message, len(without), table.name))
    own = tuple(note for part in [*parts, *logs] for note in part.notes)
    return Trace(", ".join([*(str(file) for file in files), *(log.source for log in logs)]), tables, (*own, *notes))


def _placed(beside: Sequence[tuple[Trace, Path]], parts: Sequence[Trace]) -> list[Trace]:
    """Companions under the ranks they speak of."""
    held = sorted({rank for part in parts for rank in part.ranks})
    snapshots = [pair for pair in beside if is_snapshot(pair[0])]
    logs = [without_known_devices(trace, parts) for trace, _ in beside if not is_snapshot(trace)]
    ranks = [rank_beside(at, rank_in_name(file), len(snapshots), held) for at, (_, file) in enumerate(snapshots)]
    return logs + [placed(trace, rank) for (trace, _), rank in zip(snapshots, ranks, strict=True)]


def _distinct(traces: Sequence[Trace], files: Sequence[Path]) -> tuple[list[Trace], list[ImportNote]]:
    """Each trace under ranks no other trace has."""
    claims = Counter(rank for trace in traces for rank in trace.ranks)
    if all(count == 1 for count in claims.values()):
        return list(traces), []
    named = [rank_in_name(file) for file in files]
    by_name = None not in named and len(set(named)) == len(named)
    chosen = [rank for rank in named if rank is not None] if by_name else list(range(len(files)))
    source = "the file names" if by_name else "the order given"
    clash = ", ".join(str(rank) for rank, count in sorted(claims.items()) if count > 1)
    message = f"several files claim rank {clash}; ranks taken from {source}"
    note = ImportNote(NoteKind.ASSUMED, message, len(files), SOURCES.name)
    return [trace.with_rank(rank) for trace, rank in zip(traces, chosen, strict=True)], [note]
