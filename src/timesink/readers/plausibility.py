"""Records that cannot be true are clipped or left out of what any reader made, and counted.

Values outside what their columns declare, one record written twice, times far from all others, GPU work that begins
before its launch, durations that run over what comes next on a stream: profilers write all of these now and then, and
one such record can outweigh a thousand sound ones. Work that does overlap on a stream (the replay of a graph, unified
memory that migrates under a kernel, a kernel that Hopper starts before the last one's end, queues that AMD's streams
share) is left as it is.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge.calls import GRAPH_LAUNCH
from timesink.knowledge.kernel_traits import MIGRATION
from timesink.knowledge.vendors import NVIDIA, vendor_of_product
from timesink.model.alignment import launching_calls
from timesink.model.arrays import BoolArray, Int64Array, flag_at
from timesink.model.names import matches
from timesink.model.nesting import key_slices
from timesink.model.schema import Column, Table
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, DEVICES, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import ImportNote, NoteKind, Trace, noted
from timesink.records import replace
from timesink.units import NS_PER_MS, NS_PER_S, NS_PER_US, time_text
from timesink.untrusted.budget import ReadLimits, way_out

_LIMITS: Final = ReadLimits()
_FAR_NS: Final = 6 * 3600 * NS_PER_S  # from the middle nine tenths of a table's rows, besides ten times their length
_EARLY_NS: Final = NS_PER_MS  # clocks of GPU and host differ by some us; roctracer's drift by some hundred
_LATE_NS: Final = NS_PER_S
_ASIDE, _MIXED = 0.02, 0.1  # of a device's launches, the earliest and the latest: other damage may be theirs
_TICK_NS: Final = NS_PER_US  # clocks of a GPU tick in steps of up to 1 us
_OVER_NS: Final = 2 * _TICK_NS
_OFTEN, _RARELY = 0.2, 0.02  # of a stream's rows
_OUTLYING: Final = 2.0  # times the median of the same kernel
_DEPENDENT_LAUNCH: Final = 9  # compute capability from which a kernel may start before the one before it ends


def make_plausible(trace: Trace, limits: ReadLimits = _LIMITS) -> Trace:
    """The trace without what cannot be; the same trace where all of it can. `UnreadableTrace` where its GPUs are more
    than a machine has, or than can be gone through."""
    rank, device = (trace.get(DEVICE_OPS)[name].to_numpy() for name in ("rank", "device"))
    is_first = np.ones(rank.size, bool)
    is_first[1:] = (rank[1:] != rank[:-1]) | (device[1:] != device[:-1])
    of_user = device[is_first]
    devices = np.unique(of_user).size
    if of_user.size > limits.processes or devices > limits.devices:
        over = max((devices, limits.devices), (of_user.size, limits.processes), key=lambda pair: pair[0] / pair[1])
        what = f"its GPU work is of {devices} GPUs in {of_user.size} processes: no machine has as many"
        each = "give the file of each machine or rank by itself"
        raise UnreadableTrace(trace.source, what, remedy=f"{each}; {way_out(*over)}")
    trace = within_ranges(trace)
    for table in (DEVICE_OPS, API_CALLS, HOST_OPS):
        trace = _without_twins(trace, table)
    for table in (DEVICE_OPS, API_CALLS, HOST_OPS, RANGES, FRAMES):
        trace = _without_far_rows(trace, table)
    if not trace.get(DEVICE_OPS).height:
        return trace
    work = _Work(trace)
    work.align_clocks()
    work.leave_out_displaced_rows()
    work.leave_out_strangers()
    work.clip_overlong_rows()
    work.note_what_is_missing()
    return work.mended()


def within_ranges(trace: Trace) -> Trace:
    """The trace without values beyond what its columns declare, and a note for each column that held some.

    A value that may be missing becomes null; a row that cannot be without it is left out.
    """
    tables, notes = dict(trace.tables), []
    for table, frame in trace.tables.items():
        for name, column in table.columns.items():
            if column.within is not None and frame.height and not _all_within(frame[name], column.within):
                tables[table], note = _without(tables[table], table, name, column)
                notes.append(note)
    return replace(trace, tables=tables, notes=(*trace.notes, *notes)) if notes else trace


def _all_within(values: pl.Series, within: tuple[float, float]) -> bool:
    least, most = values.min(), values.max()
    return least is None or bool(within[0] <= least and most <= within[1])  # type: ignore[operator]


def _without(frame: pl.DataFrame, table: Table, name: str, column: Column) -> tuple[pl.DataFrame, ImportNote]:
    assert column.within is not None
    least, most = column.within
    fine = pl.col(name).is_between(least, most) | pl.col(name).is_null()
    if column.dtype == pl.Float64:
        fine |= pl.col(name).is_nan()  # a pass that failed, and says so
    count = frame.height - frame.select(fine.sum()).item()
    if column.nullable:
        kept, done, of = frame.with_columns(pl.when(fine).then(pl.col(name)).alias(name)), "not used", 0
    else:
        kept, done, of = frame.filter(fine), "rows left out", frame.height
    unit = f" {column.unit}" if column.unit else ""
    message = f"{count} values of {table.name}.{name} outside {least:,} to {most:,}{unit}: {done}"
    return kept, ImportNote(NoteKind.DATA_LOSS, message, count, table.name, of, whole=True)


def _without_twins(trace: Trace, table: Table) -> Trace:
    """One of several rows that are equal in every column: the same record written twice."""
    frame = trace.get(table)
    if frame.height < 2:
        return trace
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    same_place = (start[1:] == start[:-1]) & (end[1:] == end[:-1])  # as equal rows have, one after the other
    if not same_place.any():
        return trace
    rows = np.flatnonzero(np.append(same_place, False) | np.append(False, same_place))
    identity = "correlation" if "correlation" in frame.columns else "external_id"
    suspects = frame[rows].with_columns(row=pl.Series(rows, dtype=pl.UInt32)).drop_nulls(identity)
    kept = suspects.unique(subset=frame.columns, keep="first", maintain_order=True) if suspects.height else suspects
    if kept.height == suspects.height:
        return trace
    keep = np.ones(frame.height, bool)
    keep[suspects["row"].filter(~suspects["row"].is_in(kept["row"].implode())).to_numpy()] = False
    count = suspects.height - kept.height
    note = ImportNote(NoteKind.SKIPPED, "rows stand twice in the file; one of each is kept", count, table.name)
    return _with_rows(trace, table, frame.filter(pl.Series(keep)), note)


def _without_far_rows(trace: Trace, table: Table) -> Trace:
    """The rows that are not hours away from nearly all others: a time of 0 is such a row's."""
    frame = trace.get(table)
    if not frame.height:
        return trace
    start = frame["start_ns"].to_numpy()
    if int(start.max()) - int(start.min()) <= _FAR_NS:
        return trace
    first, last = (int(time_ns) for time_ns in np.quantile(start, (0.05, 0.95), method="nearest"))
    room = _FAR_NS + 10 * (last - first)
    near = (start >= first - room) & (start <= last + room)
    if near.all():
        return trace
    away = max(int(first - start[~near].min()), int(start[~near].max() - last))
    message = f"rows of {table.name} lie {time_text(away)} from the others: left out"
    note = ImportNote(NoteKind.DATA_LOSS, message, int((~near).sum()), table.name, frame.height)
    return _with_rows(trace, table, frame.filter(pl.Series(near)), note)


