"""The obvious way through an export: `sqlite3`, one row at a time, Python dictionaries. What the reader is held to."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

MEMORY = ("pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown")
DIRECTION = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h", 10: "p2p"}

Row = dict[str, Any]


class SlowExport:
    """Counters of rows, in the same words as the canonical tables."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            db.row_factory = sqlite3.Row
            db.text_factory = lambda text: text.decode("utf-8", errors="replace")
            names = [row["name"] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            self.tables = {name: [dict(row) for row in db.execute(f'SELECT * FROM "{name}"')] for name in names}
        self.strings = {row["id"]: row["value"] for row in self.tables["StringIds"]}
        start = self.tables.get("TARGET_INFO_SESSION_START_TIME")
        self.origin = start[0]["utcEpochNs"] if start else 0

    def rows(self, table: str) -> Iterator[Row]:
        yield from self.tables.get(table, [])

    def span(self, row: Row) -> tuple[int, int]:
        return row["start"] + self.origin, row["end"] + self.origin

    def kernels(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (
                process(row.get("globalPid")),
                row["deviceId"],
                row["streamId"],
                row["correlationId"],
                *self.span(row),
                self.strings[row["demangledName"]],
                *(row[axis] for axis in ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")),
                row.get("registersPerThread"),
            )
            for row in self.rows("CUPTI_ACTIVITY_KIND_KERNEL")
        )

    def copies(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (
                process(row.get("globalPid")),
                row["deviceId"],
                row["streamId"],
                *self.span(row),
                row["bytes"],
                DIRECTION[row["copyKind"]],
                MEMORY[row["srcKind"]],
                MEMORY[row["dstKind"]],
            )
            for row in self.rows("CUPTI_ACTIVITY_KIND_MEMCPY")
        )

    def sets(self) -> Counter[tuple[Any, ...]]:
        rows = self.rows("CUPTI_ACTIVITY_KIND_MEMSET")
        return Counter((row["deviceId"], *self.span(row), row["bytes"], MEMORY[row["memKind"]]) for row in rows)

    def calls(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (
                process(row["globalTid"]),
                thread(row["globalTid"]),
                *self.span(row),
                row["correlationId"],
                re.sub(r"_v[0-9]{4,5}$", "", self.strings[row["nameId"]]),
            )
            for row in self.rows("CUPTI_ACTIVITY_KIND_RUNTIME")
            if row.get("eventClass", 0) in (0, 1)
        )

    def ranges(self) -> Counter[tuple[Any, ...]]:
        domains = {
            (process(row["globalTid"]), row["domainId"]): self.text(row)
            for row in self.rows("NVTX_EVENTS")
            if row["eventType"] == 75
        }
        return Counter(
            (
                process(row["globalTid"]),
                thread(row["globalTid"]),
                *self.span(row),
                self.text(row),
                domains.get((process(row["globalTid"]), row["domainId"]), f"domain {row['domainId']}")
                if row["domainId"]
                else None,
                {59: "push_pop", 60: "start_end"}[row["eventType"]],
            )
            for row in self.rows("NVTX_EVENTS")
            if row["eventType"] in (59, 60) and row["end"] is not None
        )

    def text(self, row: Row) -> str:
        return str(row["text"] or self.strings[row["textId"]])

    def os_calls(self) -> Counter[tuple[Any, ...]]:
        rows = [row for row in self.rows("OSRT_API") if row["eventClass"] == 27]
        return Counter((thread(row["globalTid"]), *self.span(row), self.strings[row["nameId"]]) for row in rows)

    def depths(self) -> Counter[tuple[int, int, int, int]]:
        """By definition: how many other ranges of the thread contain this one (ties: the longer, then the earlier)."""
        by_thread: dict[int, list[tuple[int, int]]] = {}
        for row in self.rows("NVTX_EVENTS"):
            if row["eventType"] in (59, 60) and row["end"] is not None:
                by_thread.setdefault(row["globalTid"], []).append(self.span(row))
        found: Counter[tuple[int, int, int, int]] = Counter()
        for owner, spans in by_thread.items():
            spans.sort(key=lambda span: (span[0], -span[1]))
            for at, (start, end) in enumerate(spans):
                depth = sum(before[0] <= start and end <= before[1] and start < before[1] for before in spans[:at])
                found[thread(owner), start, end, depth] += 1
        return found


def process(serialized: int | None) -> int:
    return (serialized or 0) // 2**24 % 2**24


def thread(serialized: int | None) -> int:
    return (serialized or 0) % 2**24
