"""What a fix changes where that is more than one change of what a measure finds: beside others, and at a target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.fixes import kernels as of_kernels
from timesink.fixes.fix import Beside
from timesink.measures.communication.pipelines import trains
from timesink.measures.habits.extra_work import ExtraWork
from timesink.measures.habits.repeated_calls import layers, repeated_calls
from timesink.measures.habits.repeated_kernels import parameter_loops
from timesink.measures.kernels.conversions import layout_kernels
from timesink.measures.kernels.facts import by_stream, kernel_facts, rows_of
from timesink.measures.kernels.fusion import eager_runs, shorter_members, unfused_attention
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.precision import four_byte_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import small_grids
from timesink.measures.timeline.device_timeline import Device
from timesink.measures.timeline.replay import graphs
from timesink.model.arrays import BoolArray
from timesink.model.record import replace
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Change, Selection, Target, Together, chosen_ops
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import EnterRegions, FuseOptimizer, ShortenKernels

COMPILES: Final = frozenset({"compile", "compile_graph"})


def drop_extra_work(work: ExtraWork, waits: bool = False) -> Together:
    """Device work that need not be done goes, and the host's time, if need be its `waits`, that is there for it."""
    target = Target("windows", windows=work.host)
    waiting = (RemoveSyncs(target),) if waits else ()
    return Together((extra_kernels(work), *waiting, ScaleHost(target, 0.0)))


def extra_kernels(work: ExtraWork) -> ShortenKernels:
    """The device's part of that."""
    return of_kernels.drop_work(Selection(work.device, {"extra": work.rows}))


def merge_loops(work: ExtraWork) -> FuseOptimizer:
    """A loop over tensors, in the host time that is there for it, as few operations on lists."""
    return FuseOptimizer.of(Selection(work.device, {"unfused": work.rows}), Target("windows", windows=work.host))


def to_bf16(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Products may be misaligned in 16 bits, unless a compiler pads them; it fuses the casts, too."""
    compiled, padded = (bool(beside.chosen & some) for some in (COMPILES, {"padding"}))
    checked = "debugging_left_on" in beside.rules and "drop_debugging" not in beside.chosen
    for kernels in four_byte_kernels(trace):
        part = kernels
        if compiled or padded:
            groups = dict(kernels.groups)
            groups["tf32"] = np.union1d(groups["tf32"], groups.pop("misaligned"))
            part = replace(kernels, groups=groups)
        own = kernel_facts(trace).on(kernels.device)
        convolutions = own.filter(own["family"] == "convolution")["row"].to_numpy()
        yield of_kernels.autocast(part, compiled, trains(trace), checked, convolutions)


def fuse_attention(trace: Trace, beside: Beside) -> Iterator[Change]:
    """In 16 bits a fused kernel is fast, whatever the type was before."""
    for part in unfused_attention(trace):
        narrowed = {role.removesuffix("_wide"): rows for role, rows in part.groups.items()}
        kernels = Selection(part.device, narrowed) if "bf16" in beside.chosen else part
        yield of_kernels.fuse_attention(kernels, beside.launches_count)


def compile_model(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Eager runs of the model become one kernel each, and the compiler pads products; loops over parameters are no part
    of the model. Launches count where they hold the device up: elsewhere a replay of a host that the profiler slows
    would promise too much."""
    loops = np.concatenate([np.empty(0, np.int64), *(work.rows for work in parameter_loops(trace))])
    for runs in eager_runs(trace):
        of_model = {role: np.setdiff1d(rows, loops) for role, rows in runs.groups.items()}
        yield from of_kernels.compiled(replace(runs, groups=of_model), beside.launches_count)
    if beside.launches_count:
        for found in layers(trace):
            yield EnterRegions(found.device, found.rows, trains(trace))
    yield from map(of_kernels.align_products, misaligned_products(trace))


def compile_to_graph(trace: Trace, beside: Beside) -> Iterator[Change]:
    """The same, and one launch for all, where launches hold the device up."""
    if beside.launches_count:
        yield from compile_model(trace, beside)
        yield CaptureGraph()


def batch_calls(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Calls of a model in a row become one; small grids that a rule found are spread as it says."""
    yield from map(of_kernels.batch_calls, repeated_calls(trace))
    if "small_grids" in beside.rules:
        yield from map(of_kernels.spread_grids, small_grids(trace))


def keep_layout(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Converters go, with their launches where these count; grouped normalisations keep theirs, and pay for it."""
    for found in layout_kernels(trace):
        yield of_kernels.keep_layout(found, beside.launches_count)
        yield of_kernels.convert_groups(found)


def named_kernels(role: str, trace: Trace, target: Target) -> Iterator[Selection]:
    """All kernels of each device that the target names, in that role."""
    for device, kernels in _chosen(trace, target):
        yield Selection(device, {role: rows_of(kernels.filter("member"))})


def named_runs(trace: Trace, target: Target) -> Iterator[Selection]:
    """The kernels that the target names in runs of at least two, but the longest of each run."""
    for device, kernels in _chosen(trace, target):
        yield Selection(device, {"other": shorter_members(by_stream(kernels), any_run=True)})


def on_streams(runs: OneStreamRuns, count: int) -> ShortenKernels:
    """Small kernels of one stream on so many."""
    return of_kernels.overlap_streams(runs.on_streams(count))


def on_streams_of(trace: Trace, target: Target, count: int) -> Iterator[ShortenKernels]:
    """The same of the kernels that the target names."""
    return (on_streams(runs, count) for runs in one_stream_runs(trace, _members(trace, target)))


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
