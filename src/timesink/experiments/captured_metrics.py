"""What one profile says that may be gated: shares of the step, counts per step, peak memory, deterministic counters.

A profile's times are never gated: one capture per side is no basis for a verdict. Shares are compared within a
tolerance in points, counts exactly.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from timesink.experiments.baseline import Counter
from timesink.outcomes import Better, How

if TYPE_CHECKING:
    from timesink.model.trace import Trace

# Counts of what a kernel was told to do: the same on every replay, whatever the clock. Sums over threads or sectors.
_DETERMINISTIC = (
    "smsp__inst_executed.sum",
    "sm__inst_executed.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
)
_SHARES = {"exposed communication": "exposed_communication_ns", "exposed copy": "exposed_copy_ns", "idle": "idle_ns"}


def captured_metrics(trace: Trace) -> dict[str, Counter]:
    """Every metric the trace holds; what it did not record is left out, never zero."""
    return {**step_metrics(trace), **compile_metrics(trace), **memory_metrics(trace), **kernel_metrics(trace)}


def step_metrics(trace: Trace) -> dict[str, Counter]:
    """Shares of the step's time and launches per step, of the device where each is worst."""
    from timesink.measures.budget import step_budgets
    from timesink.measures.launches import launches

    found: dict[str, Counter] = {}
    frame = step_budgets(trace).frame
    if frame.height:
        sums = frame.group_by("rank", "device").sum().sort("rank", "device")
        for name, column in _SHARES.items():
            worst = max(part / whole for part, whole in zip(sums[column], sums["period_ns"], strict=True) if whole)
            found[f"{name} share"] = Counter(float(worst), "share", How.SHARE)
    per_step = [one.launches_per_step for one in launches(trace) if one.launches_per_step is not None]
    if per_step:
        found["launches per step"] = Counter(max(per_step), "launches")
    return found


def compile_metrics(trace: Trace) -> dict[str, Counter]:
    """Counts of a compiled program: breaks and recompilations from a log, regions per step from a profile.

    A profile without compiled regions says nothing of a compiler, and gives no count.
    """
    from timesink.measures.compile_counters import compile_counters
    from timesink.model.tables import COMPILE_EVENTS

    counts = compile_counters(trace).known()
    if COMPILE_EVENTS not in trace and "regions_per_step" not in counts:
        return {}
    return {
        name.replace("_", " "): Counter(value, "")
        for name, value in counts.items()
        if name != "launches_per_step"  # told by `step_metrics`
    }


def memory_metrics(trace: Trace) -> dict[str, Counter]:
    """Peak allocated bytes on any GPU, where the profiler recorded the allocator."""
    from timesink.model.tables import MEMORY_EVENTS

    if MEMORY_EVENTS not in trace:
        return {}
    events = trace[MEMORY_EVENTS]
    peak = events.filter(events["device"] >= 0)["total_allocated_bytes"].drop_nulls().max()
    return {"memory peak": Counter(float(peak), "bytes")} if isinstance(peak, int) else {}


def kernel_metrics(trace: Trace) -> dict[str, Counter]:
    """Deterministic counters of profiled kernels, summed over the launches of each kernel."""
    from timesink.measures.kernel_counters import kernel_counters
    from timesink.model.tables import KERNEL_PROFILES

    if KERNEL_PROFILES not in trace:
        return {}
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for kernel in kernel_counters(trace):
        for name in _DETERMINISTIC:
            value = kernel.get(name)
            if value is not None:
                sums[kernel.name, name] += value
    return {
        f"{kernel}: {name}": Counter(value, "", better=Better.LOWER) for (kernel, name), value in sorted(sums.items())
    }
