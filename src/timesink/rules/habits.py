"""Rules on habits and settings: work done twice, debugging left on, Python loops, a machine told too much.

Most of them find work that a step can do without: a place is that work on one device, with the idle time before it.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import (
    Claim,
    NotApplicable,
    Quantity,
    Undecided,
    Where,
)
from timesink.diagnosis.words import number, of_period, per_period
from timesink.fixes import Fix
from timesink.fixes.replays import batch_units, batched_kernels, extra_kernels
from timesink.fixes.work import (
    BATCH_UNITS,
    BUILD_ONCE,
    DROP_DEBUGGING,
    EVALUATE_RARELY,
    FEWER_THREADS,
    LIST_OPERATIONS,
    NO_GRADIENTS,
    NO_RECOMPUTATION,
    NO_RECORDING,
    USE_A_PART,
)
from timesink.knowledge.assumptions import fixes
from timesink.measures.habits.debugging import BlockingLaunches, blocking_launches, filled_memory, nan_checks
from timesink.measures.habits.extra_work import ExtraWork
from timesink.measures.habits.grown_tensors import grown_tensors, times_on
from timesink.measures.habits.repeated_kernels import parameter_loops, rebuilt_constants, sent_constants
from timesink.measures.habits.repeated_passes import recomputed, repeated_forward
from timesink.measures.habits.unused_gradients import unused_gradients
from timesink.measures.habits.unused_work import partly_used, recorded_in_vain
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.lines.common import common_line, longest_line
from timesink.measures.repeats.kinds import Kind
from timesink.measures.repeats.one_pass import one_passes
from timesink.measures.repeats.order import HOST
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns, share_of_step
from timesink.measures.timeline import Device, device_timeline
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.schema import SHOWN_ROWS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.idle import waiting_row
from timesink.units import NS_PER_MS
from timesink.whatif import Case, Change, Target

_NO_BACKWARD: Final = NotApplicable("no backward pass can be told from a forward pass")
_CAPTURE: Final = "timesink capture torch -- python train.py"
_LONG_NS: Final = 0.1 * NS_PER_MS  # operators that run on several threads take longer: others are dispatch
_BLOCKING: Final = "launch_blocking"
_MENTIONED: Final = 0.01  # of the step: less idle time before launches is not spoken of


def _extra_row(trace: Trace, work: ExtraWork, fix: Fix, change: Change | None = None, /, **figures: Any) -> Row:
    """Work that goes, and the host's time that is there for it alone; or what the change makes of it."""
    kernels = extra_kernels(work)
    running = kernels.saved(trace, Case.EXPECTED)
    idle_ns = per_step_ns(trace, work.device, work.idle - running)
    is_told = idle_ns > _MENTIONED * period_ns(trace, work.device)
    known = {
        "saved_ratio": share_of_step(trace, work.device, running | work.idle),
        "count": work.per_step,
        "waited_ns": idle_ns if is_told else None,
    }
    change = change or fix.change(work)
    return Row(work.device, {**known, **figures}, running, kernels, change, also=work.idle, fix=fix)


def _rows_of(measure: Callable[[Trace], Iterable[ExtraWork] | None], fix: Fix) -> Callable[[Trace], Rows]:
    """Rows of a measure of extra work, which is None where backward passes cannot be told."""

    def rows(trace: Trace) -> Rows:
        works = measure(trace)
        return _NO_BACKWARD if works is None else [_extra_row(trace, work, fix) for work in works]

    return rows


def _constants(trace: Trace) -> Iterator[Row]:
    for measure, variant in ((rebuilt_constants, ""), (sent_constants, "sent")):
        works, most = measure(trace)
        times = per_period(trace, most).replace(" ", " times ", 1)
        for work in works:
            row = replace(_extra_row(trace, work, BUILD_ONCE, most=times), variant=variant)
            yield row if not variant else replace(row, where=partial(_made_at, trace, work))


def _made_at(trace: Trace, work: ExtraWork) -> Where:
    """The line before most of the copies, where what they send is made."""
    line = longest_line(trace, work.rows, np.ones(work.rows.size))
    file, number = (line.file, line.line) if line else (None, None)
    return Where(rank=work.device[0], device=work.device[1], file=file, line=number)


