"""How fixes are replayed: what each makes of kernels and host time that a measure found, or that a target names.

Of kernels that is the share of its time that each keeps, at three cases. "Measured" without more is: on the captures of
the split `tune` of benchmarks/faults, whose gains were measured on an H200.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.fixes import Beside
from timesink.fixes.precisions import autocast, compiled
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import PREFETCHES_PAGES
from timesink.knowledge.kernel_traits import MIGRATION
from timesink.knowledge.kernels import PRODUCTS
from timesink.measures.compile.graph_capture import graph_obstacle
from timesink.measures.habits.extra_work import ExtraWork
from timesink.measures.habits.repeated_calls import layers, repeated_calls
from timesink.measures.habits.repeated_kernels import parameter_loops
from timesink.measures.habits.unused_work import PartlyUsed
from timesink.measures.kernels.conversions import layout_kernels
from timesink.measures.kernels.facts import by_stream, kernel_facts, rows_of
from timesink.measures.kernels.fusion import eager_runs, shorter_members, unfused_attention
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs, why_no_runs
from timesink.measures.kernels.precision import four_byte_kernels, with_casts
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import small_grids
from timesink.measures.repeats.one_pass import OnePass
from timesink.measures.steps.per_step import in_most_steps
from timesink.measures.timeline import Device
from timesink.measures.timeline.known import trains
from timesink.measures.timeline.replay import graphs
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.whatif import EVERYTHING, Case, Change, Range, Selection, Target, chosen_ops
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import (
    EnterRegions,
    FuseOptimizer,
    ShortenKernels,
    half_at_least,
    shorten,
)
from timesink.whatif.edit import Together

COMPILES: Final = frozenset({"compile", "compile_graph"})


def drop_extra_work(work: ExtraWork, waits: bool = False) -> Together:
    """Device work that need not be done goes, and the host's time, if need be its `waits`, that is there for it."""
    target = Target("windows", windows=work.host)
    waiting = (RemoveSyncs(target),) if waits else ()
    return Together((extra_kernels(work), *waiting, ScaleHost(target, 0.0)))


def extra_kernels(work: ExtraWork) -> ShortenKernels:
    """The device's part of that."""
    return drop_work(Selection(work.device, {"extra": work.rows}))


def keep_a_part(found: PartlyUsed) -> ShortenKernels:
    """Of work that is used in part, what that part takes."""
    rows = found.work.rows
    return ShortenKernels(found.work.device, rows, tuple(np.full(rows.size, share) for share in found.remains))


def record_nothing(target: Target) -> ScaleHost:
    """Operators that record no gradients take the CPU less time."""
    return ScaleHost(target, fixes.RECORDING_LEFT)


def batched_kernels(found: OnePass) -> ShortenKernels:
    """Of the kernels that go, what remains of each elsewhere."""
    return ShortenKernels(found.work.device, found.work.rows, found.remains)


def batch_units(trace: Trace, found: OnePass) -> Together:
    """The first unit of each row does the work of all in one pass; the others go, with the host's time and waits."""
    rows = np.concatenate((found.first, found.work.rows))
    order, gone = np.argsort(rows), np.zeros(found.work.rows.size)
    longer = (np.full(found.first.size, factor) for factor in found.longer(trace))
    passed = ShortenKernels(
        found.work.device, rows[order], tuple(np.concatenate((kept, gone))[order] for kept in longer)
    )
    target = Target("windows", windows=found.work.host)
    return Together((passed, RemoveSyncs(target), ScaleHost(target, 0.0)))


def waits_that_may_go(trace: Trace) -> tuple[Target, ...]:
    """Every wait; none where managed memory moves in most steps, by itself or because the program asks for it: the CPU
    uses it in turn with the GPU, and waits for that."""
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    managed = (pl.col("src_memory") == "managed") | (pl.col("dst_memory") == "managed")
    moved = ops.filter(matches(ops["name"], MIGRATION) | ops.select(managed.fill_null(False)).to_series())
    asked = calls.filter(matches(calls["name"], PREFETCHES_PAGES))
    shared = any(in_most_steps(trace, rows) for rows in (moved, asked))
    return () if shared else (EVERYTHING,)


