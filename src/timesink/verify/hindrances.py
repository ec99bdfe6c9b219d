"""What forbids a verdict whatever the interval says: unsteady runs, one-sided throttling, a shared GPU, a bad clock."""

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import numpy as np

from timesink.verify import limits
from timesink.verify.outcomes import Outcome, Reason, RunRow
from timesink.verify.statistics import paired_interval

Pair = tuple[RunRow, RunRow]


class Hindrance(NamedTuple):
    """What forbids a verdict: its code, what was seen, what would help."""

    reason: Reason
    explanation: str
    to_resolve: str


# The outcome that slowing one side alone cannot feign: the slowed side is the faster one all the same.
_DESPITE = {Outcome.SLOWER: 0, Outcome.FASTER: 1}


def find_hindrance(
    pairs: Sequence[Pair], outcome: Outcome, threshold_ratio: float, interval_level: float
) -> Hindrance | None:
    """What forbids this outcome of these pairs, or None."""
    sides = tuple(zip(*pairs, strict=True))
    if bad := _bad_clock(pairs, outcome, threshold_ratio):
        return bad
    for side in () if _drift_alike(pairs, threshold_ratio, interval_level) else sides:
        unsettled = sum(not run.settled for run in side)
        of_side = f"of {len(side)} {side[0].side} runs"
        if unsettled > limits.UNSTEADY_RUNS * len(side):
            remedy = "time more steps per run, or find what keeps changing"
            return Hindrance(Reason.NOT_STEADY, f"{unsettled} {of_side} never settle", remedy)
        drifting = sum(abs(run.drift_ratio) > threshold_ratio for run in side)
        if drifting > limits.UNSTEADY_RUNS * len(side):
            why = f"{drifting} {of_side} drift by more than {100 * threshold_ratio:g} % while they run"
            return Hindrance(Reason.DRIFT, why, "time more steps per run, or lock the clocks")
    slowed = [[run for run in side if run.slowed_by] for side in sides]
    one_sided = (not slowed[0]) != (not slowed[1]) and max(map(len, slowed)) >= limits.ONE_SIDED_RUNS
    if one_sided and not (outcome in _DESPITE and slowed[_DESPITE[outcome]]):
        hit = slowed[0] or slowed[1]
        causes = ", ".join(sorted({cause for run in hit for cause in run.slowed_by}))
        why = f"the GPU was slowed ({causes}) in {len(hit)} {hit[0].side} runs and in none of the other side"
        return Hindrance(Reason.THROTTLED, why, "lower the power or heat, lock the clocks, or compare in cycles")
    shared = [run for side in sides for run in side if run.foreign]
    if shared:
        why = f"another program was on the GPU before {len(shared)} runs: {shared[0].foreign[0]}"
        remedy = "take the GPU for yourself, or select one with CUDA_VISIBLE_DEVICES"
        return Hindrance(Reason.FOREIGN_PROCESS, why, remedy)
    return None


def _drift_alike(pairs: Sequence[Pair], threshold_ratio: float, level: float) -> bool:
    """Whether runs that do not settle change by as much on both sides: their ratio is then the same all along.

    By their slopes, seen or not: a trend that a test sees in some runs and not in others is the same trend.
    """
    unsettled = [sum(not run.settled for run in side) for side in zip(*pairs, strict=True)]
    slopes = [
        [run.drift_ratio if run.slope_ratio is None else run.slope_ratio for run in side]
        for side in zip(*pairs, strict=True)
    ]
    drifts = paired_interval(np.diff(slopes, axis=0)[0], level)
    most = max(-drifts.low, drifts.high)
    few = max(unsettled) <= limits.UNSTEADY_RUNS * len(pairs)
    return bool(most < threshold_ratio) and (few or min(unsettled) >= limits.UNSTEADY_RUNS * max(unsettled))


