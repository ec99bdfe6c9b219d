"""What a browser draws over time: lanes of the whole capture, where findings show in it, and flame graphs.

The timeline of a capture: ranks, threads, streams and ranges, why devices were idle, steps, and what findings claim.

Lanes hold the whole capture. Where it has more events than a page can hold, the shortest that follow one another
closely share a run (`fitted`), which is drawn as dense as it is busy: never as a gap, and never as one event. Of a
large job one lane has a strip for each rank, or for a few neighbours, as dense as their GPUs are busy.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Finding
from timesink.knowledge.kernel_names import short_names
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.knowledge.op_class import class_of_ops
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.blame import idle_blame, idle_of_rank
from timesink.measures.lines.stacks import op_stacks, stack_book
from timesink.measures.steps import steps
from timesink.measures.timeline import Device, DeviceTimeline, device_timeline, of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.autograd import forward_operators
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.nesting import thread_slices
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES, THREADS
from timesink.model.trace import Trace, remembered
from timesink.records import State, field
from timesink.untrusted import shortened
from timesink.views.figures import Lane, LaneKind, Runs, Timeline
from timesink.views.lines import place_text
from timesink.views.timeline.runs import MOST_RUNS, fitted, laid_out, single

SHOWN_RANKS: Final = 16  # two nodes of eight: lanes of more fill no screen
SHOWN_THREADS: Final = 12  # of a rank
SHOWN_STREAMS: Final = 24  # of a device
_LONGEST_TEXT: Final = 300  # characters: tables show names whole

_HOST: Final[tuple[tuple[LaneKind, str, Table], ...]] = (
    ("range", "ranges", RANGES),
    ("op", "operators", HOST_OPS),
    ("call", "runtime calls", API_CALLS),
)
# What the boxes of a stream are coloured by: families of kernels that are tuned alike.
_COLOURED: Final = {
    KernelFamily.GEMM: "product",
    KernelFamily.GEMV: "product",
    KernelFamily.CONVOLUTION: "product",
    KernelFamily.ATTENTION: "attention",
    KernelFamily.REDUCTION: "reduction",
    KernelFamily.SOFTMAX: "reduction",
    KernelFamily.NORM: "reduction",
    KernelFamily.LOSS: "reduction",
    KernelFamily.POOLING: "reduction",
    KernelFamily.COMMUNICATION: "communication",
    KernelFamily.OTHER: "kernel",
}
_OTHERWISE: Final = "pointwise"  # element-wise, layout, copies by kernels: bound by memory

ThreadKey = tuple[int, int, int]
Places = Mapping[tuple[LaneKind, ThreadKey], int]
"""The number of each lane of a thread that is drawn."""
Claims = Sequence[tuple[int, str, Finding]]
"""The number, name and finding of each one that is marked in the timeline."""


class _Texts(State):
    """Texts and kinds by number, each held once."""

    numbers: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    short: dict[int, str] = field(default_factory=dict)

    def of(self, text: str) -> int:
        return self.numbers.setdefault(shortened(text, _LONGEST_TEXT), len(self.numbers))

    def kind(self, kind: str) -> int:
        return self.kinds.setdefault(kind, len(self.kinds))

    def column(self, texts: pl.Series) -> Int64Array:
        """The number of each text; -1 for null."""

        def numbered(some: pl.Series) -> pl.Series:
            number = {text: self.of(text) for text in sorted(some)}  # the same in every run
            return pl.Series([number[text] for text in some], dtype=pl.Int64)

        numbers = mapped(texts, numbered, pl.Int64)
        return numbers.fill_null(-1).to_numpy()


def timeline_of(trace: Trace, claims: Claims = (), most_runs: int = MOST_RUNS) -> Timeline | None:
    """The timeline with at most so many runs; None where nothing ran on a device."""
    devices = device_timeline(trace).by_device
    if not devices:
        return None
    texts = _Texts()
    ranks = sorted({rank for rank, _ in devices})
    builder = _Lanes(trace, texts, claims)
    shown = _told_ranks(ranks, claims)
    if len(ranks) > len(shown):
        builder.add_all_ranks(ranks)
    for rank in shown:
        builder.idle = idle_of_rank(trace, rank) if len(ranks) > len(shown) else idle_blame(trace).frame
        builder.add_rank(rank, [device for device in devices if device[0] == rank])
    filled = [runs for lane in builder.lanes for runs in lane.rows if runs.start_ns.size]
    start_ns = min(int(runs.start_ns[0]) for runs in filled)
    whole = Timeline(
        origin_ns=(trace.extent_ns or (start_ns, 0))[0],
        start_ns=start_ns,
        end_ns=max(int(runs.end_ns[-1]) for runs in filled),
        texts=tuple(texts.numbers),
        short=texts.short,
        kinds=tuple(texts.kinds),
        lanes=tuple(builder.lanes),
        merged_below_ns=0,
        notes=tuple(builder.notes),
        marks=builder.marks,
    )
    return fitted(whole, most_runs)


def _told_ranks(ranks: Sequence[int], claims: Claims) -> list[int]:
    """The ranks that are drawn in full: those that a finding claims time of, and the first ones."""
    claimed = dict.fromkeys(device[0] for *_, finding in claims for device in finding.claim.intervals)
    order = [*(rank for rank in claimed if rank in ranks), *(rank for rank in ranks if rank not in claimed)]
    return sorted(order[:SHOWN_RANKS])


@remembered
def whole_timeline(trace: Trace) -> Timeline | None:
    """The timeline with every event by itself and no finding: agents ask for one window of it after another."""
    return timeline_of(trace, most_runs=sys.maxsize)


class _Lanes(State):
    """Lanes of one rank after another: marks, why devices idled, streams, then the threads of the host."""

    trace: Trace
    texts: _Texts
    claims: Claims
    lanes: list[Lane] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    idle: pl.DataFrame = field(default_factory=pl.DataFrame)
    marks: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)

    def add_all_ranks(self, ranks: Sequence[int]) -> None:
        """A strip for every rank, or for a few of them."""
        lane, each = all_ranks(self.trace, ranks, self.texts.of, self.texts.kind)
        self.lanes.append(lane)
        self.notes.append(
            f"of {len(ranks):,} ranks {SHOWN_RANKS} are drawn in full, those with findings first; the strips hold all"
            f"{'' if each == 1 else f', the mean of {each} in each'}"
        )

    def add_rank(self, rank: int, devices: Sequence[Device]) -> None:
        """The lanes of one rank. Threads come last, but streams point to them: their places are known beforehand."""
        marks: list[Lane] = []
        for device in devices:
            marks += self._findings(device, len(self.lanes) + len(marks))
            marks += self._steps(device)
        ops = {device: self._ops(device) for device in devices}
        threads = self._threads(rank)
        idle = [lane for device in devices for lane in self._idle(device)]
        streams = [(device, key) for device in devices for key in self._stream_keys(device, ops[device])]
        before = len(self.lanes) + len(marks) + len(idle) + len(streams)
        place = {(kind, key): before + at for at, (kind, key, *_) in enumerate(threads)}
        self.lanes += [*marks, *idle]
        self.lanes += [self._stream(device, ops[device], key, place) for device, key in streams]
        self.lanes += [self._thread(*thread, place) for thread in threads]

    def _findings(self, device: Device, lane: int) -> Iterator[Lane]:
        """What each finding claims, a row each; `lane` is the number that this lane has, where there is anything."""
        rows: list[Runs] = []
        for number, name, finding in self.claims:
            claimed = finding.claim.intervals.get(device, Intervals.none())
            if len(claimed):
                text, kind = self.texts.of(f"finding {number}: {name}"), self.texts.kind("finding")
                self.marks[*device, number] = lane, len(rows)
                rows.append(single(claimed.start_ns, claimed.end_ns, kind=kind, name=text))
        if rows:
            yield Lane("finding", f"findings, GPU {device[1]}", *device, tuple(rows))

    def _steps(self, device: Device) -> Iterator[Lane]:
        windows = steps(self.trace).windows.filter(of_device(device))
        if windows.height:
            names = self.texts.column(steps(self.trace).labels_of(windows))
            runs = _runs(windows, kind=self.texts.kind("step"), name=names)
            yield Lane("step", f"steps, GPU {device[1]}", *device, laid_out(runs))

    def _idle(self, device: Device) -> Iterator[Lane]:
        """Neighbouring stretches of one cause and place are one box."""
        places = pl.concat_str("call", "host_op", "range", separator=" in ", ignore_nulls=True)
        rows = self.idle.filter(of_device(device)).rechunk()
        if rows.is_empty():
            return
        text = pl.col("call", "host_op", "range", "cause").cast(pl.String)
        rows = rows.select("start_ns", "end_ns", text).with_columns(places.alias("place"))
        touching = pl.struct("cause", "place").eq_missing(pl.struct("cause", "place").shift()) & (
            pl.col("start_ns") == pl.col("end_ns").shift()
        )
        box = (~touching.fill_null(False)).cum_sum().alias("box")
        whole = rows.with_columns(box).group_by("box", maintain_order=True)
        boxes = whole.agg(pl.first("start_ns", "cause", "place"), pl.last("end_ns"))
        kinds = {cause: self.texts.kind(cause) for cause in boxes["cause"].unique(maintain_order=True)}
        runs = _runs(
            boxes,
            kind=boxes["cause"].replace_strict(kinds, return_dtype=pl.Int64).to_numpy(),
            name=self.texts.column(boxes["cause"].replace(IDLE_WORDS)),
            detail=self.texts.column(boxes["place"].replace("", None)),
        )
        yield Lane("idle", f"GPU {device[1]} idle, because of", *device, laid_out(runs))

    def _ops(self, device: Device) -> pl.DataFrame:
        """The device's work, the number of its row in `device_ops`, and of the kind that a box is coloured by: kernels
        go by the family of their name."""
        ops = self.trace[DEVICE_OPS].with_row_index("row").filter(of_device(device)).rechunk()  # texts need one piece
        families = mapped(ops["name"], lambda names: names.map_elements(family, pl.String), pl.String)
        classes = class_of_ops(self.trace)[ops["row"]].cast(pl.String)
        graph = pl.when(ops["kind"] == "graph").then(pl.lit("kernel")).otherwise(families)
        kinds = pl.select(pl.when(classes != "compute").then(classes).otherwise(graph)).to_series()
        numbers = {kind: self.texts.kind(kind) for kind in kinds.unique().sort()}
        return ops.with_columns(kinds.replace_strict(numbers, return_dtype=pl.Int64).alias("coloured"))

    def _stream_keys(self, device: Device, ops: pl.DataFrame) -> list[tuple[int | None, int]]:
        order = ops.group_by("context", "stream").len().sort("context", "stream", nulls_last=True)
        if order.height > SHOWN_STREAMS:
            busiest = order.sort("len", descending=True, maintain_order=True).head(SHOWN_STREAMS)
            order = busiest.sort("context", "stream", nulls_last=True)
            self.notes.append(f"GPU {device[1]} of rank {device[0]}: its {SHOWN_STREAMS} busiest streams are drawn")
        return [(context, stream) for context, stream, _ in order.iter_rows()]

    def _stream(self, device: Device, ops: pl.DataFrame, key: tuple[int | None, int], place: Places) -> Lane:
        context, stream = key
        several = ops["context"].n_unique() > 1
        rows = ops.filter(pl.col("context").eq_missing(context) & (pl.col("stream") == stream))
        at = rows["row"].to_numpy()
        call = launch_links(self.trace).call[at]
        from_lane, from_ns = self._place_of(API_CALLS, "call", call, place)
        names = self.texts.column(rows["name"])
        kernels = rows.filter(pl.col("kind") == "kernel")["name"].unique().cast(pl.String).to_list()
        for name, short in short_names(kernels).items():
            self.texts.short.setdefault(self.texts.of(name), short)
        shown = {"kind": rows["coloured"].to_numpy(), "name": names, "detail": self._op_details(rows)}
        runs = _runs(rows, **shown, from_lane=from_lane, from_ns=from_ns)
        label = f"GPU {device[1]} stream {stream}" + (f" of context {context}" if several else "")
        return Lane("stream", label, *device, laid_out(runs))

    def _op_details(self, ops: pl.DataFrame) -> Int64Array:
        """What a kernel was launched with, or a copy moved, and the line of the program that it is of."""
        stacks = stack_book(self.trace)
        number = op_stacks(self.trace)[ops["row"].to_numpy()]
        lines: dict[int, str] = {}
        for at in np.unique(number[number >= 0]).tolist():
            line = stacks.stacks[at][-1]
            lines[at] = f"{'in' if line.file is None else 'at'} {place_text(line)}"
        launched = pl.format(
            "grid {}×{}×{}, block {}×{}×{}", *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
        )
        moved = pl.concat_str(
            pl.col("kind").cast(pl.String),
            pl.col("copy_kind").cast(pl.String),
            pl.format("{} bytes", "bytes"),
            separator=" ",
            ignore_nulls=True,
        )
        what = ops.select(pl.when(pl.col("kind") == "kernel").then(launched).otherwise(moved).alias("what"))["what"]
        where = pl.Series("where", [lines.get(at) for at in number.tolist()], dtype=pl.String)
        both = pl.DataFrame([what, where]).select(pl.concat_str("what", "where", separator=", ", ignore_nulls=True))
        return self.texts.column(both.to_series().replace("", None))

    def _place_of(self, table: Table, kind: LaneKind, rows: Int64Array, place: Places) -> tuple[Int64Array, Int64Array]:
        """The lane and the start of rows of a host table; -1 for row -1 and for rows of lanes that are not drawn."""
        frame = self.trace.get(table)
        if not frame.height:
            return np.full(rows.size, -1, np.int64), np.full(rows.size, -1, np.int64)
        lane_of = np.full(frame.height, -1, np.int64)
        for rank in {key[0] for _, key in place}:
            for key, first, last in thread_slices(frame, rank):
                lane_of[first:last] = place.get((kind, key), -1)
        lane = np.where(rows >= 0, lane_of[np.maximum(rows, 0)], -1)
        return lane, np.where(lane >= 0, frame["start_ns"].to_numpy()[np.maximum(rows, 0)], -1)

    def _threads(self, rank: int) -> list[tuple[LaneKind, ThreadKey, str, int, int]]:
        """Kind, thread, label and rows of each lane of the host; threads with most calls first."""
        slices = {
            kind: {key: (first, last) for key, first, last in thread_slices(self.trace.get(table), rank)}
            for kind, _, table in _HOST
        }
        keys = set(chain.from_iterable(slices.values()))
        nothing = (0, 0)

        def order(key: ThreadKey) -> tuple[list[int], ThreadKey]:
            return [int.__sub__(*slices[kind].get(key, nothing)) for kind in ("call", "op", "range")], key

        busiest = sorted(keys, key=order)
        if len(busiest) > SHOWN_THREADS:
            self.notes.append(f"rank {rank}: {SHOWN_THREADS} of {len(busiest)} threads are drawn")
        threads = self.trace.get(THREADS).select("rank", "process", "thread", pl.col("name").cast(pl.String))
        names = {row[:3]: row[3] for row in threads.iter_rows()}
        found = []
        for key in busiest[:SHOWN_THREADS]:
            name = names.get(key) or ""
            title = name if str(key[2]) in name else f"thread {key[2]} {name}".rstrip()
            found += [
                (kind, key, f"{title}: {what}", *slices[kind][key]) for kind, what, _ in _HOST if key in slices[kind]
            ]
        return found

    def _thread(self, kind: LaneKind, key: ThreadKey, label: str, first: int, last: int, place: Places) -> Lane:
        table = next(table for name, _, table in _HOST if name == kind)
        rows = self.trace[table][first:last]
        more: dict[str, Int64Array] = {}
        if kind == "op":
            causes = self._place_of(HOST_OPS, "op", forward_operators(self.trace)[first:last], place)
            more = dict(zip(("from_lane", "from_ns"), causes, strict=True))
            if "input_shapes" in rows.columns:
                more["detail"] = self.texts.column(rows["input_shapes"])
        runs = _runs(rows, kind=self.texts.kind(kind), name=self.texts.column(rows["name"]), **more)
        return Lane(kind, label, key[0], None, laid_out(runs))


def _runs(rows: pl.DataFrame, **columns: Int64Array | int) -> Runs:
    """A box for each row."""
    return single(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), **columns)


@cache
def family(name: str) -> str:
    """What the boxes of a kernel are coloured by."""
    return _COLOURED.get(decode(name).family, _OTHERWISE)


MOST_STRIPS: Final = 256  # three pixels each are most of a screen
_BINS: Final = 2048  # of a strip: a wide screen
_PARTS: Final = ("compute", "communication", "copy")


def all_ranks(
    trace: Trace, ranks: Sequence[int], text: Callable[[str], int], kind: Callable[[str], int]
) -> tuple[Lane, int]:
    """The lane, and how many ranks share a strip; `text` and `kind` give the numbers of texts and kinds."""
    lines = device_timeline(trace).by_device
    edges = np.linspace(
        min(line.span_start_ns for line in lines.values()),
        max(line.span_end_ns for line in lines.values()),
        _BINS + 1,
        dtype=np.int64,
    )
    kinds = np.array([kind(part) for part in _PARTS], np.int64)
    each = -(-len(ranks) // MOST_STRIPS)
    rows = []
    for at in range(0, len(ranks), each):
        some = ranks[at : at + each]
        name = f"rank {some[0]}" if len(some) == 1 else f"ranks {some[0]} to {some[-1]}"
        rows.append(_strip([line for (rank, _), line in lines.items() if rank in some], edges, kinds, text(name)))
    folded = "" if each == 1 else f", {each} to a strip"
    return Lane("ranks", f"all {len(ranks):,} ranks{folded}", -1, None, tuple(rows)), each


def _strip(lines: Sequence[DeviceTimeline], edges: np.ndarray, kinds: np.ndarray, name: int) -> Runs:
    """Per bin the mean busy time of the devices, coloured by what takes most of it; bins without any are left out."""
    bins = edges[:-1], edges[1:]
    times = np.array(
        [
            sum(part.covered_ns(*bins) for part in parts) / len(lines)
            for parts in zip(
                *((line.compute, line.exposed_communication, line.exposed_copy) for line in lines), strict=True
            )
        ]
    )
    busy = np.rint(times.sum(axis=0)).astype(np.int64)
    some = np.flatnonzero((busy > 0) & (bins[1] > bins[0]))
    runs = single(bins[0][some], bins[1][some], kind=kinds[times.argmax(axis=0)[some]], name=name)
    runs.busy_ns[:] = np.minimum(busy[some], runs.busy_ns)
    return runs
