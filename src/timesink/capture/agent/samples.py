"""Where the program's own Python is while its steps are recorded: the stacks of its threads, looked at again and again.

A look costs the program its interpreter for some microseconds, so the next one comes no sooner than a hundred times as
much later. A thread that computes in Python gives the interpreter up when it is asked for long enough (the switch
interval, 5 ms): until then a look would only ever see calls that give it up, so it is asked for less long meanwhile.
Frames of libraries are left out, but for the innermost one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from timesink.capture.agent.start_up import own_place

MEMBER: Final = "timesinkSamples"
"""The member of a trace: `stacks`, texts; of each look `stack` (its number), `thread`, `later_ns` than the last."""
_SOONEST_S: Final = 0.001  # the step of a kernel is rarely shorter
_SHARE: Final = 0.01  # of the time, at most, in which a look holds the interpreter
_DEEPEST: Final = 40  # own frames of a stack
_MOST: Final = 100_000  # looks; a longer recording goes on without

_SWITCH_S: Final = 0.0001
_SHARED_SWITCH_S: Final = 0.001  # beside other threads, which hand the interpreter to each other as often

Place = tuple[CodeType, int]
"""A function, and the instruction in it that is executed: its line is found later."""


Known = dict[int, tuple[CodeType, bool]]
"""Whether code is the program's own, by its address: to hash code reads all of it. It is held, or the address might be
another's later."""


def _places(frame: FrameType | None, known: Known) -> tuple[Place, ...]:
    """Innermost first; () where nothing of the stack is the program's own."""
    found: list[Place] = []
    inner = frame
    while frame is not None and len(found) < _DEEPEST:
        code = frame.f_code
        if id(code) not in known:
            known[id(code)] = code, bool(own_place(code))
        if known[id(code)][1]:
            found.append((code, frame.f_lasti))
        frame = frame.f_back
    if found and inner is not None and found[0][0] is not inner.f_code:
        found.insert(0, (inner.f_code, inner.f_lasti))
    return tuple(found)


def _line(code: CodeType, instruction: int) -> int:
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return next(lines, None) or code.co_firstlineno


def _text(places: tuple[Place, ...]) -> str:
    """As torch.profiler writes frames: paths from the folder that the program searches."""
    folders = sorted({str(Path.cwd()), *filter(None, sys.path)}, key=len, reverse=True)

    def shown(code: CodeType, instruction: int) -> str:
        line = _line(code, instruction)
        file = str(Path(code.co_filename))
        within = next((folder for folder in folders if file.startswith(folder.rstrip(os.sep) + os.sep)), "")
        return f"{os.path.relpath(file, within) if within else file}({line}): {code.co_name}"

    return ";".join(shown(*place) for place in places)


class FrameSampler:
    """Looks from `start` until `stop`, which hands over what was seen as JSON; '' where that is nothing."""

    def __init__(self) -> None:
        self._has_begun, self._is_over = threading.Event(), threading.Event()
        self._seen: list[tuple[int, int, tuple[Place, ...]]] = []
        self._thread: threading.Thread | None = None
        self._switch_s = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._switch_s = sys.getswitchinterval()
        is_alone = len(sys._current_frames()) == 1
        sys.setswitchinterval(min(self._switch_s, _SWITCH_S if is_alone else _SHARED_SWITCH_S))
        self._thread = threading.Thread(target=self._watch, name="timesink", daemon=True)
        self._thread.start()
        self._has_begun.set()

    def _watch(self) -> None:
        me, pause_s = threading.get_ident(), _SOONEST_S
        numbers, known = dict[int, int | None](), Known()
        self._has_begun.wait()  # else the program is seen to wait for this thread
        while not self._is_over.wait(pause_s) and len(self._seen) < _MOST:
            began = time.thread_time()
            now_ns, frames = time.time_ns(), sys._current_frames()
            if not frames.keys() <= numbers.keys():
                numbers = {thread.ident: thread.native_id for thread in threading.enumerate() if thread.ident}
                numbers = {**dict.fromkeys(frames), **numbers}
            for thread, frame in frames.items():
                number = numbers[thread]
                if thread != me and number is not None and (places := _places(frame, known)):
                    self._seen.append((now_ns, number, places))
            del frames, frame  # else what their variables hold lives on
            pause_s = max(_SOONEST_S, (time.thread_time() - began) / _SHARE)

    def stop(self) -> str:
        """Look no more."""
        if self._thread is None:
            return ""
        self._is_over.set()
        self._thread.join()
        self._thread = None
        sys.setswitchinterval(self._switch_s)
        if not self._seen:
            return ""
        times, threads, stacks = zip(*self._seen, strict=True)
        numbers = {places: at for at, places in enumerate(dict.fromkeys(stacks))}
        later = [time_ns - before for time_ns, before in zip(times, (0, *times[:-1]), strict=True)]
        return json.dumps(
            {
                "stacks": [_text(places) for places in numbers],
                "later_ns": later,
                "thread": threads,
                "stack": [numbers[places] for places in stacks],
            }
        )
