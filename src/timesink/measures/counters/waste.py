"""What part of a kernel's traffic and instructions is waste: bytes nobody asked for, conflicts, spills, idle lanes.

Each figure is a share of the busy time of one resource, so shares of one resource by different causes add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from timesink.measures.counters.counters import ARITHMETIC, KernelCounters, Resource
from timesink.measures.counters.roofline import level_bytes

_SECTOR_BYTES = 32
_LANES = 32
_PASS_SECTORS = 4  # one pass through the L1 data pipe serves 128 bytes
# Passes of one coalesced request: 1 for 4 bytes a lane, 4 for 16 bytes a lane.
_MOST_COALESCED_PASSES = 4
_DRAM_ACCESS_SECTORS = 2  # HBM moves 64 bytes at a time: a lone sector brings another along
_ISSUES = 4  # warp instructions an SM issues per cycle at most


class Cause(StrEnum):
    """Why a part of a kernel's time is spent; the values are those of `findings.Bottleneck`."""

    REGISTER_SPILLS = "register_spills"
    ATOMICS = "atomics"
    BANK_CONFLICTS = "bank_conflicts"
    UNCOALESCED = "uncoalesced"
    DIVERGENCE = "divergence"
    OCCUPANCY = "occupancy"
    LATENCY = "latency_bound_kernel"
    MEMORY = "memory_bound_kernel"
    COMPUTE = "compute_bound_kernel"


@dataclass(frozen=True, slots=True)
class Access:
    """What a kernel's memory instructions look like. None: not collected.

    `sectors` and `ideal_sectors` are 32-byte pieces that global loads and stores touch, and would touch if every lane's
    bytes lay side by side. `wavefronts` are all passes through the L1 data pipe; the rest are parts of them.
    """

    sectors: float | None
    ideal_sectors: float | None
    wavefronts: float | None
    shared_wavefronts: float | None
    ideal_shared_wavefronts: float | None
    shared_atomic_share: float
    local_wavefronts: float | None
    wavefronts_per_request: float | None
    uses_shared: bool
    used_of_loads: float | None
    used_of_stores: float | None

    @property
    def excess_ratio(self) -> float | None:
        """Share of the global sectors that a coalesced kernel would not touch."""
        if not self.sectors or self.ideal_sectors is None:
            return None
        return min(1.0, max(0.0, 1 - self.ideal_sectors / self.sectors))


@dataclass(frozen=True, slots=True)
class Waste:
    """Shares of a resource's busy time by cause, and how many of 32 lanes are active (None: not collected).

    `local_instructions` and `memory_instructions` are shares of executed instructions that access local memory and that
    go through load-store; `atomic_requests` is the share of global memory requests that are atomic.
    """

    shares: Mapping[Cause, Mapping[Resource, float]]
    access: Access
    active_lanes: float | None
    local_instructions: float
    atomic_requests: float
    memory_instructions: float

    def of(self, cause: Cause, resource: Resource) -> float:
        """The share of the resource's busy time that this cause wastes."""
        return self.shares.get(cause, {}).get(resource, 0.0)


def waste_of(kernel: KernelCounters) -> Waste:
    """The waste of one kernel."""
    access = access_of(kernel)
    lanes = active_lanes(kernel)
    idle_lanes = 0.0 if lanes is None else max(0.0, 1 - lanes / _LANES)
    local = _ratio(_local_instructions(kernel), kernel.first("smsp__inst_executed.sum", "inst_executed"))
    atomic_sectors = _ratio(_atomic_sectors(kernel), _l2_sectors(kernel))
    shares = {
        Cause.REGISTER_SPILLS: _spills(kernel, access, local),
        Cause.ATOMICS: {
            Resource.L1: _shared_conflicts(access) * access.shared_atomic_share,
            Resource.L2: atomic_sectors,
        },
        Cause.BANK_CONFLICTS: {Resource.L1: _shared_conflicts(access) * (1 - access.shared_atomic_share)},
        Cause.UNCOALESCED: _uncoalesced(kernel, access),
        Cause.DIVERGENCE: dict.fromkeys(
            (*ARITHMETIC - {Resource.TENSOR}, Resource.ISSUE, Resource.CONTROL), idle_lanes
        ),
    }
    return Waste(shares, access, lanes, local, _atomic_requests(kernel), _memory_instructions(kernel))


