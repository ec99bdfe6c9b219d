"""A diagnosis as SARIF 2.1.0 (OASIS), which GitHub code scanning, Azure DevOps and editors show beside the code."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from timesink import __version__
from timesink.diagnosis.verdicts import Card, Diagnosis
from timesink.render.formats import Style
from timesink.render.places import MATERIAL, Placed, placed
from timesink.untrusted.scrub import scrub_sentence, scrub_values

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_diagnosis(diagnosis: Diagnosis, style: Style) -> str:
    """One run: the rules that were applied, a result for each finding, what was wrong with the input."""
    findings = list(placed(diagnosis, style))
    cards = {ruling.card.code: ruling.card for ruling in diagnosis.rulings}
    cards |= {one.card.code: one.card for one in findings}
    order = {code: index for index, code in enumerate(cards)}
    driver = {"name": "timesink", "version": __version__, "rules": [_rule(card) for card in cards.values()]}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "timesink/"},
        "invocations": [_invocation(diagnosis)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, order[one.card.code]) for one in findings],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(card: Card) -> dict[str, Any]:
    summary = f"{card.summary[:1].upper()}{card.summary[1:]}."
    help_text = card.doc.strip() or summary
    return {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": summary},
        "help": {"text": help_text, "markdown": help_text},
        "defaultConfiguration": {"level": "warning"},
    }


def _invocation(diagnosis: Diagnosis) -> dict[str, Any]:
    """Whether all of the input could be read, and each rule that could not look."""
    told = [{"level": "error", "message": {"text": scrub_sentence(diagnosis.partial)}}] if diagnosis.partial else []
    return {"executionSuccessful": not diagnosis.partial, "toolExecutionNotifications": told}


def _result(one: Placed, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": one.card.code,
        "ruleIndex": index,
        "level": "warning" if one.share >= MATERIAL else "note",
        "message": {"text": one.message},
        "partialFingerprints": {"timesinkFinding/v1": one.fingerprint},
        "properties": _properties(one),
    }
    if one.file:
        place = {"artifactLocation": {"uri": quote(one.file)}, "region": {"startLine": one.line}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _properties(one: Placed) -> dict[str, Any]:
    """What it is worth, and what of the program it names."""
    gain = one.finding.recoverable
    worth = {} if gain is None else {f"recoverable_ms_per_{one.finding.period}": gain.value, "share": one.share}
    where: dict[str, Any] = scrub_values(one.finding.where.known())
    return {"bottleneck": one.finding.bottleneck.value, **worth, "where": where}
