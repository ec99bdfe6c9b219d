"""A trace holds tables under names: those that were recorded and those derived from them."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl

from timesink.errors import UsageError, unknown
from timesink.measures.counters.sheet import SHEETS_DOC, sheet_frame
from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels import kernels
from timesink.measures.steps import steps
from timesink.measures.timeline.attribution import operator_kernels
from timesink.measures.timeline.host_times import call_times, range_times
from timesink.model.schema import Table
from timesink.model.tables import ALL, API_CALLS, DEVICE_OPS, HOST_OPS, KERNEL_PROFILES, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.untrusted import defuse_lines, scrub, starts_formula


class Holding(Record, eq=False):
    """One table that can be named; `load` makes its frame, which may take a measure."""

    name: str
    doc: str
    load: Callable[[], pl.DataFrame]

    @property
    def frame(self) -> pl.DataFrame:
        """Its rows."""
        return self.load()


# Of each derived table its name, the table that it needs, what a row is, and the function that makes it.
_DERIVED: tuple[tuple[str, Table, str, Callable[[Trace], pl.DataFrame]], ...] = (
    (
        "steps", DEVICE_OPS,
        "Derived: one row per steady step and GPU, from its first GPU work to that of the next step.",
        lambda trace: steps(trace).windows,
    ),
    (
        "idle", DEVICE_OPS,
        "Derived: one row per stretch of idle time and what the GPU waited for; lengths sum to the idle time.",
        lambda trace: idle_blame(trace).frame,
    ),
    (
        "kernels", DEVICE_OPS,
        "Derived: one row per name of a kernel and GPU: count, total, mean, shortest, longest, share.",
        kernels,
    ),
    (
        "operator_kernels", HOST_OPS,
        "Derived: one row per operator and name of GPU work that it launched itself: count, total, mean, share of its.",
        operator_kernels,
    ),
    (
        "range_times", RANGES,
        "Derived: one row per name of a range: CPU time, the GPU work launched inside, and its backward's.",
        range_times,
    ),
    (
        "range_paths", RANGES, "Derived: the same per path of nested names, from the outermost one.",
        lambda trace: range_times(trace, by_path=True),
    ),
    (
        "call_times", API_CALLS,
        "Derived: one row per name of a CUDA call: count, total, mean, median, shortest, longest, share.",
        lambda trace: call_times(trace, API_CALLS),
    ),
    (
        "os_call_times", OS_CALLS, "Derived: the same of calls into the operating system.",
        lambda trace: call_times(trace, OS_CALLS),
    ),
    ("kernel_sheets", KERNEL_PROFILES, SHEETS_DOC, sheet_frame),
)  # fmt: skip


def holdings(trace: Trace) -> Iterator[Holding]:
    """The recorded tables in the order of the reference, then the derived ones; none is computed until it is asked."""
    for table in ALL:
        if table in trace:
            yield Holding(table.name, table.doc, partial(trace.__getitem__, table))
    for name, needs, doc, load in _DERIVED:
        if needs in trace:
            yield Holding(name, doc, partial(load, trace))


SUFFIXES = (".parquet", ".csv", ".json")
# Controls, line ends, characters of no width or other direction; and what a log takes for a command: asked of whole
# columns, so an expression of the engine.
_ACTING = r"\p{C}|\p{Zl}|\p{Zp}|##\w*\[|^\s*::"


def table_named(trace: Trace, name: str) -> pl.DataFrame:
    """The table of that name. `UsageError` names those alike."""
    for table in ALL:
        if table.name == name and table in trace:
            return trace[table]
    if any(table.name == name for table in ALL):
        raise UsageError(f"the trace has no table {name!r}", remedy="`timesink show tables TRACE` lists those it has")
    raise unknown("table", name, (table.name for table in ALL if table in trace), "timesink show tables TRACE")


def _visible(texts: pl.Series) -> pl.Series:
    """Texts in which nothing acts on a terminal or a log. Those that are harmless, nearly all, are not touched."""
    acting = texts.filter(texts.str.contains(_ACTING)).unique().to_list()
    return texts.replace(acting, [defuse_lines(scrub(name, len(name))) for name in acting]) if acting else texts


def _inert(texts: pl.Series) -> pl.Series:
    """Texts behind an apostrophe where a spreadsheet would take them for a formula."""
    acting = [text for text in texts.unique().drop_nulls() if text[:1] in "\t\r" or starts_formula(text)]
    return texts.replace(acting, [f"'{text}" for text in acting]) if acting else texts


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Parquet keeps every value; CSV and JSON (one object per line) write categories as text."""
    text = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    try:
        _write(text, path)
    except pl.exceptions.PolarsError as error:  # its own for a full disk
        raise OSError(str(error)) from error


def _write(text: pl.DataFrame, path: Path) -> None:
    match path.suffix.lower():
        case ".parquet":
            text.write_parquet(path)
        case ".json":
            text.write_ndjson(path)
        case ".csv":
            names = [name for name, dtype in text.schema.items() if dtype == pl.String]
            shown = text.with_columns(_visible(text[name]) for name in names)
            shown.with_columns(_inert(shown[name]) for name in names).write_csv(path)
        case suffix:
            raise UsageError(f"no table is written as {suffix!r}", remedy=f"choose one of: {', '.join(SUFFIXES)}")
