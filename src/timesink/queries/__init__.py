"""SQL over the tables of a trace: one SELECT, on a copy that dies with it, with no way to a file or a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from threading import Timer
from typing import Any

from timesink.errors import UsageError
from timesink.extras import extra
from timesink.model.trace import Trace
from timesink.queries.holdings import holdings

Value = str | int | float | bool | None

# Set before the first query and locked: no file, no extension, no variable of this program can be reached.
_CONFINED = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET threads = 2",
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one query may spend. More rows than `rows` are left out, and said; the rest ends in an error."""

    rows: int = 1_000
    seconds: float = 30.0
    memory_megabytes: int = 2_048


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query. `truncated` says that there were more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    truncated: bool


def ask(trace: Trace, sql: str, allowance: Allowance | None = None) -> Answer:
    """Run one SELECT over the canonical tables and the two that are derived from them.

    Raises
    ------
    UsageError
        The text is not exactly one SELECT, DuckDB refuses it, it asks for what is out of bounds, or it takes too long.
    """
    duckdb = extra("duckdb", "query")
    allowed = allowance or Allowance()
    with duckdb.connect(":memory:") as connection:
        statement = _single_select(duckdb, connection, sql)
        names = _load(connection, trace)
        for setting in (*_CONFINED, f"SET memory_limit = '{allowed.memory_megabytes}MB'"):
            connection.execute(setting)
        connection.execute("SET lock_configuration = true")
        return _answer(duckdb, connection, statement, allowed, names)


def _single_select(duckdb: Any, connection: Any, sql: str) -> Any:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"this is no SQL that DuckDB reads: {_first_line(error)}", remedy=_HELP) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError(f"a query is exactly one SELECT; this is {_kinds(statements)}", remedy=_HELP)
    return statements[0]


def _load(connection: Any, trace: Trace) -> list[str]:
    """Every table under its name; nothing is copied until a query reads it."""
    names = []
    for held in holdings(trace):
        connection.register(held.name, held.frame.to_arrow())
        names.append(held.name)
    return names


def _answer(duckdb: Any, connection: Any, statement: Any, allowed: Allowance, names: Sequence[str]) -> Answer:
    timer = Timer(allowed.seconds, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(statement)
        columns = tuple(column[0] for column in result.description)
        rows = result.fetchmany(allowed.rows + 1)
    except duckdb.InterruptException as error:
        raise UsageError(f"the query ran longer than {allowed.seconds:g} s", remedy="ask for less") from error
    except duckdb.Error as error:
        raise UsageError(_first_line(error), remedy=f"the trace has the tables {', '.join(names)}") from error
    finally:
        timer.cancel()
    kept = tuple(tuple(map(_plain, row)) for row in rows[: allowed.rows])
    return Answer(columns, kept, truncated=len(rows) > allowed.rows)


def _plain(value: Any) -> Value:
    """Numbers and text as they are; decimals as numbers; lists, times and the like as text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return float(value) if isinstance(value, Decimal) else str(value)


def _kinds(statements: Sequence[Any]) -> str:
    return ", ".join(statement.type.name for statement in statements) or "nothing"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or "DuckDB gives no reason"


_HELP = "write SELECT ...; --list shows the tables and their columns, --examples shows queries"
