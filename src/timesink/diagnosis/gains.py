"""Gains as quantities: in order, never more than is left, and what to expect of one that may be nothing."""

import math
from typing import Final

from timesink.diagnosis.verdicts import Quantity
from timesink.knowledge.assumptions import replay as assumed
from timesink.records import replace
from timesink.whatif.periods import TO_P90

UNSURE: Final = 0.3  # Swanson's weight of the high end: what is expected of a gain that may be nothing


NOTHING: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


def replay_error(gain: float, step: float) -> float:
    """How far a replay is off at its tenth and ninetieth percentile, in the unit of both."""
    return TO_P90 * math.hypot(assumed.MODEL_ERROR.value * gain, assumed.STEP_ERROR.value * step)


def at_least_nothing(gain: Quantity) -> Quantity:
    """The gain with no end below nothing."""
    low, high = (None if end is None else max(end, 0.0) for end in (gain.low, gain.high))
    return replace(gain, value=max(gain.value, 0.0), low=low, high=high)


def beyond_error(gain: Quantity, step_ms: float) -> Quantity:
    """A replayed gain, as a bound alone where it may be nothing and is no more than a replay of such a step is off."""
    is_within = not gain.low and gain.value <= replay_error(gain.value, step_ms)
    return replace(gain, value=0.0) if is_within else gain


def to_be_expected(low: float, value: float, high: float) -> float:
    """Of a figure whose tenth, fiftieth and ninetieth percentiles are known: three, four and three tenths of them
    (Swanson's rule; Hurst, Brown and Swanson, AAPG Bulletin 84, 2000)."""
    return UNSURE * (low + high) + (1 - 2 * UNSURE) * value


def in_order(gain: Quantity) -> Quantity:
    """The price with low ≤ value ≤ high, whatever a rule stated: the least of what it says is sure counts."""
    value = min(gain.value, gain.most)
    return replace(gain, value=value, low=None if gain.low is None else min(gain.low, value))


def quantity_ms(gain_ns: float, low_ns: float, high_ns: float) -> Quantity:
    """A gain in ms of these ends in ns."""
    if gain_ns >= 0.0:  # a change that wins is not said to lose, as far off as its replay may be
        low_ns, high_ns = max(low_ns, 0.0), max(high_ns, 0.0)
    return Quantity.ms(gain_ns, min(low_ns, gain_ns), max(high_ns, gain_ns))


def at_most(worth: Quantity, left_ms: float, step_ms: float) -> Quantity:
    """The gain as far as earlier findings leave any of the step; no end of the interval exceeds the whole step. What is
    known as a bound alone stays one."""
    value, low = min(worth.value, left_ms), min(worth.low or 0.0, left_ms)
    is_bound = worth.value >= worth.most
    return replace(worth, value=value, low=low, high=value if is_bound else max(min(worth.most, step_ms), value))


def scaled(worth: Quantity, ratio: float) -> Quantity:
    """That share of a gain."""
    low, high = (None if value is None else value * ratio for value in (worth.low, worth.high))
    return replace(worth, value=worth.value * ratio, low=low, high=high)
