"""Rules on kernels that waste time: they leave much of the device unused (small or tiny ones, streams in turns, a low
clock), or do work in vain, in pieces, in too wide a type, or in a shape that does not suit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.judge import Details, Row, Rows, declare
from timesink.diagnosis.rule import Limits, Rule, make_rule
from timesink.diagnosis.verdicts import Claim, Clear, Evidence, NotApplicable, Quantity, Undecided, Verdict
from timesink.diagnosis.words import number, of_period
from timesink.fixes import Fix
from timesink.fixes.advised import (
    DROP_CASTS,
    FILL_DEVICE,
    FILL_WARPS,
    FP32,
    FULL_CLOCK,
    FUSE_POINTWISE,
    FUSE_TINY_KERNELS,
    INDEPENDENT_STREAMS,
    REACH_BOUND,
)
from timesink.fixes.compute import BF16_WEIGHTS, FP16, FUSED_ATTENTION, FUSED_OPTIMIZER, TF32
from timesink.fixes.work import BATCH_SMALL_CALLS, CHANNELS_LAST, PADDING, STREAMS
from timesink.knowledge.assumptions import fixes as assumed
from timesink.knowledge.kernel_traits import REFERENCE
from timesink.measures.counters.sampled import low_activity, sampled, slow_clocks
from timesink.measures.kernels.attainable import far_operators
from timesink.measures.kernels.conversions import cast_pairs, layout_kernels
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.kernels.fusion import OptimizerKernels, optimizer_kernels
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.precision import untold_share, wide_kernels
from timesink.measures.kernels.shapes import alignment_known, misaligned_products
from timesink.measures.kernels.small_grids import (
    block_threads,
    blocks_known,
    grids_known,
    serialized_streams,
    small_grids,
    tiny_kernels,
)
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns
from timesink.measures.timeline.replay import pricers
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.units import NS_PER_MS, share_text
from timesink.untrusted import shortened
from timesink.whatif import Case, Change, Selection
from timesink.whatif.changes.kernels import ShortenKernels


def kernel_row(
    trace: Trace, kernels: ShortenKernels, beyond_ns: float = 0.0, change: Change | None = None, /, **figures: Any
) -> Row:
    """A device's kernels that a fix makes shorter. `saved_ratio` is the share of the step that goes with it: device
    time, and `beyond_ns`. The finding proposes `change`, which is that of the kernels if none is given."""

    def saved_ratio() -> float:
        step_ns = period_ns(trace, kernels.device)
        return (saved_per_step_ns(trace, kernels, Case.EXPECTED) + beyond_ns) / step_ns if step_ns else 0.0

    known = {"count": kernels.rows.size, "saved_ratio": saved_ratio}
    return Row(kernels.device, {**known, **figures}, kernels=kernels, change=change or kernels)


def kernel_rows(fix: Fix) -> Callable[[Trace], Rows]:
    """A row for each device of which a fix makes kernels shorter."""
    return lambda trace: [kernel_row(trace, kernels) for kernels in fix.replay(trace)]


def measured_rows(
    fix: Fix,
    measure: Callable[[Trace], Iterable[Any]],
    figures: Callable[[Any], dict[str, Any]],
    absent: Undecided | None = None,
) -> Callable[[Trace], Rows]:
    """A row for each device's record of a measure, whose `kernels` the fix makes shorter; `absent` where none is."""

    def rows(trace: Trace) -> Rows:
        found = [kernel_row(trace, fix.change(one.kernels), **figures(one)) for one in measure(trace)]
        return absent if absent is not None and not found else found

    return rows


