"""What peers' answers are worth as verdicts, by the rules that favour them most; `README.md` says them in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.faults import formulas

HOST = formulas.UNQUANTIFIED | {"checkpoint", "parameters_one_by_one", "launches_blocking", "debugging_left_on"}
"""Bottlenecks that show as an idle GPU: "the GPU is idle" is right for all of them."""
COPIES = frozenset(formulas.COPIES)
EXCHANGE = frozenset({"communication_exposed", "communication_small", "straggler"})
OF_CATEGORY = {
    "idle": HOST,
    "sync": frozenset({"host_sync", "allocator", "launches_blocking"}) | COPIES,
    "launch_overhead": frozenset(
        {"launch_bound", "host_python", "unrecorded_code", "graph_breaks", "optimizer_unfused", "pointwise_unfused",
         "attention_unfused",
         "parameters_one_by_one", "stream_serialization", "occupancy"}
    ),
    "memory": COPIES,
    "communication": EXCHANGE,
}  # fmt: skip
"""Of nsys-ai's categories, the bottlenecks for which a finding of it is counted as right."""
TENSOR_CORES = frozenset({"precision", "shape_alignment"})
KERNELS = frozenset(formulas.KERNELS)
KINDS = (HOST, COPIES, EXCHANGE, KERNELS)
QUALITY = "profile_quality"
NO_KERNEL = "first warning that is no kernel's"
ORDERS = ("first warning", NO_KERNEL)
THRESHOLDS = (2, 5, 10, 15, 20, 25, 30, 40)
"""Percent of the recording from which a share of a breakdown is counted as its verdict; of these the best is taken."""
LOSSES = (("idle", HOST), ("copy", COPIES), ("communication", EXCHANGE))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the first answer is right for the fault, whether any is, whether it alarms at all, and its price as a
    share; `refused` where the peer gave no answer."""

    first: bool
    any: bool
    alarm: bool
    price: float | None = None
    refused: bool = False


REFUSED = Verdict(first=False, any=False, alarm=False, refused=True)


def same_kind(owed: str, named: str) -> bool:
    """Whether a bottleneck is of the kind of the one that is owed, by which peers are judged."""
    return owed == named or any(owed in kind and named in kind for kind in KINDS)


def names_culprit(owed: str, texts: Sequence[str]) -> bool:
    """Whether one of these kernels or operators is among those at fault, of faults that are kernels'."""
    pattern = formulas.KERNELS.get(owed)
    plain = None if pattern is None else re.compile(pattern.replace("(?i)", ""), re.IGNORECASE)
    return plain is not None and any(plain.search(text) for text in texts)


def of_findings(answer: dict[str, Any], owed: str, way: str) -> Verdict:
    """nsys-ai. Its first answer is its first warning, or the first that is no kernel's; without one its first finding.
    That a kernel is the longest is no alarm: one always is."""
    findings = [one for one in answer["findings"] if one[1] != QUALITY]
    if not findings:
        return REFUSED
    warnings = [one for one in findings if one[0] in ("warning", "critical")]
    alarms = [one for one in warnings if one[1] != "compute"]
    first = [*(alarms if way == NO_KERNEL else []), *warnings, *findings][0]
    priced = [one for one in findings if one[3] is not None and _is_right(one, owed)]
    share = re.search(r"\(([\d.]+)% of profile\)", priced[0][2]) if priced else None
    right = any(_is_right(one, owed) for one in findings)
    return Verdict(_is_right(first, owed), right, bool(alarms), float(share[1]) / 100 if share else 0.0)


def _is_right(finding: Sequence[Any], owed: str) -> bool:
    _, category, label, _ = finding
    if category == "compute":
        return (label.startswith("TC eligible") and owed in TENSOR_CORES) or names_culprit(owed, [label])
    if category is None:
        return label.startswith(("Large H2D", "Large D2H", "H2D")) and owed in COPIES
    return owed in OF_CATEGORY.get(category, frozenset())


def of_shares(answer: dict[str, Any], owed: str, threshold: float) -> Verdict:
    """HTA and TraceLens. The largest of idle time, copies and communication that nothing hides, where it is at least
    the threshold; else the longest kernels and operators, which are an answer, and no alarm."""
    longest = names_culprit(owed, answer["longest"])
    shares = sorted(((answer[name], accepted) for name, accepted in LOSSES), key=lambda one: -one[0])
    told = [accepted for share, accepted in shares if share >= threshold]
    first = owed in told[0] if told else longest
    return Verdict(first, longest or any(owed in accepted for accepted in told), bool(told))
