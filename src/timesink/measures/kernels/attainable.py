"""How near operators run to what the device allows: their work over the time of the kernels they launch.

bound = max(operations / attainable rate, bytes / attainable bandwidth, a floor per kernel), the roofline of Williams et
al. (CACM 52-4, 2009) with a floor for latency. Attainable rates are datasheet peaks (dense) times what real kernels
reach (`knowledge.gpus`). Reads that hit in the L2 cache can beat the DRAM bound: a share over 1 is kept, and is no
error.

Of operators far from that bound, those whose kernels a measure explains (casts, layouts, elementwise chains, unfused
attention, wide types, misaligned products, small grids, serialized streams, unfused optimizers) have a known cause. The
others are work for a kernel profiler: `far_operators`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import GpuPeaks, Precision
from timesink.knowledge.kernel_traits import MEMORY_EFFICIENT
from timesink.knowledge.operators import OperatorWork, WorkKind
from timesink.knowledge.work import recorded_work
from timesink.measures.kernels.conversions import cast_kernels, layout_kernels
from timesink.measures.kernels.facts import all_rows, device_peaks, kernel_facts
from timesink.measures.kernels.fusion import optimizer_kernels, pointwise_chains, unfused_attention
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.model.arrays import Int64Array, flag_at
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.untrusted.plain_json import parsed
from timesink.whatif import Selection

SIGNATURE = ["name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs"]
_OF_UNITS: Final = (WorkKind.MATMUL, WorkKind.ATTENTION, WorkKind.CONVOLUTION)  # no roof without a rate for the type
TENSOR_FORMATS: Final = frozenset({"bf16", "fp16", "tf32", "fp8", "int8", "fp4"})


class Attainable(Record, eq=False):
    """Operators and their bounds.

    `operators`: one row per (rank, device, name, input_shapes, math), most time first. Columns besides those: kind,
    calls, kernels, device_ns, flops, bytes, bound_ns (at most device_ns), limiter (memory, compute or latency),
    attained_ratio (bound_ns / device_ns), kernel (its longest kernel). `device_ns` sums durations. Only operators whose
    shapes were recorded and whose GPU is in the table of peaks are here: `covered_ratio` is their share of all kernel
    time, None where the device's peaks are unknown. Kernels of graph replays have no operator.
    """

    operators: pl.DataFrame
    covered_ratio: float | None

    @property
    def attained_ratio(self) -> float | None:
        """Sum of bounds / sum of device time over all rows; None where there are no rows."""
        total = self.operators["device_ns"].sum()
        return float(self.operators["bound_ns"].sum()) / float(total) if total else None


@remembered
def attainable(trace: Trace) -> Attainable:
    """The share of the attainable bound that each operator reaches; empty without recorded shapes."""
    kernels, shaped = kernel_facts(trace).frame, trace.get(HOST_OPS)["input_shapes"].is_not_null().to_numpy()
    of_shaped = flag_at(shaped, kernels["host_op"].fill_null(-1).to_numpy())
    calls = operator_calls(trace, kernels.filter(pl.Series(of_shaped)))
    operators = with_bounds(trace, grouped_calls(calls)).drop_nulls("bound_ns")
    order = {"rank": False, "device": False, "device_ns": True, "name": False, "input_shapes": False, "math": False}
    operators = operators.sort(list(order), descending=list(order.values()))
    names = trace.get(DEVICE_OPS)["name"][operators["row"]]
    operators = operators.with_columns(names.cast(pl.String).alias("kernel"))
    total_ns = int(kernel_facts(trace).frame["length"].sum())
    covered = float(operators["device_ns"].sum() / total_ns) if device_peaks(trace) and total_ns else None
    return Attainable(operators, covered)


_FIGURES = {
    "kind": pl.String,
    "flops": pl.Float64,
    "bytes": pl.Float64,
    "bound_ns": pl.Float64,
    "limiter": pl.String,
    "attained_ratio": pl.Float64,
    "per_address": pl.Float64,
}


def with_bounds(trace: Trace, groups: pl.DataFrame, gpu: GpuPeaks | None = None) -> pl.DataFrame:
    """Groups of calls (`grouped_calls`) with kind, flops, bytes, bound_ns, limiter, attained_ratio and per_address, all
    null where the operator's work or the rate that it needs is not known. `gpu` stands in for the trace's devices."""
    gpus = device_peaks(trace)
    rows = []
    for row in groups.iter_rows(named=True):
        device = gpu or gpus.get((row["rank"], row["device"]))
        figures = None if device is None else _figures(row, device)
        rows.append(figures or dict.fromkeys(_FIGURES))
    return groups.hstack(pl.DataFrame(rows, schema=_FIGURES))


def operator_calls(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Calls of operators that launched these kernels (rows of `KernelFacts.frame`), one for each time a graph replays
    what it recorded: rank, device, host_op, turn, signature, kernels, device_ns, and of the longest kernel its
    arithmetic and its row in `device_ops`.
    """
    host = trace.get(HOST_OPS)
    kernels = kernels.filter(pl.col("host_op") >= 0)
    longest = pl.col("length").arg_max()
    per_call = kernels.group_by("rank", "device", "host_op", "turn").agg(
        pl.col("length").sum().alias("device_ns"),
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.col("math").cast(pl.String).fill_null("").get(longest),
        pl.col("row").get(longest),
    )
    per_call = per_call.sort("host_op", "turn")
    return per_call.hstack(host.select(SIGNATURE)[per_call["host_op"]].select(pl.all().cast(pl.String)))


