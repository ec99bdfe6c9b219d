"""The JSON contract of a gate. Keys are added, never renamed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from timesink.render.formats import Style
from timesink.render.gate.pages import headline
from timesink.render.json import enveloped, json_text
from timesink.verify.outcomes import ChangeVerdict, Contribution, GateResult, GateRow


def render(result: GateResult, style: Style) -> str:
    """The document as indented ASCII JSON."""
    return json_text(enveloped(style.origin, document(result, strict=style.strict)))


def document(result: GateResult, *, strict: bool = False) -> dict[str, Any]:
    """The result as plain values, without the envelope."""
    return {
        "suite": result.suite,
        "procedure": result.procedure,
        "outcome": str(result.outcome),
        "exit_code": result.exit_code(strict=strict),
        "headline": headline(result),
        "metrics": [_row(row) for row in result.rows],
        "differences": {name: list(pair) for name, pair in sorted(result.differences.items())},
        "budget": [_part(part) for part in result.budget],
        "contributions": [_part(part) for part in result.contributions],
        "findings": [asdict(finding) for finding in result.findings],
        "ranges": [asdict(one) for one in result.ranges],
        "runs": [asdict(run) for run in result.runs],
        "notes": list(result.notes),
        "artefact": result.artefact or None,
    }


def _row(row: GateRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "before": row.before,
        "after": row.after,
        "better": str(row.better),
        "how": str(row.how),
        "gated": row.gated,
        "limit": row.limit or None,
        "verdict": _verdict(row.verdict),
    }


def _verdict(verdict: ChangeVerdict) -> dict[str, Any]:
    effect = verdict.effect
    return {
        "outcome": str(verdict.outcome),
        "label": verdict.label,
        "effect": None if effect is None else asdict(effect),
        "threshold_ratio": verdict.threshold_ratio,
        "reason": None if verdict.reason is None else str(verdict.reason),
        "explanation": verdict.explanation,
        "to_resolve": verdict.to_resolve,
        "pairs": verdict.pairs,
        "run_sd_ratio": verdict.run_sd_ratio,
        "false_alarm_ratio": verdict.false_alarm_ratio,
        "tagged": verdict.tagged,
        "least_speed_up": verdict.least_speed_up,
        "falls_short": verdict.falls_short,
        "notes": list(verdict.notes),
    }


def _part(part: Contribution) -> dict[str, Any]:
    return {"name": part.name, "before_ns": part.before_ns, "after_ns": part.after_ns, "delta_ns": part.delta_ns}
