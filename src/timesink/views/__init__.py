"""Views: a measure or a diagnosis as plain pages and figures, one file per subject.

Plain tables for people and programs: what a view hands to a renderer.

A `Page` carries a result without meaning anything by it. Cells hold raw values in the column's unit: JSON shows them
so, the other formats scale them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, overload, runtime_checkable

from timesink.errors import unknown
from timesink.model.presentable import UNASKED, Frames, Origin, Presentable, given_as
from timesink.records import Record, field, replace
from timesink.untrusted import shortened

if TYPE_CHECKING:
    import polars as pl

    from timesink.diagnosis.verdicts import Diagnosis, StepBudget
    from timesink.views.figures import Chart, Flame, MarkedWindow, StepSeries, Timeline

Cell = str | int | float | bool | None
_TITLE: Final = 80  # characters of a title in a prompt


class Field(Record):
    """One column of a sheet: `key` names it in JSON (with its unit: `idle_ns`), `head` above the column.

    No unit: text; `1`: a plain number. `is_name` marks text that names something (a kernel, a code): never wrapped, and
    code in Markdown. `has_bar` draws each figure in HTML also as a bar, to the scale of the column's largest;
    `is_change` writes a sign before gains too; `is_kernel` names kernels, which text shows by their short names;
    `is_command` is to be copied, so text keeps it whole; `is_shape` is a histogram, which HTML draws: the least and the
    most in ns, then counts from one to the other; `words` are what people read in place of the codes in cells.
    """

    key: str
    head: str
    unit: str = ""
    is_name: bool = False
    has_bar: bool = False
    is_change: bool = False
    is_kernel: bool = False
    is_command: bool = False
    is_shape: bool = False
    words: Mapping[str, str] | None = None


class Sheet(Record):
    """One table. `key` names it in JSON; `note` says how it was measured or what was left out. `more`: further rows,
    which people are not shown and programs read."""

    key: str
    title: str
    columns: tuple[Field, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    more: tuple[tuple[Cell, ...], ...] = ()

    @property
    def all_rows(self) -> tuple[tuple[Cell, ...], ...]:
        """Those that are shown and those that are not."""
        return self.rows + self.more


class Page(Presentable, Record):
    """What a listing command shows: a title, tables, and notes. `is_command`: the title is a command to be copied.
    `lede` is a second line, under the title. `charts` are its pictures, which browsers show above the tables.

    `sheets` are its tables, each with its key, columns and rows as they are written; `table` makes a frame of one.

    >>> page = timesink.idle("run.json.gz")
    >>> page
    <Page 'Idle time of run.json.gz': causes, places>
    >>> page.table("causes").select("cause", "idle_ns").row(0)
    ('loader', 20340364)
    """

    title: str
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...] = ()
    lede: str = ""
    is_command: bool = False
    origin: Origin = UNASKED
    charts: tuple[Chart, ...] = ()

    def __repr__(self) -> str:
        return f"<Page {shortened(self.title, _TITLE)!r}: {', '.join(sheet.key for sheet in self.sheets)}>"

    @overload
    def table(self, key: str, to: Literal["polars"] = "polars") -> pl.DataFrame: ...
    @overload
    def table(self, key: str, to: Literal["arrow", "pandas"]) -> Any: ...
    def table(self, key: str, to: Frames = "polars") -> Any:
        """One of its tables as a Polars frame, a PyArrow table or a pandas frame; units are in the columns' names.

        `UsageError` for a table that the page does not have.

        >>> timesink.idle("run.json.gz").table("causes").columns[:4]
        ['rank', 'device', 'cause', 'idle_ns']
        """
        import polars as pl

        for sheet in self.sheets:
            if sheet.key == key:
                names = [column.key for column in sheet.columns]
                return given_as(
                    pl.DataFrame(sheet.all_rows, names, orient="row", infer_schema_length=None, strict=False), to
                )
        raise unknown("table of this page", key, [sheet.key for sheet in self.sheets])


class Section(Record):
    """A section of the report: the page that another command shows too.

    `folds` are further tables under a heading each, folded but for the first.
    """

    key: str
    title: str
    page: Page
    folds: tuple[tuple[str, tuple[Sheet, ...]], ...] = ()


class Report(Record, eq=False):
    """Everything that the page of `timesink report` shows.

    `timeline` is None where nothing ran on a device. `windows` holds the place in it of a finding by its position in
    `diagnosis.verdicts`; not every finding has one. `areas` is GPU time by module, operator and kernel. Kernels and
    operators are the costliest. `sections` follow the operators.
    """

    diagnosis: Diagnosis
    budgets: tuple[StepBudget, ...] = ()
    series: tuple[StepSeries, ...] = ()
    timeline: Timeline | None = None
    windows: Mapping[int, MarkedWindow] = field(default_factory=dict)
    flames: tuple[Flame, ...] = ()
    areas: Flame | None = None
    kernels: Sheet | None = None
    operators: Sheet | None = None
    sections: tuple[Section, ...] = ()


_UNITS: Final = ("ns", "bytes", "ratio")
_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "number": {"unit": "1"},
    "text": {"unit": ""},
    "name": {"unit": "", "is_name": True},
    "kernel": {"unit": "", "is_name": True, "is_kernel": True},
    "command": {"unit": "", "is_command": True},
    "shape": {"unit": "", "is_shape": True},
    "bar": {"has_bar": True},
    "change": {"is_change": True},
}


def declare(*parts: str | Field) -> tuple[Field, ...]:
    """Columns declared as text, `"rank, device, idle_ns: idle time [bar], name: kernel [kernel], rate [GB/s]"`.

    Of each its key, then its head where that is not the words of the key, then in brackets what it holds: a kind of
    `_KINDS` or a unit. Without brackets it is a number in the unit that ends its key (`idle_ns`), or in none.
    """
    return tuple(chain.from_iterable(_declared(part) if isinstance(part, str) else (part,) for part in parts))


@cache
def _declared(text: str) -> tuple[Field, ...]:
    fields = []
    for column in text.split(", "):
        named, _, kinds = column.removesuffix("]").partition(" [")
        key, _, head = named.partition(": ")
        end = key.rpartition("_")[2]
        told: dict[str, Any] = {"unit": end if end in _UNITS else "1"}
        for kind in kinds.split():
            told |= _KINDS.get(kind, {"unit": kind})
        fields.append(Field(key, head or ("GPU" if key == "device" else key.replace("_", " ")), **told))
    return tuple(fields)


@runtime_checkable
class Rows(Protocol):
    """What a sheet asks of a Polars frame, which this file does not import: most pages need none."""

    def select(self, names: Iterable[str], /) -> Any:
        """Those of its columns."""


def sheet_of(
    key: str,
    title: str,
    items: Rows | Iterable[Any],
    columns: str | tuple[Field, ...],
    note: str = "",
    **cells: Callable[[Any], Cell],
) -> Sheet:
    """A table with a row per row of a frame, or per item; columns may stand as `declare` takes them.

    Of an object a cell is what the column's key names, or what the function in `cells` takes; without such functions a
    tuple is a row as it stands.
    """
    fields, rows = declare(columns) if isinstance(columns, str) else columns, list[tuple[Cell, ...]]()
    if isinstance(items, Rows):
        rows += items.select(field.key for field in fields).iter_rows()
    else:
        takes = [cells.get(field.key) or attrgetter(field.key) for field in fields]
        rows += (item if type(item) is tuple and not cells else tuple(take(item) for take in takes) for item in items)
    return Sheet(key, title, fields, tuple(rows), note)


@cache
def declared_sheets() -> dict[str, tuple[str, str, str]]:
    """Title, columns and note of each table of `sheets.txt`."""
    _, *sections = Path(__file__).with_name("sheets.txt").read_text(encoding="utf-8").split("\n\n")
    told = {}
    for section in sections:
        head, _, body = section.partition("\n")
        name, _, title = head.partition(": ")
        columns, _, note = body.partition("\n  note ")
        told[name] = title, " ".join(columns.split()), " ".join(note.split())
    return told


def listed(name: str, items: Rows | Iterable[Any], note: str = "", **cells: Callable[[Any], Cell]) -> Sheet:
    """The table of that name in `sheets.txt`, with these rows; what differs from time to time is said in `note`."""
    title, columns, always = declared_sheets()[name]
    return sheet_of(name.partition(".")[2].partition("@")[0], title, items, columns, note or always, **cells)


def without_columns(sheet: Sheet, alike: Sequence[str] = ()) -> Sheet:
    """The sheet without columns that hold nothing, and without those of `alike` in which all rows have the same."""
    kept = []
    for at, column in enumerate(sheet.columns):
        seen = {row[at] for row in sheet.all_rows}
        if len(seen) > 1 or not (column.key in alike or seen == {None}):
            kept.append(at)
    rows, more = (tuple(tuple(row[at] for at in kept) for row in part) for part in (sheet.rows, sheet.more))
    return replace(sheet, columns=tuple(sheet.columns[at] for at in kept), rows=rows, more=more)


def first_rows(sheet: Sheet, top: int) -> Sheet:
    """The sheet that shows people at most `top` rows; its note says how many more there are."""
    shown, more = sheet.rows[:top], sheet.rows[top:]
    if not more:
        return sheet
    told = f"{len(more)} more rows (--top {len(sheet.rows)} shows all)"
    return replace(sheet, rows=shown, more=more, note=f"{sheet.note}; {told}" if sheet.note else told)
