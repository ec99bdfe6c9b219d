"""ncu's CSV pages: ``--csv --page raw`` (one row per kernel) and ``--csv --page details`` (one row per metric or rule).

Use a report where there is one: raw pages are rounded unless printed with ``--print-units base``, details pages always.
A page begins at its header, amid other output; its numbers are written as the machine that printed it writes them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.knowledge.kernels import function_name
from timesink.knowledge.metric_names import normalised
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.ncu.tables import KernelReport, Launch, ReportSession, RuleMessage, trace_of
from timesink.readers.ncu.wire import MetricColumns
from timesink.untrusted.unpack import ReadLimits

HEADER_START = '"ID","Process ID","Process Name"'
_POINT = re.compile(profiler_texts.DECIMAL_POINT)
_COMMA = re.compile(profiler_texts.DECIMAL_COMMA)
_WITH_INSTANCES = re.compile(profiler_texts.WITH_INSTANCES)
_DIGITS = 10
ABSENT = ("", "n/a", "(!) n/a", "N/A", "no data")


def page_rows(text: str) -> tuple[list[str], list[list[str]], int]:
    """Header, rows of as many or fewer cells that carry a kernel number or units, and how many other lines there were.

    ncu prints a page amid its own ``==PROF==`` lines and the program's output, before the header and after it.
    """
    start = text.find(HEADER_START)
    lines = csv.reader(io.StringIO(text[start:]))
    header = next(lines, [])
    rows: list[list[str]] = []
    others = 0
    for row in lines:
        if len(row) > 1 and (row[0].isdigit() or (not rows and not row[0])):
            rows.append(row)
        else:
            others += bool(row)
    return header, rows, others


def writes_decimal_comma(cells: Iterable[str]) -> bool:
    """Whether the page's numbers use a comma for the decimal point, by the vote of the cells that leave no doubt."""
    votes = 0
    for cell in cells:
        votes += bool(_COMMA.search(cell)) - bool(_POINT.search(cell))
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
    with_instances = _WITH_INSTANCES.match(cell)
    words = with_instances.group(1) if with_instances else cell
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


_FIXED = 11  # columns before the first metric: ID ... CC
_KINDS = {"INF": "ok", "OPT": "optimization", "WRN": "warning", "ERR": "error"}
_RECAPTURE = "export again with `ncu --import REPORT --csv --page raw --print-units base`"


