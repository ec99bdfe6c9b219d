"""What one compiled graph would win over the pieces it is in: kernels joined, launches and waits for them saved.

Neighbouring pointwise kernels that a compiler generated, each for a graph of its own.

TorchInductor fuses neighbouring pointwise operations of one graph, so two such kernels in a row belong to two graphs.
What one graph would win depends on what binds them. With b the time of a kernel's bytes at attainable bandwidth and
t its own, c = sqrt(t^2 - b^2) is taken for its arithmetic; the fused kernel then takes sqrt(max(b)^2 + sum(c)^2). Where
shapes are not recorded, half of what the shorter ones take is expected to stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.gpus import DRAM_SHARE
from timesink.knowledge.work.arguments import Operator
from timesink.measures.compile.regions import compiled_regions
from timesink.measures.idle.gaps import device_gaps
from timesink.measures.kernels.facts import device_peaks, kernel_facts
from timesink.measures.kernels.shortened import Shortened
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.graph import Case, Range

_LEAST: Final = 2
_SHORT_NS: Final = 6_000.0  # bound by latency: the fused kernel takes no longer than one of them
_UNKNOWN_KEPT: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedChains:
    """One device: the kernels of runs, what they keep in one graph, and `idle` time that one of them ended. `pieces` is
    how many kernels a run has on average."""

    shortened: Shortened
    idle: Intervals
    pieces: float


@remembered
def generated_chains(trace: Trace) -> tuple[GeneratedChains, ...]:
    """Per device: runs of at least two generated pointwise kernels on a stream. Where compiled regions are recorded, a
    run is cut into calls, of as many kernels as there are graphs: calls of one function do not fuse with each other."""
    facts, gpus = kernel_facts(trace), device_peaks(trace)
    graphs = {part.device: part.graphs for part in compiled_regions(trace)}
    found = []
    for device in facts.devices:
        mine = facts.on(device)
        if mine["fused"].null_count() == mine.height:
            continue
        mine = mine.sort("stream", "start_ns", "row")
        member = ((mine["fused"] == "inductor") & (mine["family"] == "pointwise")).fill_null(False)
        breaks = ~member | (mine["stream"] != mine["stream"].shift(1)).fill_null(True)
        runs = mine.with_columns(breaks.cum_sum().alias("run")).filter(member)
        if device in graphs:
            place = pl.int_range(pl.len()).over("run") // max(graphs[device], 1)
            runs = runs.with_columns(pl.struct("run", place.alias("call")).rank("dense").alias("run"))
        runs = runs.filter(pl.len().over("run") >= _LEAST)
        if runs.height:
            gpu = gpus.get(device)
            rate = gpu.dram_bytes_per_s * DRAM_SHARE if gpu else None
            short = _shortened(device, runs, _memory_ns(trace, runs, rate))
            found.append(GeneratedChains(short, _idle(trace, device, short), runs.height / runs["run"].n_unique()))
    return tuple(found)


def _idle(trace: Trace, device: Device, short: Shortened) -> Intervals:
    rows = pl.Series(short.rows).implode()
    here = (pl.col("rank") == device[0]) & (pl.col("device") == device[1])
    ended = [gaps.filter(here & pl.col("op").is_in(rows)) for gaps in device_gaps(trace).slices()]
    return Intervals.union_all(Intervals.of(gaps) for gaps in ended if gaps.height)


def _memory_ns(trace: Trace, runs: pl.DataFrame, bytes_per_s: float | None) -> Float64Array:
    """The time of each kernel's bytes, by the tensors its operator names; NaN where they or the rate are unknown."""
    host = trace.get(HOST_OPS)
    if bytes_per_s is None or not host.height:
        return np.full(runs.height, np.nan)
    rows = runs["host_op"].to_numpy()
    texts = host[np.maximum(rows, 0)].select(pl.col("name", "input_shapes", "input_dtypes").cast(pl.String)).rows()
    sizes = [_bytes(*text) if row >= 0 else None for row, text in zip(rows.tolist(), texts, strict=True)]
    return np.array([np.nan if size is None else size / bytes_per_s * 1e9 for size in sizes], np.float64)


