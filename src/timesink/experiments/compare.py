"""Compare two existing captures: what moved and why. Without a calibration it explains and gives no verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from timesink.experiments.capture_verdict import RunDeviation, judge_captures
from timesink.experiments.captured_metrics import step_metrics
from timesink.experiments.contributions import contributions, grouped
from timesink.experiments.finding_changes import finding_changes
from timesink.experiments.limits import STEP_THRESHOLD
from timesink.experiments.manifests import HARD, changes, trace_facts
from timesink.experiments.single_steps import single_changes
from timesink.measures.step_parts import StepParts, step_parts, step_series
from timesink.outcomes import Contribution, GateResult, GateRow, Outcome, Reason, Verdict

if TYPE_CHECKING:
    from timesink.findings import Diagnosis
    from timesink.model.trace import Trace


def compare_captures(
    sides: tuple[Trace, Trace],
    diagnoses: tuple[Diagnosis, Diagnosis] | None = None,
    *,
    threshold_ratio: float = STEP_THRESHOLD.default,
    deviation: RunDeviation | None = None,
    facts: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    allowed: Sequence[str] = (),
) -> GateResult:
    """The comparison of two traces; of what became of their findings, where they were diagnosed.

    `facts` are what is known of each capture, such as its manifest says; without them, what the traces say themselves.
    Facts that are `allowed` to differ forbid no comparison. Without a `deviation` between runs there is no verdict.
    """
    before, after = facts or (trace_facts(sides[0]), trace_facts(sides[1]))
    differing = changes(before, after)
    times_ns = [[float(value) for value in step_series(trace)] for trace in sides]
    series = [[value / 1e9 for value in side] for side in times_ns]
    parts = step_parts(sides[0]), step_parts(sides[1])
    verdict = comparability(differing, allowed, threshold_ratio)
    if verdict is None:
        verdict = judge_captures(series[0], series[1], threshold_ratio, deviation)
    means = [sum(side) / len(side) if side else None for side in series]
    rows = [GateRow("step time (mean)", "s", means[0], means[1], verdict), *_shares(sides, verdict)]
    invalid = verdict.outcome is Outcome.INVALID
    moved = () if invalid else contributions(*parts)
    return GateResult(
        "",
        "two captures",
        tuple(rows),
        differing,
        moved,
        grouped(moved),
        () if diagnoses is None else finding_changes(*diagnoses),
        notes=(
            *_notes(parts, moved, differing),
            *([] if invalid else single_changes(times_ns[0], times_ns[1], threshold_ratio)),
        ),
    )


def comparability(
    differing: Mapping[str, tuple[str, str]], allowed: Sequence[str], threshold_ratio: float
) -> Verdict | None:
    """An invalid verdict where captures measure different things, else None."""
    forbidding = [name for name in HARD if name in differing and name not in allowed]
    if not forbidding:
        return None
    why = "; ".join(f"{name}: {differing[name][0]} before, {differing[name][1]} after" for name in forbidding)
    reason = Reason.OTHER_WORK if "ranks" in forbidding else Reason.OTHER_ENVIRONMENT
    way = "capture both sides alike, or accept with --allow-env-diff"
    return Verdict(Outcome.INVALID, threshold_ratio, None, reason, why, way)


def _shares(sides: tuple[Trace, Trace], verdict: Verdict) -> list[GateRow]:
    """Shares of the step and launches per step, shown and not judged: one run says little of them."""
    before, after = (step_metrics(trace) for trace in sides)
    quiet = Verdict(Outcome.INCONCLUSIVE, verdict.threshold_ratio, None, Reason.UNCALIBRATED, "one run per side")
    return [
        GateRow(name, before[name].unit, before[name].value, after[name].value, quiet, how=after[name].how, gated=False)
        for name in sorted(before.keys() & after.keys())
    ]


def _notes(
    parts: tuple[StepParts, StepParts], moved: Sequence[Contribution], differing: Mapping[str, tuple[str, str]]
) -> list[str]:
    notes = [f"{side}: {_paced(part)}" for side, part in zip(("before", "after"), parts, strict=True)]
    if moved:
        new, gone = (sum(part.name.endswith(fate) for part in moved) for fate in ("(new)", "(vanished)"))
        notes.append(f"{len(moved)} parts: {new} new, {gone} vanished")
    if len(differing) > 1:
        notes.append(f"not one change: {len(differing)} facts differ, so no one of them explains the difference alone")
    return notes


def _paced(part: StepParts) -> str:
    """How many steps were taken apart, and where."""
    places = [f"{count} on rank {rank} device {device}" for (rank, device), count in part.paced_by.items()]
    return f"{part.step_count} steps, {', '.join(places)}" if places else "no GPU work"
