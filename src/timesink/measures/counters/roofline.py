"""The hierarchical roofline of each profiled kernel: how near it comes to each memory level and arithmetic peak.

Sources: C. Yang, T. Kurth, S. Williams, "Hierarchical Roofline Analysis for GPUs" (CUG 2019); C. Yang, "8 Steps to 3.7
TFLOP/s on V100" (arXiv 2008.11326).

The main loop of a matrix product on tensor cores beside its epilogue: which of them keeps the units busy.

The main loop reads operands and multiplies; the epilogue works on the results (bias, activation) and writes them. Each
is at least as long as it keeps its busiest unit busy: tensor cores and what L2 sends for the one; special functions,
fp32 arithmetic and what L2 is sent for the other. L2's input serves writes and the requests of reads alike: writes
have the part that their bytes have of all.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from timesink.knowledge import gpus
from timesink.knowledge.gpus import GpuPeaks, Precision, peaks, tensor_rate
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.resources import Resource, leaves, throughput_of
from timesink.measures.counters.tensor import Counted, TensorWork, pipe_busy, tensor_work
from timesink.model.trace import Trace
from timesink.records import Record

LEVELS = ("dram", "l2", "l1")
_OPS_WEIGHT = {"f": (1, 1, 2), "d": (1, 1, 2), "h": (2, 2, 4)}  # add, mul, fma; half instructions work on pairs
_NO_HALVES = " (those of fp16 outside of tensor cores are not recorded)"
_CUDA_CORE = {"f": Precision.FP32, "d": Precision.FP64, "h": Precision.FP16}


class MemoryRoof(Record):
    """One memory level: bytes moved, its peak, and `share` = the time the bytes need at peak / the kernel's time."""

    level: str
    bytes: float | None
    peak_bytes_per_s: float | None
    share: float


class ComputeRoof(Record):
    """One arithmetic peak: operations done on `path` (cuda, mma, wgmma, tcgen05, tensor), dense peak, share reached.

    `fused_ratio` is the part of its add, multiply and fused instructions that are fused; `mix_share` is the share of
    the ceiling that this mix allows, peak x (1 + fused_ratio) / 2. `how` says how the operations were got.
    """

    precision: Precision | None
    path: str
    flops: float | None
    peak_flops: float | None
    share: float
    fused_ratio: float | None = None
    how: Counted = Counted.COUNTERS

    @property
    def mix_share(self) -> float:
        """Share of the ceiling of this mix of instructions."""
        return self.share if self.fused_ratio is None else self.share * 2 / (1 + self.fused_ratio)

    @property
    def label(self) -> str:
        """The roof's name for people: ``fp32``, ``fp16 tensor (mma)``."""
        if self.path == "cuda":
            return f"{self.precision}"
        if self.precision is None:
            return "tensor pipe"
        return f"{self.precision.removesuffix('_tensor')} tensor ({self.path})"