def kernel_details(trace: Trace, row: Row, figures: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Whether more is saved than the kernels take, and what counters that were sampled along the timeline say of the
    GPU while they ran."""
    step_ns = period_ns(trace, row.device)
    longer = "and slow the kernels next to them" if figures["saved_ratio"] > figures["time_ns"] / step_ns else None
    means = sampled(trace, row.device, row.kernels.whole(trace)) if row.kernels is not None else ()
    return {"longer": longer}, tuple(
        Evidence(
            f"{mean.what} while they run", Quantity(mean.share, "ratio"), f"{mean.samples} samples", table="gpu_metrics"
        )
        for mean in means
    )


def kernel_rule(
    name: str,
    fix: Fix | None,
    rows: Callable[[Trace], Rows] | None = None,
    details: Details = kernel_details,
    most: int | None = None,
) -> Rule:
    """Declares a rule on kernels that a fix makes shorter; without `rows` they are those that the fix finds."""
    found = kernel_rows(fix) if rows is None and fix is not None else rows or (lambda _: ())
    return declare(name, found, details=details, fix=fix, most=most)


_NO_GRIDS: Final = Undecided("no grid, or no count of SMs, is recorded", "timesink capture nsys -- python train.py")
_SAMPLED: Final = "timesink capture nsys --gpu-metrics -- python train.py"
_HZ_PER_MHZ: Final = 1e6
_STREAMS: Final = 4  # those of the page of one-stream


def _small_grids(trace: Trace) -> Rows:
    """Where pages of unified memory move to a kernel, more blocks do not bring them sooner: its gain is a bound."""
    if not grids_known(trace):
        return _NO_GRIDS
    rows = []
    for kernels in small_grids(trace):
        row = kernel_row(trace, BATCH_SMALL_CALLS.change(kernels))
        rows.append(replace(row, change=None) if kernels.groups["paged"].size else row)
    return rows


def _part_warps(trace: Trace) -> Rows:
    if not blocks_known(trace):
        return _NO_GRIDS
    rows = []
    for kernels in FILL_WARPS.replay(trace):
        sizes = block_threads(trace)[kernels.rows].value_counts(sort=True).to_series().head(SHOWN_ROWS).to_list()
        rows.append(kernel_row(trace, kernels, sizes=f"{', '.join(map(str, sizes))} thread{'s' * (sizes != [1])}"))
    return rows


def _check_one_stream(trace: Trace, limits: Limits) -> Verdict:
    """Undecided where several streams could win more than the limit, for a trace shows no dependence."""
    if not grids_known(trace):
        return _NO_GRIDS
    devices = [runs for runs in one_stream_runs(trace) if runs.rows.size]
    if not devices:
        return NotApplicable("no two small kernels follow each other on one stream")
    facts = [(_won(trace, runs, limits["saved_ratio"]), runs) for runs in devices]
    won, runs = max(facts, key=lambda fact: fact[0].measured.value)
    if not won.is_over:
        return Clear(tuple(fact for fact, _ in facts))
    ask = f"timesink plan TRACE --change 'streams {_STREAMS}', for the part of the program that is independent"
    modelled = of_period(trace, runs.device, won.measured.value * period_ns(trace, runs.device))
    return Undecided(
        f"{runs.rows.size} small kernels of GPU {runs.device[1]} follow each other on one stream, and whether one "
        f"needs another the trace does not say: if none does, {_STREAMS} streams are modelled to win {modelled}, and "
        "may win more where kernels are mostly start and end",
        ask if runs.device[0] in pricers(trace) else "mark the steps and record ten: a price is per step",
    )


def _won(trace: Trace, runs: OneStreamRuns, limit: float) -> Evidence:
    change, step_ns = INDEPENDENT_STREAMS.change(runs, _STREAMS), period_ns(trace, runs.device)
    share = saved_per_step_ns(trace, change, Case.EXPECTED) / step_ns if step_ns else 0.0
    return Evidence(
        f"time that {_STREAMS} streams would save on small kernels of GPU {runs.device[1]}",
        Quantity(share, "ratio"),
        "independent kernels on several streams; over the steady steps",
        Quantity(limit, "ratio"),
        "device_ops",
        change.longest(trace),
    )


def _cast_pairs(trace: Trace, row: Row, figures: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Which types are cast to which, and the time of each pair."""
    assert row.kernels is not None
    usual, sampled = kernel_details(trace, row, figures)
    pairs = cast_pairs(trace, row.kernels.rows)
    most = ", ".join(f"{pair} {count} times" for pair, count, _ in pairs[:3])
    times = tuple(Evidence(pair, Quantity.ms(time), f"{count} casts in all") for pair, count, time in pairs)
    return {**usual, "pairs": most}, (*times, *sampled)


def _misaligned(trace: Trace) -> Rows:
    parts = misaligned_products(trace)
    if parts and not alignment_known(trace):
        return Undecided("neither names nor shapes tell how matmuls are aligned", "torch.profiler, record_shapes=True")
    return [kernel_row(trace, PADDING.change(part)) for part in parts]


_WIDE: Final = {
    "fp32": (TF32, "fp32 matmuls that do not use tensor cores", None),
    "chosen": (BF16_WEIGHTS, "fp32 convolutions", "Others beside them ran in TF32"),
    "fp32 alone": (BF16_WEIGHTS, "fp32 matmuls{around}", "TF32 does not speed them up on this GPU"),
    "fp32 to fp16": (FP16, "fp32 matmuls{around}", "This GPU's tensor cores need fp16"),
    "emulated": (FP16, "bf16 matmuls, which this GPU emulates,", None),
    "tf32": (BF16_WEIGHTS, "TF32 matmuls, and fp32 kernels around them,", None),
    "fp64": (FP32, "float64 kernels", None),
}
"""By kind of kernels, each a variant of the rule's texts: the fix, what they are called, and why they are slow."""


_NONE: Final = np.empty(0)


def _wide(trace: Trace) -> Rows:
    rows = []
    for kind, selections in wide_kernels(trace).items():
        for kernels in selections:
            told = _kind_told(kind, kernels)
            fix, subject, why = _WIDE[told]
            around = " and kernels around them" if kernels.groups.get("streaming", _NONE).size else ""
            change, said = fix.change(kernels), {"subject": subject.format(around=around), "why": why}
            row = kernel_row(trace, getattr(change, "kernels", change), 0.0, change, **said)
            rows.append(replace(row, fix=fix, variant=told))
    untold = 0.0 if any(row.figures["count"] for row in rows) else untold_share(trace)
    taken = f"fp32 or bf16 matmuls take {share_text(untold)} of a step"
    why = f"{taken}; nothing tells which types this GPU has tensor cores for"
    return Undecided(why, "a capture that names the GPU", most_ratio=untold) if untold else rows


def _kind_told(kind: str, kernels: Selection) -> str:
    """What kernels that are offered 16 bits are called by: what most of their products are."""
    fp32, fp16, emulated = (kernels.groups.get(role, _NONE).size for role in ("fp32", "fp16", "emulated"))
    if kind == "fp16":
        return "emulated" if emulated > fp16 else "fp32 to fp16"
    return kind if kind != "bf16" else "fp32 alone" if fp32 else "tf32"


def _layouts(trace: Trace) -> Rows:
    """Kernels that only change a layout; as conversions for convolutions where most of them are, by their names."""
    groups = {kernels.device: kernels.groups for kernels in layout_kernels(trace)}
    converted = {device for device, of_role in groups.items() if of_role["converter"].size > of_role["strided"].size}
    rows = (kernel_row(trace, kernels) for kernels in CHANNELS_LAST.replay(trace))
    return [replace(row, variant="converted" if row.device in converted else "") for row in rows]


def _optimizer_row(trace: Trace, kernels: OptimizerKernels) -> Row:
    """What fusing saves as the device shows it: kernel time, and gaps beyond the time of a fused step."""
    idle_ns, fixed_ns = per_step_ns(trace, kernels.device, kernels.idle), assumed.OPTIMIZER_FIXED_US.ns
    change, single = FUSED_OPTIMIZER.change(kernels.unfused), kernels.one_by_one
    row = kernel_row(
        trace,
        change.kernels,
        max(idle_ns - fixed_ns, 0.0) if kernels.unfused.rows.size else 0.0,
        change,
        per_step=kernels.per_step,
        in_step=None if period_name(trace) == "window" else kernels.per_step,
        kind=_of_parameters(single, kernels.per_step),
        idle_ms=idle_ns / NS_PER_MS,
        waited_ns=idle_ns if idle_ns > fixed_ns else None,
    )
    return replace(row, also=kernels.idle, variant="" if kernels.takes_fused else "other")


def _of_parameters(single: float, kernels: float) -> str:
    """How many of an optimizer's kernels update one parameter."""
    if not single:
        return "over lists of parameters"
    return "one or more for each parameter" if single == kernels else f"{single:,.0f} of them for one parameter each"


_CONTENDED: Final = 64  # rows added to one address: two warps' worth wait for each other


def _operators(trace: Trace) -> Rows:
    if not trace[HOST_OPS].height:
        return NotApplicable("no operator is recorded")
    far = far_operators(trace)
    if not far:
        return Undecided("no operator's shapes, or not this GPU's peaks, are known", _SHAPES)
    rows = []
    for operator in far:
        figures = {"attained_ratio": operator.attained_ratio, "limiter": operator.limiter, "operator": operator.name}
        row = kernel_row(trace, REACH_BOUND.change(operator.kernels), subject=f"kernels of {operator.name}", **figures)
        variant = "" if operator.masked is None else "masked" if operator.masked else "attention"
        if operator.per_address > _CONTENDED:
            variant = "contended"
            row = replace(row, figures={**row.figures, "added": f"{operator.per_address:,.0f}"})
        rows.append(replace(row, variant=variant))
    return rows


def _reference(trace: Trace) -> Iterator[Row]:
    """Kernels of a library's reference implementation, per device."""
    ops = trace[DEVICE_OPS].with_row_index("row")
    ops = ops.filter(matches(ops["name"], REFERENCE))
    for device, own in ops.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        at, time = (int(device[0]), int(device[1])), Intervals.of(own.sort("start_ns"))
        length = own.select("row", pl.col("name").cast(pl.String), ns=pl.col("end_ns") - pl.col("start_ns"))
        longest = length.sort("ns", "row", descending=[True, False])
        figures = {
            "share_ratio": per_step_ns(trace, at, time) / (period_ns(trace, at) or 1.0),
            "count": number(own.height, "kernel"),
            "longest": shortened(longest["name"][0], _LONGEST_NAME),
        }
        rows = tuple(longest["row"].head(SHOWN_ROWS).to_list())
        yield Row(at, figures, time, claim=Claim({at: time}), rows=rows)


_LONGEST_NAME: Final = 60  # letters of a kernel's name in a sentence

_SHAPES: Final = "torch.profiler with record_shapes=True, on a GPU that timesink knows"

_TINY: Final = measured_rows(
    FUSE_TINY_KERNELS,
    tiny_kernels,
    lambda tiny: {"kernels": tiny.per_step, "of": tiny.of_per_step, "busy_ratio": tiny.busy_ratio},
)
_TURNS: Final = measured_rows(
    STREAMS,
    serialized_streams,
    lambda one: {"waits": one.waits, "turns": one.turns, "streams": ", ".join(map(str, one.streams))},
)
_IDLE_MULTIPROCESSORS: Final = measured_rows(
    FILL_DEVICE,
    low_activity,
    lambda part: {"busy_ratio": part.busy_ratio, "active_ratio": part.active.share, "samples": part.active.samples},
    Undecided("no samples of active SMs were taken while kernels ran", _SAMPLED),
)
_SLOW_CLOCKS: Final = measured_rows(
    FULL_CLOCK,
    slow_clocks,
    lambda clock: {
        "clock_ratio": clock.clock_hz / clock.most_hz,
        "clock_mhz": clock.clock_hz / _HZ_PER_MHZ,
        "most_mhz": clock.most_hz / _HZ_PER_MHZ,
        "samples": clock.samples,
    },
    Undecided("no samples of the clock were taken, or the highest clock is not stated", _SAMPLED),
)

RULES: Final = (
    kernel_rule("small-grids", BATCH_SMALL_CALLS, _small_grids),
    make_rule("one-stream", _check_one_stream),
    kernel_rule("tiny-kernels", FUSE_TINY_KERNELS, _TINY),
    kernel_rule("busy-not-working", FILL_DEVICE, _IDLE_MULTIPROCESSORS),
    kernel_rule("clock-throttled", FULL_CLOCK, _SLOW_CLOCKS),
    kernel_rule("unused-lanes", FILL_WARPS, _part_warps),
    kernel_rule("stream-serialization", STREAMS, _TURNS),
    kernel_rule("dtype-conversion", DROP_CASTS, details=_cast_pairs),
    kernel_rule("layout-conversion", CHANNELS_LAST, _layouts),
    kernel_rule("attention-unfused", FUSED_ATTENTION),
    kernel_rule("pointwise-unfused", FUSE_POINTWISE),
    kernel_rule("shape-alignment", PADDING, _misaligned),
    kernel_rule("precision", None, _wide),
    declare(
        "optimizer-unfused",
        lambda trace: [_optimizer_row(trace, kernels) for kernels in optimizer_kernels(trace)],
        fix=FUSED_OPTIMIZER,
    ),
    declare("reference-kernels", _reference),
    kernel_rule("far-from-bound", REACH_BOUND, _operators, most=SHOWN_ROWS),
)
