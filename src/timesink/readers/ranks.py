"""Several traces as one: which rank each file is of, and the companions that are read with them.

A companion (a compile log, a memory snapshot, a kernel report) belongs to a rank and claims none. The memory events of
a snapshot take the place of those the profiler recorded for the same rank, which carry no stacks.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace, UsageError
from timesink.knowledge import profiler_texts
from timesink.model.schema import Table
from timesink.model.tables import ALL, DEVICES, MEMORY_EVENTS, MEMORY_SEGMENTS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.formats import readers
from timesink.readers.recorded import is_recording, with_capture

_RANK_IN_NAME = re.compile(profiler_texts.RANK_IN_FILE_NAME)
_LISTED = 12
_RankFile = tuple[Trace, Path]


def rank_in_name(path: Path) -> int | None:
    """The rank a file name states (``rank3``, ``worker_3``), if it states one."""
    stated = _RANK_IN_NAME.search(path.name)
    return int(stated[1]) if stated else None


def is_companion(trace: Trace) -> bool:
    """Whether the reader of the file, or of all files, says that it is a companion of traces."""
    formats = {reader.format for reader in readers() if reader.kind == "companion"}
    return SOURCES in trace and set(trace[SOURCES]["format"]) <= formats


def join_traces(traces: Sequence[Trace], files: Sequence[Path]) -> Trace:
    """One trace of several, each read from the file at its place; `UnreadableTrace` where there is none.

    Where two traces claim a rank, ranks are taken from the file names, or `UsageError` says which do. Companions get
    the ranks they belong to; companions alone claim ranks as traces do. Rows keep each table's order, because every
    order begins with the rank.
    """
    if not traces:
        raise UnreadableTrace("", "no file to read", remedy="name at least one trace")
    pairs = list(zip(traces, files, strict=True))
    companions = [pair for pair in pairs if is_companion(pair[0])]
    timelines = [pair for pair in pairs if not is_companion(pair[0])]
    if not timelines:
        companions, timelines = [], companions
    captures, timelines = _captures_apart(timelines)
    parts, notes = _under_distinct_ranks(timelines)
    parts = [_with_own_captures(part, captures) for part in parts]
    added = _under_their_ranks(companions, parts)
    described = {rank for companion in added if MEMORY_SEGMENTS in companion for rank in companion.rank_numbers}
    parts = [_without_memory_events(part, described) for part in parts] if described else parts
    parts.sort(key=lambda part: part.rank_numbers[:1])
    every = [*parts, *added]
    tables = {table: _joined_rows(table, every) for table in ALL if any(table in trace for trace in every)}
    notes += [note for table in ALL for note in _missing_on_some(table, parts)]
    own = [note for trace in every for note in trace.notes]
    source = ", ".join([*(str(file) for _, file in timelines), *(trace.source for trace in added)])
    return Trace(source, tables, (*own, *notes))


def _captures_apart(pairs: Sequence[_RankFile]) -> tuple[list[Trace], list[_RankFile]]:
    """The recordings of graph captures, of ranks that other files record too, and all the others."""
    others = {rank for trace, _ in pairs if not is_recording(trace) for rank in trace.rank_numbers}
    of_others = [is_recording(trace) and set(trace.rank_numbers) <= others for trace, _ in pairs]
    captures = [trace for (trace, _), apart in zip(pairs, of_others, strict=True) if apart]
    return captures, [pair for pair, apart in zip(pairs, of_others, strict=True) if not apart]


def _with_own_captures(part: Trace, captures: Sequence[Trace]) -> Trace:
    for capture in captures:
        if set(capture.rank_numbers) & set(part.rank_numbers):
            part = with_capture(part, capture)
    return part


def _joined_rows(table: Table, traces: Sequence[Trace]) -> pl.DataFrame:
    rows = pl.concat([trace[table] for trace in traces if table in trace], how="vertical", rechunk=False)
    return table.check(rows.sort(table.sorted_by, maintain_order=True) if table.sorted_by else rows)


def _missing_on_some(table: Table, parts: Sequence[Trace]) -> list[ImportNote]:
    """A note where some ranks recorded the table and others did not."""
    if not 0 < sum(table in part for part in parts) < len(parts):
        return []
    without = [str(rank) for part in parts if table not in part for rank in part.rank_numbers]
    message = f"no {table} recorded on rank {', '.join(without)}, though on others"
    return [ImportNote(NoteKind.ASSUMED, message, len(without), table.name)]


def _under_distinct_ranks(pairs: Sequence[_RankFile]) -> tuple[list[Trace], list[ImportNote]]:
    """Each trace under ranks no other trace has; a note where they had to be taken from the file names."""
    named = ranks_by_name([(trace.rank_numbers, file) for trace, file in pairs])
    if named is None:
        return [trace for trace, _ in pairs], []
    clash = ", ".join(str(rank) for rank in sorted({rank for trace, _ in pairs for rank in trace.rank_numbers}))
    message = f"several files claim rank {clash}; ranks taken from the file names"
    note = ImportNote(NoteKind.ASSUMED, message, len(pairs), SOURCES.name)
    return [trace.with_rank(rank) for (trace, _), rank in zip(pairs, named, strict=True)], [note]


def ranks_by_name(files: Sequence[tuple[Sequence[int], Path]], *, ordered: bool = True) -> list[int] | None:
    """The ranks in the names of files that hold the ranks given; None where no two files hold the same rank.

    `ordered`: the files stand in the order in which they were asked for.

    Raises
    ------
    UsageError
        Files claim one rank, and their names tell no other: they are hardly ranks of one job.
    """
    claims = Counter(rank for ranks, _ in files for rank in ranks)
    clashing = [rank for rank, count in sorted(claims.items()) if count > 1]
    if not clashing:
        return None
    named = [rank for _, file in files if (rank := rank_in_name(file)) is not None]
    if len(named) == len(set(named)) == len(files) and all(len(ranks) <= 1 for ranks, _ in files):
        return named
    raise _clash(clashing[0], [file for ranks, file in files if clashing[0] in ranks], ordered)


def _clash(rank: int, files: Sequence[Path], ordered: bool) -> UsageError:
    """Which files claim the rank, and the command that takes such files."""
    if len({file.resolve() for file in files}) < len(files):
        return UsageError(f"a file is given twice: {files[0]}", remedy="give each file once")
    alike = len({file.name for file in files}) < len(files)
    shown = [str(file) if alike else file.name for file in files]
    listed = ", ".join(shown[:_LISTED]) + (f" and {len(files) - _LISTED} more" if len(files) > _LISTED else "")
    pair = shlex.join(map(str, files)) if len(files) == 2 and ordered else "BEFORE AFTER"
    return UsageError(
        f"{len(files)} files claim rank {rank}: {listed}",
        remedy=f"did you mean `timesink compare {pair}`? Ranks of one job are told by names such as rank0.json.gz",
    )


def _under_their_ranks(companions: Sequence[_RankFile], parts: Sequence[Trace]) -> list[Trace]:
    """Companions under the ranks they belong to, snapshots last.

    A snapshot says no rank in its file: its name states one, else it is the snapshot of the rank at its position where
    there are as many snapshots as ranks, else its position is its rank.
    """
    ranks = sorted({rank for part in parts for rank in part.rank_numbers})
    snapshots = [pair for pair in companions if MEMORY_SEGMENTS in pair[0]]
    others = [_without_known_devices(trace, parts) for trace, _ in companions if MEMORY_SEGMENTS not in trace]
    by_position = ranks if len(snapshots) == len(ranks) else range(len(snapshots))
    for (snapshot, file), position in zip(snapshots, by_position, strict=True):
        named = rank_in_name(file)
        others.append(snapshot.with_rank(position if named is None else named))
    return others


def _without_known_devices(companion: Trace, parts: Sequence[Trace]) -> Trace:
    """A kernel report less the devices that the traces describe: profiled alone, a GPU is the same GPU."""
    if DEVICES not in companion or not any(DEVICES in part for part in parts):
        return companion
    keys = ["rank", "device"]
    known = pl.concat([part[DEVICES].select(keys) for part in parts if DEVICES in part])
    unknown = companion[DEVICES].join(known, on=keys, how="anti")
    return replace(companion, tables={**companion.tables, DEVICES: unknown})


def _without_memory_events(trace: Trace, ranks: set[int]) -> Trace:
    """The trace less its own memory events of those ranks."""
    if MEMORY_EVENTS not in trace:
        return trace
    kept = trace[MEMORY_EVENTS].filter(~pl.col("rank").is_in(sorted(ranks)))
    return replace(trace, tables={**trace.tables, MEMORY_EVENTS: kept})
