"""The hierarchical roofline of each profiled kernel: how near it comes to each memory level and arithmetic peak.

Sources: C. Yang, T. Kurth, S. Williams, "Hierarchical Roofline Analysis for GPUs" (CUG 2019); C. Yang, "8 Steps to 3.7
TFLOP/s on V100" (arXiv 2008.11326).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from timesink.knowledge import gpus
from timesink.knowledge.gpus import GpuPeaks, Precision, peaks, tensor_rate
from timesink.knowledge.metric_names.patterns import TENSOR_OPERATIONS
from timesink.measures.counters.counters import KernelCounters, kernel_counters
from timesink.model.trace import Trace

LEVELS = ("dram", "l2", "l1")
_OPS_WEIGHT = {"f": (1, 1, 2), "d": (1, 1, 2), "h": (2, 2, 4)}  # add, mul, fma; half instructions work on pairs
_CUDA_CORE = {"f": Precision.FP32, "d": Precision.FP64, "h": Precision.FP16}
_TENSOR_OPS = re.compile(TENSOR_OPERATIONS)
_WGMMA = ("hgmma", "qgmma", "igmma", "bgmma", "gmma")


@dataclass(frozen=True, slots=True)
class MemoryRoof:
    """One memory level: bytes moved, its peak, and `share` = the time the bytes need at peak / the kernel's time."""

    level: str
    bytes: float | None
    peak_bytes_per_s: float | None
    share: float


@dataclass(frozen=True, slots=True)
class ComputeRoof:
    """One arithmetic peak: operations done on `path` (cuda, mma, wgmma, tensor), dense peak, share of it reached.

    `fused_ratio` is the part of its add, multiply and fused instructions that are fused; `mix_share` is the share of
    the ceiling that this mix allows, peak x (1 + fused_ratio) / 2.
    """

    precision: Precision | None
    path: str
    flops: float | None
    peak_flops: float | None
    share: float
    fused_ratio: float | None = None

    @property
    def mix_share(self) -> float:
        """Share of the ceiling of this mix of instructions."""
        return self.share if self.fused_ratio is None else self.share * 2 / (1 + self.fused_ratio)

    @property
    def label(self) -> str:
        """The roof's name for people: ``fp32``, ``fp16 tensor (mma)``."""
        if self.path == "cuda":
            return f"{self.precision}"
        return "tensor pipe" if self.precision is None else f"{self.precision} tensor ({self.path})"


@dataclass(frozen=True, slots=True)
class KernelRoofline:
    """The roofs of one kernel at the clock it was profiled at.

    `source` says where the peaks come from. `clock_hz` is the SM clock while profiled, `max_clock_hz` the GPU's boost.
    Every share is at most about 1; the roof with the largest is the nearest. `counts_flops` says whether fp32
    operations were counted at all.
    """

    profile: int
    duration_ns: float
    clock_hz: float | None
    max_clock_hz: float | None
    source: str
    memory: tuple[MemoryRoof, ...]
    compute: tuple[ComputeRoof, ...]
    counts_flops: bool = True

    @property
    def nearest(self) -> tuple[str, float] | None:
        """Name and share of the nearest roof; None where nothing was measured."""
        shares = [(roof.share, roof.level.upper()) for roof in self.memory]
        shares += [(roof.share, roof.label) for roof in self.compute]
        best = max(shares, key=lambda one: one[0], default=None)
        return None if best is None else (best[1], best[0])

    @property
    def is_memory_side(self) -> bool | None:
        """Whether its bytes need more time at DRAM peak than its operations at theirs: left of the ridge."""
        dram = next((roof.share for roof in self.memory if roof.level == "dram"), None)
        work = [roof.share for roof in self.compute]
        return None if dram is None or not (work or self.counts_flops) else dram > max(work, default=0.0)

    def memory_of(self, level: str) -> MemoryRoof | None:
        """The roof of that level, None where it was not measured."""
        return next((roof for roof in self.memory if roof.level == level), None)

    def intensity(self, level: str) -> float | None:
        """Operations per byte of that level, over all formats; None without bytes, or where the largest part of the
        work was not counted as operations (tensor work in a set without its counters).
        """
        roof = self.memory_of(level)
        main = max(self.compute, key=lambda compute: compute.share, default=None)
        flops = sum(compute.flops for compute in self.compute if compute.flops)
        is_counted = main is not None and main.flops is not None
        return flops / roof.bytes if roof is not None and roof.bytes and flops and is_counted else None


