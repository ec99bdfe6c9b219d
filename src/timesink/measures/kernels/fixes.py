"""The kernels of a fix that was named in words: those that the rules find, or those that a target names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.compile.graphs import broken_graphs
from timesink.measures.kernels.conversions import cast_kernels, layout_kernels
from timesink.measures.kernels.facts import by_stream, kernel_facts, rows_of
from timesink.measures.kernels.fusion import optimizer_kernels, pointwise_chains, shorter_members, unfused_attention
from timesink.measures.kernels.one_stream import one_stream_runs
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.measures.timeline.device_timeline import Device
from timesink.measures.timeline.replay import graphs
from timesink.model.arrays import BoolArray
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Selection, Target, chosen_ops
from timesink.whatif.changes import compiling, precision
from timesink.whatif.changes import kernels as fixes
from timesink.whatif.changes.kernels import KernelFix, ShortenKernels
from timesink.whatif.changes.optimizer import FuseOptimizer

KernelChange = ShortenKernels | FuseOptimizer
_FOUND: Final[dict[str, Callable[[Trace], Iterable[KernelChange]]]] = {
    "fuse-attention": lambda trace: map(fixes.fuse_attention, unfused_attention(trace)),
    "fuse-pointwise": lambda trace: map(fixes.fuse_pointwise, pointwise_chains(trace)),
    "fuse-optimizer": lambda trace: (FuseOptimizer.of(kernels.unfused) for kernels in optimizer_kernels(trace)),
    "drop-casts": lambda trace: map(precision.drop_casts, cast_kernels(trace)),
    "keep-layout": lambda trace: map(fixes.keep_layout, layout_kernels(trace)),
    "precision tf32": lambda trace: map(precision.to_tf32, wide_kernels(trace)["fp32"]),
    "precision bf16": lambda trace: map(precision.to_bf16, four_byte_kernels(trace)),
    "precision fp32": lambda trace: map(precision.from_fp64, wide_kernels(trace)["fp64"]),
    "align-products": lambda trace: map(fixes.align_products, misaligned_products(trace)),
    "spread-grids": lambda trace: map(fixes.spread_grids, small_grids(trace)),
    "overlap-streams": lambda trace: (fixes.overlap_streams(streams.serial) for streams in serialized_streams(trace)),
    "join-graphs": lambda trace: (
        compiling.join_graphs(pieces.kernels, pieces.entries, pieces.beyond) for pieces in broken_graphs(trace)
    ),
}
_NAMED: Final[dict[str, Callable[[Trace, Target], Iterable[KernelChange]]]] = {
    "fuse-pointwise": lambda trace, target: map(fixes.fuse_pointwise, _runs(trace, target)),
    "fuse-optimizer": lambda trace, target: (FuseOptimizer.of(part, target) for part in _all(trace, target, "unfused")),
    "precision tf32": lambda trace, target: map(precision.to_tf32, _all(trace, target, "fp32")),
    "precision bf16": lambda trace, target: map(precision.to_bf16, _all(trace, target, "fp32")),
}


def changes_of(trace: Trace, fix: KernelFix, rank: int) -> tuple[KernelChange, ...]:
    """The change that a fix makes on each device of a rank; none where no kernel there is to be fixed."""
    if fix.count is not None:
        changes = _on_streams(trace, fix.target, fix.count)
    else:
        changes = _FOUND[fix.verb](trace) if fix.target is None else _NAMED[fix.verb](trace, fix.target)
    return tuple(change for change in changes if change.device[0] == rank and change.rows.size)


def _on_streams(trace: Trace, target: Target | None, count: int) -> Iterable[KernelChange]:
    """The small kernels of one stream, or those that the target names, on so many streams."""
    chosen = None if target is None else _members(trace, target)
    return (fixes.on_streams(runs.on_streams(count), count) for runs in one_stream_runs(trace, chosen))


def _all(trace: Trace, target: Target, role: str) -> list[Selection]:
    """All kernels of each device that the target names."""
    return [Selection(device, {role: rows_of(kernels.filter("member"))}) for device, kernels in _chosen(trace, target)]


def _runs(trace: Trace, target: Target) -> list[Selection]:
    """The kernels that the target names in runs of at least two, but the longest of each run."""
    return [
        Selection(device, {"other": shorter_members(by_stream(kernels), any_run=True)})
        for device, kernels in _chosen(trace, target)
    ]


def _chosen(trace: Trace, target: Target) -> Iterator[tuple[Device, pl.DataFrame]]:
    """Each device and its kernels, with `member`: whether the target names it or the host time of its launch."""
    facts, chosen = kernel_facts(trace), _members(trace, target)
    for device in facts.devices:
        kernels = facts.on(device)
        yield device, kernels.with_columns(pl.Series("member", chosen[rows_of(kernels)]), copies=pl.lit(None))


def _members(trace: Trace, target: Target) -> BoolArray:
    """For each row of `device_ops`: whether the target names it or the host time of its launch."""
    chosen = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    for graph in graphs(trace).values():
        chosen[graph.rows_of_ops()] = chosen_ops(graph, target)
    return chosen
