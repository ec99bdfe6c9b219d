"""What ranks of one job ought to share: named where they do not, said first, and never a secret among it."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.readers.nsys_exports import write_sqlite

from timesink.cluster import facts_beside, find_files
from timesink.cluster.engines import Serial
from timesink.cluster.run import Run, run_of
from timesink.diagnosis.engine import diagnose
from timesink.measures.communication.waits import waits_of
from timesink.measures.ranks.parity import differences, parity_facts
from timesink.model.tables import SETTINGS
from timesink.readers import read
from timesink.untrusted.masking import kept_variables
from timesink.views.ranks import notes_of

SECRET = "hunter2-do-not-show"


def rank(number: int, *, nccl: str = "2.28.9", gpu: str = "H200", width: int = 512, compiled: bool = False) -> str:
    """One product on the host and its kernel."""
    args: dict[str, Any] = {"External id": 1, "Input Dims": [[8, width], [width, width]]}
    name = "Torch-Compiled Region: 0/0" if compiled else "step"
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 5, "pid": 7, "tid": 8, "args": args},
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": 9, "dur": 9, "pid": 7, "tid": 8, "args": {"External id": 2}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 9, "pid": 0, "tid": 7,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
    ]  # fmt: skip
    info = {"rank": number, "world_size": 3, "backend": "nccl", "nccl_version": nccl}
    devices = [{"id": 0, "name": gpu, "numSms": 132}]
    return json.dumps({"distributedInfo": info, "deviceProperties": devices, "record_shapes": 1, "traceEvents": events})


def run_with(folder: Path, *texts: str) -> Run:
    for number, text in enumerate(texts):
        (folder / f"rank{number}.json").write_text(text)
    return run_of(find_files([str(folder)]), Serial())


def said(run: Run) -> list[str]:
    return [difference.text for difference in differences(run.job.parity)]


def test_ranks_that_share_everything_differ_in_nothing(tmp_path: Path) -> None:
    assert said(run_with(tmp_path, *(rank(number) for number in range(3)))) == []


@pytest.mark.parametrize(
    ("odd", "wanted"),
    [
        ({"nccl": "2.27.1"}, "NCCL is 2.28.9, but 2.27.1 on rank 1"),
        ({"gpu": "H100"}, "GPU name is H200, but H100 on rank 1"),
        (
            {"width": 640},
            "the usual input of aten::mm is [[8,512],[512,512]], but [[8,640],[640,640]] on rank 1",
        ),
        ({"compiled": True}, "torch.compile is not used, but used on rank 1"),
    ],
)
def test_the_odd_rank_is_named_with_what_it_has(odd: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    found = said(run_with(tmp_path, rank(0), rank(1, **odd), rank(2)))
    assert [text.replace(" ", "") for text in found] == [wanted.replace(" ", "")]


@pytest.mark.parametrize("held", [(0, 1), (0, 2), (1, 2)])
def test_a_rank_that_no_file_holds_is_named_by_a_diagnosis_as_by_ranks(held: tuple[int, int], tmp_path: Path) -> None:
    (absent,) = {0, 1, 2} - set(held)
    run = run_with(tmp_path, *map(rank, held))
    sentence = f"no file holds rank {absent}; waits are lower bounds where a rank is missing"
    assert sentence in notes_of(run, waits_of(run.job))
    assert sentence in [note.message for note in diagnose(read(sorted(tmp_path.glob("*.json")))).notes]


def test_nothing_is_missing_where_all_ranks_are_there(tmp_path: Path) -> None:
    run_with(tmp_path, *map(rank, range(3)))
    notes = [note.message for note in diagnose(read(tmp_path)).notes]
    assert not any(word in note for note in notes for word in ("no file holds", "was read"))


@pytest.mark.parametrize("held", [0, 1, 2])
def test_one_rank_of_a_job_is_no_job_of_one_gpu(held: int, tmp_path: Path) -> None:
    run = run_with(tmp_path, rank(held))
    sentence = f"only rank {held} of 3 was read: its waits for others count as communication"
    assert sentence in notes_of(run, waits_of(run.job))
    assert sentence in [note.message for note in diagnose(read(tmp_path)).notes]


def test_a_difference_is_said_before_anything_else(tmp_path: Path) -> None:
    run = run_with(tmp_path, rank(0), rank(1, nccl="2.27.1"))
    notes = notes_of(run, waits_of(run.job))
    assert notes[0].startswith("ranks differ: NCCL")
    assert any("no file holds rank 2" in note for note in notes[1:])


def test_a_diagnosis_of_several_ranks_says_it_first_too(tmp_path: Path) -> None:
    for number, text in enumerate((rank(0), rank(1, nccl="2.27.1"), rank(2))):
        (tmp_path / f"rank{number}.json").write_text(text)
    notes = diagnose(read([tmp_path], cache=False), rules=()).notes
    assert notes[0].message == "ranks differ: NCCL is 2.28.9, but 2.27.1 on rank 1"
    (tmp_path / "rank1.json").unlink()
    assert not [note for note in diagnose(read([tmp_path], cache=False), rules=()).notes if "differ" in note.message]


def manifest(folder: Path, clock: str, **variables: str) -> None:
    gpus = [{"name": "H200", "clocks.max.sm": clock, "driver_version": "580.1", "power.draw": "70 W"}] * 2
    (folder / "manifest.json").write_text(
        json.dumps({"timesink_manifest": 1, "gpus": gpus, "cuda_of_driver": "13.0", "environment": variables})
    )


def test_clocks_and_variables_of_two_hosts_come_from_their_manifests(tmp_path: Path) -> None:
    places = []
    for number, clock in enumerate(("1980 MHz", "1200 MHz")):
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        (folder / f"rank{number}.json").write_text(rank(number))
        variables = {"NCCL_ALGO": f"{number}", "CUDA_VISIBLE_DEVICES": f"{number}", "API_TOKEN": SECRET + str(number)}
        manifest(folder, clock, **variables)
        places.append(str(folder))
    for _ in range(2):  # read, then taken from what was kept
        assert said(run_of(find_files(places), Serial())) == [
            "NCCL_ALGO is 0, but 1 on rank 1",
            "highest SM clock is 1980 MHz, but 1200 MHz on rank 1",
        ]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "", "5", '{"timesink_manifest": 1, "gpus": 5, "environment": []}',
     '{"timesink_manifest": 1, "gpus": [5, null], "cuda_of_driver": {}}'],
)  # fmt: skip
def test_a_damaged_manifest_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert facts_beside(tmp_path / "rank0.json", (0,)).is_empty()


def test_of_a_recorded_environment_only_the_allow_list_is_read(tmp_path: Path) -> None:
    said = f"NCCL_DEBUG=INFO;AWS_SECRET_ACCESS_KEY={SECRET};NCCL_TOKEN={SECRET};HOME=/root/{SECRET};OMP_NUM_THREADS=2"
    path = write_sqlite(
        tmp_path / "report.sqlite",
        f'''
        StringIds
        id value
        1 "gemm"

        CUPTI_ACTIVITY_KIND_KERNEL
        start end deviceId contextId streamId correlationId globalPid shortName
        10 20 0 1 7 1 7: 1

        TARGET_INFO_SYSTEM_ENV
        name value
        "NvDriverVersion" "580.95.05"
        "DeviceEnvironment" "{said}"
        ''',
    )
    trace = read(path, cache=False)
    assert trace[SETTINGS].select("name", "value").rows() == [
        ("GPU driver", "580.95.05"), ("NCCL_DEBUG", "INFO"), ("OMP_NUM_THREADS", "2"),
    ]  # fmt: skip
    for table in trace:
        texts = trace[table].select(pl.col(pl.String, pl.Categorical).cast(pl.String))
        assert not any(SECRET in str(row) for row in texts.rows())
    assert SECRET not in str(parity_facts(trace).rows()) + str(trace.notes)


def test_a_secret_is_kept_under_no_name_of_the_list() -> None:
    given = {"NCCL_ALGO": "Ring", "NCCL_AUTH_TOKEN": SECRET, "TORCH_LOGS": "/etc/passwd", "PGPASSWORD": SECRET}
    assert kept_variables(given) == {"NCCL_ALGO": "Ring"}
