"""What `nsys stats` prints: sums of kernels, copies, calls and ranges by name, as CSV, as JSON and as text.

A sum says how long what took in all, and neither when nor on which stream. Tables whose rows are no such sums (traces,
projections, launches with what became of them) are named and left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from timesink.errors import UnreadableTrace
from timesink.knowledge.profiler_texts import (
    ANALYSED,
    ANALYSIS,
    API_VERSION,
    CUDA_CALL,
    PROGRESS,
    RULED_COLUMN,
    SUMS_COLUMN,
    SUMS_TABLE,
)
from timesink.model.tables import SOURCES, SUMS
from timesink.model.trace import NoteKind, Trace, noted
from timesink.readers.ncu.csv_pages import number
from timesink.untrusted import read_rows, scrub
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed

_EXPORT: Final = "give the report itself, or its export: nsys export --type sqlite REPORT.nsys-rep"
_SCALES: Final[dict[str | None, float]] = {
    None: 1.0, "%": 0.01, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9,
    "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip
_COLUMNS: Final = {
    "Time": "time_ratio", "Total Time": "total_ns", "Total": "bytes",
    "Instances": "count", "Num Calls": "count", "Count": "count", "Operations": "count",
    "Avg": "mean_ns", "Average": "mean_ns", "Med": "median_ns", "Median": "median_ns",
    "Min": "min_ns", "Minimum": "min_ns", "Max": "max_ns", "Maximum": "max_ns", "StdDev": "", "Style": "",
}  # fmt: skip
_WHOLE: Final = ("count", "total_ns", "min_ns", "max_ns", "bytes")
_NAMED: Final = {"Name": "kernel", "Range": "range", "Operation": "copy"}


def read_stats(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The sums of the file. `UnreadableTrace` where it has none, or is no text of tables."""
    if path.stat().st_size > limits.most_held_bytes:
        raise UnreadableTrace(path, f"larger than {limits.most_held_bytes} bytes", remedy=_EXPORT)
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        if ANALYSIS.search(text) and not SUMS_TABLE.search(text):
            why, remedy = _analysed(text)
            raise UnreadableTrace(path, why, remedy=remedy)
        tables = list(_of_json(text)) or list(_of_lines(text))
    except ValueError as error:
        raise UnreadableTrace(path, f"no table of sums: {error}", remedy=_EXPORT) from error
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    others = damaged = 0
    for header, rows in tables:
        found = [(column[1], column[2]) if column else ("", None) for column in map(SUMS_COLUMN.match, header)]
        what = _summed([word for word, _ in found], [row[-1] for row in rows], path.name)
        others += what is None
        for row in rows if what else ():
            cells = _cells(found, row)
            damaged += cells is None
            key = (what, row[-1]) if what == "copy" else (what, len(sums))
            if cells is not None:
                sums.setdefault(key, dict.fromkeys(SUMS.columns)).update(
                    cells, rank=0, what=what, name=_plain(what, row[-1])
                )
    if not sums:
        why = "its tables are no sums of kernels, copies, calls or ranges" if others else "it holds no row of a table"
        raise UnreadableTrace(path, why, remedy=_EXPORT)
    frame = {name: [row[name] for row in sums.values()] for name in SUMS.columns}
    source = {"rank": [0], "path": [str(path)], "format": [format_name], "size_bytes": [path.stat().st_size]}
    notes = (
        *noted(NoteKind.SKIPPED, "tables that are no sums by name", others, SUMS),
        *noted(NoteKind.DAMAGE, "rows whose figures cannot be read", damaged, SUMS),
    )
    return Trace(str(path), {SOURCES: SOURCES.build(source), SUMS: SUMS.build(frame)}, notes)


