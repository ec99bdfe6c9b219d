"""Results of a gate or of a comparison, written for people and for continuous integration: as sentences and tables that
every format shares, and as a page for a terminal or a browser.

There is one sentence per verdict and one row per metric, so that all formats say the same.
"""

from typing import Final

from timesink.render import Style
from timesink.render.gate import explained
from timesink.render.tables import number_text, value_text
from timesink.verify.outcomes import (
    ChangeVerdict,
    Effect,
    Fate,
    FindingChange,
    GateResult,
    GateRow,
    How,
    Outcome,
)
from timesink.views import Page, Sheet, listed, sheet_of, without_columns

SHOWN_ROWS = 15
SHOWN_RANGES = 15
MARKS = {
    Outcome.SLOWER: "✗",
    Outcome.FASTER: "✓",
    Outcome.NO_DIFFERENCE: "=",
    Outcome.INCONCLUSIVE: "?",
    Outcome.INVALID: "!",
}
_WORST_FIRST = (Outcome.INVALID, Outcome.SLOWER, Outcome.INCONCLUSIVE, Outcome.FASTER, Outcome.NO_DIFFERENCE)
_OTHER_WORDS = {Outcome.SLOWER: "worse", Outcome.FASTER: "better"}


_ANY: Final = 10.0  # eleven times as slow: runs that miss less show nothing
_CHANGE = "before_ns: before, after_ns: after, delta_ns: change [bar change]"


def render_text(result: GateResult, style: Style) -> str:
    """The page for a terminal."""
    from timesink.render.text import render_page

    return render_page(page(result), style)


def render_html(result: GateResult, style: Style) -> str:
    """The page for a browser."""
    from timesink.render.html import render_comparison, render_page

    if result.sides is None:
        return render_page(page(result), style)
    from timesink.views.timeline.flames import compared  # which needs many measures; other gates need none

    return render_comparison(page(result), compared(*result.sides))


def page(result: GateResult) -> Page:
    """What explains most above the headline, or that alone; then why, metrics, what differs, parts, runs. Where no step
    was taken apart, the start-up's change is what is told."""
    shown, told = tuple(sheet for part in PARTS if (sheet := part(result)).rows), notes(result)
    if said := explained.lead(result) or ("" if result.changes else explained.start_up_lead(result)):
        return Page(said, shown, told, lede=f"{mark(result)} {headline(result)}")
    return Page(f"{mark(result)} {headline(result)}", shown, told)


def mark(result: GateResult) -> str:
    """The mark of the outcome; of a faster side that falls short of the speed-up asked for, that of a failure."""
    if any(row.failed for row in result.rows):
        return MARKS[Outcome.SLOWER]
    kept = result.outcome is Outcome.NO_DIFFERENCE and all(row.limit for row in result.rows)
    return MARKS[Outcome.FASTER if kept else result.outcome]


def notes(result: GateResult) -> tuple[str, ...]:
    """How it was compared, the full sentence of each gated row, why where nothing can be said, and all warnings."""
    texts = [f"procedure: {result.procedure}"]
    first = headline(result)
    for row in worst_first(result.rows):
        if not row.gated:
            continue
        sentences = ([sentence(row)] if row.verdict.effect is not None else []) + [why(row.verdict)]
        texts += [f"{row.name}: {text}" for text in sentences if text and text not in first]
        texts += [f"{row.name}: {note}" for note in (*row.verdict.notes, *seen_text(row.verdict))]
    return (*texts, *result.notes)


def metrics(result: GateResult, most: int | None = None) -> Sheet:
    """One row per metric, worst first."""
    ranked = worst_first(result.rows)
    rows = []
    for row in ranked[:most]:
        verdict = f"{_mark(row)} {word(row)}" if row.gated else word(row)
        rows.append((row.name, figure(row.before, row.unit), figure(row.after, row.unit), change_text(row), verdict))
    left = len(ranked) - len(rows)
    return listed("gate.metrics", rows, f"{left} more are not shown" if left else "")