def merge_loops(work: ExtraWork) -> FuseOptimizer:
    """A loop over tensors, in the host time that is there for it, as few operations on lists."""
    return FuseOptimizer.of(Selection(work.device, {"unfused": work.rows}), Target("windows", windows=work.host))


def to_16_bits_beside(trace: Trace, beside: Beside, kind: str) -> Iterator[Change]:
    """Products may be misaligned in 16 bits, unless a compiler pads them; it fuses the casts, too."""
    compiled, padded = (bool(beside.chosen & some) for some in (COMPILES, {"padding"}))
    checked = "debugging_left_on" in beside.rules and "drop_debugging" not in beside.chosen
    for kernels in four_byte_kernels(trace)[kind]:
        part = kernels
        if (compiled or padded) and "misaligned" in kernels.groups:
            groups = dict(kernels.groups)
            groups["tf32"] = np.union1d(groups["tf32"], groups.pop("misaligned"))
            part = replace(kernels, groups=groups)
        yield autocast(part, compiled, checked)


def fuse_attention_beside(trace: Trace, beside: Beside) -> Iterator[Change]:
    """In 16 bits a fused kernel is fast, whatever the type was before."""
    for part in unfused_attention(trace):
        narrowed = {role.removesuffix("_wide"): rows for role, rows in part.groups.items()}
        kernels = Selection(part.device, narrowed) if beside.chosen & {"bf16", "bf16_weights", "fp16"} else part
        yield fuse_attention(kernels, beside.launches_count)


