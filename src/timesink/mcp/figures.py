"""What the server shows of a capture without judgement: the pages of the commands, kernels by cost, rows of SQL."""

from collections.abc import Callable, Sequence
from typing import Any

from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.undiagnosable import check_device_work
from timesink.errors import UsageError
from timesink.export.sql import Allowance, ask
from timesink.fixes.table import parse_change
from timesink.knowledge.step_parts import part_words
from timesink.mcp import MARK, fitted, named, paged, quantity, rounded, sentence
from timesink.mcp.captures import PAGE, OpenCapture, steps_of, words_of
from timesink.model.tables import DEVICE_OPS, KERNEL_METRICS
from timesink.render.gate.explained import lead
from timesink.units import NS_PER_MS
from timesink.views import Cell, Page, Sheet
from timesink.views.lines import folder_of, lines_page
from timesink.views.plan import WORTH, headline, plan, what_if_page
from timesink.views.report import kernel_times
from timesink.views.summary import idle_page

SORTS = ("total_ns", "count", "mean_ns", "max_ns")
QUERY = Allowance(rows=100, seconds=15.0, memory_megabytes=1_024)


def summary_document(capture: OpenCapture) -> dict[str, Any]:
    """Where the mean step of each device goes."""
    return fitted(
        {
            "handle": capture.handle,
            "steps": steps_of(capture),
            "how": "mean over steady steps; parts sum to the step; idle time by what the GPU waited for",
            "devices": [
                {
                    "rank": budget.rank,
                    "device": budget.device,
                    "steps_averaged": budget.steps,
                    "step_ms": rounded(budget.period_ns / 1e6),
                    "source_table": "device_ops",
                    "parts_ms": {part_words(part.kind): rounded(part.time_ns / 1e6) for part in budget.parts},
                }
                for budget in step_budgets(capture.trace)
            ],
        },
        "devices",
    )


def idle_document(capture: OpenCapture) -> dict[str, Any]:
    """What each device waited for while it was idle, and where."""

    return page_document(capture, idle_page(capture.trace, PAGE), "places")


def lines_document(capture: OpenCapture) -> dict[str, Any]:
    """GPU, idle and host time by line of the program; lines are read from source files beside the capture."""

    check_device_work(capture.trace, "time by line")
    return page_document(capture, lines_page(capture.trace, PAGE, folder_of(capture.paths[0])), "lines")


def statement_document(capture: OpenCapture, before: OpenCapture | None) -> dict[str, Any]:
    """The sentences that a team writes down of a run, each with its scope."""
    from timesink.views.statement import statement_page

    page = statement_page(capture.trace, None if before is None else before.trace)
    return page_document(capture, page, "statements", sentence)


def limits_document(capture: OpenCapture) -> dict[str, Any]:
    """What limits each kernel of a Nsight Compute report."""
    from timesink.views.kernels import kernels_page

    if KERNEL_METRICS not in capture.trace:
        remedy = "show(handle, 'kernels') says their cost; command(program, 'why is this kernel slow') records counters"
        raise UsageError("the capture holds no counters of kernels", remedy=remedy)
    return page_document(capture, kernels_page(capture.trace), "kernels")


def page_document(
    capture: OpenCapture, page: Page, rows: str, words: Callable[[str], str | None] = named
) -> dict[str, Any]:
    """The tables of a page, values in the unit that ends each key; of the table `rows` as many as fit."""
    return fitted(
        {
            "handle": capture.handle,
            **{sheet.key: [_plain_row(sheet, row, words) for row in sheet.rows] for sheet in page.sheets},
            **({"notes" + MARK: [sentence(note) for note in page.notes]} if page.notes else {}),
        },
        rows,
        spare=[sheet.key for sheet in reversed(page.sheets) if sheet.key != rows],
    )


def _plain_row(sheet: Sheet, row: Sequence[Cell], words: Callable[[str], str | None]) -> dict[str, Any]:
    """A row by key. Nanoseconds are told in milliseconds, as everywhere in what an agent is told."""
    told: dict[str, Any] = {}
    for field, cell in zip(sheet.columns, row, strict=True):
        if isinstance(cell, str):
            told[field.key + MARK] = words((field.words or {}).get(cell, cell))
        elif field.key.endswith("_ns") and isinstance(cell, (int, float)):
            told[f"{field.key.removesuffix('_ns')}_ms"] = rounded(cell / NS_PER_MS)
        elif cell is not None:
            told[field.key] = rounded(cell) if isinstance(cell, float) else cell
    return told


