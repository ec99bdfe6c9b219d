"""`timesink.stages()`: a program logs when it worked on each item of a pipeline, for `timesink ranks --pipeline`.

One JSON object a line. The first says what holds for the file; each other one is a part of an item, with its begin and
end, in the order in which they ended:

``{"timesink_stages": 1, "unit": "ns", "rank": 0, "clock": "host 5f3c", "facts": {"depth": "2"}}``
``{"item": 7, "tA0": 120034500, "tA1": 120534500}``

Any program in any language may write the same. Logs with one `clock` have times of one clock.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

from timesink.capture.errors import failure, refused
from timesink.knowledge.profiler_texts import STAGE_RUN

_HELD: Final = 2048  # parts before the first of them are read and written, all at once
_READY: Final = (
    2 * _HELD
)  # events that exist before the first part begins: to make one costs half as much as to record it
_SAME_NS: Final = 2_000  # of the host: no program in Python launches anything in less

_UNTIMED: Final = nullcontext()

Mark = Any
"""A time of the host, or an event in the work of the device."""


class StageLog:
    """The open log. Use it as a context, or `close` it; what is open when the program ends is written then.

    Times are those of the device where PyTorch has a GPU (events in the current stream, which nobody waits for until
    the log is closed), else those of this thread. One thread writes to a log. A mark costs what the driver takes
    to record an event; what it says is read and written when the log is closed, or when thousands of parts are held.
    Of each `every` items the first two are timed; of the others the log says nothing.
    """

    def __init__(self, path: str | Path, rank: int, facts: dict[str, object], device: bool, every: int) -> None:
        self.path, self._every = Path(path), every
        self._file: TextIO | None = self.path.open("w", encoding="utf-8")
        self._clock = _DeviceClock() if device else _HostClock()
        self._ended: list[tuple[str, int, Mark, Mark]] = []
        self._parts: dict[str, _Part] = {}
        self._due = _HELD
        head = {"timesink_stages": 1, "unit": "ns", "rank": rank, "clock": self._clock.name}
        said = {"facts": {name: str(value) for name, value in facts.items()}}
        self._write([json.dumps(head | ({"every": every} if every > STAGE_RUN else {}) | said)])
        atexit.register(self.close)

    def stage(self, name: str, item: int | None = None) -> AbstractContextManager[None]:
        """A context: the work on part `name` of an item; without `item`, of the item after the last one."""
        part = self._parts.get(name)
        if part is None or part.is_open:
            part = self._parts[name] = _Part(self, name, -1 if part is None else part.item)
        part.item = part.item + 1 if item is None else item
        return part if part.item % self._every < STAGE_RUN else _UNTIMED

    def send(self, item: int | None = None) -> AbstractContextManager[None]:
        """A context: handing an item on."""
        return self.stage("Send", item)

    def recv(self, item: int | None = None) -> AbstractContextManager[None]:
        """A context: taking an item over, the wait for it included."""
        return self.stage("Recv", item)

    def close(self) -> None:
        """Write what is left, and wait for the device to reach it."""
        if self._file is None:
            return
        atexit.unregister(self.close)
        self._flush(len(self._ended))
        self._file.close()
        self._file = None

    def spill(self) -> None:
        """Write the parts that the device has reached."""
        self._flush(sum(1 for _ in takewhile(lambda part: self._clock.reached(part[3]), self._ended)))
        self._due = len(self._ended) + _HELD

    def _flush(self, count: int) -> None:
        lines = []
        for name, item, begin, end in self._ended[:count]:
            begin_ns, end_ns = self._clock.times(begin, end)
            lines.append(f'{{"item": {item}, "t{name}0": {begin_ns}, "t{name}1": {end_ns}}}')
        self._write(lines)
        del self._ended[:count]

    def _write(self, lines: Sequence[str]) -> None:
        if self._file is not None and lines:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()

    def __enter__(self) -> StageLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Part:
    """The part of one name, of one item after another: from enter to exit."""

    __slots__ = ("_begin", "_begins", "_ended", "_ends", "_log", "_name", "is_open", "item")

    def __init__(self, log: StageLog, name: str, item: int) -> None:
        self._log, self._name, self.item = log, name, item
        self._begins, self._ends, self._ended = log._clock.begin, log._clock.end, log._ended
        self.is_open = False

    def __enter__(self) -> None:
        self.is_open = True
        self._begin = self._begins()

    def __exit__(self, *_: object) -> None:
        ended = self._ended
        ended.append((self._name, self.item, self._begin, self._ends()))
        self.is_open = False
        if len(ended) >= self._log._due:
            self._log.spill()


class _HostClock:
    """The monotonic clock, which all processes of a machine share."""

    def __init__(self) -> None:
        self.name = f"host {_boot()}"
        self.begin = self.end = time.perf_counter_ns

    def reached(self, mark: int) -> bool:
        return True

    def times(self, begin: int, end: int) -> tuple[int, int]:
        return begin, end


class _DeviceClock:
    """Events of the current stream, used again once they are read.

    Times are told from the last event that was read: float32 milliseconds are exact to a nanosecond only over short
    stretches. The driver is called directly, below PyTorch: that halves what a mark costs. A part that begins where the
    one before it ended, in the same stream with nothing launched between, begins with the event of that end.
    """

    def __init__(self) -> None:
        import torch

        device = torch.cuda.current_device()
        torch.cuda.current_stream().synchronize()  # from here on this thread has the device's context
        properties = torch.cuda.get_device_properties(device)
        self.name = f"device {_short(str(getattr(properties, 'uuid', '')) or f'{_boot()} {os.getpid()}')}"
        self._events = _TorchEvents(torch) if torch.version.hip else _DriverEvents()
        self._free = [self._events.new() for _ in range(_READY)]
        self._last: deque[Any] = deque(maxlen=1)  # the end that a part may begin with
        self._shared: set[int] = set()  # ids of events that are an end and a begin: freed when both are read
        self.begin, self.end = self._recorders(torch, device)
        self._base = self.begin()
        self._events.wait(self._base)
        self._base_ns = time.perf_counter_ns()

    def _recorders(self, torch: Any, device: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """What marks a begin, and what marks an end, in the current stream: by one of the free events, else a new one.

        PyTorch tells the number of the stream in a fifth of the time that it takes to tell the stream.
        """
        number_of = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda device: torch.cuda.current_stream(device).cuda_stream
        )
        free, take, new, record = self._free, self._free.pop, self._events.new, self._events.record
        last, shared, clock = self._last, self._shared, time.perf_counter_ns
        number = number_of(device)
        stream, ended_ns = self._events.stream(number), 0

        def now() -> Any:
            nonlocal stream, number
            event = take() if free else new()
            at = number_of(device)
            if at != number:
                stream, number = self._events.stream(at), at
            if record(event, stream):
                raise failure("CUDA took no event", "log no stages while a graph is captured")
            return event

        def begin() -> Any:
            if last and clock() - ended_ns < _SAME_NS and number_of(device) == number:
                event = last.pop()
                shared.add(id(event))
                return event
            return now()

        def end() -> Any:
            nonlocal ended_ns
            event = now()
            last.append(event)
            ended_ns = clock()
            return event

        return begin, end

    def reached(self, mark: Any) -> bool:
        return self._events.over(mark)

    def times(self, begin: Any, end: Any) -> tuple[int, int]:
        self._events.wait(end)
        begin_ns = self._base_ns + self._events.between_ns(self._base, begin)
        end_ns = begin_ns + self._events.between_ns(begin, end)
        self._last.clear()
        for event in (self._base, end):
            if id(event) in self._shared:
                self._shared.discard(id(event))
            else:
                self._free.append(event)
        self._base, self._base_ns = begin, begin_ns
        return begin_ns, end_ns


class _DriverEvents:
    """CUDA's events by its driver. Calls that do not wait keep Python's lock: giving it up costs more than they do."""

    def __init__(self) -> None:
        quick, slow = ctypes.PyDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so.1")
        self.record: Callable[[Any, Any], int] = quick.cuEventRecord
        self.stream: Callable[[int], Any] = ctypes.c_void_p
        self._create, self._query, self._elapsed = quick.cuEventCreate, quick.cuEventQuery, quick.cuEventElapsedTime
        self._synchronize = slow.cuEventSynchronize
        self._ms = ctypes.c_float()

    def new(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        if self._create(ctypes.byref(event), 0):
            raise failure("CUDA made no event", "open the log on the thread that logs")
        return event

    def over(self, event: ctypes.c_void_p) -> bool:
        return not self._query(event)

    def wait(self, event: ctypes.c_void_p) -> None:
        self._synchronize(event)

    def between_ns(self, early: ctypes.c_void_p, late: ctypes.c_void_p) -> int:
        self._elapsed(ctypes.byref(self._ms), early, late)
        return round(self._ms.value * 1e6)


class _TorchEvents:
    """The same by PyTorch, where there is no CUDA driver."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def new(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def stream(self, _number: int) -> Any:
        return self._torch.cuda.current_stream()

    def record(self, event: Any, stream: Any) -> int:
        event.record(stream)
        return 0

    def over(self, event: Any) -> bool:
        return bool(event.query())

    def wait(self, event: Any) -> None:
        event.synchronize()

    def between_ns(self, early: Any, late: Any) -> int:
        milliseconds: float = early.elapsed_time(late)
        return round(milliseconds * 1e6)


