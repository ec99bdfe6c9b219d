"""Everything a report says of one kernel, figure by figure: the columns of the table `kernel_sheets`.

A figure that a counter holds is that counter, in the unit its key ends in, unrounded: rounded to the digits that the
profiler's details page prints, it is the page's. Percentages are 0 to 100, as there. A figure that the report does not
hold is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

from timesink.knowledge import gpus
from timesink.measures.counters import (
    KernelCounters,
    Occupancy,
    Stalls,
    kernel_counters,
    occupancy_of,
    stalls_of,
)
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.roofline import ComputeRoof, KernelRoofline, level_bytes, roofline_of
from timesink.measures.counters.waste import Access, access_of, active_lanes
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass

Value = float | str | None
_ELAPSED, _ACTIVE = ".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active"


@dataclass(frozen=True, slots=True, eq=False)
class LaunchFacts:
    """One launch as the figures read it, with what several of them share."""

    kernel: KernelCounters
    roofline: KernelRoofline | None
    occupancy: Occupancy
    stalls: Stalls | None
    access: Access


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the sheet. `key` names it and ends in its unit; `group` is the table that shows it; `counters` are
    the names it is read from as they stand, the first that was collected; without any, `of` works it out.
    """

    key: str
    group: str
    head: str
    unit: str
    counters: tuple[str, ...] = ()
    of: Callable[[LaunchFacts], Value] | None = None
    is_text: bool = False

    def value(self, facts: LaunchFacts) -> Value:
        """The figure of one launch; None where the report does not hold it."""
        if self.of is not None:
            found = self.of(facts)
            return None if isinstance(found, float) and not isfinite(found) else found
        return facts.kernel.first(*self.counters)


