"""What one profile says that may be gated: shares of the step, counts per step, peak memory, deterministic counters.

A profile's times are never gated: one capture per side is no basis for a verdict. Shares are compared within a
tolerance in points, counts exactly.

Single steps that change otherwise than the rest: what a neutral mean or median hides.

Where both captures hold equally many steps, the n-th of one is taken for the n-th of the other: the same place in the
same plan. Each pair's log ratio is held against the median of all; one that lies further off than the others scatter,
and by more than the threshold, is told. Nothing is judged: one step of one run is no basis for a verdict.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from timesink.units import time_text
from timesink.verify.baseline import Counter
from timesink.verify.outcomes import Better, How

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
    from timesink.measures.steps.per_step import step_budgets
    from timesink.measures.timeline.launches import launches

    found: dict[str, Counter] = {}
    frame = step_budgets(trace)
    if frame.height:
        sums = frame.group_by("rank", "device").sum().sort("rank", "device")
        for name, column in _SHARES.items():
            worst = max(part / whole for part, whole in zip(sums[column], sums["period_ns"], strict=True) if whole)
            found[f"{name} share"] = Counter(float(worst), "share", How.SHARE)
    per_step = [part.launches_per_step for part in launches(trace).values() if part.launches_per_step is not None]
    if per_step:
        found["launches per step"] = Counter(max(per_step), "launches")
    return found


def compile_metrics(trace: Trace) -> dict[str, Counter]:
    """Counts of a compiled program: breaks and recompilations from a log, regions per step from a profile.

    A profile without compiled regions says nothing of a compiler, and gives no count.
    """
    from timesink.measures.compile.summary import compile_counters
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
    from timesink.measures.counters.counters import kernel_counters
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


_FEWEST: Final = 5
_DEVIATIONS: Final = 5.0  # of the median absolute deviation, scaled to a normal one's standard deviation
_TO_SIGMA: Final = 1.4826
_SHOWN: Final = 4


def single_changes(before_ns: Sequence[float], after_ns: Sequence[float], threshold_ratio: float) -> list[str]:
    """One sentence per step that stands apart, the furthest first; nothing where steps cannot be paired."""
    if len(before_ns) != len(after_ns) or len(before_ns) < _FEWEST or min(*before_ns, *after_ns) <= 0:
        return []
    change = np.log(np.asarray(after_ns, np.float64) / np.asarray(before_ns, np.float64))
    usual = float(np.median(change))
    apart = np.abs(change - usual)
    noise = _DEVIATIONS * _TO_SIGMA * float(np.median(apart))
    odd = np.flatnonzero(apart > max(noise, math.log1p(threshold_ratio)))
    if 2 * odd.size >= change.size:  # then no step is the usual one
        return []
    order = sorted(odd.tolist(), key=lambda place: (-apart[place], place))
    told = [
        f"step {place + 1} of {change.size}: {time_text(before_ns[place])} before, {time_text(after_ns[place])} after "
        f"({_percent(float(change[place]))}), where the median step changes by {_percent(usual)}"
        for place in order[:_SHOWN]
    ]
    return [*told, f"{odd.size - _SHOWN} more steps stand apart"] if odd.size > _SHOWN else told


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):+.1f} %"
