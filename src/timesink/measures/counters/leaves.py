"""The units a kernel kept busy: the leaves of the profiler's speed-of-light breakdown, by the resource they belong to.

`sm__throughput` is the maximum over arithmetic pipes *and* load-store, so it calls an L1-bound kernel compute-bound.
The report lists what it is made of; those constituents are the leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from timesink.measures.counters.counters import ELAPSED, KernelCounters


class Resource(StrEnum):
    """What a leaf belongs to."""

    DRAM = "dram"
    L2 = "l2"
    L1 = "l1"
    ISSUE = "issue"
    TENSOR = "tensor"
    FP64 = "fp64"
    FMA = "fma"
    ALU = "alu"
    XU = "xu"
    CONTROL = "control"
    HIDDEN = "hidden"


MEMORY = frozenset({Resource.DRAM, Resource.L2, Resource.L1, Resource.HIDDEN})
ARITHMETIC = frozenset({Resource.TENSOR, Resource.FP64, Resource.FMA, Resource.ALU, Resource.XU})

# The first pattern that matches decides.
_RESOURCES = tuple(
    (re.compile(pattern), resource)
    for pattern, resource in (
        (r"internal_activity", Resource.HIDDEN),
        (r"^(gpu__)?(dram|fbpa)_|sectors_fill_device", Resource.DRAM),
        (r"^(lts|ltc)__|^l1tex__m_", Resource.L2),
        (r"^sm__pipe_(tensor|tc)|pipe_tensor|pipe_tc|mem_tensor", Resource.TENSOR),
        (r"pipe_fp64", Resource.FP64),
        (r"pipe_(fma|fmaheavy|fmalite|fp16)", Resource.FMA),
        (r"pipe_alu", Resource.ALU),
        (r"pipe_xu", Resource.XU),
        (r"pipe_(uniform|cbu)", Resource.CONTROL),
        (r"^sm__(inst_executed|issue_active|inst_issued)$", Resource.ISSUE),
        (r"^(l1tex|idc)__|pipe_(lsu|tex|adu|ipa|tma)|^sm__mio", Resource.L1),
    )
)
_SUM_OF_OTHERS = "sm__pipe_shared_cycles_active"  # the fp64 and tensor pipes together: both are leaves themselves
_BREAKDOWNS = tuple(f"breakdown:{top}{ELAPSED}" for top in ("sm__throughput", "gpu__compute_memory_throughput"))
# What stands in where a page carries no breakdown (CSV, partial sets).
_WITHOUT_BREAKDOWN = (
    "gpu__dram_throughput",
    "dram__cycles_active",
    "fbpa__dram_sectors",
    "lts__t_sectors",
    "lts__d_sectors",
    "lts__t_tag_requests",
    "lts__lts2xbar_cycles_active",
    "lts__xbar2lts_cycles_active",
    "lts__d_atomic_input_cycles_active",
    "l1tex__data_pipe_lsu_wavefronts",
    "l1tex__lsu_writeback_active",
    "l1tex__lsuin_requests",
    "l1tex__m_xbar2l1tex_read_sectors",
    "sm__inst_executed",
    "sm__issue_active",
    "sm__inst_executed_pipe_lsu",
    "sm__inst_executed_pipe_xu",
    "sm__pipe_alu_cycles_active",
    "sm__pipe_fma_cycles_active",
    "sm__pipe_fmaheavy_cycles_active",
    "sm__pipe_fp64_cycles_active",
    "sm__pipe_tensor_cycles_active",
)
_COARSE = (("lts__throughput", Resource.L2), ("l1tex__throughput", Resource.L1), ("sm__inst_executed", Resource.ISSUE))


@dataclass(frozen=True, slots=True)
class Leaf:
    """One unit: its counter's base name, its resource, and how busy it was on average and at its busiest instance.

    Shares are of the unit's peak over the kernel's elapsed time. `hottest` is that of the busiest instance (one of
    the L2 slices, one of the SMs), equal to `busy` where the report does not say.
    """

    name: str
    resource: Resource
    busy: float
    hottest: float


def leaves(kernel: KernelCounters) -> tuple[Leaf, ...]:
    """The leaves that were measured, busiest first; ties by name."""
    found = {leaf.name: leaf for leaf in _leaves(kernel)}
    return tuple(sorted(found.values(), key=lambda leaf: (-leaf.busy, leaf.name)))


def is_complete(kernel: KernelCounters) -> bool:
    """Whether the report itself lists its leaves; without the list an unlisted unit may be the busiest."""
    return all(name in kernel.texts for name in _BREAKDOWNS)


def _leaves(kernel: KernelCounters) -> Iterator[Leaf]:
    listed = [name for top in _BREAKDOWNS for name in kernel.texts.get(top, "").split(",") if name]
    names = [name.removesuffix(ELAPSED) for name in listed] or list(_WITHOUT_BREAKDOWN)
    any_found = False
    for name in names:
        busy, resource = kernel.share(name), resource_of(name)
        if busy is not None and resource is not None and name != _SUM_OF_OTHERS:
            any_found = True
            hottest = kernel.get(f"{name}.max.pct_of_peak_sustained_elapsed")
            yield Leaf(name, resource, busy, busy if hottest is None else max(busy, hottest / 100))
    if any_found and listed:
        return
    for name, resource in _COARSE:
        active = kernel.get(f"{name}.avg.pct_of_peak_sustained_active")
        busy = kernel.share(name) if active is None else active / 100
        if busy is not None:
            yield Leaf(name, resource, busy, busy)


def resource_of(leaf: str) -> Resource | None:
    """The resource a leaf belongs to; None for a unit timesink does not know."""
    return next((resource for pattern, resource in _RESOURCES if pattern.search(leaf)), None)
