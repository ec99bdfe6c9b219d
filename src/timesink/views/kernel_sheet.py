"""The sheet of a profiled kernel, and tables of all kernels with chosen columns.

A sheet begins with the verdict: limiter, roof and distance to it, then the bound; it in one screen, with what shows it
and what to do; the way to it, every figure that the report holds, with the digits that the profiler's details page
prints, and checks of the field.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from timesink.errors import UsageError
from timesink.knowledge.kernel_names import short_name
from timesink.knowledge.metric_names.sheet_figures import SHEET_COLUMNS, check_column
from timesink.measures.counters.causes import limiter_words
from timesink.measures.counters.checks import check_limits, checks_of
from timesink.measures.counters.limiter import why_unexplained
from timesink.measures.counters.machine_roofs import LeastBytes, least_bytes
from timesink.measures.counters.sheet import FIGURES, Figure, KernelSheet, Value, kernel_sheets, verdict_of
from timesink.model.trace import Trace
from timesink.rules.ncu.causes import actions
from timesink.views import Cell, Field, Page, Sheet, declare, sheet_of
from timesink.views.kernel_path import decision_path
from timesink.views.kernel_proof import proof_sheet
from timesink.views.kernels import LIMITER_WORDS, causes_sheet, kernel_entry, stalls_sheet

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_SCALED = {"bytes": "B", "bytes/s": "B/s", "Hz": "Hz", "FLOP/s": "FLOP/s"}
_VERDICT_FIELDS = {
    field.key: field
    for field in declare(
        Field("limiter", "limiter", is_name=True, words=LIMITER_WORDS),
        "limiter_pct: of its time [%], limiter_most_pct: at most [%], roof: nearest roof [text], "
        "roof_pct: of roof [%], roof_speedup: x to roof, bound_speedup: x without limiter",
    )
}
Least = Mapping[tuple[int, int], LeastBytes]
"""By rank and number of the launch."""
NOT_KNOWN: Least = {}
ALL_COLUMNS = SHEET_COLUMNS
_FIGURES = {figure.key: figure for figure in FIGURES}


def printed(value: Value, unit: str) -> str:
    """A figure with the digits that the profiler's details page prints: two after the point, none of a whole number."""
    if value is None or isinstance(value, str):
        return value or ""
    steps = _TIMES if unit == "ns" else _SCALES if unit in _SCALED else ((1.0, ""),)
    size, prefix = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    scaled = value / size
    digits = f"{int(scaled):,}" if scaled == int(scaled) else f"{scaled:,.2f}"
    return f"{digits} {prefix if unit == 'ns' else prefix + _SCALED.get(unit, unit)}".rstrip()


def chosen(trace: Trace, numbers: Sequence[int], pattern: str | None) -> tuple[KernelSheet, ...]:
    """The sheets of the launches of these numbers and of those whose name the expression is found in, in upper or lower
    case; of all without either. `UsageError` where there is none."""
    sheets = kernel_sheets(trace)
    try:
        name = None if pattern is None else re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}", remedy="give plain words") from error
    if not numbers and name is None:
        return sheets
    found = tuple(
        sheet
        for sheet in sheets
        if sheet.kernel.profile in numbers
        or (name is not None and (name.search(sheet.kernel.name) or name.search(short_name(sheet.kernel.name))))
    )
    if not found or set(numbers) - {sheet.kernel.profile for sheet in found}:
        last = sheets[-1].kernel.profile if sheets else 0
        raise UsageError("the report has no such kernel", remedy=f"ids are 0 to {last}; `timesink kernels` lists them")
    return found


def least_of(sheets: Sequence[KernelSheet], given: float | None, trace: Trace) -> Least:
    """What each of these launches must move at least: as given, else as the shapes of a timeline read with the report
    say. `UsageError` where bytes are given for several launches."""
    if given is None:
        return least_bytes(trace)
    if len(sheets) > 1:
        raise UsageError("bytes are those of one kernel", remedy="choose it with --id")
    return {_key(sheet): LeastBytes(given) for sheet in sheets}


def _key(sheet: KernelSheet) -> tuple[int, int]:
    return sheet.kernel.rank, sheet.kernel.profile


def sheets_page(sheets: Sequence[KernelSheet], limits: Mapping[str, float], least: Least = NOT_KNOWN) -> Page:
    """The sheets one after the other; the title is the verdict of the first."""
    allowed, one = check_limits(limits), len(sheets) == 1
    titles = ["in short" if one else verdict_sentence(sheet) for sheet in sheets]
    launches = zip(sheets, titles, _actions(sheets), strict=True)
    tables = (_tables(sheet, allowed, title, action, least) for sheet, title, action in launches)
    title = verdict_sentence(sheets[0]) if one else f"{len(sheets)} profiled kernels"
    notes = dict.fromkeys(chain.from_iterable(map(_notes, sheets)))
    return Page(title, tuple(chain.from_iterable(tables)), tuple(notes))


def verdict_sentence(sheet: KernelSheet) -> str:
    """The launch with its limiter, its roof and the distance to it; the bound after them."""
    found, kernel = verdict_of(sheet.limits), sheet.kernel
    time = f", {printed(kernel.duration_ns, 'ns')}" if kernel.duration_ns else ""
    start = f"{short_name(kernel.name)} (id {kernel.profile}{time}): {limiter_words(found['limiter'])}"
    if sheet.limits is None:
        return f"{start}, {why_unexplained(kernel)}"
    roof = f" at {printed(found['roof_pct'], '%')} of its {found['roof']} roof" if found["roof"] else ""
    distance = f", {printed(found['roof_speedup'], 'x')} to it" if found["roof_speedup"] else ""
    bound = f"; at most {printed(found['bound_speedup'], 'x')} without the limiter" if found["bound_speedup"] else ""
    return f"{start}{roof}{distance}{bound}{sheet.limits.doubt}"


