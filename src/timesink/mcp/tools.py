"""What the tools of the server answer, as plain documents that fit into a reply.

First the answers about one capture: what it holds, what limits it, why, and where. Then those that lead on: a query, a
comparison, the exact commands to capture and to verify, a file for people.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding, Undecided
from timesink.errors import UsageError
from timesink.export.sql import Allowance, ask
from timesink.mcp.answers import MARK, Captures, OpenCapture, evidence, fitted, named, quantity, rounded, sentence
from timesink.model.tables import DEVICE_OPS
from timesink.render.html.sections import section
from timesink.untrusted.whole_file import whole_file, write_whole
from timesink.views.figures import KernelTime, TimelineWindow
from timesink.views.page import Cell, Page, Sheet
from timesink.views.report import kernel_times
from timesink.views.timeline import window_of

SORTS: Mapping[str, Callable[[KernelTime], float]] = {
    "total_ns": lambda kernel: kernel.total_ns,
    "count": lambda kernel: kernel.count,
    "mean_ns": lambda kernel: kernel.mean_ns,
    "max_ns": lambda kernel: kernel.max_ns,
}
PAGE = 15
WINDOW_ITEMS = 24


def _statement(diagnosis: Diagnosis) -> str:
    """The verdict in a sentence, after a word on files that could not be read to their end."""
    return sentence(
        f"partial answer, {diagnosis.partial}: {diagnosis.statement}" if diagnosis.partial else diagnosis.statement
    )


def open_document(capture: OpenCapture) -> dict[str, Any]:
    """What was opened, with the verdict, so that the next call can be the right one."""
    diagnosis, trace = capture.diagnosis, capture.trace
    return fitted(
        {
            "handle": capture.handle,
            "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": _statement(diagnosis)},
            "steps": _steps(capture),
            "unprofiled_step_ms": rounded(capture.unprofiled_step_ms) or "not known: gains of host time are estimates",
            "findings": len(diagnosis.findings),
            "undecided_rules": sum(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings),
            "sources": [_source(source) for source in diagnosis.sources[:4]],
            "caveats" + MARK: [sentence(str(note)) for note in diagnosis.notes[:6]],
            "tables": [{"name": table.name, "rows": trace[table].height} for table in trace],
            "next": "diagnose(handle)",
        },
        "tables",
    )


def summary_document(capture: OpenCapture) -> dict[str, Any]:
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
                for budget in step_budgets(capture.trace)
            ],
        },
        "devices",
    )


def listed_captures(captures: Captures, contains: str, cursor: int) -> dict[str, Any]:
    """The files under the roots that a reader takes, newest first, by the beginning of each file."""
    from timesink.readers.formats import recognised

    found = [
        {"path" + MARK: named(str(path)), "format": reader.format, "bytes": path.stat().st_size}
        for path in captures.files()
        if contains in str(path)
        if (reader := recognised(path)) is not None
    ]
    document = {"of": len(found), "captures": found[cursor : cursor + PAGE], "next": "open_capture(path)"}
    return _paged(document, "captures", cursor, len(found))


def _paged(document: dict[str, Any], rows: str, cursor: int, of: int) -> dict[str, Any]:
    """The document with as many of the rows shown as fit; where some of all `of` are left, the cursor to go on from."""
    end = cursor + len(document[rows])
    return fitted(document | ({"truncated": True, "next_cursor": end} if of > end else {}), rows, cursor)


def idle_document(capture: OpenCapture) -> dict[str, Any]:
    """What each device waited for while it was idle, and where."""
    from timesink.views.idle import idle_page

    return page_document(capture, idle_page(capture.trace, PAGE), "places")


def limits_document(capture: OpenCapture) -> dict[str, Any]:
    """What limits each kernel of a Nsight Compute report."""
    from timesink.model.tables import KERNEL_METRICS
    from timesink.views.kernels import kernels_page

    if KERNEL_METRICS not in capture.trace:
        remedy = "list_kernels says what they cost; capture_plan('why is this kernel slow', program) records counters"
        raise UsageError("the capture holds no counters of kernels", remedy=remedy)
    return page_document(capture, kernels_page(capture.trace), "kernels")


def priced_change(capture: OpenCapture, change: str) -> dict[str, Any]:
    """What one change would win per step, before it is made."""
    from timesink.views.what_if import what_if_page
    from timesink.whatif.changes import parse_change

    page = what_if_page(capture.trace, (parse_change(change),), None, False)
    return page_document(capture, page, "prices")


def page_document(capture: OpenCapture, page: Page, rows: str) -> dict[str, Any]:
    """The tables of a page, values in the unit that ends each key; of the table `rows` as many as fit."""
    return fitted(
        {
            "handle": capture.handle,
            **{sheet.key: [_plain_row(sheet, row) for row in sheet.rows] for sheet in page.sheets},
        },
        rows,
    )


def _plain_row(sheet: Sheet, row: Sequence[Cell]) -> dict[str, Any]:
    return {
        field.key + MARK if isinstance(cell, str) else field.key: named(cell) if isinstance(cell, str) else cell
        for field, cell in zip(sheet.columns, row, strict=True)
        if cell is not None
    }


def diagnosis_document(capture: OpenCapture, limit: int, cursor: int) -> dict[str, Any]:
    """Findings, costliest first, and what could not be decided."""
    diagnosis = capture.diagnosis
    shown = diagnosis.findings[cursor : cursor + limit]
    undecided = [ruling for ruling in diagnosis.rulings if isinstance(ruling.verdict, Undecided)]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": _statement(diagnosis)},
        "steps": _steps(capture),
        "findings": [_brief(number, *entry) for number, entry in enumerate(shown, start=cursor + 1)],
        "not_measured": _to_decide(undecided),
        "next": "explain_finding(handle, number)" if shown else "summary(handle)",
    }
    return _paged(document, "findings", cursor, len(diagnosis.findings))


def finding_document(capture: OpenCapture, number: int) -> dict[str, Any]:
    """One finding in full: evidence with origins, what to do, how to check it, when it misleads."""
    card, finding = _finding(capture, number)
    return fitted(
        {
            **_brief(number, card, finding),
            "evidence": [evidence(fact) for fact in finding.evidence],
            "advice" + MARK: sentence(finding.advice),
            "check" + MARK: sentence(finding.verify),
            "what_to_do": _page(card, "What to do"),
            "how_it_is_measured": _page(card, "How it is measured"),
            "when_it_misleads": _page(card, "When it misleads"),
            "verify_with": ["timesink", "verify", "--before", "<command>", "--after", "<command with the change>"],
            "window": f"window(handle, finding={number})",
        },
        "evidence",
    )


def kernel_rows(capture: OpenCapture, sort: str, contains: str, cursor: int) -> dict[str, Any]:
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
    return _paged(document, "kernels", cursor, len(numbered))


def window_around(capture: OpenCapture, number: int) -> dict[str, Any]:
    """What happened around a finding: the longest events of each lane."""
    _, finding = _finding(capture, number)
    window = window_of(capture.trace, finding)
    if window is None:
        raise UsageError(f"finding {number} has no place in time", remedy="explain_finding shows its evidence")
    return window_document(capture, window)


def window_document(capture: OpenCapture, window: TimelineWindow) -> dict[str, Any]:
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


def _finding(capture: OpenCapture, number: int) -> tuple[Card, Finding]:
    findings = capture.diagnosis.findings
    if not 1 <= number <= len(findings):
        raise UsageError(f"there is no finding {number}", remedy=f"diagnose(handle) lists {len(findings)}")
    return findings[number - 1]


def _brief(number: int, card: Card, finding: Finding) -> dict[str, Any]:
    return {
        "finding": number,
        "rule": card.code,
        "name": card.name,
        "bottleneck": finding.bottleneck.value,
        "message" + MARK: sentence(finding.message),
        f"gain_per_{finding.period}": quantity(finding.recoverable) or "not priced",
        "where" + MARK: {
            key: named(value) if isinstance(value, str) else value for key, value in finding.where.known().items()
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


def _steps(capture: OpenCapture) -> dict[str, Any]:
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


QUERY = Allowance(rows=100, seconds=15.0, memory_megabytes=1_024)
KINDS = ("html", "perfetto")


def query_rows(capture: OpenCapture, sql: str) -> dict[str, Any]:
    """The rows of one SELECT."""
    answer = ask(capture.trace, sql, QUERY)
    rows = [[named(value) if isinstance(value, str) else value for value in row] for row in answer.rows]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "columns": [named(column) for column in answer.columns],
        "rows" + MARK: rows,
    }
    if answer.truncated:
        document["truncated"] = True
    shown = fitted(document, "rows" + MARK)
    shown.pop("next_cursor", None)
    return shown if "truncated" not in shown else {**shown, "next": "narrow the query, or add LIMIT and OFFSET"}


def compare_captures_of(before: OpenCapture, after: OpenCapture) -> dict[str, Any]:
    """What moved between two captures. It speaks of no speed-up: one run per side is no basis for a verdict."""
    from timesink.verify.compare import compare_captures

    result = compare_captures((before.trace, after.trace), (before.diagnosis, after.diagnosis))
    first = result.rows[0]
    moved = sorted(result.contributions, key=lambda part: (-abs(part.delta_ns), part.name))[:12]
    return fitted(
        {
            "before": before.handle,
            "after": after.handle,
            "outcome": str(first.verdict.outcome),
            "reason": None if first.verdict.reason is None else str(first.verdict.reason),
            "explanation" + MARK: sentence(first.verdict.explanation),
            "mean_step_s": {"before": first.before, "after": first.after, "runs_per_side": 1},
            "parts_sum_to_change_ns": sum(part.delta_ns for part in result.contributions),
            "findings": [
                {"rule": one.code, "fate": str(one.fate), "before_ms": one.before_ms, "after_ms": one.after_ms}
                for one in result.findings[:12]
            ],
            "contributions": [{"part" + MARK: named(part.name), "delta_ns": part.delta_ns} for part in moved],
            "to_decide": "verify_plan(before, after): runs both sides in turns",
        },
        "contributions",
    )


def capture_command(question: str, program: str) -> dict[str, Any]:
    """Which profiler answers a question, why, what it costs, and the exact command. Nothing is run."""
    from timesink.capture.choice import COSTS, choose, command_of

    chosen = choose(question)
    return {
        "argv": command_of(chosen.answer, _words(program)),
        "profiler": chosen.answer.tool,
        "why": chosen.answer.why,
        "not_others": chosen.answer.not_others,
        "cost": COSTS[chosen.answer.tool],
        "matched_words": list(chosen.matched) or "none: this is the capture to begin with",
        "then": "open_capture(path of the result)",
        "ran": False,
    }


def verify_command(before: str, after: str) -> dict[str, Any]:
    """The command that decides whether a change helped. Nothing is run."""
    for side in (before, after):
        _words(side)
    return {
        "argv": ["timesink", "verify", "--before", before, "--after", after, "--format", "json"],
        "how": "both sides in fresh processes, in turns, without a profiler; looks after 6, 12 and 18 pairs",
        "step_times": "steps of unmodified programs are found; --whole compares programs without steps; see the how-to",
        "exit_codes": {
            "0": "faster or no difference",
            "1": "slower, or the speed-up of --at-least not proven",
            "3": "inconclusive, with --strict",
            "4": "invalid",
        },
        "say": "claim a speed-up only where the outcome is faster; inconclusive and invalid are no evidence either way",
        "ran": False,
    }


def export_file(captures: Captures, capture: OpenCapture, kind: str, path: str) -> dict[str, Any]:
    """Write a report or a Perfetto trace to a new file under a root."""
    if kind not in KINDS:
        raise UsageError(f"nothing is exported as {kind!r}", remedy=f"choose one of: {', '.join(KINDS)}")
    target = captures.allowed(path)
    if target.exists():
        raise UsageError(f"{path!r} exists", remedy="choose a new file: this server replaces none")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder for {path!r}", remedy="choose one that exists")
    if kind == "html":
        from timesink.render.html import render
        from timesink.views.report import report_of

        write_whole(target, render(report_of(capture.trace, capture.diagnosis)))
    else:
        from timesink.export.perfetto import write_perfetto

        with whole_file(target) as part, part.open("wb") as file:
            write_perfetto(capture.trace, capture.diagnosis, file)
    return {"handle": capture.handle, "kind": kind, "path": str(target), "bytes": target.stat().st_size}


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"this is no command: {error}", remedy="close every quote") from error
    if not words:
        raise UsageError("the command is empty", remedy="give it as you would type it")
    return words
