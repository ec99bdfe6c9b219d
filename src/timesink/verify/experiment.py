"""Verify one change: runs of both sides in ABBA order, looked at after 6, 12 and 18 pairs, one verdict.

The first pair warms disks and caches and is discarded. The verdict rests on the paired t interval of log ratios of run
means (`paired`); each look's interval is at 1 - alpha / looks, so looking early costs no false alarms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from timesink.errors import UsageError
from timesink.verify.judge import Plan, judge, look_level, paired_interval
from timesink.verify.limits import MIN_PAIRS, TAIL_RUNS
from timesink.verify.outcomes import Effect, GateResult, GateRow, Outcome, Reason, RunRow, Verdict
from timesink.verify.runs import SIDES, Side, pair_order
from timesink.verify.step_source import same_receipt

Launch = Callable[[Side, int], RunRow]
Pair = tuple[RunRow, RunRow]


@dataclass(frozen=True, slots=True)
class Verification:
    """All counted pairs (before, after), in order, and the verdict on the mean step time."""

    plan: Plan
    pairs: tuple[Pair, ...]
    verdict: Verdict
    notes: tuple[str, ...] = ()


def verify(plan: Plan, launch: Launch, progress: Callable[[str], None] = lambda _: None) -> Verification:
    """Make runs until a look decides or the plan is exhausted; stop at once where results differ."""
    check_plan(plan)
    number = 1
    reference: RunRow | None = None
    pairs: list[Pair] = []
    for pair in range(-plan.warm_up_pairs, plan.looks[-1]):
        made: dict[str, RunRow] = {}
        for side in pair_order(max(pair, 0)):
            row = launch(side, number)
            number += 1
            progress(
                f"run {row.number}: {side} {row.mean_s * 1e3:.4g} ms per step over {row.steps - row.dropped} steps"
            )
            reference = reference or row
            if wrong := receipt_mismatch(reference, row, plan.receipt_tolerance_ratio):
                return Verification(
                    plan,
                    tuple(pairs),
                    Verdict(
                        Outcome.INVALID,
                        plan.threshold_ratio,
                        reason=Reason.WRONG_RESULT,
                        explanation=wrong,
                        to_resolve="fix the program, or state --receipt-tolerance if the difference is acceptable",
                    ),
                )
            made[side] = row
        if pair < 0:
            continue
        pairs.append((made[SIDES[0]], made[SIDES[1]]))
        if len(pairs) in plan.looks:
            verdict = judge(pairs, plan)
            progress(f"{len(pairs)} pairs: {verdict.label}")
            if verdict.outcome is not Outcome.INCONCLUSIVE or len(pairs) == plan.looks[-1]:
                return Verification(plan, tuple(pairs), verdict, _receipt_note(reference))
    raise AssertionError("the last look always returns")


def check_plan(plan: Plan) -> None:
    """`UsageError` where a plan cannot be carried out."""
    if not plan.looks or plan.looks[0] < MIN_PAIRS.default or any(a >= b for a, b in pairwise(plan.looks)):
        raise UsageError(
            f"the looks {plan.looks} are no plan",
            remedy="give rising numbers of pairs, the first at least 2, such as 6,12,18",
        )
    if not 0 < plan.alpha < 1 or not plan.threshold_ratio > 0:
        raise UsageError(
            f"alpha {plan.alpha} and threshold {plan.threshold_ratio} are out of range",
            remedy="give an alpha between 0 and 1 and a threshold above 0",
        )


def receipt_mismatch(reference: RunRow, row: RunRow, tolerance_ratio: float) -> str:
    """What differs between two runs' receipts, or "" where they agree or neither gave one."""
    if reference.receipt is None and row.receipt is None:
        return ""
    if (
        reference.receipt is not None
        and row.receipt is not None
        and same_receipt(reference.receipt, row.receipt, tolerance_ratio)
    ):
        return ""
    said = ["nothing" if r.receipt is None else repr(r.receipt[:80]) for r in (reference, row)]
    runs = [f"run {r.number} ({r.side})" for r in (reference, row)]
    return f"{runs[0]} computed {said[0]}, {runs[1]} computed {said[1]}"


def to_result(verification: Verification, suite: str) -> GateResult:
    """The verification as reporters take it: the mean is gated; median and tail stand beside it."""
    pairs, plan = verification.pairs, verification.plan
    before = [pair[0] for pair in pairs]
    after = [pair[1] for pair in pairs]
    rows = [
        GateRow(
            "step time (mean)",
            "s",
            _geometric([r.mean_s for r in before]),
            _geometric([r.mean_s for r in after]),
            verification.verdict,
        )
    ]
    if verification.verdict.effect is not None:
        rows.append(_beside("step time (median)", [r.median_s for r in before], [r.median_s for r in after], plan))
        if len(pairs) >= TAIL_RUNS.default:
            rows.append(
                _beside("step time (95th percentile)", [r.p95_s for r in before], [r.p95_s for r in after], plan)
            )
    runs = sorted((row for pair in pairs for row in pair), key=lambda row: row.number)
    return GateResult(suite, "same-job A/B", tuple(rows), runs=tuple(runs), notes=verification.notes)


def gain_ms(verification: Verification) -> tuple[float, float, float] | None:
    """Milliseconds won per step (value, low, high), from the mean before and the ratio; None without an effect."""
    effect = verification.verdict.effect
    before = _geometric([pair[0].mean_s for pair in verification.pairs])
    if effect is None or before is None:
        return None
    value, low, high = (1e3 * before * (1 - ratio) for ratio in (effect.ratio, effect.high, effect.low))
    return value, low, high


def _beside(name: str, before: Sequence[float], after: Sequence[float], plan: Plan) -> GateRow:
    """A secondary figure with its own interval; it is shown and decides nothing."""
    at = paired_interval(np.log(after) - np.log(before), look_level(plan.alpha, len(plan.looks)))
    effect = Effect(float(np.exp(at.mean)), float(np.exp(at.low)), float(np.exp(at.high)), 1 - plan.alpha)
    verdict = Verdict(
        Outcome.INCONCLUSIVE,
        plan.threshold_ratio,
        effect,
        Reason.NOT_MEASURED,
        "shown beside the mean, not judged",
        pairs=len(before),
    )
    return GateRow(name, "s", _geometric(before), _geometric(after), verdict, gated=False)


def _geometric(values: Sequence[float]) -> float | None:
    return float(np.exp(np.mean(np.log(values)))) if values else None


def _receipt_note(row: RunRow | None) -> tuple[str, ...]:
    if row is not None and row.receipt is None:
        return ("no receipt: that both sides compute the same was not checked",)
    return ()
