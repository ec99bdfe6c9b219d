"""The allocator's own view when the snapshot was taken, and its traffic with the driver before.

Law: used by tensors + rounding + awaited + free in used segments + free segments = reserved, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from timesink.measures.timeline.timeline import Device
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_SEGMENTS
from timesink.model.trace import Trace, remembered

_MAPS, _UNMAPS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


@dataclass(frozen=True, slots=True)
class AllocatorView:
    """One (rank, device). `split_free_bytes` are free blocks inside segments that tensors still use: fragmentation.

    `cached_bytes` are whole free segments, which `empty_cache` gives back. `retries` counts releases of cached segments
    made to serve an allocation (a release directly before the segment that is then taken, or before an oom);
    `largest_free_bytes` is the largest request that needs no new segment.
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
    found = {}
    for rank, device in sorted(segments.select("rank", "device").unique().iter_rows()):
        mine = (pl.col("rank") == rank) & (pl.col("device") == device)
        found[int(rank), int(device)] = _view(segments.filter(mine), blocks.filter(mine), events.filter(mine))
    return found


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
        largest_free_bytes=_largest(free),
        segments=segments.height,
        segment_allocations=int(action.is_in(_MAPS).sum()),
        segment_releases=int(action.is_in(_UNMAPS).sum()),
        retries=_retries(action),
        ooms=int((action == "oom").sum()),
    )


def _largest(free: pl.DataFrame) -> int:
    largest = free["bytes"].max()
    return largest if isinstance(largest, int) else 0


def _retries(action: pl.Series) -> int:
    """Stretches of releases that end in a new segment or an oom: the allocator gave back to be given."""
    traffic = action.filter(action.is_in([*_MAPS, *_UNMAPS, "oom"]))
    releases = traffic.is_in(_UNMAPS)
    return int((releases & ~releases.shift(-1, fill_value=True)).sum())
