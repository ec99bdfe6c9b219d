"""ncu's pages: ``--csv --page raw`` (one row per kernel), ``--csv --page details`` (one row per metric or rule), text.

Use a report where there is one: raw pages are rounded unless printed with ``--print-units base``, details pages always.
A page begins at its header, amid other output; its numbers are written as the machine that printed it writes them.

A text page has a line per kernel, then tables and rules by section. It holds what the CSV pages hold, and is read as
their rows; what a program printed between them is left out.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.knowledge import metric_names, profiler_texts
from timesink.knowledge import ncu_texts as texts
from timesink.knowledge.kernel_symbols import function_name
from timesink.knowledge.metric_names import INVOCATIONS, NOT_KNOWN, normalised
from timesink.model.tables import KERNEL_METRICS
from timesink.model.trace import NoteKind, Trace, noted
from timesink.readers.ncu.labels import labelled_metric
from timesink.readers.ncu.tables import KernelReport, Launch, ReportSession, RuleMessage, trace_of
from timesink.readers.ncu.wire import MetricColumns
from timesink.records import State, field
from timesink.untrusted import decoded, read_rows
from timesink.untrusted.budget import ReadLimits

_DIGITS = 10
ABSENT = ("", "n/a", "(!) n/a", "N/A", "no data")


def page_rows(text: str) -> tuple[list[str], list[list[str]], int]:
    """Header, rows of as many or fewer cells that carry a kernel number or units, and how many other lines there were.

    ncu prints a page amid its own ``==PROF==`` lines and the program's output, before the header and after it. A second
    page with the same header goes on with the first; of one with another header the lines are others.
    """
    found = texts.PAGE_HEADER.search(text)
    lines = read_rows(text[found.start() :] if found else "")
    header = next(lines, [])
    rows: list[list[str]] = []
    others = 0
    is_same = True
    for row in lines:
        if row[:2] == header[:2]:
            is_same = row == header
        elif is_same and len(row) > 1 and (row[0].isdigit() or (not rows and not row[0])):
            rows.append(row)
        else:
            others += bool(row)
    return header, rows, others


def writes_decimal_comma(cells: Iterable[str]) -> bool:
    """Whether the page's numbers use a comma for the decimal point, by the vote of the cells that leave no doubt."""
    votes = 0
    for cell in cells:
        votes += bool(texts.DECIMAL_COMMA.search(cell)) - bool(texts.DECIMAL_POINT.search(cell))
    return votes > 0


def number(cell: str, decimal_comma: bool) -> float | None:
    """The number in a cell, thousands separators removed; NaN for ``nan``; None where there is no number."""
    if cell in ABSENT:
        return None
    if not decimal_comma or "." not in cell:
        try:
            return float(cell)
        except ValueError:
            pass
    with_instances = texts.WITH_INSTANCES.match(cell)
    words = texts.GROUPED_DIGITS.sub("", with_instances.group(1) if with_instances else cell)
    if not words[:1].isdigit() and words[:1] not in "+-.":
        return math.nan if words.lower() in ("nan", "-nan") else None
    plain = words.replace(".", "").replace(",", ".") if decimal_comma else words.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


def three(cell: str) -> tuple[int, int, int] | None:
    """Of ``(384, 1, 1)`` the three numbers."""
    match [whole(part.strip()) for part in cell.strip(" ()").split(",")]:
        case [int(x), int(y), int(z)]:
            return x, y, z
        case _:
            return None


def whole(cell: str) -> int | None:
    """The number of a cell that is digits and fits 32 bits, which is what every number of a launch has; else None."""
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _DIGITS):
        return None
    number_of = int(cell)
    return number_of if number_of < 1 << 31 else None


_COMPUTE_CAPABILITY = ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor")
_SHAPE = ("Grid Size", "Block Size")
_SECTION, _METRIC, _VALUE = "Section Name", "Metric Name", "Metric Value"
_MEAN = "Average"  # of a summary over launches
_KINDS = {"INF": "ok", "OPT": "optimization", "WRN": "warning", "ERR": "error"}
_RECAPTURE = "export again with `ncu --import REPORT --csv --page raw --print-units base`"


