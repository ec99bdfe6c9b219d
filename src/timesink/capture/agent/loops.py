"""Steps of a program that calls nothing a step is known by: iterations of its own loop around its work.

Where nothing was seen for some seconds, the main thread's stack is sampled. Loops that it is in nearly all of the time
are counted for a moment, and the outermost that comes round again is the program's.
"""

from __future__ import annotations

import ctypes
import dis
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar, Final, NamedTuple

from timesink.capture.agent.marks import StepMark

_QUIET_S, _LOOK_S, _SAMPLE_S, _SAMPLES = 5.0, 0.5, 0.02, 50
_IN_IT: Final = 0.7  # of the samples
_COUNTED_S, RECURS = 4.0, 3  # seconds of counting, and iterations that make a loop recur
_LONGEST_S: Final = 40.0
_NAME: Final = "timesink"
_IMPORTING: Final = "<frozen importlib"
_NEVER: Final = ("<frozen", "<string>", str(Path(__file__).resolve().parents[2]))
_LIBRARIES: Final = (*_NEVER, "site-packages", "dist-packages", sysconfig.get_path("stdlib"))


class CodeLoop(NamedTuple):
    """A loop of a function, by offsets of instructions: where its jumps lead, where its last jump is, and the first
    instruction at its head that is no mere prefix of the next."""

    code: CodeType
    head: int
    last: int
    begin: int


@cache
def loops_of(code: CodeType) -> tuple[CodeLoop, ...]:
    """The loops of a function, outer ones first."""
    spans: dict[int, int] = {}
    begin: dict[int, int] = {}
    first = -1
    for one in dis.get_instructions(code):
        first = one.offset if first < 0 else first
        begin[first] = one.offset
        if one.opcode != dis.EXTENDED_ARG:
            first = -1
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        if is_jump and isinstance(one.argval, int) and one.argval < one.offset and "NO_INTERRUPT" not in one.opname:
            spans[one.argval] = max(spans.get(one.argval, 0), one.offset)
    found = sorted(spans.items(), key=lambda span: (span[0], -span[1]))
    return tuple(CodeLoop(code, head, last, begin.get(head, head)) for head, last in found)


def enclosing_loops(frame: FrameType | None) -> list[CodeLoop]:
    """The loops that a frame and its callers are in, the outermost first: those of the program's own files, or where
    these are in none, those of libraries; none while something is imported."""
    found: dict[bool, list[CodeLoop]] = {True: [], False: []}
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_IMPORTING):
            return []  # what is being imported is not at its work
        is_own = not any(part in name for part in _LIBRARIES)
        if is_own or not any(part in name for part in _NEVER):
            at = frame.f_lasti
            found[is_own] += [loop for loop in reversed(loops_of(frame.f_code)) if loop.head <= at <= loop.last]
        frame = frame.f_back
    return (found[True] or found[False])[::-1]


