"""The tables of `timesink show ops`: every operator beside its roofline, recorded, profiled or planned."""

from collections.abc import Iterator, Sequence
from math import isinf
from operator import itemgetter
from typing import Any

import polars as pl

from timesink.diagnosis.words import replay_notes
from timesink.errors import UsageError
from timesink.knowledge.assumptions import fixes, kernels, machines
from timesink.knowledge.gpus import GpuPeaks, Precision
from timesink.knowledge.kernels import PASSES, PRODUCTS, KernelFamily
from timesink.knowledge.operators import WorkKind
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.knowledge.work import product_sizes
from timesink.measures.counters import kernel_counters
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.roofline import KernelRoofline
from timesink.measures.counters.sampled import ACTIVE, counter_means
from timesink.measures.idle.blame import idle_shares
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.attainable import TENSOR_FORMATS, attainable_ridge, bound_at_peak
from timesink.measures.kernels.classification import FORWARD, Classification, classification
from timesink.measures.kernels.facts import device_peaks, kernel_facts
from timesink.measures.kernels.planned import Batch, Planned, backward_operators, forward_operators
from timesink.measures.kernels.quantised import quantised_products
from timesink.measures.timeline import device_timeline
from timesink.memory_plan import Model
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.ncu.causes import actions
from timesink.units import share_text, time_text
from timesink.views import Cell, Page, Sheet, first_rows, listed, without_columns

_TERA = 1e12


def classification_page(trace: Trace, top: int, named: GpuPeaks | None = None) -> Page:
    """The operators of the steady steps, on the GPU of the trace or on the one `named`; without operators kernels, by
    the counters sampled meanwhile, else by their kinds. `UsageError` where there are none."""
    found = classification(trace, named)
    if found is None or not found.operators.height:
        if rows := list(_sampled(trace)):
            sheet = listed("classify.kernels", rows, _BY_SAMPLES)
            return Page("what limits the GPU, by sampled counters", (first_rows(sheet, top),))
        if rows := list(_by_kind(trace)):
            sheet = without_columns(listed("classify.kernels", rows, _BY_KIND))
            notes = (_DECIDED_BY, *replay_notes(trace))
            return Page("what may limit the GPU, by the kinds of kernels", (first_rows(sheet, top),), notes)
        raise UsageError(
            "; ".join(
                ("no kernel of this trace belongs to an operator, and no counters were sampled", *replay_notes(trace))
            ),
            remedy="capture operators with their shapes (timesink capture torch), or sample counters (timesink capture "
            "nsys --gpu-metrics), or give an ncu report",
        )
    gpu = named or device_peaks(trace).get(found.device)
    rows = [_recorded(row, found) for row in found.operators.iter_rows(named=True)]
    sheet = first_rows(listed("classify.operators", rows), top)
    sheets = tuple(sheet for sheet in (sheet, _quantised(trace), _few_beside_many(found)) if sheet.rows)
    return Page(_headline(found, gpu), sheets, tuple(_notes(trace, found, gpu)))


_BY_SAMPLES = (
    f"memory or compute bound: at {share_text(fixes.BOUND_REACHED.value)} of what real kernels reach of memory or "
    "tensor cores; links: collectives; launch: the GPU waits for the CPU; other units are not sampled"
)


def _sampled(trace: Trace) -> Iterator[tuple[Cell, ...]]:
    """Kernels of each family that was sampled often enough, and the idle time, of the recorded time of each device."""
    lines = device_timeline(trace)
    means = [one for one in counter_means(trace) if one.part == "kernels"]
    for device in dict.fromkeys(one.device for one in means):
        span_ns = max(lines[device].span_ns, 1)
        for one in (one for one in means if one.device == device):
            shares = {part.what: part.share for part in one.shares}
            memory = shares.get("DRAM read", 0.0) + shares.get("DRAM written", 0.0)
            tensor = shares.get("tensor cores active", 0.0)
            reached = {"memory": memory / machines.DRAM_SHARE.value, "compute": tensor / machines.TENSOR_SHARE.value}
            bound = max(reached, key=reached.__getitem__)
            said = bound if reached[bound] >= fixes.BOUND_REACHED.value else "neither memory nor tensor cores"
            said = "links" if one.name == "communication" else said
            figures = (one.time_ns, one.time_ns / span_ns, memory, tensor, shares.get(ACTIVE))
            yield (*device, one.name, *figures, said)
        yield from _idle(trace, device, span_ns)


_BY_KIND = (
    f"of a timeline alone: kernels under {kernels.TINY_US.value:.0f} us mostly start and end; passes over memory do "
    "few operations a byte, whatever the sizes; whether matmuls compute or read is decided by their sizes; links: "
    "collectives; launch: the GPU waits for the CPU"
)
_DECIDED_BY = (
    "what decides: shapes (timesink capture torch), sampled counters (timesink capture nsys --gpu-metrics), or a "
    "report of ncu"
)


