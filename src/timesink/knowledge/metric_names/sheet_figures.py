"""The figures of a kernel's sheet by the table that shows them: key, head, unit, and the counters that hold it.

The unit of what is no number is ``text``. A figure without counters is worked out.
"""

from collections.abc import Mapping
from typing import Final

from timesink.errors import unknown

# fmt: off
SHEET_FIGURES: Final[Mapping[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]]] = {
    "speed of light": (
        ("duration_ns", "duration", "ns", ()),
        ("sm_pct", "SM", "%", ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)),
        ("memory_pct", "memory", "%", ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",)),
        ("l1_pct", "L1", "%", ("l1tex__throughput.avg.pct_of_peak_sustained_active",)),
        ("l2_pct", "L2", "%", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",)),
        ("dram_pct", "DRAM", "%", ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",)),
        ("sm_clock_hz", "SM clock", "Hz", ("gpc__cycles_elapsed.avg.per_second",)),
        ("dram_clock_hz", "DRAM clock", "Hz", ("dram__cycles_elapsed.avg.per_second",)),
        ("elapsed_cycles", "elapsed cycles", "", ("gpc__cycles_elapsed.max",)),
        ("sm_active_cycles", "SM active cycles", "", ("sm__cycles_active.avg",)),
    ),
    "memory": (
        ("dram_bytes_per_s", "DRAM rate", "bytes/s", ("dram__bytes.sum.per_second",)),
        ("l2_bytes_per_s", "L2 rate, to and from SMs", "bytes/s", ()),
        ("l1_bytes_per_s", "L1 rate", "bytes/s", ()),
        ("dram_bytes", "DRAM bytes", "bytes", ()),
        ("l2_bytes", "L2 bytes", "bytes", ()),
        ("l1_bytes", "L1 bytes", "bytes", ()),
        ("l1_hit_pct", "L1 hit rate", "%", ("l1tex__t_sector_hit_rate.pct",)),
        ("l2_hit_pct", "L2 hit rate", "%", ("lts__t_sector_hit_rate.pct",)),
        ("memory_busy_pct", "memory units busy", "%", (
            "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
        )),
        ("bandwidth_pct", "between units", "%", (
            "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
        )),
        ("memory_pipes_pct", "memory pipes busy", "%", ("sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",)),
    ),
    "compute": (
        ("fp64_flop_per_s", "fp64", "FLOP/s", ()),
        ("fp64_pct", "fp64, of its peak", "%", ()),
        ("fp32_flop_per_s", "fp32", "FLOP/s", ()),
        ("fp32_pct", "fp32, of its peak", "%", ()),
        ("fp16_flop_per_s", "fp16", "FLOP/s", ()),
        ("fp16_pct", "fp16, of its peak", "%", ()),
        ("tensor_format", "tensor cores", "text", ()),
        ("tensor_flop_per_s", "tensor cores", "FLOP/s", ()),
        ("tensor_pct", "tensor, of its peak", "%", ()),
        ("fma_pct", "FMA pipe busy", "%", ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",)),
        ("alu_pct", "ALU pipe busy", "%", ("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",)),
        ("xu_pct", "special functions busy", "%", ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",)),
        ("lsu_pct", "load-store busy", "%", ("sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",)),
        ("dram_intensity", "operations per DRAM byte", "", ()),
        ("l2_intensity", "operations per L2 byte", "", ()),
        ("l1_intensity", "operations per L1 byte", "", ()),
        ("ipc_active", "IPC, SM active", "", ("sm__inst_executed.avg.per_cycle_active",)),
        ("ipc_elapsed", "IPC", "", ("sm__inst_executed.avg.per_cycle_elapsed",)),
        ("issued_ipc", "issued IPC, SM active", "", ("sm__inst_issued.avg.per_cycle_active",)),
        ("issue_slots_pct", "issue slots busy", "%", (
            "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_issued.avg.pct_of_peak_sustained_active",
        )),
        ("sm_busy_pct", "SM busy", "%", (
            "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed",
            "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
        )),
    ),
    "accesses": (
        ("load_sectors_per_request", "sectors per load", "", ()),
        ("store_sectors_per_request", "sectors per store", "", ()),
        ("excess_sectors_pct", "sectors beyond coalesced", "%", ()),
        ("bank_conflicts", "passes for bank conflicts", "", ()),
        ("spill_bytes", "local memory (spills)", "bytes", ()),
        ("spill_requests", "spilling requests", "", ("derived__local_spilling_requests",)),
        ("active_threads", "active threads of a warp", "", ()),
        ("predicated_threads", "not predicated off", "", (
            "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
        )),
        ("atomic_requests", "global atomics", "", ()),
    ),
    "schedulers and warps": (
        ("eligible_pct", "one or more eligible", "%", ("smsp__issue_active.avg.pct_of_peak_sustained_active",)),
        ("no_eligible_pct", "no eligible", "%", ("smsp__issue_inst0.avg.pct_of_peak_sustained_active",)),
        ("issued_warps", "issued warps a cycle", "", ("smsp__issue_active.avg.per_cycle_active",)),
        ("active_warps", "active warps a scheduler", "", ("smsp__warps_active.avg.per_cycle_active",)),
        ("eligible_warps", "eligible warps a scheduler", "", ("smsp__warps_eligible.avg.per_cycle_active",)),
        ("cycles_per_issue", "cycles per issue", "", ("smsp__average_warp_latency_per_inst_issued.ratio",)),
        ("cycles_per_executed", "cycles per instruction", "", ("smsp__average_warps_active_per_inst_executed.ratio",)),
    ),
    "stalls": (
        ("stall_long_scoreboard_pct", "long scoreboard", "%", ()),
        ("stall_short_scoreboard_pct", "short scoreboard", "%", ()),
        ("stall_wait_pct", "wait", "%", ()),
        ("stall_barrier_pct", "barrier", "%", ()),
        ("stall_membar_pct", "membar", "%", ()),
        ("stall_math_pipe_throttle_pct", "math pipe throttle", "%", ()),
        ("stall_mio_throttle_pct", "mio throttle", "%", ()),
        ("stall_lg_throttle_pct", "lg throttle", "%", ()),
        ("stall_tex_throttle_pct", "tex throttle", "%", ()),
        ("stall_gmma_pct", "gmma", "%", ()),
        ("stall_no_instruction_pct", "no instruction", "%", ()),
        ("stall_dispatch_stall_pct", "dispatch stall", "%", ()),
        ("stall_drain_pct", "drain", "%", ()),
        ("stall_imc_miss_pct", "imc miss", "%", ()),
        ("stall_misc_pct", "misc", "%", ()),
        ("stall_branch_resolving_pct", "branch resolving", "%", ()),
        ("stall_sleeping_pct", "sleeping", "%", ()),
    ),
    "occupancy": (
        ("theoretical_occupancy_pct", "theoretical", "%", ("sm__maximum_warps_per_active_cycle_pct",)),
        ("achieved_occupancy_pct", "achieved", "%", ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
        ("occupancy_limit", "limited by", "text", ()),
        ("theoretical_warps", "theoretical warps an SM", "", ("sm__maximum_warps_avg_per_active_cycle",)),
        ("achieved_warps", "achieved warps an SM", "", ("sm__warps_active.avg.per_cycle_active",)),
        ("register_block_limit", "blocks by registers", "", ("launch__occupancy_limit_registers",)),
        ("shared_block_limit", "blocks by shared memory", "", ("launch__occupancy_limit_shared_mem",)),
        ("warp_block_limit", "blocks by warps", "", ("launch__occupancy_limit_warps",)),
        ("sm_block_limit", "blocks an SM takes", "", ("launch__occupancy_limit_blocks",)),
        ("barrier_block_limit", "blocks by barriers", "", ("launch__occupancy_limit_barriers",)),
    ),
    "launch": (
        ("grid", "grid", "text", ()),
        ("block", "block", "text", ()),
        ("blocks", "blocks", "", ("launch__grid_size",)),
        ("block_threads", "threads a block", "", ("launch__block_size",)),
        ("threads", "threads", "", ("launch__thread_count",)),
        ("registers", "registers a thread", "", ("launch__registers_per_thread",)),
        ("static_shared_bytes", "shared memory, static", "bytes", ("launch__shared_mem_per_block_static",)),
        ("dynamic_shared_bytes", "shared memory, dynamic", "bytes", ("launch__shared_mem_per_block_dynamic",)),
        ("driver_shared_bytes", "shared memory, driver", "bytes", ("launch__shared_mem_per_block_driver",)),
        ("shared_carveout_bytes", "shared memory an SM", "bytes", ("launch__shared_mem_config_size",)),
        ("cluster_blocks", "blocks a cluster", "", ("launch__cluster_size",)),
        ("sms", "SMs", "", ("launch__sm_count",)),
        ("waves", "waves", "", ("launch__waves_per_multiprocessor",)),
        ("tail_pct", "tail, of the waves", "%", ()),
        ("sm_idle_pct", "SMs without a block", "%", ()),
    ),
    "instructions": (
        ("executed_instructions", "executed", "", ("smsp__inst_executed.sum",)),
        ("issued_instructions", "issued", "", ("smsp__inst_issued.sum",)),
        ("executed_per_scheduler", "executed a scheduler", "", ("smsp__inst_executed.avg",)),
        ("issued_per_scheduler", "issued a scheduler", "", ("smsp__inst_issued.avg",)),
        ("branch_pct", "branches among them", "%", ("derived__smsp__inst_executed_op_branch_pct",)),
        ("branches", "branches", "", ("smsp__inst_executed_op_branch.sum",)),
        ("branch_efficiency_pct", "branch efficiency", "%", ("smsp__sass_average_branch_targets_threads_uniform.pct",)),
        ("divergent_branches", "divergent branches", "", ("smsp__sass_branch_targets_threads_divergent.avg",)),
    ),
}

# fmt: on

VERDICT: Final = ("limiter", "limiter_pct", "limiter_most_pct", "roof", "roof_pct", "roof_speedup", "bound_speedup")
"""Keys of what a sheet says of its kernel as a whole, the columns before its figures."""
SHEET_COLUMNS: Final = (*VERDICT, *(key for figures in SHEET_FIGURES.values() for key, *_ in figures))
"""Every column of a table of sheets."""


def check_column(key: str) -> None:
    """`UsageError` for what is no column of a sheet."""
    if key not in SHEET_COLUMNS:
        raise unknown("column", key, list(SHEET_COLUMNS), "timesink query REPORT")
