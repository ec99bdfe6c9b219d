"""The map step on Dask distributed: a cluster of this machine's processes, or one that somebody runs already.

A Dask scheduler obeys whoever reaches it. The cluster started here listens on loopback only; a scheduler reached by
plain TCP over a network draws a warning. Workers that die are replaced by others: their tasks run again there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timesink.errors import MissingTool, ToolFailed
from timesink.ranks.map import Summarised, Task
from timesink.ranks.scheduler_safety import client_arguments

if TYPE_CHECKING:
    from timesink.ranks.engines import Map

_WINDOW = 2


@dataclass(frozen=True, slots=True)
class Dask:
    """`scheduler` is an address (tcp://, tls://) or a scheduler file; None starts a cluster on this machine.
    `reach_s` is how long a scheduler may take to answer."""

    workers: int = 0
    scheduler: str | None = None
    reach_s: float = 30.0

    def map(self, function: Map, tasks: Sequence[Task]) -> Iterator[Summarised]:
        """Results as they come, a few tasks per worker under way at a time. Paths are sent, not bytes."""
        with self._client() as client:
            _same_version(client)
            suspects: list[Task] = []
            yield from _windowed(client, function, tasks, suspects)
            # Dask blames whatever a dying worker had before it, also what only waited there: ask again, one by one.
            for task in suspects:
                yield from _windowed(client, function, [task])

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

    Files are read side by side, so each worker's Polars gets one thread. A worker may hold an equal share of the
    memory; one that needs more is ended and started anew.
    """
    from timesink.ranks.engines import cores

    return _distributed().LocalCluster(
        n_workers=workers or cores(), threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
        silence_logs=50, env={"POLARS_MAX_THREADS": "1"},
    )  # fmt: skip


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingTool("Dask is not installed", remedy="install timesink[dask]") from error
    return distributed


def _windowed(
    client: Any, function: Map, tasks: Sequence[Task], suspects: list[Task] | None = None
) -> Iterator[Summarised]:
    """A few tasks per worker at a time. Those whose workers died go to `suspects` where there are any to be had."""
    waiting = deque(tasks)
    of_future: dict[str, Task] = {}

    def submit() -> Any:
        task = waiting.popleft()
        future = client.submit(function, task, pure=False, retries=1)
        of_future[future.key] = task
        return future

    window = max(1, _WINDOW * len(client.scheduler_info(n_workers=-1)["workers"]))
    running = _distributed().as_completed([submit() for _ in range(min(window, len(waiting)))])
    for future in running:
        task = of_future.pop(future.key)
        if future.status == "finished":
            yield future.result()
        elif suspects is not None and isinstance(future.exception(), _distributed().KilledWorker):
            suspects.append(task)
        else:
            yield Summarised(task.file, None, _why(future.exception()))
        future.release()
        if waiting:
            running.add(submit())


def _why(failure: object) -> str:
    if isinstance(failure, _distributed().KilledWorker):
        return "every worker that read it died, or needed more memory than a worker may have"
    return f"its worker failed: {failure}"


def _same_version(client: Any) -> None:
    """Workers of another version would measure otherwise: refuse before any work is done."""
    from timesink import __version__

    try:
        found = client.run(_version)
    except (ImportError, ModuleNotFoundError) as error:
        raise ToolFailed("timesink is not installed on the workers", remedy="install it there") from error
    others = sorted({version for version in found.values() if version != __version__})
    if others:
        raise ToolFailed(
            f"workers run timesink {', '.join(others)}, and this is {__version__}", remedy="install the same version"
        )


def _version() -> str:
    from timesink import __version__

    return __version__
