"""Prices of CPU work where only the step without a profiler can be estimated."""

import math
from collections.abc import Callable
from statistics import median
from typing import Final

from timesink.diagnosis.gains import (
    quantity_ms,
    to_be_expected,
)
from timesink.diagnosis.verdicts import Quantity
from timesink.measures.timeline.replay import (
    calibrated_ends,
    calibrated_pricers,
    deflated_pricers,
    pricers,
    step_without_profiler_ns,
)
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.units import NS_PER_MS
from timesink.whatif import Case, Change, Touches
from timesink.whatif.periods import TO_P90
from timesink.whatif.pricing import Price, Pricer


def as_repeated(gain: Quantity, rank: int, trace: Trace) -> Quantity:
    """The gain as two runs of as many steps as were timed without a profiler would show it: the median step of each is
    off by the spread of its steps over the root of their number, by 1.25 of that (the error of a median)."""
    times = trace.unprofiled_steps_ns
    usual = median(times)
    spread = _OF_NORMAL * median(abs(time - usual) for time in times) / max(usual, 1.0)
    error = TO_P90 * _OF_MEDIAN * spread * math.sqrt(2 / len(times))
    error_ms = error * max(step_without_profiler_ns(trace, rank) / NS_PER_MS - gain.value, 0.0)
    low_ms, high_ms = gain.value - (gain.low or 0.0), gain.most - gain.value
    low_ms, high_ms = gain.value - math.hypot(low_ms, error_ms), gain.value + math.hypot(high_ms, error_ms)
    return replace(gain, low=max(low_ms, 0.0) if gain.value >= 0 else low_ms, high=high_ms)


TIMED: Final = 4  # steps: of fewer nobody tells how far they are apart
_OF_NORMAL, _OF_MEDIAN = 1.4826, 1.2533  # deviations a median distance; the error of a median over that of a mean


def price_by_estimate(change: Change, rank: int, trace: Trace) -> Quantity | None:
    """The gain in replays with the profiler's cost taken off by estimate; None where the trace cannot be replayed.

    The interval holds the intervals at little and at much cost. Neither it nor the value exceeds the step at the
    expected cost, of which they are shown as a share.
    """
    if change.touches is Touches.DEVICE:  # the device is not slowed, but what it gains is a part of the same step
        replay, step_ns = pricers(trace)[rank].price(change), step_without_profiler_ns(trace, rank)
        gains_ns = (min(each_ns, step_ns) for each_ns in (replay.gain_ns, replay.low_ns, replay.high_ns))
        return quantity_ms(*gains_ns) if replay.replayed else None
    replays = [pricer.price(change) for pricer in deflated_pricers(trace)[rank]]
    if not all(replay.replayed for replay in replays):
        return None
    low_ns, high_ns = min(replay.low_ns for replay in replays), max(replay.high_ns for replay in replays)
    gain_ns = by_estimate(trace, rank, change, lambda pricer: pricer.price(change).gain_ns)
    return quantity_ms(gain_ns, min(low_ns, gain_ns), max(min(high_ns, replays[Case.EXPECTED.value].step_ns), gain_ns))


def by_estimate(trace: Trace, rank: int, change: Change, gain_ns: Callable[[Pricer], float]) -> float:
    """What is to be expected of a gain: that at the expected cost of recording.

    Under Nsight Systems, whose cost programs differ in by as much as its ends, it is that with little and with much
    cost, too; the ends of torch.profiler are extremes of 33 captures. What the device runs is left of the step.
    """
    cautious, expected, hopeful = deflated_pricers(trace)[rank]
    if trace.get(HOST_OPS).height:
        return gain_ns(expected)
    value_ns = gain_ns(expected)
    every_ns = to_be_expected(gain_ns(cautious), value_ns, gain_ns(hopeful))
    return every_ns if every_ns <= value_ns else min(every_ns, max(expected.room_ns(change), value_ns))


def price_without_profiler(change: Change, rank: int, bound: Quantity, trace: Trace) -> Quantity | None:
    """The gain of a replay brought to the step without a profiler; None where the trace cannot be replayed."""
    pricer, step_ns = calibrated_pricers(trace)[rank], trace.unprofiled_step_ns or 0.0
    replay = pricer.price(change)
    if not replay.replayed:
        return None
    ratio = unprofiled_ratio(pricer, step_ns)
    low_ns, high_ns = (end_ns * ratio for end_ns in _beside_hosts(change, rank, replay, trace))
    if change.touches is Touches.DEVICE:  # the device is not slowed, but a slowed host may hide what it gains
        profiled = pricers(trace)[rank].price(change)
        low_ns, high_ns = min(low_ns, profiled.low_ns), max(high_ns, profiled.high_ns)
    if replay.refused is not None:  # mostly profiling: nothing of it is sure, the bound is all that is known
        low_ns, high_ns = min(low_ns, 0.0), max(high_ns, (bound.high or bound.value) * NS_PER_MS)
    gain_ns = replay.gain_ns * ratio
    if change.touches is Touches.HOST and len(pricers(trace)) == 1:  # what the device needs, no profiler adds to
        gain_ns = min(gain_ns, max(step_ns - pricers(trace)[rank].busy_ns, low_ns))
    gain = quantity_ms(*(min(each_ns, step_ns) for each_ns in (gain_ns, low_ns, high_ns)))
    return as_repeated(gain, rank, trace) if len(trace.unprofiled_steps_ns) >= TIMED else gain


def _beside_hosts(change: Change, rank: int, replay: Price, trace: Trace) -> tuple[float, float]:
    """The ends of a replayed gain with what it is on the hosts that may be hidden behind the device, which is another
    error than that of the replay."""
    hosts = (
        pricer.gain_ns(change) * replay.step_ns / pricer.step_ns for pricer in calibrated_ends(trace).get(rank, ())
    )
    gains = replay.gain_ns, *hosts
    less, more = replay.gain_ns - min(gains), max(gains) - replay.gain_ns
    low = replay.gain_ns - math.hypot(replay.gain_ns - replay.low_ns, less)
    return low, replay.gain_ns + math.hypot(replay.high_ns - replay.gain_ns, more)


def unprofiled_ratio(pricer: Pricer, step_ns: float) -> float:
    """The step without a profiler over the one that is replayed."""
    return step_ns / pricer.step_ns if pricer.step_ns else 1.0
