"""Counters: metrics with one value per program, compared exactly or, for shares, within a tolerance in points.

They come from a file that the user's program writes, or from a capture: shares of the step, counts per step, peak
memory, deterministic hardware counters. A capture's times are never gated: one run per side is no basis for a verdict.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError
from timesink.knowledge.metric_names.patterns import LESS_IS_BETTER, MORE_IS_BETTER, NCU_METRIC
from timesink.records import Record
from timesink.units import time_text
from timesink.untrusted.plain_json import parsed
from timesink.verify import round_floats
from timesink.verify.limits import EXACT_TOLERANCE, KERNEL_THRESHOLD, SHARE_TOLERANCE, STEP_THRESHOLD
from timesink.verify.outcomes import Better, ChangeVerdict, GateRow, How, Outcome, Reason, inconclusive, invalid

if TYPE_CHECKING:
    from timesink.measures.timeline import Device
    from timesink.model.trace import Trace


class Counter(Record):
    """A metric with one value per program, not per run: compared exactly or within a tolerance."""

    value: float
    unit: str = ""
    how: How = How.EXACT
    better: Better = Better.LOWER


def gate_counters(
    stored: Mapping[str, Counter], measured: Mapping[str, Counter], share_tolerance: float = SHARE_TOLERANCE
) -> list[GateRow]:
    """One row per counter on either side, by name. One that is missing now was not measured: no pass."""
    rows = []
    for name in sorted({*stored, *measured}):
        before, after = stored.get(name), measured.get(name)
        either = after or before
        assert either is not None
        exact = KERNEL_THRESHOLD if _is_measured(name) else EXACT_TOLERANCE
        tolerance = share_tolerance if either.how is How.SHARE else exact
        if after is None:
            why, remedy = "in the baseline, not measured now", "measure it, or update the baseline"
            verdict = invalid(tolerance, Reason.NOT_MEASURED, why, remedy)
        elif before is None:
            why = "measured now, not in the baseline"
            verdict = inconclusive(tolerance, Reason.MISSING_BASELINE, why, "update the baseline")
        else:
            verdict = compare_counter(before, after, tolerance)
        old, new = (None if side is None else side.value for side in (before, after))
        rows.append(GateRow(name, either.unit, old, new, verdict, either.better, either.how))
    return rows


def compare_counter(before: Counter, after: Counter, tolerance: float) -> ChangeVerdict:
    """Exact: relative difference within the tolerance. Share: absolute difference within it. No noise."""
    if before.unit != after.unit or before.how != after.how:
        why = f"{before.how} in {before.unit!r} before, {after.how} in {after.unit!r} now"
        return invalid(tolerance, Reason.OTHER_STATISTIC, why, "update the baseline")
    if not (math.isfinite(before.value) and math.isfinite(after.value)):
        return invalid(tolerance, Reason.BAD_VALUES, "a counter is not finite", "measure it again")
    old, new = round_floats(before.value), round_floats(after.value)  # as a baseline file would hold them
    gap = abs(new - old) if after.better is Better.NEITHER else new - old if after.better is Better.LOWER else old - new
    allowed = tolerance if after.how is How.SHARE else tolerance * abs(before.value)
    if abs(gap) <= allowed:
        return ChangeVerdict(Outcome.NO_DIFFERENCE, tolerance)
    return ChangeVerdict(
        Outcome.SLOWER if gap > 0 else Outcome.FASTER, tolerance, explanation=_allowed(after, tolerance)
    )


def _allowed(counter: Counter, tolerance: float) -> str:
    """Which direction is good, and how far it may go the other way."""
    if counter.better is Better.NEITHER:
        return 'may not differ, for nothing says whether more is better: "better" may be "higher" or "lower"'
    good, way = ("less", "rise") if counter.better is Better.LOWER else ("more", "fall")
    unit = "points" if counter.how is How.SHARE else "%"
    far = f"may {way} by {100 * tolerance:g} {unit}" if tolerance > EXACT_TOLERANCE else f"may not {way}"
    return f"{good} is better, {far}"


_KEYS = {"value", "unit", "how", "better"}


def read_counters(path: Path) -> dict[str, Counter]:
    """``{"graph breaks": 3, "tokens/s": {"value": 812, "better": "higher", "how": "exact", "unit": "tokens/s"}}``.

    A number alone will do where its name says whether more is better; where none says, any difference is worse. A
    metric of Nsight Compute may differ by 5 % where it depends on clocks and caches, and so may a rate or a share of a
    peak.
    """
    content = _json(path, path.read_text("utf-8", "replace") if path.is_file() else None)
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no object", remedy='write {"name": {"value": 1, "unit": "launches"}}')
    return {str(name): _counter_of(path, str(name), entry) for name, entry in content.items()}


def _counter_of(path: Path, name: str, entry: Any) -> Counter:
    fields, place = entry if isinstance(entry, dict) else {"value": entry}, f"{path}: {name!r}"
    if unknown := sorted(set(fields) - _KEYS):
        raise UsageError(f"{place} has an unknown key {unknown[0]!r}", remedy=f"use {', '.join(sorted(_KEYS))}")
    value = fields.get("value")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{place} has no number: {value!r}", remedy="give a number or an object with 'value'")
    try:
        how, better = How(fields.get("how", "exact")), Better(fields.get("better", _usual(name)))
    except ValueError as wrong:
        raise UsageError(f"{place}: {wrong}", remedy="how: exact or share; better: lower or higher") from None
    if how is How.RUNS:
        raise UsageError(f"{place} cannot be compared by runs from a file", remedy="time it with a command")
    return Counter(_finite(value, place), str(fields.get("unit", "")), how, better)


def _usual(name: str) -> Better:
    """The direction that the name of a metric speaks of; of a deterministic count of ncu, less."""
    if name.endswith(_DETERMINISTIC):
        return Better.LOWER
    if re.search(MORE_IS_BETTER, name):
        return Better.HIGHER
    return Better.LOWER if re.search(NCU_METRIC, name) or re.search(LESS_IS_BETTER, name) else Better.NEITHER


# Counts of the work that a kernel was given, the same on every replay, whatever the clock: sums over threads, sectors.
_DETERMINISTIC = (
    "smsp__inst_executed.sum", "sm__inst_executed.sum",
    *(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul", "ffma")),
    "launch__grid_size", "launch__block_size", "launch__registers_per_thread", "launch__shared_mem_per_block",
)  # fmt: skip


def _is_measured(name: str) -> bool:
    """Whether runs of the same work do not repeat it exactly: a metric of Nsight Compute, a rate, a share of a peak."""
    is_of_clock = re.search(NCU_METRIC, name) or re.search(MORE_IS_BETTER, name)
    return is_of_clock is not None and not name.endswith(_DETERMINISTIC)


_SHARES = {"exposed communication": "exposed_communication", "exposed copy": "exposed_copy", "idle": "idle"}


def captured_metrics(trace: Trace) -> dict[str, Counter]:
    """Every metric the trace holds; what it did not record is left out, never zero."""
    return {**step_metrics(trace), **compile_metrics(trace), **memory_metrics(trace), **kernel_metrics(trace)}


def worst_shares(trace: Trace) -> dict[str, tuple[float, Device]]:
    """Of each share of the step's time the largest, and the device that has it."""
    from timesink.measures.steps import steps
    from timesink.measures.steps.per_step import share_of_step
    from timesink.measures.timeline import device_timeline

    stepped = set(steps(trace).windows.select("rank", "device").iter_rows())
    lines = [(device, line) for device, line in device_timeline(trace).by_device.items() if device in stepped]
    return {
        f"{name} share": max((share_of_step(trace, device, getattr(line, part)), device) for device, line in lines)
        for name, part in (_SHARES.items() if lines else ())
    }


