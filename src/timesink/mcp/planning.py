"""The answers that lead on: a query, a comparison, the exact commands to capture and to verify, a file for people."""

from __future__ import annotations

import shlex
from typing import Any

from timesink.errors import UsageError
from timesink.export.sql import Allowance, ask
from timesink.mcp.answers import MARK, Capture, Captures, fitted, named, sentence
from timesink.untrusted.whole_file import whole_file, write_whole

QUERY = Allowance(rows=100, seconds=15.0, memory_megabytes=1_024)
KINDS = ("html", "perfetto")


def queried(capture: Capture, sql: str) -> dict[str, Any]:
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


def compared(before: Capture, after: Capture) -> dict[str, Any]:
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
                {
                    "rule": one.code,
                    "fate": str(one.fate),
                    "before_ms": one.before_ms,
                    "after_ms": one.after_ms,
                }
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
        "step_times": "the program calls timesink.step() after each step, or give --step-pattern; see the how-to",
        "exit_codes": {
            "0": "faster or no difference",
            "1": "slower",
            "3": "inconclusive, with --strict",
            "4": "invalid",
        },
        "say": "claim a speed-up only where the outcome is faster; inconclusive and invalid are no evidence either way",
        "ran": False,
    }


def exported(captures: Captures, capture: Capture, kind: str, path: str) -> dict[str, Any]:
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
