"""What one file of unknown origin may cost, for all that open one: every reader, redaction, every command.

Each limit stands here and nowhere else. What exceeds one is refused with the figure and `TIMESINK_BUDGET=N`, which
allows N times as much of everything. Standard library only.
"""

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "TIMESINK_BUDGET"
TRUSTED: Final = f"unpack it yourself if you trust it, or set {VARIABLE}=2 for twice as much"
"""The way out of a bomb: a plain file has no ratio."""
TEXT_CHARACTERS: Final = 65_536
"""A longer name is cut, and a note says so; the longest that was seen has 5,123."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a reader may spend on one file before it refuses; a file somebody mailed may be a bomb."""

    unpacked_bytes: int = 64 << 30
    unpacking_ratio: int = 150
    """52 to 1 was seen of traces, three times as much is allowed; deflate's maximum is 1,032."""
    held_bytes: int = 4 << 30
    """Of formats that must be in memory whole, packed or not."""
    repetitive_bytes: int = 64 << 20
    """So much may come of any packed file: less may be a repetitive trace."""
    cell_characters: int = 131_072
    """Of one cell of a CSV text."""
    nested: int = 100
    """Levels of lists and objects in JSON: no file that is taken has more, and what walks a value calls itself as
    often. Python's stack allows three times as many, whatever the budget."""
    devices: int = 64
    """GPUs of one file: no machine has as many."""
    processes: int = 128
    """Processes on a GPU, summed over the GPUs of one file."""
    files: int = 4_096
    """Of one folder or one run: a rank is a file, and few jobs have as many."""
    base_events: int = 1_000_000
    events_per_byte: float = 0.5
    """Of the file as it lies on the disk; 0.18 was seen of packed traces."""
    base_cpu_s: float = 60.0
    cpu_s_per_mb: float = 10.0
    """CPU time of all threads, by the size of the file; what costs most, kernels by their details page, takes 4."""
    cpu_s_per_s: float = 0.05
    """CPU time for each second that passes: what waits for programs may look after them."""
    base_memory_bytes: int = 2 << 30
    memory_per_byte: int = 40
    """A fifth of that was seen of packed traces."""

    @property
    def most_held_bytes(self) -> int:
        """What a format that is held in memory whole may take."""
        return min(self.held_bytes, self.unpacked_bytes)

    def most_unpacked(self, packed_bytes: int) -> int:
        """Bytes that so many packed ones may unpack to; more are a decompression bomb."""
        return max(self.repetitive_bytes, self.unpacking_ratio * packed_bytes)

    def most_events(self, file_bytes: int) -> int:
        """Events that a file of so many bytes may hold."""
        return self.base_events + int(self.events_per_byte * file_bytes)

    def most_cpu_s(self, file_bytes: int, passed_s: float = 0.0) -> float:
        """Seconds of CPU time that a command or a request may take for files of so many bytes, so long after it
        began."""
        return self.base_cpu_s + self.cpu_s_per_mb * file_bytes / 1e6 + self.cpu_s_per_s * passed_s

    def most_memory(self, file_bytes: int) -> int:
        """Bytes of memory that a command or a request may take for files of so many bytes."""
        return self.base_memory_bytes + self.memory_per_byte * file_bytes


def usual_limits() -> ReadLimits:
    """The limits, all of them times `TIMESINK_BUDGET`."""
    return _limits(_factor())


@cache
def _limits(factor: float) -> ReadLimits:
    limits = ReadLimits()
    values = {name: getattr(limits, name) for name in ReadLimits.__slots__}
    times: dict[str, Any] = {name: type(value)(value * factor) for name, value in values.items()}
    return replace(limits, **times)


def _factor() -> float:
    try:
        factor = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return 1.0
    return factor if 0 < factor < math.inf else 1.0


def crowded(folder: Path, is_deep: bool = False) -> str:
    """That a folder, or what lies below it at any depth, holds more files than are looked at; '' where it does not."""
    most, seen = usual_limits().files, 0
    for _, _, names in os.walk(folder) if is_deep else [("", "", islice(folder.iterdir(), most + 1))]:
        seen += sum(1 for _ in names)
        if seen > most:
            return f"the folder holds more than {most:,} files, and no more are looked at"
    return ""


FEWER: Final = f"name some of them, by a pattern or one by one, or set {VARIABLE}=2 for twice as many"


def way_out(needed: float, allowed: float) -> str:
    """What to type where so much was needed and so much allowed."""
    return f"if you trust the file, set {VARIABLE}={math.ceil(_factor() * max(needed / allowed, 1.0) + 1e-9)}"
