"""The JSON contract: every document begins with the same envelope, and obeys one of the schemas in `schemas/`.

Keys are added, never renamed, within one `schema_version`. Times are milliseconds with nanosecond digits. Text is
scrubbed and written in ASCII, so that printing the document acts on no terminal.
"""

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
    StepBudget,
    StepFigures,
    Undecided,
)
from timesink.knowledge.step_parts import part_words
from timesink.model.presentable import Origin
from timesink.render import Style
from timesink.units import ms
from timesink.untrusted import scrub_values
from timesink.views import Page

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
        sheet.key: [dict(zip((column.key for column in sheet.columns), row, strict=True)) for row in sheet.all_rows]
        for sheet in page.sheets
    }
    head = {"title": page.title, **({"lede": page.lede} if page.lede else {})}
    return json_text(enveloped(style.origin, {**head, **sheets, "notes": list(page.notes)}))


def json_text(value: Any) -> str:
    """Any tree of plain values as JSON text that is safe to print: ASCII, scrubbed, no NaN."""
    return json.dumps(_finite(scrub_values(value)), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def named(item: Any, names: str) -> dict[str, Any]:
    """What attributes of these names hold, in that order."""
    return {name: getattr(item, name) for name in names.split()}


def document(diagnosis: Diagnosis, origin: Origin) -> dict[str, Any]:
    """The diagnosis as plain values, keys in the contract's order."""
    ruled: dict[type, list[tuple[Card, Any]]] = {Clear: [], NotApplicable: [], Undecided: []}
    for ruling in diagnosis.rulings:
        ruled.setdefault(type(ruling.verdict), []).append((ruling.card, ruling.verdict))
    body = {
        "sources": [dict(source) for source in diagnosis.sources],
        "steps": _steps(diagnosis.steps),
        "devices": [_device(device) for device in diagnosis.devices],
        "step_parts": [_budget(budget) for budget in diagnosis.budgets],
        "profiled_kernels": diagnosis.profiled_kernels,
        "verdict": {"bottleneck": diagnosis.bottleneck.value, "statement": diagnosis.statement},
        "findings": [_finding(card, finding) for card, finding in diagnosis.findings],
        "clear": [
            {**named(card, "code name"), "evidence": list(map(_evidence, clear.evidence))}
            for card, clear in ruled[Clear]
        ],
        "not_applicable": [{**named(card, "code name"), "why": no.why} for card, no in ruled[NotApplicable]],
        "undecided": [{"code": card.code, **named(left, "why to_decide")} for card, left in ruled[Undecided]],
        "notes": [str(note) for note in diagnosis.notes],
        **({"statements": list(diagnosis.statements)} if diagnosis.statements else {}),
        **({"facts": dict(diagnosis.facts)} if diagnosis.facts else {}),
    }
    return enveloped(origin, body)


def _steps(steps: StepFigures) -> dict[str, Any]:
    times = named(steps, "count p50_ms p90_ms p99_ms")
    times |= named(steps, "origin covered_ratio") if steps.origin else {}
    return times if steps.unprofiled is None else {**times, "unprofiled": _steps(steps.unprofiled)}


def _device(device: DeviceFigures) -> dict[str, Any]:
    parts = ("span", "busy", "idle", "compute", "exposed_comm", "exposed_copy")
    return {**named(device, "rank device"), **{f"{part}_ms": ms(getattr(device, f"{part}_ns")) for part in parts}}


def _budget(budget: StepBudget) -> dict[str, Any]:
    """Where the mean step of a device goes; the parts sum to it."""
    parts = [{"kind": part.kind, "words": part_words(part.kind), "ms": ms(part.time_ns)} for part in budget.parts]
    return {**named(budget, "rank device steps"), "step_ms": ms(budget.period_ns), "parts": parts}


def _finding(card: Card, finding: Finding) -> dict[str, Any]:
    gain, counted_in = finding.recoverable, finding.counted_in  # of the window, where there are no steps
    return {
        "code": card.code,
        "name": finding.name,
        "bottleneck": finding.bottleneck.value,
        "message": finding.message,
        "where": finding.where.known(),
        "recoverable_ms_per_step": gain and named(gain, "low value high"),
        "share_of_step": gain.value / finding.of_ms if gain and finding.of_ms else None,
        "counted_in": counted_in and {"rule": counted_in[0], "share": counted_in[1]},
        "priced_by": finding.priced_by,
        "evidence": [_evidence(fact) for fact in finding.evidence],
        "advice": finding.advice,
        "verify": finding.verify,
    }


def _evidence(fact: Evidence) -> dict[str, Any]:
    return {
        "label": fact.label,
        **named(fact.measured, "value unit low high"),
        "how": fact.how,
        "limit": fact.limit and named(fact.limit, "value unit"),
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