def _actions(sheets: Sequence[KernelSheet]) -> tuple[str, ...]:
    return actions((sheet.kernel, sheet.limits) for sheet in sheets)


def _tables(sheet: KernelSheet, limits: Mapping[str, float], title: str, action: str, least: Least) -> Iterator[Sheet]:
    number = sheet.kernel.profile
    steps = enumerate(decision_path(sheet, least.get(_key(sheet))), 1)
    yield proof_sheet(sheet.kernel, sheet.limits, title, action)
    yield sheet_of(f"path_{number}", "the way to it", steps, "step, finding: what was found [text]")
    if sheet.limits is not None:
        yield causes_sheet(sheet.limits)
    groups: dict[str, list[Figure]] = {}
    for figure in FIGURES:  # stalls have a table of their own
        if figure.group != "stalls" and sheet.figures[figure.key] is not None:
            groups.setdefault(figure.group, []).append(figure)
    yield from (_figures(group, number, figures, sheet) for group, figures in groups.items())
    if sheet.limits is not None and sheet.limits.stalls is not None:
        yield stalls_sheet(sheet.limits.stalls, number)
    yield _checks(sheet, limits)


def _figures(group: str, number: int, figures: Sequence[Figure], sheet: KernelSheet) -> Sheet:
    """The figures of a group that are recorded, two side by side, so that a sheet fits on a page."""
    cells = [cell for figure in figures for cell in (figure.head, printed(sheet.figures[figure.key], figure.unit))]
    cells += [""] * (-len(cells) % 4)  # two pairs in a row
    columns = "figure_0: figure [text], value_0: value [text], figure_1: figure [text], value_1: value [text]"
    rows = zip(cells[::4], cells[1::4], cells[2::4], cells[3::4], strict=True)
    return sheet_of(f"{group.replace(' ', '_')}_{number}", group, rows, columns)


def _checks(sheet: KernelSheet, limits: Mapping[str, float]) -> Sheet:
    rows = []
    for one in checks_of(sheet, limits):
        unit = one.check.unit
        allowed = f"{'over' if one.check.above else 'under'} {printed(one.limit, unit)}"
        rows.append((one.check.name, printed(one.value, unit), allowed, one.says or "no", one.check.source))
    columns = "check [name], value [text], limit [text], says [text], source [text]"
    note = "limits of the field (--limit NAME=VALUE): what they say is not a verdict"
    return sheet_of(f"checks_{sheet.kernel.profile}", "checks", rows, columns, note)


def _notes(sheet: KernelSheet) -> Iterator[str]:
    """Which groups of figures the report does not hold."""
    groups = dict.fromkeys(figure.group for figure in FIGURES)
    held = {figure.group for figure in FIGURES if sheet.figures[figure.key] is not None}
    missing = [group for group in groups if group not in held]
    if missing and not sheet.kernel.is_failed:
        yield f"not recorded: {', '.join(missing)} (ncu --set full records them)"


def sheet_entries(
    sheets: Sequence[KernelSheet], limits: Mapping[str, float], least: Least = NOT_KNOWN
) -> list[dict[str, Any]]:
    """One entry per launch: that of `timesink kernels`, its path, checks and figures; what is not recorded is null."""
    allowed = check_limits(limits)
    return [
        {
            **kernel_entry(sheet.kernel, sheet.limits, action),
            "path": list(decision_path(sheet, least.get(_key(sheet)))),
            "causes": {cause.value: share for cause, share in sheet.limits.shares.items()} if sheet.limits else {},
            "checks": [
                {"name": one.check.name, "value": one.value, "limit": one.limit, "holds": one.holds, "says": one.says}
                for one in checks_of(sheet, allowed)
            ],
            "figures": dict(sheet.figures),
        }
        for sheet, action in zip(sheets, _actions(sheets), strict=True)
    ]


def table_page(sheets: Sequence[KernelSheet], columns: Sequence[str], sort: str | None) -> Page:
    """A row per launch with these columns, the largest of `sort` first."""
    return Page("profiled kernels", (table_of(sorted_by(sheets, sort), columns),))


def table_of(sheets: Sequence[KernelSheet], columns: Sequence[str]) -> Sheet:
    """A row per launch, in this order: its number, its name, these columns. `UsageError` for an unknown one."""
    for key in columns:
        check_column(key)
    shown = (_VERDICT_FIELDS.get(key) or _field(_FIGURES[key]) for key in columns)
    rows = ((sheet.kernel.profile, sheet.kernel.name, *_cells(sheet, columns)) for sheet in sheets)
    return sheet_of("kernels", "kernels", rows, declare("id, kernel [kernel]", *shown))


def _field(figure: Figure) -> Field:
    head = figure.head if figure.group in ("speed of light", "launch") else f"{figure.head} ({figure.group})"
    return Field(figure.key, head, "" if figure.is_text else figure.unit or "1")


def _cells(sheet: KernelSheet, columns: Sequence[str]) -> Iterator[Cell]:
    values = {**verdict_of(sheet.limits), **sheet.figures}
    yield from (values[key] for key in columns)


def sorted_by(sheets: Sequence[KernelSheet], sort: str | None) -> list[KernelSheet]:
    """The sheets with the largest figure first, texts by the alphabet, those without one last."""
    if sort is None:
        return list(sheets)
    check_column(sort)

    def order(sheet: KernelSheet) -> tuple[int, float, str]:
        value = next(_cells(sheet, [sort]))
        if isinstance(value, (int, float)):
            return 0, -value, ""
        return (2, 0.0, "") if value is None else (1, 0.0, value)

    return sorted(sheets, key=order)
