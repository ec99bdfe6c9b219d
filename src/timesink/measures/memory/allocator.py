"""What the allocator recorded: the lifetime of every block, and its own view when the snapshot was taken.

Positions count the events of one device from 0; a block lives in the half-open stretch ``[born, died)`` of them. Law:
at every event the lifetimes alive sum to the allocator's own running total, to the byte.

Of the view: used by tensors + rounding + awaited + free in used segments + free segments = reserved, to the byte. The
names are those of PyTorch's caching allocator (`torch.cuda.memory_snapshot`, "Understanding CUDA Memory Usage").
"""

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.timeline import Device
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.schema import nulls
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_SEGMENTS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

BEFORE = -1


class Lifetimes(Record, eq=False):
    """Blocks of one (rank, device).

    `frame`: address, bytes (as asked for), born (-1: before the record), died (event count: still alive), stack, and
    the profiler's category where it gave one. Events without an address pair up first in, first out among those of one
    size and category: sums are exact, and which of two equal blocks lived longer is not known.
    `totals_bytes` is the allocator's running total after each event, `start_bytes` before the first; what it counts and
    no event or block of the record speaks of is one block of its own, alive throughout.
    `unpaired` counts events that contradict the rest; they are in no lifetime.
    """

    frame: pl.DataFrame
    events: pl.DataFrame
    totals_bytes: Int64Array
    start_bytes: int
    unpaired: int

    @property
    def count(self) -> int:
        """Number of events."""
        return self.events.height

    def live_bytes(self, chosen: BoolArray | None = None) -> Int64Array:
        """Bytes alive before the first event and after each one (one longer than the events), of the chosen blocks."""
        frame = self.frame if chosen is None else self.frame.filter(pl.Series(chosen))
        return running_bytes(frame["born"].to_numpy(), frame["died"].to_numpy(), frame["bytes"].to_numpy(), self.count)


def running_bytes(born: Int64Array, died: Int64Array, size: Int64Array, count: int) -> Int64Array:
    """Bytes alive before the first of `count` events and after each, as an array of count + 1.

    born   died   size        (count = 3)
      -1      1     10     result   10  14  4  9
       0      3      4
       2      3      5
    """
    change = np.zeros(count + 2, np.int64)
    np.add.at(change, born + 1, size)
    np.add.at(change, died + 1, -size)
    return np.cumsum(change)[: count + 1]


@remembered
def lifetimes(trace: Trace) -> Mapping[Device, Lifetimes]:
    """Lifetimes per (rank, device), GPUs only, in order; empty where nothing was recorded."""
    events = trace.get(MEMORY_EVENTS).filter(pl.col("device") >= 0)
    blocks = trace.get(MEMORY_BLOCKS).filter(pl.col("state") == "active")
    keys = sorted({*events.select("rank", "device").iter_rows(), *blocks.select("rank", "device").iter_rows()})
    devices = {}
    for rank, device in keys:
        own = (pl.col("rank") == rank) & (pl.col("device") == device)
        devices[int(rank), int(device)] = _of_device(events.filter(own), blocks.filter(own))
    return devices


