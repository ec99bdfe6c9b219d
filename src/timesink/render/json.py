"""The JSON contract: every document begins with the same envelope, and obeys one of the schemas in `schemas/`.

Keys are added, never renamed, within one `schema_version`. Times are milliseconds with nanosecond digits. Text is
scrubbed and written in ASCII, so that printing the document acts on no terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from timesink.diagnosis.verdicts import (
    Card,
    Clear,
    DeviceFigures,
    Diagnosis,
    Evidence,
    Finding,
    NotApplicable,
    Quantity,
    StepBudget,
    StepFigures,
    Undecided,
)
from timesink.knowledge.step_parts import part_words
from timesink.model.presentable import Origin
from timesink.render import Style
from timesink.units import ms
from timesink.untrusted.scrub import scrub_values
from timesink.views.page import Page

SCHEMA_VERSION = 1
SHOWN_ROWS = 1_000


def enveloped(origin: Origin, body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole document: its version, the command that answered and its files, then what it has to say."""
    envelope = {"schema_version": SCHEMA_VERSION, "command": origin.command or None, "source": list(origin.source)}
    return {**envelope, **body}


def render_diagnosis(diagnosis: Diagnosis, style: Style) -> str:
    """The document as indented JSON text."""
    return json_text(document(diagnosis, style.origin))


def render_page(page: Page, style: Style) -> str:
    """Every sheet of the page as a list of objects, under the sheet's key."""
    sheets = {
        sheet.key: [dict(zip((column.key for column in sheet.columns), row, strict=True)) for row in sheet.rows]
        for sheet in page.sheets
    }
    return json_text(enveloped(style.origin, {"title": page.title, **sheets, "notes": list(page.notes)}))


def json_text(value: Any) -> str:
    """Any tree of plain values as JSON text that is safe to print: ASCII, scrubbed, no NaN."""
    return json.dumps(_finite(scrub_values(value)), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def document(diagnosis: Diagnosis, origin: Origin) -> dict[str, Any]:
    """The diagnosis as plain values, keys in the contract's order."""
    rulings = [(ruling.card, ruling.verdict) for ruling in diagnosis.rulings]
    body = {
        "sources": [dict(source) for source in diagnosis.sources],
        "steps": _steps(diagnosis.steps),
        "devices": [_device(device) for device in diagnosis.devices],
        "step_parts": [_budget(budget) for budget in diagnosis.budgets],
        "profiled_kernels": diagnosis.profiled_kernels,
        "verdict": {"bottleneck": diagnosis.bottleneck.value, "statement": diagnosis.statement},
        "findings": [_finding(card, finding) for card, finding in diagnosis.findings],
        "clear": [
            {"code": card.code, "name": card.name, "evidence": [_evidence(fact) for fact in verdict.evidence]}
            for card, verdict in rulings
            if isinstance(verdict, Clear)
        ],
        "not_applicable": [
            {"code": card.code, "name": card.name, "why": verdict.why}
            for card, verdict in rulings
            if isinstance(verdict, NotApplicable)
        ],
        "undecided": [
            {"code": card.code, "why": verdict.why, "to_decide": verdict.to_decide}
            for card, verdict in rulings
            if isinstance(verdict, Undecided)
        ],
        "notes": [str(note) for note in diagnosis.notes],
        **({"statements": list(diagnosis.statements)} if diagnosis.statements else {}),
        **({"facts": dict(diagnosis.facts)} if diagnosis.facts else {}),
    }
    return enveloped(origin, body)


def _steps(steps: StepFigures) -> dict[str, Any]:
    times = {"count": steps.count, "p50_ms": steps.p50_ms, "p90_ms": steps.p90_ms, "p99_ms": steps.p99_ms}
    return times if steps.unprofiled is None else {**times, "unprofiled": _steps(steps.unprofiled)}


def _device(device: DeviceFigures) -> dict[str, Any]:
    return {
        "rank": device.rank,
        "device": device.device,
        "span_ms": ms(device.span_ns),
        "busy_ms": ms(device.busy_ns),
        "idle_ms": ms(device.idle_ns),
        "compute_ms": ms(device.compute_ns),
        "exposed_comm_ms": ms(device.exposed_comm_ns),
        "exposed_copy_ms": ms(device.exposed_copy_ns),
    }


def _budget(budget: StepBudget) -> dict[str, Any]:
    """Where the mean step of a device goes; the parts sum to it."""
    return {
        "rank": budget.rank,
        "device": budget.device,
        "steps": budget.steps,
        "step_ms": ms(budget.period_ns),
        "parts": [{"kind": part.kind, "words": part_words(part.kind), "ms": ms(part.time_ns)} for part in budget.parts],
    }


def _finding(card: Card, finding: Finding) -> dict[str, Any]:
    return {
        "code": card.code,
        "name": card.name,
        "bottleneck": finding.bottleneck.value,
        "message": finding.message,
        "where": finding.where.known(),
        "recoverable_ms_per_step": _recoverable(finding.recoverable),
        "share_of_step": _share(finding),
        "counted_in": finding.counted_in and {"rule": finding.counted_in[0], "share": finding.counted_in[1]},
        "priced_by": finding.priced_by,
        "evidence": [_evidence(fact) for fact in finding.evidence],
        "advice": finding.advice,
        "verify": finding.verify,
    }


def _share(finding: Finding) -> float | None:
    """What the gain is of the step, or of the recorded window where there are no steps."""
    return finding.recoverable.value / finding.of_ms if finding.recoverable and finding.of_ms else None


def _recoverable(quantity: Quantity | None) -> dict[str, float | None] | None:
    if quantity is None:
        return None
    return {"low": quantity.low, "value": quantity.value, "high": quantity.high}


def _evidence(fact: Evidence) -> dict[str, Any]:
    return {
        "label": fact.label,
        "value": fact.measured.value,
        "unit": fact.measured.unit,
        "low": fact.measured.low,
        "high": fact.measured.high,
        "how": fact.how,
        "limit": None if fact.limit is None else {"value": fact.limit.value, "unit": fact.limit.unit},
        "table": fact.table or None,
        "rows": list(fact.rows[:SHOWN_ROWS]),
        "row_count": len(fact.rows),
    }


def _finite(value: Any) -> Any:
    """The same tree with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value
