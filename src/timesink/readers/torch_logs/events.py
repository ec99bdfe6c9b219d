"""Rows of `compile_events`, collected while a log is read, and what the compiler's messages say: where a graph broke
and why, which guard failed, which limit was hit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import polars as pl

from timesink.knowledge import logs
from timesink.model.record import dataclass, field
from timesink.model.tables import COMPILE_EVENTS

Row = dict[str, Any]
_ZONE_NS: Final = 900 * 1_000_000_000  # time zones differ by quarters of an hour
_CENTURY_NS: Final = 100 * 366 * 86_400 * 10**9  # two of these fit into 64 bits
_RESUMED: Final = re.compile(logs.RESUMED)
_COMPILE_ID: Final = re.compile(logs.COMPILE_ID)


@dataclass(slots=True)
class Events:
    """`rows` in order of the log, times in the log's own clock. `offsets_ns` are samples of what to add to that clock
    to come to the time since 1970, by records that state both."""

    rows: list[Row] = field(default_factory=list)
    offsets_ns: list[int] = field(default_factory=list)
    stray: Counter[str] = field(default_factory=Counter)

    def add(self, event: str, time_ns: int, key: Row, **more: Any) -> Row:
        """One row; its end is its start where none is given."""
        row = {"event": event, "start_ns": time_ns, "end_ns": time_ns, **key, **more}
        self.rows.append(row)
        return row

    def tell_clock(self, since_1970_ns: int, logged_ns: int) -> None:
        """A record states both times. A difference of centuries says nothing."""
        offset_ns = since_1970_ns - logged_ns
        if abs(offset_ns) < _CENTURY_NS:
            self.offsets_ns.append(offset_ns)

    def finish(self) -> None:
        """Fill in what only later records say: the function of a frame, the line at which a graph broke."""
        compilations = {row["frame"]: row for row in self.rows if row["event"] == "compile" and row.get("function")}
        for row in self.rows:
            compiled = compilations.get(row.get("frame"))
            if compiled is not None and row["event"] not in ("phase", "cache_hit", "cache_miss", "cache_bypass"):
                row.setdefault("function", compiled["function"])
                if row.get("file") is None:
                    row["file"], row["line"] = compiled.get("file"), compiled.get("line")
        self._place_breaks()

    def _place_breaks(self) -> None:
        """Old versions state the line of a break only in the name of the function that resumes after it."""
        for number, row in enumerate(self.rows):
            if row["event"] != "graph_break" or not row.pop("unplaced", False):
                continue
            others = self.rows[number + 1 :]
            later = (other for other in others if other["event"] == "compile" and other["frame"] != row["frame"])
            after = next((found for other in later if (found := _RESUMED.search(str(other.get("function"))))), None)
            if after is not None:
                row["line"] = int(after["line"])


def key_of(text: str) -> Row:
    """Frame, compilation and attempt of a compile id such as ``2/0_1``; all null for others."""
    found = _COMPILE_ID.search(text)
    if found is None:
        return {"frame": None, "compilation": None, "attempt": None}
    return {
        "frame": int(found["frame"]),
        "compilation": int(found["compilation"]),
        "attempt": int(found["attempt"] or 0),
    }


_AT: Final = re.compile(logs.USER_CODE)
_FRAME: Final = re.compile(logs.FRAME)
_WHY: Final = re.compile(logs.REASON)
_OLD: Final = re.compile(logs.OLD_REASON)
_GENERAL: Final = ("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")
_RECOMPILING: Final = re.compile(logs.RECOMPILING)
_GUARD: Final = re.compile(logs.GUARD)
_NO_GUARD: Final = ("triggered by", "user stack trace", "file ", "recompiling function")


class Place(NamedTuple):
    """A place in the program and what the compiler says of it; None where it does not say."""

    file: str | None
    line: int | None
    reason: str | None
    function: str | None = None


def graph_break(lines: Sequence[str]) -> Place:
    """From the message of a graph break, any version since 2.0; the innermost frame named is the place."""
    file, line, reason = None, None, None
    for number, text in enumerate(lines):
        if (found := _AT.search(text)) is not None and file is None:
            file, line = found["file"], int(found["line"])
        elif (found := _WHY.match(text)) is not None and reason is None:
            reason = found["why"].strip() or None
            if reason and reason.startswith(_GENERAL):  # the particular reason comes below the general one
                reason = next((later.strip() for later in lines[number + 1 :] if later.strip()), reason)
        elif reason is None and (found := _OLD.match(text)) is not None and found["why"].strip():
            reason = found["why"].strip()
    if file is None:
        frames = [found for text in lines if (found := _FRAME.match(text)) is not None]
        if frames:
            file, line = frames[-1]["file"], int(frames[-1]["line"])
    return Place(file, line, reason)


def recompilation(lines: Sequence[str]) -> Place:
    """From a recompilation's message or payload: the function where it is named, and the newest guard that failed."""
    head = next((match for text in lines if (match := _RECOMPILING.match(text.strip()))), None)
    guard = next((found for text in lines if (found := failed_guard(text))), None)
    if head is None:
        return Place(None, None, guard)
    return Place(head["file"], int(head["line"]), guard, head["function"])


def failed_guard(text: str) -> str | None:
    """The guard in one line, without the number of the cache entry and the source line after it."""
    found = _GUARD.match(text.rstrip())
    guard = found["guard"].strip() if found else ""
    return guard if guard and not guard.lower().startswith(_NO_GUARD) else None


def compile_events(events: Events, rank: int) -> pl.DataFrame:
    """The rows as the table of that rank; times count from 1970 where a record tells the log's year and time zone."""
    offset_ns = _offset_ns(events)
    schema = {name: dtype for name, dtype in COMPILE_EVENTS.schema.items() if name not in ("rank", "process")}
    rows = [{name: row.get(name) for name in schema} for row in events.rows]
    frame = pl.DataFrame(rows, schema=schema)
    columns = {name: frame[name] for name in schema}
    for name in ("start_ns", "end_ns"):
        columns[name] = frame[name] + offset_ns
    return COMPILE_EVENTS.build({"rank": rank, "process": 0, **columns})


def _offset_ns(events: Events) -> int:
    """From the log's clock to the time since 1970: a year and a time zone; 0 where no record tells."""
    if not events.offsets_ns:
        return 0
    return round(median(events.offsets_ns) / _ZONE_NS) * _ZONE_NS
