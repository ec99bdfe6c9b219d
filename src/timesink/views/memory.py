"""The tables of `timesink memory`: what was alive at the peak of a run, two runs side by side, and a planned run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from timesink.errors import UsageError
from timesink.measures.memory import MemoryLedger, memory_ledger
from timesink.measures.memory.allocator import allocator_views
from timesink.measures.memory.classes import Category
from timesink.measures.timeline import Device, of_device
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_SEGMENTS
from timesink.model.trace import Trace
from timesink.units import bytes_text
from timesink.views import Page, Sheet, listed
from timesink.views.figures import FREE, Band, MapChart, MemoryChart

if TYPE_CHECKING:
    from timesink.memory_plan.plan import MemoryPlan

_PICTURE_COLUMNS = 640  # one for each pixel of the picture


def memory_page(trace: Trace, top: int, used_bytes: int | None) -> Page:
    """Peak, categories, places and the allocator's view of every GPU."""
    ledgers = _ledgers(trace)
    sheets = [_peaks(ledgers), _categories(ledgers), _places(ledgers, top)]
    views = allocator_views(trace)
    if views:
        sheets.append(_allocator(trace, used_bytes))
    notes = [note.message for note in trace.notes]
    notes += [
        f"rank {rank} GPU {device}: {ledger.classes.lives.unpaired} events contradict the others and are left out"
        for (rank, device), ledger in ledgers.items()
        if ledger.classes.lives.unpaired
    ]
    charts = [chart for chart in (memory_chart(trace), segment_map(trace)) if chart is not None]
    return Page(f"Memory of {trace.source}", tuple(sheets), tuple(notes), charts=tuple(charts))


def memory_chart(trace: Trace) -> MemoryChart:
    """Memory over time of the first GPU, by category."""
    (rank, device), ledger = next(iter(_ledgers(trace).items()))
    at = _columns(ledger)
    times = (0,) * len(at)
    if ledger.time_ns.size:  # when the event before each of these positions was, from the first one on
        times = tuple((ledger.time_ns[np.maximum(np.array(at) - 1, 0)] - ledger.time_ns[0]).tolist())
    bands = tuple(
        Band(category.value, tuple(ledger.live_bytes[code, at].tolist()), code)
        for code, category in enumerate(Category)
    )
    shown = tuple(band for band in bands if any(band.bytes))
    return MemoryChart(f"Memory of rank {rank}, GPU {device}: {trace.source.rpartition('/')[2]}", shown, times)


def _columns(ledger: MemoryLedger) -> list[int]:
    """Positions to draw: in each of at most 640 equal stretches of events, the one with the highest total."""
    total, positions = ledger.totals_bytes, list[int]()
    count = total.size
    width = max(count / _PICTURE_COLUMNS, 1.0)
    start = 0.0
    while start < count:
        low, high = int(start), max(int(start + width), int(start) + 1)
        positions.append(low + int(total[low:high].argmax()))
        start += width
    return positions


_MAP_CELLS = 300  # of a line: two pixels each
_MAP_LINES = 24  # a screen of them
_AWAITED = len(Category)


def segment_map(trace: Trace) -> MapChart | None:
    """What every segment of the first GPU's snapshot holds; None where the trace has no segments."""
    ((rank, device), ledger), *_ = _ledgers(trace).items()
    own = of_device((rank, device))
    segments = trace.get(MEMORY_SEGMENTS).filter(own).sort("address")
    blocks = _classed(trace.get(MEMORY_BLOCKS).filter(own), ledger)
    total = int(segments["total_bytes"].sum())
    if not total or not blocks.height:
        return None
    count = _MAP_CELLS * _MAP_LINES
    offset = segments.select("address", "total_bytes", before=pl.col("total_bytes").cum_sum() - pl.col("total_bytes"))
    from_start, is_after = pl.col("address") - pl.col("segment"), pl.col("address") >= pl.col("segment")
    placed = blocks.join(offset, left_on="segment", right_on="address")
    placed = placed.filter(is_after & (from_start < pl.col("total_bytes")))
    if not placed.height:
        return None
    start = placed["before"].to_numpy() + (placed["address"] - placed["segment"]).cast(pl.Int64).to_numpy()
    at, order = (np.arange(count) + 0.5) * total / count, np.argsort(start, kind="stable")
    found = np.searchsorted(start[order], at, side="right") - 1
    holder = order[np.maximum(found, 0)]  # the row of the block that begins before each place, and may hold it
    held = (found >= 0) & (at < start[holder] + placed["bytes"].to_numpy()[holder])
    code = np.where(held, placed["code"].to_numpy()[holder], FREE)
    ends = segments["total_bytes"].cum_sum().to_numpy()
    segment = np.searchsorted(ends, at, side="right")
    cells = list(zip(segment.tolist(), code.tolist(), strict=True))
    sums = placed.group_by("code").agg(pl.col("bytes").sum())
    return MapChart(
        f"Segments of the allocator, rank {rank}, GPU {device}: {bytes_text(total)}",
        f"in order of address, {bytes_text(total / _MAP_LINES)} a line; a cell shows what lies in its middle; lines "
        "between cells part segments",
        _MAP_CELLS,
        total / count,
        tuple(tuple(cells[at : at + _MAP_CELLS]) for at in range(0, count, _MAP_CELLS)),
        tuple(_segment_words(number, *row) for number, row in enumerate(segments.select(_SEGMENT).iter_rows(), 1)),
        {FREE: "free", _AWAITED: "freed, awaited by a stream"} | {at: one.value for at, one in enumerate(Category)},
        dict(sums.iter_rows()),
    )


