"""How full a kernel keeps the GPU with warps, and what keeps it from more."""

from __future__ import annotations

from dataclasses import dataclass

from timesink.measures.kernel_counters import KernelCounters

_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Warps resident per SM as shares of the most an SM holds, and how the grid fills the GPU.

    `theoretical` is what registers, shared memory and block size allow; `limited_by` names which of them (the smallest
    number of blocks). `achieved` is the mean while an SM was active. `sm_idle` is the mean share of the kernel's time
    in which an SM had no block: a grid too small, a last wave, blocks of unequal length, and the launch itself.
    `waves` is the number of times the grid fills the GPU. None: not collected.
    """

    theoretical: float | None
    achieved: float | None
    limited_by: tuple[str, ...]
    waves: float | None
    sm_count: float | None
    sm_idle: float | None


def occupancy_of(kernel: KernelCounters) -> Occupancy:
    """The occupancy of one kernel."""
    limits = {word: limit for word, name in _LIMITS.items() if (limit := kernel.get(name)) is not None}
    fewest = min(limits.values(), default=None)
    theoretical = kernel.get("sm__maximum_warps_per_active_cycle_pct")
    achieved = kernel.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    active = kernel.get("sm__cycles_active.avg")
    elapsed = kernel.first("sm__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max")
    return Occupancy(
        theoretical=None if theoretical is None else theoretical / 100,
        achieved=None if achieved is None else achieved / 100,
        limited_by=tuple(word for word, limit in limits.items() if limit == fewest and word != "warps"),
        waves=kernel.get("launch__waves_per_multiprocessor"),
        sm_count=kernel.first("launch__sm_count", "device__attribute_multiprocessor_count"),
        sm_idle=None if active is None or not elapsed else min(1.0, max(0.0, 1 - active / elapsed)),
    )
