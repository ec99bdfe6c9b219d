"""What share of a kernel's traffic and instructions is waste: bytes nobody asked for, conflicts, spills, idle lanes.

Each figure is a share of the busy time of one resource, so shares of one resource by different causes add up. The
counters and the units they count are those of NVIDIA's "Nsight Compute: Kernel Profiling Guide" (Metrics Guide, Memory
Chart, Source Metrics): a *sector* is 32 bytes of a 128-byte cache line, a *request* is one memory instruction of one
warp, a *wavefront* (here also: pass) is what the L1 data pipe serves at once, 128 bytes. What "coalesced" means is in
the "CUDA C++ Best Practices Guide", section Coalesced Access to Global Memory.

One load of a full warp, four bytes a lane, as these counters see it:

    access                         requests  sectors  ideal sectors  wavefronts   waste
    global, lanes side by side            1        4              4           1   none
    global, every second word             1        8              4           2   half of the sectors and passes
    global, every lane another line       1       32              4          32   28 of 32 sectors
    shared, all lanes in one bank         1        -              -          32   31 of 32 passes
"""

from collections.abc import Mapping
from enum import StrEnum
from math import ceil, prod

from timesink.knowledge import gpus
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import ARITHMETIC, Resource, leaves
from timesink.measures.counters.roofline import level_bytes
from timesink.measures.counters.stalls import stalls_of
from timesink.measures.counters.tensor import tensor_work
from timesink.records import Record

# Passes of one coalesced request: 1 for 4 bytes a lane, 4 for 16 bytes a lane.
_MOST_COALESCED_PASSES = 4
# What a warp's instruction occupies whether or not its lanes are on.
OF_INSTRUCTIONS = (*ARITHMETIC - {Resource.TENSOR}, Resource.ISSUE, Resource.CONTROL)
_EXECUTING = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
COPIES = ("smsp__inst_executed_op_ldgsts.sum", "smsp__sass_inst_executed_op_tma_ld.sum")
_ACCESSES = tuple(
    f"smsp__sass_inst_executed_op_{kind}.sum" for kind in ("shared", "global_ld", "global_st", "global_atom")
)


class Cause(StrEnum):
    """Why a part of a kernel's time is spent; the values are those of `diagnosis.verdicts.Bottleneck`."""

    REGISTER_SPILLS = "register_spills"
    ATOMICS = "atomics"
    BANK_CONFLICTS = "bank_conflicts"
    UNCOALESCED = "uncoalesced"
    DIVERGENCE = "divergence"
    OCCUPANCY = "occupancy"
    LATENCY = "latency_bound_kernel"
    MEMORY = "memory_bound_kernel"
    COMPUTE = "compute_bound_kernel"


class Access(Record):
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
    local_wavefronts: float
    wavefronts_per_request: float | None
    uses_shared: bool
    used_of_loads: float | None
    used_of_stores: float | None

    @property
    def other_wavefronts(self) -> float:
        """Passes for shared and local memory."""
        return (self.shared_wavefronts or 0.0) + self.local_wavefronts

    @property
    def excess_ratio(self) -> float | None:
        """Share of the global sectors that a coalesced kernel would not touch."""
        if not self.sectors or self.ideal_sectors is None:
            return None
        return _above(self.ideal_sectors, self.sectors)


