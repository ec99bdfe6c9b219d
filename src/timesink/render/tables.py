"""Figures, cells and sheets as text: the unit is scaled, a figure keeps three digits; a table fits a width.

Figures stay whole, with their units. Sentences and names wrap. Where the columns do not fit beside each other, they go
on below, each part beginning with the names of its rows. Commands stand below the table on lines of their own, whole,
so that they can be copied.
"""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from itertools import product
from textwrap import fill, wrap
from typing import Literal, assert_never

from timesink.diagnosis.verdicts import Quantity
from timesink.knowledge.kernel_names import short_names
from timesink.records import Record
from timesink.render import Style
from timesink.units import NS_PER_MS, NS_PER_S, NS_PER_US, bytes_text, rate_text, share_text, time_text
from timesink.untrusted import defuse_lines, scrub, scrub_sentence, shortened, starts_formula
from timesink.views import Cell, Field, Page, Sheet

_NS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
_BYTES = {"bytes": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_RATES = {
    **{unit: (size, "B/s") for unit, size in (("bytes/s", 1.0), ("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9))},
    **{unit: (1.0, unit) for unit in ("FLOP/s", "Hz")},
}
_SHARES = ("ratio", "share")
# Stands for a space at which no line may be broken; scrubbed text cannot hold it, being private use.
TIE = "\ue000"
# The space between a figure and its unit, of any sentence.
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kMGT]?B(?:/s)?)(?![\w]))")


def value_text(value: float, unit: str) -> str:
    """One figure with its unit: ``12.3 ms``, ``48.0 %``, ``1,234 kernels``."""
    if not math.isfinite(value):
        return "unknown"
    if unit in _NS:
        return time_text(value * _NS[unit])
    if unit in _SHARES:
        return share_text(value)
    if unit in _BYTES:
        return bytes_text(value * _BYTES[unit])
    if unit in _RATES:
        size, name = _RATES[unit]
        return rate_text(value * size, name)
    return f"{number_text(value)} {unit}".rstrip()


def limit_value_text(value: float, unit: str) -> str:
    """A limit as it was written, without digits it never had: ``10 %``, ``2 ms``."""
    return f"{100 * value:.4g} %" if unit in _SHARES else f"{value:g} {unit}".rstrip()


def number_text(value: float) -> str:
    """A plain number: whole ones with separators, others with three digits or more."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.3g}"


def quantity_text(quantity: Quantity) -> str:
    """The figure, and the interval it lies in where that is known."""
    text = value_text(quantity.value, quantity.unit)
    if quantity.low is None and quantity.high is None:
        return text
    low = "…" if quantity.low is None else value_text(quantity.low, quantity.unit)
    high = "…" if quantity.high is None else value_text(quantity.high, quantity.unit)
    return f"{text} ({low} to {high})"


def cell_text(cell: Cell, column: Field) -> str:
    """A value scaled for people; `–` where it is not known."""
    match cell:
        case None:
            return "–"
        case bool():
            return "yes" if cell else "no"
        case int() | float():
            text = value_text(cell, column.unit) if column.unit not in ("", "1") else number_text(cell)
            return f"+{text}" if column.is_change and cell > 0 else text
        case str() if column.words:
            return column.words.get(cell) or scrub(cell)
        case str():
            return scrub(cell) if column.is_name else scrub_sentence(cell)
        case _:
            assert_never(cell)


def tied(text: str) -> str:
    """The text with every figure tied to its unit by `TIE`, so that wrapping does not part them."""
    return _FIGURE.sub(TIE, text)


def filled(text: str, width: int) -> str:
    """The text in lines of that width, every figure beside its unit."""
    return fill(tied(text), width).replace(TIE, " ")


def printed(text: str) -> str:
    """What a terminal is sent: without trailing blanks, and with no line a log would obey."""
    return defuse_lines("\n".join(line.rstrip() for line in text.replace(TIE, " ").split("\n")))


# The space between columns and the least width of a name and of a sentence, the roomiest first; where none fits, the
# columns are parted.
FITS = ((3, 18, 24), (2, 18, 24), (2, 12, 14))
ONE_OF = ("rank", "device")  # columns that say nothing where all rows have the same
_NAME_LINES = 3
# Where a name may be broken: places between characters, which only a pattern can name.
_BREAKS = re.compile(r"(?<=[\s:/_.,>)\]}-])(?=[^\s:/_.,>)\]}-])|(?<=[a-z])(?=[A-Z])")

Kind = Literal["figure", "name", "sentence", "command"]
Line = tuple[Literal["head", "row", "command"], str]


class TextColumn(Record):
    """A column as text: `natural` is the width it would like to have."""

    head: str
    kind: Kind
    cells: tuple[str, ...]

    @property
    def natural(self) -> int:
        """The longest cell or head on one line."""
        widest = max(map(len, self.cells), default=0)
        return max(widest, _longest_word(self.head) if self.kind == "figure" else len(self.head))

    def least(self, name: int, sentence: int) -> int:
        """A figure needs all of it; names and sentences of so many characters at least can wrap."""
        floor = {"name": name, "sentence": sentence}.get(self.kind, self.natural)
        return min(self.natural, max(floor, _longest_word(self.head)))

    def lines(self, row: int, width: int) -> list[str]:
        """A cell of that width."""
        if self.kind == "sentence":
            return wrap(tied(self.cells[row]), width) or [""]
        return wrapped_name(self.cells[row], width) if self.kind == "name" else [self.cells[row].rjust(width)]


class Fit(Record):
    """A width to fit columns into, the space between them and the least width of a name and of a sentence."""

    width: int
    gap: int
    name: int
    sentence: int

    def least(self, columns: Sequence[TextColumn]) -> int:
        """What the columns need beside each other."""
        return sum(column.least(self.name, self.sentence) for column in columns) + self.gap * (len(columns) - 1)

    def holds(self, columns: Sequence[TextColumn]) -> bool:
        """Whether they fit."""
        return self.least(columns) <= self.width


def table_lines(sheet: Sheet, width: int, *, left_out: Iterable[str] = (), full_names: bool = False) -> list[Line]:
    """The lines of the table. `left_out` are the keys of columns that are not shown."""
    columns = [
        _column(field, [row[at] for row in sheet.rows], full_names)
        for at, field in enumerate(sheet.columns)
        if field.key not in left_out
    ]
    shown = [column for column in columns if column.kind != "command"]
    lines: list[Line] = []
    for part, fit in _parts(shown, width):
        lines += [("row", "")] if lines else []
        lines += _part_lines(part, fit, len(sheet.rows))
    commands = [cell for column in columns if column.kind == "command" for cell in column.cells]
    lines += [("row", "")] if commands and lines else []
    lines += [("command", f"  {cell}") for cell in commands]
    return lines


def wrapped_name(name: str, width: int) -> list[str]:
    """A name on a few lines, broken behind punctuation where there is some; what does not fit goes from its middle."""
    lines = [""]
    for piece in _BREAKS.split(shortened(name, _NAME_LINES * width - _NAME_LINES)):
        for part in (piece[at : at + width] for at in range(0, len(piece), width)):
            if len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
    if len(lines) <= _NAME_LINES:
        return [line.rstrip() for line in lines]
    cut = shortened(name, _NAME_LINES * width)
    return [cut[at : at + width] for at in range(0, len(cut), width)]


def _column(field: Field, cells: Sequence[Cell], full_names: bool) -> TextColumn:
    texts = [cell_text(cell, field) for cell in cells]
    if field.is_kernel and not full_names:
        short = short_names(cell for cell in cells if isinstance(cell, str))
        texts = [scrub(short.get(str(cell), text)) for cell, text in zip(cells, texts, strict=True)]
    kind: Kind = "figure" if field.unit else "name" if field.is_name else "sentence"
    return TextColumn(scrub(field.head), "command" if field.is_command else kind, tuple(texts))


def _parts(columns: Sequence[TextColumn], width: int) -> list[tuple[Sequence[TextColumn], Fit]]:
    """The columns in groups that fit, the roomiest first; columns without a value are left out before names are
    squeezed. Where one group does not hold them, each begins with the first name among them."""
    valued = [column for column in columns if set(column.cells) - {"–", ""}] or columns
    for fit, some in product((Fit(width, *fit) for fit in FITS), (columns, valued)):
        if fit.holds(some):
            return [(some, fit)]
    key = next((column for column in valued if column.kind == "name"), valued[0])
    parts: list[list[TextColumn]] = [[key]]
    for column in valued:
        if column is key:
            continue
        if len(parts[-1]) > 1 and not fit.holds([*parts[-1], column]):
            parts.append([key])
        parts[-1].append(column)
    return [(part, fit) for part in parts]


def _part_lines(columns: Sequence[TextColumn], fit: Fit, rows: int) -> list[Line]:
    widths = _widths(columns, fit)
    heads = [wrap(column.head, room) or [""] for column, room in zip(columns, widths, strict=True)]
    height = max(map(len, heads))
    above = zip(*([""] * (height - len(head)) + head for head in heads), strict=True)
    lines: list[Line] = [("head", _line(columns, widths, fit, head)) for head in above]
    lines.append(("row", "─" * (sum(widths) + fit.gap * (len(widths) - 1))))
    for row in range(rows):
        cells = [column.lines(row, room) for column, room in zip(columns, widths, strict=True)]
        height = max(map(len, cells))
        full = zip(*(cell + [""] * (height - len(cell)) for cell in cells), strict=True)
        lines += [("row", _line(columns, widths, fit, line)) for line in full]
    return lines


def _line(columns: Sequence[TextColumn], widths: Sequence[int], fit: Fit, cells: Iterable[str]) -> str:
    placed = (
        cell.rjust(room) if column.kind == "figure" else cell.ljust(room)
        for column, room, cell in zip(columns, widths, cells, strict=True)
    )
    return (" " * fit.gap).join(placed).rstrip()


def _widths(columns: Sequence[TextColumn], fit: Fit) -> list[int]:
    """Each column's least width, then what is left over, a character at a time to the one that lacks most."""
    widths = [column.least(fit.name, fit.sentence) for column in columns]
    for _ in range(fit.width - fit.least(columns)):
        lacking = [column.natural - room for column, room in zip(columns, widths, strict=True)]
        if max(lacking) <= 0:
            break
        widths[lacking.index(max(lacking))] += 1
    return widths


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)


def of_one(sheets: Iterable[Sheet]) -> set[str]:
    """Of the columns that tell ranks and GPUs apart, those in which every row of a page has the same."""
    values: dict[str, set[Cell]] = {}
    for sheet in sheets:
        for at, field in enumerate(sheet.columns):
            if field.key in ONE_OF:
                values.setdefault(field.key, set()).update(row[at] for row in sheet.rows)
    return {key for key, found in values.items() if len(found) <= 1}


NAME_CHARACTERS = 4_000  # names stay whole, but for what no compiler writes


def render_csv(page: Page, _style: Style) -> str:
    """Every table with its heads; where there are several, each after a line with its key and parted by a blank one."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, sheet in enumerate(page.sheets):
        if len(page.sheets) > 1:
            text.write(f"{'' if not number else chr(10)}# {sheet.key}\n")
        writer.writerow(column.key for column in sheet.columns)
        writer.writerows([_plain(cell) for cell in row] for row in sheet.all_rows)
    return defuse_lines(text.getvalue())


def _plain(cell: Cell) -> Cell:
    if not isinstance(cell, str):
        return cell
    shown = scrub(cell, NAME_CHARACTERS)
    return f"'{shown}" if starts_formula(shown) else shown
