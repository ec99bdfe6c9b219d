"""From decoded columns to a checked trace, of the whole file or of a window.

JSON has to be read from its beginning, and no event says when the first one was; so for a window the file is gone
through twice. The first pass looks for the first and last moment, and when all GPU work was launched and ran: it keeps
24 bytes a launch and 24 a GPU operation.

Work of accelerators that are no GPU is not read; where a file holds no GPU work, people are told what it holds. Their
profilers write categories of their own (``mtia_ccp_events``), which `decoded` counts, or events without one, on tracks
of a process that is named after the device (``Ascend Hardware``, labelled NPU).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from timesink import _native
from timesink.errors import UnreadableTrace
from timesink.knowledge.profiler_texts import KINETO_COUNTER
from timesink.knowledge.vendors import NO_GPU
from timesink.model import tables as canonical
from timesink.model.intervals import Intervals
from timesink.model.nesting import key_slices
from timesink.model.schema import CLOCK, ColumnValues, Table, nulls
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import ImportNote, NoteKind, Trace, noted
from timesink.model.window import Window, touching
from timesink.readers.kineto import collectives, events
from timesink.readers.kineto import decoded as source
from timesink.readers.kineto.decoded import DecodedTrace, Stretches
from timesink.readers.kineto.joins import join_launches
from timesink.records import Record, State
from timesink.units import NS_PER_US, time_text
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import UnpackedFile, unpacked_whole

_LONGEST = 4096  # bytes of a sample of a counter, more than three times of what one has been seen to take


class KinetoSurvey(Record):
    """What has to be known of the whole file. `processes` counts the rows of each process by table, `devices` are those
    that did any work, `longest_comm_ns` is the longest operator that names a collective.
    """

    base_ns: int
    extent_ns: tuple[int, int] | None
    launches: pl.DataFrame
    device_times: pl.DataFrame
    longest_comm_ns: int
    devices: frozenset[int]
    processes: Mapping[str, list[tuple[int, int]]]

    def stretches(self, window: Window) -> Stretches:
        """What to read for a window, on the file's own clock: at least what `Trace.within` keeps.

        Of GPU work, also what was launched in the host's stretch: a collective that the host calls there is then known
        to run, though outside of the window. Of synchronisations, all up to the end of the last call.
        """
        start_ns, end_ns = window.start_ns, window.end_ns
        inside = self.device_times.filter(pl.col("start_ns").is_between(start_ns, end_ns, closed="left"))
        launched = self.launches.join(inside, on="correlation", how="semi")
        lead_ns = _least(launched["start_ns"], start_ns)
        calls = self.launches.filter(touching(lead_ns, end_ns))
        until_ns = end_ns + self.longest_comm_ns
        launched_there = self.launches.filter(pl.col("start_ns").is_between(lead_ns, until_ns, closed="left"))
        ran = self.device_times.join(launched_there, on="correlation", how="semi")
        late_ns = _most(ran["end_ns"], end_ns)
        return Stretches(
            host=self._own(lead_ns, end_ns),
            device=self._own(_least(ran["start_ns"], start_ns), late_ns + 1),
            syncs=self._own(lead_ns, _most(calls["end_ns"], end_ns)),
        )

    def _own(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        return start_ns - self.base_ns, end_ns - self.base_ns


class OpenedKineto(Record):
    """A file that was looked through once."""

    path: Path
    format: str
    limits: ReadLimits
    seen: KinetoSurvey

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment."""
        return self.seen.extent_ns

    def within(self, window: Window) -> Trace:
        """The trace of the window; the file is decoded again, and events outside of it are dropped on the way."""

        decoded = source.decode(UnpackedFile(self.path, self.limits), self.seen.stretches(window))
        return to_trace(decoded, self.format, self.seen).within(window)


def survey(path: Path, limits: ReadLimits) -> KinetoSurvey:
    """Go through the file once. `UnreadableTrace` where it is no trace."""
    decoder = _native.KinetoDecoder(source.TEXT_BUDGET_BYTES)
    decoder.look_through()
    source.feed(UnpackedFile(path, limits), decoder)
    survey_columns = decoder.survey()
    extent = survey_columns["work"] or survey_columns["ranges"]
    return KinetoSurvey(
        base_ns=decoder.base_ns,
        extent_ns=None if extent is None else (extent[0] + decoder.base_ns, extent[1] + decoder.base_ns),
        launches=_frame(survey_columns["launches"]),
        device_times=_frame(survey_columns["device_times"]),
        longest_comm_ns=survey_columns["longest_comm_ns"],
        devices=frozenset(survey_columns["devices"]),
        processes=survey_columns["processes"],
    )