def read_page(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The kernels of a raw or details page. `UnreadableTrace` where it holds none."""
    if path.stat().st_size > limits.most_held_bytes:
        raise UnreadableTrace(path, f"larger than {limits.most_held_bytes} bytes", remedy=_RECAPTURE)
    try:
        header, rows, others = page_rows(path.read_text(encoding="utf-8-sig", errors="replace"))
    except csv.Error as error:
        raise UnreadableTrace(path, f"no CSV page: {error}", remedy=_RECAPTURE) from error
    if header[_FIXED : _FIXED + 1] == ["Section Name"] and "Metric Name" in header:
        pages = _details(header, rows)
    elif "Invocations" in header:
        raise UnreadableTrace(path, "a summary over launches, which names no single kernel", remedy=_RECAPTURE)
    else:
        pages = _raw(header, rows)
    if not pages.launches:
        raise UnreadableTrace(path, "the page holds no kernel", remedy=_RECAPTURE)
    return trace_of(path, pages.report(format_name, others))


@dataclass(slots=True)
class _Pages:
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
        notes = []
        if other_lines:
            notes.append(ImportNote(NoteKind.SKIPPED, "lines that belong to no page", other_lines, "kernel_metrics"))
        if self.unknown:
            why = "details rows whose label names no metric timesink knows"
            notes.append(ImportNote(NoteKind.SKIPPED, why, self.unknown, "kernel_metrics"))
        return KernelReport(
            format_name, self.launches, list(self.names), metrics, self.session, units=self.units, notes=tuple(notes)
        )


def _launch(header: Sequence[str], row: Sequence[str], pages: _Pages) -> Launch:
    cells = dict(zip(header[:_FIXED], row, strict=False))
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


def _add_fixed(header: Sequence[str], row: Sequence[str], pages: _Pages, profile: int) -> None:
    """Device and compute capability have columns of their own here; a report has them as metrics."""
    cells = dict(zip(header[:_FIXED], row, strict=False))
    if (device := whole(cells.get("Device", ""))) is not None:
        pages.add_metric(profile, "launch__device_id", None, float(device), "")
    major, minor = (whole(part) for part in (*cells.get("CC", "").split("."), "", "")[:2])
    if major is not None and minor is not None:
        pages.add_metric(profile, "device__attribute_compute_capability_major", None, float(major), "")
        pages.add_metric(profile, "device__attribute_compute_capability_minor", None, float(minor), "")


def _raw(header: list[str], rows: list[list[str]]) -> _Pages:
    pages = _Pages()
    printed = rows.pop(0) if rows and not rows[0][0] else []
    scales = [normalised(printed[column] if column < len(printed) else "") for column in range(len(header))]
    comma = writes_decimal_comma(cell for row in rows[:64] for cell in row[_FIXED:])
    taken = {"device__attribute_compute_capability_major", "device__attribute_compute_capability_minor"}
    for profile, row in enumerate(rows):
        pages.launches.append(_launch(header, row, pages))
        _add_fixed(header, row, pages, profile)
        for column in range(_FIXED, min(len(header), len(row))):
            cell = row[column]
            if cell in ABSENT or header[column] in taken:
                continue
            unit, factor = scales[column]
            value = number(cell, comma)
            pages.add_metric(profile, header[column], unit, None if value is None else value * factor, cell)
        _add_device(pages, header, row, comma)
    return pages


def _add_device(pages: _Pages, header: Sequence[str], row: Sequence[str], comma: bool) -> None:
    device = whole(row[9]) if len(row) > 9 else None
    if device is None or device in pages.session.devices:
        return
    attributes: dict[str, float | str] = {}
    for name, cell in zip(header[_FIXED:], row[_FIXED:], strict=False):
        if name.startswith("device__attribute_") and cell:
            value = number(cell, comma)
            attributes[name] = cell if value is None else value
    pages.session.devices[device] = attributes


def _details(header: list[str], rows: list[list[str]]) -> _Pages:
    pages = _Pages()
    place = {name: column for column, name in enumerate(header)}
    comma = writes_decimal_comma(row[14] for row in rows if len(row) > 14)
    profiles: dict[str, int] = {}
    for row in rows:
        profile = profiles.setdefault(row[0], len(profiles))
        if profile == len(pages.launches):
            pages.launches.append(_launch(header, row, pages))
            _add_fixed(header, row, pages, profile)
        cells = {name: row[column] for name, column in place.items() if column < len(row)}
        if cells.get("Metric Name"):
            _add_detail(pages, profile, cells, comma)
        elif cells.get("Rule Name"):
            pages.launches[profile].rules.append(_rule(cells, comma))
    return pages


def _add_detail(pages: _Pages, profile: int, cells: dict[str, str], comma: bool) -> None:
    metric = metric_of(cells.get("Section Name", ""), cells["Metric Name"])
    if metric is None:
        pages.unknown += 1
        return
    cell = cells.get("Metric Value", "")
    unit, factor = normalised(cells.get("Metric Unit", ""))
    value = number(cell, comma)
    pages.add_metric(profile, metric, unit, None if value is None else value * factor, cell)


def _rule(cells: dict[str, str], comma: bool) -> RuleMessage:
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
    """The metric that a details page shows under that label; the label itself where it is a metric's name already."""
    if "__" in label:
        return label
    return _labels().get(f"{section}|{label}") or _labels().get(f"|{label}")


@cache
def _labels() -> dict[str, str]:
    text = files("timesink.knowledge.metric_names").joinpath("labels.json").read_text(encoding="utf-8")
    loaded: dict[str, str] = json.loads(text)
    return loaded