def differences(result: GateResult) -> Sheet:
    """What the two sides do not share; as suspects, where the change is taken apart."""
    if result.suspects:
        return explained.suspects(result)
    rows = ((name, *pair) for name, pair in sorted(result.differences.items()))
    return listed("gate.differences", rows)


def budget(result: GateResult) -> Sheet:
    """The change by kind of time."""
    rows = ((part.name, part.before_ns, part.after_ns, part.delta_ns) for part in result.budget)
    return sheet_of("budget", "Where the change is", rows, f"kind: time [text], {_CHANGE}", explained.per(result))


def start_up(result: GateResult) -> Sheet:
    """What the time before the first steady step was spent on, the largest changes first; it is in no step."""
    ranked = sorted(result.start_up, key=lambda part: (-abs(part.delta_ns), part.name))
    rows = ((part.name, part.before_ns, part.after_ns, part.delta_ns) for part in ranked)
    note = f"sum: {figure(sum(part.delta_ns for part in ranked), 'ns')} once, before the steps"
    return sheet_of("start_up", "Start-up", rows, f"part: spent on [name], {_CHANGE}", note)


def ranges(result: GateResult) -> Sheet:
    """The mean range of each name before and after; what only one side has is named and has no change."""
    rows = []
    for one in result.ranges[:SHOWN_RANGES]:
        figures: list[float | None] = []
        for name in ("count", "host_ns", "device_ns"):
            before, after = (None if side is None else getattr(side, name) for side in (one.before, one.after))
            gap = None if before is None or after is None else after - before
            figures += [before, after, *([] if name == "count" else [gap])]
        rows.append((one.name, *figures))
    left = len(result.ranges) - len(rows)
    note = "before, after: how many; times are of the mean range, the GPU's busy with what was launched inside"
    return listed("gate.ranges", rows, f"{note}; {left} more are not shown" if left else note)


def findings(result: GateResult) -> Sheet:
    """Findings that came, went or changed."""
    rows = ((finding_text(finding), finding.message) for finding in changed_findings(result.findings))
    return listed("gate.findings", rows)


def runs(result: GateResult) -> Sheet:
    """Every counted run in the order in which it was made; what was seen of no run has no column."""
    timed = "mean step" if any(run.steps > 1 for run in result.runs) else "time"
    columns = (
        f"number: run, side [text], mean: {timed} [text], steps, dropped: warm-up, sm_mhz: SM MHz, celsius: °C, "
        "remarks [text]"
    )
    rows = []
    for run in result.runs:
        remarks = [*(() if run.settled else ("not steady",)), *run.slowed_by, *run.foreign]
        seen = (run.number, run.side, figure(run.mean_s, "s"), run.steps, run.dropped, run.sm_mhz, run.celsius)
        rows.append((*seen, ", ".join(remarks) or None))
    return without_columns(sheet_of("runs", "Runs", rows, columns))


PARTS: Final = (
    explained.changes,
    metrics,
    differences,
    explained.works,
    budget,
    start_up,
    ranges,
    findings,
    runs,
)
"""The tables of a page, in order; empty ones are left out."""


def worst_first(rows: tuple[GateRow, ...]) -> list[GateRow]:
    """Gated rows before others, then by outcome, then the largest effect, then by name."""

    def order(row: GateRow) -> tuple[bool, int, float, str]:
        effect = row.verdict.effect
        size = abs(effect.ratio - 1) if effect is not None else 0.0
        return not row.gated, _WORST_FIRST.index(row.verdict.outcome), -size, row.name

    return sorted(rows, key=order)


def word(row: GateRow) -> str:
    """The outcome in words that fit the metric: a counter is worse, not slower."""
    if not row.gated:
        return "shown only"
    outcome = row.verdict.outcome
    if row.limit and row.verdict.reason is None:
        return f"{'breaks' if row.failed else 'keeps'} {row.limit}"
    said = row.verdict.label if row.how is How.RUNS else _OTHER_WORDS.get(outcome, str(outcome))
    return f"{said}, not proven" if _is_unproven(row) else said


def _is_unproven(row: GateRow) -> bool:
    """Whether a change rests on something assumed: the gate as a whole is inconclusive then."""
    return row.verdict.tagged and row.verdict.outcome in (Outcome.SLOWER, Outcome.FASTER)


