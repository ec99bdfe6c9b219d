"""Two kernel reports side by side: which launch became which, its limiter before and after, and every figure of its
sheet with the difference. Exact counts are compared always, times only where the captures allow it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Self

from timesink.knowledge.kernel_names import short_name
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.comparison import Comparison, KernelPair, compare_reports
from timesink.measures.counters.sheet import FIGURES, Figure, KernelSheet, Value, kernel_sheets, verdict_of
from timesink.model.trace import Trace
from timesink.records import Record, replace
from timesink.views import Cell, Field, Page, Sheet, declare, listed, sheet_of
from timesink.views.figures import RooflineChart
from timesink.views.kernel_sheet import printed, table_of
from timesink.views.kernels import LIMITER_WORDS
from timesink.views.roofline import points_of, roofline_chart

ALIKE = 0.01  # figures that differ by less are noise of the profiler, and left out of what people read
_TIME = "duration_ns"


class SheetPair(Record, eq=False):
    """A pair of launches with their sheets."""

    pair: KernelPair
    before: KernelSheet
    after: KernelSheet


class ReportPair(Record, eq=False):
    """Two reports compared, each pair with its sheets."""

    result: Comparison
    pairs: tuple[SheetPair, ...]

    @classmethod
    def of(cls, before: Trace, after: Trace, chosen: Sequence[tuple[str, str]] = ()) -> Self:
        """The two reports compared; launches of `chosen` names or numbers are each other's."""
        old, new = ({sheet.kernel: sheet for sheet in kernel_sheets(trace)} for trace in (before, after))
        result = compare_reports(before, after, chosen)
        return cls(result, tuple(SheetPair(pair, old[pair.before], new[pair.after]) for pair in result.pairs))

    def only(self, sheets: Sequence[KernelSheet]) -> tuple[SheetPair, ...]:
        """The pairs of these launches of the earlier report, in their order."""
        pairs = {one.pair.before: one for one in self.pairs}
        return tuple(pairs[sheet.kernel] for sheet in sheets if sheet.kernel in pairs)


def comparison_page(both: ReportPair, detailed: Sequence[SheetPair]) -> Page:
    """Every pair in a row; of those `detailed`, every figure that differs."""
    result = both.result
    columns = declare(
        "id, kernel [kernel], id_after: now, before_ns: before, after_ns: after, time_ratio: after / before",
        Field("limiter_before", "limiter before", is_name=True, words=LIMITER_WORDS),
        Field("limiter_after", "after", is_name=True, words=LIMITER_WORDS),
        "roof_pct_before: of roof before [%], roof_pct_after: after [%]",
    )
    rows = (_row(one, bool(result.obstacles)) for one in both.pairs)
    sheets = [sheet_of("pairs", "kernels", rows, columns, "--id N or --name RE shows every figure that changed")]
    if proposed := [*_proposals(result)]:
        sheets.append(listed("kernel_comparison.proposed", proposed))
    counts = (
        (pair.before.profile, pair.before.name, label, old, new)
        for pair in result.pairs
        for label, (old, new) in pair.counts.items()
    )
    sheets.append(listed("kernel_comparison.counts", counts))
    sheets += [_differences(one, bool(result.obstacles)) for one in detailed]
    return Page("two reports: before and after", tuple(sheets), tuple(_notes(result)))


def moves_page(title: str, before: Trace, after: Trace) -> Page:
    """Both reports under their roofs, and every pair in a row."""
    page = comparison_page(ReportPair.of(before, after), ())
    return replace(page, charts=(moves_chart(title, before, after),))


def moves_chart(title: str, before: Trace, after: Trace) -> RooflineChart:
    """The kernels of both reports under their roofs, with an arrow from each to its counterpart at every level."""
    old, new = points_of(before), points_of(after)
    moves = tuple(
        (start, end)
        for pair in compare_reports(before, after).pairs
        for start in old[pair.before.profile]
        for end in new[pair.after.profile]
        if start.level == end.level
    )
    return replace(roofline_chart(title, before, after), moves=moves)


def columns_page(both: ReportPair, chosen: Sequence[SheetPair], columns: Sequence[str]) -> Page:
    """A row per pair with each of these figures before and after; the notes say where times may not be compared."""
    before, after = (table_of([getattr(one, side) for one in chosen], columns) for side in ("before", "after"))
    first = len(before.columns) - len(columns)
    sides = (("before", "{} before"), ("after", "after"))
    fields = (
        replace(column, key=f"{column.key}_{side}", head=head.format(column.head))
        for column in before.columns[first:]
        for side, head in sides
    )
    rows = (
        (*old[:first], new[0], *chain.from_iterable(zip(old[first:], new[first:], strict=True)))
        for old, new in zip(before.rows, after.rows, strict=True)
    )
    sheet = sheet_of("pairs", "kernels", rows, declare(*before.columns[:first], "id_after: now", *fields))
    return Page("two reports: before and after", (sheet,), tuple(_notes(both.result)))


