"""Parts of a diagnosis on two threads: compiled passes and queries let the interpreter go, and each rule is on its own.

What is measured is remembered per trace, and who asks for a measure that another thread takes waits for it; so the
answer is the same as that of one thread, which asks in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from timesink._native import usual_threads
from timesink.model.trace import Trace

# Rows of tables. Of fewer, Python's own part is most of a diagnosis, and of that one thread runs at a time; of more,
# two measures at once need more memory than the time is worth.
_WORTH: Final = range(150_000, 12_000_000)
Result = TypeVar("Result")


@contextmanager
def second_thread(trace: Trace) -> Iterator[Executor | None]:
    """A thread beside this one for parts of the trace's diagnosis; None where that does not pay, or there is no second
    core. What it has not begun when an error ends the diagnosis it never begins.
    """
    rows = sum(frame.height for frame in trace.tables.values())
    if rows not in _WORTH or usual_threads() < 2:
        yield None
        return
    thread = ThreadPoolExecutor(1, "timesink-rules")
    try:
        yield thread
    finally:
        thread.shutdown(cancel_futures=True)


def begun(thread: Executor | None, work: Callable[[], Result]) -> Callable[[], Result]:
    """What gives the result of the work: of the thread, if that has begun it by then, else done when asked for."""
    if thread is None:
        return work
    coming = thread.submit(work)
    return lambda: work() if coming.cancel() else coming.result()