def read_page(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The kernels of a raw or details page. `UnreadableTrace` where it holds none, or is another of ncu's pages."""
    if path.stat().st_size > limits.most_held_bytes:
        raise UnreadableTrace(path, f"larger than {limits.most_held_bytes} bytes", remedy=_RECAPTURE)
    try:
        text = decoded(path.read_bytes())
        header, rows, others = page_rows(text)
        if not header and (shown := text_rows(text)):
            header, rows = list(DETAILS), shown
    except ValueError as error:
        raise UnreadableTrace(path, f"no CSV page: {error}", remedy=_RECAPTURE) from error
    if not header and (other := texts.OTHER_PAGE.search(text)):
        named = "source" if other.group("source") else "session"
        raise UnreadableTrace(path, f"ncu's {named} page, which has no counters of kernels", remedy=_RECAPTURE)
    if _METRIC in header and not {_VALUE, _MEAN} & {*header}:
        raise UnreadableTrace(path, "its details page has no column of values", remedy=_RECAPTURE)
    pages = _details(header, rows) if _METRIC in header else _raw(header, rows)
    if not pages.launches:
        raise UnreadableTrace(path, "the page holds no kernel", remedy=_RECAPTURE)
    if not pages.has_units:
        _check_base_units(path, pages)
    return trace_of(path, pages.report(format_name, others))


class _Pages(State):
    """Kernels and their metrics as they are gathered from rows."""

    launches: list[Launch] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    units: list[str | None] = field(default_factory=list)
    session: ReportSession = field(default_factory=ReportSession)
    profile: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    value: list[float | None] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    unknown: int = 0
    summed: int = 0
    has_units: bool = True
    keys: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add_cell(
        self, profile: int, metric: str, scale: tuple[str | None, float], cell: str, decimal_comma: bool
    ) -> None:
        """Add what a cell holds, if anything; `scale` is the base unit, and what to multiply by to come to it."""
        if cell in ABSENT:
            if cell and metric_names.meant_by(metric):
                self.add_metric(profile, metric, None, None, NOT_KNOWN)
        else:
            unit, factor = scale
            value = number(cell, decimal_comma)
            self.add_metric(profile, metric, unit, None if value is None else value * factor, cell)

    def add_metric(self, profile: int, metric: str, unit: str | None, value: float | None, cell: str) -> None:
        number_of = self.names.setdefault(metric, len(self.names))
        if number_of == len(self.units):
            self.units.append(unit)
        if value is None:
            self.texts[len(self.value)] = cell
        self.profile.append(profile)
        self.name.append(number_of)
        self.value.append(value)

    def report(self, format_name: str, other_lines: int) -> KernelReport:
        values = np.array([np.nan if value is None else value for value in self.value], dtype=np.float64)
        is_number = np.array([value is not None for value in self.value], dtype=np.bool_)
        profile, name = np.array(self.profile, dtype=np.int32), np.array(self.name, dtype=np.int64)
        metrics = MetricColumns(profile, name, values, is_number, self.texts)
        unknown = "details rows whose label is no known metric"
        notes = (
            *noted(NoteKind.SKIPPED, "lines that belong to no page", other_lines, KERNEL_METRICS),
            *noted(NoteKind.SKIPPED, unknown, self.unknown, KERNEL_METRICS),
            *noted(
                NoteKind.ASSUMED,
                "summaries: launches of one are taken for alike, with their means",
                self.summed,
                KERNEL_METRICS,
            ),
        )
        names = list(self.names)
        return KernelReport(format_name, self.launches, names, metrics, self.session, units=self.units, notes=notes)


def _launch(cells: Mapping[str, str], pages: _Pages) -> Launch:
    name = cells.get("Kernel Name", "")
    process, context, stream = (cells.get(key, "") for key in ("Process ID", "Context", "Stream"))
    pages.session.host = cells.get("Host Name") or pages.session.host
    return Launch(
        process=whole(process) or 0,
        demangled=name,
        function=function_name(name),
        grid=three(cells.get("Grid Size", "")),
        block=three(cells.get("Block Size", "")),
        context=whole(context),
        stream=whole(stream),
    )


def _add_fixed(cells: Mapping[str, str], pages: _Pages, profile: int) -> None:
    """Device and compute capability have columns of their own here; a report has them as metrics."""
    major, minor = (whole(part) for part in (*cells.get("CC", "").split("."), "", "")[:2])
    fixed = {"launch__device_id": whole(cells.get("Device", ""))}
    if major is not None and minor is not None:
        fixed |= dict(zip(_COMPUTE_CAPABILITY, (major, minor), strict=True))
    for name, value in fixed.items():
        if value is not None:
            pages.add_metric(profile, name, None, float(value), "")


def _add_count(cells: Mapping[str, str], pages: _Pages, profile: int) -> None:
    """How many launches a summary is of, whose figures are their means."""
    count = whole(cells.get(INVOCATIONS, ""))
    if count:
        pages.summed += 1
        pages.add_metric(profile, INVOCATIONS, None, float(count), "")


def _raw(header: list[str], rows: list[list[str]]) -> _Pages:
    pages = _Pages()
    printed = rows.pop(0) if rows and not rows[0][0] else []
    pages.has_units = bool(printed)
    # Heads of more than one word name the launch and its ranges; metrics are single words.
    columns = [column for column, name in enumerate(header) if "__" in name or (name.islower() and " " not in name)]
    scales = [normalised(printed[column] if column < len(printed) else "") for column in range(len(header))]
    comma = writes_decimal_comma(row[column] for row in rows[:64] for column in columns if column < len(row))
    for profile, row in enumerate(rows):
        cells = dict(zip(header, row, strict=False))
        pages.launches.append(_launch(cells, pages))
        _add_fixed(cells, pages, profile)
        for column in columns:
            cell = row[column] if column < len(row) else ""
            if header[column] not in _COMPUTE_CAPABILITY:
                pages.add_cell(profile, header[column], scales[column], cell, comma)
        _add_device(pages, cells, comma)
    return pages


def _add_device(pages: _Pages, cells: Mapping[str, str], comma: bool) -> None:
    device = whole(cells.get("Device", ""))
    if device is None or device in pages.session.devices:
        return
    stated = {name: cell for name, cell in cells.items() if name.startswith("device__attribute_") and cell}
    values = {name: number(cell, comma) for name, cell in stated.items()}
    pages.session.devices[device] = {name: stated[name] if value is None else value for name, value in values.items()}


def _check_base_units(path: Path, pages: _Pages) -> None:
    """Without units the figures must be base units: then cycles over nanoseconds give the clock of a GPU, in GHz."""
    found = dict(zip(pages.name, pages.value, strict=True))
    cycles = next((found[pages.names[name]] for name in _CYCLES if pages.names.get(name) in found), None)
    time_ns = found.get(pages.names.get("gpu__time_duration.sum", -1))
    if cycles and time_ns and not _LEAST_GHZ < cycles / time_ns < _MOST_GHZ:
        why = "its figures are scaled, and the units they are scaled to are missing"
        raise UnreadableTrace(path, why, remedy=_RECAPTURE)


_CYCLES = ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max", "sm__cycles_elapsed.avg")
_LEAST_GHZ, _MOST_GHZ = 0.1, 10.0  # no GPU is slower or faster, and a wrong prefix is a factor of 1000


def _details(header: list[str], rows: list[list[str]]) -> _Pages:
    """One row per metric or rule. Old versions print fewer columns, `--page raw` of theirs too."""
    pages = _Pages(has_units="Metric Unit" in header)
    value = _VALUE if _VALUE in header else _MEAN
    value_at = header.index(value)
    comma = writes_decimal_comma(row[value_at] for row in rows if len(row) > value_at)
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        key = tuple(cells.get(name, "") for name in ("ID", "Process ID", "Kernel Name", *_SHAPE))
        profile = pages.keys.setdefault(key, len(pages.keys))
        if profile == len(pages.launches):
            pages.launches.append(_launch(cells, pages))
            _add_fixed(cells, pages, profile)
            _add_count(cells, pages, profile)
        if cells.get(_METRIC):
            metric = metric_of(cells.get(_SECTION, ""), cells[_METRIC])
            pages.unknown += metric is None
            if metric is not None:
                pages.add_cell(profile, metric, normalised(cells.get("Metric Unit", "")), cells.get(value, ""), comma)
        elif cells.get("Rule Name"):
            pages.launches[profile].rules.append(_rule(cells, comma))
    return pages


def _rule(cells: Mapping[str, str], comma: bool) -> RuleMessage:
    percent = number(cells.get("Estimated Speedup", ""), comma)
    return RuleMessage(
        cells["Rule Name"],
        cells.get("Section Name") or None,
        _KINDS.get(cells.get("Rule Type", ""), "none"),
        None,
        cells.get("Rule Description", ""),
        cells.get("Estimated Speedup Type") or None,
        percent,
    )


def metric_of(section: str, label: str) -> str | None:
    """The metric that a details page shows under that label, or names after it; the label itself where it is one."""
    if "__" in label:
        named = texts.NAMED_METRIC.search(label)
        return named.group(1) if named else label
    if label.islower() and " " not in label and ("." in label or not section):
        return label  # of a raw page, or a name that somebody typed
    return labelled_metric(section, label)


DETAILS = (
    *("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
    *("Invocations", "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
    *("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"),
)
_OF_LAUNCH = ("Kernel Name", "Grid Size", "Block Size", "Context", "Stream", "Device", "CC", "Invocations")


def text_rows(text: str) -> list[list[str]]:
    """The rows of a details page with the columns `DETAILS`, of a text page; none where it is no such page."""
    rows: list[list[str]] = []
    launch: dict[str, str] = {}
    process, section, number = "", "", -1
    spans: list[tuple[int, int]] = []
    rule: dict[str, str] | None = None
    for whole_line in text.splitlines():
        line = texts.QUOTED_LINE.sub("", whole_line)
        words = line.strip()
        if found := texts.PROCESS_LINE.search(line):
            process = found.group(1)
        elif found := texts.KERNEL_LINE.search(line):
            number += 1
            launch = dict(zip(_OF_LAUNCH, (cell or "" for cell in found.groups()), strict=True))
            launch |= {"ID": str(number), "Process ID": process}
            section, spans, rule = "", [], None
        elif not launch:
            continue
        elif words.startswith("Section: "):
            section, spans, rule = words.removeprefix("Section: "), [], None
        elif len(columns := list(profiler_texts.RULED_COLUMN.finditer(line))) > 1 and not words.strip("- "):
            spans, rule = [column.span() for column in columns], None
        elif found := texts.RULE_LINE.search(line):
            rule = {"Rule Name": section, "Rule Type": found.group(1), "Rule Description": found.group(2).strip()}
            rows.append(_row(launch, section, rule))
        elif rule is not None and words:
            rule["Rule Description"] += f" {words}"
            rows[-1] = _row(launch, section, rule)
        elif not words:
            rule = None
        elif spans and (name := line[: spans[0][1]].strip()):
            value = line.rfind(" ", 0, spans[-1][0] + 1) + 1  # a long one begins before its column
            unit = line[spans[1][0] : min(spans[1][1], value)].strip()
            shown = {"Metric Name": name, "Metric Unit": unit, "Metric Value": line[value:].strip()}
            rows.append(_row(launch, section, shown))
    return rows


def _row(launch: dict[str, str], section: str, shown: dict[str, str]) -> list[str]:
    cells = {**launch, "Section Name": section, **shown}
    if found := texts.SPEEDUP_LINE.match(cells.get("Rule Description", "")):
        kind = (found.group(1) or "global").lower().strip()
        cells |= {"Estimated Speedup Type": kind, "Estimated Speedup": found.group(2)}
        cells["Rule Description"] = cells["Rule Description"][found.end() :].strip()
    return [cells.get(name, "") for name in DETAILS]