def _debugging(trace: Trace) -> Iterator[Row]:
    """Checks for NaN, whose waits go with them, and memory filled as it is allocated."""
    if checks := nan_checks(trace):
        for work in checks.work:
            count, variant = work.per_step / checks.operations, "anomaly" if checks.proven else "checks"
            on = f"anomaly mode is on: {count:.0f} checks for NaN run in the backward pass, and the CPU waits for each"
            what = on if checks.proven else f"{count:.0f} checks for NaN are read by the CPU one by one"
            change = DROP_DEBUGGING.change(work, waits=True)
            yield replace(_extra_row(trace, work, DROP_DEBUGGING, change, what=what), variant=variant)
    for work in filled_memory(trace):
        what = f"deterministic algorithms are on: {work.per_step:.0f} kernels fill memory that has only been allocated"
        yield replace(_extra_row(trace, work, DROP_DEBUGGING, what=what), variant="fills")


def _one_at_a_time(trace: Trace) -> Iterator[Row]:
    """Units that one batched pass would do together."""
    for found in one_passes(trace):
        unit, device, kernels = found.unit, found.work.device, batched_kernels(found)
        goes = kernels.saved(trace, Case.EXPECTED) | found.work.idle
        figures = {
            "saved_ratio": share_of_step(trace, device, goes),
            "unit": unit.said,
            "run": "run" if len(unit.names) > 1 else "runs",
            "count": unit.per_step,
            "over": unit.kind.value,
            "host_ns": float(unit.share[HOST]) * period_ns(trace, device),
        }
        row = _extra_row(trace, found.work, BATCH_UNITS, batch_units(trace, found), **figures)
        where = partial(_at_common_line, trace, device, unit.leading, found.work.rows)
        variant = "micro_batches" if unit.kind is Kind.MICRO_BATCHES else ""
        yield replace(row, kernels=kernels, where=where, variant=variant)


def _at_common_line(trace: Trace, device: Device, operator: str, rows: Int64Array) -> Where:
    """The operator that leads some work, and the line that all of it has in common."""
    line = common_line(trace, rows)
    file, number = (line.file, line.line) if line else (None, None)
    return Where(rank=device[0], device=device[1], op=operator, file=file, line=number)


def _blocking(trace: Trace, limits: Limits) -> Rows:
    """A device most of whose launches waited; of a few kernels only where a manifest says that it was asked."""
    asked = trace.settings.get(_BLOCKING) == "on"
    told = [one for one in blocking_launches(trace) if asked or one.count >= limits["kernels"]]
    few = f"fewer than {limits['kernels']:.0f} kernels have a launch of their own"
    return [_blocking_row(trace, one, limits["awaited_ratio"], asked) for one in told] or NotApplicable(few)


def _blocking_row(trace: Trace, blocking: BlockingLaunches, limit: float, asked: bool) -> Row:
    """The gain is the waits in the launches, or what else the device is idle, whichever is less: without waits a step
    takes the longer of the two. A profiler lengthens the idle time, not the waits."""
    device, rows = blocking.device, tuple(blocking.rows[:SHOWN_ROWS].tolist())
    figures: dict[str, Any] = {"awaited_ratio": blocking.ratio, "count": blocking.count}
    within_ns = per_step_ns(trace, device, blocking.idle)
    if blocking.ratio <= limit or not within_ns:
        return Row(device, figures, rows=rows, verdict=False)
    profiled_ns = period_ns(trace, device)
    slowed_ns = max(profiled_ns - (trace.unprofiled_step_ns or profiled_ns), 0.0)
    idle_ns = max(per_step_ns(trace, device, device_timeline(trace)[device].idle) - slowed_ns, 0.0)
    gain_ns = min(sum(per_step_ns(trace, device, part) for part in blocking.host.values()), idle_ns)
    figures |= {
        "cause": "CUDA_LAUNCH_BLOCKING is set" if asked else "as CUDA_LAUNCH_BLOCKING makes them",
        "waited": of_period(trace, device, within_ns),
        "within_ms": within_ns / NS_PER_MS,
    }
    stated = Quantity.ms(gain_ns, gain_ns / 2, max(idle_ns, gain_ns))
    return Row(device, figures, claim=Claim({device: blocking.idle}), stated=stated, rows=rows)