def _analysed(text: str) -> tuple[str, str]:
    """What the rules of `nsys analyze` found, as a reason why this is no profile; and where that one is."""
    heads = [*ANALYSIS.finditer(text)]
    ends = [*(head.start() for head in heads[1:]), len(text)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        lines = [line.split() for line in text[head.end() : end].splitlines()]
        rows = sum(bool(words) and words[0].replace(",", "").replace(".", "").isdigit() for words in lines)
        found.append(f"{head['rule']} found {rows or 'nothing'}")
    report = ANALYSED.search(text)
    name = scrub(report["report"], 80) if report else "REPORT.nsys-rep"
    return (
        f"what `nsys analyze` prints: {', '.join(found)}; its rows have no whole that they are a part of",
        f"timesink diagnose {name}, the report that it looked at, says what they cost",
    )


_Table = tuple[list[str], list[list[str]]]


def _summed(words: Sequence[str], names: list[str], file: str) -> str | None:
    """What a table sums by name; None where a column says more than that."""
    figures = [_COLUMNS.get(word) for word in words[:-1]]
    if words[-1] not in _NAMED or None in figures or "count" not in figures:
        return None
    if words[-1] == "Name" and "Num Calls" in words:
        is_cuda = any(CUDA_CALL.match(name) for name in names) and "osrt" not in file
        return "api_call" if is_cuda else "os_call"
    return _NAMED[words[-1]]


def _plain(what: str | None, name: str) -> str:
    """The name as exports have it: calls without CUPTI's version, ranges without the colon of the default domain."""
    if what == "range":
        return name.removeprefix(":")
    return API_VERSION.sub("", name) if what == "api_call" else name


def _cells(columns: Sequence[tuple[str, str | None]], row: list[str]) -> dict[str, float | int] | None:
    """The figures of a row; of a table of sizes the mean and the extremes are left out. None where one is no number."""
    cells: dict[str, float | int] = {}
    is_size = columns[0][0] == "Total"
    for (word, unit), cell in zip(columns[:-1], row, strict=False):
        name, value = _COLUMNS[word], number(cell, decimal_comma=False)
        if not name or (is_size and name not in ("bytes", "count")):
            continue
        if value is None or not 0 <= value < 1e18:
            return None
        value *= _SCALES[unit]
        cells[name] = round(value) if name in _WHOLE else value
    return cells


def _of_json(text: str) -> Iterator[_Table]:
    """Arrays of objects: what stands between lines of a bracket alone, or the whole text."""
    _, *parts = ("\n" + text.replace("\r\n", "\n")).split("\n[\n")
    whole = [text] if text.lstrip()[:1] == "[" and text.lstrip("[ \t\r\n")[:1] in "{]" else []  # not `[3/8] Executing`
    for part in [f"[{part.partition(chr(10) + ']')[0]}]" for part in parts] or whole:
        objects = [row for row in parsed(part) if isinstance(row, dict) and row]
        if objects:
            header = list(objects[0])
            yield header, [[str(row.get(name, "")) for name in header] for row in objects]


def _of_lines(text: str) -> Iterator[_Table]:
    """Tables of CSV, tables in frames, and tables whose columns stand under rules."""
    head, header, rows = "", [], []  # type: tuple[str, list[str], list[list[str]]]
    spans: list[tuple[int, int]] = []
    for line in text.splitlines():
        if SUMS_TABLE.match(line):
            if header:
                yield header, rows
            head, header, rows, spans = line, _split(line), [], []
        elif header and not line.strip("- "):
            spans = [column.span() for column in RULED_COLUMN.finditer(line)] or spans
            header = _under(head, spans) if spans else header
        elif header and not PROGRESS.match(line):
            cells = _under(line, spans) if spans else _split(line, len(header) - 1)
            rows += [cells] if len(cells) == len(header) and cells[0][:1].isdigit() else []
    if header:
        yield header, rows


def _split(line: str, most: int = -1) -> list[str]:
    """Cells of a line of CSV, or of a table in a frame, where a name may hold what divides cells."""
    words = line.strip()
    if words.startswith("|"):
        return [cell.strip() for cell in words.strip("|").split("|", most)]
    return next(read_rows(words), [])


def _under(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """Cells of a line under rules; a name may pass the last rule."""
    return [line[begin:end].strip() for begin, end in spans[:-1]] + [line[spans[-1][0] :].strip()]
