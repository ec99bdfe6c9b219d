"""How every SQLite connection of this package is opened, and the one limit they share."""

from __future__ import annotations

from pathlib import Path

from timesink.errors import UnreadableTrace

PRAGMAS = ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON")
TEXT_CHARACTERS = 65_536
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_SMALLEST_ROW_BYTES = 4  # two bytes of pointer and two of cell


def uri_of(path: Path) -> str:
    """Read-only and immutable: no lock, no journal, no write-ahead log is touched."""
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def most_rows_in(path: Path) -> int:
    """More rows than this cannot lie in the file; a table that yields more has pages that refer to one another."""
    return path.stat().st_size // _SMALLEST_ROW_BYTES + 1


def endless(path: Path, table: str) -> UnreadableTrace:
    """The error for such a table."""
    message = f"it yields more than {most_rows_in(path)} rows, more than the file can hold: its pages form a loop"
    return UnreadableTrace(path, message, place=f"table {table}", remedy=EXPORT_AGAIN)
