"""Several traces as one: which rank each file is of, and what is read with them.

A companion (a compile log, a memory snapshot, a kernel report) belongs to a rank and claims none. The memory events of
a snapshot take the place of those the profiler recorded for the same rank, which carry no stacks.

A trace of graph replays may be read with the recording of the capture that made the graphs, or of an eager run of the
same step. What the host did while it recorded stands in the trace as another process, a negative number, that was over
before the trace began: its operators, Python frames and ranges explain kernels that a graph replays (`graph_nodes` says
which), and take no time of any step.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace, UsageError
from timesink.knowledge import profiler_texts
from timesink.knowledge.calls import GRAPH_LAUNCH
from timesink.knowledge.ranges import CAPTURED_SIZE
from timesink.model.alignment import launching_calls, occurrence
from timesink.model.arrays import Int64Array, flag_at
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import (
    ALL,
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    FRAMES,
    GRAPH_NODES,
    HOST_OPS,
    KERNEL_PROFILES,
    LAUNCH_SHAPE,
    MEMORY_EVENTS,
    MEMORY_SEGMENTS,
    RANGES,
    SOURCES,
)
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.formats import readers
from timesink.records import replace

_LISTED = 12
_RankFile = tuple[Trace, Path]


def rank_in_name(path: Path) -> int | None:
    """The rank a file name states (``rank3``, ``worker_3``), if it states one."""
    stated = profiler_texts.RANK_IN_FILE_NAME.search(path.name)
    return int(stated[1]) if stated else None


def is_companion(trace: Trace) -> bool:
    """Whether the reader of the file, or of all files, says that it is a companion of traces."""
    formats = {reader.format for reader in readers() if reader.kind == "companion"}
    return SOURCES in trace and set(trace[SOURCES]["format"]) <= formats


def join_traces(traces: Sequence[Trace], files: Sequence[Path]) -> Trace:
    """One trace of several, each read from the file at its place; `UnreadableTrace` where there is none.

    Where two traces claim a rank, ranks are taken from the file names, or `UsageError` says which do. Companions get
    the ranks they belong to; companions alone claim ranks as traces do, but for kernel reports, whose launches are
    numbered on. Rows keep each table's order, because every order begins with the rank.
    """
    if not traces:
        raise UnreadableTrace("", "no file to read", remedy="name at least one trace")
    pairs = list(zip(traces, files, strict=True))
    companions = [pair for pair in pairs if is_companion(pair[0])]
    timelines = [pair for pair in pairs if not is_companion(pair[0])]
    companions = _numbered_on(companions)
    if not timelines:
        timelines, companions = _alone(companions)
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


def _numbered_on(pairs: Sequence[_RankFile]) -> list[_RankFile]:
    """The same, where kernel reports are of one rank with launches numbered on from those of the report before, and a
    note which are of which file."""
    if _tell_ranks(pairs):
        return list(pairs)
    following: dict[int, int] = {}
    numbered: list[_RankFile] = []
    for trace, file in pairs:
        profiles = trace.get(KERNEL_PROFILES)
        first = following.get(trace.rank_numbers[0], 0) if profiles.height else 0
        numbered.append((_from_number(trace, file, first) if first else trace, file))
        if profiles.height:
            following[trace.rank_numbers[0]] = first + 1 + int(profiles["profile"].to_numpy().max())
    return numbered


def _from_number(trace: Trace, file: Path, first: int) -> Trace:
    moved = {
        table: frame.with_columns(pl.col("profile") + first) if "profile" in frame.columns else frame
        for table, frame in trace.tables.items()
    }
    message = f"launches from {first} on are those of {file.name}"
    return replace(trace, tables=moved, notes=(*trace.notes, ImportNote(NoteKind.ASSUMED, message, 0, SOURCES.name)))


def _tell_ranks(pairs: Sequence[_RankFile]) -> bool:
    """Whether the names of files tell a rank of each."""
    ranks = [rank_in_name(file) for _, file in pairs]
    return None not in ranks and len(set(ranks)) == len(ranks)


def _alone(pairs: list[_RankFile]) -> tuple[list[_RankFile], list[_RankFile]]:
    """Companions without a trace: those that stand for one, and those that belong to it. Of kernel reports the first
    stands for all, unless their names tell ranks."""
    is_of_one = all(KERNEL_PROFILES in trace for trace, _ in pairs) and not _tell_ranks(pairs)
    is_of_one = is_of_one and len({file.resolve() for _, file in pairs}) == len(pairs)
    return (pairs[:1], pairs[1:]) if is_of_one else (pairs, [])


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
    return [ImportNote(NoteKind.ASSUMED, message, len(without), table.name, whole=True)]


def _under_distinct_ranks(pairs: Sequence[_RankFile]) -> tuple[list[Trace], list[ImportNote]]:
    """Each trace under ranks no other trace has; a note where they had to be taken from the file names."""
    named = ranks_by_name([(trace.rank_numbers, file) for trace, file in pairs])
    if named is None:
        return [trace for trace, _ in pairs], []
    clash = ", ".join(str(rank) for rank in sorted({rank for trace, _ in pairs for rank in trace.rank_numbers}))
    message = f"several files claim rank {clash}; ranks taken from the file names"
    note = ImportNote(NoteKind.ASSUMED, message, len(pairs), SOURCES.name, whole=True)
    return [trace.with_ranks_from(first) for (trace, _), first in zip(pairs, named, strict=True)], [note]


def ranks_by_name(files: Sequence[tuple[Sequence[int], Path]], *, ordered: bool = True) -> list[int] | None:
    """The first rank of each file by the files' names; None where no two files hold the same rank.

    A name states a rank, or the node whose ranks the file holds: as many as each other file, counted through, as
    launchers do. `ordered`: the files stand in the order in which they were asked for.

    Raises
    ------
    UsageError
        Files claim one rank, and their names tell no other: they are hardly ranks of one job.
    """
    claims = Counter(rank for ranks, _ in files for rank in ranks)
    clashing = [rank for rank, count in sorted(claims.items()) if count > 1]
    if not clashing:
        return None
    each = max(len(ranks) for ranks, _ in files)
    alike = all(list(ranks) == list(range(each)) for ranks, _ in files)
    for pattern, tells in ((profiler_texts.RANK_IN_FILE_NAME, each == 1), (profiler_texts.NODE_IN_FILE_NAME, alike)):
        named = [each * int(stated[1]) for _, file in files if (stated := pattern.search(file.name))]
        if tells and len(named) == len(set(named)) == len(files):
            return named
    raise _clash(clashing[0], [file for ranks, file in files if clashing[0] in ranks], ordered, each)


def _clash(rank: int, files: Sequence[Path], ordered: bool, each: int) -> UsageError:
    """Which files claim the rank, and the command that takes such files, of which one holds that many ranks."""
    if len({file.resolve() for file in files}) < len(files):
        return UsageError(f"a file is given twice: {files[0]}", remedy="give each file once")
    alike = len({file.name for file in files}) < len(files)
    shown = [str(file) if alike else file.name for file in files]
    listed = ", ".join(shown[:_LISTED]) + (f" and {len(files) - _LISTED} more" if len(files) > _LISTED else "")
    pair = shlex.join(map(str, files)) if len(files) == 2 and ordered else "BEFORE AFTER"
    named = "Ranks of one job are told by names such as rank0.json.gz"
    if each > 1:
        named = "Nodes of one job, each with as many ranks, are told by names such as node0.sqlite"
    message = f"{len(files)} files claim rank {rank}: {listed}"
    return UsageError(message, remedy=f"did you mean `timesink compare {pair}`? {named}")


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


_HOST: Final = (HOST_OPS, FRAMES, RANGES)
_APART_NS: Final = 1_000_000  # between what was recorded and the trace: no interval spans both
_REMEDY: Final = (
    "record an eager run of the same step and shapes with kernels, or the capture by nsys --cuda-graph-trace=node"
)


def is_recording(trace: Trace) -> bool:
    """Whether the trace shows captures and no launch of what they captured."""
    nodes, calls = trace.get(GRAPH_NODES), trace.get(API_CALLS)
    return bool(nodes.height) and not matches(calls["name"], GRAPH_LAUNCH).any()


def with_capture(trace: Trace, capture: Trace) -> Trace:
    """The trace with what `capture` says of the kernels that its graphs replay, rank by rank.

    `UsageError` where the capture names no kernel that was recorded or launched.
    """
    nodes = capture.get(GRAPH_NODES).drop_nulls("name")
    seen = trace.get(GRAPH_NODES)["capture"].max()
    known = seen + 1 if isinstance(seen, int) else 0
    if not nodes.height:
        nodes = _eager_turns(trace, capture)
    if not nodes.height:
        raise UsageError(
            f"{capture.source} does not say which kernels the graphs of {trace.source} hold", remedy=_REMEDY
        )
    nodes = nodes.with_columns(pl.col("capture") + known)
    tables, (begin_ns, _) = dict(trace.tables), trace.extent_ns or (0, 0)
    for rank in sorted(set(trace.rank_numbers) & set(nodes["rank"])):
        own = nodes.filter(pl.col("rank") == rank)
        recorded = _recorded(capture, own, rank, begin_ns)
        for table, rows in recorded.items():
            tables[table] = table.check(_merged(table, tables.get(table), rows))
    return replace(trace, tables=tables)


def _merged(table: Table, frame: pl.DataFrame | None, rows: pl.DataFrame) -> pl.DataFrame:
    both = rows if frame is None else pl.concat([frame, rows])
    return both.sort(table.sorted_by, maintain_order=True)


def _recorded(capture: Trace, nodes: pl.DataFrame, rank: int, before_ns: int) -> Mapping[Table, pl.DataFrame]:
    """What the host did while these nodes were recorded, ended before that moment, as a process of its own."""
    threads = nodes.select("rank", "process", "thread").unique()
    first, last = nodes.select(pl.col("recorded_ns").min(), last=pl.col("recorded_ns").max()).row(0)
    kept: dict[Table, pl.DataFrame] = {}
    for table in _HOST:
        rows = capture.get(table).join(threads, on=["rank", "process", "thread"], how="semi", maintain_order="left")
        rows = rows.filter((pl.col("start_ns") <= last) & (pl.col("end_ns") > first))
        if table is RANGES:  # one around it all is a step of the recording, and none of the trace
            sized = matches(rows["name"], CAPTURED_SIZE)
            rows = rows.filter((pl.col("start_ns") >= first) | (pl.col("end_ns") <= last) | sized)
        kept[table] = _clipped(rows, first, last)
    end_ns = max((int(rows["end_ns"].max() or last) for rows in kept.values()), default=last)  # type: ignore[arg-type]
    shift = before_ns - _APART_NS - end_ns
    apart = (-1 - pl.col("process")).alias("process")
    moved = {
        table: rows.with_columns(apart, pl.col("start_ns", "end_ns") + shift)
        for table, rows in kept.items()
        if rows.height
    }
    if HOST_OPS in moved:  # a number of another recording
        moved[HOST_OPS] = moved[HOST_OPS].with_columns(pl.lit(None, pl.UInt64).alias("external_id"))
    alone = pl.lit(None, pl.Int64).alias("graph_node_id")
    moved[GRAPH_NODES] = nodes.with_columns(apart, alone, pl.col("recorded_ns") + shift)
    return moved


def _clipped(rows: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Rows that begin before and end behind the recording shortened to it, by 1 ns each so that they still nest."""
    early = (pl.col("start_ns") < first).cast(pl.Int64).cum_sum(reverse=True)
    late = (pl.col("end_ns") > last).cast(pl.Int64).cum_sum()
    ordered = rows.sort(["start_ns", "end_ns"], descending=[False, True], maintain_order=True)
    ordered = ordered.with_columns(
        pl.when(pl.col("start_ns") < first).then(first - early).otherwise("start_ns").alias("start_ns")
    )
    ordered = ordered.sort(["end_ns", "start_ns"], descending=[False, True], maintain_order=True)
    return ordered.with_columns(pl.when(pl.col("end_ns") > last).then(last + late).otherwise("end_ns").alias("end_ns"))