@lru_cache(maxsize=4096)
def _bytes(name: str, shapes: str | None, dtypes: str | None) -> int | None:
    operator = Operator.recorded(name, shapes, dtypes, None, None) if shapes and dtypes else None
    tensors = operator.tensors() if operator and name.startswith("triton_") else []
    return sum(tensor.bytes for tensor in tensors) or None


def _shortened(device: Device, runs: pl.DataFrame, memory_ns: Float64Array) -> Shortened:
    """Every kernel of a run keeps the same share of its time."""
    length = runs["length"].to_numpy().astype(np.float64)
    _, run = np.unique(runs["run"].to_numpy(), return_inverse=True)
    total = np.bincount(run, length)
    longest = np.zeros(total.size)
    np.maximum.at(longest, run, length)
    moving = np.minimum(np.where(np.isnan(memory_ns), length, memory_ns), length)
    moving = np.where(length <= _SHORT_NS, length, moving)
    most = np.zeros(total.size)
    np.maximum.at(most, run, moving)
    fused = np.maximum(np.hypot(most, np.bincount(run, np.sqrt(length**2 - moving**2))), longest)
    unknown = np.bincount(run, np.isnan(memory_ns) & (length > _SHORT_NS)) > 0
    fused = np.where(unknown, longest + _UNKNOWN_KEPT * (total - longest), fused)
    expected = np.minimum(fused / np.maximum(total, 1.0), 1.0)[run]
    best = (longest / np.maximum(total, 1.0))[run]
    order = np.argsort(runs["row"].to_numpy())
    keep = ((1.0 + expected) / 2.0, expected, np.minimum((expected + best) / 2.0, expected))
    return Shortened(device, runs["row"].to_numpy()[order], (keep[0][order], keep[1][order], keep[2][order]))


_GONE: Final = Range(0.5, 1.0, 1.0)  # of the host time at entries after a break


@dataclass(frozen=True, slots=True, eq=False)
class GraphPieces:
    """One device. `kernels` are those of the pieces and what they keep, `idle` is idle time that one of them ended. Of
    the host's time up to the launches of `entries`, `launches_saved` is the share that goes; `entry_idle` is idle time
    that one of these ended. `graphs` is of how many different graphs a step's `regions` are, None where regions are not
    recorded: then the pieces are generated kernels in a row, all of them entries, and of n in a row the first stays."""

    device: Device
    kernels: Shortened
    idle: Intervals
    entries: Int64Array
    entry_idle: Intervals
    launches_saved: Range
    graphs: int | None
    regions: float | None

    def saved_per_step_ns(self, trace: Trace, case: Case) -> float:
        """Device time and idle time that goes, per steady step: a bound for a device that waits for this host."""
        idle_ns = per_step_ns(trace, self.device, self.entry_idle)
        return self.kernels.saved_per_step_ns(trace, case) + self.launches_saved.at(case) * idle_ns


@remembered
def graph_pieces(trace: Trace) -> tuple[GraphPieces, ...]:
    """Per device with compiled regions, or with generated kernels in a row where no regions are recorded."""
    regions = {part.device: part for part in compiled_regions(trace)}
    chains = {part.shortened.device: part for part in generated_chains(trace)}
    found = []
    for device in sorted(regions.keys() | chains.keys()):
        chain, region = chains.get(device), regions.get(device)
        short = chain.shortened if chain else None
        if region is not None:
            kernels = _with_others(device, short, region.kernels)
            entries = (region.entries, region.entry_idle, _GONE)
            found.append(GraphPieces(device, kernels, region.idle, *entries, region.graphs, region.per_step))
        elif chain is not None:
            beyond = 1.0 - 1.0 / chain.pieces
            saved = Range(beyond * _GONE.cautious, beyond * _GONE.expected, beyond * _GONE.hopeful)
            rows = chain.shortened.rows
            found.append(GraphPieces(device, chain.shortened, chain.idle, rows, chain.idle, saved, None, None))
    return tuple(found)


def _with_others(device: Device, short: Shortened | None, rows: Int64Array) -> Shortened:
    """The same with other kernels, which keep all of their time."""
    if short is None:
        return Shortened.of(device, rows)
    every = np.union1d(short.rows, rows)
    place = np.searchsorted(every, short.rows)
    keep = []
    for share in short.keep:
        whole = np.ones(every.size)
        whole[place] = share
        keep.append(whole)
    return Shortened(device, every, (keep[0], keep[1], keep[2]))