def kernel_rooflines(trace: Trace) -> tuple[KernelRoofline | None, ...]:
    """The roofline of every profiled launch in report order; None where the launch has no time."""
    return tuple(roofline_of(kernel) for kernel in kernel_counters(trace))


def roofline_of(kernel: KernelCounters) -> KernelRoofline | None:
    """The roofline of one kernel."""
    if kernel.duration_ns is None:
        return None
    sheet = peaks(kernel.gpu)
    max_khz = kernel.get("device__attribute_clock_rate")
    has_own = kernel.get("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained") is not None
    return KernelRoofline(
        kernel.profile,
        kernel.duration_ns,
        _clock(kernel),
        None if max_khz is None else max_khz * 1e3,
        "counters of the report" if has_own else f"datasheet: {sheet.source}" if sheet else "percentages of the report",
        tuple(_memory(kernel, sheet)),
        tuple(_compute(kernel, sheet)),
        counts_flops=instructions(kernel, "ffma") is not None,
    )


def _clock(kernel: KernelCounters) -> float | None:
    return kernel.first("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")


def level_bytes(kernel: KernelCounters, level: str) -> float | None:
    """Bytes moved at a memory level. L2 counts what SMs asked of it: its own counters count some traffic twice."""
    seconds = (kernel.duration_ns or 0.0) / 1e9
    if level == "dram":
        moved = kernel.total("dram__bytes_read.sum", "dram__bytes_write.sum")
        rate = kernel.get("dram__bytes.sum.per_second")
        return moved if moved is not None else kernel.get("dram__bytes.sum") if rate is None else rate * seconds
    if level == "l2":
        moved = kernel.total("l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum")
        sectors = kernel.get("lts__t_sectors_srcunit_tex.sum")
        return moved if moved is not None else None if sectors is None else sectors * gpus.SECTOR_BYTES
    lines = kernel.first("l1tex__lsu_writeback_active_mem_lgds.sum", "l1tex__lsu_writeback_active_mem_lg.sum")
    return kernel.get("l1tex__t_bytes.sum") if lines is None else lines * gpus.LINE_BYTES


# Where a report has no bytes or no peak of a level: the busiest of these of its units.
_FALLBACK = {
    "dram": ("gpu__dram_throughput", "dram__cycles_active"),
    "l2": ("lts__lts2xbar_cycles_active", "lts__xbar2lts_cycles_active"),
    "l1": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__lsu_writeback_active"),
}
_LAST_RESORT = {"l2": "lts__throughput", "l1": "l1tex__throughput"}


def _memory(kernel: KernelCounters, sheet: GpuPeaks | None) -> Iterator[MemoryRoof]:
    seconds = (kernel.duration_ns or 0.0) / 1e9
    for level in LEVELS:
        moved, peak = level_bytes(kernel, level), _bandwidth(kernel, level, sheet)
        if moved is not None and peak:
            yield MemoryRoof(level, moved, peak, moved / peak / seconds)
        elif (share := _share_of_units(kernel, level)) is not None:
            yield MemoryRoof(level, moved, peak, share)


def _share_of_units(kernel: KernelCounters, level: str) -> float | None:
    shares = [share for name in _FALLBACK[level] if (share := kernel.share(name)) is not None]
    if shares or level not in _LAST_RESORT:
        return max(shares, default=None)
    active = kernel.get(f"{_LAST_RESORT[level]}.avg.pct_of_peak_sustained_active")
    return kernel.share(_LAST_RESORT[level]) if active is None else active / 100


def _bandwidth(kernel: KernelCounters, level: str, sheet: GpuPeaks | None) -> float | None:
    if level == "dram":
        per_cycle = kernel.get("dram__bytes.sum.peak_sustained")
        clock = kernel.get("dram__cycles_elapsed.avg.per_second")
        if per_cycle and clock:
            return per_cycle * clock
        return sheet.dram_bytes_per_s if sheet else None
    if level == "l2":
        per_cycle = kernel.get("lts__lts2xbar_cycles_active.sum.peak_sustained")
        clock = kernel.get("lts__cycles_elapsed.avg.per_second")
        return per_cycle * gpus.SECTOR_BYTES * clock if per_cycle and clock else None
    clock, sms = _clock(kernel), _sm_count(kernel, sheet)
    return gpus.LINE_BYTES * sms * clock if clock and sms else None