class Waste(Record):
    """Shares of a resource's busy time by cause, and the mean number of active lanes of 32 (None: not collected).

    `local_instructions` and `memory_instructions` are the shares (0 to 1) of executed instructions that access local
    memory and that go through load-store; `atomic_requests` is the share of global memory requests that are atomic.
    `copies_ahead`: global memory is read by asynchronous copies into shared memory rather than by loads.
    `filled_lanes`: the share of its warps' lanes that a block of this size has threads for; 1 for whole warps.
    `atomic_writes`: the share of global writes that are atomic. `is_product`: tensor cores do operations of it, by what
    was counted: their pipe is busy for a thousandth of many other kernels' time.
    """

    shares: Mapping[Cause, Mapping[Resource, float]]
    access: Access
    active_lanes: float | None
    local_instructions: float
    atomic_requests: float
    memory_instructions: float
    copies_ahead: bool
    filled_lanes: float = 1.0
    atomic_writes: float = 0.0
    is_product: bool = False

    @property
    def global_share(self) -> float | None:
        """The largest share of L1's passes that may be for global memory: those that are for no other, and but for
        atomics, whose lanes may take turns at one word, no more than sectors. None: not counted."""
        if not self.access.wavefronts:
            return None
        most = self.access.wavefronts - self.access.other_wavefronts
        sectors = most if self.atomic_requests or self.access.sectors is None else self.access.sectors
        return max(0.0, min(most, sectors) / self.access.wavefronts)

    @property
    def idle_lanes(self) -> float:
        """The share of a warp's lanes that are off on average; 0 where nobody counted."""
        return _idle(self.active_lanes)

    def of(self, cause: Cause, resource: Resource) -> float:
        """The share of the resource's busy time that this cause wastes."""
        return self.shares.get(cause, {}).get(resource, 0.0)


def waste_of(kernel: KernelCounters) -> Waste:
    """The waste of one kernel; what its counters do not say counts as none.

    An instruction with n active lanes wastes 1 - n / 32 of arithmetic units, issue slots and the one pass through L1
    that each request needs. Atomics in shared memory conflict as other accesses do: both causes have their conflicts,
    or where they are not counted apart a share by instructions.
    """
    access = access_of(kernel)
    lanes = active_lanes(kernel)
    idle_lanes = _idle(lanes)
    local = _ratio(_local_instructions(kernel), kernel.first("smsp__inst_executed.sum", "inst_executed"))
    atomic_sectors = _ratio(_atomic_sectors(kernel), _sectors(kernel, "l2"))
    of_atomics = _conflicts_of_atomics(kernel, access)
    shares = {
        Cause.REGISTER_SPILLS: _spills(kernel, access, local),
        Cause.ATOMICS: {Resource.L1: _shared_conflicts(access) * of_atomics, Resource.L2: atomic_sectors},
        Cause.BANK_CONFLICTS: {Resource.L1: _shared_conflicts(access) * (1 - of_atomics)},
        Cause.UNCOALESCED: _uncoalesced(kernel, access),
        Cause.DIVERGENCE: dict.fromkeys(OF_INSTRUCTIONS, idle_lanes)
        | {Resource.L1: idle_lanes * _ratio(1.0, access.wavefronts_per_request)},
        Cause.LATENCY: _empty(kernel),
    }
    is_product = bool(tensor_work(kernel))
    copies, loads = kernel.total(*COPIES) or 0.0, kernel.get("smsp__sass_inst_executed_op_global_ld.sum") or 0.0
    return Waste(
        shares,
        access,
        lanes,
        local,
        _atomic_requests(kernel),
        1.0 if is_product and _is_on_tensor_cores(kernel) else _memory_instructions(kernel),
        copies > loads,
        _filled(kernel),
        _ratio(_requests(kernel, "atom", "red"), _requests(kernel, "atom", "red", "st")),
        is_product,
    )


def _idle(lanes: float | None) -> float:
    return 0.0 if lanes is None else _above(lanes, gpus.LANES)


def _is_on_tensor_cores(kernel: KernelCounters) -> bool:
    """Whether tensor cores do more of its arithmetic than any other unit: then larger tiles take fewer instructions of
    every kind for the same operations."""
    arithmetic = [leaf for leaf in leaves(kernel) if leaf.resource in ARITHMETIC]
    return bool(arithmetic) and max(arithmetic, key=lambda leaf: leaf.busy).resource is Resource.TENSOR


def _filled(kernel: KernelCounters) -> float:
    threads = prod(kernel.block)
    return threads / (gpus.LANES * ceil(threads / gpus.LANES)) if threads else 1.0


