"""`timesink query`: SQL over the tables of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked, completion
from timesink.cli.options import GRAPHS_FROM, NO_CACHE, WINDOW, PageOutput, read_traces
from timesink.cli.output import working
from timesink.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.views import Page

_LONGEST_S = 120.0
_UNITS = {"_ns": "ns", "_bytes": "bytes", "_ratio": "ratio"}


def query(
    path: Annotated[
        Path | None, Argument("TRACE", "A trace, or a folder; none: show ten questions and their queries.")
    ] = None,
    sql: Annotated[
        str | None,
        Argument(
            "SQL",
            "One SELECT, or the name of an example; none: list the tables and columns.",
            complete=completion.examples,
            must=asked.example,
        ),
    ] = None,
    rows: Annotated[int, Option("--rows", "N", "Rows to show at most.", least=1)] = 1_000,
    window: Annotated[str | None, WINDOW] = None,
    graphs_from: Annotated[list[Path] | None, GRAPHS_FROM] = None,
    no_cache: Annotated[bool, NO_CACHE] = False,
    *,
    writing: PageOutput,
) -> int:
    """Answer SQL over the tables of a trace.

    One SELECT, read by DuckDB over the tables of the reference pages, steps and idle time besides. It can reach nothing
    else. Columns whose names end in _ns, _bytes or _ratio are shown in such units.
    """
    target = writing.sink([path] if path else [])
    if path is None:
        target.show(_examples_page())
        return 0
    trace = read_traces([path], cache=not no_cache, window=window, graphs_from=graphs_from or ())
    if not sql:
        target.show(_tables_page(trace))
        return 0
    with working("querying"):
        from timesink.export.examples import query_named

        target.show(_answer_page(trace, query_named(sql), rows))
    return 0


def _answer_page(trace: Trace, sql: str, rows: int) -> Page:
    from timesink.export.sql import Allowance, ask
    from timesink.views import Field, Page, Sheet

    answer = ask(trace, sql, Allowance(rows=rows, seconds=_LONGEST_S))
    columns = tuple(
        Field(name, _head(name, unit), unit=unit)
        for at, name in enumerate(answer.columns)
        for unit in [_unit(name, [row[at] for row in answer.rows])]
    )
    note = f"the first {rows} rows; --rows shows more" if answer.truncated else ""
    return Page(f"Query of {trace.source}", (Sheet("rows", "Rows", columns, answer.rows, note),))


def _head(name: str, unit: str) -> str:
    """The column's name without the unit that its cells show."""
    return name.removesuffix("_ns").removesuffix("_bytes") if unit in ("ns", "bytes") else name


def _unit(name: str, values: list[str | int | float | bool | None]) -> str:
    """The unit in a column's name; a plain number for other figures; none for text."""
    known = [value for value in values if value is not None]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known):
        return ""
    # An instant is shown whole: scaled to seconds, it would lose every digit that tells two of them apart.
    suffix = "" if name in ("start_ns", "end_ns", "time_ns") else next((s for s in _UNITS if name.endswith(s)), "")
    return _UNITS.get(suffix, "1")


def _tables_page(trace: Trace) -> Page:
    from timesink.export.held import holdings
    from timesink.views import Page, listed

    frames = ((held, held.frame) for held in holdings(trace))
    rows = ((held.name, frame.height, ", ".join(frame.columns), held.doc) for held, frame in frames)
    return Page(f"Tables of {trace.source}", (listed("query.tables", rows),))


def _examples_page() -> Page:
    from timesink.export.examples import EXAMPLES
    from timesink.views import Page, listed

    return Page("Example queries", (listed("query.examples", EXAMPLES),))
