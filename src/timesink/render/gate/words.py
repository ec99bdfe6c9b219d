"""The words and figures of a gate: one sentence per verdict, shared by every format so that all say the same."""

from __future__ import annotations

from timesink.render.values import number_text, value_text
from timesink.verify.outcomes import ChangeVerdict, Effect, Fate, FindingChange, GateResult, GateRow, How, Outcome

SHOWN_ROWS = 15
MARKS = {
    Outcome.SLOWER: "✗",
    Outcome.FASTER: "✓",
    Outcome.NO_DIFFERENCE: "=",
    Outcome.INCONCLUSIVE: "?",
    Outcome.INVALID: "!",
}
_WORST_FIRST = (Outcome.INVALID, Outcome.SLOWER, Outcome.INCONCLUSIVE, Outcome.FASTER, Outcome.NO_DIFFERENCE)
_OTHER_WORDS = {Outcome.SLOWER: "worse", Outcome.FASTER: "better"}


def worst_first(rows: tuple[GateRow, ...]) -> list[GateRow]:
    """Gated rows before others, then by outcome, then the largest effect, then by name."""
    return sorted(rows, key=lambda row: (not row.gated, _WORST_FIRST.index(row.verdict.outcome), -_size(row), row.name))


def word(row: GateRow) -> str:
    """The outcome in words that fit the metric: a counter is worse, not slower."""
    if not row.gated:
        return "shown only"
    outcome = row.verdict.outcome
    return row.verdict.label if row.how is How.RUNS else _OTHER_WORDS.get(outcome, str(outcome))


def change(effect: Effect) -> str:
    """``+3.4 %``: the change of time, never mixed with a speed-up."""
    return _percent(effect.ratio)


def change_text(row: GateRow) -> str:
    """The change with its interval, or a counter's plain difference."""
    effect = row.verdict.effect
    if effect is not None:
        return f"{change(effect)} ({interval_text(effect)})"
    if row.how is How.RUNS or row.before is None or row.after is None:
        return "–"
    gap = row.after - row.before
    sign = "+" if gap > 0 else "-" if gap < 0 else "±"
    return f"{sign}{_points(abs(gap))}" if row.how is How.SHARE else f"{sign}{figure(abs(gap), row.unit)}"


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
    return value_text(value, unit) if unit else number_text(value)


def sentence(row: GateRow) -> str:
    """Everything about one row in one line, such as ``slower: +3.4 % (95 % CI ...), 6 pairs, threshold 2 %, ...``."""
    verdict = row.verdict
    parts = [f"{word(row)}: {change_text(row)}" if verdict.effect or verdict.reason is None else word(row)]
    if verdict.outcome is Outcome.FASTER and verdict.effect is not None:
        parts.append(f"speed-up {1 / verdict.effect.ratio:.3g}x")
    if verdict.pairs:
        parts.append(f"{verdict.pairs} pairs" if verdict.pairs != 1 else "1 pair")
    parts.append(f"threshold {_plain(100 * verdict.threshold_ratio)} %")
    if verdict.run_sd_ratio is not None:
        parts.append(f"run sd {_plain(100 * verdict.run_sd_ratio)} %")
    if verdict.false_alarm_ratio is not None:
        parts.append(f"p(false alarm) {_chance(verdict.false_alarm_ratio)}")
    return ", ".join(parts)


def why(verdict: ChangeVerdict) -> str:
    """Why nothing can be said and what would help, or ""."""
    if verdict.reason is None:
        return verdict.explanation
    said = f"{verdict.reason}: {verdict.explanation}" if verdict.explanation else str(verdict.reason)
    return f"{said}. To resolve: {verdict.to_resolve}" if verdict.to_resolve else said


def headline(result: GateResult) -> str:
    """One line for the whole gate. An invalid comparison shows no numbers."""
    outcome = result.outcome
    deciding = [row for row in worst_first(result.rows) if row.gated and row.verdict.outcome is outcome]
    name = f"{result.suite}: " if result.suite else ""
    if not deciding:
        return f"{name}{outcome}" + ("" if result.rows else ": nothing was compared")
    first = deciding[0]
    if outcome in (Outcome.INVALID, Outcome.INCONCLUSIVE):
        return f"{name}{first.name} {first.verdict.label}: {why(first.verdict)}"
    more = f" (and {len(deciding) - 1} more)" if len(deciding) > 1 and outcome is not Outcome.NO_DIFFERENCE else ""
    return f"{name}{first.name} {sentence(first)}{more}"


def finding_text(found: FindingChange) -> str:
    """``gone: H2D101 pageable-copy, 1.91 ms per step``."""
    known = [value for value in (found.before_ms, found.after_ms) if value is not None]
    size = " → ".join(value_text(value, "ms") for value in known)
    return f"{found.fate}: {found.code} {found.name}" + (f", {size} per step" if size else "")


def told(findings: tuple[FindingChange, ...]) -> list[FindingChange]:
    """Findings that are not the same on both sides: new ones first."""
    order = (Fate.NEW, Fate.CHANGED, Fate.GONE)
    return sorted((f for f in findings if f.fate in order), key=lambda f: (order.index(f.fate), f.code, f.message))


def _points(share: float) -> str:
    """A difference of shares: points, so that nobody reads it as a change in per cent."""
    return f"{100 * share:.2g} points"


def _seconds(value: float) -> str:
    """Four digits, one more than elsewhere: two step times stand side by side here."""
    scale, name = next(((s, n) for s, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if abs(value) >= s), (1e-9, "ns"))
    return f"{value / scale:#.4g} {name}"


def _size(row: GateRow) -> float:
    return abs(row.verdict.effect.ratio - 1) if row.verdict.effect is not None else 0.0


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.{_digits(100 * (ratio - 1))}f} %"


def _digits(percent: float) -> int:
    return 2 if abs(percent) < 1 else 1 if abs(percent) < 100 else 0


def _plain(percent: float) -> str:
    return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"


def _chance(ratio: float) -> str:
    return "< 0.1 %" if ratio < 0.001 else f"{_plain(100 * ratio)} %"
