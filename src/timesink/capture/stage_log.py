"""`timesink.stages()`: a program logs when it worked on each item of a pipeline, for `timesink pipeline`.

One JSON object a line. The first says what holds for the file; each other one is a part of an item, with its begin and
end, in the order in which they ended:

``{"timesink_stages": 1, "unit": "ns", "rank": 0, "clock": "host 5f3c", "facts": {"depth": "2"}}``
``{"item": 7, "tA0": 120034500, "tA1": 120534500}``

Any program in any language may write the same. Logs with one `clock` have times of one clock.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

from timesink.capture.errors import CaptureError, Fault

_HELD: Final = 256  # parts before they are written: one write for many


class StageLog:
    """The open log. Use it as a context, or `close` it; what is open when the program ends is written then.

    Times are those of the device where PyTorch has a GPU (events in the current stream, which nobody waits for until
    the log is closed), else those of this thread. One thread writes to a log.
    """

    def __init__(self, path: str | Path, rank: int, facts: dict[str, object], device: bool) -> None:
        self.path = Path(path)
        self._file: TextIO | None = self.path.open("w", encoding="utf-8")
        self._clock = _DeviceClock() if device else _HostClock()
        self._ended: list[tuple[str, int, Any, Any]] = []
        self._counts: dict[str, int] = {}
        self._due = _HELD
        head = {"timesink_stages": 1, "unit": "ns", "rank": rank, "clock": self._clock.name}
        self._write([json.dumps(head | {"facts": {name: str(value) for name, value in facts.items()}})])
        atexit.register(self.close)

    def stage(self, name: str, item: int | None = None) -> _Part:
        """A context: the work on part `name` of an item; without `item`, of the item after the last one."""
        if item is None:
            item = self._counts.get(name, -1) + 1
        self._counts[name] = item
        return _Part(self, name, item)

    def send(self, item: int | None = None) -> _Part:
        """A context: handing an item on."""
        return self.stage("Send", item)

    def recv(self, item: int | None = None) -> _Part:
        """A context: taking an item over, the wait for it included."""
        return self.stage("Recv", item)

    def close(self) -> None:
        """Write what is left, and wait for the device to reach it."""
        if self._file is None:
            return
        atexit.unregister(self.close)
        self.flush(self._ended)
        self._file.close()
        self._file = None

    def add(self, name: str, item: int, begin: Any, end: Any) -> None:
        """Keep a part that ended; the device need not have reached it."""
        self._ended.append((name, item, begin, end))
        if len(self._ended) >= self._due:
            self.flush(list(takewhile(lambda part: self._clock.reached(part[3]), self._ended)))
            self._due = len(self._ended) + _HELD

    def flush(self, parts: Sequence[tuple[str, int, Any, Any]]) -> None:
        """Write these parts, the first of those that are held."""
        lines = []
        for name, item, begin, end in parts:
            begin_ns, end_ns = self._clock.times(begin, end)
            lines.append(f'{{"item": {item}, "t{name}0": {begin_ns}, "t{name}1": {end_ns}}}')
        self._write(lines)
        del self._ended[: len(parts)]

    def now(self) -> Any:
        """A mark in the work of the device, or the time."""
        return self._clock.now()

    def _write(self, lines: Sequence[str]) -> None:
        if self._file is not None and lines:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()

    def __enter__(self) -> StageLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Part:
    """One part of one item, from enter to exit."""

    __slots__ = ("_begin", "_item", "_log", "_name")

    def __init__(self, log: StageLog, name: str, item: int) -> None:
        self._log, self._name, self._item = log, name, item

    def __enter__(self) -> None:
        self._begin = self._log.now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.add(self._name, self._item, self._begin, self._log.now())


class _HostClock:
    """The monotonic clock, which all processes of a machine share."""

    def __init__(self) -> None:
        self.name = f"host {_boot()}"
        self.now = time.perf_counter_ns

    def reached(self, mark: int) -> bool:
        return True

    def times(self, begin: int, end: int) -> tuple[int, int]:
        return begin, end


class _DeviceClock:
    """Events of the current stream, used again once they are read.

    Times are told from the last event that was read: float32 milliseconds are exact to a nanosecond only over short
    stretches.
    """

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._new_event, self._stream = torch.cuda.Event, torch.cuda.current_stream
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.name = f"device {_short(str(getattr(properties, 'uuid', '')) or f'{_boot()} {os.getpid()}')}"
        self._free: list[Any] = []
        self._base = self.now()
        self._base.synchronize()
        self._base_ns = time.perf_counter_ns()

    def now(self) -> Any:
        event = self._free.pop() if self._free else self._new_event(enable_timing=True)
        event.record(self._stream())
        return event

    def reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def times(self, begin: Any, end: Any) -> tuple[int, int]:
        end.synchronize()
        begin_ns = self._base_ns + round(self._base.elapsed_time(begin) * 1e6)
        end_ns = begin_ns + round(begin.elapsed_time(end) * 1e6)
        self._free += (self._base, end)
        self._base, self._base_ns = begin, begin_ns
        return begin_ns, end_ns


def stages(path: str | Path, *, rank: int | None = None, device: bool | None = None, **facts: object) -> StageLog:
    """Open a log of the stages that this process works on, for `timesink pipeline`.

    Parameters
    ----------
    path
        The file. Where a launcher started several processes (``WORLD_SIZE``), each writes its own: run.rank1.jsonl.
    rank
        Of this process; without it, what the launcher says (``RANK``), else 0.
    device
        Time the work of the GPU rather than the calls of this thread; without it, where PyTorch has one.
    facts
        What the run was, such as ``depth=2``; the statement of `timesink pipeline` names them.

    Raises
    ------
    CaptureError
        The file cannot be written, or `device` is asked for and there is none.
    """
    own = _number(os.environ.get("RANK", "")) if rank is None else rank
    several = (_number(os.environ.get("WORLD_SIZE", "")) or 1) > 1
    place = Path(path)
    if several:
        place = place.with_name(f"{place.stem}.rank{own or 0}{place.suffix}")
    torch = sys.modules.get("torch")
    has_device = torch is not None and torch.cuda.is_available()
    if device and not has_device:
        raise CaptureError(Fault.REQUEST, "PyTorch has no GPU here", remedy="import torch first, or leave device out")
    try:
        return StageLog(place, own or 0, facts, has_device if device is None else device)
    except OSError as error:
        raise CaptureError(Fault.REQUEST, f"{place} cannot be written: {error}", remedy="name another file") from error


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _boot() -> str:
    """A short name for this start of this machine; it says nothing of who runs it."""
    try:
        return _short(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        return _short(str(os.getpid()))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
