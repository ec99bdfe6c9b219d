"""Rules on serving engines: a host that is late, prompts in the way, batches that are small, a cache that is copied."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.pricing import price_change
from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Claim, NotApplicable, Quantity
from timesink.diagnosis.words import number, of_period
from timesink.fixes.advised import CACHE_IN_PLACE, PREPARE_NEXT_STEP
from timesink.measures.idle.blame import is_effective
from timesink.measures.steps.engine import EngineLate, Root, blocked_tokens, engine_late, full_batches, is_engine
from timesink.measures.steps.per_step import per_step_ns, share_of_step, step_windows
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.whatif import Selection

_NEARLY: Final = 0.8  # of the largest gain: the more specific root is the one
_LOCKED: Final = 0.5  # where most of the host's time is known to be waits for a lock
_MANY_WAITS: Final = 3  # per step; an engine waits for its tokens once


def _late(trace: Trace, limits: Limits) -> Iterator[Row]:
    """A device whose steps wait for the host: found past the limit, where some change of the host wins that back."""
    for engine in engine_late(trace):
        found = _find_root(trace, engine) if engine.share > limits["late_ratio"] else None
        worth = _unprofiled_gain(trace, engine, *found) if found else None
        least_ns = limits["late_ratio"] * (trace.unprofiled_step_ns or 0.0)
        if found is None or (worth is not None and worth.value * NS_PER_MS <= least_ns):
            yield Row(engine.device, {"late_ratio": engine.share}, verdict=False)
        else:
            yield _late_row(trace, engine, found[0], worth)


def _late_row(trace: Trace, engine: EngineLate, root: Root, worth: Quantity | None) -> Row:
    device, one_by_one = engine.device, engine.waits > _MANY_WAITS
    figures = {
        "late_ratio": engine.share,
        "late": of_period(trace, device, engine.late_ns),
        "host_ms": engine.host_ns / NS_PER_MS,
        "waits": engine.waits if one_by_one else None,
        "tokens": None if one_by_one else "tokens",
        "locked_ns": engine.locked_ns,
        "copied": engine.copied_bytes,
        "copied_out": engine.copied_bytes or None,
        "sampling_ns": engine.host_ns,
        "code_ns": None if engine.copied_bytes else engine.host_ns,
        "launches": engine.launches,
    }
    copied = root is Root.HOST and engine.copied_bytes > 0
    claim = Claim({device: engine.late | engine.busy_copies if copied else engine.late})
    return Row(device, figures, claim=claim, change=engine.changes[root], stated=worth, variant=root)


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
        change = CACHE_IN_PLACE.change(Selection(device, {"copies": copies["row"].to_numpy().astype("int64")}))
        rows.append(Row(device, figures, alone, change=change, fix=CACHE_IN_PLACE, rows=tuple(longest.to_list())))
    return rows


RULES: Final = (
    declare("engine-late", _late, fix=PREPARE_NEXT_STEP, asks_limits=True),
    declare("prefill-blocks", _blocked),
    declare("batch-small", _full),
    declare("device-copies", _copied),
)
