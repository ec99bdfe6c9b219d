"""Why the warps of a kernel did not issue: the stall reasons, from counters or, failing them, from samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from timesink.measures.kernel_counters import KernelCounters

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