class LoopCounter:
    """Tells of iterations of some loops, in the main thread: `came_round` is called at each one's end.

    From Python 3.12 on jumps within those functions are told by `sys.monitoring`, at no cost elsewhere; before that
    lines are traced, which makes all Python of the thread slower while it lasts. One counter of a process counts: that
    which began last.
    """

    counting: ClassVar[LoopCounter | None] = None

    def __init__(self, loops: Iterable[CodeLoop], came_round: Callable[[CodeLoop], None]) -> None:
        self._loops = {(loop.code, at): loop for loop in loops for at in range(loop.head, loop.begin + 1, 2)}
        self._codes = {loop.code for loop in loops}
        self._came_round = came_round
        self._tool = -1

    @property
    def _is_on(self) -> bool:
        return LoopCounter.counting is self

    def begin(self) -> bool:
        """Begin, from any thread; False where that cannot be, as under a debugger."""
        before, LoopCounter.counting = LoopCounter.counting, self
        began = self._monitor() if hasattr(sys, "monitoring") else self._trace()
        if not began:
            LoopCounter.counting = before
        return began

    def keep(self, loop: CodeLoop) -> None:
        """From now on tell of this one alone."""
        self._loops = {place: kept for place, kept in self._loops.items() if kept == loop}

    def end(self) -> None:
        """Tell no more. What is traced ends with the next line."""
        if not self._is_on:
            return
        LoopCounter.counting = None
        if self._tool >= 0:
            for code in self._codes:
                sys.monitoring.set_local_events(self._tool, code, 0)  # type: ignore[attr-defined]
        elif threading.current_thread() is threading.main_thread():
            sys.settrace(None)

    def _jumped_to(self, code: CodeType, place: int) -> None:
        loop = self._loops.get((code, place))
        if loop is not None and self._is_on and threading.current_thread() is threading.main_thread():
            self._came_round(loop)

    def _monitor(self) -> bool:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        tool = next((number for number in (3, 4, 1) if monitoring.get_tool(number) in (None, _NAME)), None)
        if tool is None:
            return False
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, _NAME)

        def jumped(code: CodeType, offset: int, target: int) -> None:
            if target < offset:
                self._jumped_to(code, target)

        self._tool, jumps = tool, monitoring.events.JUMP
        monitoring.register_callback(tool, jumps, jumped)
        for code in self._codes:
            monitoring.set_local_events(tool, code, jumps)
        return True

    def _trace(self) -> bool:
        """Frames that run already can be traced from their own thread alone: it is asked to begin."""

        def is_free() -> bool:
            return sys.gettrace() is None or getattr(sys.gettrace(), "__module__", "") == __name__

        def local(frame: FrameType, event: str, _: Any) -> Any:
            if LoopCounter.counting is None:
                sys.settrace(None)
            if not self._is_on:
                return None
            if event == "line":
                self._jumped_to(frame.f_code, frame.f_lasti)
            return local

        def called(frame: FrameType, event: str, _: Any) -> Any:
            return local if frame.f_code in self._codes else None

        def begin(_: Any) -> int:
            if is_free() and self._is_on:
                frame: FrameType | None = sys._getframe()
                while frame is not None:
                    if frame.f_code in self._codes:
                        frame.f_trace = local
                    frame = frame.f_back
                sys.settrace(called)
            return 0

        if not is_free():
            return False
        if threading.current_thread() is threading.main_thread():
            return not begin(None)
        self._pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(begin)  # kept: it is called later
        return not ctypes.pythonapi.Py_AddPendingCall(self._pending, None)


class LoopWatch(threading.Thread):
    """Finds the loop, and then has `agent` told of each of its iterations, until a better mark is seen."""

    def __init__(self, agent: Any) -> None:
        super().__init__(daemon=True, name="timesink-loops")
        self._agent = agent
        self._counts = Counter[CodeLoop]()
        self._chosen: CodeLoop | None = None
        self._counter = LoopCounter((), self._came_round)

    @property
    def _is_over(self) -> bool:
        source = self._agent.source
        return self._agent.finished or (source is not None and source > StepMark.LOOP)

    def run(self) -> None:
        """Wait, sample, count, choose; begin again while nothing recurs."""
        time.sleep(_QUIET_S)
        while not self._is_over and self._chosen is None:
            self._agent.tell_seen()
            may_show = _may_work() and not self._agent.evidence.awaits_training
            if may_show and (candidates := self._sampled()):
                self._count(candidates)
            else:
                time.sleep(_LOOK_S)

    def _sampled(self) -> list[CodeLoop]:
        """The loops that the main thread is in, nearly always."""
        main, seen, order = threading.main_thread().ident, Counter[CodeLoop](), list[CodeLoop]()
        for _ in range(_SAMPLES):
            time.sleep(_SAMPLE_S)
            frame = sys._current_frames().get(main or 0)
            found = [] if frame is None else enclosing_loops(frame)
            seen.update(set(found))
            order = found if len(found) > len(order) else order
            if self._is_over:
                return []
        return [loop for loop in order if seen[loop] >= _IN_IT * _SAMPLES]

    def _count(self, candidates: list[CodeLoop]) -> None:
        """Choose the outermost that comes round."""
        self._counts.clear()
        self._counter = LoopCounter(candidates, self._came_round)
        began = time.monotonic()
        if not self._counter.begin():
            time.sleep(_LONGEST_S)
        while not self._is_over and time.monotonic() - began < _LONGEST_S:
            time.sleep(_LOOK_S)
            recurs = [loop for loop in candidates if self._counts[loop] >= RECURS]
            if recurs and time.monotonic() - began >= _COUNTED_S:
                self._counter.keep(recurs[0])
                self._chosen = recurs[0]
                return
        self._counter.end()

    def _came_round(self, loop: CodeLoop) -> None:
        self._counts[loop] += 1
        if self._chosen is not None and self._is_over:
            self._counter.end()
        elif loop is self._chosen:
            self._agent.step_ended(StepMark.LOOP)


def _may_work() -> bool:
    """Whether the program may be at its work: its GPU is in use, if it has one."""
    torch: Any = sys.modules.get("torch")
    try:
        return torch is not None and (torch.cuda.is_initialized() or not torch.cuda.is_available())
    except AttributeError:  # half imported
        return False