def _by_kind(trace: Trace) -> Iterator[tuple[Cell, ...]]:
    """What kernels of each family may be bound by, of the recorded time of each device, and its idle time."""
    lines, facts = device_timeline(trace), kernel_facts(trace)
    for device in facts.devices:
        span_ns = max(lines[device].span_ns, 1)
        is_short = pl.col("length") < kernels.TINY_US.ns
        kind = pl.when(is_short).then(pl.lit(None)).otherwise(pl.col("family"))
        parts = facts.on(device).group_by(kind.alias("kind")).agg(pl.col("length").sum())
        for family, time_ns in parts.sort("length", "kind", descending=[True, False]).iter_rows():
            said = next((words for of, words in _KINDS if family in of), "not told by the name")
            yield (*device, family or "short kernels", time_ns, time_ns / span_ns, None, None, None, said)
        yield from _idle(trace, device, span_ns)


_KINDS: Sequence[tuple[tuple[str | None, ...], str]] = (
    ((None,), "neither: launch and latency"),
    (PASSES, "memory"),
    (PRODUCTS, "compute or memory, by their sizes"),
    ((KernelFamily.COMMUNICATION,), "links"),
)


def _idle(trace: Trace, device: tuple[int, int], span_ns: int) -> Iterator[tuple[Cell, ...]]:
    for idle in idle_shares(trace):
        if (idle.rank, idle.device) == device:
            why = "launch" if idle.cause in LAUNCHING_CAUSES else "idle"
            words = IDLE_WORDS.get(idle.cause, idle.cause)
            yield (*device, f"idle: {words}", idle.idle_ns, idle.idle_ns / span_ns, None, None, None, why)


def _recorded(row: dict[str, Any], found: Classification) -> tuple[Cell, ...]:
    flops, moved, bound_ns, took = row["flops"], row["bytes"], row["bound_ns"], row["device_ns"]
    sizes = product_sizes(row["name"], row["input_shapes"]) if row["input_shapes"] else None
    even = sizes is None or not any(size % _EVEN for size in (sizes[0], *sizes[1]))
    intensity = flops / moved if moved else None
    calls, flops_of_step, moved_of_step, bound_of_step, time_of_step = (
        None if value is None else value / found.step_count for value in (row["calls"], flops, moved, bound_ns, took)
    )
    return (
        *(row["name"], row["input_shapes"], row["module"], row["pass"], calls, flops_of_step, moved_of_step),
        *_rates(flops, moved, row["limiter"], bound_ns),
        *(_tera(flops, took), bound_of_step, time_of_step, row["attained_ratio"]),
        took / found.step_ns if found.step_ns else None,
        _action(row["kind"], row["limiter"], row["attained_ratio"], intensity, even=even),
    )


_EVEN = 8  # elements of 16 bits in the 16 bytes of an aligned load


def _rates(flops: float | None, moved: float | None, limiter: str | None, bound_ns: float | None) -> tuple[Cell, ...]:
    """Intensity, bound, and the operations per second that the bound allows."""
    intensity = flops / moved if flops and moved else None
    return intensity, limiter, _tera(flops, bound_ns)


def _tera(flops: float | None, time_ns: float | None) -> float | None:
    return flops / time_ns * 1e9 / _TERA if flops and time_ns else None


def _headline(found: Classification, gpu: GpuPeaks | None) -> str:
    """What share of the kernels' time is classified, what bounds it, and how near to that it comes."""
    known = found.operators.drop_nulls("bound_ns")
    if not known.height:
        if not found.has_shapes:
            return "no operator's work is known, as no shapes were recorded: capture with record_shapes=True"
        if gpu is None:
            return "no bound is known, as this GPU's peaks are not: name it or one like it with --gpu"
        return "no bound is known: none of these operators is one whose work shapes tell"
    time_ns = int(known["device_ns"].sum())
    bounds = known.group_by("limiter").agg(pl.col("device_ns").sum()).sort("device_ns", descending=True).rows()
    words = ", ".join(f"{share_text(part / found.busy_ns)} {limiter} bound" for limiter, part in bounds)
    reached = float(known["bound_ns"].sum()) / time_ns
    return (
        f"Kernels take {time_text(found.busy_ns / found.step_count)} of a step. Operators of known work take "
        f"{share_text(time_ns / found.busy_ns)} of that ({words}), at {share_text(reached)} of what is attainable"
    )