def _bytes(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: level_bytes(facts.kernel, level)


def _rate(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _per_second(facts, level_bytes(facts.kernel, level))


def _per_second(facts: LaunchFacts, amount: float | None) -> Value:
    time_ns = facts.kernel.duration_ns
    return None if amount is None or not time_ns else amount / (time_ns / 1e9)


def _percent(share: float | None) -> Value:
    return None if share is None else 100 * share


def _intensity(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: None if facts.roofline is None else facts.roofline.intensity(level)


def _work(facts: LaunchFacts, path: str) -> ComputeRoof | None:
    """The roof of fp32, fp64 or fp16 on the ordinary cores, or the nearest of the tensor cores."""
    roofs = () if facts.roofline is None else facts.roofline.compute
    if path == "tensor":
        return max((roof for roof in roofs if roof.path != "cuda"), key=lambda roof: roof.share, default=None)
    return next((roof for roof in roofs if roof.path == "cuda" and roof.precision == path), None)


def _flop_rate(path: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _per_second(facts, roof.flops if (roof := _work(facts, path)) else None)


def _flop_share(path: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _percent(roof.share if (roof := _work(facts, path)) else None)


def _per_request(op: str) -> Callable[[LaunchFacts], Value]:
    base = f"_pipe_lsu_mem_global_op_{op}"

    def sectors(facts: LaunchFacts) -> Value:
        kernel = facts.kernel
        ratio = kernel.get(f"l1tex__average_t_sectors_per_request{base}.ratio")
        count, requests = kernel.get(f"l1tex__t_sectors{base}.sum"), kernel.get(f"l1tex__t_requests{base}.sum")
        return ratio if ratio is not None else count / requests if count is not None and requests else None

    return sectors


def _conflicts(facts: LaunchFacts) -> Value:
    access = facts.access
    if access.shared_wavefronts is None or access.ideal_shared_wavefronts is None:
        return None
    return max(0.0, access.shared_wavefronts - access.ideal_shared_wavefronts)


def _spilled(facts: LaunchFacts) -> Value:
    names = (f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
    sectors = facts.kernel.total(*names)
    return None if sectors is None else sectors * gpus.SECTOR_BYTES


def _shape(sizes: tuple[int, int, int]) -> Value:
    return " × ".join(map(str, sizes)) if all(sizes) else None


def _atomics(facts: LaunchFacts) -> Value:
    return facts.kernel.total(*(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("atom", "red")))


_REASONS = (
    *("long_scoreboard", "short_scoreboard", "wait", "barrier", "membar", "math_pipe_throttle", "mio_throttle"),
    *("lg_throttle", "tex_throttle", "gmma", "no_instruction", "dispatch_stall", "drain", "imc_miss", "misc"),
    *("branch_resolving", "sleeping"),
)


def _stall(reason: str) -> Figure:
    def share(facts: LaunchFacts) -> Value:
        return None if facts.stalls is None else 100 * facts.stalls.shares.get(reason, 0.0)

    return Figure(f"stall_{reason}_pct", "stalls", reason.replace("_", " "), "%", of=share)


_LIGHT, _MEMORY, _COMPUTE, _ACCESS = "speed of light", "memory", "compute", "accesses"
_WARPS, _OCCUPANCY, _LAUNCH, _SOURCE = "schedulers and warps", "occupancy", "launch", "instructions"


def _both(name: str) -> tuple[str, str]:
    """Names of versions that differ in whether idle SMs count."""
    return name + _ELAPSED, name + _ACTIVE


FIGURES: tuple[Figure, ...] = (
    Figure("duration_ns", _LIGHT, "duration", "ns", of=lambda facts: facts.kernel.duration_ns),
    Figure("sm_pct", _LIGHT, "SM", "%", ("sm__throughput" + _ELAPSED,)),
    Figure("memory_pct", _LIGHT, "memory", "%", ("gpu__compute_memory_throughput" + _ELAPSED,)),
    Figure("l1_pct", _LIGHT, "L1", "%", ("l1tex__throughput" + _ACTIVE,)),
    Figure("l2_pct", _LIGHT, "L2", "%", ("lts__throughput" + _ELAPSED,)),
    Figure("dram_pct", _LIGHT, "DRAM", "%", ("gpu__dram_throughput" + _ELAPSED,)),
    Figure("sm_clock_hz", _LIGHT, "SM clock", "Hz", ("gpc__cycles_elapsed.avg.per_second",)),
    Figure("dram_clock_hz", _LIGHT, "DRAM clock", "Hz", ("dram__cycles_elapsed.avg.per_second",)),
    Figure("elapsed_cycles", _LIGHT, "elapsed cycles", "", ("gpc__cycles_elapsed.max",)),
    Figure("sm_active_cycles", _LIGHT, "SM active cycles", "", ("sm__cycles_active.avg",)),
    Figure("dram_bytes_per_s", _MEMORY, "DRAM rate", "bytes/s", ("dram__bytes.sum.per_second",)),
    Figure("l2_bytes_per_s", _MEMORY, "L2 rate, to and from SMs", "bytes/s", of=_rate("l2")),
    Figure("l1_bytes_per_s", _MEMORY, "L1 rate", "bytes/s", of=_rate("l1")),
    Figure("dram_bytes", _MEMORY, "DRAM bytes", "bytes", of=_bytes("dram")),
    Figure("l2_bytes", _MEMORY, "L2 bytes", "bytes", of=_bytes("l2")),
    Figure("l1_bytes", _MEMORY, "L1 bytes", "bytes", of=_bytes("l1")),
    Figure("l1_hit_pct", _MEMORY, "L1 hit rate", "%", ("l1tex__t_sector_hit_rate.pct",)),
    Figure("l2_hit_pct", _MEMORY, "L2 hit rate", "%", ("lts__t_sector_hit_rate.pct",)),
    Figure("memory_busy_pct", _MEMORY, "memory units busy", "%", ("gpu__compute_memory_access_throughput" + _ELAPSED,)),
    Figure("bandwidth_pct", _MEMORY, "between units", "%", ("gpu__compute_memory_request_throughput" + _ELAPSED,)),
    Figure("memory_pipes_pct", _MEMORY, "memory pipes busy", "%", ("sm__memory_throughput" + _ELAPSED,)),
    Figure("fp64_flop_per_s", _COMPUTE, "fp64", "FLOP/s", of=_flop_rate("fp64")),
    Figure("fp64_pct", _COMPUTE, "fp64, of its peak", "%", of=_flop_share("fp64")),
    Figure("fp32_flop_per_s", _COMPUTE, "fp32", "FLOP/s", of=_flop_rate("fp32")),
    Figure("fp32_pct", _COMPUTE, "fp32, of its peak", "%", of=_flop_share("fp32")),
    Figure("fp16_flop_per_s", _COMPUTE, "fp16", "FLOP/s", of=_flop_rate("fp16")),
    Figure("fp16_pct", _COMPUTE, "fp16, of its peak", "%", of=_flop_share("fp16")),
    Figure("tensor_format", _COMPUTE, "tensor cores", "",
           of=lambda facts: roof.label if (roof := _work(facts, "tensor")) else None, is_text=True),
    Figure("tensor_flop_per_s", _COMPUTE, "tensor cores", "FLOP/s", of=_flop_rate("tensor")),
    Figure("tensor_pct", _COMPUTE, "tensor, of its peak", "%", of=_flop_share("tensor")),
    Figure("fma_pct", _COMPUTE, "FMA pipe busy", "%", ("sm__pipe_fma_cycles_active" + _ELAPSED,)),
    Figure("alu_pct", _COMPUTE, "ALU pipe busy", "%", ("sm__pipe_alu_cycles_active" + _ELAPSED,)),
    Figure("xu_pct", _COMPUTE, "special functions busy", "%", ("sm__inst_executed_pipe_xu" + _ELAPSED,)),
    Figure("lsu_pct", _COMPUTE, "load-store busy", "%", ("sm__inst_executed_pipe_lsu" + _ELAPSED,)),
    Figure("dram_intensity", _COMPUTE, "operations per DRAM byte", "", of=_intensity("dram")),
    Figure("l2_intensity", _COMPUTE, "operations per L2 byte", "", of=_intensity("l2")),
    Figure("l1_intensity", _COMPUTE, "operations per L1 byte", "", of=_intensity("l1")),
    Figure("ipc_active", _COMPUTE, "IPC, SM active", "", ("sm__inst_executed.avg.per_cycle_active",)),
    Figure("ipc_elapsed", _COMPUTE, "IPC", "", ("sm__inst_executed.avg.per_cycle_elapsed",)),
    Figure("issued_ipc", _COMPUTE, "issued IPC, SM active", "", ("sm__inst_issued.avg.per_cycle_active",)),
    Figure("issue_slots_pct", _COMPUTE, "issue slots busy", "%", _both("sm__inst_issued")),
    Figure("sm_busy_pct", _COMPUTE, "SM busy", "%", _both("sm__instruction_throughput")),
    Figure("load_sectors_per_request", _ACCESS, "sectors per load", "", of=_per_request("ld")),
    Figure("store_sectors_per_request", _ACCESS, "sectors per store", "", of=_per_request("st")),
    Figure("excess_sectors_pct", _ACCESS, "sectors beyond coalesced", "%",
           of=lambda facts: _percent(facts.access.excess_ratio)),
    Figure("bank_conflicts", _ACCESS, "passes for bank conflicts", "", of=_conflicts),
    Figure("spill_bytes", _ACCESS, "local memory (spills)", "bytes", of=_spilled),
    Figure("spill_requests", _ACCESS, "spilling requests", "", ("derived__local_spilling_requests",)),
    Figure("active_threads", _ACCESS, "active threads of a warp", "", of=lambda facts: active_lanes(facts.kernel)),
    Figure("predicated_threads", _ACCESS, "not predicated off", "",
           ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",)),
    Figure("atomic_requests", _ACCESS, "global atomics", "", of=_atomics),
    Figure("eligible_pct", _WARPS, "one or more eligible", "%", ("smsp__issue_active" + _ACTIVE,)),
    Figure("no_eligible_pct", _WARPS, "no eligible", "%", ("smsp__issue_inst0" + _ACTIVE,)),
    Figure("issued_warps", _WARPS, "issued warps a cycle", "", ("smsp__issue_active.avg.per_cycle_active",)),
    Figure("active_warps", _WARPS, "active warps a scheduler", "", ("smsp__warps_active.avg.per_cycle_active",)),
    Figure("eligible_warps", _WARPS, "eligible warps a scheduler", "", ("smsp__warps_eligible.avg.per_cycle_active",)),
    Figure("cycles_per_issue", _WARPS, "cycles per issue", "", ("smsp__average_warp_latency_per_inst_issued.ratio",)),
    Figure("cycles_per_executed", _WARPS, "cycles per instruction", "",
           ("smsp__average_warps_active_per_inst_executed.ratio",)),
    *map(_stall, _REASONS),
    Figure("theoretical_occupancy_pct", _OCCUPANCY, "theoretical", "%", ("sm__maximum_warps_per_active_cycle_pct",)),
    Figure("achieved_occupancy_pct", _OCCUPANCY, "achieved", "%", ("sm__warps_active" + _ACTIVE,)),
    Figure("occupancy_limit", _OCCUPANCY, "limited by", "",
           of=lambda facts: " and ".join(facts.occupancy.limited_by) or None, is_text=True),
    Figure("theoretical_warps", _OCCUPANCY, "theoretical warps an SM", "", ("sm__maximum_warps_avg_per_active_cycle",)),
    Figure("achieved_warps", _OCCUPANCY, "achieved warps an SM", "", ("sm__warps_active.avg.per_cycle_active",)),
    Figure("register_block_limit", _OCCUPANCY, "blocks by registers", "", ("launch__occupancy_limit_registers",)),
    Figure("shared_block_limit", _OCCUPANCY, "blocks by shared memory", "", ("launch__occupancy_limit_shared_mem",)),
    Figure("warp_block_limit", _OCCUPANCY, "blocks by warps", "", ("launch__occupancy_limit_warps",)),
    Figure("sm_block_limit", _OCCUPANCY, "blocks an SM takes", "", ("launch__occupancy_limit_blocks",)),
    Figure("barrier_block_limit", _OCCUPANCY, "blocks by barriers", "", ("launch__occupancy_limit_barriers",)),
    Figure("grid", _LAUNCH, "grid", "", of=lambda facts: _shape(facts.kernel.grid), is_text=True),
    Figure("block", _LAUNCH, "block", "", of=lambda facts: _shape(facts.kernel.block), is_text=True),
    Figure("blocks", _LAUNCH, "blocks", "", ("launch__grid_size",)),
    Figure("block_threads", _LAUNCH, "threads a block", "", ("launch__block_size",)),
    Figure("threads", _LAUNCH, "threads", "", ("launch__thread_count",)),
    Figure("registers", _LAUNCH, "registers a thread", "", ("launch__registers_per_thread",)),
    Figure("static_shared_bytes", _LAUNCH, "shared memory, static", "bytes", ("launch__shared_mem_per_block_static",)),
    Figure("dynamic_shared_bytes", _LAUNCH, "shared memory, dynamic", "bytes",
           ("launch__shared_mem_per_block_dynamic",)),
    Figure("driver_shared_bytes", _LAUNCH, "shared memory, driver", "bytes", ("launch__shared_mem_per_block_driver",)),
    Figure("shared_carveout_bytes", _LAUNCH, "shared memory an SM", "bytes", ("launch__shared_mem_config_size",)),
    Figure("cluster_blocks", _LAUNCH, "blocks a cluster", "", ("launch__cluster_size",)),
    Figure("sms", _LAUNCH, "SMs", "", ("launch__sm_count",)),
    Figure("waves", _LAUNCH, "waves", "", ("launch__waves_per_multiprocessor",)),
    Figure("tail_pct", _LAUNCH, "tail, of the waves", "%", of=lambda facts: _percent(facts.occupancy.tail)),
    Figure("sm_idle_pct", _LAUNCH, "SMs without a block", "%", of=lambda facts: _percent(facts.occupancy.sm_idle)),
    Figure("executed_instructions", _SOURCE, "executed", "", ("smsp__inst_executed.sum",)),
    Figure("issued_instructions", _SOURCE, "issued", "", ("smsp__inst_issued.sum",)),
    Figure("executed_per_scheduler", _SOURCE, "executed a scheduler", "", ("smsp__inst_executed.avg",)),
    Figure("issued_per_scheduler", _SOURCE, "issued a scheduler", "", ("smsp__inst_issued.avg",)),
    Figure("branch_pct", _SOURCE, "branches among them", "%", ("derived__smsp__inst_executed_op_branch_pct",)),
    Figure("branches", _SOURCE, "branches", "", ("smsp__inst_executed_op_branch.sum",)),
    Figure("branch_efficiency_pct", _SOURCE, "branch efficiency", "%",
           ("smsp__sass_average_branch_targets_threads_uniform.pct",)),
    Figure("divergent_branches", _SOURCE, "divergent branches", "",
           ("smsp__sass_branch_targets_threads_divergent.avg",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class KernelSheet:
    """One launch: its counters, its explanation (None where it has none) and every figure by its key."""

    kernel: KernelCounters
    limits: KernelLimits | None
    figures: Mapping[str, Value]


@remembered
def kernel_sheets(trace: Trace) -> tuple[KernelSheet, ...]:
    """The sheet of every profiled launch, in report order."""
    return tuple(
        _sheet(kernel, limits) for kernel, limits in zip(kernel_counters(trace), kernel_limits(trace), strict=True)
    )


def _sheet(kernel: KernelCounters, limits: KernelLimits | None) -> KernelSheet:
    roofline = limits.roofline if limits else roofline_of(kernel)
    facts = LaunchFacts(kernel, roofline, occupancy_of(kernel), stalls_of(kernel), access_of(kernel))
    return KernelSheet(kernel, limits, {figure.key: figure.value(facts) for figure in FIGURES})
