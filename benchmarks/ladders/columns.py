"""Captures stored by column, in a third of the bytes: what repeats once, and numbers as differences, bit by bit alike.

An event, or a row of a table, is a template and its numbers. `unpack(pack(captures))` gives the same JSON values and
the same rows of the same tables.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

TIMES = ("ts", "dur")
NUMBERS = ("External id", "correlation", "Sequence number", "bytes", "Addr")
HOLE = "\x00"
PLANES = 8
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 0, "pb": 0}]


def pack(captures: Mapping[str, dict[str, Any]]) -> bytes:
    """Each capture as `split_trace` or `split_tables` left it: texts, then every column of numbers."""
    texts: dict[str, Any] = {}
    numbers: list[bytes] = []
    for name, parts in captures.items():
        columns = {column: len(values) for column, values in parts["numbers"].items()}
        texts[name] = {"text": parts["text"], "columns": columns}
        numbers += [_planes(values) for values in parts["numbers"].values()]
    head = json.dumps(texts, separators=(",", ":")).encode()
    return lzma.compress(len(head).to_bytes(8, "little") + head + b"".join(numbers), filters=FILTERS)


def unpack(content: bytes) -> dict[str, dict[str, Any]]:
    whole = lzma.decompress(content)
    at = 8 + int.from_bytes(whole[:8], "little")
    found = {}
    for name, parts in json.loads(whole[8:at]).items():
        columns = {}
        for column, length in parts["columns"].items():
            columns[column] = _values(whole[at : at + PLANES * length])
            at += PLANES * length
        found[name] = {"text": parts["text"], "numbers": columns}
    return found


def _planes(values: Iterable[int]) -> bytes:
    """Differences, small ones of either sign as small numbers, the lowest bytes of all first."""
    apart = np.diff(np.asarray(list(values), np.int64), prepend=0)
    folded = ((apart << 1) ^ (apart >> 63)).astype("<u8")
    return folded.view(np.uint8).reshape(-1, PLANES).T.tobytes()


def _values(planes: bytes) -> list[int]:
    folded = np.frombuffer(planes, np.uint8).reshape(PLANES, -1).T.copy().view("<u8").ravel()
    apart = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
    return np.cumsum(apart).tolist()


def split_trace(trace: dict[str, Any]) -> dict[str, Any]:
    """A torch.profiler trace: its templates in the order of their first use, and the numbers of its events."""
    templates: dict[str, int] = {}
    numbers: dict[str, list[int]] = {"template": []}
    for event in trace["traceEvents"]:
        kind, hollow = str(event.get("cat")), dict(event)
        for name in TIMES:
            if name in event:
                numbers.setdefault(f"{kind} {name}", []).append(round(1000 * Decimal(repr(event[name]))))
                hollow[name] = HOLE
        if "args" in event:
            hollow["args"] = dict(event["args"])
            for name in NUMBERS:
                if type(event["args"].get(name)) is int:
                    numbers.setdefault(f"{kind} {name}", []).append(event["args"][name])
                    hollow["args"][name] = HOLE
        numbers["template"].append(templates.setdefault(json.dumps(hollow, separators=(",", ":")), len(templates)))
    whole = {name: value for name, value in trace.items() if name != "traceEvents"}
    return {"text": {"trace": whole, "templates": list(templates)}, "numbers": numbers}


def joined_trace(parts: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: iter(values) for name, values in parts["numbers"].items()}
    templates = [_filled_in(json.loads(text)) for text in parts["text"]["templates"]]
    events = []
    for index in parts["numbers"]["template"]:
        hollow, times, arguments = templates[index]  # parsed once, copied for each event
        event = dict(hollow)
        for name, column in times:
            event[name] = next(numbers[column]) / 1000
        if "args" in event:
            event["args"] = dict(event["args"])
            for name, column in arguments:
                event["args"][name] = next(numbers[column])
        events.append(event)
    return {**parts["text"]["trace"], "traceEvents": events}


def _filled_in(hollow: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]], list[tuple[str, str]]]:
    """A template, and the columns of its times and of its arguments that are numbers."""
    kind, arguments = str(hollow.get("cat")), hollow.get("args", {})
    of = [[(name, f"{kind} {name}") for name in names if held.get(name) == HOLE]
          for names, held in ((TIMES, hollow), (NUMBERS, arguments))]  # fmt: skip
    return hollow, of[0], of[1]


def write_trace(parts: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(joined_trace(parts), separators=(",", ":")))


def split_tables(path: Path) -> dict[str, Any]:
    """A SQLite file: its schema, columns of integers as numbers, other columns as they are."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    schema = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    text: dict[str, Any] = {"schema": dict(schema), "columns": {}}
    numbers: dict[str, list[int]] = {}
    for table, _ in schema:
        cursor = database.execute(f'SELECT * FROM "{table}"')
        names, rows = [column[0] for column in cursor.description], cursor.fetchall()
        for at, name in enumerate(names):
            values = [row[at] for row in rows]
            if name == "end" and "start" in names and None not in values:  # as a length
                values = [end - row[names.index("start")] for end, row in zip(values, rows, strict=True)]
            if values and all(type(value) is int for value in values):
                numbers[f"{table} {name}"] = values
            elif values and all(value == values[0] for value in values):
                text["columns"][f"{table} {name}"] = {"times": len(values), "value": values[0]}
            else:
                text["columns"][f"{table} {name}"] = values
    database.close()
    return {"text": text, "numbers": numbers}


def write_tables(parts: dict[str, Any], path: Path) -> None:
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    for table, statement in parts["text"]["schema"].items():
        database.execute(statement)
        names = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        columns = [_column(parts, f"{table} {name}") for name in names]
        if "end" in names and "start" in names and None not in columns[names.index("end")]:
            start, length = columns[names.index("start")], columns[names.index("end")]
            columns[names.index("end")] = [one + other for one, other in zip(start, length, strict=True)]
        holes = ", ".join("?" * len(names))
        database.executemany(f'INSERT INTO "{table}" VALUES ({holes})', zip(*columns, strict=True))
    database.commit()
    database.close()


def _column(parts: dict[str, Any], name: str) -> list[Any]:
    if name in parts["numbers"]:
        return parts["numbers"][name]
    values = parts["text"]["columns"][name]
    return [values["value"]] * values["times"] if isinstance(values, dict) else values
