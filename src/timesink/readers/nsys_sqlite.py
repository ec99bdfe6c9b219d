"""Nsight Systems exports in SQLite (`nsys export --type sqlite`, or what `nsys stats` leaves behind)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits
    from timesink.readers.cutting import Opened

_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class NsysSqlite:
    """The reader; what it cannot place becomes a note."""

    format: str = "nsys_sqlite"
    version: int = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """Any SQLite database: `read` says so where it is another program's."""
        return head.startswith(_MAGIC)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
        from timesink.readers.nsys.assemble import trace_of
        from timesink.readers.nsys.database import open_database

        return trace_of(open_database(path), path, self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The export, to be read through a window."""
        from timesink.readers.nsys.cut import opened
        from timesink.readers.nsys.database import open_database

        return opened(open_database(path), path, self.format)


READER = NsysSqlite()
