"""The roofs of the GPUs of a report: every memory level and number format, at the profiled clock and at boost, beside
what the datasheet specifies and what a device of the kind said of itself.

And the bytes that a profiled kernel must read and write at least: those of the operator that launches it in a timeline,
where it is found by function, grid and block (`kernel_matches`). Where operators of recorded shapes launch it, one
kernel a call, the operator's compulsory traffic is the kernel's: every operand read once, every result written once.
Several shapes may take the same kernel and grid: then the bytes are not known.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from timesink.knowledge import gpus
from timesink.knowledge.gpus import GpuPeaks, Precision, peaks
from timesink.knowledge.work import recorded_work
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.roofline import LEVELS, bandwidth, cuda_core_peak, sm_clock, sm_count
from timesink.measures.kernels.attainable import SIGNATURE, operator_calls
from timesink.measures.kernels.facts import kernel_facts
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_CUDA_CORES = (("d", Precision.FP64), ("f", Precision.FP32))


class MachineRoof(Record):
    """One roof of one GPU, dense: bytes per second of a memory `level`, else operations per second of a `precision`.
    None: not known. `profiled` is at the clocks of the report's longest launch."""

    gpu: str
    label: str
    level: str | None
    precision: Precision | None
    profiled: float | None
    boost: float | None
    specified: float | None
    measured: float | None

    @property
    def is_known(self) -> bool:
        """Whether any of its figures is."""
        return any(figure is not None for figure in (self.profiled, self.boost, self.specified, self.measured))


def machine_roofs(trace: Trace) -> tuple[MachineRoof, ...]:
    """The roofs of every GPU of the report that are known, memory first."""
    longest: dict[str, KernelCounters] = {}
    for kernel in kernel_counters(trace):
        held = longest.get(kernel.gpu)
        if kernel.duration_ns is not None and (held is None or (held.duration_ns or 0) < kernel.duration_ns):
            longest[kernel.gpu] = kernel
    return tuple(roof for kernel in longest.values() for roof in _roofs(kernel) if roof.is_known)


def _roofs(kernel: KernelCounters) -> Iterator[MachineRoof]:
    sheet = peaks(kernel.gpu)
    clock, most = sm_clock(kernel), kernel.get("device__attribute_clock_rate")
    faster = most * 1e3 / clock if most and clock else None
    for level in LEVELS:
        yield _memory(kernel, level, sheet, faster)
    for letter, precision in _CUDA_CORES:
        has_own = kernel.get(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained") and clock
        profiled = cuda_core_peak(kernel, letter, sheet) if has_own else None
        yield _arithmetic(kernel.gpu, precision, f"{precision}", (profiled, faster), sheet)
    yield from _tensor(kernel, sheet, faster)


def _memory(kernel: KernelCounters, level: str, sheet: GpuPeaks | None, faster: float | None) -> MachineRoof:
    profiled = bandwidth(kernel, level, None)
    boost = specified = measured = None
    if level == "l1" and profiled and faster:
        boost = profiled * faster
    if level == "dram":
        clock = kernel.get("device__attribute_memory_clock_rate")
        bits = kernel.get("device__attribute_global_memory_bus_width")
        boost = 2 * clock * 1e3 * bits / gpus.BITS_OF_BYTE if clock and bits else None
        if sheet is not None:
            specified = sheet.specified_dram_bytes_per_s or sheet.dram_bytes_per_s
            measured = sheet.measured.get(level)
    return MachineRoof(kernel.gpu, level.upper(), level, None, profiled, boost, specified, measured)


def _arithmetic(
    gpu: str, precision: Precision, label: str, rates: tuple[float | None, float | None], sheet: GpuPeaks | None
) -> MachineRoof:
    """A roof of arithmetic. `rates`: at the profiled clock, and boost over that clock."""
    profiled, faster = rates
    boost = profiled * faster if profiled and faster else None
    specified = sheet.flops.get(precision) if sheet else None
    measured = sheet.measured.get(precision.value) if sheet else None
    return MachineRoof(gpu, label, None, precision, profiled, boost, specified, measured)


def _tensor(kernel: KernelCounters, sheet: GpuPeaks | None, faster: float | None) -> Iterator[MachineRoof]:
    """Of each format and path; what the datasheet specifies stands beside the fastest path."""
    clock, sms = sm_clock(kernel), sm_count(kernel, sheet)
    for precision in Precision:
        if precision in (Precision.FP64, Precision.FP32):
            continue
        rates = gpus.tensor_rates(kernel.compute_capability, precision)
        for place, (path, rate) in enumerate(rates):
            profiled = rate * sms * clock if sms and clock else None
            label = f"{precision.value.removesuffix('_tensor')} tensor ({path})"
            yield _arithmetic(kernel.gpu, precision, label, (profiled, faster), sheet if place == 0 else None)
        if not rates:
            label = f"{precision.value.removesuffix('_tensor')} tensor"
            yield _arithmetic(kernel.gpu, precision, label, (None, None), sheet)


_OTHER_SHAPE: Final = 2.0  # times: clocks held down and caches flushed by the profiler explain no more


class LeastBytes(Record):
    """Bytes to read and write at least, and the operator and shapes they are of: empty where a person gave the bytes.
    Where they are not known, `value` is None and `why` says why."""

    value: float | None
    operator: str = ""
    why: str = ""


@remembered
def least_bytes(trace: Trace) -> dict[tuple[int, int], LeastBytes]:
    """By (rank, profile): what each launch of a report must move; empty without a timeline read with it."""
    if not trace.get(DEVICE_OPS).height:
        return {}
    calls = operator_calls(trace, kernel_facts(trace).frame).filter(
        (pl.col("kernels") == 1) & pl.col("input_shapes").is_not_null()
    )
    matches = kernel_matches(trace)
    launches = (((kernel.rank, kernel.profile), kernel) for kernel in kernel_counters(trace))
    return {key: _of_launch(kernel, matches.get(key), calls) for key, kernel in launches}


def _of_launch(kernel: KernelCounters, match: KernelMatch | None, calls: pl.DataFrame) -> LeastBytes:
    if match is None or not match.is_exact:
        return LeastBytes(None, why="the timeline has no launch of this kernel, grid and block")
    times = match.mean_ns / kernel.duration_ns if kernel.duration_ns else 1.0
    if not 1 / _OTHER_SHAPE <= times <= _OTHER_SHAPE:
        return LeastBytes(None, why=f"in the timeline it takes {times:.2g} x as long, as another shape would")
    rows = calls.filter(pl.col("row").is_in(match.rows.cast(calls["row"].dtype).implode()))
    works = {_work(row) for row in rows.select(SIGNATURE).unique(maintain_order=True).iter_rows(named=True)}
    if len(works) == 1:
        return works.pop()
    what = (
        f"operators of {len(works)} shapes launch it" if works else "no operator of recorded shapes launches it alone"
    )
    return LeastBytes(None, why=f"in the timeline {what}")


def _work(row: dict[str, str | None]) -> LeastBytes:
    name, shapes = row["name"] or "", row["input_shapes"] or ""
    work = recorded_work(name, shapes, row["input_dtypes"] or "", row["input_strides"], row["concrete_inputs"])
    if work is None or not work.bytes:
        return LeastBytes(None, why=f"what {name} must move is not known")
    return LeastBytes(float(work.bytes), f"{name} {shapes}")
