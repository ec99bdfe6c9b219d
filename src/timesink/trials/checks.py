"""Checks: whether losses and weights with changes stay with those of the program as it is."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

from timesink.trials.records import LossCheck, TrialResult

if TYPE_CHECKING:
    from timesink.recipes import Drift


TOLERATED: Final[dict[Drift, float]] = {
    "exact": 1e-6,
    "other batches": 1e-6,
    "rounding": 1e-3,
    "lower precision": 3e-2,
}
"""How far losses may leave those of the base, as a share of their size, beyond what two runs of the base differ."""

_WEIGHTS: Final = 0.1  # of how far a weight went
_STRAY: Final = 0.05  # of the weights
_MOST_WEIGHTS: Final = 0.9


def alike_losses(
    base: TrialResult, again: TrialResult, changed: TrialResult
) -> tuple[list[float], list[float], list[float]]:
    """The losses of three runs, all from the same step or call on."""
    start = max(base.first_loss, again.first_loss, changed.first_loss)
    first, second, third = (one.losses[start - one.first_loss :] for one in (base, again, changed))
    return first, second, third


def hold_losses(base: list[float], again: list[float], changed: list[float], drift: Drift) -> LossCheck | None:
    """The losses of the base, of the base run again, and of one run with changes that move results by `drift`.

    Rounding shows from the first step on and is small there; training then makes any difference larger. So the first
    quarter is held to the class's own tolerance, the last to that of a lower precision.
    """
    series = base, again, changed
    steps = min(map(len, series))
    if not steps:
        return None
    quarter, tolerated = max(1, steps // 4), TOLERATED[drift]
    if drift == "rounding":
        early = _hold(series, 0, quarter, tolerated)
        if not early.holds:
            return early
        tolerated = TOLERATED["lower precision"]
    late = _hold(series, steps - quarter, steps, tolerated)
    if drift != "other batches" or late.holds:
        return late
    first, other = base[steps - quarter : steps], changed[steps - quarter : steps]
    size = max(abs(fmean(first)), 1e-6)
    error = stdev(first) / sqrt(len(first)) if len(first) > 1 else 0.0
    return replace(late, apart=abs(fmean(other) - fmean(first)) / size, tolerated=3 * sqrt(2) * error / size)


def stray_weights(base: list[float], again: list[float], changed: list[float]) -> str:
    """How weights went otherwise than those of the base, in two runs of it; empty where at most a twentieth did.

    A step that is left out, or a weight that is frozen, moves losses little in so few steps, and weights much. A
    program that does not repeat itself moves each weight as far as chance has it: what two runs of one weight differ
    says less of that than what they differ of most weights.
    """
    if base and len(base) != len(changed):
        return f"{len(changed)} weights are trained, not {len(base)}"
    differ = sorted(abs(other / theirs - 1) for theirs, other in zip(base, again, strict=False) if theirs)
    chance = differ[int(_MOST_WEIGHTS * (len(differ) - 1))] if differ else 0.0
    apart = [
        abs(mine - theirs) > _WEIGHTS * theirs + 2 * max(abs(theirs - other), chance * theirs)
        for theirs, other, mine in zip(base, again, changed, strict=False)
    ]
    if sum(apart) <= _STRAY * len(apart):
        return ""
    return f"{sum(apart)} of {len(apart)} weights moved otherwise than those before it"


def _hold(series: tuple[list[float], ...], start: int, end: int, tolerated: float) -> LossCheck:
    first, second, other = (losses[start:end] for losses in series)
    return LossCheck(end, _apart(other, first), _apart(second, first), tolerated)


def _apart(one: list[float], other: list[float]) -> float:
    """The mean distance of two series, step by step, as a share of the second."""
    return fmean(abs(mine - theirs) / max(abs(theirs), 1e-6) for mine, theirs in zip(one, other, strict=True))
