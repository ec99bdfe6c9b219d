"""What the figures of a details page bound, though it does not hold them: passes of L1, sectors of L2, instructions.

The messages of ncu's own rules say some figures of a launch that no table of a details page has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from timesink.knowledge import ncu_texts as texts
from timesink.knowledge.gpus import DRAM_ACCESS_SECTORS, LOAD_CYCLES, SECTOR_BYTES, SECTORS_OF_PASS
from timesink.knowledge.kernel_traits import LIBRARY_LAUNCH
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import Resource, throughput_of
from timesink.measures.counters.waste import Access, requests_per_cycle
from timesink.records import Record, field
from timesink.startup import regex

OF_LOCAL: Final = "derived__local_spilling_requests"
_STORED: Final = ("lrc__ilc_input_sectors.sum", "lts__gcomp_input_sectors.sum")  # of GH100, of a page's label
_RETRIED: Final = 1.1  # times the sectors of another pass: an atomic that compares and swaps is tried again
_KNOWN: Final = ((8, 0), (9, 0))  # chips whose slices of L2 take a sector per cycle, and whose L1 is its data pipe
ACCESSES: Final = "gpu__compute_memory_access_throughput"
REQUESTS: Final = "gpu__compute_memory_request_throughput"
_SAME: Final = 0.00005  # of a peak: two figures of a page with two digits of percent
ROUNDED: Final = 0.005  # of a peak: figures of a page beside each other, whole percent of a message
_FAMILY: Final = KernelFamily
# Of libraries: each thread of these writes what is its own.
_NO_ATOMICS: Final = frozenset(
    {_FAMILY.COPY, _FAMILY.FILL, _FAMILY.LAYOUT, _FAMILY.POINTWISE, _FAMILY.FOREACH, _FAMILY.SOFTMAX, _FAMILY.CONCAT}
)
_NO_PRODUCTS: Final = _NO_ATOMICS | {_FAMILY.REDUCTION, _FAMILY.INDEX, _FAMILY.SORT_SCAN}


def _l1_passes(kernel: KernelCounters) -> float | None:
    """Passes of L1's data pipe, where it is what ncu calls memory's busiest unit of all accesses; else None."""
    accesses, memory = kernel.share(ACCESSES), kernel.share("gpu__compute_memory_throughput")
    l1, l2 = (throughput_of(kernel, level) for level in (Resource.L1, Resource.L2))
    cycles = kernel.get("l1tex__cycles_elapsed.sum")
    if kernel.compute_capability not in _KNOWN or accesses is None or memory is None or not cycles:
        return None
    is_of_l1 = l1 is not None and l2 is not None and l1 > accesses - _SAME > l2
    return accesses * cycles if is_of_l1 and abs(accesses - memory) < _SAME else None


def repeated_passes(kernel: KernelCounters, access: Access) -> float:
    """The share of L1's passes that conflicts of shared memory repeat, at least."""
    passes, shared, ideal = _l1_passes(kernel), access.shared_wavefronts, access.ideal_shared_wavefronts
    return 0.0 if not passes or not shared or ideal is None else min(1.0, (shared - ideal) / passes)


def excess_passes(kernel: KernelCounters, access: Access, names_local: bool) -> float:
    """The share of L1's passes that scattered accesses of global memory take beyond need, at least. Those of shared
    memory are told, or without conflicts four a request at most; a request of global memory needs one, or its bytes."""
    passes, requests = _l1_passes(kernel), _requests(kernel)
    if not passes or requests is None or access.sectors is None or access.ideal_sectors is None:
        return 0.0
    if names_local or kernel.get(OF_LOCAL) != 0:
        return 0.0
    unknown = SECTORS_OF_PASS * requests if access.uses_shared else 0.0
    shared = access.shared_wavefronts if access.shared_wavefronts is not None else unknown
    beyond = passes - shared - max(access.ideal_sectors / SECTORS_OF_PASS, requests)
    return max(0.0, min(beyond, access.sectors - access.ideal_sectors) / passes)


def excess_passes_at_most(kernel: KernelCounters, access: Access, share: float) -> float:
    """The same at most, of this share: a pass for each sector beyond need."""
    passes = _l1_passes(kernel)
    if not passes or access.sectors is None or access.ideal_sectors is None:
        return share
    return min(share, (access.sectors - access.ideal_sectors) / passes)


def memory_instructions(kernel: KernelCounters, most_passes: int) -> float:
    """The share of instructions that L1's passes come from, at least, where none takes more passes than that."""
    passes, every = _l1_passes(kernel) or 0.0, kernel.get("smsp__inst_executed.sum")
    known = (_requests(kernel) or 0.0) if counts_requests(kernel) else 0.0
    return min(1.0, max(known, passes / most_passes) / every) if every else 0.0