_SEGMENT = ("total_bytes", "allocated_bytes", "largest_free_bytes", "is_private")


def _segment_words(number: int, total: int, used: int, largest: int, private: bool) -> str:
    pool = ", of a private pool" if private else ""
    words = f"segment {number} of {bytes_text(total)}{pool}, {bytes_text(used)} of it in use"
    return f"{words}, largest free block {bytes_text(largest)}"


def _classed(blocks: pl.DataFrame, ledger: MemoryLedger) -> pl.DataFrame:
    """The blocks with the number of the category of each, of what is awaited, or of what is free."""
    lives = ledger.classes.lives
    known = lives.frame.with_columns(category_code=pl.Series(ledger.classes.code).cast(pl.Int64))
    alive = known.filter(pl.col("died") == lives.count).unique("address", keep="last", maintain_order=True)
    held = pl.col("category_code").fill_null(list(Category).index(Category.UNCLASSIFIED))
    awaited = pl.when(pl.col("state") == "awaiting_free").then(_AWAITED).otherwise(FREE)
    code = pl.when(pl.col("state") == "active").then(held).otherwise(awaited)
    return blocks.join(
        alive.select("address", "category_code"), on="address", how="left", maintain_order="left"
    ).with_columns(code=code)


def difference_page(before: Trace, after: Trace) -> Page:
    """Categories at each one's peak, GPU by GPU that both have."""
    first, second = _ledgers(before), _ledgers(after)
    rows = []
    for key in sorted(set(first) & set(second)):
        one, other = first[key].at_peak(), second[key].at_peak()
        pairs = [(str(category), one[category], other[category]) for category in Category]
        pairs = [pair for pair in pairs if pair[1] or pair[2]]
        pairs.append(("total", first[key].peak_bytes, second[key].peak_bytes))
        rows += [(*key, name, left, right, right - left) for name, left, right in pairs]
    if not rows:
        raise UsageError("the two have no GPU in common", remedy="compare snapshots of the same rank")
    sheet = listed("memory.categories@changed", rows)
    return Page(f"Memory: {before.source} against {after.source}", (sheet,))


def _ledgers(trace: Trace) -> dict[Device, MemoryLedger]:
    ledgers = dict(memory_ledger(trace))
    if not ledgers:
        raise UsageError(
            f"{trace.source} records no GPU memory",
            remedy="give a snapshot of torch.cuda.memory._dump_snapshot, or profile with profile_memory=True",
        )
    return ledgers


def _peaks(ledgers: dict[Device, MemoryLedger]) -> Sheet:
    rows = (
        (
            *(*key, one.peak_bytes, one.peak_phase, one.classes.lives.count),
            *(len(one.classes.phases.starts), one.unclassified_ratio),
        )
        for key, one in ledgers.items()
    )
    return listed("memory.peaks", rows)


def _categories(ledgers: dict[Device, MemoryLedger]) -> Sheet:
    rows = []
    for key, one in ledgers.items():
        guessed, sizes = one.alive_at_peak() & one.classes.by_size, one.classes.lives.frame["bytes"].to_numpy()
        for category, size in one.at_peak().items():
            if size:
                by_size = int(sizes[guessed & one.classes.of(category)].sum())
                rows.append((*key, str(category), size, size / one.peak_bytes, by_size))
    return listed("memory.categories", rows)


