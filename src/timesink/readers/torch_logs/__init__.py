"""Logs of torch.compile: TORCH_TRACE (one JSON envelope a line, payloads below it) and the text of TORCH_LOGS.

`records` finds the records of a log, `events` collects the rows of `compile_events` that they make, `kernels` the lines
of the program behind generated kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timesink.knowledge import logs
from timesink.readers.formats import HEAD_BYTES, Reader
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.unpack import unpacked_head

if TYPE_CHECKING:
    from timesink.model.trace import Trace


class TorchLogs(Reader):
    """Reader of one process's log. Lines that are neither are what the program printed, and left out."""

    format = "torch_logs"
    kind = "companion"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A line with the prefix of PyTorch's loggers in the first 4 KiB."""
        text = unpacked_head(head, HEAD_BYTES)
        if not text or b"\0" in text or text.lstrip()[:1] == b"{":
            return False
        return any(logs.LINE.match(line) for line in text.decode("utf-8", "replace").splitlines())

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The compile events of the file, what could not be kept counted in notes."""
        from timesink.readers.torch_logs.records import read_log

        return read_log(path, self.format, limits)


class KernelStacks(Reader):
    """Reader of the stacks of one graph in a file of its own, as tools that split TORCH_TRACE write it."""

    format = "inductor_provenance"
    kind = "companion"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first key of the object."""
        return logs.KERNEL_STACKS.match((unpacked_head(head, HEAD_BYTES) or b"").decode("utf-8", "replace")) is not None

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The calls of the graph, whose key the file does not say."""
        from timesink.readers.torch_logs.events import stacks_of_file

        return stacks_of_file(path, self.format, limits)


READERS = (TorchLogs(), KernelStacks())
