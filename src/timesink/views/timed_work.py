"""Work of which only numbers are known, as it is typed: ``550e9,268MB,670us,H100 SXM5``. Reads no file."""

import math
from string import ascii_letters
from typing import Self

from timesink.errors import UsageError
from timesink.records import Record


class TimedWork(Record):
    """Operations, bytes to and from DRAM, the seconds that both take, and the GPU and the format of the numbers."""

    flops: float
    bytes: float
    seconds: float
    gpu: str
    form: str = "fp16"

    @classmethod
    def parse(cls, text: str) -> Self:
        """``550e9,268MB,670us,H100 SXM5``: the first three with a unit or in operations, bytes and seconds."""
        parts = [part.strip() for part in text.split(",")]
        values, named = [_size(part) for part in parts[:3]], parts[3:]
        if len(named) not in (1, 2) or not all(named) or not all(0 < value < math.inf for value in values):
            raise UsageError(
                f"{text!r} is no operations, bytes, time and GPU",
                remedy="write such as --point '550e9,268MB,670us,H100 SXM5'",
            )
        return cls(values[0], values[1], values[2], *named)


_SIZES = {
    "": 1.0, **{f"{prefix}{of}": size for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
                for of in ("", "B", "FLOP")}, "B": 1.0, "FLOP": 1.0,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip


def _size(text: str) -> float:
    """``268MB`` as a number; 0 where it is none."""
    number = text.rstrip(ascii_letters)
    try:
        return float(number) * _SIZES.get(text[len(number) :], 0.0)
    except ValueError:
        return 0.0
