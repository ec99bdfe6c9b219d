"""Which idle time blocking waits are the root of: gaps behind drains, and those until the host is ahead again.

A wait throws away the host's lead. Until it is regained, every launch comes late, and the gaps look like slow operators
or slow Python. A replay of the dependency graph without the waits says whether they really are the root: where the host
is too slow even without waiting, the replay wins little and the gaps keep their own causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import polars as pl

from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.launches import launched_ahead
from timesink.measures.timeline.links import launch_links
from timesink.measures.timeline.replay import calibrated_pricers, pricers
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.changes.host import RemoveSyncs

# The host is ahead again once a launch finds this many earlier ones still waiting.
AHEAD_BY: Final = 3
_RESTART: Final = (*HOST_CAUSES, "launch_latency")
# Removing the waits must win at least this share of the idle time behind them, or they are not its root.
EFFECTIVE_RATIO: Final = 1 / 3


# A wait behind a copy of this many bytes from or to pageable memory is part of the copy; behind fewer it hands over a
# value.
COPIED_BYTES: Final = 65_536

Root = Literal["wait", "allocator", "copy_in", "copy_out"]
_ROOTS: Final = pl.Enum(list(get_args(Root)))
_FREES: Final = r"(?i)free"


@dataclass(frozen=True, slots=True, eq=False)
class SyncGain:
    """`root`: for each row of the idle blame, what drained the device before it, where the host is not ahead yet:
    a wait, a call that frees memory (allocator), or the wait of a pageable copy to the device (copy_in) or from it
    (copy_out); null elsewhere.

    Per rank: `behind_ns`, that time per kept step (all devices), and `gain_ns`, what a replay without the waits wins
    per step; None where the trace cannot be replayed.
    """

    root: pl.Series
    behind_ns: Mapping[int, float]
    gain_ns: Mapping[int, float | None]

    def effective(self, rank: int) -> bool:
        """Whether the waits of a rank are the root of what lies behind them."""
        gain = self.gain_ns.get(rank)
        return gain is not None and gain > EFFECTIVE_RATIO * self.behind_ns[rank]

    @property
    def effective_ranks(self) -> list[int]:
        """Ranks whose waits are worth removing."""
        return [rank for rank in self.behind_ns if self.effective(rank)]


@remembered
def sync_gain(trace: Trace) -> SyncGain:
    """Follow every drain until the host is ahead again, and replay each rank without its waits."""
    sync_row = _behind_drains(trace)
    frame = idle_blame(trace).frame.filter(pl.Series(sync_row >= 0))
    behind_ns: dict[int, float] = {}
    gain_ns: dict[int, float | None] = {}
    windows = steps(trace).windows
    for rank in frame["rank"].unique().sort():
        mine = Intervals.of(frame.filter(pl.col("rank") == rank))
        window = windows.filter(pl.col("rank") == rank)
        covered = mine.covered_ns(window["start_ns"].to_numpy(), window["end_ns"].to_numpy())
        behind_ns[rank] = float(covered.mean()) if covered.size else float(mine.total_ns)
        gain_ns[rank] = max(_gains_ns(trace, rank), default=None) if behind_ns[rank] > 0 else None
    return SyncGain(_roots(trace, sync_row), behind_ns, gain_ns)


def _gains_ns(trace: Trace, rank: int) -> list[float]:
    """What removing the waits wins of the profiled step: as profiled and, where a step time without the profiler is
    known, calibrated to it.

    A profiler slows the host, so that waits which cost time without it may cost none with it.
    """
    pricer = pricers(trace).get(rank)
    if pricer is None:
        return []
    step_ns = trace.unprofiled_step_ns
    tried = [pricer]
    if step_ns is not None and step_ns < pricer.step_ns:
        tried.append(calibrated_pricers(trace)[rank])
    prices = [one.price(RemoveSyncs()) for one in tried]
    return [price.gain_ns * pricer.step_ns / price.step_ns for price in prices if price.refused is None]


def _behind_drains(trace: Trace) -> Int64Array:
    """For each stretch, the call (row of api_calls) whose drain it lies behind, or -1.

    Besides the drained gaps themselves: stretches of host causes after a drain with no launch far ahead in between.
    """
    frame = idle_blame(trace).frame
    ahead = launched_ahead(trace, AHEAD_BY)
    drained = frame["sync_row"].is_not_null().to_numpy()
    own = frame["sync_row"].fill_null(-1).to_numpy()
    found = own.copy()
    start = frame["start_ns"].to_numpy()
    restart = frame["cause"].is_in(list(_RESTART)).to_numpy()
    keys = frame.select("rank", "device").unique().sort("rank", "device")
    for rank, device in keys.iter_rows():
        mine = ((frame["rank"] == rank) & (frame["device"] == device)).to_numpy()
        drains = np.flatnonzero(mine & drained)
        place = np.searchsorted(start[drains], start[mine], side="right") - 1
        ahead_at = _latest(ahead[rank, device], start[mine])
        after = (place >= 0) & restart[mine]
        if drains.size:
            latest = drains[np.maximum(place, 0)]
            after &= start[latest] > ahead_at
            found[mine] = np.where((found[mine] < 0) & after, own[latest], found[mine])
    return found


def _roots(trace: Trace, sync_row: Int64Array) -> pl.Series:
    """What each draining call was."""
    calls = trace.get(API_CALLS)
    if not calls.height or not (sync_row >= 0).any():
        return pl.Series("root", [None], dtype=_ROOTS).new_from_index(0, sync_row.size)
    rows = np.unique(sync_row[sync_row >= 0])
    to_device, to_host = _rows_of_copies(trace, "h2d"), _rows_of_copies(trace, "d2h")
    kind = pl.DataFrame(
        {
            "sync_row": rows,
            "allocator": matches(calls["name"].gather(rows), _FREES),
            "copy_in": np.isin(rows - 1, to_device),
            "copy_out": np.isin(rows - 1, to_host) | np.isin(rows, to_host),  # the copy itself blocks, or its wait does
        }
    )
    root = pl.coalesce(pl.when(name).then(pl.lit(name)) for name in ("allocator", "copy_in", "copy_out"))
    named = kind.select("sync_row", root.fill_null("wait").cast(_ROOTS).alias("root"))
    return pl.DataFrame({"sync_row": sync_row}).join(named, on="sync_row", how="left", maintain_order="left")["root"]


def _rows_of_copies(trace: Trace, direction: Literal["h2d", "d2h"]) -> Int64Array:
    """Calls that copied more than a value through pageable memory; the wait is the thread's next call."""
    ops = trace.get(DEVICE_OPS)
    host_side = "src_memory" if direction == "h2d" else "dst_memory"
    data = (pl.col("copy_kind") == direction) & (pl.col(host_side) == "pageable") & (pl.col("bytes") >= COPIED_BYTES)
    wanted = ops.select(data.fill_null(False)).to_series().to_numpy()
    link = launch_links(trace).call
    return np.unique(link[wanted & (link >= 0)])


def _latest(times_ns: Int64Array, at_ns: Int64Array) -> Int64Array:
    """The last of the sorted times at or before each instant; the least integer where there is none."""
    place = np.searchsorted(times_ns, at_ns, side="right") - 1
    least = np.iinfo(np.int64).min
    return np.where(place >= 0, times_ns[np.maximum(place, 0)], least) if times_ns.size else np.full(at_ns.size, least)
