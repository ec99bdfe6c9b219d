"""A run of many files: the same job on every engine, in every order, with bad files, dead workers and restarts."""

import gzip
import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.jobs_by_hand import rank_trace

from timesink.cluster import RankFile, find_files, without_credentials
from timesink.cluster.engines import (
    Dask,
    Engine,
    PlaintextScheduler,
    Processes,
    Serial,
    Threads,
    client_arguments,
    engine_of,
)
from timesink.cluster.map import Summarised, summarise
from timesink.cluster.run import run_of
from timesink.errors import MissingTool, ToolFailed, UnreadableTrace, UsageError
from timesink.measures.ranks.job import SCHEMAS, Job, job
from timesink.measures.ranks.parity import missing_ranks

STEP_US, RANKS = 100, 4


def kineto(rank: int, late_us: int = 0, world: int = RANKS) -> str:
    """A trace of four steps in which a rank computes 70 us and then reduces until the step is over."""
    events: list[dict[str, object]] = []
    for step in range(4):
        begin = 1000 + STEP_US * step
        for name, ts, dur, stream in (
            ("gemm", begin, 70 + late_us, 7),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", begin + 70 + late_us, 30 - late_us, 20),
        ):
            args = {"device": rank, "stream": stream, "context": 1, "correlation": 10 * step + stream}
            event = {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "pid": rank, "tid": stream}
            events.append({**event, "args": args})
    info = {"rank": rank, "world_size": world, "backend": "nccl"}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "host_name": "node", "traceEvents": events})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in range(RANKS):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(kineto(rank, late_us=5 * (rank == 2)).encode()))
    return tmp_path


@pytest.mark.parametrize(
    "beside", [("manifest.json",), ("nccl-bench.json",), ("manifest.json", "nccl-bench.json", "log.txt")]
)
@pytest.mark.parametrize("remote", [False, True])
def test_what_a_capture_leaves_beside_its_traces_is_no_rank(
    folder: Path, beside: tuple[str, ...], remote: bool
) -> None:
    """A rank that is damaged is one still."""
    fsspec = pytest.importorskip("fsspec") if remote else None
    for name in (*beside, "rank7.json"):
        (folder / name).write_text('{"gpus": []}')
    place = str(folder)
    if fsspec is not None:
        place = "memory://captured"
        for file in folder.iterdir():
            fsspec.filesystem("memory").pipe(f"/captured/{file.name}", file.read_bytes())
    found = run_of(find_files([place]))
    if fsspec is not None:
        fsspec.filesystem("memory").rm("/captured", recursive=True)
    assert [Path(path).name for path, _ in found.quarantined] == ["rank7.json"]
    assert found.job.ranks == tuple(range(RANKS))


def same(one: Job, other: Job) -> bool:
    return all(getattr(one, name).equals(getattr(other, name)) for name in SCHEMAS)


ENGINES = [Serial(), Threads(3), Processes(2)]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_every_engine_and_order_gives_the_same_job(engine: Engine, folder: Path) -> None:
    files = find_files([str(folder)])
    wanted = run_of(files, Serial())
    assert wanted.job.ranks == (0, 1, 2, 3)
    for order in (files[::-1],) if isinstance(engine, Processes) else (files, files[::-1], files[2:] + files[:2]):
        assert same(run_of(order, engine).job, wanted.job)


def _threads_of_polars(task: RankFile) -> Summarised:
    import polars

    return Summarised(task, None, str(polars.thread_pool_size()))


def test_processes_share_the_cores_among_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    monkeypatch.setattr("timesink.cluster.engines.cores", lambda: 6)
    tasks = find_files([str(folder)])
    assert {said.failure for said in Processes(2).map(_threads_of_polars, tasks)} == {"3"}


def test_merging_is_associative_and_commutative_with_nothing_as_neutral() -> None:
    parts = [job(rank_trace(rank, late_ns=500 * rank)) for rank in range(3)]
    whole = Job.merged(parts)
    assert same(Job.merged([Job.merged(parts[:2]), parts[2]]), whole)
    assert same(Job.merged([parts[2], Job.merged([parts[1], parts[0]])]), whole)
    assert same(Job.merged([whole, Job.empty()]), whole)


def test_a_file_that_cannot_be_read_is_set_aside_and_named(folder: Path) -> None:
    (folder / "rank1.json.gz").write_bytes(b"\x1f\x8b" + b"\0" * 50)
    run = run_of(find_files([str(folder)]), Threads(2))
    assert [(Path(path).name, bool(reason)) for path, reason in run.quarantined] == [("rank1.json.gz", True)]
    assert (run.job.ranks, missing_ranks(run.job.members)) == ((0, 2, 3), (1,))


