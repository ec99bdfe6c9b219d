"""A run on Dask with accidents: a worker that is killed, a file that kills every worker, a damaged rank."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.ranks.generated import PER_HOST, bodies, clock_offset_ns, spoil, write_ranks
from tests.cluster.test_run import folder, same

from timesink.cluster import RankFile, find_files
from timesink.cluster.engines import _TOGETHER, Dask, Serial, _batches, engine_of, local_cluster
from timesink.cluster.map import Summarised, summarise
from timesink.cluster.run import run_of
from timesink.measures.communication.waits import waits_of
from timesink.measures.ranks.parity import missing_ranks

__all__ = ["folder"]  # a fixture
distributed = pytest.importorskip("distributed", reason="Dask is an extra")
SEED = Path(__file__).resolve().parents[2] / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"


@pytest.fixture
def cluster() -> Iterator[Any]:
    with local_cluster(2) as made:
        yield made


def dies_at_rank_2(task: RankFile) -> Summarised:
    if "rank2" in task.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return summarise(task)


@pytest.mark.parametrize(("count", "workers", "sizes"), [(3, 2, {1}), (64, 2, {8}), (70, 2, {8, 6}), (1024, 64, {4})])
def test_ranks_go_to_workers_in_batches_that_leave_each_several_turns(
    count: int, workers: int, sizes: set[int]
) -> None:
    tasks = [RankFile(str(number), number) for number in range(count)]
    batches = list(_batches(tasks, workers))
    assert [task for batch in batches for task in batch] == tasks
    assert {len(batch) for batch in batches} == sizes
    assert max(sizes) <= _TOGETHER


def where_memory_goes(word: str) -> int:
    """How often the environment that this process began with names it."""
    return Path("/proc/self/environ").read_text().count(word)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="what a process began with is told by Linux alone")
def test_workers_keep_the_memory_they_will_need_again(cluster: Any) -> None:
    with distributed.Client(cluster) as client:
        assert set(client.run(where_memory_goes, "MALLOC_TRIM_THRESHOLD_").values()) == {0}
        assert set(client.run(where_memory_goes, "OMP_NUM_THREADS").values()) == {1}


def test_dask_survives_a_killed_worker_and_a_corrupt_rank(folder: Path, cluster: Any) -> None:
    spoil(folder / "rank1.json.gz")
    files = find_files([str(folder)])
    wanted = run_of(files, Serial())
    with distributed.Client(cluster) as client:
        killed: list[int] = []

        def watch(done: int, of: int, result: Summarised) -> None:
            if not killed:
                killed.extend(client.run(os.getpid).values())
                os.kill(killed[0], signal.SIGKILL)

        found = run_of(files, engine_of("dask", scheduler=cluster.scheduler_address), watch=watch)
    assert killed
    assert same(found.job, wanted.job)
    assert found.quarantined == wanted.quarantined


@pytest.mark.slow
def test_a_file_that_kills_every_worker_costs_only_itself(folder: Path, cluster: Any) -> None:
    engine = Dask(scheduler=cluster.scheduler_address)
    tasks = find_files([str(folder)])
    with distributed.Client(cluster) as client:
        client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
        results = {result.file.name: result for result in engine.map(dies_at_rank_2, tasks)}
    assert sorted(name for name, result in results.items() if result.job is None) == ["rank2.json.gz"]
    assert "every worker that read it died" in results["rank2.json.gz"].failure
    assert len(results) == len(tasks)


@pytest.mark.slow
def test_generated_ranks_are_one_job_with_known_clocks(tmp_path: Path) -> None:
    """Two hosts of the same real rank: whatever one host's ranks say, the other's say by a clock that is off."""
    made = bodies([SEED], events=1)
    assert write_ranks(made, PER_HOST + 1, tmp_path) == (PER_HOST + 1) * made[0].events
    run = run_of(find_files([str(tmp_path)]))
    assert (run.job.ranks, missing_ranks(run.job.members), run.assumed) == (tuple(range(PER_HOST + 1)), (), "")
    begun = dict(run.job.members.select("rank", "start_ns").rows())
    assert {begun[rank] - begun[0] for rank in range(PER_HOST)} == {0}
    assert begun[PER_HOST] - begun[0] == clock_offset_ns(PER_HOST) != 0
    assert not waits_of(run.job).calls.height  # that rank ran alone


def test_workers_take_one_thread_each_and_keep_no_profile_of_themselves(cluster: Any) -> None:
    """Dask's own profile takes 0.2 MB a second, more than the traces do."""
    with distributed.Client(cluster) as client:
        found = client.run(lambda dask_worker: sorted(dask_worker.periodic_callbacks))
        assert all("profile" not in name for names in found.values() for name in names)
        assert set(client.run(polars_threads).values()) == {1}
        assert all(address.startswith("tcp://127.0.0.1:") for address in found)


def polars_threads() -> int:
    import polars as pl

    return pl.thread_pool_size()
