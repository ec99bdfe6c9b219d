"""Unpickle one memory snapshot under hard limits and write its columns to stdout. Runs as a process of its own.

Standard library only, started by path with ``-I -S``: nothing of timesink is imported, the pickle arrives as stdin, and
no other file can be opened once the limits are set. The unpickler allows nothing: a snapshot is dicts, lists, tuples,
text and numbers, so every global, class, reduction, extension and persistent id is refused by name. Shared nodes make
a small pickle a large tree; rows are therefore counted, and a list of frames that occurs again is known by identity.

Output: ``TSNP``, the length of a JSON head (8 bytes, big endian), the head, and the raw columns it lists.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any, Never

MAGIC = b"TSNP"
REFUSED = 3
MAX_FRAMES, MAX_TEXT, MAX_DEVICES = 256, 400, 4096

EVENT_NUMBERS = ("addr", "size", "stream", "device_free")
SEGMENT_NUMBERS = ("address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "device")
STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1, "inactive": 2}


class Refused(Exception):
    """The pickle is no snapshot, or is made to harm; the text says which."""


class ContainersOnly(pickle.Unpickler):
    """Builds containers, text and numbers; everything else is refused by its name."""

    def find_class(self, module: str, name: str) -> Never:
        """Refuse: no global is ever looked up."""
        raise Refused(f"it asks for {module}.{name}"[:200])

    def persistent_load(self, _: object) -> Never:
        """Refuse: a persistent id stands for an object outside the pickle."""
        raise Refused("it asks for an object by persistent id")


class Columns:
    """Everything written out, and the budget of rows left for it."""

    def __init__(self, rows: int) -> None:
        self.left = rows
        self.numbers: dict[str, array[int]] = {}
        self.texts: dict[str, int] = {"": 0}
        self.stacks: dict[int, int] = {}
        self.kept: list[object] = []  # keeps the lists whose identity is remembered alive

    def spend(self, count: int = 1) -> None:
        """Take `count` from the budget."""
        self.left -= count
        if self.left < 0:
            raise Refused("it unfolds into more nodes than the budget allows")

    def put(self, name: str, value: int) -> None:
        """One number at the end of a column."""
        self.numbers.setdefault(name, array("q")).append(value)

    def text(self, value: object) -> int:
        """The number of a text."""
        kept = value[:MAX_TEXT] if isinstance(value, str) else ""
        return self.texts.setdefault(kept, len(self.texts))

    def stack(self, frames: object) -> int:
        """The number of a stack's text, innermost frame first; 0 where there is none."""
        if not isinstance(frames, list) or not frames:
            return 0
        known = self.stacks.get(id(frames))
        if known is not None:
            return known
        kept = frames[:MAX_FRAMES]
        self.spend(len(kept))
        joined = ";".join(filter(None, map(_frame, kept)))
        number = self.texts.setdefault(joined, len(self.texts))
        self.stacks[id(frames)] = number
        self.kept.append(frames)
        return number


def _frame(frame: object) -> str:
    if not isinstance(frame, dict):
        return ""
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    name = name[:MAX_TEXT].replace(";", ",") if isinstance(name, str) else ""
    if isinstance(file, str) and file not in ("", "??") and isinstance(line, int):
        return f"{file[-MAX_TEXT:].replace(';', ',')}({_whole(line)}): {name}"
    return name


def _whole(value: object, absent: int = -1) -> int:
    """The number, or `absent` where there is none that fits 64 bits; unsigned ones above 2^63 wrap."""
    if not isinstance(value, int) or not -(1 << 63) <= value < (1 << 64):
        return absent
    return value - (1 << 64) if value >= (1 << 63) else int(value)


def _moment(value: object) -> int:
    """Microseconds since the epoch; -1 where none was written, and for one centuries away."""
    time_us = _whole(value)
    return time_us if 0 <= time_us < 1 << 53 else -1


def _rows(holder: dict[Any, Any], key: str, columns: Columns) -> Iterator[dict[Any, Any]]:
    rows = holder.get(key)
    if rows is None:
        return
    if not isinstance(rows, list):
        raise Refused(f"{key} is not a list")
    for row in rows:
        columns.spend()
        if not isinstance(row, dict):
            raise Refused(f"{key} holds something other than records")
        yield row


