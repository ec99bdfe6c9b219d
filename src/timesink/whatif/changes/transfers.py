"""Changes to what moves data: copies from pinned memory that nobody waits for, and collectives next to computation."""

from typing import ClassVar, Final, Literal, Self

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.op_class import COMMUNICATION
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, IntArray, median
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.records import Record, field, replace
from timesink.whatif import EVERYTHING, Case, Figure, Range, Selection, Target, Touches, chosen_ops
from timesink.whatif.changes.kernels import OfKernels, ShortenKernels, shorten
from timesink.whatif.device import stream_neighbours
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind

COLLECTIVES: Final = Target("collective", "")


class PinCopies(EditedChange, Record):
    """Pageable copies of the target come from (or go to) pinned memory, on a stream of their own; nobody waits.

    The call costs what a launch does; the wait for the copy goes; the copy overlaps earlier kernels and still precedes
    the next one of its former stream. Pinned copies run at the best rate (90th percentile, bytes / time) that pinned
    copies of the trace show, else at `ratio` of the pageable time. Pinning memory anew for every copy costs more than
    it wins, and is not priced here.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    target: Target = EVERYTHING
    direction: Literal["h2d", "d2h"] = "h2d"
    ratio: Figure = field(default_factory=lambda: fixes.PINNED_TIME)

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        program = graph.program
        pageable, factor = self._copies(graph, case)
        copies = np.flatnonzero(pageable & (program.blocks.size[program.ops.block] == 1))
        edit.scale_ops(pageable, factor)
        _free_the_host(edit, graph, copies)
        chain = program.ops.block[copies]
        moved = graph.marks(program.start_node(chain))
        edit.disable(graph.edges_of(EdgeKind.STREAM), into=moved)
        edit.start_promptly(moved)
        before, after = stream_neighbours(program.ops)
        pairs = _bridges(copies.tolist(), before, after)
        if pairs.size:
            src, dst = program.end_node(program.ops.block[pairs[0]]), program.start_node(program.ops.block[pairs[1]])
            seen = graph.network.observed_ns[dst] - graph.network.observed_ns[src]
            edit.add(EdgeKind.STREAM, src, dst, np.minimum(program.costs.gap_ns, seen))
        edit.add(EdgeKind.STREAM, program.end_node(chain[:-1]), program.start_node(chain[1:]), 0)

    def _copies(self, graph: Graph, case: Case) -> tuple[BoolArray, Float64Array]:
        """Pageable copies of the target, and the factor by which the time of each op changes."""
        ops = graph.program.ops
        pageable, pinned, size = graph.once(("copies", self.direction), lambda: _copies_of(graph, self.direction))
        length = np.maximum(ops.end_ns - ops.start_ns, 1)
        rated = pinned & (size > fixes.RATED_BYTES.whole)
        if rated.any():
            rate = float(np.quantile(size[rated] / length[rated], fixes.RATE_QUANTILE.value))
            factor = np.minimum(size / rate / length, 1.0)
        else:
            factor = np.full(length.size, self.ratio.at(case))
        return pageable & chosen_ops(graph, self.target), np.where(size > fixes.STAGED_BYTES.whole, factor, 1.0)


def _copies_of(graph: Graph, direction: str) -> tuple[BoolArray, BoolArray, Int64Array]:
    """Whether each op is a copy of that direction of pageable memory, whether of pinned, and the bytes of each op."""
    memory = "src_memory" if direction == "h2d" else "dst_memory"
    frame = graph.tables[DEVICE_OPS].select("copy_kind", memory, "bytes")[graph.program.ops.row]
    towards = frame["copy_kind"].eq_missing(direction)
    pageable, pinned = ((towards & frame[memory].eq_missing(kind)).to_numpy() for kind in ("pageable", "pinned"))
    return pageable, pinned, frame["bytes"].fill_null(0).to_numpy()


def _free_the_host(edit: Edit, graph: Graph, copies: Int64Array) -> None:
    """Nobody waits for the copies, and their calls take what a launching call usually does, if that is less."""
    program = graph.program
    calls, releases = program.calls, program.releases
    waits = np.zeros(len(calls), bool)
    waits[releases.call[np.isin(releases.block, program.ops.block[copies])]] = True
    edit.drop_waits(waits)
    copied = np.zeros(len(program.ops), bool)
    copied[copies] = True
    copying = program.launching(copied)
    others = program.launching() & ~copying
    usual = int(median(calls.lengths_ns[others])) if others.any() else 0
    own = np.flatnonzero(copying)
    share = 1.0 - np.minimum(usual / np.maximum(calls.lengths_ns[own], 1), 1.0)
    edit.save_calls(own, calls.start_ns[own], calls.end_ns[own], share)


def _bridges(copies: list[int], before: IntArray, after: IntArray) -> IntArray:
    """The neighbours of each run of moved ops: what preceded it still precedes what followed it.

    Two rows, one column per run. On one stream, kernel 0, copies 1 and 2, kernel 3, copy 4, kernel 5 give the columns
    (0, 3) and (3, 5).
    """
    moved = set(copies)
    pairs = []
    for op in copies:
        if before[op] >= 0 and int(before[op]) not in moved:
            last = op
            while int(after[last]) in moved:
                last = int(after[last])
            if after[last] >= 0:
                pairs.append((int(before[op]), int(after[last])))
    return np.array(pairs, np.int64).reshape(-1, 2).T


class OverlapCollectives(EditedChange, Record):
    """Computation no longer waits for the target's collectives, which run on a stream of their own.

    Nothing says what really needs their result, so the gain is at most what this replays. While both run they contend
    for multiprocessors and memory: computation is slowed by `slowdown` of the collective's time. Beside products
    that hold every multiprocessor nothing is hidden, unless hopes are high (there is other work to hide it).
    """

    touches: ClassVar[Touches] = Touches.COMMUNICATION
    target: Target = COLLECTIVES
    slowdown: Figure = field(default_factory=lambda: fixes.COLLECTIVE_SLOWDOWN)

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        program = graph.program
        chosen = chosen_ops(graph, self.target) & (program.blocks.size[program.ops.block] == 1)
        slowed = (self.slowdown.at(case) * (program.ops.end_ns - program.ops.start_ns)).astype(np.int64)
        if case is not Case.HOPEFUL:
            slowed = np.maximum(slowed, _not_hidden_ns(graph, chosen))
        _leave_shared_streams(edit, graph, chosen, slowed)
        _release_waiters(edit, graph, chosen, slowed)


class DropExchanges(OfKernels, eq=False):
    """These collectives do not happen, and kernels beside them take the time that they take alone.

    `kernels` are the collectives; beside them there are the kernels that they slow down.
    """

    touches: ClassVar[Touches] = Touches.COMMUNICATION

    @classmethod
    def of(cls, exchanges: Selection, slowed: Selection) -> Self:
        """Drop the collectives of the selection; of the others `usual` is the share that each keeps."""
        gone = shorten(exchanges, exchange=Range.exact(0.0))
        half = (1.0 + slowed.usual) / 2.0
        freed = ShortenKernels(slowed.device, slowed.rows, (half, slowed.usual, slowed.usual))
        return cls(replace(gone, beside=freed))


def _not_hidden_ns(graph: Graph, chosen: BoolArray) -> Int64Array:
    """Of each op of a row of chosen exchanges what is left where products since the row before keep them out.

    A product whose blocks hold all multiprocessors and an exchange wait for each other: the exchange until it ends, or
    the product for a second turn of its last blocks. An exchange of 300 us after such a product of 350 us and 20 us of
    other kernels keeps 280.
    """
    ops, left = graph.program.ops, np.zeros(chosen.size, np.int64)
    length, computes = ops.end_ns - ops.start_ns, ops.op_class != COMMUNICATION
    kernels, devices = graph.tables[DEVICE_OPS][ops.row], graph.table(DEVICES)
    holds = np.where(graph.once("fills at once", lambda: fills_at_once(kernels, devices)), length, 0)
    for device in np.unique(ops.device[chosen]):
        mine = np.flatnonzero((ops.device == device) & (chosen | computes))
        is_row, begins = chosen[mine], np.ones(mine.size, bool)
        begins[1:] = is_row[1:] != is_row[:-1]
        runs, starts = np.cumsum(begins) - 1, np.flatnonzero(begins)
        total = np.add.reduceat(length[mine], starts)
        held = np.add.reduceat(holds[mine], starts)
        late = np.append(np.inf, np.where(held > 0, total - held, np.inf)[:-1])
        kept = np.maximum(0.0, 1.0 - late / np.maximum(total, 1))[runs]
        left[mine[is_row]] = (kept * length[mine])[is_row]
    return left


def fills_at_once(kernels: pl.DataFrame, devices: pl.DataFrame) -> BoolArray:
    """Whether the blocks of each kernel hold all multiprocessors of its device, each to its end."""
    known = devices.select("rank", "device", "sm_count")
    joined = kernels.select("rank", "device", "grid_x", "grid_y", "grid_z").join(
        known, on=["rank", "device"], how="left", maintain_order="left"
    )
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z") / pl.col("sm_count")
    full = joined.select(blocks.is_between(fixes.FILLS_AT_ONCE.value, 1.0).fill_null(value=False))
    return full.to_series().to_numpy()


def _leave_shared_streams(edit: Edit, graph: Graph, chosen: BoolArray, slowed_ns: Int64Array) -> None:
    """On a stream shared with computation, what followed collectives follows what preceded them.

    It does so after `slowed_ns` of each collective passed over, by which it slows the computation it runs next to.
    """
    program = graph.program
    before, _ = stream_neighbours(program.ops)
    late = np.flatnonzero(~chosen & (before >= 0) & chosen[before])
    early, delay = before[late], np.zeros(late.size, np.int64)
    while (passing := (early >= 0) & chosen[early]).any():
        delay[passing] += slowed_ns[early[passing]]
        early[passing] = before[early[passing]]
    freed = graph.marks(program.start_node(program.ops.block[late]))
    edit.disable(graph.edges_of(EdgeKind.STREAM), into=freed)
    held = early >= 0
    source, sink = program.ops.block[early[held]], program.ops.block[late[held]]
    edit.add(EdgeKind.STREAM, program.end_node(source), program.start_node(sink), delay[held])


def _release_waiters(edit: Edit, graph: Graph, chosen: BoolArray, slowed_ns: Int64Array) -> None:
    """What waited for a collective's event goes on once the computation before the collective is done, slowed by it."""
    program, edges = graph.program, graph.network.edges
    ended = graph.marks(program.end_node(program.ops.block[chosen]))
    waits = graph.edges_of(EdgeKind.EVENT)
    waits = waits[ended[edges.src[waits]]]
    block = graph.block_of(edges.src[waits])
    computation = _last_computation_before(graph, block)
    edit.disable(waits, out_of=ended)
    held = computation >= 0
    delay = slowed_ns[program.blocks.op[block[held]]]
    edit.add(EdgeKind.EVENT, program.end_node(computation[held]), edges.dst[waits[held]], delay)


def _last_computation_before(graph: Graph, blocks: IntArray) -> IntArray:
    """The last block of computation that ended before each block started, or -1."""
    program = graph.program
    compute = np.flatnonzero(program.ops.op_class[program.blocks.op] != COMMUNICATION)
    order = compute[np.argsort(program.blocks.end_ns[compute], kind="stable")]
    if not order.size:
        return np.full(blocks.size, -1, np.int64)
    place = np.searchsorted(program.blocks.end_ns[order], program.blocks.start_ns[blocks], side="right") - 1
    return np.where(place >= 0, order[np.maximum(place, 0)], -1)
