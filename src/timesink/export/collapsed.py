"""Time by call path in the format of flame graphs: one line a stack, "main;step;loss 1234", in nanoseconds."""

from __future__ import annotations

from typing import IO, Final, Literal

from timesink.errors import UsageError
from timesink.measures.lines.by_line import host_stack_times, path_times
from timesink.measures.lines.stacks import Line, Stack
from timesink.model.trace import Trace
from timesink.untrusted.scrub import scrub

Time = Literal["gpu", "idle", "host"]
NOWHERE: Final = "(no line recorded)"


def stack_times(trace: Trace, time: Time) -> list[tuple[int, Stack, int]]:
    """Rank, stack (empty where unknown) and ns of every call path that has any of that time.

    GPU time is that of the work launched there, idle time that of devices that waited for it, host time its own.
    """
    if time == "host":
        return [(rank, stack, ns) for (rank, stack), ns in (host_stack_times(trace) or {}).items() if ns > 0]
    paths = path_times(trace)
    return [(path.rank, path.stack, ns) for path in paths if (ns := path.gpu_ns if time == "gpu" else path.idle_ns) > 0]


def write_collapsed(trace: Trace, file: IO[str], time: Time = "gpu") -> int:
    """Write every stack and return how many; `UsageError` where there is none. Several ranks are told apart."""
    times = stack_times(trace, time)
    if not any(stack for _, stack, _ in times):
        raise UsageError("the trace holds no stacks and no ranges", remedy="record them: capture torch --stacks")
    several = len({rank for rank, _, _ in times}) > 1
    totals: dict[str, int] = {}
    for rank, stack, time_ns in times:
        frames = [*([f"rank {rank}"] if several else []), *(map(frame_text, stack) if stack else [NOWHERE])]
        text = ";".join(frames)
        totals[text] = totals.get(text, 0) + time_ns
    file.writelines(f"{text} {time_ns}\n" for text, time_ns in totals.items())
    return len(totals)


def frame_text(line: Line) -> str:
    """``step (train.py:12)``; nothing in it parts frames or lines."""
    place = "" if line.file is None else f" ({line.file}:{line.line})"
    return scrub(f"{line.function}{place}").replace(";", ",")
