"""Rows of `compile_events`, collected while a log is read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

Row = dict[str, Any]
_CENTURY_NS: Final = 100 * 366 * 86_400 * 10**9  # two of these fit into 64 bits
_RESUMED: Final = re.compile(r"resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})$")
_COMPILE_ID: Final = re.compile(r"(?P<frame>\d{1,9})/(?P<compilation>\d{1,9})(?:_(?P<attempt>\d{1,9}))?$")


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
        """A record states both times. One that lies centuries off says nothing."""
        offset_ns = since_1970_ns - logged_ns
        if abs(offset_ns) < _CENTURY_NS:
            self.offsets_ns.append(offset_ns)

    def finish(self) -> None:
        """Fill in what only later records say: the function of a frame, the line at which a graph broke."""
        named = {row["frame"]: row for row in self.rows if row["event"] == "compile" and row.get("function")}
        for row in self.rows:
            known = named.get(row.get("frame"))
            if known is not None and row["event"] not in ("phase", "cache_hit", "cache_miss", "cache_bypass"):
                row.setdefault("function", known["function"])
                if row.get("file") is None:
                    row["file"], row["line"] = known.get("file"), known.get("line")
        self._place_breaks()

    def _place_breaks(self) -> None:
        """Old versions tell the line of a break only by the name of the function that goes on behind it."""
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
