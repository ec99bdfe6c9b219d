"""Why the warps of a kernel did not issue: the stall reasons, from counters or, failing them, from samples.

How full a kernel keeps the GPU with warps, and what keeps it from more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from timesink.measures.counters.counters import KernelCounters

_COUNTED = re.compile(r"^smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$")
_SAMPLED = re.compile(r"^smsp__pcsamp_warps_issue_stalled_(\w+)$")
_TOTAL = "smsp__average_warp_latency_per_inst_issued.ratio"

# Reasons that more warps hide: a load, a queue, a fixed latency of this warp alone.
HIDDEN_BY_WARPS = frozenset(
    {"long_scoreboard", "short_scoreboard", "wait", "dispatch_stall", "imc_miss", "branch_resolving", "drain"}
)
# Reasons that more warps leave as they are or make worse: they wait for each other, for fences, for instructions.
NOT_HIDDEN = frozenset(
    {"barrier", "membar", "sleeping", "no_instruction", "no_instructions", "misc", "gmma", "warpgroup_arrive"}
)
# Queues and pipes that are full: more warps only lengthen the queue.
FULL = frozenset({"lg_throttle", "mio_throttle", "tex_throttle", "math_pipe_throttle"})
_HEALTHY = frozenset({"selected", "not_selected"})


@dataclass(frozen=True, slots=True)
class Stalls:
    """Share of warps' waiting time by reason; healthy states (selected, not selected) are left out. Shares sum to 1.

    `cycles` is the mean number of cycles between two issues of a warp, `identity` the sum of all reasons over it: 1
    where both were measured alike. None where the report holds samples only.
    """

    shares: Mapping[str, float]
    cycles: float | None
    identity: float | None
    is_sampled: bool

    def of(self, reasons: frozenset[str]) -> float:
        """Share of these reasons together."""
        return fsum(share for reason, share in self.shares.items() if reason in reasons)

    @property
    def top(self) -> tuple[str, float] | None:
        """The largest reason and its share."""
        return max(self.shares.items(), key=lambda item: (item[1], item[0]), default=None)


def stalls_of(kernel: KernelCounters) -> Stalls | None:
    """The stall reasons of one kernel, None where neither counters nor samples were collected."""
    counted = _matching(kernel, _COUNTED)
    waiting = counted or _matching(kernel, _SAMPLED)
    bad = {reason: value for reason, value in waiting.items() if reason not in _HEALTHY and value > 0}
    total = fsum(bad.values())
    if not waiting or total <= 0:
        return None
    latency = kernel.get(_TOTAL)
    identity = fsum(counted.values()) / latency if counted and latency else None
    shares = {reason: value / total for reason, value in sorted(bad.items())}
    return Stalls(shares, latency, identity, is_sampled=not counted)


def _matching(kernel: KernelCounters, pattern: re.Pattern[str]) -> dict[str, float]:
    found = ((pattern.match(name), value) for name, value in kernel.values.items() if "issue_stalled" in name)
    return {
        match.group(1): value
        for match, value in found
        if match and not match.group(1).endswith(("_not_issued", "_pipe_l1tex", "_pipe_mio"))
    }


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