def _of_device(events: pl.DataFrame, blocks: pl.DataFrame) -> Lifetimes:
    """Pair each release with the allocation of its address right before it.

    Events in order of address and position, where position 9 is after the last event:

        address  position  bytes   is
             A         2    -64    released only: born before the record
             A         3     64    ended by the next row: born 3, died 7
             A         7    -64    closes the row before
             B         5     32    alive: born 5, died 9
    """
    change = events["bytes"].to_numpy()
    nameless = events["address"].is_null().to_numpy()
    position = np.flatnonzero((change != 0) & ~nameless)
    address = events["address"].fill_null(0).to_numpy()[position]
    size, is_birth = np.abs(change[position]), change[position] > 0
    order = np.lexsort((position, address))
    position, address, size, is_birth = position[order], address[order], size[order], is_birth[order]
    ended = np.zeros(position.size, bool)  # the next event of the address releases what this one allocated
    if position.size:
        ended[:-1] = (address[:-1] == address[1:]) & is_birth[:-1] & ~is_birth[1:] & (size[:-1] == size[1:])
    closes = np.concatenate([[False], ended[:-1]]) if position.size else ended
    another = address[1:] != address[:-1]
    edge = [True] if address.size else []
    earlier = ~is_birth & ~closes & np.concatenate([edge, another]).astype(bool)  # first of its address
    alive = is_birth & ~ended & np.concatenate([another, edge]).astype(bool)  # last of its address
    stack = events["stack"]
    paired = _rows(address[ended], size[ended], position[ended], position[1:][ended[:-1]], stack)
    began = _rows(address[earlier], size[earlier], np.full(int(earlier.sum()), BEFORE), position[earlier], None)
    open_ended = _rows(address[alive], size[alive], position[alive], np.full(int(alive.sum()), events.height), stack)
    older = _older(blocks, address[alive], events.height)
    unnamed = _by_size(events, np.flatnonzero((change != 0) & nameless))
    frame = pl.concat([paired, began, open_ended, older, unnamed]).sort("born", "died", "address", "bytes")
    totals, start = _totals(events, frame)
    frame = _with_unseen(frame, start, events.height)
    unpaired = int((~is_birth & ~closes & ~earlier).sum() + (is_birth & ~ended & ~alive).sum())
    return Lifetimes(frame, events, totals, start, unpaired)


def _rows(
    address: npt.NDArray[np.uint64], size: Int64Array, born: Int64Array, died: Int64Array, stack: pl.Series | None
) -> pl.DataFrame:
    stacks = nulls(pl.Categorical(), len(size)) if stack is None else stack[born]
    return pl.DataFrame(
        {
            "address": pl.Series(address, dtype=pl.UInt64),
            "bytes": pl.Series(size, dtype=pl.Int64),
            "born": pl.Series(born, dtype=pl.Int64),
            "died": pl.Series(died, dtype=pl.Int64),
            "stack": stacks,
            "category": nulls(pl.Categorical(), len(size)),
        }
    )


def _by_size(events: pl.DataFrame, position: Int64Array) -> pl.DataFrame:
    """Events without addresses, paired first in, first out among those of one size and category."""
    kinds = events["category"][position].to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    change = events["bytes"].to_numpy()[position]
    born: list[int] = []
    died: list[int] = []
    waiting: dict[tuple[int, int], deque[int]] = {}
    for at, kind, size in zip(position.tolist(), kinds.tolist(), change.tolist(), strict=True):
        queue = waiting.setdefault((kind, abs(size)), deque())
        if size > 0:
            queue.append(at)
        else:
            born.append(queue.popleft() if queue else BEFORE)
            died.append(at)
    left = sorted(at for queue in waiting.values() for at in queue)
    starts, ends = np.array(born + left, np.int64), np.array(died + [events.height] * len(left), np.int64)
    described_by = np.where(starts >= 0, starts, np.minimum(ends, max(events.height - 1, 0)))
    size = np.abs(events["bytes"].to_numpy()[described_by])
    rows = _rows(np.zeros(starts.size, np.uint64), size, starts, ends, None)
    return rows.with_columns(category=events["category"][described_by])


def _older(blocks: pl.DataFrame, born_since: npt.NDArray[np.uint64], count: int) -> pl.DataFrame:
    """Blocks in use at the end whose allocation is not in the record; the snapshot has their stacks."""
    old = blocks.filter(~pl.col("address").is_in(pl.Series(born_since, dtype=pl.UInt64).implode()))
    return old.select(
        "address",
        pl.col("requested_bytes").alias("bytes"),
        pl.lit(BEFORE, pl.Int64).alias("born"),
        pl.lit(count, pl.Int64).alias("died"),
        "stack",
        pl.lit(None, pl.Categorical()).alias("category"),
    )


def _totals(events: pl.DataFrame, frame: pl.DataFrame) -> tuple[Int64Array, int]:
    """The running sum of the events from the allocator's first written total, or from what is known to be older."""
    change = events["bytes"].to_numpy()
    written = events["total_allocated_bytes"]
    older = int(frame.filter(pl.col("born") == BEFORE)["bytes"].sum())
    if not events.height or written.null_count():
        return older + np.cumsum(change), older
    start = max(int(written[0] - change[0]), older)
    return start + np.cumsum(change), start