def _frame(columns: dict[str, _native.ArrowColumn]) -> pl.DataFrame:
    height = max((len(column) for column in columns.values()), default=0)
    return pl.DataFrame(
        {
            name: pl.Series(columns[name]) if name in columns else nulls(pl.Int64, height)
            for name in ("start_ns", "end_ns", "correlation")
        }
    )


def _least(values: pl.Series, other: int) -> int:
    least = values.min()
    return min(least, other) if isinstance(least, int) else other


def _most(values: pl.Series, other: int) -> int:
    most = values.max()
    return max(most, other) if isinstance(most, int) else other


class Draft(State):
    """A trace in the making: what is true of the whole file, the tables so far, the notes so far."""

    decoded: DecodedTrace
    whole: KinetoSurvey | None
    rank: int
    process: int
    tables: dict[Table, pl.DataFrame]
    notes: list[ImportNote]

    def add(self, table: Table, columns: ColumnValues | None) -> None:
        """Build and keep a table; None means the file did not record it."""
        if columns is not None:
            self.tables[table] = table.build({"rank": self.rank, **columns})


def to_trace(decoded: DecodedTrace, reader_format: str, whole: KinetoSurvey | None = None) -> Trace:
    """Every table the file can fill. A table is absent where the profiler did not record its kind of event.

    Where only a window was decoded, `whole` has what must be known of the rest: processes and GPUs.
    """
    draft = Draft(decoded, whole, source.stated_rank(decoded), 0, {}, [])
    draft.add(canonical.API_CALLS, events.plain(decoded, canonical.API_CALLS))
    draft.add(canonical.HOST_OPS, events.plain(decoded, canonical.HOST_OPS))
    draft.add(canonical.RANGES, events.ranges(decoded, recorded=canonical.HOST_OPS in draft.tables))
    draft.add(canonical.FRAMES, events.frames(decoded))
    draft.process = process = _process(draft)
    draft.add(canonical.HOST_STACKS, events.host_stacks(decoded, process))
    calls = draft.tables.get(canonical.API_CALLS)
    draft.add(canonical.THREADS, events.threads(decoded, _host_processes(draft)))
    draft.add(canonical.PROFILER_OVERHEAD, events.plain(decoded, canonical.PROFILER_OVERHEAD))
    draft.add(canonical.MEMORY_EVENTS, events.memory_events(decoded))
    draft.add(canonical.DEVICE_OPS, events.device_ops(decoded, process))
    if calls is not None and canonical.DEVICE_OPS in draft.tables and whole is None:
        calls, draft.tables[canonical.DEVICE_OPS], told = join_launches(
            decoded, calls, draft.tables[canonical.DEVICE_OPS]
        )
        draft.tables[canonical.API_CALLS] = calls
        draft.notes += told
    draft.add(canonical.GRAPH_NODES, events.graph_nodes(decoded, calls))
    draft.add(canonical.DEVICES, events.devices(decoded, _worked(draft)))
    syncs, waits, disowned = events.syncs(decoded, process, calls)
    draft.add(canonical.SYNCS, syncs)
    draft.add(canonical.EVENT_WAITS, waits)
    draft.add(canonical.COLLECTIVES, collectives.collectives(decoded, process, draft.tables))
    if decoded.counts["counters"]:
        draft.add(canonical.GPU_METRICS, _gpu_metrics(decoded))
    draft.add(canonical.SOURCES, source.source_row(decoded, reader_format))
    draft.add(canonical.SETTINGS, source.settings(decoded))
    message = "event waits name a record later than the wait; the record is left out"
    draft.notes += noted(NoteKind.DATA_LOSS, message, disowned, canonical.EVENT_WAITS)
    draft.notes += source.import_notes(decoded, draft.tables)
    if canonical.DEVICE_OPS not in draft.tables:
        draft.notes += other_work(decoded)
    return Trace(str(decoded.path), draft.tables, tuple(draft.notes))


def _worked(draft: Draft) -> Iterable[int]:
    """The GPUs that did any work."""
    if draft.whole is not None:
        return sorted(draft.whole.devices)
    return draft.tables[canonical.DEVICE_OPS]["device"].unique() if canonical.DEVICE_OPS in draft.tables else ()


def _counts(draft: Draft, table: Table) -> dict[int, int]:
    """By process its rows in the table, those outside of a window included."""
    if draft.whole is not None:
        return dict(draft.whole.processes.get(table.name, []))
    slices = key_slices(draft.tables.get(table, table.empty()), ("process",))  # of one rank: in order of processes
    return {process: last - first for (process,), first, last in slices}


