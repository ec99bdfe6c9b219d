"""What the server says of findings: the list, one in full, and what happened around it."""

from typing import Any

from timesink.diagnosis.saving import what_is_left
from timesink.diagnosis.verdicts import Card, Finding, Undecided
from timesink.errors import UsageError
from timesink.mcp import MARK, evidence, fitted, named, paged, quantity, sentence
from timesink.mcp.captures import OpenCapture, statement_of, steps_of
from timesink.render.html.sections import section
from timesink.views.figures import TimelineWindow
from timesink.views.timeline import whole_timeline
from timesink.views.timeline.finding_window import events_of, lanes_of, window_of

WINDOW_ITEMS = 24
_SHOWN_WAYS = 3  # of deciding what the capture cannot; `undecided_rules` of open_capture counts all


def diagnosis_document(capture: OpenCapture, limit: int, cursor: int, worth_percent: float = 1.0) -> dict[str, Any]:
    """Findings, costliest first, whether any is worth `worth_percent` of the step, and what could not be decided."""
    diagnosis = capture.diagnosis
    shown = diagnosis.findings[cursor : cursor + limit]
    undecided = [ruling for ruling in diagnosis.rulings if isinstance(ruling.verdict, Undecided)]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": statement_of(diagnosis)},
        "steps": steps_of(capture),
        "left": _left(capture, worth_percent),
        "findings": [_brief(number, *entry) for number, entry in enumerate(shown, start=cursor + 1)],
        "not_measured": _to_decide(undecided),
        "next": "explain_finding(handle, number)" if shown else "show(handle, 'steps')",
    }
    return paged(document, "findings", cursor, len(diagnosis.findings))


def _left(capture: OpenCapture, worth_percent: float) -> dict[str, Any]:
    """Whether to go on: "nothing_above" is the end of the loop on this capture."""
    if not 0 < worth_percent <= 100:
        raise UsageError(f"no share is {worth_percent} %", remedy="give more than 0 and at most 100")
    left = what_is_left(capture.diagnosis, worth_percent / 100)
    return {"state": left.state.value, "above_percent": worth_percent, "says": left.sentence}


def finding_document(capture: OpenCapture, number: int, cursor: int = 0) -> dict[str, Any]:
    """One finding in full: evidence with origins, what to do, how to check it, when it misleads."""
    card, finding = _finding(capture, number)
    return fitted(
        {
            "handle": capture.handle,
            **_brief(number, card, finding),
            "evidence": [evidence(fact) for fact in finding.evidence[cursor:]],
            "advice" + MARK: sentence(finding.advice),
            "check" + MARK: sentence(finding.verify),
            "what_to_do": _page(card, "What to do"),
            "when_it_misleads": _page(card, "When it misleads"),
            "how_it_is_measured": _page(card, "How it is measured"),
            "whole_page": f"rules://{card.code}",
            "next": f"explain_finding(handle, {number}, window=true); one change; command(program=before, after=after)",
        },
        "evidence",
        cursor,
        spare=("how_it_is_measured",),
    )


def window_around(capture: OpenCapture, number: int) -> dict[str, Any]:
    """What happened around a finding: the longest events of each lane."""
    _, finding = _finding(capture, number)
    window = window_of(capture.trace, finding)
    if window is None:
        raise UsageError(f"finding {number} has no place in time", remedy="explain_finding shows its evidence")
    return window_document(capture, window)


def window_document(capture: OpenCapture, window: TimelineWindow) -> dict[str, Any]:
    """A window's lanes, each with its longest events; times count from the window's start."""
    timeline = whole_timeline(capture.trace)
    lanes = [] if timeline is None else lanes_of(timeline, (window.rank, window.device))
    events = [] if timeline is None else [(lane, list(events_of(timeline, lane, window))) for lane in lanes]
    shown = [(lane, inside) for lane, inside in events if inside]
    each = max(WINDOW_ITEMS // max(len(shown), 1), 2)
    return fitted(
        {
            "handle": capture.handle,
            "rank": window.rank,
            "device": window.device,
            "step": window.step,
            "start_ns": window.start_ns,
            "length_ns": window.end_ns - window.start_ns,
            "claimed_ns": window.claimed_ns,
            "lanes": [
                {
                    "lane" + MARK: named(lane.label),
                    "kind": lane.kind,
                    "events": len(inside),
                    "longest" + MARK: [
                        [start - window.start_ns, end - start, named(name)]
                        for name, start, end in sorted(inside, key=lambda event: (event[1] - event[2], event[1]))[:each]
                    ],
                }
                for lane, inside in shown
            ],
            "longest_is": ["start_ns from window start", "length_ns", "name"],
        },
        "lanes",
    )


def _finding(capture: OpenCapture, number: int) -> tuple[Card, Finding]:
    findings = capture.diagnosis.findings
    if not 1 <= number <= len(findings):
        raise UsageError(f"there is no finding {number}", remedy=f"diagnose(handle) lists {len(findings)}")
    return findings[number - 1]


def _brief(number: int, card: Card, finding: Finding) -> dict[str, Any]:
    return {
        "finding": number,
        "rule": card.code,
        "name": finding.name,
        "bottleneck": finding.bottleneck.value,
        "message" + MARK: sentence(finding.message),
        f"gain_per_{finding.period}": quantity(finding.recoverable) or "not priced",
        "where" + MARK: _where(finding),
    }


def _where(finding: Finding) -> dict[str, str | int | None]:
    """What is known of the place; a line of the program as ``place: train.py:12``."""
    known = {key: named(value) if isinstance(value, str) else value for key, value in finding.where.known().items()}
    file, line = known.pop("file", None), known.pop("line", None)
    if file is not None:
        known["place"] = str(file) if line is None else f"{file}:{line}"
    return known


def _page(card: Card, heading: str) -> str:
    """A section of the rule's page, on one line. Its words are ours."""
    return " ".join(section(card.doc, heading).split())


def _to_decide(undecided: list[Any]) -> list[dict[str, Any]]:
    """Rules that could not look, by what would let them."""
    together: dict[str, list[str]] = {}
    for ruling in undecided:
        together.setdefault(ruling.verdict.to_decide, []).append(ruling.card.code)
    most = sorted(together.items(), key=lambda pair: -len(pair[1]))[:_SHOWN_WAYS]
    return [{"rules": codes, "to_decide": sentence(how)} for how, codes in most]