class KernelRoofline(Record):
    """The roofs of one kernel at the clock it was profiled at.

    `source` says where the peaks come from. `clock_hz` is the SM clock while profiled, `max_clock_hz` the GPU's boost.
    Every share is at most about 1; the roof with the largest is the nearest. `counts_flops` says whether fp32
    operations were counted at all, `counts_halves` whether those of fp16 and bf16 outside of tensor cores were.
    """

    duration_ns: float
    clock_hz: float | None
    max_clock_hz: float | None
    source: str
    memory: tuple[MemoryRoof, ...]
    compute: tuple[ComputeRoof, ...]
    counts_flops: bool = True
    counts_halves: bool = True

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

    @property
    def flops(self) -> float | None:
        """Operations over all formats; None where none were counted, or the largest part of the work was not."""
        main = self.main
        total = sum(compute.flops for compute in self.compute if compute.flops)
        return total if main is not None and main.flops is not None and total else None

    @property
    def main(self) -> ComputeRoof | None:
        """The arithmetic roof with the largest share."""
        return max(self.compute, key=lambda compute: compute.share, default=None)

    @property
    def ridge(self) -> float | None:
        """Operations per DRAM byte at which the main arithmetic roof and DRAM's meet, at the profiled clocks."""
        dram, main = self.memory_of("dram"), self.main
        if dram is None or main is None or not dram.peak_bytes_per_s or not main.peak_flops:
            return None
        return main.peak_flops / dram.peak_bytes_per_s

    @property
    def ceiling(self) -> float | None:
        """Operations per second of the main format that the lower of its roof and DRAM's allows, at its bytes."""
        dram, main = self.memory_of("dram"), self.main
        if dram is None or main is None:
            return None
        if not (main.flops and main.peak_flops and dram.bytes and dram.peak_bytes_per_s):
            return None
        return min(main.peak_flops, main.flops / dram.bytes * dram.peak_bytes_per_s)

    @property
    def why_no_point(self) -> str | None:
        """Why it has no place in a picture of intensity over DRAM; None where it has one."""
        dram = self.memory_of("dram")
        if self.flops is None:
            if any(work.flops is None for work in self.compute):
                return "its tensor operations were not counted: give the report itself, not a CSV page"
            if not self.counts_flops:
                return "its operations were not counted: capture with --set detailed"
            return "it does no floating-point and no tensor operation" + ("" if self.counts_halves else _NO_HALVES)
        if dram is None or dram.bytes is None:
            return "its DRAM bytes were not counted: capture with --set detailed"
        return None if dram.bytes else "it moves no byte to or from DRAM"

    def intensity(self, level: str) -> float | None:
        """Operations per byte of that level, over all formats; None without bytes, or where the largest part of the
        work was not counted as operations (tensor work in a set without its counters).
        """
        roof = self.memory_of(level)
        return self.flops / roof.bytes if roof is not None and roof.bytes and self.flops else None


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
        kernel.duration_ns,
        sm_clock(kernel),
        None if max_khz is None else max_khz * 1e3,
        "counters of the report" if has_own else f"datasheet: {sheet.source}" if sheet else "percentages of the report",
        tuple(_memory(kernel, sheet)),
        tuple(_compute(kernel, sheet)),
        counts_flops=instructions(kernel, "ffma") is not None,
        counts_halves=instructions(kernel, "hfma") is not None,
    )


def counts_operations(kernel: KernelCounters) -> bool:
    """Whether all that says on which side of the ridge a launch lies was collected: its operations and its bytes."""
    ops = (f"{letter}{op}" for letter in "fd" for op in ("add", "mul", "fma"))
    has_tensor = pipe_busy(kernel) is not None or gpus.PER_OPCODE in kernel.texts
    has_peak = kernel.get("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained") is not None
    return (
        has_peak
        and has_tensor
        and tells_bytes(kernel, "dram")
        and all(instructions(kernel, op) is not None for op in ops)
    )


_WAYS: Final = {
    "dram": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    "l2": ("l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum"),
}


def tells_bytes(kernel: KernelCounters, level: str) -> bool:
    """Whether all bytes of a level of memory were counted: of one way alone they are a part."""
    one_way = kernel.total(*_WAYS[level]) is not None and kernel.whole(*_WAYS[level]) is None
    return level_bytes(kernel, level) is not None and not one_way


def sm_clock(kernel: KernelCounters) -> float | None:
    """Cycles per second of the multiprocessors while profiled."""
    return kernel.first("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")


