"""Why the warps of a kernel did not issue: shares of their waiting by reason, from counters, else from samples."""

from collections.abc import Mapping
from math import fsum

from timesink.knowledge import Pattern
from timesink.knowledge.metric_names import patterns
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import OF_WAITS
from timesink.records import Record, field

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
QUEUES = FULL - {"math_pipe_throttle"}  # queues of L1 and what is before it
_HEALTHY = frozenset({"selected", "not_selected"})


class Stalls(Record):
    """Share of warps' waiting time by reason; healthy states (selected, not selected) are left out. Shares sum to 1.

    `cycles` is the mean number of cycles between two issues of a warp, `identity` the sum of all reasons over it: 1
    where both were measured alike. None where the report holds samples only. `ready` is the time in which a warp could
    have issued and another did, for each that it waited. `sums` keeps what `of` has summed.
    """

    shares: Mapping[str, float]
    cycles: float | None
    identity: float | None
    is_sampled: bool
    ready: float = 0.0
    sums: dict[frozenset[str], float] = field(default_factory=dict)

    def of(self, reasons: frozenset[str]) -> float:
        """Share of these reasons together."""
        if reasons not in self.sums:
            self.sums[reasons] = fsum(share for reason, share in self.shares.items() if reason in reasons)
        return self.sums[reasons]

    @property
    def at_pipes(self) -> float:
        """The part of the time between two instructions in which more ready warps win nothing: the queue of a pipe is
        full, or the warp is ready."""
        return (self.of(FULL) + self.ready) / (1 + self.ready)

    @property
    def top(self) -> tuple[str, float] | None:
        """The largest reason and its share."""
        return max(self.shares.items(), key=lambda item: (item[1], item[0]), default=None)

    @property
    def is_at_barriers(self) -> bool:
        """Whether warps wait for barriers most of all."""
        return self.top is not None and self.top[0] == "barrier"


_OF_FIXED = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
_UNOPTIMIZED = 10.0  # cycles between two instructions: 13.4 to 13.9 with -G, 7.6 at most in 280 optimized launches


def is_unoptimized(kernel: KernelCounters) -> bool:
    """Whether its code was compiled without optimization: then each instruction waits for the one before it."""
    return (kernel.get(_OF_FIXED) or 0.0) >= _UNOPTIMIZED


REASONS = {
    *("long_scoreboard", "short_scoreboard", "wait", "barrier", "lg_throttle", "mio_throttle", "math_pipe_throttle"),
    *("branch_resolving", "drain", "dispatch_stall", "membar", "imc_miss", "sleeping", "misc", "tex_throttle"),
}
_ENOUGH = 100  # samples: of fewer a share is no share


def tells_reasons(kernel: KernelCounters) -> bool:
    """Whether every reason to wait was collected, counted or in enough samples: without one all shares are others."""
    counted = _matching(kernel, patterns.STALL_COUNTED)
    sampled = {} if counted else _matching(kernel, patterns.STALL_SAMPLED)
    return counted.keys() >= REASONS or (sampled.keys() >= REASONS and fsum(sampled.values()) >= _ENOUGH)


def stalls_of(kernel: KernelCounters) -> Stalls | None:
    """The stall reasons of one kernel, None where neither counters nor samples were collected."""
    counted = _matching(kernel, patterns.STALL_COUNTED)
    waiting = counted or _matching(kernel, patterns.STALL_SAMPLED)
    bad = {reason: value for reason, value in waiting.items() if reason not in _HEALTHY and value > 0}
    total = fsum(bad.values())
    if not waiting or total <= 0:
        return None
    latency = kernel.get(_TOTAL)
    identity = fsum(counted.values()) / latency if counted and latency else None
    shares = {reason: value / total for reason, value in sorted(bad.items())}
    ready = waiting.get("not_selected", 0.0) / total
    return Stalls(shares, latency, identity, is_sampled=not counted, ready=ready)


def _matching(kernel: KernelCounters, pattern: Pattern) -> dict[str, float]:
    matches = ((pattern.match(name), value) for name, value in kernel.values.items() if OF_WAITS in name)
    return {
        match.group(1): value
        for match, value in matches
        if match and not match.group(1).endswith(("_not_issued", "_pipe_l1tex", "_pipe_mio"))
    }
