"""Windows of a trace: what a person asks for, counted from the first event, and what that is on the trace's clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from timesink.errors import UsageError
from timesink.units import time_text

EXAMPLE: Final = "12.5s:13.5s"
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_TIME: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})(s|ms|us|ns)", re.ASCII)
_REMEDY: Final = (
    f"write START:END in s, ms, us or ns since the trace's first event, such as {EXAMPLE}, 800ms:1.2s, 12.5s: or :3s"
)
_LONGEST_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a trace, half-open, in ns since its first event. `end_ns` None: to the last event."""

    start_ns: int = 0
    end_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> Span:
        """``12.5s:13.5s``; either end may be left out, not both. `UsageError` for anything else."""
        start, colon, end = (part.strip() for part in text.strip().partition(":"))
        if not colon or not (start or end):
            raise UsageError(f"{text!r} is no window", remedy=_REMEDY)
        found = cls(_time_ns(start, text) if start else 0, _time_ns(end, text) if end else None)
        if found.end_ns is not None and found.end_ns <= found.start_ns:
            raise UsageError(f"the window {text!r} ends where it starts, or before", remedy=_REMEDY)
        return found


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open stretch a trace was cut to, and the first and last moment of the trace before that, in ns.

    `start_ns` and `end_ns` are as asked, so they may lie outside of what was recorded.
    """

    start_ns: int
    end_ns: int
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, span: Span, first_ns: int, last_ns: int) -> Window:
        """What was asked for, in a trace that goes from the one moment to the other. `UsageError` if it lies behind."""
        if span.start_ns > last_ns - first_ns:
            whole, start = time_text(last_ns - first_ns), time_text(span.start_ns)
            raise UsageError(
                f"the window begins {start} after the first event, and the trace is {whole} long",
                remedy=f"choose a window that begins before {whole}",
            )
        # The last moment belongs to the window that is open there.
        end_ns = last_ns + 1 if span.end_ns is None else first_ns + span.end_ns
        return cls(first_ns + span.start_ns, end_ns, first_ns, last_ns)

    def __str__(self) -> str:
        start, end, whole = (
            time_text(value)
            for value in (
                self.start_ns - self.first_ns,
                min(self.end_ns, self.last_ns) - self.first_ns,
                self.last_ns - self.first_ns,
            )
        )
        return f"window {start} to {end} of {whole}"


def _time_ns(text: str, whole: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} in the window {whole!r} is no time", remedy=_REMEDY)
    time_ns = int(Decimal(found[1]) * _UNITS[found[2]])
    if time_ns > _LONGEST_NS:
        raise UsageError(f"{text!r} in the window {whole!r} is longer than any trace", remedy=_REMEDY)
    return time_ns
