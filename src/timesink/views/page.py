"""Plain tables for people and programs: what a view hands to a renderer.

A `Page` carries a result without meaning anything by it. Cells hold raw values in the column's unit: JSON shows them
so, the other formats scale them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from timesink.errors import unknown
from timesink.model.presentable import UNASKED, Frames, Origin, Presentable, given_as
from timesink.model.record import dataclass, field, replace
from timesink.untrusted.scrub import shortened

if TYPE_CHECKING:
    import polars as pl

    from timesink.diagnosis.verdicts import Diagnosis, StepBudget
    from timesink.views.figures import Chart, Flame, KernelTime, MarkedWindow, OperatorTime, StepSeries, Timeline

Cell = str | int | float | bool | None
Item = TypeVar("Item")
_TITLE: Final = 80  # characters of a title in a prompt


@dataclass(frozen=True, slots=True)
class Field:
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


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. `key` names it in JSON; `note` says how it was measured or what was left out."""

    key: str
    title: str
    columns: tuple[Field, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Page(Presentable):
    """What a listing command shows: a title, tables, and notes. `is_command`: the title is a command to be copied.
    `charts` are its pictures, which a page for a browser shows above the tables.

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
    is_command: bool = False
    origin: Origin = field(default=UNASKED, compare=False)
    charts: tuple[Chart, ...] = field(default=(), compare=False)

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
                    pl.DataFrame(sheet.rows, names, orient="row", infer_schema_length=None, strict=False), to
                )
        raise unknown("table of this page", key, [sheet.key for sheet in self.sheets])


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report: the page that another command shows too.

    `folds` are further tables under a heading each, folded but for the first.
    """

    key: str
    title: str
    page: Page
    folds: tuple[tuple[str, tuple[Sheet, ...]], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that the page of `timesink report` shows.

    `timeline` is None where nothing ran on a device. `windows` holds the place in it of a finding by its position in
    `diagnosis.findings`; not every finding has one. `areas` is GPU time by module, operator and kernel. Kernels and
    operators are the costliest; `kernel_count` and `operator_count` say of how many. `sections` follow the operators.
    """

    diagnosis: Diagnosis
    budgets: tuple[StepBudget, ...] = ()
    series: tuple[StepSeries, ...] = ()
    timeline: Timeline | None = None
    windows: Mapping[int, MarkedWindow] = field(default_factory=dict)
    flames: tuple[Flame, ...] = ()
    areas: Flame | None = None
    kernels: tuple[KernelTime, ...] = ()
    kernel_count: int = 0
    operators: tuple[OperatorTime, ...] = ()
    operator_count: int = 0
    sections: tuple[Section, ...] = ()


_UNITS: Final = ("ns", "bytes", "ratio")


def figures(**heads: str) -> tuple[Field, ...]:
    """Columns of numbers, their heads by key. A key ends with its unit (`idle_ns`), or its numbers have none."""
    ends = {key: key.rpartition("_")[2] for key in heads}
    return tuple(Field(key, head, ends[key] if ends[key] in _UNITS else "1") for key, head in heads.items())


def names(**heads: str) -> tuple[Field, ...]:
    """Columns of text that names something, their heads by key."""
    return tuple(Field(key, head, is_name=True) for key, head in heads.items())


def texts(**heads: str) -> tuple[Field, ...]:
    """Columns of other text, their heads by key."""
    return tuple(Field(key, head) for key, head in heads.items())


RANK, DEVICE = figures(rank="rank", device="GPU")


# Columns; beside one the function that takes its cell from an item, where that is not the attribute that its key names.
Fields = Sequence[Field | tuple[Field, Callable[[Item], Cell]]]


def sheet_of(key: str, title: str, items: Iterable[Item], columns: Fields[Item], note: str = "") -> Sheet:
    """A table with one row per item."""
    pairs = [(column, attrgetter(column.key)) if isinstance(column, Field) else column for column in columns]
    rows = tuple(tuple(cell(item) for _, cell in pairs) for item in items)
    return Sheet(key, title, tuple(column for column, _ in pairs), rows, note)


def rows_of(frame: pl.DataFrame, columns: tuple[Field, ...]) -> tuple[tuple[Cell, ...], ...]:
    """The rows of a frame, with the columns shown and in their order."""
    return tuple(frame.select(column.key for column in columns).iter_rows())


def first_rows(sheet: Sheet, top: int) -> Sheet:
    """The sheet with at most `top` rows; its note says how many were left out."""
    left = len(sheet.rows) - top
    if left <= 0:
        return sheet
    more = f"{left} more rows (--top {len(sheet.rows)} shows all)"
    return replace(sheet, rows=sheet.rows[:top], note=f"{sheet.note}; {more}" if sheet.note else more)