def _notes(trace: Trace, found: Classification, gpu: GpuPeaks | None) -> Iterator[str]:
    if gpu is not None:
        yield _ridge_note(gpu, Precision.BF16)
    if found.operators["module"].null_count() == found.operators.height:
        yield "no module is recorded: capture with Python stacks (with_stack=True), or name ranges"
    known = device_peaks(trace).get(found.device)
    if gpu is not None and known is not None and gpu is not known:
        yield f"compared with {gpu.product}, as --gpu says, and not with the {known.product} that the trace names"
    yield from replay_notes(trace)
    rank, device = found.device
    yield f"shown: rank {rank}, GPU {device}, which has the most kernel time"


def _ridge_note(gpu: GpuPeaks, precision: Precision) -> str:
    ridge, attainable = gpu.ridge(precision), attainable_ridge(gpu, precision)
    if ridge is None or attainable is None:
        return f"peaks from: {gpu.source}"
    return (
        f"{gpu.product}, {precision}: compute-bound from {attainable:.0f} op/B on, by what real kernels reach "
        f"({ridge:.0f} by the data sheet: {gpu.source})"
    )


def _action(
    kind: str | None, limiter: str | None, reached: float | None, intensity: float | None = None, *, even: bool = True
) -> str | None:
    """What to do about one operator; None where its bound is not known. `reached` is None for one that is planned;
    `even`: its sizes are multiples of 8, which the fast kernels of products take."""
    if limiter is None or kind is None:
        return None
    if limiter == "latency":
        return "too small alone: fuse it, or a CUDA graph"
    group = kind if kind == WorkKind.ATTENTION else "product" if kind in _PRODUCTS else "other"
    few = group == "product" and intensity is not None and intensity < _FEW
    if reached is not None and reached < fixes.BOUND_REACHED.value:
        return _FAR["few" if few else "uneven" if group == "product" and not even else group]
    if limiter == "compute":
        return "large tiles come near it" if reached is None else "at its roof: a narrower format"
    return _MOVES["weights" if few else group]


_PRODUCTS = (WorkKind.MATMUL, WorkKind.CONVOLUTION)
_MOVES = {
    WorkKind.ATTENTION: "reads the cache: fewer key heads, narrower keys",
    "weights": "reads weights: more rows, narrower weights",
    "product": "fuse what follows into it",
    "other": "moves bytes: fuse it",
}
_FEW = 64.0  # operations per byte of a product in 16 bits with about as many rows: its weights are most of the bytes
_FAR = {
    WorkKind.ATTENTION: "far from its bound: another attention backend",
    "product": "far from its bound: another tile or library (cuBLASLt)",
    "few": "far from its bound: a kernel for few rows (GEMV, split-K)",
    "uneven": "far from its bound: sizes in multiples of 8",
    "other": "far from its bound: fuse it, or profile it with ncu",
}


def counters_page(trace: Trace, top: int) -> Page:
    """The kernels of a profiler's report, by their counters, at the clock they were profiled at."""
    total_ns = sum(kernel.duration_ns or 0.0 for kernel in kernel_counters(trace))
    found = [limits for limits in kernel_limits(trace) if limits is not None and limits.roofline is not None]
    found.sort(key=lambda limits: (-(limits.kernel.duration_ns or 0.0), limits.kernel.profile))
    do = actions((limits.kernel, limits) for limits in found)
    rows = [
        (*_profiled(limits, limits.roofline, total_ns), action)
        for limits, action in zip(found, do, strict=True)
        if limits.roofline is not None
    ]
    sheet = first_rows(listed("classify.operators@profiled", rows), top)
    left = len(kernel_counters(trace)) - len(found)
    notes = (f"{left} launches are left out: their counters failed or tell no unit",) if left else ()
    return Page("profiled kernels beside their rooflines", (sheet,), notes)


def _profiled(limits: KernelLimits, line: KernelRoofline, total_ns: float) -> tuple[Cell, ...]:
    dram, main = line.memory_of("dram"), max(line.compute, key=lambda roof: roof.share, default=None)
    bound = bound_at_peak(
        0.0 if dram is None else dram.share * line.duration_ns,
        0.0 if main is None else main.share * line.duration_ns,
        is_tensor=main is not None and main.precision in TENSOR_FORMATS,
    )
    moved, time_ns = None if dram is None else dram.bytes, line.duration_ns
    return (
        *(limits.kernel.profile, limits.kernel.name, line.flops, moved),
        *_rates(line.flops, moved, bound.limiter, bound.bound_ns),
        *(_tera(line.flops, time_ns), bound.bound_ns, time_ns, bound.bound_ns / time_ns, time_ns / total_ns),
    )