def level_bytes(kernel: KernelCounters, level: str) -> float | None:
    """Bytes moved at a memory level, both ways; one way alone is none. L2 counts what SMs asked of it: its own counters
    count some traffic twice."""
    seconds = (kernel.duration_ns or 0.0) / 1e9
    if level == "dram":
        moved = kernel.whole(*_WAYS[level])
        rate = kernel.get("dram__bytes.sum.per_second")
        return moved if moved is not None else kernel.get("dram__bytes.sum") if rate is None else rate * seconds
    if level == "l2":
        moved = kernel.whole(*_WAYS[level])
        sectors = kernel.get("lts__t_sectors_srcunit_tex.sum")
        return moved if moved is not None else None if sectors is None else sectors * gpus.SECTOR_BYTES
    lines = kernel.first("l1tex__lsu_writeback_active_mem_lgds.sum", "l1tex__lsu_writeback_active_mem_lg.sum")
    return kernel.get("l1tex__t_bytes.sum") if lines is None else lines * gpus.LINE_BYTES


_AT_PEAK: Final = 0.9  # of the fastest memory of its chip: then it is near its own, whichever GPU it is
# Where a report has no bytes or no peak of a level: the busiest of these of its units.
_FALLBACK = {
    "dram": ("gpu__dram_throughput", "dram__cycles_active"),
    "l2": ("lts__lts2xbar_cycles_active", "lts__xbar2lts_cycles_active"),
    "l1": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__lsu_writeback_active"),
}


def _memory(kernel: KernelCounters, sheet: GpuPeaks | None) -> Iterator[MemoryRoof]:
    seconds = (kernel.duration_ns or 0.0) / 1e9
    for level in LEVELS:
        moved, peak = level_bytes(kernel, level), bandwidth(kernel, level, sheet)
        if level == "l2" and (busy := _busiest(kernel, level)) is not None:
            yield MemoryRoof(level, moved, peak, busy)
        elif moved is not None and peak:
            yield MemoryRoof(level, moved, peak, moved / peak / seconds)
        elif (share := _share_of_units(kernel, level)) is not None:
            yield MemoryRoof(level, moved, peak, share)


def _busiest(kernel: KernelCounters, level: str) -> float | None:
    """The busiest unit of the level. L2 has a way in and a way out, each with the peak of the level; and what it sends
    once, several multiprocessors may receive. So bytes over the peak can be twice the share."""
    return max((share for name in _FALLBACK[level] if (share := kernel.share(name)) is not None), default=None)


def _share_of_units(kernel: KernelCounters, level: str) -> float | None:
    busiest = _busiest(kernel, level)
    return throughput_of(kernel, Resource(level)) if busiest is None else busiest


def bandwidth(kernel: KernelCounters, level: str, sheet: GpuPeaks | None) -> float | None:
    """Peak bytes per second of a level at the profiled clocks; None where neither report nor datasheet says it."""
    if level == "dram":
        per_cycle = kernel.get("dram__bytes.sum.peak_sustained")
        clock = kernel.get("dram__cycles_elapsed.avg.per_second")
        if per_cycle and clock:
            return per_cycle * clock
        rate = (level_bytes(kernel, level) or 0.0) / ((kernel.duration_ns or inf) / 1e9)
        if rate and (share := throughput_of(kernel, Resource.DRAM)):
            return rate / share  # its memory may run at another clock than the datasheet's
        fastest = gpus.FASTEST_DRAM.get(kernel.compute_capability or (0, 0), inf)
        return sheet.dram_bytes_per_s if sheet else max(rate, fastest) if rate >= _AT_PEAK * fastest else None
    if level == "l2":
        per_cycle = kernel.get("lts__lts2xbar_cycles_active.sum.peak_sustained")
        clock = kernel.get("lts__cycles_elapsed.avg.per_second")
        return per_cycle * gpus.SECTOR_BYTES * clock if per_cycle and clock else None
    clock, sms = sm_clock(kernel), sm_count(kernel, sheet)
    return gpus.LINE_BYTES * sms * clock if clock and sms else None


def sm_count(kernel: KernelCounters, sheet: GpuPeaks | None) -> float | None:
    """Multiprocessors of the GPU."""
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
        peak = cuda_core_peak(kernel, letter, sheet)
        if flops > 0 and peak:
            yield ComputeRoof(precision, "cuda", flops, peak, flops / peak / seconds, fma / (add + mul + fma))
    yield from _tensor(kernel, sheet)