def access_of(kernel: KernelCounters) -> Access:
    """The memory instructions of one kernel. Passes without conflicts are those counted less the conflicts counted."""
    sectors, ideal = _global_sectors(kernel)
    shared, ideal_shared = (kernel.get(f"memory_l1_wavefronts_shared{part}") for part in ("", "_ideal"))
    conflicts, passes = kernel.get(f"{_CONFLICTS}.sum"), kernel.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    if shared is None or ideal_shared is None:
        shared = passes if shared is None else shared
        ideal_shared = None if shared is None or conflicts is None else max(0.0, shared - conflicts)
    atoms = kernel.get("smsp__inst_executed_op_shared_atom.sum")
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
        atoms / max(kernel.get("smsp__sass_inst_executed_op_shared.sum") or atoms, atoms) if atoms else 0.0,
        local if local is not None else _local_instructions(kernel),
        _wavefronts_per_request(kernel),
        bool(static),
        _used_bytes(kernel, "ld"),
        _used_bytes(kernel, "st"),
    )


def active_lanes(kernel: KernelCounters) -> float | None:
    """Mean number of active lanes of an executed instruction, of 32. Where predicates switch most of those off, as a
    compiler writes short branches, what is left; but for what runs along to barriers, which is `_empty`."""
    lanes = _per_instruction(kernel, "smsp__thread_inst_executed_per_inst_executed.ratio", "thread_inst_executed")
    executing = executing_lanes(kernel)
    is_off = lanes is not None and executing is not None and executing < lanes / 2 and not _waits_at_barriers(kernel)
    return executing if is_off else lanes


def executing_lanes(kernel: KernelCounters) -> float | None:
    """Mean number of lanes of an executed instruction that predicates leave on, of 32; None: not collected."""
    return _per_instruction(kernel, _EXECUTING, "thread_inst_executed_true")


def _per_instruction(kernel: KernelCounters, of_one: str, of_all: str) -> float | None:
    """The ratio where it was collected, else that of older chips' counts, where both were."""
    ratio, threads, instructions = kernel.get(of_one), kernel.get(of_all), kernel.get("inst_executed")
    return ratio if ratio is not None or not instructions or threads is None else threads / instructions


def _waits_at_barriers(kernel: KernelCounters) -> bool:
    stalls = stalls_of(kernel)
    return stalls is not None and stalls.is_at_barriers


def _conflicts_of_atomics(kernel: KernelCounters, access: Access) -> float:
    """The share of shared memory's conflicts that atomics have: loads of a loop that compares and swaps have none."""
    every, of_atomics = (kernel.get(f"{_CONFLICTS}{op}.sum") for op in ("", "_op_atom"))
    return access.shared_atomic_share if of_atomics is None or not every else _ratio(of_atomics, every)


def _global_sectors(kernel: KernelCounters) -> tuple[float | None, float | None]:
    """Sectors that global loads and stores touch, and would touch if coalesced: counted, else by the bytes used."""
    sectors, ideal = (kernel.get(f"memory_l2_theoretical_sectors_global{part}") for part in ("", "_ideal"))
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
    """The share of each touched sector that the kernel uses, 0 to 1; `op` is ld or st. ncu writes 0 where there is
    nothing to count: where no sector was touched none is wasted, of asynchronous copies only the sectors count."""
    per_sector = kernel.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
    if per_sector == 0:
        return 1.0 if op == "st" or kernel.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum") == 0 else None
    return None if per_sector is None else min(1.0, per_sector / gpus.SECTOR_BYTES)


def _wavefronts(kernel: KernelCounters) -> float | None:
    """Passes through the L1 data pipe: it takes one per cycle and SM, so passes = utilization x cycles x SMs."""
    share = kernel.share("l1tex__data_pipe_lsu_wavefronts")
    cycles = kernel.first(
        "l1tex__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"
    )
    sms = kernel.first("device__attribute_multiprocessor_count", "launch__sm_count")
    return None if share is None or cycles is None or sms is None else share * cycles * sms