def _host_processes(draft: Draft) -> set[int]:
    """Every process that has host events."""
    recorded = (canonical.API_CALLS, canonical.HOST_OPS, canonical.RANGES, canonical.FRAMES)
    return {process for table in recorded for process in _counts(draft, table)}


def _process(draft: Draft) -> int:
    """The process GPU events belong to: device events carry the GPU's number in place of a process id."""
    for table in (canonical.API_CALLS, canonical.HOST_OPS, canonical.RANGES):
        counts = _counts(draft, table)
        if not counts:
            continue
        process = min(counts, key=lambda process: (-counts[process], process))
        if len(counts) > 1:
            message = f"host events of {len(counts)} processes; GPU work is taken to be of process {process}"
            draft.notes += noted(NoteKind.ASSUMED, message, len(counts), canonical.DEVICE_OPS, whole=True)
        return process
    return 0


def _gpu_metrics(decoded: DecodedTrace) -> ColumnValues | None:
    """Hardware counters that Kineto samples beside its events (PM sampling, since August 2026); None where none are.

    Each sample of each counter is an event of phase ``C`` on the track ``GPU N Counters``. The decoder passes over such
    events, of which other traces hold many; where a file has any, it is searched for these once more. What is read no
    longer counts as passed over.
    """
    found, left = list[re.Match[str]](), ""
    for piece in UnpackedFile(decoded.path, decoded.limits):
        text = left + bytes(piece).decode("latin-1")
        matches = list(KINETO_COUNTER.finditer(text))
        found += matches
        left = text[max(matches[-1].end() if matches else 0, len(text) - _LONGEST) :]
    decoded.counts = {**decoded.counts, "counters": max(0, decoded.counts["counters"] - len(found))}
    if not found:
        return None
    return {
        "device": [int(one["device"]) for one in found],
        "name": [one["name"] for one in found],
        "time_ns": [decoded.base_ns + round(float(one["ts"]) * NS_PER_US) for one in found],
        "value": [float(one["value"]) for one in found],
    }


_OLD_GPU: Final = "CUDA functions"  # the process of GPU times in what PyTorch's profiler wrote before 1.8
_OLD_TIMES: Final = "GPU times of operators by PyTorch before 1.8, which recorded no kernels"
_LOOKED_THROUGH: Final = ReadLimits(held_bytes=64 << 20)  # of a larger file the tracks are not named


def other_work(decoded: DecodedTrace) -> tuple[ImportNote, ...]:
    """Tracks of such devices, in words, with their tasks counted; none where the file has none."""
    found = _tracks(decoded) if decoded.counts["no_category"] else []
    if old := dict(found).get(_OLD_GPU, 0):
        return noted(NoteKind.SKIPPED, _OLD_TIMES, old)
    said = f"work of an accelerator that timesink does not read: {', '.join(text for text, _ in found)}"
    return noted(NoteKind.SKIPPED, said, sum(count for _, count in found), DEVICE_OPS, whole=True)


def _tracks(decoded: DecodedTrace) -> list[tuple[str, int]]:
    """``90 tasks of 'Ascend Hardware' (NPU), busy for 10.8 ms``, and how many, of each process named after a device."""
    try:
        document = parsed(unpacked_whole(decoded.path, _LOOKED_THROUGH, "")[0], strict=False)
    except (UnreadableTrace, ValueError):
        return []
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    names, tasks = defaultdict[str, list[str]](list), defaultdict[str, list[tuple[float, float]]](list)
    for event in listed if isinstance(listed, list) else ():
        match event:
            case {"name": "process_name" | "process_labels", "pid": process, "args": {**args}}:
                names[str(process)] += [str(value)[:60] for value in args.values()]
            case {"ph": "X", "pid": process, "ts": start, "dur": length} if not event.get("cat"):
                with suppress(TypeError, ValueError):
                    tasks[str(process)].append((float(start), float(start) + float(length)))
    if _OLD_GPU in tasks:
        return [(_OLD_GPU, len(tasks[_OLD_GPU]))]
    return [
        (f"{len(own):,} tasks of {names[process][0]!r}{_labels(names[process])}, busy for {_busy_text(own)}", len(own))
        for process, own in sorted(tasks.items())
        if any(map(NO_GPU.search, names[process]))
    ]


def _labels(names: list[str]) -> str:
    return f" ({', '.join(names[1:])})" if names[1:] else ""


def _busy_text(times_us: list[tuple[float, float]]) -> str:
    """How long any of the tasks ran."""
    first_us = min(start for start, _ in times_us)
    times_ns = np.clip((np.array(times_us) - first_us) * NS_PER_US, 0, CLOCK[1]).round().astype(np.int64)
    return time_text(Intervals.union_of(times_ns[:, 0], times_ns[:, 1]).total_ns)