def cuda_core_peak(kernel: KernelCounters, letter: str, sheet: GpuPeaks | None) -> float | None:
    """Operations per second outside tensor cores of a format (f, d, h), at the profiled clock or by the datasheet."""
    clock = sm_clock(kernel)
    lanes = kernel.get(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained")
    if lanes and clock:
        return _OPS_WEIGHT[letter][2] * lanes * clock
    lanes32 = kernel.get("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained")
    if letter == "h" and lanes32 and clock:
        return 4 * lanes32 * clock  # packed halves on the fp32 lanes
    if letter == "h" or sheet is None:
        return None
    return sheet.flops.get(_CUDA_CORE[letter])


def _tensor(kernel: KernelCounters, sheet: GpuPeaks | None) -> Iterator[ComputeRoof]:
    """Tensor work by format and path; where only the pipe's busy time is known, its operations at most."""
    seconds = (kernel.duration_ns or 0.0) / 1e9
    for work in tensor_work(kernel):
        peak = _tensor_peak(kernel, work, sheet)
        if work.flops is None:
            flops = work.busy * peak * seconds if work.busy and peak else None
            yield ComputeRoof(work.precision, work.path, flops, peak, work.busy or 0.0, how=work.how)
        elif peak:
            yield ComputeRoof(work.precision, work.path, work.flops, peak, work.flops / peak / seconds, how=work.how)


def _tensor_peak(kernel: KernelCounters, work: TensorWork, sheet: GpuPeaks | None) -> float | None:
    """Dense operations per second at the profiled clock: as the report states them, by the chip's rate, or the
    datasheet's."""
    clock, sms = sm_clock(kernel), sm_count(kernel, sheet)
    if work.precision is None:
        return None
    if work.per_cycle and clock:
        return work.per_cycle * clock
    rate = tensor_rate(kernel.compute_capability, work.precision, work.path)
    if rate and sms and clock:
        return rate * sms * clock
    return sheet.flops.get(work.precision) if sheet else None


_READ: Final = "l1tex__m_xbar2l1tex_read_bytes.sum"
_WRITTEN: Final = "l1tex__m_l1tex2xbar_write_bytes.sum"


class ProductParts(Record):
    """Shares of the kernel's time (0 to 1) for which each keeps a unit busy; bytes that SMs wrote to L2."""

    tensor: float
    operands: float
    writes: float
    arithmetic: float
    written_bytes: float

    @property
    def main_loop(self) -> float:
        """The least share of the time that the main loop needs."""
        return max(self.tensor, self.operands)

    @property
    def epilogue(self) -> float:
        """The least share of the time that the epilogue needs."""
        return max(self.writes, self.arithmetic)


def product_parts(kernel: KernelCounters) -> ProductParts | None:
    """The parts of a matrix product on tensor cores; None for other kernels (attention works on results within its main
    loop), and where the bytes between SMs and L2 were not counted."""
    busy = {leaf.name: leaf.busy for leaf in leaves(kernel)}
    read, written = kernel.get(_READ), kernel.get(_WRITTEN)
    line = roofline_of(kernel)
    roofs = () if line is None else line.compute
    is_product = decode(kernel.name).family in (KernelFamily.GEMM, KernelFamily.OTHER)
    if not is_product or not any(roof.flops for roof in roofs if roof.path != "cuda"):
        return None
    if read is None or written is None or read + written <= 0:
        return None
    cores = [roof.share for roof in roofs if roof.path == "cuda"]
    return ProductParts(
        max((leaf.busy for leaf in leaves(kernel) if leaf.resource is Resource.TENSOR), default=0.0),
        busy.get("lts__lts2xbar_cycles_active", 0.0),
        busy.get("lts__xbar2lts_cycles_active", 0.0) * written / (read + written),
        max(kernel.share("sm__inst_executed_pipe_xu") or 0.0, *cores, 0.0),
        written,
    )