def _places(ledgers: dict[Device, MemoryLedger], top: int) -> Sheet:
    rows = (
        (*key, str(one.category), one.bytes, one.count, one.place or "no stack recorded")
        for key, ledger in ledgers.items()
        for one in ledger.holders(top)
    )
    return listed("memory.places", rows)


def _allocator(trace: Trace, used_bytes: int | None) -> Sheet:
    rows: list[tuple[int, int, str, int]] = []
    notes = []
    for key, view in allocator_views(trace).items():
        parts = [
            ("asked for by tensors", view.requested_bytes),
            ("rounding within blocks", view.rounding_bytes),
            ("freed, awaited by a stream", view.awaiting_bytes),
            ("free inside used segments (fragmentation)", view.split_free_bytes),
            ("free segments (cached)", view.cached_bytes),
            ("reserved, the sum of these", view.reserved_bytes),
        ]
        if used_bytes is not None:
            parts.append(("outside torch: context, NCCL, libraries", view.outside_bytes(used_bytes)))
            parts.append(("in use on the GPU", used_bytes))
        parts += [("of it in private pools (graphs)", view.private_bytes)] if view.private_bytes else []
        rows += [(*key, name, size) for name, size in parts]
        notes.append(
            f"{view.segments} segments, {view.segment_allocations} taken and {view.segment_releases} given back in the "
            f"record, {view.retries} times to make room, {view.ooms} out of memory"
        )
    return listed("memory.allocator", rows, "; ".join(notes))


def plan_page(plan: MemoryPlan, measured: Sheet | None = None) -> Page:
    """The verdict, the terms, the phases, the changes, and a comparison where there is one."""
    terms = ((str(term.part), term.name, term.size_bytes, term.formula, term.source) for term in plan.terms)
    phases = ((moment.phase, moment.what, moment.total_bytes) for moment in plan.phases)
    changes = ((change.label, change.freed_bytes, change.cost) for change in plan.changes)
    sheets = (
        _verdict(plan),
        listed("memory.terms", terms),
        listed("memory.phases", phases),
        listed("memory.changes", changes),
        *(() if measured is None else (measured,)),
    )
    note = (
        "fragmentation is not planned: what the allocator reserves beyond the peak depends on the order of sizes "
        "(docs/explanation/memory-accuracy.md)"
    )
    return Page(f"Planned memory of one rank: {plan.config.name or 'a transformer'}", sheets, (note,))


def _verdict(plan: MemoryPlan) -> Sheet:
    gpu = plan.config.gpu
    fits = "fits" if plan.fits else "does not fit"
    rows = (
        ("parameters on this rank", f"{plan.parameters:,}"),
        ("peak", f"{bytes_text(plan.peak_bytes)} in {plan.peak.phase} ({plan.peak.what})"),
        ("with context and communicator", f"{bytes_text(plan.device_bytes)}: {fits} in {bytes_text(gpu.memory_bytes)}"),
        ("largest term", f"{plan.largest.name}, {bytes_text(plan.largest.size_bytes)}"),
        ("largest batch that fits", f"{plan.most_batch:,}"),
        ("longest sequence that fits", f"{plan.most_sequence:,}"),
    )
    return listed("memory.verdict", rows)


def comparison_sheet(plan: MemoryPlan, trace: Trace) -> Sheet:
    """Plan and measurement, category by category, each at its own peak. The first GPU of the trace is taken."""
    ledger = next(iter(memory_ledger(trace).values()), None)
    if ledger is None:
        raise UsageError(
            f"{trace.source} holds no memory of a GPU", remedy="compare with a snapshot of torch.cuda.memory"
        )
    measured = {str(category): size for category, size in ledger.at_peak().items()}
    planned = {str(part): size for part, size in plan.peak.parts.items()}
    from timesink.memory_plan.step import MemoryCategory  # which plans, and measures nothing

    names = [str(category) for category in MemoryCategory if category is not MemoryCategory.CONTEXT] + ["unclassified"]
    pairs = [(name, planned.get(name, 0), measured.get(name, 0)) for name in names]
    pairs = [pair for pair in pairs if pair[1] or pair[2]] + [("total", plan.peak_bytes, ledger.peak_bytes)]
    peak_bytes = max(ledger.peak_bytes, 1)
    rows = ((name, foreseen, taken, (foreseen - taken) / peak_bytes) for name, foreseen, taken in pairs)
    return listed("memory.against", rows)