def _with_rows(trace: Trace, table: Table, frame: pl.DataFrame, *notes: ImportNote) -> Trace:
    tables = {**trace.tables, table: frame}
    return replace(trace, tables=tables, notes=(*notes, *trace.notes))


class _Work:
    """The GPU work of a trace while it is looked at: the times of each row and whether it is kept, as they should be;
    the call that launched it, -1 for none; what there is to say."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.ops = trace, trace[DEVICE_OPS]
        self.start, self.end = self.ops["start_ns"].to_numpy(), self.ops["end_ns"].to_numpy()
        self.kept = np.ones(self.ops.height, bool)
        self.call = launching_calls(self.ops, trace.get(API_CALLS)).astype(np.int64)
        self.notes: list[ImportNote] = []

    def say(self, kind: NoteKind, message: str, count: int, of: int = 0) -> None:
        """Note something of so many rows, if there are any."""
        self.notes += noted(kind, message, count, DEVICE_OPS, of)

    def align_clocks(self) -> None:
        """Move each device's times that nearly all of its launches contradict, until hardly any row precedes its own.

        A launch takes some us to start on an idle device, so the earliest rows tell how far the clock is off.
        """
        calls = self.trace.get(API_CALLS)
        if not calls.height:
            return
        launched, longest_ns = calls["start_ns"].to_numpy(), self._longest_queue_ns()
        for (_, device), first, last in key_slices(self.ops, ("rank", "device")):
            call = self.call[first:last]
            lead = np.sort((self.start[first:last] - launched[call])[call >= 0])
            if not lead.size:
                continue
            least = int(lead[int(_ASIDE * lead.size)])
            most = int(lead[-1 - int(_MIXED * lead.size)])
            in_queue = lead[(lead >= -_EARLY_NS) & (lead <= longest_ns)].size
            if most >= -_EARLY_NS and (in_queue or least <= longest_ns):
                continue
            self.start, self.end = self.start.copy(), self.end.copy()
            self.start[first:last] -= least
            self.end[first:last] -= least
            off = f"{time_text(abs(least))} {'behind' if least < 0 else 'ahead of'}"
            moved = f"the clock of GPU {device} is {off} the CPU's: its times are moved to their launches"
            self.notes += noted(NoteKind.ASSUMED, moved, last - first, DEVICE_OPS, whole=True)

    def leave_out_displaced_rows(self) -> None:
        """Drop the rows that begin before their launch by more than clocks differ, or after it and after all other work
        by more than any queue is long."""
        if not (self.call >= 0).any():
            return
        launched = self.trace[API_CALLS]["start_ns"].to_numpy()
        lead = np.where(self.call >= 0, self.start - launched[self.call], 0)
        self._leave_out(lead < -_EARLY_NS, -int(lead.min()), "before")
        if lead.max() > _LATE_NS and (late := (lead > (longest_ns := self._longest_queue_ns())) & self.kept).any():
            order = np.argsort(self.start, kind="stable")
            ended = np.maximum.accumulate(self.end[order])
            is_alone = np.append(False, self.start[order][1:] > ended[:-1] + longest_ns)
            self._leave_out(late & (np.cumsum(is_alone)[np.argsort(order)] > 0), int(lead.max()), "after")

    def _leave_out(self, displaced: BoolArray, furthest_ns: int, side: str) -> None:
        if not displaced.any():
            return
        self.kept &= ~displaced
        message = f"rows of GPU work begin up to {time_text(furthest_ns)} {side} their launch: left out"
        self.say(NoteKind.DATA_LOSS, message, int(displaced.sum()), displaced.size)

    def leave_out_strangers(self) -> None:
        """Drop kernels that no call launched, though most have a call, and that outlast half of what calls launched: no
        step has them, and the device would seem busy throughout."""
        own = (self.call >= 0) & self.kept
        if int(own.sum()) < _TELLING or 2 * int(own.sum()) < self.kept.sum():
            return
        extent_ns = int(self.end[own].max()) - int(self.start[own].min())
        lone = self.kept & ~own & (self.ops["kind"] == "kernel").to_numpy() & (2 * (self.end - self.start) > extent_ns)
        self.kept &= ~lone
        message = "kernels that no call launched are longer than half of all others together: left out"
        self.say(NoteKind.DATA_LOSS, message, int(lone.sum()), self.kept.size)

    def _longest_queue_ns(self) -> int:
        """How long work may wait behind other work: the times of the calls that were recorded tell about how long."""
        calls = self.trace[API_CALLS]
        return max(_LATE_NS, 2 * int(calls["end_ns"].to_numpy().max() - calls["start_ns"].to_numpy().min()))

    def clip_overlong_rows(self) -> None:
        """End each row that runs over the next ones of its stream where the next one starts.

        It counts where the row is longer than others of its name, or such rows are rare; many that overlap and are as
        long as ever are not the rows' fault: their stream is several.
        """
        in_order = self.kept & self._in_order()
        if not self._running_over(*self._by_stream(in_order))[0].any():
            return
        names = self.ops["name"]
        replayed = flag_at(matches(self.trace.get(API_CALLS)["name"], GRAPH_LAUNCH).to_numpy(), self.call)
        order, stream = self._by_stream(in_order & ~replayed & ~matches(names, MIGRATION).to_numpy())
        over, until, sure = self._running_over(order, stream)
        rows = pl.DataFrame(
            [names[order], pl.Series("length", (self.end - self.start)[order]), pl.Series("over", over)]
        )
        usual = rows.select(pl.col("length").filter(~pl.col("over")).median().over("name").fill_null(np.inf))
        outlying = over & (rows["length"].to_numpy() > _OUTLYING * usual.to_series().to_numpy())
        rest = over & ~outlying
        share = (np.bincount(stream, rest) / np.maximum(np.bincount(stream), 1))[stream]
        clip = outlying | (rest & ((share <= _RARELY) | (sure & (share <= _OFTEN))))
        self.end = self.end.copy()
        self.end[order[clip]] = until[clip]
        message = "records of GPU work overlap the next one on their stream: clipped there"
        self.say(NoteKind.DATA_LOSS, message, int(clip.sum()))
        mixed = rest & ~clip & self._is_of(NVIDIA.runtime)[order]
        self.say(NoteKind.DATA_LOSS, "rows of GPU work run at one time on one stream, as none can", int(mixed.sum()))

    def _in_order(self) -> BoolArray:
        """Rows that run one after the other on their stream, but for replays that only their call shows."""
        in_graph = (self.ops["graph_id"].fill_null(0) > 0) | (self.ops["kind"] == "graph")
        return (~in_graph & (self.ops["stream"] != -1)).to_numpy()

    def _by_stream(self, chosen: BoolArray) -> tuple[Int64Array, Int64Array]:
        """The chosen rows stream by stream, each in the order of starts, and the number of each one's stream."""
        rows, keys = np.flatnonzero(chosen), self.ops.select(pl.col(_STREAM).fill_null(-1)).get_columns()
        for key in keys if rows.size else ():
            held = key.to_numpy()[rows]
            least, most = int(held.min()), int(held.max())
            if least < most:  # rows are in order of start, and stay so: sorts are stable, of small numbers by radix
                rows = rows[np.argsort((held - least).astype(np.min_scalar_type(most - least)), kind="stable")]
        is_next = np.zeros(rows.size, bool)
        for key in keys:
            held = key.to_numpy()[rows]
            is_next[1:] |= held[1:] != held[:-1]
        return rows, np.cumsum(is_next)

    def _running_over(self, order: Int64Array, stream: Int64Array) -> tuple[BoolArray, Int64Array, BoolArray]:
        """Of rows stream by stream: whether each outlasts a later one; where the next starts; whether its device
        surely runs a stream in order. There, a row that is not over when the next starts counts too."""
        start, end = self.start[order], self.end[order]
        first, last = np.flatnonzero(np.diff(stream, prepend=-1)), np.flatnonzero(np.diff(stream, append=-1))
        until, least = np.roll(start, -1), np.roll(end, -1)
        until[last], least[last] = end[last], _NEVER
        sure = self._is_of(NVIDIA.runtime, _DEPENDENT_LAUNCH)[order]
        if (end > until).any():
            for low, high in zip(first.tolist(), last.tolist(), strict=True):
                least[low : high + 1] = np.minimum.accumulate(least[low : high + 1][::-1])[::-1]
        at_once = (start == until) & (end > start)
        return (end > least) | at_once | (sure & (end > until + _OVER_NS)), until, sure

    def _is_of(self, runtime: str, below: int | None = None) -> BoolArray:
        """Whether each row's device is known to be of that maker, and of a compute capability below."""
        found = np.zeros(self.ops.height, bool)
        described = self.trace.get(DEVICES).select("rank", "device", "name", "compute_major")
        known: dict[tuple[int, ...], tuple[str | None, int | None]] = {
            (rank, device): (name, major) for rank, device, name, major in described.iter_rows()
        }
        for key, first, last in key_slices(self.ops, ("rank", "device")):
            name, major = known.get(key, (None, None))
            vendor = vendor_of_product(name) if name else None
            is_below = below is None or (major is not None and major < below)
            found[first:last] = vendor is not None and vendor.runtime == runtime and is_below
        return found

    def note_what_is_missing(self) -> None:
        """Say so where kernels or most copies take no time, no copy says which way it goes, or most work has a stream
        of its own."""
        timeless = self.end == self.start
        for kind, noun in (("kernel", "kernels"), ("copy", "copies")):
            chosen = (self.ops["kind"] == kind).to_numpy() & self.kept
            count = int((timeless & chosen).sum())
            if 2 * count > int(chosen.sum()):
                of = int(chosen.sum()) if kind == "copy" else 0
                self.say(NoteKind.DATA_LOSS, f"{noun} take no time: when they ended was not recorded", count, of)
            elif kind == "kernel" and count:
                self.say(
                    NoteKind.DATA_LOSS, "kernels take no time, though others do", self._too_short(timeless, chosen)
                )
        copies = self.ops.filter(pl.col("kind") == "copy")["copy_kind"]
        unknown = int((copies.fill_null("unknown") == "unknown").sum())
        if 2 * unknown > len(copies):
            self.say(NoteKind.DATA_LOSS, "copies do not say which way they go", unknown, len(copies))

        streams, rows = self.ops["stream"], self.ops.height
        numbers = int(streams.max() or 0) - int(streams.min() or 0)  # type: ignore[arg-type]  # of whole numbers
        if rows >= _MANY_ROWS and 2 * numbers > rows and 2 * streams.n_unique() > rows:
            what = "rows of GPU work have a stream each: which of them run in order was not recorded"
            self.say(NoteKind.DATA_LOSS, what, rows)

    def _too_short(self, timeless: BoolArray, chosen: BoolArray) -> int:
        """How many of the chosen rows take no time, and would not in ticks of the clock: others of their names take
        longer, or there are none and times are finer than ticks."""
        length = self.end - self.start
        own = pl.DataFrame([self.ops["name"], pl.Series("ns", length)]).filter(pl.Series(chosen))
        usual = own.select(pl.col("ns").filter(pl.col("ns") > 0).median().over("name"))["ns"]
        alone = np.inf if (length[chosen] % _TICK_NS).any() else 0
        return int((usual.fill_null(alone).to_numpy()[timeless[chosen]] > _OVER_NS).sum())

    def mended(self) -> Trace:
        """The trace with the rows as they should be."""
        if not self.notes:
            return self.trace
        before = self.ops.select("rank", "device", "stream", "start_ns", "end_ns")
        times = [pl.Series("start_ns", self.start), pl.Series("end_ns", self.end)]
        ops = self.ops.with_columns(times).filter(pl.Series(self.kept)).sort(DEVICE_OPS.sorted_by, maintain_order=True)
        changed = ~self.kept | (self.end != before["end_ns"].to_numpy()) | (self.start != before["start_ns"].to_numpy())
        trace = _with_rows(self.trace, DEVICE_OPS, ops, *self.notes)
        if COLLECTIVES not in trace or not changed.any():
            return trace
        later = [pl.Series("later_start_ns", self.start), pl.Series("later_end_ns", self.end)]
        moved = before.with_columns(*later, kept=pl.Series(self.kept)).filter(pl.Series(changed))
        moved = moved.unique(before.columns, keep="first")
        rows = trace[COLLECTIVES].join(moved, on=before.columns, how="left", maintain_order="left")
        rows = rows.filter(pl.col("kept").fill_null(True)).with_columns(
            start_ns=pl.coalesce("later_start_ns", "start_ns"), end_ns=pl.coalesce("later_end_ns", "end_ns")
        )
        rows = rows.select(list(COLLECTIVES.columns)).sort(COLLECTIVES.sorted_by, maintain_order=True)
        return _with_rows(trace, COLLECTIVES, rows)


_TELLING: Final = 10  # so many launched ones show how long a recording's steps are
_MANY_ROWS: Final = 100  # a program of fewer may well have as many streams
_STREAM: Final = ("stream", "context", "process", "device", "rank")
_NEVER: Final = np.iinfo(np.int64).max