def _wavefronts_per_request(kernel: KernelCounters) -> float | None:
    pipe, requests = kernel.share("l1tex__data_pipe_lsu_wavefronts"), kernel.share("sm__inst_executed_pipe_lsu")
    return None if pipe is None or not requests else pipe / (requests * requests_per_cycle(kernel))


def requests_per_cycle(kernel: KernelCounters) -> float:
    """Load-store requests of warps that an SM takes per cycle: data-centre chips (compute capability x.0) have 32
    load-store lanes, others 16 (CUDA C++ Programming Guide, Compute Capabilities)."""
    capability = kernel.compute_capability
    return 1.0 if capability is not None and capability[1] == 0 else 0.5


def _local_instructions(kernel: KernelCounters) -> float:
    found = kernel.total("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum")
    return found or kernel.total("sass__inst_executed_local_loads", "sass__inst_executed_local_stores") or 0.0


def _sectors(kernel: KernelCounters, level: str) -> float | None:
    """Sectors moved at a memory level, ``l2`` or ``dram``."""
    moved = level_bytes(kernel, level)
    return None if moved is None else moved / gpus.SECTOR_BYTES


def _atomic_sectors(kernel: KernelCounters) -> float:
    """Sectors of atomics; of those that return what was there both ways, where L2's are counted both ways."""
    both = kernel.total(
        *(f"l1tex__m_{way}_sectors_mem_global_op_atom.sum" for way in ("l1tex2xbar_write", "xbar2l1tex_read"))
    )
    red = kernel.get("l1tex__m_l1tex2xbar_write_sectors_mem_global_op_red.sum")
    total = kernel.total("lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_srcunit_tex_op_red.sum")
    parts = ("atom_dot_alu", "atom_dot_cas", "red")
    once = total or kernel.total(*(f"lts__t_sectors_srcunit_tex_op_{part}.sum" for part in parts)) or 0.0
    return max(once, (both or 0.0) + (red or 0.0))


def _atomic_requests(kernel: KernelCounters) -> float:
    """Share of the global memory requests that are atomic."""
    return _ratio(_requests(kernel, "atom", "red"), _requests(kernel, "atom", "red", "ld", "st"))


def _atomic_excess(kernel: KernelCounters, excess_sectors: float) -> float:
    """The part of the excess sectors that atomics touch: those beyond 128 bytes a request; where they are not counted,
    the part of the requests that atomics are."""
    sectors = kernel.total(*(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("atom", "red")))
    requests = _requests(kernel, "atom", "red")
    if sectors is None or requests is None:
        return _atomic_requests(kernel)
    return _ratio(sectors - requests * gpus.SECTORS_OF_PASS, excess_sectors)


def _requests(kernel: KernelCounters, *ops: str) -> float | None:
    return kernel.total(*(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ops))


def _memory_instructions(kernel: KernelCounters) -> float:
    """Load-store instructions among all executed: (share of their peak x that peak) / (share of all x its peak)."""
    requests, every = kernel.share("sm__inst_executed_pipe_lsu"), kernel.share("sm__inst_executed")
    if requests is None or not every:
        return 0.0
    return min(1.0, requests * requests_per_cycle(kernel) / (every * gpus.ISSUES_OF_CYCLE))


def _empty(kernel: KernelCounters) -> dict[Resource, float]:
    """Instructions that no lane executes, as a share of each resource, where warps wait for barriers more than for all
    else: warps without work that run along to the next barrier. Of load-store instructions those are what is neither
    seen to access memory nor more than all lanes that predicates switch off allow.
    """
    lanes, executing = active_lanes(kernel), executing_lanes(kernel)
    if not _waits_at_barriers(kernel) or not lanes or executing is None:
        return {}
    off = max(0.0, 1 - executing / lanes)
    requests = _memory_instructions(kernel) * (kernel.first("smsp__inst_executed.sum", "inst_executed") or 0.0)
    seen = (kernel.total(*_ACCESSES) or requests) + _local_instructions(kernel)
    unseen = _ratio(requests - seen, requests)
    return dict.fromkeys(OF_INSTRUCTIONS, off) | {Resource.L1: min(unseen, _ratio(off, _memory_instructions(kernel)))}


