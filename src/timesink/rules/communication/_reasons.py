"""The words of why a rank is late, what helps, and where it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from timesink.diagnosis.judge import said_advice
from timesink.diagnosis.rule import rule_texts
from timesink.measures.idle.before_launches import computing_share
from timesink.measures.ranks.why_late import (
    Reason,
    WhyLate,
    why_device_is_late,
    why_host_is_late,
    why_host_waits,
)
from timesink.measures.timeline import Device
from timesink.measures.timeline.known import known
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.records import Record, field


class _Words(Record):
    """What a late rank does; what helps: `advice`, or that of a variant of a rule, which finds the same by itself."""

    does: str
    rule: str = ""
    variant: str = ""
    advice: str = ""


_RUNS: Final = "has {runs:,g} kernels to run in a step where the others have {peers_runs:,g}"
_WORDS: Final[Mapping[Reason, _Words]] = {
    "loader": _Words("prepares input", "input-pipeline"),
    "copies": _Words("waits for copies", "pageable-copies", "h2d"),
    "sync": _Words("waits for its GPU", "host-sync"),
    "allocator": _Words("allocates GPU memory", "allocator"),
    "compile": _Words("compiles", "recompilation"),
    "checkpoint": _Words("saves a checkpoint", "host-python", "python"),
    "garbage_collection": _Words("collects garbage", "garbage-collection"),
    "logging": _Words("logs", "host-python", "python"),
    "os_call": _Words("is in system calls", "operating-system"),
    "python": _Words("runs code that launches nothing", "host-python", "python"),
    "launches": _Words("is slow to launch its kernels", "launch-bound"),
    "operators": _Words("is in operators that take long on the CPU", "host-operators"),
    "other": _Words(_RUNS, advice="Deal out what this rank alone runs over all ranks, or do it every N steps."),
    "more": _Words(
        _RUNS,
        advice="Give every rank as many passes a step: deal micro-batches, evaluation and extra passes out over them.",
    ),
    "larger": _Words(
        "runs as many kernels as the others on larger inputs",
        advice="Deal inputs out by size, not by count: bucket them by length over all ranks, or cap a batch's tokens.",
    ),
    "slower": _Words(
        "runs the kernels of the others more slowly",
        advice="Compare that GPU's clock, temperature and other processes with its peers': nvidia-smi -q.",
    ),
}


class SaidReason(Record):
    """The words of a reason, what helps, where, which device time it is, the rule that finds it by itself, and what of
    it the rank has in a step beyond its peers."""

    does: str = ""
    advice: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    intervals: Intervals = field(default_factory=Intervals.none)
    rule: str = ""
    excess_ns: float = 0.0


def said_reason(trace: Trace, device: Device, late_by: str, held_ns: float) -> SaidReason:
    """Why a rank is late by one side; empty where what it has beyond its peers does not make half of it."""
    sides = {"host_ns": why_host_is_late, "device_ns": why_device_is_late}
    found = sides[late_by](trace, device) if late_by in sides else None
    return _said(trace, device, found) if found is not None and 2 * found.excess_ns > held_ns else SaidReason()


def said_in_turn(trace: Trace, late: Sequence[tuple[Device, Intervals]]) -> SaidReason:
    """Why ranks are late in turn, each in its time; empty where that is not one reason for all."""
    found = [why_host_waits(trace, device, within) for device, within in late]
    reasons = {None if one is None else one.reason for one in found}
    first = found[0] if len(reasons) == 1 and found else None
    return SaidReason() if first is None else _said(trace, late[0][0], first)


def _said(trace: Trace, device: Device, found: WhyLate) -> SaidReason:
    words, place = _WORDS[found.reason], found.place
    runs, peers_runs = (float(f"{count:.3g}") for count in (found.runs, found.peers_runs))
    does, variant = words.does.format(runs=runs, peers_runs=peers_runs), words.variant
    if found.reason == "copies" and (way := {"h2d": "to", "d2h": "from"}.get(place["copies"] or "")):
        does, variant = f"{does} {way} its GPU", place["copies"]
    if found.reason == "operators" and 2 * computing_share(trace, device) > 1:
        does, variant = "computes on its CPU", "computes"
    line = place.get("file") and place.get("line") and f"{Path(place['file']).name}:{place['line']}"
    names = {"at": line or place.get("host_op"), "in range": place.get("range")}
    said = " ".join([does, *(f"{joint} {name}" for joint, name in names.items() if name and words.does != _RUNS)])
    texts = rule_texts(words.rule).told_to(known(trace).program) if words.rule else None
    advice = words.advice if texts is None else said_advice(texts, variant, "", _NOTHING)
    where = {key: place.get(key) for key in _WHERE} | {"op": place.get("host_op")}
    return SaidReason(f", which {said}", advice, where, found.intervals, words.rule, found.excess_ns)


_WHERE: Final = ("thread", "range", "file", "line", "kernel")
_NOTHING: Final = {"gather": "", "held": "", "place": ""}