def _mark(row: GateRow) -> str:
    if row.limit and row.verdict.outcome is Outcome.NO_DIFFERENCE:
        return MARKS[Outcome.FASTER]
    return MARKS[Outcome.INCONCLUSIVE if _is_unproven(row) else row.verdict.outcome]


def change_text(row: GateRow) -> str:
    """The change with its interval, or a counter's plain difference."""
    effect = row.verdict.effect
    if effect is not None:
        return f"{_percent(effect.ratio)} ({interval_text(effect)})"
    if row.how is How.RUNS or row.before is None or row.after is None:
        return "–"
    gap = row.after - row.before
    sign = "+" if gap > 0 else "-" if gap < 0 else "±"
    if row.how is How.SHARE:
        return f"{sign}{_points(abs(gap) / (100 if row.unit == '%' else 1))}"
    plural = "es" if row.unit.endswith("ches") else "s" if len(row.unit) > 3 else ""
    return f"{sign}{figure(abs(gap), row.unit.removesuffix(plural) if abs(gap) == 1 else row.unit)}"


def interval_text(effect: Effect) -> str:
    """``95 % CI +2.1 … +4.8 %``."""
    low, high = _percent(effect.low).removesuffix(" %"), _percent(effect.high)
    return f"{100 * effect.level:g} % CI {low} … {high}"


def figure(value: float | None, unit: str) -> str:
    """A metric's value for people."""
    if value is None:
        return "–"
    if unit == "s":
        return _seconds(value)
    if unit == "%":
        return value_text(value / 100, "ratio")
    return value_text(value, unit) if unit else number_text(value)


def sentence(row: GateRow) -> str:
    """Everything about one row in one line, such as ``slower: +3.4 % (95 % CI ...), 6 pairs, threshold 2 %, ...``."""
    verdict = row.verdict
    if row.limit:
        before = "" if row.before is None else f", {figure(row.before, row.unit)} before"
        return f"{word(row)}: {figure(row.after, row.unit)} now{before}"
    parts = [f"{word(row)}: {change_text(row)}" if verdict.effect or verdict.reason is None else word(row)]
    if verdict.outcome is Outcome.FASTER and verdict.effect is not None:
        parts.append(f"speed-up {1 / verdict.effect.ratio:.3g}x")
    if verdict.pairs:
        parts.append(f"{verdict.pairs} pairs" if verdict.pairs != 1 else "1 pair")
    parts.append(f"threshold {_plain(100 * verdict.threshold_ratio)} %")
    if verdict.run_sd_ratio is not None:
        parts.append(f"run sd {_plain(100 * verdict.run_sd_ratio)} %")
    if verdict.false_alarm_ratio is not None:
        chance = f"{_plain(100 * verdict.false_alarm_ratio)} %" if verdict.false_alarm_ratio >= 0.001 else "< 0.1 %"
        parts.append(f"p(false alarm) {chance}")
    return ", ".join(parts)


def why(verdict: ChangeVerdict) -> str:
    """Why nothing can be said and what would help, or ""."""
    if verdict.reason is None:
        return verdict.explanation
    reason = f"{verdict.reason}: {verdict.explanation}" if verdict.explanation else str(verdict.reason)
    return f"{reason}. To resolve: {verdict.to_resolve}" if verdict.to_resolve else reason


def seen_text(verdict: ChangeVerdict) -> list[str]:
    """What slow-down could not have been missed, where that is known."""
    ratio = verdict.seen_ratio
    if ratio is not None and ratio > _ANY:
        return [f"{verdict.pairs} pairs are too few to surely show a slow-down of any size"]
    return [] if ratio is None else [f"a slow-down of {_plain(100 * ratio)} % or more would have been seen with 95 %"]