def _spills(kernel: KernelCounters, access: Access, local: float) -> dict[Resource, float]:
    """Local memory (spilled registers) as a share of each resource: passes of L1, sectors beyond it, instructions."""
    theory = kernel.get("memory_l2_theoretical_sectors_local")
    missed = kernel.total(
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld_lookup_miss.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
    )
    outer = _ratio(missed if missed is not None else theory, _sectors(kernel, "l2"))
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
    """Excess traffic of global loads and stores as a share of each resource; `excess` is that of their sectors.

    Atomics on scattered words touch excess sectors too: their part of the excess belongs to them. L2 and DRAM move
    other data as well, so excess counts there only as far as they moved more sectors than the coalesced kernel needs.
    DRAM moves two sectors at a time: of what it moves for a lone one, half is excess. Without atomics:

        sectors  ideal sectors  L2 sectors  DRAM sectors   excess   L2            DRAM
            400            100         400           400     0.75   1 - 100/400   min(1 - 0.25/2, 1 - 100/400)
            400            100         200          2000     0.75   1 - 100/200   min(1 - 0.25/2, 1 - 100/2000)
    """
    sectors, ideal = access.sectors, access.ideal_sectors
    if not sectors or not ideal:
        return _uncoalesced_by_wavefronts(access)
    excess, not_atomic = _above(ideal, sectors), 1 - _atomic_excess(kernel, sectors - ideal)
    within_dram = 1 - (1 - excess) / gpus.DRAM_ACCESS_SECTORS if excess else 0.0
    return {
        Resource.L1: not_atomic * _excess_passes(kernel, access, ideal, excess),
        Resource.L2: not_atomic * min(excess, _above(ideal, _sectors(kernel, "l2"), excess)),
        Resource.DRAM: not_atomic * min(within_dram, _above(ideal, _sectors(kernel, "dram"))),
    }


def _excess_passes(kernel: KernelCounters, access: Access, ideal: float, excess: float) -> float:
    """Passes of global accesses beyond one per request and 128 bytes, as a share of all passes of the data pipe.

    passes  of shared, local  ideal sectors  requests   needed for global    result
       400                 0            400        50   max(400 / 4, 50)     (400 - 0 - 100) / 400 = 0.75
       400               200            400        50   max(400 / 4, 50)     (400 - 200 - 100) / 400 = 0.25
       400               200            400       150   max(400 / 4, 150)    (400 - 200 - 150) / 400 = 0.125
    """
    if access.wavefronts is None or not excess:
        return excess
    needed = max(ideal / gpus.SECTORS_OF_PASS, _requests(kernel, "ld", "st") or 0.0)
    return _ratio(access.wavefronts - access.other_wavefronts - needed, access.wavefronts)


def least_passes(access: Access) -> float:
    """The share of the data pipe's passes that is left if each global pass serves 128 bytes; it cannot be less."""
    if access.ideal_sectors is None:
        return 0.0
    return _ratio(access.other_wavefronts + access.ideal_sectors / gpus.SECTORS_OF_PASS, access.wavefronts)


def _uncoalesced_by_wavefronts(access: Access) -> dict[Resource, float]:
    """Waste where sectors were not counted: a kernel without shared memory has more passes per request than any
    coalesced kernel, whose requests take four of them at most (16 bytes a lane)."""
    each = access.wavefronts_per_request
    if each is None or access.uses_shared or each <= _MOST_COALESCED_PASSES:
        return {}
    return {Resource.L1: 1 - _MOST_COALESCED_PASSES / each}


def _above(ideal: float, actual: float | None, unknown: float = 0.0) -> float:
    """The share of `actual` that is more than `ideal`; `unknown` where nothing was counted."""
    return max(0.0, 1 - ideal / actual) if actual else unknown


def _ratio(part: float | None, whole: float | None) -> float:
    return min(1.0, max(0.0, part / whole)) if part is not None and whole else 0.0