def _row(one: SheetPair, without_times: bool) -> tuple[Cell, ...]:
    old, new, pair = verdict_of(one.before.limits), verdict_of(one.after.limits), one.pair
    times = (pair.before.duration_ns, pair.after.duration_ns, pair.time_ratio)
    verdicts = (old["limiter"] or "undecided", new["limiter"] or "undecided", old["roof_pct"], new["roof_pct"])
    shown = (None, None, None) if without_times else times
    return (pair.before.profile, pair.before.name, pair.after.profile, *shown, *verdicts)


def _proposals(result: Comparison) -> Iterator[tuple[Cell, ...]]:
    for pair in result.pairs:
        if pair.match.is_proposal:
            yield _named([pair.before]), _named([pair.after]), f"renamed: the same {pair.match.value}"
    for group in result.regrouped:
        how = "fused" if group.is_fusion else "split"
        yield _named(group.before), _named(group.after), f"{how}: in the same place"


def _named(kernels: Sequence[KernelCounters]) -> str:
    return ", ".join(f"{short_name(kernel.name)} ({kernel.profile})" for kernel in kernels)


def _differences(one: SheetPair, without_times: bool) -> Sheet:
    changes = [change for change in _changes(one) if not (without_times and change[0].key == _TIME)]
    rows = [
        (
            *(f"{figure.head} ({figure.group})", printed(old, figure.unit), printed(new, figure.unit)),
            _difference_text(figure, old, new),
        )
        for figure, old, new in changes
        if _differs(old, new)
    ]
    title = f"{short_name(one.before.kernel.name)} (id {one.before.kernel.profile}, now {one.after.kernel.profile})"
    note = f"{len(changes) - len(rows)} figures are the same or differ by less than {100 * ALIKE:.0f} %"
    columns = "figure [text], before [text], after [text], difference [text]"
    return sheet_of(f"figures_{one.before.kernel.profile}", title, rows, columns, note)


def _changes(one: SheetPair) -> Iterator[tuple[Figure, Value, Value]]:
    """Every figure that either report holds."""
    for figure in FIGURES:
        old, new = one.before.figures[figure.key], one.after.figures[figure.key]
        if old is not None or new is not None:
            yield figure, old, new


def _differs(old: Value, new: Value) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return abs(new - old) > ALIKE * max(abs(old), abs(new))
    return old != new


def _difference_text(figure: Figure, old: Value, new: Value) -> str:
    """With its sign; a ratio beside it where there is one."""
    if not (isinstance(old, float) and isinstance(new, float)):
        return ""
    sign = "+" if new > old else "-"
    ratio = f" ({new / old:.2f} x)" if old else ""
    unit = "points" if figure.unit == "%" else figure.unit
    return f"{sign}{printed(abs(new - old), unit)}{ratio}"


def _notes(result: Comparison) -> Iterator[str]:
    yield from (f"times are not compared: {obstacle}" for obstacle in result.obstacles)
    for label, lonely in (("only before", result.only_before), ("only after", result.only_after)):
        yield from (f"{label}: {kernel.function} (launch {kernel.profile})" for kernel in lonely)


def comparison_entries(both: ReportPair, chosen: Sequence[SheetPair]) -> dict[str, Any]:
    """The comparison for programs: of each chosen pair its limiters and every figure with its difference."""
    result = both.result
    regrouped = ((_ids(group.before), _ids(group.after), group.is_fusion) for group in result.regrouped)
    return {
        "times_comparable": not result.obstacles,
        "obstacles": list(result.obstacles),
        "pairs": [_entry(one) for one in chosen],
        "regrouped": [{"before": old, "after": new, "fused": fused} for old, new, fused in regrouped],
        "only_before": _ids(result.only_before),
        "only_after": _ids(result.only_after),
    }


def _ids(kernels: Sequence[KernelCounters]) -> list[dict[str, Any]]:
    return [{"id": kernel.profile, "kernel": kernel.name} for kernel in kernels]


def _entry(one: SheetPair) -> dict[str, Any]:
    old, new = verdict_of(one.before.limits), verdict_of(one.after.limits)
    verdicts = {key: _difference(old[key], new[key]) for key in old}
    figures = {figure.key: _difference(before, after) for figure, before, after in _changes(one)}
    return {
        "kernel": one.before.kernel.name,
        "kernel_after": one.after.kernel.name,
        "id": one.before.kernel.profile,
        "id_after": one.after.kernel.profile,
        "matched_by": one.pair.match.value,
        "proposed": one.pair.match.is_proposal,
        "counts": {name: {"before": before, "after": after} for name, (before, after) in one.pair.counts.items()},
        "verdict": verdicts,
        "figures": figures,
    }


def _difference(old: Value, new: Value) -> Mapping[str, Value]:
    both = isinstance(old, float) and isinstance(new, float)
    gap, ratio = (new - old, new / old if old else None) if both else (None, None)  # type: ignore[operator]
    return {"before": old, "after": new, "difference": gap, "ratio": ratio}