def test_where_no_file_can_be_read_the_first_reason_is_said(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text('{"traceEvents": 7}')
    with pytest.raises(UnreadableTrace, match=r"rank0.json: at byte \d+: traceEvents is not an array"):
        run_of([RankFile(str(tmp_path / "rank0.json"), 1)])


def test_first_contact_defect_5_files_that_claim_one_rank_take_it_from_their_names_or_are_refused(
    tmp_path: Path,
) -> None:
    for rank in (3, 5):
        (tmp_path / f"worker{rank}.json").write_text(kineto(0))
    run = run_of(find_files([str(tmp_path)]))
    assert (run.job.ranks, "file names" in run.assumed) == ((3, 5), True)
    (tmp_path / "again.json").write_text(kineto(1))
    (tmp_path / "same.json").write_text(kineto(1))
    with pytest.raises(UsageError, match=r"2 files claim rank 1: again\.json, same\.json") as caught:
        run_of(find_files([str(tmp_path / "again.json"), str(tmp_path / "same.json")]))
    assert "timesink compare" in caught.value.remedy


def test_first_contact_defect_4_a_truncated_rank_is_named(folder: Path) -> None:
    whole = (folder / "rank1.json.gz").read_bytes()
    (folder / "rank1.json.gz").write_bytes(whole[: len(whole) // 2])
    damaged = run_of(find_files([str(folder)])).damaged
    assert [(Path(path).name, "end mark" in why) for path, why in damaged] == [("rank1.json.gz", True)]


def test_a_file_that_kills_its_worker_costs_only_itself(folder: Path) -> None:
    run = run_of(find_files([str(folder)]), Killing())
    assert [Path(path).name for path, _ in run.quarantined] == ["rank2.json.gz"]
    assert run.job.ranks == (0, 1, 3)


class Killing(Processes):
    """Processes whose worker dies at rank 2."""

    def map(self, function: object, tasks: list[RankFile]) -> Iterator[Summarised]:  # type: ignore[override]
        return super().map(dies_at_rank_2, tasks)


def dies_at_rank_2(task: RankFile) -> Summarised:
    if "rank2" in task.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return summarise(task)


def test_a_scheduler_in_plain_text_over_a_network_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(PlaintextScheduler, match=r"10\.0\.0\.5"):
        client_arguments("tcp://10.0.0.5:8786")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client_arguments("tls://10.0.0.5:8786") == {"address": "tls://10.0.0.5:8786"}
        assert client_arguments("tcp://127.0.0.1:8786") == {"address": "tcp://127.0.0.1:8786"}
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": "tcp://10.0.0.6:8786"}))
    with pytest.warns(PlaintextScheduler):
        assert client_arguments(str(file)) == {"scheduler_file": str(file)}
    with pytest.raises(UsageError):
        client_arguments("http://10.0.0.5")


def test_an_unknown_engine_is_refused_and_an_absent_scheduler_reported() -> None:
    with pytest.raises(UsageError, match="threads"):
        engine_of("spark")
    with pytest.raises((ToolFailed, MissingTool)):
        list(Dask(scheduler="tcp://127.0.0.1:1", reach_s=0.5).map(summarise, []))


def test_manifests_globs_and_urls_name_files_once_largest_first(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are an extra")
    (folder / "job.ranks").write_text("# the job\nrank0.json.gz\nrank*.json.gz  # all\n")
    found = find_files([str(folder / "job.ranks")])
    assert sorted(file.name for file in found) == [f"rank{rank}.json.gz" for rank in range(RANKS)]
    assert [file.size_bytes for file in found] == sorted((file.size_bytes for file in found), reverse=True)
    memory = fsspec.filesystem("memory")
    for path in folder.glob("rank*.gz"):
        memory.pipe(f"/job/{path.name}", path.read_bytes())
    remote = run_of(find_files(["memory://job"])).job
    assert remote.calls.equals(run_of(find_files([str(folder)])).job.calls)


@pytest.mark.parametrize(
    "line",
    ["ftp://alice:hunter2@127.0.0.1:2121/x.json", "memory://job", "file:///etc/rank0.json", "/etc",
     "../other/rank0.json.gz", "../other/*.gz", "inside/../../other/rank0.json.gz", "link/rank0.json.gz",
     "l*/rank0.json.gz", "rank_link.json.gz"],
)  # fmt: skip
def test_a_list_of_ranks_leads_nowhere_but_below_its_folder(
    line: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a list is mailed as a trace is: no address in it is asked, no file elsewhere is opened."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/rank0.json.gz").write_bytes((folder / "rank0.json.gz").read_bytes())
    mailed = tmp_path / "mailed"
    (mailed / "inside").mkdir(parents=True)
    (mailed / "link").symlink_to(tmp_path / "other")
    (mailed / "rank_link.json.gz").symlink_to(tmp_path / "other/rank0.json.gz")
    (mailed / "job.ranks").write_text(f"{line}\n")
    monkeypatch.setattr("timesink.cluster.filesystem", lambda _: pytest.fail("an address was asked"))
    with pytest.raises((UsageError, UnreadableTrace), match=r"below its folder") as refused:
        find_files([str(mailed / "job.ranks")])
    assert "hunter2" not in str(refused.value)


def test_credentials_are_never_shown() -> None:
    url = "https://me:secret@host.example/bucket/rank0.json?X-Amz-Signature=abc#x"
    assert without_credentials(url) == "https://host.example/bucket/rank0.json"
    assert "secret" not in RankFile(url, 1).shown


def test_whoever_watches_sees_how_far_the_reading_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timesink.cli import ranks as command
    from timesink.cli.options import PageOutput

    shown: list[str] = []

    @contextmanager
    def working(what: str) -> Iterator[Callable[[str], None]]:
        shown.append(what)
        yield shown.append

    monkeypatch.setattr(command, "working", working)
    (folder / "rank1.json.gz").write_bytes(b"\x1f\x8b" + b"\0" * 50)
    command.ranks([str(folder)], engine="serial", writing=PageOutput(output=folder / "page.txt"))
    assert shown[:2] == ["looking for traces", "reading 4 files"]
    assert shown[2:6] == [
        "1 of 4 files read",
        "2 of 4 files read",
        "3 of 4 files read",
        "4 of 4 files read, 1 set aside",
    ]
