"""Rules on serving engines: a host that is late, prompts in the way, batches that are small, a cache that is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.pricing import price_change
from timesink.diagnosis.rule import Limits, applicable, make_rule, rule_texts
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.diagnosis.words import number, of_period
from timesink.fixes import table as fixes
from timesink.measures.idle.blame import is_effective
from timesink.measures.steps.engine import EngineLate, Root, blocked_tokens, engine_late, full_batches, is_engine
from timesink.measures.steps.per_step import per_step_ns, share_of_step, step_windows
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, bytes_text, time_text
from timesink.whatif.change import Selection

_NEARLY: Final = 0.8  # of the largest gain: the more specific root is the one
_LOCKED: Final = 0.5  # where most of the host's time is known to be waits for a lock
_MANY_WAITS: Final = 3  # per step; an engine waits for its tokens once


def _check_late(trace: Trace, limits: Limits) -> Verdict:
    """Found per device whose waits for the host pass the limit, where some change of the host wins them back."""
    judged = (_judge_late(trace, engine, limits["late_ratio"]) for engine in engine_late(trace))
    return applicable(judged, "no steps of a serving engine with the calls that launch them")


def _judge_late(trace: Trace, engine: EngineLate, limit: float) -> Finding | Evidence:
    evidence = Evidence(
        f"idle time before engine steps of GPU {engine.device[1]}",
        Quantity(engine.share, "ratio"),
        "idle stretches that the CPU is to blame for, over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
    )
    found = _find_root(trace, engine) if evidence.is_over else None
    if found is None:
        return evidence
    root, gain = found
    worth = _unprofiled_gain(trace, engine, root, gain)
    if worth is not None and worth.value * NS_PER_MS <= limit * (trace.unprofiled_step_ns or 0.0):
        return evidence
    of_root = rule_texts("engine-late").variants[root]
    copied = root is Root.HOST and engine.copied_bytes > 0
    host = Evidence(
        "CPU time between CUDA calls",
        Quantity.ms(engine.host_ns),
        "stretches of the engine's thread longer than operators take, per step",
    )
    return Finding(
        message=f"between engine steps GPU {engine.device[1]} waits "
        f"{of_period(trace, engine.device, engine.late_ns)} for the CPU: {_describe(engine, root)}; the step is the "
        "time per output token",
        bottleneck=Bottleneck(of_root["bottleneck"]),
        where=Where(*engine.device),
        evidence=(evidence, host),
        advice=of_root["advice"],
        verify="Capture again: the next step is launched before the GPU is done with this one.",
        claim=Claim({engine.device: engine.late | engine.busy_copies if copied else engine.late}),
        change=engine.changes[root],
        fix=fixes.PREPARE_NEXT_STEP,
        stated=worth,
    )


def _find_root(trace: Trace, engine: EngineLate) -> tuple[Root, Quantity] | None:
    """The most specific of the roots that win about the most, and its gain; None where none wins a good part of the
    time."""
    priced = {root: price_change(change, engine.device[0], trace) for root, change in engine.changes.items()}
    gains = {root: worth.gain for root, worth in priced.items() if worth is not None}
    most = max((gain.value for gain in gains.values()), default=0.0)
    if not is_effective(most * NS_PER_MS, engine.late_ns):
        return None
    least = {root: (_LOCKED if root is Root.LOCK else _NEARLY) * most for root in Root}
    return next((root, gains[root]) for root in Root if root in gains and gains[root].value >= least[root])


def _unprofiled_gain(trace: Trace, engine: EngineLate, root: Root, gain: Quantity) -> Quantity | None:
    """The gain of the root's replay without a profiler, where that step is known: what the device itself needs of it
    stays, for a profiler slows the host and not the device. None where the replay alone knows."""
    if trace.unprofiled_step_ns is None:
        return None
    copied_ns = per_step_ns(trace, engine.device, engine.busy_copies) if root is Root.HOST else 0.0
    most_ms = max(trace.unprofiled_step_ns - engine.step_ns + engine.late_ns + copied_ns, 0.0) / NS_PER_MS
    return Quantity(min(gain.value, most_ms), "ms", low=min(gain.low or 0.0, most_ms), high=gain.most)


def _describe(engine: EngineLate, root: Root) -> str:
    """What the host does, in the words of the root."""
    host, copied = time_text(engine.host_ns), bytes_text(engine.copied_bytes)
    late = "the next step is launched only when the tokens of this one were read"
    out = f"{copied} are copied out of the GPU in each step, and code on the CPU, such as sampling, runs for {host}"
    return {
        Root.WAITS: f"it reads {engine.waits:.0f} values one by one" if engine.waits > _MANY_WAITS else late,
        Root.LOCK: f"its thread waits {time_text(engine.locked_ns)} of each step for a lock that another thread holds",
        Root.HOST: out if engine.copied_bytes else f"code between CUDA calls runs for {host} of each step",
        Root.ALLOCATION: "it gives memory back and allocates it anew, which waits for the GPU",
        Root.COPY_OUT: f"it waits for {copied} copied out through pageable memory",
        Root.COPY_IN: "it waits for inputs to be copied from pageable memory",
        Root.LAUNCHES: f"it launches {engine.launches:.0f} kernels and copies one by one",
    }[root]


def _blocked(trace: Trace) -> Rows:
    return [
        Row(
            one.device,
            {
                "late_ratio": one.step_ns / one.usual_ns,
                "tokens": one.prompt_tokens,
                "requests": number(one.waiting, "request"),
                "step_ns": one.step_ns,
                "usual_ns": one.usual_ns,
                "chunk": one.chunk,
                "chunked_ns": one.chunked_ns,
                "saved_ratio": 1 - one.chunked_ns / one.step_ns,
            },
            stated=Quantity(0.0, "ms", low=0.0, high=0.0),
        )
        for one in blocked_tokens(trace)
    ]


def _full(trace: Trace) -> Iterator[Row]:
    """Twice the requests save half of what does not depend on their number; a profiler's time is none to share."""
    for one in full_batches(trace):
        step_ns = trace.unprofiled_step_ns or one.step_ns
        saved_ns = max(one.saved_ns - max(one.step_ns - step_ns, 0.0) / 2, 0.0)
        figures = {
            "saved_ratio": saved_ns / step_ns if step_ns else 0.0,
            "full_ratio": one.share,
            "requests": one.requests,
            "joined": one.joined,
            "fixed_ns": one.fixed_ns,
            "step_ns": one.step_ns,
        }
        yield Row(one.device, figures, stated=Quantity.ms(saved_ns, 0.0, saved_ns))


