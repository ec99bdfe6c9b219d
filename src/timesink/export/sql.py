"""SQL over the tables of a trace: one SELECT in a database of its own, with no way to a file or a network.

A query can read the canonical tables, and steps, idle time, kernels, ranges and calls as the measures see them. Eleven
questions with the queries that answer them are in `examples.sql`; `timesink query` prints them, and a test
runs them.
"""

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from threading import Timer
from typing import Any

from timesink.errors import UsageError, extra
from timesink.export.held import holdings
from timesink.model.trace import Trace
from timesink.records import Record

Value = str | int | float | bool | None

# Set before the first query and locked: no file, no extension, no variable of this program can be reached.
_CONFINED = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET threads = 2",
)

_TO_STOP_S = 2.0  # an interrupted query may tidy up; then its process is ended
_OVERHEAD = 3 << 19  # bytes for each megabyte: DuckDB counts its pages, not its threads and the texts it makes


class Allowance(Record):
    """What one query may spend. More rows than `rows` are left out, and said; the rest ends in an error."""

    rows: int = 1_000
    seconds: float = 30.0
    memory_megabytes: int = 2_048


class Answer(Record):
    """The rows of a query. `truncated` says that there were more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    truncated: bool


def ask(trace: Trace, sql: str, allowance: Allowance | None = None) -> Answer:
    """Run one SELECT over the canonical tables and those derived from them.

    Raises
    ------
    UsageError
        The text is not exactly one SELECT, DuckDB refuses it, it asks for what is out of bounds, or it takes too long.
    """
    duckdb = extra("duckdb", "query")
    extra("pyarrow", "query")  # through which DuckDB reads our tables
    allowed = allowance or Allowance()
    tables = [(held.name, held.frame.to_arrow()) for held in holdings(trace)]
    longest_s = allowed.seconds + _TO_STOP_S
    try:
        found = apart(lambda: _asked(duckdb, tables, sql, allowed), longest_s, allowed.memory_megabytes * _OVERHEAD)
    except TooLong as error:
        raise _too_long(allowed) from error
    except TooMuch as error:
        why = f"the query needs more than {allowed.memory_megabytes} MB of memory"
        raise UsageError(why, remedy="ask for less") from error
    if "refused" in found:
        raise UsageError(found["refused"], remedy=found["remedy"])
    return Answer(tuple(found["columns"]), tuple(map(tuple, found["rows"])), found["truncated"])


def _asked(duckdb: Any, tables: Sequence[tuple[str, Any]], sql: str, allowed: Allowance) -> dict[str, Any]:
    """In the process that is watched: the answer as a JSON value, or why there is none."""
    try:
        with duckdb.connect(":memory:") as connection:
            statement = _single_select(duckdb, connection, sql)
            for name, table in tables:  # nothing is copied until a query reads it
                connection.register(name, table)
            for setting in (*_CONFINED, f"SET memory_limit = '{allowed.memory_megabytes}MB'"):
                connection.execute(setting)
            connection.execute("SET lock_configuration = true")
            answer = _answer(duckdb, connection, statement, allowed, [name for name, _ in tables])
    except UsageError as error:
        return {"refused": error.message, "remedy": error.remedy}
    return {"columns": answer.columns, "rows": answer.rows, "truncated": answer.truncated}


def _single_select(duckdb: Any, connection: Any, sql: str) -> Any:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"this is no SQL that DuckDB reads: {_first_line(error)}", remedy=_HELP) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        raise UsageError(f"a query is exactly one SELECT; this is {kinds}", remedy=_HELP)
    return statements[0]


def _too_long(allowed: Allowance) -> UsageError:
    return UsageError(f"the query ran longer than {allowed.seconds:g} s", remedy="ask for less")


def _answer(duckdb: Any, connection: Any, statement: Any, allowed: Allowance, names: Sequence[str]) -> Answer:
    timer = Timer(allowed.seconds, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(statement)
        columns = tuple(column[0] for column in result.description)
        rows = result.fetchmany(allowed.rows + 1)
    except duckdb.InterruptException as error:
        raise _too_long(allowed) from error
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


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or "DuckDB gives no reason"


_HELP = "write SELECT ...; a trace alone lists its tables and columns, no trace shows queries"


_CHUNK = 1 << 20


class TooLong(Exception):
    """The time was up."""


class TooMuch(Exception):
    """The process ended without an answer: most likely it was refused more memory."""


def apart(work: Callable[[], Any], seconds: float, memory_bytes: int) -> Any:
    """What `work` returns, a JSON value, from a copy of this process. `TooLong`, `TooMuch`.

    The copy may take `memory_bytes` more than this process has, and `seconds`, whatever it does in them: a loop of
    compiled code that looks at no signal is ended too. Where processes cannot be copied, the work is done here.
    """
    if not hasattr(os, "fork"):
        return work()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of locks that other threads hold
        child = os.fork()
    if child == 0:
        _answer_apart(work, writing, memory_bytes)
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not text:
        raise TooMuch
    return json.loads(text)


def _answer_apart(work: Callable[[], Any], writing: int, memory_bytes: int) -> None:
    """In the copy: limit it, work, write, and end without anything that an end of this program would do."""
    try:
        _limit(memory_bytes)
        text = json.dumps(work()).encode()
        while text:
            text = text[os.write(writing, text) :]
    finally:
        os._exit(0)


def _limit(memory_bytes: int) -> None:
    import resource

    pages = Path("/proc/self/statm")
    if pages.exists():
        has = int(pages.read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = has + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(reading: int, until: float) -> bytes:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(until - time.monotonic(), 0.0))
        if not ready:
            raise TooLong
        part = os.read(reading, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)
