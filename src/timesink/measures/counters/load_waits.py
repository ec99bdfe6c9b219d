"""How long loads wait, beside how long they would in a memory that is idle: longer by half, and they queue.

Where several multiprocessors ask for the same lines, loads queue in L2 or on the way to it and no unit is busy: what is
read once is counted once. The wait shows it (Little's law: a warp's waiting cycles over its loads). It is too small
where several loads of a warp are on the way together, so a long one is sure.

    L1 hits  L2 hits  an idle memory's cycles          waited  ratio
       0.50     1.00  0.5 x 35 + 0.5 x 270 = 152.5      152.5      1
       0        0.90  0.8 x 270 + 0.2 x 700 = 356         712      2
       0        0.50  700 (64 bytes a miss: each)         700      1
"""

from __future__ import annotations

from typing import Final

from timesink.knowledge.gpus import DRAM_ACCESS_SECTORS, LOAD_CYCLES
from timesink.measures.counters import MEMORY, KernelCounters, Leaf, Stalls
from timesink.measures.counters.bounds import FOR_LOADS, MOSTLY
from timesink.records import Record

_WAITS: Final = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
_LOADS: Final = "smsp__sass_inst_executed_op_global_ld.sum"
# What shows as the same wait: loads of another kind, and what is no load.
_OTHERS: Final = (
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__sass_inst_executed_op_tma_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_dshared_op_ld.sum",
    "l1tex__t_requests_pipe_tex_mem_texture.sum",
    "l1tex__t_requests_pipe_tex_mem_surface_op_ld.sum",
)
_FEW: Final = 0.05  # of the loads: others than those of global memory
_QUEUED: Final = 1.5  # times an idle memory's wait; of loads that wait for each other it was 0.7 to 1.1
TRAFFIC: Final = 0.2  # of some memory unit's peak: with less, waits have another reason (first touches, page look-ups)


class LoadWait(Record):
    """Cycles that a warp waits for a load on average, and would wait if nothing else were on the way."""

    waited: float
    idle: float

    @property
    def queued(self) -> float:
        """The share of the wait that is spent in queues, 0 to 1; 0 where the wait may be an idle memory's."""
        return 1 - self.idle / self.waited if self.waited >= _QUEUED * self.idle else 0.0


def load_wait(kernel: KernelCounters, units: tuple[Leaf, ...], stalls: Stalls | None) -> LoadWait | None:
    """The wait of a kernel whose warps wait for loads of global memory most of all; None for others, and where counters
    are missing. `units` are its `leaves`."""
    issued, loads = kernel.first("smsp__inst_issued.sum", "smsp__inst_executed.sum"), kernel.get(_LOADS)
    waiting = kernel.get(_WAITS)
    if waiting is None or not issued or not loads or stalls is None:
        return None
    if stalls.of(FOR_LOADS) < MOSTLY or (kernel.total(*_OTHERS) or 0.0) > _FEW * loads:
        return None
    if max((leaf.busy for leaf in units if leaf.resource in MEMORY), default=0.0) < TRAFFIC:
        return None
    hits = kernel.share("l1tex__t_sector_hit_rate.pct"), kernel.share("lts__t_sector_hit_rate.pct")
    return None if None in hits else LoadWait(waiting * issued / loads, _idle_cycles(hits[0] or 0.0, hits[1] or 0.0))


def _idle_cycles(l1_hits: float, l2_hits: float) -> float:
    l1, l2, dram = LOAD_CYCLES
    missing = min(1.0, DRAM_ACCESS_SECTORS * max(0.0, 1 - l2_hits))
    return l1_hits * l1 + (1 - l1_hits) * ((1 - missing) * l2 + missing * dram)
