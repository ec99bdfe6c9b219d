"""Stretches of a trace as people write them: ``12.5s:13.5s``. Reads no file, and imports nothing that does."""

from decimal import Decimal
from typing import Final, Self

from timesink.errors import UsageError
from timesink.records import Record

EXAMPLE: Final = "12.5s:13.5s"
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DIGITS: Final = 15  # on each side of the point: more fit no time of a trace
_REMEDY: Final = (
    f"write START:END in s, ms, us or ns since the trace's first event, such as {EXAMPLE}, 800ms:1.2s, 12.5s: or :3s"
)
_LONGEST_NS: Final = 1 << 62  # times of it can be added to


class Span(Record):
    """A stretch of a trace, half-open, in ns since its first event. `end_ns` None: to the last event."""

    start_ns: int = 0
    end_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """``12.5s:13.5s``; either end may be left out, not both. `UsageError` for anything else."""
        start, colon, end = (part.strip() for part in text.strip().partition(":"))
        if not colon or not (start or end):
            raise UsageError(f"{text!r} is not a window", remedy=_REMEDY)
        span = cls(_time_ns(start, text) if start else 0, _time_ns(end, text) if end else None)
        if span.end_ns is not None and span.end_ns <= span.start_ns:
            raise UsageError(f"the window {text!r} ends where it starts, or before", remedy=_REMEDY)
        return span


def _time_ns(text: str, window: str) -> int:
    number = text.rstrip("nmus")
    whole, point, part = number.partition(".")
    known = text[len(number) :] in _UNITS and text.isascii() and (part.isdigit() or not point)
    if not known or not (whole + part).isdigit() or max(len(whole), len(part)) > _DIGITS:
        raise UsageError(f"invalid time {text!r} in the window {window!r}", remedy=_REMEDY)
    time_ns = int(Decimal(number) * _UNITS[text[len(number) :]])
    if time_ns > _LONGEST_NS:
        raise UsageError(f"{text!r} in the window {window!r} is longer than any trace", remedy=_REMEDY)
    return time_ns
