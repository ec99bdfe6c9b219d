"""One reading of one job in a process of its own: seconds, memory, and a digest of everything it says, as JSON.

    python -m benchmarks.ranks.one_run serial|threads|processes|dask FOLDER

With `dask` the job is read on two workers, of which one is killed after an eighth of the files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.ranks.generated import clock_offset_ns

from timesink.cluster import find_files
from timesink.cluster.engines import Engine, engine_of, local_cluster
from timesink.cluster.map import Summarised
from timesink.cluster.run import Run, run_of
from timesink.measures.communication.waits import waits_of
from timesink.measures.ranks.job import SCHEMAS
from timesink.measures.ranks.parity import missing_ranks
from timesink.render import Format, render
from timesink.views.ranks import ranks_page

WORKERS = 2


def plain(engine: str, traces: Path) -> dict[str, Any]:
    """Read by an engine of this machine."""
    return {**_read(traces, engine_of(engine)), "peak_mb": peak_mb()}


def on_dask(traces: Path) -> dict[str, Any]:
    """Read by Dask with an accident."""
    from distributed import Client

    with local_cluster(WORKERS) as cluster, Client(cluster) as client:
        engine = engine_of("dask", scheduler=cluster.scheduler_address)
        accident = Accident(client)
        first = _read(traces, engine, watch=accident)
        peaks = list(client.run(peak_mb).values())
    return {
        **first,
        "peak_mb": peak_mb(),
        "worker_peak_mb": peaks,
        "workers": WORKERS,
        "killed": len(accident.killed),
        "workers_seen": len(accident.seen),
    }


@dataclass(slots=True)
class Accident:
    """Kills a worker once an eighth of the files are read, and remembers all workers it saw then and at the end."""

    client: Any
    killed: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def __call__(self, done: int, of: int, result: Summarised) -> None:
        """Told of each file that is done."""
        if done in (max(1, of // 8), of):
            self.seen |= set(self.client.run(os.getpid).values())
        if not self.killed and done >= of // 8:
            self.killed.append(min(self.seen))
            os.kill(self.killed[0], signal.SIGKILL)


def _read(traces: Path, engine: Engine, *, watch: Any = None) -> dict[str, Any]:
    begin = perf_counter()
    files = find_files([str(traces)])
    run = run_of(files, engine, watch=watch)
    read = perf_counter()
    page = render(ranks_page(run, 16), Format.JSON)
    done = perf_counter()
    return {
        "files": len(files),
        "read_s": read - begin,
        "compare_s": done - read,
        "digest": _digest(run, page),
        "aside": [Path(path).name for path, _ in run.quarantined],
        "missing": len(missing_ranks(run.job.members)),
        "clock_misses": _clock_misses(run),
    }


def _digest(run: Run, page: str) -> str:
    whole = hashlib.sha256(page.encode())
    for name in SCHEMAS:
        table = io.BytesIO()
        getattr(run.job, name).write_csv(table)
        whole.update(table.getvalue())
    return whole.hexdigest()


def _clock_misses(run: Run) -> int:
    """Hosts whose clock is further from the truth than stated, or of which nothing is stated."""
    clocks = waits_of(run.job).clocks.clocks
    off = [(abs(clock.offset_ns - clock_offset_ns(clock.ranks[0])), clock.error_ns) for clock in clocks]
    return sum(error is None or by > error for by, error in off)


def peak_mb() -> float:
    """The most memory this process held, what its parent held before it began not included."""
    said = Path("/proc/self/status").read_text("ascii")
    return int(next(line.split()[1] for line in said.splitlines() if line.startswith("VmHWM"))) / 1e3


if __name__ == "__main__":
    name, folder_of_traces = sys.argv[1:]
    place = Path(folder_of_traces)
    print(json.dumps(on_dask(place) if name == "dask" else plain(name, place)))