def _bad_clock(pairs: Sequence[Pair], outcome: Outcome, threshold_ratio: float) -> Hindrance | None:
    """Where times and the length of runs seen from outside contradict each other, or a coarse clock decides nothing."""
    runs = [run for pair in pairs for run in pair]
    part, slack_s = limits.CLOCK_SLACK
    for run in runs:
        if run.steps_s and run.outside_s and run.steps_s > run.outside_s * (1 + part) + slack_s:
            why = f"the steps of run {run.number} ({run.side}) add up to {run.steps_s:.3g} s, and the run lasted "
            remedy = "let one rank alone tell times, by the clock of its machine, or call timesink.step()"
            return Hindrance(Reason.CLOCK, f"{why}{run.outside_s:.3g} s", remedy)
    if outcome in _DESPITE and runs[0].told and _is_contradicted(pairs):
        told_s, seen_s = (np.diff(column, axis=1).mean() for column in _lengths_s(pairs))
        why = f"by the times told the changed side needs {told_s:+.3g} s a run, seen from outside {seen_s:+.3g} s"
        remedy = "call timesink.step(), which has a clock of its own, or compare whole runs with --whole"
        return Hindrance(Reason.CLOCK, why, remedy)
    off = grain_log(pairs)
    if outcome is Outcome.INCONCLUSIVE and off > math.log1p(threshold_ratio) / 2:
        grain_s = max(run.grain_s for run in runs)
        why = f"times are told in units of {grain_s * 1e3:.3g} ms: the effect may be {100 * math.expm1(off):.2g} % off"
        return Hindrance(Reason.CLOCK, why, "tell more digits, or call timesink.step()")
    return None


def _lengths_s(pairs: Sequence[Pair]) -> tuple[list[list[float]], list[list[float]]]:
    """Of each run what its steps add up to, and how long it lasted; (pairs, side) each."""
    told = [[run.steps_s or 0.0 for run in pair] for pair in pairs]
    return told, [[run.outside_s or 0.0 for run in pair] for pair in pairs]


def _is_contradicted(pairs: Sequence[Pair]) -> bool:
    """Whether runs differ from outside by surely less than half of what their steps say, where it would be seen."""
    if len(pairs) < limits.MIN_PAIRS or any(not (run.steps_s and run.outside_s) for pair in pairs for run in pair):
        return False
    told, seen = (np.diff(column, axis=1)[:, 0] for column in _lengths_s(pairs))
    left = paired_interval(np.sign(told.mean()) * (seen - told / 2), limits.CONTRADICTED)
    return bool(abs(told.mean()) > limits.CLAIM * left.se and left.high < 0)


def grain_log(pairs: Sequence[Pair]) -> float:
    """By how much a log ratio may be off as times are told in coarse units: half a unit on each side."""
    sides = tuple(zip(*pairs, strict=True))
    off = ([math.log1p(run.grain_s / 2 / run.mean_s) for run in side if run.mean_s > 0] for side in sides)
    return sum(max(side, default=0.0) for side in off)


def grain_of(seconds: Sequence[float], told_in_s: float = 0.0) -> float:
    """The unit that times are told in: the least difference where values repeat, and never below `told_in_s`.

    Times of a clock that is fine enough hardly ever repeat. Where all are equal nothing is known of the unit but that
    it may be as large as they are.
    """
    values = np.sort(np.asarray(seconds, np.float64))
    apart = np.diff(values)
    apart = apart[apart > _SAME * values[-1]] if len(values) else apart
    if 2 * (len(apart) + 1) > len(values):
        return told_in_s
    if len(apart) == 0:
        return max(told_in_s, float(values[-1]) if len(values) >= _MANY else 0.0)
    return max(told_in_s, float(apart.min()))


_SAME: Final = 1e-9  # of a time: rounding of a sum or a unit
_MANY: Final = 8  # equal times that no clock tells


def told_in(values: Sequence[object], unit_s: float) -> float:
    """What the last digit of times told as text or numbers stands for, of the finest of them; 0 where none is seen."""
    places = Counter[int]()
    for value in values:
        try:
            exponent = Decimal(str(value)).as_tuple().exponent
        except InvalidOperation:
            continue
        if isinstance(exponent, int):
            places[exponent] += 1
    return unit_s * 10.0 ** min(places) if places else 0.0
