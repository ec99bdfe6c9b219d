"""Nsight Systems exports as a folder of Parquet or Arrow files (`nsys export --type parquetdir`, `arrowdir`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits
    from timesink.readers.cutting import Opened


@dataclass(frozen=True, slots=True)
class NsysArrow:
    """The reader of export folders."""

    format: str = "nsys_arrow"
    version: int = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """A folder with a table of an Nsight Systems export in it."""
        if head or not path.is_dir():
            return False
        from timesink.readers.nsys.folder import is_export_folder

        return is_export_folder(path)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
        from timesink.readers.nsys.assemble import trace_of
        from timesink.readers.nsys.folder import open_folder

        return trace_of(open_folder(path, limits.unpacked_bytes), path, self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The export, to be read through a window. Every batch is looked at; what lies outside is let go at once."""
        from timesink.readers.nsys.cut import opened
        from timesink.readers.nsys.folder import open_folder

        return opened(open_folder(path, limits.unpacked_bytes), path, self.format)


READER = NsysArrow()
