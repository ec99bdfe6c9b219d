"""Where the map step runs. Every engine yields each task's result once, in any order; the reduce step does not care.

Threads are the default on one machine: reading and measuring run in native code without the interpreter's lock, and two
threads beat two processes. Processes are for files that make a worker run out of memory or crash it.

Dask distributed is for many hosts, or for a cluster of this machine's processes. A Dask scheduler obeys whoever reaches
it: the cluster started here listens on loopback only, and a scheduler reached by plain TCP over a network draws a
warning. Tasks of workers that die run again on others.
"""

import ipaddress
import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from timesink.cluster import ENGINES, RankFile
from timesink.cluster.map import Map, Summarised, cores
from timesink.errors import MissingTool, ToolFailed, UsageError, unknown
from timesink.records import Record
from timesink.untrusted.plain_json import document

# Tasks handed out per worker: enough to keep it busy, few enough that little waits in memory.
_WINDOW: Final = 2
# To hand out a task takes Dask a fifth of what it takes to read a rank: so many go out at once.
_TOGETHER: Final = 8
# Fewer go out at once where a worker would have fewer turns than this: the last ones would wait for one another.
_TURNS: Final = 4


class Engine(Protocol):
    """`map` over tasks, largest first. A worker that dies costs its task a retry, then that task's result."""

    def map(self, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
        """Results in any order, one per task."""


def engine_of(name: str, workers: int = 0, scheduler: str | None = None) -> Engine:
    """The engine of that name; the address of a scheduler, or the file that holds it, means Dask."""
    if "://" in name or Path(name).is_file():
        scheduler = name
    match name:
        case _ if scheduler is not None or name == "dask":
            return Dask(workers, scheduler)
        case "threads":
            return Threads(workers)
        case "serial":
            return Serial()
        case "processes":
            return Processes(workers)
        case _:
            raise unknown("engine", name, ENGINES)


class Serial(Record):
    """One after another, in this thread."""

    def map(self, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
        """Results in the order of the tasks."""
        yield from map(function, tasks)


class Threads(Record):
    """Threads of this process; 0 workers means one per core."""

    workers: int = 0

    def map(self, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
        """Results as they come."""
        count = self.workers or cores()
        with ThreadPoolExecutor(max_workers=count) as pool:
            yield from _pool_results(pool, count, function, tasks)


class Processes(Record):
    """Fresh processes (forkserver: Polars deadlocks in a forked child), one file each at a time."""

    workers: int = 0

    def map(self, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
        """Results as they come; a task that kills its worker twice is given up, the others go on."""
        import multiprocessing

        context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        count = self.workers or cores()
        left = dict.fromkeys(tasks)
        suspects: list[RankFile] = []
        # The one thing that each does as it begins: it imports nothing, so that Polars and the decoder find it said.
        few = ("POLARS_MAX_THREADS", os.environ.get("POLARS_MAX_THREADS", str(max(1, cores() // count))))
        with ProcessPoolExecutor(count, context, initializer=os.putenv, initargs=few) as pool:
            try:
                for result in _pool_results(pool, count, function, tasks):
                    left.pop(result.file, None)
                    yield result
            except BrokenProcessPool:
                suspects = list(left)
        for task in suspects:  # alone, so that the one that kills its worker is known
            yield _alone(context, function, task)


def _alone(context: BaseContext, function: Map, task: RankFile) -> Summarised:
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            result: Summarised = pool.submit(function, task).result()
            return result
        except BrokenProcessPool:
            return Summarised(task, None, "its worker process died while reading it")


def _pool_results(pool: Executor, workers: int, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
    """Hand out a few tasks per worker and one more for each that is done."""
    waiting = deque(tasks)
    running: set[Future[Summarised]] = set()
    while waiting or running:
        while waiting and len(running) < _WINDOW * workers:
            running.add(pool.submit(function, waiting.popleft()))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


class PlaintextScheduler(UserWarning):
    """A scheduler is spoken to without TLS over a network."""


def client_arguments(scheduler: str) -> dict[str, str]:
    """What a client needs to reach it. Warns of a plain-text address that leaves this machine."""
    parts = urlsplit(scheduler)
    if parts.scheme not in ("tcp", "tls", ""):
        raise UsageError(f"{scheduler!r} is not a scheduler", remedy="give tcp://host:port, tls://host:port or a file")
    if parts.scheme:
        _warn_if_open(parts.scheme, parts.hostname or "")
        return {"address": scheduler}
    path = Path(scheduler)
    if not path.is_file():
        raise UsageError(f"no scheduler file {scheduler}", remedy="start one: dask scheduler --scheduler-file FILE")
    try:
        address = urlsplit(str(document(path)["address"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{scheduler} is not a scheduler file: {error}", remedy="let dask write it") from error
    _warn_if_open(address.scheme, address.hostname or "")
    return {"scheduler_file": scheduler}


def _warn_if_open(scheme: str, host: str) -> None:
    if scheme == "tls" or _is_loopback(host):
        return
    message = f"the scheduler at {host} is reached without TLS: whoever else reaches it can run programs on its workers"
    warnings.warn(message, PlaintextScheduler, stacklevel=2)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Files are read side by side, one thread each.
_ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Else Dask lets workers give memory back at every turn, and a rank takes half as long again.
_BEFORE_START = {"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}
# Dask's profile of its own workers costs a fifth of their time and grows with it; so does looking fifty times a second
# whether scheduler and workers answer, a thirtieth.
_CONFIGURATION = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}


class Dask(Record):
    """`scheduler` is an address (tcp://, tls://) or a scheduler file; None starts a cluster on this machine.
    `reach_s` is how long a scheduler may take to answer, `workers_s` how long its first worker may take to come."""

    workers: int = 0
    scheduler: str | None = None
    reach_s: float = 30.0  # longer than a scheduler takes to answer over a slow network
    workers_s: float = 300.0  # a batch system starts workers within minutes

    def map(self, function: Map, tasks: Sequence[RankFile]) -> Iterator[Summarised]:
        """Results as they come, a few tasks per worker under way at a time. Paths are sent, not bytes."""
        with self._client() as client:
            self._await_a_worker(client)
            suspects: list[RankFile] = []
            yield from _dask_results(client, function, tasks, suspects)
            # Dask blames whatever a dying worker had before it, also what only waited there: ask again, one by one.
            for task in suspects:
                yield from _dask_results(client, function, [task])

    def _await_a_worker(self, client: Any) -> None:
        """Batch systems start workers after the scheduler, some long after."""
        try:
            client.wait_for_workers(1, timeout=self.workers_s)
        except TimeoutError as error:
            message = f"no worker came to the scheduler within {self.workers_s:.0f} s"
            raise ToolFailed(message, remedy="start dask workers with the same scheduler file") from error

    @contextmanager
    def _client(self) -> Iterator[Any]:
        distributed = _distributed()
        if self.scheduler is None:
            with local_cluster(self.workers) as cluster, distributed.Client(cluster) as client:
                yield client
            return
        try:
            with distributed.Client(**client_arguments(self.scheduler), timeout=self.reach_s) as client:
                yield client
        except OSError as error:
            shown = self.scheduler.rpartition("@")[2]
            raise ToolFailed(f"no scheduler answers at {shown}: {error}", remedy="check --scheduler") from error


def local_cluster(workers: int = 0) -> Any:
    """Processes of this machine that listen on loopback only; 0 workers means one per core.

    A worker may hold an equal share of the memory; one that needs more is ended and started anew.
    """
    distributed = _distributed()
    import dask

    with dask.config.set({**_BEFORE_START, **_CONFIGURATION}):
        return distributed.LocalCluster(
            n_workers=workers or cores(), threads_per_worker=1, processes=True, host="127.0.0.1",
            dashboard_address=None, silence_logs=50,  # logging.CRITICAL: its warnings are ours to give
            env=_ENVIRONMENT, config=_CONFIGURATION,
        )  # fmt: skip


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingTool("Dask is not installed", remedy="pip install distributed fsspec") from error
    return distributed


def _dask_results(
    client: Any, function: Map, tasks: Sequence[RankFile], suspects: list[RankFile] | None = None
) -> Iterator[Summarised]:
    """A few batches per worker at a time. Those whose workers died go to `suspects` where there are any to be had."""
    workers = max(1, _workers(client))
    waiting = deque(_batches(tasks, workers))
    of_future: dict[str, Sequence[RankFile]] = {}
    running = _distributed().as_completed([])

    def fill() -> None:
        while waiting and len(of_future) < _WINDOW * workers:
            batch = waiting.popleft()
            future = client.submit(_each, function, batch, pure=False, retries=1)
            of_future[future.key] = batch
            running.add(future)

    fill()
    for count, future in enumerate(running, start=1):
        batch = of_future.pop(future.key)
        results = _results(future, batch)
        if results is not None:
            yield from results
        elif suspects is not None:
            suspects.extend(batch)
        else:
            why = "every worker that read it died, or needed more memory than it may have"
            yield from (Summarised(task, None, why) for task in batch)
        future.release()
        if waiting and count % (_WINDOW * workers) == 0:  # workers may have come or gone
            workers = max(1, _workers(client))
        fill()


def _batches(tasks: Sequence[RankFile], workers: int) -> Iterator[Sequence[RankFile]]:
    """Tasks that are sent together, each worker getting many batches in turn."""
    size = min(_TOGETHER, max(1, len(tasks) // (_TURNS * workers)))
    return (tasks[at : at + size] for at in range(0, len(tasks), size))


def _each(function: Map, tasks: Sequence[RankFile]) -> list[Summarised]:
    return [function(task) for task in tasks]


def _results(future: Any, tasks: Sequence[RankFile]) -> list[Summarised] | None:
    """What came of a batch; None where its workers died, with it or with its results, or failed at one of many."""
    if future.status == "error":
        failure = future.exception()
        again = len(tasks) > 1 or isinstance(failure, _distributed().KilledWorker)
        return None if again else [Summarised(tasks[0], None, f"its worker failed: {failure}")]
    try:
        results: list[Summarised] = future.result()
    except (OSError, CancelledError, _distributed().KilledWorker):
        return None
    return results


def _workers(client: Any) -> int:
    """How many there are. Workers of another version would measure otherwise: refused."""
    from timesink import __version__

    try:
        versions = client.run(_version, on_error="return").values()
    except OSError:  # one died while it was asked
        return 1
    if any(isinstance(version, ImportError) for version in versions):
        raise ToolFailed("timesink is not installed on the workers", remedy="install it there")
    others = sorted({version for version in versions if isinstance(version, str) and version != __version__})
    if others:
        raise ToolFailed(
            f"workers run timesink {', '.join(others)}, and this is {__version__}", remedy="install the same version"
        )
    return len(versions)


def _version() -> str:
    from timesink import __version__

    return __version__