def share_note(sides: Sequence[Trace]) -> str:
    """Whose shares those of a comparison are; "" where each side has one device."""
    from timesink.measures.timeline import device_timeline

    if all(len(device_timeline(trace)) < 2 for trace in sides):
        return ""
    before, after = (worst_shares(trace) for trace in sides)
    of_each = [
        f"{name} of {_place(before[name][1])} before, of {_place(after[name][1])} after"
        for name in before.keys() & after.keys()
    ]
    return f"each share is of the GPU where it is largest, so that they do not sum: {'; '.join(sorted(of_each))}"


def times_note(before: Trace, after: Trace) -> tuple[str, ...]:
    """How long the steps of two profiles took, where it differs: a share may fall because the step grew."""
    from timesink.measures.steps.parts import step_series

    means = [float(series.mean()) for trace in (before, after) if (series := step_series(trace)).size]
    if len(means) < 2 or abs(means[1] / means[0] - 1) <= STEP_THRESHOLD:
        return ()
    old, new = map(time_text, means)
    return (
        f"steps took {old} before and {new} after, which counts do not judge: timesink compare says why, "
        "timesink verify whether",
    )


def _place(device: Device) -> str:
    return f"rank {device[0]}, GPU {device[1]}"


def step_metrics(trace: Trace) -> dict[str, Counter]:
    """Shares of the step's time and launches per step, of the device where each is worst."""
    from timesink.measures.timeline.launches import launches

    counters = {name: Counter(share, "share", How.SHARE) for name, (share, _) in worst_shares(trace).items()}
    per_step = [device.launches_per_step for device in launches(trace).values() if device.launches_per_step is not None]
    if per_step:
        counters["launches per step"] = Counter(max(per_step), "launches")
    return counters