def headline(result: GateResult) -> str:
    """One line for the whole gate. An invalid comparison shows no numbers."""
    outcome, ranked = result.outcome, [row for row in worst_first(result.rows) if row.gated]
    deciding = [row for row in ranked if (row.verdict.outcome is outcome and not _is_unproven(row))]
    name = f"{result.suite}: " if result.suite else ""
    if not deciding:
        unproven = [row for row in ranked if _is_unproven(row)]
        return f"{name}{_unproven(unproven[0])}" if unproven else f"{name}{outcome}: nothing was compared"
    first = deciding[0]
    if first.limit and outcome is Outcome.NO_DIFFERENCE:
        held = sum(bool(row.limit) for row in ranked)
        return f"{name}every limit holds: {held} number{'s' * (held > 1)}"
    asked = speed_up_text(first.verdict) if outcome is not Outcome.INVALID else ""
    if outcome is Outcome.INVALID:
        return f"{name}{first.name} {first.verdict.label}: {why(first.verdict)}"
    if outcome is Outcome.INCONCLUSIVE:
        seen = f" {_seen(first)}," if first.verdict.effect is not None else ""
        return f"{name}{asked}{first.name}{seen} {first.verdict.label}: {why(first.verdict)}"
    more = f" (and {len(deciding) - 1} more)" if len(deciding) > 1 and outcome is not Outcome.NO_DIFFERENCE else ""
    return f"{name}{asked}{first.name} {sentence(first)}{more}"


def _unproven(row: GateRow) -> str:
    """What a row that rests on something assumed says, and on what it rests."""
    rests = row.verdict.notes[-1] if row.verdict.notes else row.verdict.explanation
    return f"{row.name} {_seen(row)}, inconclusive: {word(row)}{rests and '; '}{rests}"


def _seen(row: GateRow) -> str:
    """``-25.0 % (12.44 ms → 9.331 ms)``."""
    values = f" ({figure(row.before, row.unit)} → {figure(row.after, row.unit)})"
    return (_percent(row.verdict.effect.ratio) if row.verdict.effect is not None else change_text(row)) + values


def speed_up_text(verdict: ChangeVerdict) -> str:
    """``speed-up of 1.1x not proven (1.02x to 1.2x): ``, or "" where none was asked for."""
    if verdict.least_speed_up is None:
        return ""
    effect = verdict.effect
    seen = f" ({1 / effect.high:.3g}x to {1 / effect.low:.3g}x)" if effect is not None else ""
    return f"speed-up of {verdict.least_speed_up:g}x {'not proven' if verdict.falls_short else 'proven'}{seen}: "


def finding_text(finding: FindingChange) -> str:
    """``gone: H2D101 pageable-copy, 1.91 ms per step``."""
    times_ms = (finding.before_ms, finding.after_ms)
    size = " → ".join(value_text(time_ms, "ms") for time_ms in times_ms if time_ms is not None)
    fate = "moved" if finding.moved and finding.fate is Fate.SAME else finding.fate.value
    fate += ", moved" if finding.moved and finding.fate is Fate.CHANGED else ""
    return f"{fate}: {finding.code} {finding.name}" + (f", {size} per step" if size else "")


def changed_findings(findings: tuple[FindingChange, ...]) -> list[FindingChange]:
    """Findings that are not the same on both sides, or not at one place: new ones first."""
    order = (Fate.NEW, Fate.CHANGED, Fate.GONE, Fate.SAME)
    told = (one for one in findings if one.fate is not Fate.SAME or one.moved)
    return sorted(told, key=lambda f: (order.index(f.fate), f.code, f.message))


def _points(share: float) -> str:
    """A difference of shares: points, so that nobody reads it as a change in per cent."""
    return f"{100 * share:.2g} points"


def _seconds(value: float) -> str:
    """Four digits, one more than elsewhere: two step times stand side by side here."""
    scale, name = next(((s, n) for s, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if abs(value) >= s), (1e-9, "ns"))
    return f"{value / scale:#.4g} {name}"


def _percent(ratio: float) -> str:
    """``+3.4 %``: the change of time, never mixed with a speed-up."""
    percent = 100 * (ratio - 1)
    return f"{percent:+.{2 if abs(percent) < 1 else 1 if abs(percent) < 100 else 0}f} %"


def _plain(percent: float) -> str:
    return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"