def grouped_calls(calls: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Calls of one signature, arithmetic and value of the columns `by`, together; `row` is the longest one's."""
    return calls.group_by("rank", "device", *by, *SIGNATURE, "math", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("kernels").sum(),
        pl.col("device_ns").sum(),
        pl.col("row").get(pl.col("device_ns").arg_max()),
    )


def _figures(row: dict[str, Any], gpu: GpuPeaks) -> dict[str, object] | None:
    """Bound of a group of equal calls, or None where the operator's work or the rate it needs is unknown."""
    texts = [None if row[name] is None else str(row[name]) for name in SIGNATURE]
    work = recorded_work(texts[0] or "", texts[1] or "", texts[2] or "", texts[3], texts[4])
    calls, kernels, device_ns = int(row["calls"]), int(row["kernels"]), int(row["device_ns"])
    if work is None or not device_ns or (work.kind in _OF_UNITS and not gpu.flops.get(str(row["math"]) or work.dtype)):
        return None
    found = bound_of(work, gpu, calls=calls, kernels=kernels, math=str(row["math"]))
    bound_ns = min(found.bound_ns, float(device_ns))  # what ran in less was attainable
    return {
        "kind": work.kind.value,
        "flops": calls * work.flops,
        "bytes": calls * float(work.bytes),
        "bound_ns": bound_ns,
        "limiter": found.limiter,
        "attained_ratio": bound_ns / device_ns,
        "per_address": work.per_address,
    }


class Bound(Record):
    """The least time of some work, and what sets it: memory, compute, or latency (a floor per kernel)."""

    bound_ns: float
    limiter: str


def bound_of(work: OperatorWork, gpu: GpuPeaks, *, calls: int = 1, kernels: int = 1, math: str = "") -> Bound:
    """The bound of `calls` operators that launch `kernels` kernels together, in the arithmetic `math` (the operands',
    where that is not known). Operations in a format without a rate on that GPU take no time here."""
    path = math or work.dtype
    rate = gpu.flops.get(path)
    compute_ns = calls * work.flops / rate * 1e9 if rate and work.flops else 0.0
    memory_ns = calls * work.bytes / gpu.dram_bytes_per_s * 1e9
    return bound_at_peak(memory_ns, compute_ns, is_tensor=path in TENSOR_FORMATS, kernels=kernels)


def bound_at_peak(memory_ns: float, compute_ns: float, *, is_tensor: bool, kernels: int = 1) -> Bound:
    """The bound of work whose bytes and operations would take these times at the peaks of the data sheet."""
    parts = {
        "memory": memory_ns / machines.DRAM_SHARE.value,
        "compute": compute_ns / (machines.TENSOR_SHARE.value if is_tensor else 1.0),
        "latency": kernels * machines.KERNEL_FLOOR_US.ns,
    }
    limiter = max(parts, key=parts.__getitem__)
    return Bound(parts[limiter], limiter)


def attainable_ridge(gpu: GpuPeaks, precision: Precision) -> float | None:
    """Operations per byte at which the two attainable bounds of a format are equal; None where it has no rate."""
    ridge = gpu.ridge(precision)
    share = machines.TENSOR_SHARE.value if precision in TENSOR_FORMATS else 1.0
    return None if ridge is None else ridge * share / machines.DRAM_SHARE.value


_MASK_AXES: Final = 3  # queries, keys, values and masks have three and more
_OF_FORWARD, _OF_BACKWARD = 3, 5  # with the gradient and the output
_KEY: Final = ["rank", "device", "op", "input_shapes", "math"]


class FarOperator(Record, eq=False):
    """Equal calls of an operator: what bounds them (memory, compute, latency), the share of that bound they reach, and
    their kernels. `masked` says of attention whether a mask is among its inputs, None of any other; `per_address` how
    many rows a scatter adds to each on average, 0 of any other."""

    name: str
    limiter: str
    attained_ratio: float
    kernels: Selection
    masked: bool | None = None
    per_address: float = 0.0


@remembered
def far_operators(trace: Trace) -> tuple[FarOperator, ...]:
    """Every operator whose bound is known and whose time no pattern explains, longest first."""
    operators = attainable(trace).operators
    host = trace.get(HOST_OPS)
    if not operators.height or not host.height:
        return ()
    calls = host.select(pl.col("name", "input_shapes").cast(pl.String)).rename({"name": "op"})
    calls = calls.with_row_index("host_op").with_columns(pl.col("host_op").cast(pl.Int32))
    frame = kernel_facts(trace).frame.filter(~pl.col("row").is_in(pl.Series(_explained(trace)).implode()))
    frame = frame.drop("op").join(calls, on="host_op", how="inner")
    frame = frame.with_columns(pl.col("math").cast(pl.String).fill_null(""))
    bound = (
        operators.rename({"name": "op"})
        .group_by(_KEY)
        .agg(
            pl.col("limiter").sort_by("device_ns", descending=True).first(),
            pl.col("bound_ns").sum() / pl.col("calls").sum(),
            pl.col("per_address").max(),
        )
    )  # calls of one shape and several strides are one operator here
    joined = frame.join(bound, on=_KEY, how="inner", maintain_order="left")
    joined = joined.with_columns(pl.struct("host_op", "turn").n_unique().over(_KEY).alias("calls"))
    groups = joined.group_by(_KEY, maintain_order=True)
    longest_first = sorted(groups, key=lambda group: (-int(group[1]["length"].sum()), *map(str, group[0][2:])))
    return tuple(_operator(key, kernels) for key, kernels in longest_first)


def short_products(trace: Trace) -> tuple[Selection, ...]:
    """Matrix products that stay below their bound, with the share of it that they reach (`best`)."""
    gemm = pl.Series(kernel_facts(trace).frame.filter(pl.col("family") == "gemm")["row"]).implode()
    found = (one.kernels for one in far_operators(trace) if one.limiter == "compute" and one.attained_ratio < 1.0)
    return tuple(one for one in found if pl.Series(one.rows).is_in(gemm).any())


def _operator(key: tuple[object, ...], kernels: pl.DataFrame) -> FarOperator:
    rank, device, name, *_ = key
    reached = float(kernels["bound_ns"][0]) * int(kernels["calls"][0]) / max(int(kernels["length"].sum()), 1)
    best = np.full(kernels.height, reached)
    selection = Selection((int(str(rank)), int(str(device))), {"kernel": kernels["row"].to_numpy()}, best=best)
    masked = is_masked(str(name), str(key[3])) if (kernels["family"] == "attention").any() else None
    limiter, added = str(kernels["limiter"][0]), float(kernels["per_address"][0])
    return FarOperator(str(name), limiter, reached, selection, masked, added)


def is_masked(name: str, shapes: str) -> bool:
    """Whether attention of these recorded shapes has a mask or a bias beside queries, keys and values."""
    with suppress(ValueError, TypeError):
        tensors = [shape for shape in parsed(shapes) if isinstance(shape, list) and len(shape) >= _MASK_AXES]
        return len(tensors) > (_OF_BACKWARD if "backward" in name else _OF_FORWARD)
    return False


def _explained(trace: Trace) -> Int64Array:
    """Rows of `device_ops` of the kernels that the measures of known patterns found, and of fused attention but for the
    memory-efficient one, and one that is given a mask: for the others there is no quicker kernel to be had."""
    facts = kernel_facts(trace).frame
    replaceable = matches(trace.get(DEVICE_OPS)["name"][facts["row"]], MEMORY_EFFICIENT).to_numpy()
    host = trace.get(HOST_OPS)
    attends = np.unique(facts.filter(pl.col("family") == "attention")["host_op"].fill_null(-1).to_numpy())
    texts = host.select(pl.col("name", "input_shapes").cast(pl.String).fill_null(""))[attends[attends >= 0]]
    calls = texts.rows()
    is_of = {call: is_masked(*call) for call in {*calls}}  # each step has the same
    masked = [is_of[call] for call in calls]
    of_masked = facts["host_op"].is_in(pl.Series(attends[attends >= 0][masked]).implode()).fill_null(False).to_numpy()
    fused = (facts["family"] == "attention").to_numpy() & ~replaceable & ~of_masked
    fused = facts["row"].to_numpy()[fused]
    found = all_rows(
        [
            *cast_kernels(trace),
            *layout_kernels(trace),
            *unfused_attention(trace),
            *pointwise_chains(trace),
            *(kernels for kind in wide_kernels(trace).values() for kernels in kind),
            *misaligned_products(trace),
            *small_grids(trace),
            *(found.kernels for found in serialized_streams(trace)),
            *(found.unfused for found in optimizer_kernels(trace)),
        ]
    )
    return np.union1d(found, fused)