def stages(
    path: str | Path, *, rank: int | None = None, device: bool | None = None, every: int = 1, **facts: object
) -> StageLog:
    """Open a log of the stages that this process works on, for `timesink ranks --pipeline`.

    Parameters
    ----------
    path
        The file. Where a launcher started several processes (``WORLD_SIZE``), each writes its own: run.rank1.jsonl.
    rank
        Of this process; without it, what the launcher says (``RANK``), else 0.
    device
        Time the work of the GPU rather than the calls of this thread; without it, where PyTorch has one.
    every
        Time two items, one after the other, of each so many. An item of two parts takes 7 us on an H100 and 10 us on an
        H200, most of it the driver's, for events: with ``every=10`` 2.3 us on average. No multiple of what repeats.
    facts
        What the run was, such as ``depth=2``; the statement of `timesink ranks --pipeline` names them.

    Raises
    ------
    CaptureError
        The file cannot be written, `device` is asked for and there is none, or `every` is no count of items.
    """
    if every < 1:
        raise refused(f"every={every} is not a count of items", "give 1 or more")
    own = _number(os.environ.get("RANK", "")) if rank is None else rank
    several = (_number(os.environ.get("WORLD_SIZE", "")) or 1) > 1
    place = Path(path)
    if several:
        place = place.with_name(f"{place.stem}.rank{own or 0}{place.suffix}")
    torch = sys.modules.get("torch")
    has_device = torch is not None and torch.cuda.is_available()
    if device and not has_device:
        raise refused("PyTorch has no GPU here", "import torch first, or leave device out")
    try:
        return StageLog(place, own or 0, facts, has_device if device is None else device, every)
    except OSError as error:
        raise refused(f"{place} cannot be written: {error}", "name another file") from error


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