def access_of(kernel: KernelCounters) -> Access:
    """The memory instructions of one kernel."""
    sectors, ideal = _global_sectors(kernel)
    shared = kernel.first("memory_l1_wavefronts_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    conflicts = kernel.get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    ideal_shared = kernel.get("memory_l1_wavefronts_shared_ideal")
    if ideal_shared is None and shared is not None and conflicts is not None:
        ideal_shared = max(0.0, shared - conflicts)
    atoms = kernel.get("smsp__inst_executed_op_shared_atom.sum") or 0.0
    shared_instructions = kernel.get("smsp__sass_inst_executed_op_shared.sum") or 0.0
    local = kernel.total(
        "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_ld.sum",
        "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_st.sum",
    )
    static = kernel.total("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
    return Access(
        sectors,
        ideal,
        _wavefronts(kernel),
        shared,
        ideal_shared,
        min(1.0, atoms / max(shared_instructions, atoms)) if atoms else 0.0,
        local if local is not None else _local_instructions(kernel),
        _wavefronts_per_request(kernel),
        bool(static),
        _used_bytes(kernel, "ld"),
        _used_bytes(kernel, "st"),
    )


def active_lanes(kernel: KernelCounters) -> float | None:
    """Mean number of active lanes of an executed instruction, of 32."""
    ratio = kernel.get("smsp__thread_inst_executed_per_inst_executed.ratio")
    threads, instructions = kernel.get("thread_inst_executed"), kernel.get("inst_executed")
    return ratio if ratio is not None or not instructions or threads is None else threads / instructions


def _global_sectors(kernel: KernelCounters) -> tuple[float | None, float | None]:
    sectors, ideal = (
        kernel.get("memory_l2_theoretical_sectors_global"),
        kernel.get("memory_l2_theoretical_sectors_global_ideal"),
    )
    if sectors is not None and ideal is not None:
        return sectors, ideal
    total = ideal = 0.0
    for op in ("ld", "st"):
        count, used = kernel.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"), _used_bytes(kernel, op)
        if count is None or used is None:
            return None, None
        total += count
        ideal += count * used
    return total, ideal


def _used_bytes(kernel: KernelCounters, op: str) -> float | None:
    per_sector = kernel.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
    return None if per_sector is None else min(1.0, per_sector / _SECTOR_BYTES)


def _wavefronts(kernel: KernelCounters) -> float | None:
    """Passes through the data pipe: it takes one per cycle and SM, so its utilisation tells their number."""
    share = kernel.share("l1tex__data_pipe_lsu_wavefronts")
    cycles = kernel.first("l1tex__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
    sms = kernel.first("device__attribute_multiprocessor_count", "launch__sm_count")
    return None if share is None or cycles is None or sms is None else share * cycles * sms


def _wavefronts_per_request(kernel: KernelCounters) -> float | None:
    pipe, requests = kernel.share("l1tex__data_pipe_lsu_wavefronts"), kernel.share("sm__inst_executed_pipe_lsu")
    return None if pipe is None or not requests else pipe / (requests * _requests_per_cycle(kernel))


def _requests_per_cycle(kernel: KernelCounters) -> float:
    """Load-store requests an SM takes per cycle: its data-centre chips (x.0) have 32 load-store lanes, the others
    16.
    """
    capability = kernel.compute_capability
    return 1.0 if capability is not None and capability[1] == 0 else 0.5


def _local_instructions(kernel: KernelCounters) -> float:
    found = kernel.total("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum")
    return found or kernel.total("sass__inst_executed_local_loads", "sass__inst_executed_local_stores") or 0.0


def _l2_sectors(kernel: KernelCounters) -> float | None:
    moved = level_bytes(kernel, "l2")
    return None if moved is None else moved / _SECTOR_BYTES


def _atomic_sectors(kernel: KernelCounters) -> float:
    whole = kernel.total("lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_srcunit_tex_op_red.sum")
    parts = ("atom_dot_alu", "atom_dot_cas", "red")
    return whole or kernel.total(*(f"lts__t_sectors_srcunit_tex_op_{part}.sum" for part in parts)) or 0.0


def _atomic_requests(kernel: KernelCounters) -> float:
    """Share of the global memory requests that are atomic."""
    base = "l1tex__t_requests_pipe_lsu_mem_global_op_"
    atomic = kernel.total(f"{base}atom.sum", f"{base}red.sum")
    every = kernel.total(*(f"{base}{op}.sum" for op in ("atom", "red", "ld", "st")))
    return _ratio(atomic, every)


def _memory_instructions(kernel: KernelCounters) -> float:
    """Load-store instructions among all, from how busy their issue is and how many it takes per cycle."""
    requests, every = kernel.share("sm__inst_executed_pipe_lsu"), kernel.share("sm__inst_executed")
    return (
        0.0 if requests is None or not every else min(1.0, requests * _requests_per_cycle(kernel) / (every * _ISSUES))
    )


def _spills(kernel: KernelCounters, access: Access, local: float) -> dict[Resource, float]:
    theory = kernel.get("memory_l2_theoretical_sectors_local")
    missed = kernel.total(
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld_lookup_miss.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
    )
    outer = _ratio(missed if missed is not None else theory, _l2_sectors(kernel))
    return {
        Resource.L1: _ratio(access.local_wavefronts, access.wavefronts),
        Resource.L2: outer,
        Resource.DRAM: outer,
        Resource.ISSUE: local,
    }


def _shared_conflicts(access: Access) -> float:
    """Share of the data pipe's wavefronts that shared memory spends on conflicts."""
    if access.shared_wavefronts is None or access.ideal_shared_wavefronts is None:
        return 0.0
    return _ratio(access.shared_wavefronts - access.ideal_shared_wavefronts, access.wavefronts)


def _uncoalesced(kernel: KernelCounters, access: Access) -> dict[Resource, float]:
    """Atomics on scattered words touch excess sectors too: that part belongs to them, not to the loads and stores."""
    excess = access.excess_ratio
    if excess is None or not access.ideal_sectors:
        return _uncoalesced_by_wavefronts(access)
    mine = 1 - _atomic_requests(kernel)
    within_dram = 1 - (1 - excess) / _DRAM_ACCESS_SECTORS if excess else 0.0
    return {
        Resource.L1: mine * _excess_passes(kernel, access),
        Resource.L2: mine * min(excess, _above(access.ideal_sectors, _l2_sectors(kernel), excess)),
        Resource.DRAM: mine * min(within_dram, _above(access.ideal_sectors, _dram_sectors(kernel), 0.0)),
    }


def _excess_passes(kernel: KernelCounters, access: Access) -> float:
    """Passes of global accesses beyond one per request and 128 bytes, as a share of all passes of the data pipe."""
    base = "l1tex__t_requests_pipe_lsu_mem_global_op_"
    requests = kernel.total(f"{base}ld.sum", f"{base}st.sum") or 0.0
    others = (access.shared_wavefronts or 0.0) + (access.local_wavefronts or 0.0)
    if access.wavefronts is None:
        return access.excess_ratio or 0.0
    needed = max((access.ideal_sectors or 0.0) / _PASS_SECTORS, requests)
    return _ratio(access.wavefronts - others - needed, access.wavefronts) if access.excess_ratio else 0.0


def least_passes(access: Access) -> float:
    """The share of the data pipe's passes that would be left if global accesses were as wide as they can be."""
    if access.wavefronts is None or access.ideal_sectors is None:
        return 0.0
    others = (access.shared_wavefronts or 0.0) + (access.local_wavefronts or 0.0)
    return _ratio(others + access.ideal_sectors / _PASS_SECTORS, access.wavefronts)


def _uncoalesced_by_wavefronts(access: Access) -> dict[Resource, float]:
    """Without sector counts: a kernel without shared memory whose requests take more passes than any coalesced one."""
    each = access.wavefronts_per_request
    if each is None or access.uses_shared or each <= _MOST_COALESCED_PASSES:
        return {}
    return {Resource.L1: 1 - _MOST_COALESCED_PASSES / each}


def _dram_sectors(kernel: KernelCounters) -> float | None:
    moved = level_bytes(kernel, "dram")
    return None if moved is None else moved / _SECTOR_BYTES


def _above(ideal: float | None, actual: float | None, unknown: float) -> float:
    return unknown if ideal is None or not actual else max(0.0, 1 - ideal / actual)


def _ratio(part: float | None, whole: float | None) -> float:
    return min(1.0, max(0.0, part / whole)) if part is not None and whole else 0.0
