"""A gate's result as pages of tables: the terminal's text, and the parts that other formats take from it."""

from __future__ import annotations

from timesink.render import Format, Style, render
from timesink.render.gate.words import (
    MARKS,
    change_text,
    figure,
    finding_text,
    headline,
    sentence,
    told,
    why,
    word,
    worst_first,
)
from timesink.verify.outcomes import GateResult
from timesink.views.page import Column, Page, Sheet

SHOWN_CONTRIBUTIONS = 15


def render_text(result: GateResult, style: Style) -> str:
    """The page for a terminal."""
    return render(page(result), Format.TEXT, width=style.width, colour=style.colour)


def render_html(result: GateResult, _style: Style) -> str:
    """The page for a browser."""
    return render(page(result), Format.HTML)


def page(result: GateResult) -> Page:
    """Headline, metrics, what differs, why, runs."""
    sheets = [metrics(result), *(part(result) for part in (differences, budget, contributions, findings, runs))]
    shown = tuple(sheet for sheet in sheets if sheet.rows)
    title = f"{MARKS[result.outcome]} {headline(result)}"
    return Page(title, shown, notes(result))


def notes(result: GateResult) -> tuple[str, ...]:
    """How it was compared, the full sentence of each gated row, why where nothing can be said, and all warnings."""
    said = [f"procedure: {result.procedure}"]
    first = headline(result)
    for row in worst_first(result.rows):
        if not row.gated:
            continue
        told_parts = [sentence(row)] if row.verdict.effect is not None else []
        told_parts += [why(row.verdict)] if why(row.verdict) else []
        said += [f"{row.name}: {part}" for part in told_parts if part not in first]
        said += [f"{row.name}: {note}" for note in row.verdict.notes]
    return (*said, *result.notes, *((f"report: {result.artefact}",) if result.artefact else ()))


def metrics(result: GateResult, most: int | None = None) -> Sheet:
    """One row per metric, worst first."""
    columns = (
        Column("metric", "metric"),
        *(Column(k, k) for k in ("before", "after", "change", "verdict")),
    )
    ranked = worst_first(result.rows)
    rows = tuple(
        (
            row.name,
            figure(row.before, row.unit),
            figure(row.after, row.unit),
            change_text(row),
            f"{MARKS[row.verdict.outcome]} {word(row)}" if row.gated else word(row),
        )
        for row in ranked[:most]
    )
    left = len(ranked) - len(rows)
    return Sheet("metrics", "Metrics", columns, rows, f"{left} more are not shown" if left else "")


def differences(result: GateResult) -> Sheet:
    """What the two sides do not share."""
    columns = (Column("what", "differs", is_name=True), Column("before", "before"), Column("after", "after"))
    rows = tuple((name, *pair) for name, pair in sorted(result.differences.items()))
    return Sheet("differences", "What differs between the two sides", columns, rows)


def budget(result: GateResult) -> Sheet:
    """The change by kind of time."""
    columns = (
        Column("kind", "time"),
        Column("before_ns", "before", "ns"),
        Column("after_ns", "after", "ns"),
        Column("delta_ns", "change", "ns", has_bar=True, is_change=True),
    )
    rows = tuple((part.name, part.before_ns, part.after_ns, part.delta_ns) for part in result.budget)
    return Sheet("budget", "Where the change is", columns, rows, "per step")


def contributions(result: GateResult, most: int = SHOWN_CONTRIBUTIONS) -> Sheet:
    """Parts of the change, largest first; the last row is all others together, so that the column sums to the total."""
    columns = (
        Column("part", "part", is_name=True),
        Column("before_ns", "before", "ns"),
        Column("after_ns", "after", "ns"),
        Column("delta_ns", "change", "ns", has_bar=True, is_change=True),
    )
    ranked = sorted(result.contributions, key=lambda part: (-abs(part.delta_ns), part.name))
    rows = [(part.name, part.before_ns, part.after_ns, part.delta_ns) for part in ranked[:most]]
    rest = ranked[most:]
    if rest:
        rows.append(
            (f"{len(rest)} others", *(sum(getattr(p, k) for p in rest) for k in ("before_ns", "after_ns", "delta_ns")))
        )
    total = sum(part.delta_ns for part in ranked)
    return Sheet(
        "contributions", "What the change is made of", columns, tuple(rows), f"sum: {figure(total, 'ns')} per step"
    )


def findings(result: GateResult) -> Sheet:
    """Findings that came, went or changed."""
    rows = tuple((finding_text(found), found.message) for found in told(result.findings))
    return Sheet("findings", "Findings", (Column("finding", "finding"), Column("message", "message")), rows)


def runs(result: GateResult) -> Sheet:
    """Every counted run in the order in which it was made; what was seen of no run has no column."""
    columns = (
        Column("number", "run", "1"),
        Column("side", "side"),
        Column("mean", "mean step"),
        Column("steps", "steps", "1"),
        Column("dropped", "warm-up", "1"),
        Column("sm_mhz", "SM MHz", "1"),
        Column("celsius", "°C", "1"),
        Column("remarks", "remarks"),
    )
    rows = [
        (
            run.number,
            run.side,
            figure(run.mean_s, "s"),
            run.steps,
            run.dropped,
            run.sm_mhz,
            run.celsius,
            ", ".join([*(() if run.settled else ("not steady",)), *run.slowed_by, *run.foreign]) or None,
        )
        for run in result.runs
    ]
    seen = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return Sheet(
        "runs", "Runs", tuple(columns[at] for at in seen), tuple(tuple(row[at] for at in seen) for row in rows)
    )