def _with_unseen(frame: pl.DataFrame, start_bytes: int, count: int) -> pl.DataFrame:
    """Bytes that the allocator counts at first and no event or block explains, as one block that was always there."""
    unseen = start_bytes - int(frame.filter(pl.col("born") == BEFORE)["bytes"].sum())
    if unseen <= 0:
        return frame
    end = np.array([count], np.int64)
    row = _rows(np.zeros(1, np.uint64), np.array([unseen]), np.array([BEFORE], np.int64), end, None)
    return pl.concat([row, frame])


MAPS, UNMAPS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


class AllocatorView(Record):
    """One (rank, device).

    `split_free_bytes` are free blocks inside segments that tensors still use: fragmentation. `cached_bytes` are whole
    free segments, which `empty_cache` gives back. `retries` counts releases of cached segments made to serve an
    allocation (a release directly before the segment that is then taken, or before an oom); `largest_free_bytes` is the
    largest request that needs no new segment.
    """

    reserved_bytes: int
    requested_bytes: int
    rounding_bytes: int
    awaiting_bytes: int
    split_free_bytes: int
    cached_bytes: int
    private_bytes: int
    largest_free_bytes: int
    segments: int
    segment_allocations: int
    segment_releases: int
    retries: int
    ooms: int

    def outside_bytes(self, used_bytes: int) -> int:
        """What the device has in use beyond torch's segments: context, modules, NCCL, libraries, other processes."""
        return used_bytes - self.reserved_bytes


@remembered
def allocator_views(trace: Trace) -> Mapping[Device, AllocatorView]:
    """The view per (rank, device); empty where the trace has no segments."""
    segments, blocks = trace.get(MEMORY_SEGMENTS), trace.get(MEMORY_BLOCKS)
    events = trace.get(MEMORY_EVENTS)
    devices = {}
    for rank, device in sorted(segments.select("rank", "device").unique().iter_rows()):
        own = (pl.col("rank") == rank) & (pl.col("device") == device)
        devices[int(rank), int(device)] = _view(segments.filter(own), blocks.filter(own), events.filter(own))
    return devices


def _view(segments: pl.DataFrame, blocks: pl.DataFrame, events: pl.DataFrame) -> AllocatorView:
    by_state = {state: blocks.filter(pl.col("state") == state) for state in ("active", "awaiting_free", "inactive")}
    active = by_state["active"]
    requested = int(active["requested_bytes"].sum())
    free = by_state["inactive"]
    in_use = segments.filter(pl.col("active_bytes") > 0)["address"]
    split = free.filter(pl.col("segment").is_in(in_use.implode()))
    action = events["action"].cast(pl.String)
    return AllocatorView(
        reserved_bytes=int(segments["total_bytes"].sum()),
        requested_bytes=requested,
        rounding_bytes=int(active["bytes"].sum()) - requested,
        awaiting_bytes=int(by_state["awaiting_free"]["bytes"].sum()),
        split_free_bytes=int(split["bytes"].sum()),
        cached_bytes=int(free["bytes"].sum()) - int(split["bytes"].sum()),
        private_bytes=int(segments.filter("is_private")["total_bytes"].sum()),
        largest_free_bytes=int(free["bytes"].to_numpy().max(initial=0)),
        segments=segments.height,
        segment_allocations=int(action.is_in(MAPS).sum()),
        segment_releases=int(action.is_in(UNMAPS).sum()),
        retries=_retries(action),
        ooms=int((action == "oom").sum()),
    )


def _retries(action: pl.Series) -> int:
    """Stretches of releases that end in a new segment or an oom: the allocator released cached segments to get one."""
    traffic = action.filter(action.is_in([*MAPS, *UNMAPS, "oom"]))
    releases = traffic.is_in(UNMAPS)
    return int((releases & ~releases.shift(-1, fill_value=True)).sum())