def requests_of_passes(kernel: KernelCounters) -> tuple[float, float]:
    """Requests for each of L1's passes, at least and at most: of a request its first pass serves all its lanes."""
    passes, requests = _l1_passes(kernel), _requests(kernel)
    most = 1.0 if not passes or requests is None else min(1.0, requests / passes)
    return most if passes and counts_requests(kernel) else 0.0, most


def counts_requests(kernel: KernelCounters) -> bool:
    """Whether the page has the figure of the unit of loads and stores: then it is that of the SM's pipes for memory and
    also of the summary of requests, in which what takes them in L1 counts as many. In all of 21 such reports it was."""
    pipes, requests = kernel.share("sm__memory_throughput"), kernel.share(REQUESTS)
    if kernel.compute_capability not in _KNOWN or pipes is None or requests is None:
        return False
    return abs(pipes - requests) < _SAME


def _local_requests(kernel: KernelCounters) -> float | None:
    """Requests of local memory: ncu counts those of spills, and says what share of all they are."""
    spilling, share = kernel.get(OF_LOCAL), kernel.share(f"{OF_LOCAL}_pct")
    return spilling / share if spilling and share else None


def local_traffic_at_least(kernel: KernelCounters, access: Access) -> float:
    """The share of L2's sectors that is local memory's, at least, where those of all global accesses are told: what
    stores brought beyond them, but no more than local requests move; atomics, too, may be beside them."""
    requests, stored, (atomic, _) = _local_requests(kernel), kernel.first(*_STORED), atomic_sectors(kernel)
    if requests is None or not stored or access.sectors is None or atomic is None:
        return 0.0
    local = max(0.0, min(stored - access.sectors, SECTORS_OF_PASS * requests))
    return local / (local + access.sectors + 2 * atomic) if local else 0.0


def local_traffic(kernel: KernelCounters, names_local: bool) -> float:
    """The share of what L1, L2 and DRAM move that is local memory's, at most: 16 bytes a lane a request, of what stores
    brought or DRAM moved, two sectors for a lone one. `names_local`: arrays may be in it, whose requests none tells."""
    requests, rate = _local_requests(kernel), kernel.get("dram__bytes.sum.per_second")
    spilled = kernel.share(f"{OF_LOCAL}_pct")
    most = 1.0 if spilled is None or names_local else passes_of(min(1.0, spilled))
    if requests is None or rate is None or kernel.duration_ns is None:
        return most
    moved = rate * kernel.duration_ns / 1e9 / SECTOR_BYTES / DRAM_ACCESS_SECTORS
    every = max(kernel.first(*_STORED) or 0.0, moved)
    return min(most, SECTORS_OF_PASS**2 * requests / every) if every else most


def local_instructions(kernel: KernelCounters) -> float:
    """The share of instructions that access local memory, at most."""
    local, every = _local_requests(kernel), kernel.get("smsp__inst_executed.sum")
    requests = _requests(kernel) if local is None else local
    return 1.0 if requests is None or not every else min(1.0, requests / every)


def _requests(kernel: KernelCounters) -> float | None:
    """Requests of memory that the SMs execute at most: what their pipes for it are busy with."""
    pipes, cycles = kernel.share("sm__memory_throughput"), kernel.get("sm__cycles_elapsed.sum")
    return None if pipes is None or cycles is None else pipes * cycles * requests_per_cycle(kernel)


def atomic_sectors(kernel: KernelCounters) -> tuple[float | None, float]:
    """Sectors that atomics touch in L2 at most, None where no figure bounds them, and those that stores wrote.

    A slice of L2 takes a sector per cycle, of either; of atomics no more than it does accesses. Of the sectors that all
    accesses ask for, those of stores are no atomics'. (All that goes into the compression unit is of stores.)
    """
    cycles = kernel.get("lts__cycles_elapsed.sum")
    if cycles is None or kernel.compute_capability not in _KNOWN:
        return None, 0.0
    stored = kernel.first(*_STORED) or 0.0
    accesses, requests = kernel.share(ACCESSES), kernel.share(REQUESTS)
    most = [
        *(() if accesses is None else (accesses * cycles,)),
        *(() if requests is None else (requests * cycles - stored,)),
    ]
    return (max(0.0, _RETRIED * min(most)), stored) if most else (None, stored)


def passes_of(excess: float) -> float:
    """The share of passes that this share of sectors takes at most: each a pass of its own, of the others four one."""
    return SECTORS_OF_PASS * excess / (1 + (SECTORS_OF_PASS - 1) * excess)