def _crowded(trace: Trace) -> Rows:
    """Idle time in long host work, which gets shorter by half the share of threads that are too many."""
    counts = [trace.settings.get(name, "") for name in ("threads", "cpus")]
    if not all(text.isdigit() and int(text) for text in counts):
        return Undecided("no manifest says how many threads the program runs", _CAPTURE)
    ranks = trace.settings.get("ranks_here", "1")
    threads, cpus = int(counts[0]) * (int(ranks) if ranks.isdigit() else 1), int(counts[1])
    long = pl.col("end_ns") - pl.col("start_ns") >= _LONG_NS
    rows = []
    for blamed in blamed_time(trace, HOST_CAUSES, wanted=long):
        target = Target("windows", windows=blamed.host)
        change = FEWER_THREADS.change(target, (1.0 + cpus / threads) / 2)
        figures = {"thread_ratio": threads / cpus, "threads": threads, "cpus": cpus}
        rows.append(waiting_row(blamed, FEWER_THREADS, change, **figures))
    return rows


def _shared(trace: Trace) -> Rows:
    """A GPU that was busy before: if that goes on, both processes get their share of it."""
    devices = sorted(device_timeline(trace).by_device)
    if not trace.settings or not devices:
        return Undecided("no manifest says what else ran on the GPU", _CAPTURE)
    text = trace.settings.get("others_busy", "0")
    busy = float(text) / 100 if text.isdigit() else 0.0
    step_ms = (trace.unprofiled_step_ns or period_ns(trace, devices[0])) / NS_PER_MS
    stated = Quantity(step_ms * busy / (1 + busy), "ms", low=0.0, high=step_ms * 2 * busy / (1 + 2 * busy))
    figures = {"busy_ratio": busy, "period": period_name(trace), "step_ms": step_ms}
    return [Row(devices[0], figures, stated=stated)]


def _caches(trace: Trace) -> Iterator[Row]:
    """Tensors that are copied to grow: all of that time may go, and nothing says how much of it."""
    for found in grown_tensors(trace):
        copied = Intervals.of(times_on(trace, found.rows))
        figures = {
            "copied_ratio": share_of_step(trace, found.device, copied),
            "count": number(round(found.per_step), "operator") if found.per_step >= 1 else "operators",
            "entries": f"{found.entries:,}",
        }
        yield Row(found.device, figures, copied, claim=Claim({found.device: copied}), rows=found.rows[:SHOWN_ROWS])


def _unused(trace: Trace) -> Iterator[Row]:
    """Work done in full of which a part is used, and gradients recorded for nothing."""
    for part in partly_used(trace):
        device, kernels = part.work.device, USE_A_PART.change(part)
        saved_ratio = saved_per_step_ns(trace, kernels, Case.EXPECTED) / (period_ns(trace, device) or 1.0)
        sizes = {"of": f"{part.of:,}", "kept": f"{part.kept:,}", "operator": part.operator}
        line = partial(_at_common_line, trace, device, part.operator, part.work.rows)
        figures = {"saved_ratio": saved_ratio, **sizes}
        yield Row(device, figures, None, kernels, kernels, fix=USE_A_PART, where=line, variant=part.kind)
    yield from (replace(_extra_row(trace, work, NO_GRADIENTS), variant="gradients") for work in unused_gradients(trace))
    for blamed in recorded_in_vain(trace):
        change = NO_RECORDING.change(Target("windows", windows=blamed.host))
        saved_ratio = (1.0 - fixes.RECORDING_LEFT.value) * blamed.share
        yield replace(waiting_row(blamed, NO_RECORDING, change, saved_ratio=saved_ratio), variant="recorded")


RULES: Final = (
    declare("cache-copied", _caches),
    declare("activations-recomputed", _rows_of(recomputed, NO_RECOMPUTATION)),
    declare("launches-blocking", _blocking, asks_limits=True),
    declare("debugging-left-on", _debugging),
    declare("parameters-one-by-one", _rows_of(parameter_loops, LIST_OPERATIONS)),
    declare("constants-rebuilt", _constants),
    declare("forward-repeated", _rows_of(repeated_forward, EVALUATE_RARELY)),
    declare("one-at-a-time", _one_at_a_time),
    declare("work-unused", _unused),
    declare("threads-oversubscribed", _crowded),
    declare("device-shared", _shared),
)
