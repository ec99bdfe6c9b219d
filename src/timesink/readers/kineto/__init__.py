"""The PyTorch profiler's JSON (Kineto, Chrome trace events), plain or gzip.

Times in the file are microseconds, whatever `displayTimeUnit` says (that is for viewers); they become exact int64
nanoseconds, plus `baseTimeNanoseconds` where the file has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timesink.untrusted.unpack import looks_like_json

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits
    from timesink.readers.cutting import Opened


class KinetoJson:
    """Reader of one rank's trace file."""

    format = "kineto_json"
    version = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """JSON, or gzip of JSON. Whether it is a trace is for `read` to find."""
        return looks_like_json(head)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the file."""
        from timesink.readers.kineto.decoded import decode
        from timesink.readers.kineto.tables import to_trace

        return to_trace(decode(path, limits), self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The file, to be read through a window: it is unpacked and decoded once for the look, once for the window."""
        from timesink.readers.kineto.tables import OpenedKineto, survey

        return OpenedKineto(path, self.format, limits, survey(path, limits))


READERS = (KinetoJson(),)
