"""How every SQLite connection of this package is opened, and the one limit they share."""

from __future__ import annotations

from pathlib import Path

from timesink.errors import UnreadableTrace

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100
TEXT_CHARACTERS = 65_536
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_SMALLEST_ROW_BYTES = 4  # two bytes of pointer and two of cell


def uri_of(path: Path) -> str:
    """Read-only and immutable: no lock, no journal, no write-ahead log is touched."""
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def pragmas_for(path: Path) -> tuple[str, ...]:
    """What to set first. SQLite opens a file that is cut off only where the schema counts as writable, which a
    read-only connection makes harmless.
    """
    stated, actual = size_of(path)
    cut = ("PRAGMA writable_schema=ON",) if actual < stated else ()
    return ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON", *cut)


def size_of(path: Path) -> tuple[int, int]:
    """Bytes that the header states, and bytes that are there."""
    with path.open("rb") as stream:
        head = stream.read(HEADER_BYTES)
    page_bytes = int.from_bytes(head[16:18], "big")
    return (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(head[28:32], "big"), path.stat().st_size


def most_rows_in(path: Path) -> int:
    """More rows than this cannot lie in the file; a table that yields more has pages that refer to one another."""
    return path.stat().st_size // _SMALLEST_ROW_BYTES + 1


def endless(path: Path, table: str) -> UnreadableTrace:
    """The error for such a table."""
    message = f"it yields more than {most_rows_in(path)} rows, more than the file can hold: its pages form a loop"
    return UnreadableTrace(path, message, place=f"table {table}", remedy=EXPORT_AGAIN)
