"""Logs of torch.compile: TORCH_TRACE (one JSON envelope a line, payloads below it) and the text of TORCH_LOGS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits


class TorchLogs:
    """Reader of one process's log. Lines that are neither are what the program printed, and left out."""

    format = "torch_logs"
    version = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """A line with the prefix of PyTorch's loggers in the first 4 KiB."""
        if not head or b"\0" in head or head.lstrip()[:1] == b"{":
            return False
        from timesink.readers.torch_logs.lines import PREFIX

        return any(PREFIX.match(line) for line in head.decode("utf-8", "replace").splitlines())

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The compile events of the file, what could not be kept counted in notes."""
        from timesink.readers.torch_logs.tables import read_log

        return read_log(path, self.format)


READERS = (TorchLogs(),)