def compile_model(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Eager runs of the model become one kernel each, and the compiler pads products; loops over parameters are no part
    of the model. Launches count where they hold the device up: elsewhere a replay of a host that the profiler slows
    would promise too much."""
    loops = np.concatenate([np.empty(0, np.int64), *(work.rows for work in parameter_loops(trace))])
    for runs in eager_runs(trace):
        of_model = {role: rows[~np.isin(rows, loops)] for role, rows in runs.groups.items()}
        yield from compiled(replace(runs, groups=of_model), beside.launches_count)
    if beside.launches_count:
        for found in layers(trace):
            yield EnterRegions(found.device, found.rows, trains(trace))
    yield from map(align_products, misaligned_products(trace))


def capture_beside(trace: Trace, beside: Beside) -> tuple[Change, ...]:
    """One launch for all, where launches hold the device up and nothing but memory, which has a fix, forbids it."""
    return () if graph_refused(trace) or not beside.launches_count else (CaptureGraph(),)


_NO_GRAPH: Final = {
    "data_parallel": "no graph holds {}",
    "instantiates": "the step is in a graph already, which {} makes anew",
    "captured": "the step is in a graph already: {} launches most kernels",
    "waits": "no graph holds {}, which stands between most launches",
    "polls": "no graph holds {}, which stands between most launches",
}


def graph_refused(trace: Trace) -> str:
    """Why no graph can hold the step; memory that it takes has a fix of its own."""
    obstacle = graph_obstacle(trace)
    return "" if obstacle is None else _NO_GRAPH.get(obstacle.kind, "").format(obstacle.name)


def compile_to_graph(trace: Trace, beside: Beside) -> Iterator[Change]:
    """A compiled model, and one launch for all."""
    if captured := capture_beside(trace, beside):
        yield from compile_model(trace, beside)
        yield from captured


def batch_calls_beside(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Calls of a model in a row become one; small grids that a rule found are spread as it says."""
    yield from map(batch_calls, repeated_calls(trace))
    if "small_grids" in beside.rules:
        yield from map(spread_grids, small_grids(trace))


def keep_layout_beside(trace: Trace, beside: Beside) -> Iterator[Change]:
    """Converters go, with their launches where these count; grouped normalisations keep theirs, and pay for it."""
    for found in layout_kernels(trace):
        yield keep_layout(found, beside.launches_count)
        yield convert_groups(found)


def named_kernels(role: str, trace: Trace, target: Target) -> Iterator[Selection]:
    """All kernels of each device that the target names, in that role."""
    for device, kernels in _chosen(trace, target):
        yield Selection(device, {role: rows_of(kernels.filter("member"))})


def named_runs(trace: Trace, target: Target) -> Iterator[Selection]:
    """The kernels that the target names in runs of at least two, but the longest of each run."""
    for device, kernels in _chosen(trace, target):
        yield Selection(device, {"other": shorter_members(by_stream(kernels), any_run=True)})


def named_to_cast(role: str, trace: Trace, target: Target) -> Iterator[Selection]:
    """The same as autocast takes them: products in that role, with what tells their casts, and `streaming` ones."""
    for device, kernels in _chosen(trace, target):
        own, product = kernels.filter("member"), pl.col("family").is_in((*PRODUCTS, "gemv"))
        groups = {role: rows_of(own.filter(product)), "streaming": rows_of(own.filter(~product))}
        yield with_casts(trace, Selection(device, groups))


def on_streams(runs: OneStreamRuns, count: int) -> ShortenKernels:
    """Small kernels of one stream on so many."""
    return overlap_streams(runs.on_streams(count))


def on_streams_of(trace: Trace, target: Target, count: int) -> Iterator[ShortenKernels]:
    """The same of the kernels that the target names."""
    return (on_streams(runs, count) for runs in one_stream_runs(trace, _members(trace, target)))


def no_streams(trace: Trace, target: Target | None) -> str:
    """Why there is nothing to put on several streams."""
    return why_no_runs(trace, None if target is None else _members(trace, target))


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


def fuse_attention(kernels: Selection, launches: bool = False) -> ShortenKernels:
    """Attention written out becomes one kernel: what is `between` its products goes; with `launches`, so do most of
    theirs.

    Products of the role `product_wide` are in fp32, where no fused kernel is fast.
    """
    change = shorten(
        kernels, product=fixes.ATTENTION_PRODUCTS, between=fixes.ATTENTION_BETWEEN, product_wide=fixes.ATTENTION_WIDE
    )
    return replace(change, launches_saved=fixes.ATTENTION_LAUNCHES) if launches else change


def fuse_pointwise(kernels: Selection) -> ShortenKernels:
    """Chains become one kernel each, which takes at least as long as its longest member; these are the others."""
    return shorten(kernels, other=fixes.POINTWISE_OTHERS)


def keep_layout(kernels: Selection, launches: bool = False) -> ShortenKernels:
    """Kernels that only change a layout go, but for `grouped` ones; with `launches`, theirs as far as converters do.

    A copy of what a concatenation has just `packed` may be there for its reader: hopefully it goes. Other kernels are
    chosen `beside` them, too: of the normalisations that have one block a channel, the share of the device stays that
    those blocks fill, and cautiously they gain half of that. What stays of each: `fixes`.
    """
    kernels = kernels.without("grouped")
    change = shorten(
        kernels, strided=fixes.LAYOUT_STRIDED, packed=fixes.LAYOUT_PACKED, converter=fixes.LAYOUT_CONVERTERS
    )
    if launches:
        change = replace(change, launches_saved=Range(*(1.0 - fixes.LAYOUT_CONVERTERS.at(case) for case in Case)))
    if kernels.beside is None:
        return change
    others = shorten(kernels.beside, convolution=fixes.CONVOLUTIONS_BESIDE)
    filled = np.where(np.isnan(kernels.beside.best), 1.0, kernels.beside.best)
    filling = half_at_least(kernels.beside, filled, filled)
    keep = np.minimum(others.keep, filling.keep)
    return replace(change, beside=replace(others, keep=tuple(keep)))


def convert_groups(kernels: Selection) -> ShortenKernels:
    """With channels last, what the compiled converters of convolutions did between `grouped` normalisations, copies of
    PyTorch do, there and back, and take longer."""
    rows = kernels.groups["grouped"]
    keep = tuple(np.full(rows.size, fixes.LAYOUT_GROUPED.at(case)) for case in Case)
    return ShortenKernels(kernels.device, rows, keep)


def align_products(kernels: Selection) -> ShortenKernels:
    """Products of aligned operands: they usually reach `fixes.ALIGNED_REACH` of the attainable bound (`best`), and
    cautiously gain half of the way there. Where nothing but a name is known, only products since Hopper gain much."""
    named = shorten(kernels, named=fixes.ALIGNED_BY_NAME, named_since_hopper=fixes.ALIGNED_SINCE_HOPPER)
    known = half_at_least(kernels, kernels.best / fixes.ALIGNED_REACH.value, kernels.best)
    shares = zip(named.keep, known.keep, strict=True)
    return replace(known, keep=tuple(np.where(np.isnan(share), by_name, share) for by_name, share in shares))


def spread_grids(kernels: Selection) -> ShortenKernels:
    """Kernels spread over all multiprocessors, of which they fill `best`: half of the gain is expected, since the same
    work is cut in more pieces."""
    return half_at_least(kernels, fixes.GRIDS_SPREAD.value * kernels.best, kernels.best)


def fill_warps(kernels: Selection) -> ShortenKernels:
    """Blocks of whole warps: usually the share of lanes that is used stays; cautiously all of the time."""
    return ShortenKernels(kernels.device, kernels.rows, (np.ones(kernels.rows.size), kernels.usual, kernels.best))


def batch_calls(kernels: Selection) -> ShortenKernels:
    """Calls of a model as one: `usual` of the time of each kernel but the first call's stays, cautiously half-way to
    all of it, and nobody launches it."""
    change = half_at_least(kernels, kernels.usual, kernels.best)
    return replace(change, launches_saved=Range(fixes.CAUTIOUS_SHARE.value, 1.0, 1.0))


def overlap_streams(kernels: Selection) -> ShortenKernels:
    """Kernels that run at once with one of another stream; cautiously two fifths of the gain, where both kernels then
    share the memory's bandwidth."""
    keep = (1.0 - fixes.STREAMS_CAUTIOUS.value * (1.0 - kernels.usual), kernels.usual, kernels.best)
    return ShortenKernels(kernels.device, kernels.rows, keep)


def half_the_way(kernels: Selection) -> ShortenKernels:
    """Kernels at the highest clock, of which they had `best`, where memory keeps its own; or with other tiles, at the
    bound of which they reach `best`: half of that is expected, and maybe nothing is won."""
    half = (1.0 + kernels.best) / 2.0
    return ShortenKernels(kernels.device, kernels.rows, (np.ones(half.size), half, kernels.best))


def merge_tiny(kernels: Selection) -> ShortenKernels:
    """Most very short kernels are merged into others: of those, what any kernel takes goes, and `best` stays."""
    merged = fixes.TINY_MERGED
    keep = tuple(1.0 - merged.at(case) * (1.0 - kernels.best) for case in Case)
    return ShortenKernels(kernels.device, kernels.rows, keep)


def reach_bound(kernels: Selection) -> ShortenKernels:
    """An operator at 70 % of its attainable bound (`best`): what a well-written kernel of everyday shapes reaches."""
    return half_at_least(kernels, kernels.best / fixes.BOUND_REACHED.value, kernels.best)


def drop_work(work: Selection) -> ShortenKernels:
    """Device work that need not be done goes, and the host's time from the call before to each of its launches;
    cautiously half of that, which holds what the program does there for other ends."""
    gone = np.zeros(work.rows.size)
    saved = Range(fixes.CAUTIOUS_SHARE.value, 1.0, 1.0)
    return ShortenKernels(work.device, work.rows, (gone, gone, gone), launches_saved=saved)


def join_graphs(kernels: Selection, entries: Int64Array, beyond: float) -> ShortenKernels:
    """Pieces of a compiled program become one graph, whose fused kernels take `usual` of their time, at best `best`.

    Of the host's time up to the launches of `entries` the share `beyond` comes after a break: Python, guards and
    dispatch, all of which go; cautiously half.
    """
    change = half_at_least(kernels, kernels.usual, (kernels.usual + kernels.best) / 2.0)
    return replace(change, launches_saved=Range(fixes.CAUTIOUS_SHARE.value * beyond, beyond, beyond), entries=entries)
