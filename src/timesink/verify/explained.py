"""What explains the differences between runs, and the effect once that is taken out.

Runs differ more than the change that is looked for, often for a reason that the runs themselves show: their place in
the pair or behind the changed build, a swing of the machine, the clock and the speed of the CPU that were recorded, a
mode that each process takes, rare slow steps. Each reason that is seen gives an interval of its own. They share a small
part of the error rate (Bonferroni; what sees nothing cannot err), so all of them together keep to that part.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from timesink.model.arrays import Float64Array
from timesink.records import replace
from timesink.verify import limits
from timesink.verify.outcomes import RunRow
from timesink.verify.runs import SIDES, pair_order
from timesink.verify.statistics import LogInterval, paired_interval, t_interval

Pairs = Sequence[tuple[RunRow, RunRow]]


class Explained(NamedTuple):
    """The log ratio after / before with one reason taken out, its standard error with `df`, and what a report says.

    `robust` is the same ratio by a fit that a few runs far off do not move: rare slow steps feign swings.
    """

    effect: float
    error: float
    df: int
    note: str
    robust: float


def explanations(
    pairs: Pairs, times: Float64Array, level: float, *, carried: bool = False
) -> list[tuple[LogInterval, str]]:
    """What each reason leaves of the effect, and its name; `times` are the positive times of the pairs, (pairs, side).

    All intervals together cover the effect with `level`. There are none of fewer than eight pairs, which show no
    reason, and none where a reason is not seen. Where the build before a run tells on it (`carried`), only what takes
    that out is left.
    """
    if len(pairs) < limits.EXPLAINED_PAIRS:
        return []
    reasons = (_of_order,) if carried else (_of_order, _of_recorded, _of_modes, _of_slow_steps)
    found = [one for reason in reasons if (one := reason(pairs, np.log(times)))]
    each = 1 - (1 - level) / max(len(found), 1)
    return [(_reaching(t_interval(one.effect, one.error, one.df, each), one.robust), one.note) for one in found]


def _reaching(interval: LogInterval, value: float) -> LogInterval:
    """The interval, stretched to hold this value too."""
    return replace(interval, low=np.minimum(interval.low, value), high=np.maximum(interval.high, value))


def _of_order(pairs: Pairs, logs: Float64Array) -> Explained | None:
    """Place in the pair, the build that ran just before, drift, and a swing of one period, by least squares."""
    if (order := _order(pairs, logs)) is None:
        return None
    fixed, values = order
    base, _ = np.linalg.qr(fixed)
    rest = values - base @ (base.T @ values)
    angle = 2 * np.pi * _FREQUENCIES[:, None] * np.arange(len(values))
    waves = np.stack([np.cos(angle), np.sin(angle)], -1)
    free = waves - base @ (base.T @ waves)
    amplitudes = np.linalg.solve(free.transpose(0, 2, 1) @ free, free.transpose(0, 2, 1) @ rest[:, None])
    left = ((rest[:, None] - free @ amplitudes) ** 2).sum((1, 2))
    best = int(np.argmin(left))
    design = np.column_stack([fixed, waves[best]])
    effects, errors, df = _least_squares(design, values, lost=1)  # the period is fitted
    period, swing, seen = 1 / _FREQUENCIES[best], math.hypot(*effects[-2:]), []
    if swing > 4 * max(errors[-2:]):
        seen.append(f"runs swing by ±{100 * swing:.2g} % in {period:.1f} runs")
    else:
        design = fixed
        effects, errors, df = _least_squares(design, values)
    if abs(effects[1]) > 4 * errors[1]:
        seen.append(f"a run after the changed build is {_percent(effects[1])}")
    if abs(effects[2]) > 4 * errors[2]:
        seen.append(f"the second run of a pair is {_percent(effects[2])}")
    return Explained(effects[0], errors[0], df, ", ".join(seen), _least_sum(design, values)) if seen else None


def carry_over(pairs: Pairs, times: Float64Array) -> str:
    """What a run after the changed build shows that a run after the unchanged one does not; "" where that is chance.

    The plain interval takes part of it for the effect.
    """
    order = _order(pairs, np.log(times))
    if order is None or len(pairs) < limits.CARRY_PAIRS:
        return ""
    effects, errors, df = _least_squares(*order)
    chance = 2 * stats.t.sf(abs(effects[1]) / max(errors[1], _TINY), df)
    return f"a run after the changed build is {_percent(effects[1])}" if chance < limits.CARRY_P else ""


_TINY: Final = 1e-9  # of a log ratio: a difference below it is rounding


def _order(pairs: Pairs, logs: Float64Array) -> tuple[Float64Array, Float64Array] | None:
    """Of each run in the order made its side, the side before it, place in the pair, time and 1; and its value.

    None where runs are not known to follow one another.
    """
    runs = sorted((run.number, side, logs[at, side]) for at, pair in enumerate(pairs) for side, run in enumerate(pair))
    numbers, sides, values = (np.array(column, np.float64) for column in zip(*runs, strict=True))
    if np.any(np.diff(numbers) != 1):
        return None
    count = len(runs)
    ran_first = SIDES.index(pair_order(0)[1]) if numbers[0] > 1 else 0.5  # a pair for warming up came before
    previous = np.concatenate([[ran_first], sides[:-1]])
    return np.column_stack([sides, previous, np.arange(count) % 2, np.arange(count) / count, np.ones(count)]), values


# Cycles per run. Half a cycle is the place in a pair; slower than 24 runs is drift, which pairs cancel.
_FREQUENCIES: Final = np.linspace(1 / 24, 0.48, 211)


def _percent(log_ratio: float) -> str:
    ratio = math.expm1(log_ratio)
    return f"{100 * abs(ratio):.2g} % {'slower' if ratio > 0 else 'faster'}"


def _least_squares(design: Float64Array, values: Float64Array, lost: int = 0) -> tuple[Float64Array, Float64Array, int]:
    """Coefficients, their standard errors and the degrees of freedom, `lost` of them to what was chosen by the data."""
    effects, _, _, _ = np.linalg.lstsq(design, values)
    df = len(values) - design.shape[1] - lost
    variance = float(((values - design @ effects) ** 2).sum()) / df
    errors = np.sqrt(variance * np.diag(np.linalg.pinv(design.T @ design)))
    return np.asarray(effects, np.float64), np.asarray(errors, np.float64), df


def _least_sum(design: Float64Array, values: Float64Array) -> float:
    """The first coefficient of the fit with the least sum of absolute residuals, by reweighting."""
    weights = np.ones(len(values))
    for _ in range(_ROUNDS):
        effects, _, _, _ = np.linalg.lstsq(design * weights[:, None], values * weights)
        weights = np.maximum(np.abs(values - design @ effects), _NEAR) ** -0.5
    return float(effects[0])


_ROUNDS, _NEAR = 40, 1e-5  # the fit has settled; a residual below which runs are alike

_RECORDED: Final[dict[str, Callable[[RunRow], float | None]]] = {
    "SM clock": lambda run: run.sm_mhz,
    "temperature": lambda run: run.celsius,
    "speed of the CPU": lambda run: run.probe_s,
}


def _of_recorded(pairs: Pairs, logs: Float64Array) -> Explained | None:
    """Clock, temperature and host speed, where they vary and the change itself does not move them."""
    differences, names = [], []
    for name, read in _RECORDED.items():
        values = [[read(run) for run in pair] for pair in pairs]
        if any(value is None or value <= 0 for pair in values for value in pair):
            continue
        difference = np.diff(np.log(np.array(values, np.float64)))[:, 0]
        if np.ptp(difference) > 0 and stats.ttest_1samp(difference, 0).pvalue > limits.MOVED_P:
            differences.append(difference)
            names.append(name)
    if not names:
        return None
    ratios = logs[:, 1] - logs[:, 0]
    design = np.column_stack([np.ones(len(pairs)), *differences])
    effects, errors, df = _least_squares(design, ratios)
    seen = [name for name, effect, error in zip(names, effects[1:], errors[1:], strict=True) if abs(effect) > 4 * error]
    note = f"at equal {' and '.join(seen)}"
    return Explained(effects[0], errors[0], df, note, _least_sum(design, ratios)) if seen else None


def _of_modes(pairs: Pairs, logs: Float64Array) -> Explained | None:
    """Two modes of a process, seen on both sides with the same gap: runs are compared within their mode."""
    modes = [_two_modes(side) for side in logs.T]
    (low_a, high_a), (low_b, high_b) = modes
    groups = (low_a, high_a, low_b, high_b)
    if min(map(len, groups)) < 2:
        return None
    df = logs.size - len(groups)
    sd = math.sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / df)
    gaps = [high.mean() - low.mean() for low, high in modes]
    clear = min(gaps) > limits.MODE_GAP * sd
    gap_error = sd * math.sqrt(sum(1 / len(group) for group in groups))
    alike = stats.fisher_exact([[len(low), len(high)] for low, high in modes]).pvalue > limits.MOVED_P
    if not (clear and alike and abs(gaps[0] - gaps[1]) < 4 * gap_error):
        return None
    weights = [len(one) * len(other) / (len(one) + len(other)) for one, other in zip(*modes, strict=True)]
    shifts = [float(other.mean() - one.mean()) for one, other in zip(*modes, strict=True)]
    shift, error = np.average(shifts, weights=weights), sd / math.sqrt(sum(weights))
    much = f"{len(high_a)} and {len(high_b)} of {len(pairs)} runs of the sides are {_percent(float(np.mean(gaps)))}"
    note = f"processes take two modes: {much}; compared within a mode"
    typical = [float(np.median(other) - np.median(one)) for one, other in zip(*modes, strict=True)]
    return Explained(float(shift), error, df, note, float(np.average(typical, weights=weights)))


def _two_modes(values: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The values below and above their widest gap."""
    ordered = np.sort(values)
    cut = int(np.argmax(np.diff(ordered))) + 1
    return ordered[:cut], ordered[cut:]


def _of_slow_steps(pairs: Pairs, logs: Float64Array) -> Explained | None:
    """The median step, where slow steps explain the spread of the means and take as much of both sides."""
    medians = np.log(np.array([[run.median_s for run in pair] for pair in pairs]))
    ratios, typical = logs[:, 1] - logs[:, 0], medians[:, 1] - medians[:, 0]
    excess = logs - medians
    coarse = len(np.unique(medians)) <= len(pairs)  # of a clock that ticks: equal medians hide a change below a tick
    if coarse or typical.std() > limits.SPREAD_LEFT * ratios.std() or np.median(excess) <= 0:
        return None
    if stats.ttest_1samp(excess[:, 1] - excess[:, 0], 0).pvalue <= limits.MOVED_P:
        return None
    share = paired_interval(excess[:, 1] - excess[:, 0], 0.95)
    before, after, apart = (100 * math.expm1(log) for log in (*excess.mean(0), max(-share.low, share.high)))
    note = f"the median step; slow steps add {before:.2g} % before and {after:.2g} % after, alike within ±{apart:.2g} %"
    error = float(typical.std(ddof=1)) / math.sqrt(len(pairs))
    return Explained(float(typical.mean()), error, len(pairs) - 1, note, float(np.median(typical)))