def take(root: object, columns: Columns) -> None:
    """Every table of the snapshot into `columns`."""
    if isinstance(root, list):  # before 2.0 a snapshot was the list of segments alone
        root = {"segments": root}
    if not isinstance(root, dict) or not ("segments" in root or "device_traces" in root):
        raise Refused("it holds no segments and no device_traces, so it is no memory snapshot")
    for number, segment in enumerate(_rows(root, "segments", columns)):
        _take_segment(number, segment, columns)
    traces = root.get("device_traces")
    traces = traces if isinstance(traces, list) else []
    if len(traces) > MAX_DEVICES:
        raise Refused(f"it has {len(traces)} device traces")
    for device, events in enumerate(traces):
        for event in _rows({"device_traces": events}, "device_traces", columns):
            _take_event(device, event, columns)
    for mark in _rows(root, "external_annotations", columns):
        columns.put("mark.name", columns.text(mark.get("name")))
        columns.put("mark.is_start", int(mark.get("stage") == "START"))
        columns.put("mark.device", _whole(mark.get("device")))
        columns.put("mark.time_us", _moment(mark.get("time_us")))


def _take_segment(number: int, segment: dict[Any, Any], columns: Columns) -> None:
    for key in SEGMENT_NUMBERS:
        columns.put(f"segment.{key}", _whole(segment.get(key)))
    columns.put("segment.is_large", int(segment.get("segment_type") == "large"))
    columns.put("segment.is_expandable", int(segment.get("is_expandable") is True))
    columns.put("segment.is_private", int(_is_private(segment.get("segment_pool_id"))))
    address = _whole(segment.get("address"))
    for block in _rows(segment, "blocks", columns):
        size = _whole(block.get("size"), 0)
        columns.put("block.segment", number)
        columns.put("block.address", _whole(block.get("address"), address))
        columns.put("block.size", size)
        columns.put("block.requested_size", _whole(block.get("requested_size")))
        state = block.get("state")
        columns.put("block.state", STATES.get(state, 2) if isinstance(state, str) else 2)
        columns.put("block.stack", columns.stack(block.get("frames")))
        address += size


def _take_event(device: int, event: dict[Any, Any], columns: Columns) -> None:
    columns.put("event.device", device)
    columns.put("event.action", columns.text(event.get("action")))
    for key in EVENT_NUMBERS:
        columns.put(f"event.{key}", _whole(event.get(key)))
    columns.put("event.time_us", _moment(event.get("time_us")))
    columns.put("event.stack", columns.stack(event.get("frames")))


def _is_private(pool: object) -> bool:
    return isinstance(pool, tuple) and any(isinstance(part, int) and part != 0 for part in pool)


def limit_resources(address_space: int, cpu_s: int) -> None:
    """From here on: so much memory, so much processor time, no new file, no new process, no core dump."""
    import resource

    for what, most in (
        (resource.RLIMIT_AS, address_space),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 3),
    ):
        hard = resource.getrlimit(what)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))


def main() -> int:
    """Arguments: address space in bytes, processor seconds, rows."""
    address_space, cpu_s, rows = map(int, sys.argv[1:4])
    limit_resources(address_space, cpu_s)
    columns = Columns(rows)
    try:
        root = ContainersOnly(io.BytesIO(sys.stdin.buffer.read())).load()
        take(root, columns)
    except Refused as refused:
        return _refuse(str(refused))
    except MemoryError:
        columns = Columns(0)
        return _refuse(f"it needs more than {address_space} bytes of memory")
    except EOFError as damaged:
        return _refuse(f"it is cut off or damaged ({type(damaged).__name__})")
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as bad:
        return _refuse(f"it is no pickle of plain containers ({type(bad).__name__})")
    _write(columns)
    return 0


def _refuse(why: str) -> int:
    sys.stdout.write(json.dumps({"refused": why}))
    return REFUSED


def _write(columns: Columns) -> None:
    texts = [text.encode("utf-8", "replace").decode("utf-8") for text in columns.texts]
    listed = {name: len(values) for name, values in columns.numbers.items()}
    head = json.dumps({"columns": listed, "texts": texts}).encode()
    out = sys.stdout.buffer
    out.write(MAGIC + struct.pack(">Q", len(head)) + head)
    for values in columns.numbers.values():
        out.write(values.tobytes())


if __name__ == "__main__":
    sys.exit(main())