def compile_metrics(trace: Trace) -> dict[str, Counter]:
    """Counts of a compiled program: breaks and recompilations from a log, regions per step from a profile.

    A profile without compiled regions says nothing of a compiler, and gives no count.
    """
    from timesink.measures.compile.summary import compile_counters
    from timesink.model.tables import COMPILE_EVENTS

    counts = dict(compile_counters(trace))
    if COMPILE_EVENTS not in trace and "regions_per_step" not in counts:
        return {}
    counts.pop("launches_per_step", None)  # which `step_metrics` reports
    return {name.replace("_", " "): Counter(value) for name, value in counts.items()}


def memory_metrics(trace: Trace) -> dict[str, Counter]:
    """Peak allocated bytes on any GPU, where the profiler recorded the allocator."""
    from timesink.model.tables import MEMORY_EVENTS

    if MEMORY_EVENTS not in trace:
        return {}
    events = trace[MEMORY_EVENTS]
    peak = events.filter(events["device"] >= 0)["total_allocated_bytes"].drop_nulls().max()
    return {"memory peak": Counter(float(peak), "bytes")} if isinstance(peak, int) else {}


def kernel_metrics(trace: Trace) -> dict[str, Counter]:
    """Deterministic counters of profiled kernels, summed over the launches of each kernel."""
    from timesink.measures.counters import kernel_counters
    from timesink.model.tables import KERNEL_PROFILES

    if KERNEL_PROFILES not in trace:
        return {}
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for kernel in kernel_counters(trace):
        for name in _DETERMINISTIC:
            if (value := kernel.get(name)) is not None:
                sums[kernel.name, name] += value
    return {f"{kernel}: {name}": Counter(value) for (kernel, name), value in sorted(sums.items())}


def _finite(value: float, place: str) -> float:
    """The number as a float. A NaN or an infinity stays: what it means is the comparison's to say."""
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{place} holds a number of more than 308 digits", remedy="remove or correct it") from None


def _json(place: Path | str, text: str | None) -> Any:
    if text is None:
        raise UsageError(f"there is no file {place}", remedy="check the path")
    try:
        return parsed(text)
    except ValueError as broken:
        raise UsageError(f"{place} is no JSON: {broken}", remedy="correct it") from broken