def _copied(trace: Trace) -> Rows:
    if not is_engine(trace):
        return NotApplicable("no steps of a serving engine")
    rows = []
    copied = (pl.col("copy_kind") == "d2d").fill_null(False)
    every = trace.get(DEVICE_OPS).with_row_index("row").filter(copied)
    for device, line in device_timeline(trace).by_device.items():
        copies = every.filter(pl.col("rank") == device[0], pl.col("device") == device[1])
        alone = Intervals.of(copies.select("start_ns", "end_ns")) - line.compute
        start, end = step_windows(trace, device)
        steady = copies.filter(pl.col("start_ns").is_between(int(start.min()), int(end.max())))
        longest = copies.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True)["row"].head(SHOWN_ROWS)
        figures = {
            "copied_ratio": share_of_step(trace, device, alone),
            "bytes": float(steady["bytes"].sum() or 0) / len(start),
        }
        change = fixes.CACHE_IN_PLACE.change(Selection(device, {"copies": copies["row"].to_numpy().astype("int64")}))
        rows.append(Row(device, figures, alone, change=change, fix=fixes.CACHE_IN_PLACE, rows=tuple(longest.to_list())))
    return rows


RULES: Final = (
    make_rule("engine-late", _check_late),
    declare("prefill-blocks", _blocked),
    declare("batch-small", _full),
    declare("device-copies", _copied),
)
