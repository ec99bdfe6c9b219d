"""Where the map step runs. Every engine yields each task's result once, in any order; the reduce step does not care.

Threads are the default on one machine: reading and measuring run in native code without the interpreter's lock, and two
threads beat two processes. Processes are for files that make a worker run out of memory or crash it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Final, Protocol

from timesink.cluster.map import Map, Summarised, Task, cores
from timesink.errors import UsageError

ENGINES: Final = ("threads", "serial", "processes", "dask")
# Tasks handed out per worker: enough to keep it busy, few enough that little waits in memory.
_WINDOW: Final = 2


class Engine(Protocol):
    """`map` over tasks, largest first. A worker that dies costs its task a retry, then that task's result."""

    def map(self, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
        """Results in any order, one per task."""


@dataclass(frozen=True, slots=True)
class Serial:
    """One after another, in this thread."""

    def map(self, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
        """Results in the order of the tasks."""
        yield from map(function, tasks)


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of this process; 0 workers means one per core."""

    workers: int = 0

    def map(self, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
        """Results as they come."""
        count = self.workers or cores()
        with ThreadPoolExecutor(max_workers=count) as pool:
            yield from _windowed(pool, count, function, tasks)


@dataclass(frozen=True, slots=True)
class Processes:
    """Fresh processes (forkserver: Polars deadlocks in a forked child), one file each at a time."""

    workers: int = 0

    def map(self, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
        """Results as they come; a task that kills its worker twice is given up, the others go on."""
        import multiprocessing

        context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        count = self.workers or cores()
        left = {task.file: task for task in tasks}
        suspects: list[Task] = []
        with ProcessPoolExecutor(max_workers=count, mp_context=context) as pool:
            try:
                for result in _windowed(pool, count, function, tasks):
                    left.pop(result.file, None)
                    yield result
            except BrokenProcessPool:
                suspects = list(left.values())
        for task in suspects:  # alone, so that the one that kills its worker is known
            yield _alone(context, function, task)


def _alone(context: BaseContext, function: Map, task: Task) -> Summarised:
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            result: Summarised = pool.submit(function, task).result()
            return result
        except BrokenProcessPool:
            return Summarised(task.file, None, "its worker process died while reading it")


def _windowed(pool: Executor, workers: int, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
    """Hand out a few tasks per worker and one more for each that is done."""
    waiting = deque(tasks)
    running: set[Future[Summarised]] = set()
    while waiting or running:
        while waiting and len(running) < _WINDOW * workers:
            running.add(pool.submit(function, waiting.popleft()))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def engine_of(name: str, workers: int = 0, scheduler: str | None = None) -> Engine:
    """The engine of that name; a scheduler's address means Dask."""
    match name:
        case _ if scheduler is not None or name == "dask":
            from timesink.cluster.dask import Dask

            return Dask(workers, scheduler)
        case "threads":
            return Threads(workers)
        case "serial":
            return Serial()
        case "processes":
            return Processes(workers)
        case _:
            raise UsageError(f"no engine is called {name!r}", remedy=f"choose from {', '.join(ENGINES)}")