def _eager_turns(trace: Trace, eager: Trace) -> pl.DataFrame:
    """`graph_nodes` of the launches of an eager run that are one turn of what a graph of the trace replays."""
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    call = launching_calls(ops, calls)
    replayed = flag_at(matches(calls["name"], GRAPH_LAUNCH).to_numpy(), call)
    kernels = pl.Series(replayed) & (ops["kind"] == "kernel")
    replays = ops.with_columns(pl.Series("call", call)).filter(kernels)
    launched = _launched(eager)
    parts, turn = [GRAPH_NODES.empty()], pl.lit(0, pl.Int32)
    for (rank,), own in launched.partition_by("rank", as_dict=True).items():
        mine = replays.filter(pl.col("rank") == rank)
        stretches = sorted(_stretches(mine, own))
        parts += [
            own[at : at + length].with_columns(capture=turn + place) for place, (at, length) in enumerate(stretches)
        ]
    return pl.concat(parts).sort(GRAPH_NODES.sorted_by)


def _stretches(replays: pl.DataFrame, launched: pl.DataFrame) -> set[tuple[int, int]]:
    """Where in the launches of a rank a turn of each of its graphs stands, and how long it is."""
    columns = [pl.col("name").cast(pl.String), *LAUNCH_SHAPE]
    both = pl.concat([replays.select(columns), launched.select(columns)])
    kinds = both.unique(maintain_order=True).with_row_index("kind")
    kind = both.join(kinds, on=["name", *LAUNCH_SHAPE], how="left", nulls_equal=True, maintain_order="left")["kind"]
    number = kind.cast(pl.Int64).to_numpy()
    stream = number[replays.height :]
    turns: dict[bytes, Int64Array] = {}
    order = np.lexsort((replays["start_ns"].to_numpy(), replays["call"].to_numpy()))
    edges = np.flatnonzero(np.diff(replays["call"].to_numpy()[order])) + 1
    for rows in np.split(order, edges):
        turns[number[rows].tobytes()] = number[rows]
    places = ((occurrence(turn, stream), turn.size) for turn in turns.values())
    return {(at, length) for at, length in places if at is not None}


def _launched(eager: Trace) -> pl.DataFrame:
    """Every launch whose kernel ran and was no graph's, by rank and time, as `graph_nodes`."""
    ops, calls = eager.get(DEVICE_OPS), eager.get(API_CALLS)
    call = launching_calls(ops, calls)
    graphs = np.append(matches(calls["name"], GRAPH_LAUNCH).to_numpy(), True)[call]
    wanted = pl.Series(~graphs) & (ops["kind"] == "kernel")
    rows = calls.select("thread", pl.col("start_ns").alias("recorded_ns"))[call[wanted.to_numpy()]]
    kernels = ops.filter(wanted).select("rank", "process", "name", *LAUNCH_SHAPE).hstack(rows.get_columns())
    kernels = kernels.with_columns(graph_node_id=pl.lit(None, pl.Int64), capture=pl.lit(None, pl.Int32))
    return kernels.select(list(GRAPH_NODES.columns)).sort("rank", "recorded_ns", maintain_order=True)
