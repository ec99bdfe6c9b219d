"""The first rule of Nsight Compute on each kernel of known limiter, beside timesink's limiter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
from benchmarks.kernels import score

from timesink.model.tables import KERNEL_RULES

SETS = ("", "unseen", "unseen2", "unseen3", "unseen4", "unseen5")
FIRST = "largest estimated speedup"
HEADINGS = ("set", "kernels", "timesink", "ncu: first rule", "ncu: any rule")
MEMORY, LATENCY, COMPUTE = "memory_bound_kernel", "latency_bound_kernel", "compute_bound_kernel"
RIGHT_FOR = {
    "SOLBottleneck": {
        "Latency Issue": {LATENCY, "occupancy", "divergence", "atomics", "bank_conflicts"},
        "High Memory Throughput": {MEMORY, "uncoalesced", "register_spills", "bank_conflicts", "atomics"},
        "High Compute Throughput": {COMPUTE, "divergence"}, "High Throughput": {MEMORY, COMPUTE},
        "Small Grid": {"occupancy", LATENCY},
    },
    "CPIStall": {
        "Long Scoreboard Stalls": {LATENCY, MEMORY, "uncoalesced", "atomics", "register_spills"},
        "Lg Throttle Stalls": {MEMORY, "uncoalesced", "register_spills", "atomics"},
        "Mio Throttle Stalls": {"bank_conflicts", LATENCY}, "Short Scoreboard Stalls": {"bank_conflicts", LATENCY},
        "Math Pipe Throttle Stalls": {COMPUTE}, "Barrier Stalls": {LATENCY}, "Membar Stalls": {LATENCY, "atomics"},
        "Drain Stalls": {MEMORY, LATENCY}, "Not Selected Stalls": {COMPUTE}, "Wait Stalls": {LATENCY, COMPUTE},
        "Branch Resolving Stalls": {LATENCY, "divergence"}, "No Instructions Stalls": {LATENCY},
        "Imc Miss Stalls": {LATENCY}, "Tex Throttle Stalls": {MEMORY}, "Dispatch Stall Stalls": {COMPUTE},
    },
    "IssueSlotUtilization": {"": {LATENCY, "occupancy"}},
    "HighPipeUtilization": {"Low Utilization": {LATENCY}, "High Utilization": {COMPUTE},
                            "Very High Utilization": {COMPUTE}},
    "AchievedOccupancy": {"": {"occupancy", LATENCY}}, "TheoreticalOccupancy": {"": {"occupancy", LATENCY}},
    "LaunchConfiguration": {"": {"occupancy"}}, "WorkloadImbalance": {"": {"occupancy", "atomics", "divergence"}},
    "UncoalescedGlobalAccess": {"": {"uncoalesced", MEMORY}}, "UncoalescedSharedAccess": {"": {"bank_conflicts"}},
    "SharedMemoryConflicts": {"": {"bank_conflicts"}}, "ThreadDivergence": {"": {"divergence"}},
    "MemoryCacheAccessPattern": {"": {"uncoalesced", MEMORY},
                                 "L1TEX Local Load Access Pattern": {"register_spills"},
                                 "L1TEX Local Store Access Pattern": {"register_spills"},
                                 "L2 Local Load Access Pattern": {"register_spills"},
                                 "L2 Local Store Access Pattern": {"register_spills"}},
    "MemoryL2Compression": {"": {MEMORY}}, "FPInstructions": {"": {COMPUTE}},
    "SOLFPRoofline": {"": {COMPUTE}}, "TensorCore": {"": {COMPUTE}},
}  # fmt: skip
"""Limiters for which a rule of Nsight Compute is counted as right, by its title, or by '' for all its other titles."""


def accepted(rule: str, title: str | None) -> set[str]:
    """The limiters for which the rule is right; none for a rule that is not listed."""
    titles = RIGHT_FOR.get(rule, {})
    return titles.get(title or "", titles.get("", set()))


Rules = pl.DataFrame
ORDERS: dict[str, Callable[[Rules], Rules]] = {
    "largest estimated speedup": lambda rules: rules.sort("speedup_percent", descending=True, nulls_last=True),
    "largest estimated speedup of the kernel": lambda rules: rules.sort(
        pl.col("speedup_kind").cast(pl.String) != "global", -pl.col("speedup_percent"), nulls_last=True
    ),
    "bottleneck of the speed of light": lambda rules: rules.sort(
        pl.col("rule") != "SOLBottleneck", -pl.col("speedup_percent"), nulls_last=True
    ),
    "the same, but a stall before \"latency\"": lambda rules: rules.sort(
        (pl.col("rule") != "SOLBottleneck") | (pl.col("title") == "Latency Issue"), pl.col("rule") != "CPIStall",
        -pl.col("speedup_percent"), nulls_last=True,
    ),
    "without compression, largest estimated speedup": lambda rules: rules.sort(
        pl.col("rule") == "MemoryL2Compression", -pl.col("speedup_percent"), nulls_last=True
    ),
}  # fmt: skip
"""Ways to say which of the rules of a kernel is the first; the one that is best for them over all sets is taken."""


def rule_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Headings, a row per set (how many limiters each names right), and which rule was taken as the first."""
    rows, firsts = [], dict.fromkeys(ORDERS, 0)
    by_set = []
    for name in SETS:
        folder = score.HERE / name
        planted = {entry["pair"]: entry["limiter"] for entry in json.loads((folder / "manifest.json").read_text())}
        told = {pair: rules for report in (folder / "reports").glob("*.ncu-rep.xz") for pair, rules in _rules(report)}
        own = sum(one.is_right for one in score.scores(folder / "reports", folder / "manifest.json"))
        right = {order: sum(limiter in _named(told[pair], by)[0] for pair, limiter in planted.items())
                 for order, by in ORDERS.items()}  # fmt: skip
        any_ = sum(
            any(limiter in names for names in _named(told[pair], ORDERS[FIRST])) for pair, limiter in planted.items()
        )
        by_set.append((name or "known", len(planted), own, right, any_))
        firsts = {order: firsts[order] + right[order] for order in ORDERS}
    best = max(firsts, key=lambda order: firsts[order])
    rows = [(name, str(count), str(own), str(right[best]), str(any_)) for name, count, own, right, any_ in by_set]
    sums = [str(sum(int(row[column]) for row in rows)) for column in range(1, len(HEADINGS))]
    return HEADINGS, [*rows, ("all", *sums)], best


def _named(rules: Rules, order: Callable[[Rules], Rules]) -> list[set[str]]:
    """The limiters that each rule of a kernel is right for, in that order; one empty set where there is no rule."""
    return [accepted(rule, title) for rule, title in order(rules).select("rule", "title").iter_rows()] or [set()]


def _rules(report: Path) -> Iterator[tuple[str, Rules]]:
    """Pair, and the rules of its fault that propose something."""
    faults, trace = score.faults_in(report)
    rules = trace[KERNEL_RULES].with_columns(pl.col("rule", "kind").cast(pl.String))
    rules = rules.filter(pl.col("kind") == "optimization")
    for pair, limits in faults:
        yield pair, rules.filter(pl.col("profile") == limits.kernel.profile)