def planned_page(model: Model, gpu: GpuPeaks, sequences: int, rows: int, dtype: str = "bf16") -> Page:
    """The operators of a model that is not running: forward and backward over the sequences, and one more token."""
    batch, one = Batch(sequences, rows, rows, dtype), Batch(sequences, 1, rows, dtype)
    prefill, decode = forward_operators(model, batch, gpu), forward_operators(model, one, gpu)
    backward = backward_operators(model, batch, gpu)
    tokens = f"{sequences} x {rows:,} tokens"
    sheets = (
        _pass("forward", f"forward, or prefill: {tokens}", prefill),
        _pass("backward", f"backward: {tokens}", backward),
        _pass("decode", f"decode: a token for each of {sequences}, {rows:,} tokens behind it", decode),
        _beside(prefill, decode, batch, one),
    )
    times = ", ".join(
        f"{name} {time_text(sum(one.bound.bound_ns for one in some))}"
        for name, some in (("forward", prefill), ("backward", backward), ("a token of decoding", decode))
    )
    title = f"{model.layers} layers of {model.hidden:,} on {gpu.product} in {dtype}, at least: {times}"
    notes = (
        _ridge_note(gpu, Precision(dtype)),
        "one GPU; eager operators with fused norms and attention; no optimizer",
    )
    return Page(title, sheets, notes)


def _pass(key: str, title: str, operators: Sequence[Planned]) -> Sheet:
    """One pass, in the order it runs; figures are of all runs of an operator together."""
    total_ns, rows = sum(one.bound.bound_ns for one in operators), list[tuple[Cell, ...]]()
    for one in operators:
        work, bound, moved = one.work, one.bound, float(one.work.bytes)
        rates = _rates(work.flops, moved, bound.limiter, bound.bound_ns / one.count)
        shares = (bound.bound_ns, bound.bound_ns / total_ns, _action(work.kind, bound.limiter, None, one.intensity))
        rows.append((one.part, one.name, one.count, one.count * work.flops, one.count * moved, *rates, *shares))
    return replace(listed("classify.pass", rows), key=key, title=title)


def _beside(prefill: Sequence[Planned], decode: Sequence[Planned], many: Batch, few: Batch) -> Sheet:
    """The same operators in both phases, each at its time per token."""
    rows = []
    for one, other in zip(prefill, decode, strict=True):
        first_ns, second_ns = one.bound.bound_ns / many.tokens, other.bound.bound_ns / few.tokens
        first, second = (one.intensity, one.bound.limiter, first_ns), (other.intensity, other.bound.limiter, second_ns)
        rows.append((one.part, one.name, *first, *second, second_ns / first_ns))
    return listed("classify.phases", rows)


def _few_beside_many(found: Classification) -> Sheet:
    """Products by weights of one shape that ran with few rows and with many: decode beside prefill of a layer."""
    groups: dict[tuple[str, str, str], list[tuple[int, dict[str, Any]]]] = {}
    for row in found.operators.drop_nulls("bound_ns").iter_rows(named=True):
        sizes = product_sizes(row["name"], row["input_shapes"])
        if sizes is not None and row["pass"] == FORWARD:
            rows, weight = sizes
            groups.setdefault((row["name"], f"{weight[0]} x {weight[1]}", row["module"] or ""), []).append((rows, row))
    shown: list[tuple[Cell, ...]] = []
    for (name, sizes_text, module), members in groups.items():
        members.sort(key=itemgetter(0))
        (few, decode), (many, prefill) = members[0], members[-1]
        if few <= _FEW and few * _TIMES_MORE <= many:
            shown.append((name, sizes_text, module or None, many, *_phase(prefill), few, *_phase(decode)))
    return listed("classify.phases@few", shown)


def _quantised(trace: Trace) -> Sheet:
    """Products in FP8 or FP4 with what makes their operands, and from how many rows on they win."""
    rows = []
    for one in quantised_products(trace):
        parts = (one.product_ns, one.amax_ns, one.cast_ns, one.scale_ns, one.whole_ns, one.wide_ns, one.speedup)
        even = [one.break_even_rows(keeps_weights=keeps, fuses=fuses) for keeps, fuses in _WAYS]
        known = (one.rows or None, one.inner or None, one.columns or None)
        rows.append(
            (one.name, *known, one.calls, *parts, one.weights_ns, one.saved_by_fusing_ns, *map(rows_text, even))
        )
    return listed("classify.quantised", rows)


_WAYS = ((False, False), (False, True), (True, False), (True, True))  # weights are kept; one amax and one cast


def rows_text(count: float | None) -> str | None:
    """From how many rows on a product wins; None where that is not known."""
    if count is None:
        return None
    return "never" if isinf(count) else "always" if not count else f"{count:,.0f} rows"


_TIMES_MORE = 8  # rows of a prefill over those of a decode: less than that is another batch


def _phase(row: dict[str, Any]) -> tuple[Cell, Cell, Cell]:
    return row["flops"] / row["bytes"] if row["bytes"] else None, row["limiter"], row["attained_ratio"]
