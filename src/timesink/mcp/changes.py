"""What the server says of a change: its price before, what moved after, and the command that decides."""

from __future__ import annotations

from typing import Any

from timesink.mcp.answers import MARK, fitted, named, quantity, rounded, sentence
from timesink.mcp.captures import OpenCapture, words_of
from timesink.mcp.figures import page_document


def priced_change(capture: OpenCapture, change: str) -> dict[str, Any]:
    """What one change would win per step, before it is made."""
    from timesink.fixes.words import parse_change
    from timesink.views.plan import what_if_page

    page = what_if_page(capture.trace, (parse_change(change),), None, False)
    return page_document(capture, page, "prices")


def plan_document(capture: OpenCapture) -> dict[str, Any]:
    """The ladder of changes: each with the step before and after it, and why it ends."""
    from timesink.diagnosis.undiagnosable import check_device_work
    from timesink.views.plan import WORTH, headline, plan

    check_device_work(capture.trace, "step to plan for")
    made = plan(capture.trace, capture.diagnosis)
    rungs = [
        {
            "change": rung.id,
            "do": rung.fix.what_to_type,
            "where" + MARK: {
                key: named(text) for key in ("where", "module", "kernel") if (text := getattr(rung.place, key))
            },
            "step_ms": rounded(rung.before_ms),
            "then_ms": quantity(rung.after),
            "effort": rung.fix.effort.value,
            "findings": list(rung.findings),
            "needs": list(rung.needs),
            "excludes": list(rung.fix.excludes),
            "costs": rung.fix.costs or None,
            "memory": rung.memory or None,
            "then_bound_by": rung.bound_by,
        }
        for rung in made.rungs
    ]
    least_ms = WORTH.default * (made.step_ms or 0.0)
    alone = {name: rounded(gain.value) for name, gain in made.singles.items() if gain.value >= least_ms}
    return fitted(
        {
            "handle": capture.handle,
            "says": headline(made),
            "step_ms": rounded(made.step_ms),
            "rungs": rungs,
            "ends": made.refused or made.floor,
            "alone_ms": alone,
            "notes": list(made.notes),
            "next": "make the first change, capture again, and plan anew",
        },
        "rungs",
        spare=("alone_ms", "notes"),
    )


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


def verify_command(before: str, after: str) -> dict[str, Any]:
    """The command that decides whether a change helped. Nothing is run."""
    for side in (before, after):
        words_of(side)
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