def _sm_count(kernel: KernelCounters, sheet: GpuPeaks | None) -> float | None:
    counted = kernel.first("device__attribute_multiprocessor_count", "launch__sm_count")
    return counted if counted is not None or sheet is None else float(sheet.sm_count)


def instructions(kernel: KernelCounters, op: str) -> float | None:
    """Threads' executions of that operation (``ffma``). Reports of a full set hold them per cycle only; times the
    cycles of the kernel they are whole numbers again.
    """
    base = f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
    total, per_cycle = kernel.get(base), kernel.get(f"{base}.per_cycle_elapsed")
    clock = kernel.first("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
    if total is not None or per_cycle is None or clock is None or kernel.duration_ns is None:
        return total
    return per_cycle * kernel.duration_ns / 1e9 * clock


def _compute(kernel: KernelCounters, sheet: GpuPeaks | None) -> Iterator[ComputeRoof]:
    seconds = (kernel.duration_ns or 0.0) / 1e9
    for letter, precision in _CUDA_CORE.items():
        counts = [instructions(kernel, f"{letter}{op}") for op in ("add", "mul", "fma")]
        add, mul, fma = (count or 0.0 for count in counts)
        weights = _OPS_WEIGHT[letter]
        flops = weights[0] * add + weights[1] * mul + weights[2] * fma
        peak = _cuda_core_peak(kernel, letter, sheet)
        if flops > 0 and peak:
            yield ComputeRoof(precision, "cuda", flops, peak, flops / peak / seconds, fma / (add + mul + fma))
    yield from _tensor(kernel, sheet)


def _cuda_core_peak(kernel: KernelCounters, letter: str, sheet: GpuPeaks | None) -> float | None:
    clock = _clock(kernel)
    lanes = kernel.get(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained")
    if lanes and clock:
        return _OPS_WEIGHT[letter][2] * lanes * clock
    lanes32 = kernel.get("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained")
    if letter == "h" and lanes32 and clock:
        return 4 * lanes32 * clock  # packed halves on the fp32 lanes
    if letter == "h" or sheet is None:
        return None
    return sheet.flops_of(_CUDA_CORE[letter])


def _tensor(kernel: KernelCounters, sheet: GpuPeaks | None) -> Iterator[ComputeRoof]:
    """Tensor work by format where the report counts it, else the pipe's own utilisation without a format."""
    seconds = (kernel.duration_ns or 0.0) / 1e9
    clock, sms = _clock(kernel), _sm_count(kernel, sheet)
    busy = kernel.share("sm__pipe_tensor_cycles_active")
    if busy is None:
        active = kernel.get("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")
        busy = None if active is None else active / 100
    is_counted = False
    for (path, word), (flops, per_cycle) in sorted(_tensor_ops(kernel).items()):
        precision = _precision(word)
        rate = tensor_rate(kernel.compute_capability, precision, path) if precision else None
        peak = per_cycle if per_cycle is not None else rate * sms if rate and sms else None
        if precision and peak and clock:
            is_counted = True
            yield ComputeRoof(precision, path, flops, peak * clock, flops / (peak * clock) / seconds)
    if not is_counted and busy:
        yield ComputeRoof(None, "tensor", None, None, busy)


def _precision(word: str) -> Precision | None:
    known = {"fp64": Precision.FP64_TENSOR, "u8": Precision.INT8, "s8": Precision.INT8}
    if word in known:
        return known[word]
    return Precision(word) if word in {one.value for one in Precision} else None


_TensorOps = dict[tuple[str, str], tuple[float, float | None]]


def _tensor_ops(kernel: KernelCounters) -> _TensorOps:
    """Operations, and dense peak per cycle of the whole GPU, by (path, source format).

    Of names that overlap, those by instruction are taken before the totals, whose peaks are sparse rates.
    """
    by_op: _TensorOps = {}
    totals: _TensorOps = {}
    for name, value in sorted(kernel.values.items()):
        match = _TENSOR_OPS.match(name) if value and name.startswith("sm__ops_path_tensor_") else None
        if not match:
            continue
        op, word, sparsity = match.groups()
        if op is None:
            totals["mma", word] = (max(value, totals.get(("mma", word), (0.0, None))[0]), None)
        elif sparsity != "on":
            key = ("wgmma" if op in _WGMMA else "mma", word)
            if value > by_op.get(key, (0.0, None))[0]:
                by_op[key] = (value, kernel.get(f"{name}.peak_sustained"))
    return by_op or totals