def kernel_rows(capture: OpenCapture, sort: str, contains: str, cursor: int) -> dict[str, Any]:
    """Kernels by cost."""
    if sort not in SORTS:
        raise UsageError(f"kernels cannot be sorted by {sort!r}", remedy=f"choose one of: {', '.join(SORTS)}")
    if DEVICE_OPS not in capture.trace:
        raise UsageError("the capture holds no GPU work", remedy="command(program, question) says how to record it")
    times = kernel_times(capture.trace).with_row_index("number")
    numbered = times.filter(times["name"].str.contains(contains, literal=True))
    numbered = numbered.sort(sort, "rank", "device", "name", descending=[True, False, False, False])
    rows = [
        {
            "kernel_id": kernel["number"],
            "rank": kernel["rank"],
            "device": kernel["device"],
            "name" + MARK: named(kernel["name"]),
            "launches": kernel["count"],
            "total_ns": kernel["total_ns"],
            "mean_ns": rounded(kernel["mean_ns"]),
            "max_ns": kernel["max_ns"],
            "share_of_kernel_time": rounded(kernel["time_ratio"]),
        }
        for kernel in numbered.slice(cursor, PAGE).iter_rows(named=True)
    ]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "source_table": "device_ops",
        "of": numbered.height,
        "kernels": rows,
    }
    return paged(document, "kernels", cursor, numbered.height)


def query_rows(capture: OpenCapture, sql: str) -> dict[str, Any]:
    """The rows of one SELECT."""
    answer = ask(capture.trace, sql, QUERY)
    rows = [[named(value) if isinstance(value, str) else value for value in row] for row in answer.rows]
    document: dict[str, Any] = {
        "handle": capture.handle,
        "columns" + MARK: [named(column) for column in answer.columns],
        "rows" + MARK: rows,
    }
    if answer.truncated:
        document["truncated"] = True
    shown = fitted(document, "rows" + MARK)
    shown.pop("next_cursor", None)
    return shown if "truncated" not in shown else {**shown, "next": "narrow the query, or add LIMIT and OFFSET"}


def priced_change(capture: OpenCapture, change: str) -> dict[str, Any]:
    """What one change would win per step, before it is made."""

    page = what_if_page(capture.trace, (parse_change(change),))
    return page_document(capture, page, "prices")


def plan_document(capture: OpenCapture) -> dict[str, Any]:
    """The ladder of changes: each with the step before and after it, and why it ends."""

    check_device_work(capture.trace, "step to plan for")
    made = plan(capture.trace, capture.diagnosis)
    rungs = [
        {
            "change": rung.id,
            "do": rung.fix.title,
            "where" + MARK: {
                key: named(text) for key in ("where", "module", "kernel") if (text := getattr(rung.place, key))
            },
            "step_ms": rounded(rung.before_ms),
            "then_ms": quantity(rung.after),
            "effort": rung.fix.effort.value,
            "findings": list(rung.findings),
            "price": "assumed" if made.measured is None else made.measured.origin(rung.id),
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
            "lead" + MARK: sentence(lead(result)),
            "mean_step_s": {"before": first.before, "after": first.after, "runs_per_side": 1},
            "parts_sum_to_change_ns": sum(part.delta_ns for part in result.contributions),
            "findings": [
                {"rule": one.code, "fate": str(one.fate), "before_ms": one.before_ms, "after_ms": one.after_ms}
                for one in result.findings[:12]
            ],
            "contributions": [{"part" + MARK: named(part.name), "delta_ns": part.delta_ns} for part in moved],
            "to_decide": "command(program=before, after=after): verify runs both sides in turns",
        },
        "contributions",
    )


def verify_command(before: str, after: str) -> dict[str, Any]:
    """The command that decides whether a change helped. Nothing is run."""
    for side in (before, after):
        words_of(side)
    return {
        "argv": ["timesink", "verify", "--before", before, "--after", after, "--format", "json"],
        "how": "both sides in fresh processes, in turns, without a profiler; looks after 6, 12, 18 and 30 pairs",
        "step_times": "steps of unmodified programs are found; --whole compares programs without steps; see the how-to",
        "exit_codes": {
            "0": "faster or no difference",
            "1": "slower, or the speed-up of --at-least not proven",
            "3": "inconclusive, with --strict",
            "4": "invalid",
        },
        "say": "claim a speed-up only where the outcome is faster; inconclusive and invalid prove nothing either way",
        "ran": False,
    }
