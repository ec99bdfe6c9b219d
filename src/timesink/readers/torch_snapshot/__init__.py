"""PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`): pickles, read in a process that allows nothing.

`child` is that process; `tables` runs it and turns the columns it writes into the canonical tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timesink.readers.formats import Reader

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.untrusted.unpack import ReadLimits

_PROTOCOLS = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pickle.xz", ".pkl.gz", ".pkl.xz")


class TorchSnapshot(Reader):
    """Reader of the snapshots of PyTorch 1.13 to today; plain, or packed with gzip or xz."""

    format = "torch_snapshot"
    kind = "companion"
    priority = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """A binary pickle by its first bytes; a packed one, or one of an old protocol, by its suffix."""
        if not head or head.startswith(b"version https://git-lfs"):
            return False
        return head.startswith(_PROTOCOLS) or path.name.lower().endswith(_SUFFIXES)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """Events, segments and blocks. `UnreadableTrace` names what a hostile or damaged pickle asked for."""
        from timesink.readers.torch_snapshot.tables import Budget, columns_of, trace_of

        return trace_of(path, columns_of(path, Budget.of(path, limits)))


READERS = (TorchSnapshot(),)