def may_have_atomics(kernel: KernelCounters) -> bool:
    """Whether its threads may write where others do: of some kernels of libraries the name tells that they do not."""
    return not _has_family(kernel, _NO_ATOMICS)


def work_at_most(kernel: KernelCounters, told: Told) -> float:
    """The nearest of its arithmetic roofs, at most: no pipe is busier than the busiest. A library's kernels that are no
    products leave tensor cores alone; of its other formats only half ones are not told, beside FP32 in one pipe."""
    busiest = 1.0 if told.pipe is None else told.pipe[1]
    if told.roofs is None or not _has_family(kernel, _NO_PRODUCTS):
        return busiest
    fp32, fp64 = (share + ROUNDED for share in told.roofs)
    return min(busiest, max(fp32, fp64, busiest - fp32 + 2 * ROUNDED))


def _has_family(kernel: KernelCounters, families: frozenset[KernelFamily]) -> bool:
    """Whether it is a kernel of a library, of one of these families by its name; what a compiler fused is of none."""
    decoded = decode(kernel.name)
    return decoded.family in families and decoded.fused is None and bool(LIBRARY_LAUNCH.search(kernel.name))


_SECTORS: Final = "memory_l2_theoretical_sectors_global"
_PASSES: Final = "memory_l1_wavefronts_shared"
_OPS: Final = {"loads": "ld", "stores": "st"}
_BYTES: Final = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"


class Told(Record):
    """Figures of one launch's messages. `counters` are such as a report holds under these names; `stalls` has cycles by
    reason, of those the rule named; `pipe` is the busiest arithmetic pipe and how busy it is, 0 to 1; `roofs` are the
    shares of the FP32 and the FP64 peak.

    `has_spoken`: some rule ran, and all can be read (redacted ones may not be); only then what is not here is none.
    `has_hot_slices`: some slices of L2 work far longer than others. `conflicts`: passes that loads and stores of shared
    memory repeat."""

    has_spoken: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    pipe: tuple[str, float] | None = None
    names_local: bool = False
    has_hot_slices: bool = False
    conflicts: float = 0.0
    roofs: tuple[float, float] | None = None

    @property
    def waits(self) -> dict[str, float]:
        """The reasons that are waits: of one that was ready another warp was chosen."""
        return {reason: waited for reason, waited in self.stalls.items() if reason != "not_selected"}

    @property
    def waits_too_long(self) -> bool:
        """Whether warps wait for what they read longer than an idle memory takes, even if every instruction read."""
        return self.stalls.get("long_scoreboard", 0.0) > LOAD_CYCLES[-1]

    @property
    def may_wait_at_barriers(self) -> bool:
        """Whether barriers may be what warps wait for most: named as such, or no reason is named."""
        return not self.waits or max(self.waits, key=lambda reason: self.waits[reason]) == "barrier"


def told_in(messages: Iterable[str]) -> Told:
    """What the messages of one launch say."""
    counters: dict[str, float] = {}
    stalls: dict[str, float] = {}
    pipe, roofs, names_local, has_hot, has_spoken, is_cut, conflicts = None, None, False, False, False, False, 0.0
    for message in messages:
        has_spoken = True
        has_hot |= bool(texts.HOT_SLICES.search(message))
        if found := texts.EXCESS_SECTORS.search(message) or texts.EXCESS_PASSES.search(message):
            name = _PASSES if "wavefronts" in found.group() else _SECTORS
            excess, total = (found.group(group).replace(",", "") for group in (1, 2))
            if excess.isdecimal() and total.isdecimal():
                counters |= {name: float(total), f"{name}_ideal": max(0.0, float(total) - float(excess))}
            else:
                is_cut = True
        elif found := texts.CONFLICTS.search(message):
            conflicts += float(found.group(1)) if found.group(1).isdecimal() else 0.0
        elif found := texts.USED_BYTES.search(message):
            names_local |= found.group("space") == "local"
            if found.group("space") == "global":
                counters[f"{_BYTES}{_OPS[found.group('op')]}.ratio"] = float(found.group("bytes"))
        elif found := texts.STALLED.search(message):
            reason = next((name for name, words in texts.STALL_WORDS.items() if regex(words).search(message)), "")
            stalls[reason] = float(found.group(1))
        elif found := texts.BUSIEST_PIPE.search(message):
            pipe = (found.group("part") or found.group("pipe")).lower(), float(found.group("percent")) / 100
        elif found := texts.FP_ROOFS.search(message):
            roofs = float(found.group("fp32")) / 100, float(found.group("fp64")) / 100
    return Told(has_spoken and not is_cut, counters, stalls, pipe, names_local, has_hot, conflicts, roofs)
