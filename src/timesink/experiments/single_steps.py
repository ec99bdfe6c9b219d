"""Single steps that change otherwise than the rest: what a neutral mean or median hides.

Where both captures hold equally many steps, the n-th of one is taken for the n-th of the other: the same place in the
same plan. Each pair's log ratio is held against the median of all; one that lies further off than the others scatter,
and by more than the threshold, is told. Nothing is judged: one step of one run is no basis for a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from timesink.units import time_text

_FEWEST: Final = 5
_DEVIATIONS: Final = 5.0  # of the median absolute deviation, scaled to a normal one's standard deviation
_TO_SIGMA: Final = 1.4826
_SHOWN: Final = 4


def single_changes(before_ns: Sequence[float], after_ns: Sequence[float], threshold_ratio: float) -> list[str]:
    """One sentence per step that stands apart, the furthest first; nothing where steps cannot be paired."""
    if len(before_ns) != len(after_ns) or len(before_ns) < _FEWEST or min(*before_ns, *after_ns) <= 0:
        return []
    change = np.log(np.asarray(after_ns, np.float64) / np.asarray(before_ns, np.float64))
    usual = float(np.median(change))
    apart = np.abs(change - usual)
    noise = _DEVIATIONS * _TO_SIGMA * float(np.median(apart))
    odd = np.flatnonzero(apart > max(noise, math.log1p(threshold_ratio)))
    if 2 * odd.size >= change.size:  # then no step is the usual one
        return []
    order = sorted(odd.tolist(), key=lambda place: (-apart[place], place))
    told = [
        f"step {place + 1} of {change.size}: {time_text(before_ns[place])} before, {time_text(after_ns[place])} after "
        f"({_percent(float(change[place]))}), where the median step changes by {_percent(usual)}"
        for place in order[:_SHOWN]
    ]
    return [*told, f"{odd.size - _SHOWN} more steps stand apart"] if odd.size > _SHOWN else told


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):+.1f} %"
