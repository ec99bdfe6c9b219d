"""The PyTorch profiler's JSON (Kineto, Chrome trace events), plain or packed with gzip, xz or Zstandard.

Times in the file are microseconds, whatever `displayTimeUnit` says (that is for viewers); they become exact int64
nanoseconds, plus `baseTimeNanoseconds` where the file has one. `decoded` holds what the native decoder gives, `events`
and `collectives` make tables of it, `tables` puts the trace together, whole or through a window.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timesink.readers.formats import HEAD_BYTES, OpenedFile, Reader
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.unpack import UnpackedFile, unpacked_head

if TYPE_CHECKING:
    from timesink.model.trace import Trace

_OTHER_WRITER = b'"highres-ticks"'  # Chrome and XLA write it into the trace-viewer JSON, PyTorch never did


class KinetoJson(Reader):
    """Reader of a trace file, of one rank or of several that were merged."""

    format = "kineto_json"
    priority = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """JSON, plain or packed, that names no other writer. Whether it is a trace is for `read` to find."""
        text = unpacked_head(head, HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        return text[:1] in (b"{", b"[") and _OTHER_WRITER not in text

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the file."""
        from timesink.readers.kineto.decoded import decode
        from timesink.readers.kineto.merged import read_merged
        from timesink.readers.kineto.tables import to_trace

        return read_merged(path, limits, to_trace(decode(UnpackedFile(path, limits)), self.format))

    def open(self, path: Path, limits: ReadLimits) -> OpenedFile:
        """The file, to be read through a window: it is unpacked and decoded once for the look, once for the window."""
        from timesink.readers.kineto.merged import seems_shared
        from timesink.readers.kineto.tables import OpenedKineto, survey

        seen = survey(path, limits)
        callers = [process for process, _ in seen.processes.get("api_calls", [])]
        return self.read(path, limits) if seems_shared(callers) else OpenedKineto(path, self.format, limits, seen)


READERS = (KinetoJson(),)
