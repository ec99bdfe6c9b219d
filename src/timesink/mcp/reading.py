"""The answers about one capture: what it holds, what limits it, why, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timesink.diagnosis.verdicts import Card, Finding, Undecided
from timesink.errors import UsageError
from timesink.mcp.answers import MARK, Capture, evidence, fitted, named, quantity, rounded, sentence
from timesink.model.tables import DEVICE_OPS
from timesink.render.html.sections import section
from timesink.views.figures import KernelTime, TimelineWindow
from timesink.views.report import kernel_times, step_budget_parts
from timesink.views.timeline import window_of

SORTS: Mapping[str, Callable[[KernelTime], float]] = {
    "total_ns": lambda kernel: kernel.total_ns,
    "count": lambda kernel: kernel.count,
    "mean_ns": lambda kernel: kernel.mean_ns,
    "max_ns": lambda kernel: kernel.max_ns,
}
PAGE = 15
WINDOW_ITEMS = 24


def opened(capture: Capture) -> dict[str, Any]:
    """What was opened, with the verdict, so that the next call can be the right one."""
    diagnosis, trace = capture.diagnosis, capture.trace
    return fitted(
        {
            "handle": capture.handle,
            "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": sentence(diagnosis.statement)},
            "steps": _steps(capture),
            "findings": len(diagnosis.findings),
            "undecided_rules": sum(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings),
            "sources": [_source(source) for source in diagnosis.sources[:4]],
            "caveats" + MARK: [sentence(str(note)) for note in diagnosis.notes[:6]],
            "tables": [{"name": table.name, "rows": trace[table].height} for table in trace],
            "next": "diagnose(handle)",
        },
        "tables",
    )


def summarised(capture: Capture) -> dict[str, Any]:
    """Where the mean step of each device goes."""
    return fitted(
        {
            "handle": capture.handle,
            "steps": _steps(capture),
            "how": "mean over steady steps; parts sum to the step; idle time by what the device waited for",
            "devices": [
                {
                    "rank": budget.rank,
                    "device": budget.device,
                    "steps_averaged": budget.steps,
                    "step_ms": rounded(budget.period_ns / 1e6),
                    "source_table": "device_ops",
                    "parts_ms": {part.kind: rounded(part.time_ns / 1e6) for part in budget.parts},
                }
                for budget in step_budget_parts(capture.trace)
            ],
        },
        "devices",
    )


def diagnosed(capture: Capture, limit: int, cursor: int) -> dict[str, Any]:
    """Findings, costliest first, and what could not be decided."""
    diagnosis = capture.diagnosis
    shown = diagnosis.findings[cursor : cursor + limit]
    left = len(diagnosis.findings) - cursor - len(shown)
    undecided = [ruling for ruling in diagnosis.rulings if isinstance(ruling.verdict, Undecided)]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": sentence(diagnosis.statement)},
        "steps": _steps(capture),
        "findings": [_brief(capture, cursor + at, card, found) for at, (card, found) in enumerate(shown, start=1)],
        "not_measured": _to_decide(undecided),
        "next": "explain_finding(handle, number)" if shown else "summary(handle)",
    }
    if left > 0:
        document |= {"truncated": True, "next_cursor": cursor + len(shown)}
    return fitted(document, "findings", cursor)


def explained(capture: Capture, number: int) -> dict[str, Any]:
    """One finding in full: evidence with origins, what to do, how to check it, when it misleads."""
    card, found = _finding(capture, number)
    return fitted(
        {
            **_brief(capture, number, card, found),
            "evidence": [evidence(fact) for fact in found.evidence],
            "advice" + MARK: sentence(found.advice),
            "check" + MARK: sentence(found.verify),
            "what_to_do": _page(card, "What to do"),
            "how_it_is_measured": _page(card, "How it is measured"),
            "when_it_misleads": _page(card, "When it misleads"),
            "verify_with": ["timesink", "verify", "--before", "<command>", "--after", "<command with the change>"],
            "window": f"window(handle, finding={number})",
        },
        "evidence",
    )


def kernel_rows(capture: Capture, sort: str, contains: str, cursor: int) -> dict[str, Any]:
    """Kernels by cost."""
    cost = SORTS.get(sort)
    if cost is None:
        raise UsageError(f"kernels cannot be sorted by {sort!r}", remedy=f"choose one of: {', '.join(SORTS)}")
    if DEVICE_OPS not in capture.trace:
        raise UsageError("the capture holds no device work", remedy="capture_plan(question) says how to record it")
    numbered = [
        (number, kernel) for number, kernel in enumerate(kernel_times(capture.trace)) if contains in kernel.name
    ]
    numbered.sort(key=lambda pair: (-cost(pair[1]), pair[1].rank, pair[1].device, pair[1].name))
    rows = [
        {
            "kernel_id": number,
            "rank": kernel.rank,
            "device": kernel.device,
            "name" + MARK: named(kernel.name),
            "launches": kernel.count,
            "total_ns": kernel.total_ns,
            "mean_ns": rounded(kernel.mean_ns),
            "max_ns": kernel.max_ns,
            "share_of_kernel_time": rounded(kernel.time_ratio),
        }
        for number, kernel in numbered[cursor : cursor + PAGE]
    ]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "source_table": "device_ops",
        "of": len(numbered),
        "kernels": rows,
    }
    if len(numbered) > cursor + len(rows):
        document |= {"truncated": True, "next_cursor": cursor + len(rows)}
    return fitted(document, "kernels", cursor)


def window_around(capture: Capture, number: int) -> dict[str, Any]:
    """What happened around a finding: the longest events of each lane."""
    _, found = _finding(capture, number)
    window = window_of(capture.trace, found)
    if window is None:
        raise UsageError(f"finding {number} has no place in time", remedy="explain_finding shows its evidence")
    return window_document(capture, window)


def window_document(capture: Capture, window: TimelineWindow) -> dict[str, Any]:
    """A window's lanes, each with its longest events; times count from the window's start."""
    each = max(WINDOW_ITEMS // max(len(window.lanes), 1), 2)
    return fitted(
        {
            "handle": capture.handle,
            "rank": window.rank,
            "device": window.device,
            "step": window.step,
            "start_ns": window.start_ns,
            "length_ns": window.end_ns - window.start_ns,
            "claimed_ns": sum(end - start for start, end in window.claimed),
            "lanes": [
                {
                    "lane" + MARK: named(lane.label),
                    "kind": lane.kind,
                    "events": len(lane.items) + lane.hidden,
                    "longest" + MARK: [
                        [item.start_ns - window.start_ns, item.end_ns - item.start_ns, named(item.name)]
                        for item in sorted(lane.items, key=lambda item: (item.start_ns - item.end_ns, item.start_ns))[
                            :each
                        ]
                    ],
                }
                for lane in window.lanes
            ],
            "longest_is": ["start_ns from window start", "length_ns", "name"],
        },
        "lanes",
    )


def _finding(capture: Capture, number: int) -> tuple[Card, Finding]:
    known = capture.diagnosis.findings
    if not 1 <= number <= len(known):
        raise UsageError(f"there is no finding {number}", remedy=f"diagnose(handle) lists {len(known)}")
    return known[number - 1]


def _brief(capture: Capture, number: int, card: Card, found: Finding) -> dict[str, Any]:
    return {
        "finding": number,
        "rule": card.code,
        "name": card.name,
        "bottleneck": found.bottleneck.value,
        "message" + MARK: sentence(found.message),
        f"gain_per_{found.period}": quantity(found.recoverable) or "not priced",
        "where" + MARK: {
            key: named(value) if isinstance(value, str) else value for key, value in found.where.known().items()
        },
    }


def _page(card: Card, heading: str) -> str:
    """A section of the rule's page, on one line. Its words are ours."""
    return " ".join(section(card.doc, heading).split())


def _to_decide(undecided: list[Any]) -> list[dict[str, Any]]:
    """Rules that could not look, by what would let them."""
    together: dict[str, list[str]] = {}
    for ruling in undecided:
        together.setdefault(ruling.verdict.to_decide, []).append(ruling.card.code)
    return [{"rules": codes, "to_decide": sentence(how)} for how, codes in list(together.items())[:5]]


def _steps(capture: Capture) -> dict[str, Any]:
    steps = capture.diagnosis.steps
    times = {f"{name}_ms": rounded(getattr(steps, f"{name}_ms")) for name in ("p50", "p90", "p99")}
    known = {key: value for key, value in times.items() if value is not None}
    return {"count": steps.count, **known, "marker" + MARK: named(steps.source) or None}


def _source(source: Any) -> dict[str, Any]:
    wanted = ("format", "rank", "tool_version", "sha256")
    return {
        "path" + MARK: named(str(source.get("path"))),
        **{key: source.get(key) for key in wanted if source.get(key)},
    }
