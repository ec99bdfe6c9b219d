"""Spreading the suite over GPUs: nothing is lost when a process dies."""

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from benchmarks.faults import suite
from benchmarks.faults.pack import Packer, merged
from benchmarks.faults.run_all import (
    NO_MULTICAST,
    Site,
    Task,
    command,
    dealt,
    descendants,
    ended,
    environment,
    groups,
    tasks_of,
    unreached,
    without,
)  # fmt: skip

from timesink.records import replace

CASES = ("a/high", "a/low", "b/high", "b/low", "c/high")


def site(scratch: Path) -> Site:
    return Site(scratch, deadline=0.0, gpus=1, nsys="nsys", dry=True)


def test_every_case_is_in_one_group_and_severities_stay_together() -> None:
    cases = suite.cases()
    parts = groups(cases, 8)
    assert sorted(name for part in parts for name in part) == sorted(str(case) for case in cases)
    homes = {(name.split("/")[0], number) for number, part in enumerate(parts) for name in part}
    assert len(homes) == len(suite.FAULTS)


def test_after_a_death_the_program_it_was_at_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    task = Task("measure:0", 0, CASES)
    (tmp_path / f"{task.name}.json").write_text(json.dumps({"a/high": {}, "a/low": {}}))
    assert unreached(site(tmp_path), task) == ("c/high",)


def test_no_later_stage_tries_a_program_at_which_a_process_died(tmp_path: Path) -> None:
    found = site(tmp_path)
    unreached(found, Task("measure:0", 0, CASES))
    assert found.lost == {"a"}
    assert without(CASES, found.lost) == CASES[2:]


def test_programs_of_ranks_are_dealt_in_the_order_of_the_registry() -> None:
    cases = suite.cases("fifth:")
    parts = dealt(cases, 2)
    assert [part[0] for part in parts] == [str(case) for case in cases[:2]]
    assert sorted(name for part in parts for name in part) == sorted(map(str, cases))


def test_a_process_that_stands_at_one_program_is_stopped_with_the_ranks_it_started(tmp_path: Path) -> None:
    ranks = "import subprocess, sys; subprocess.run(['sleep', '100'], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", ranks])
    found = replace(site(tmp_path), deadline=time.monotonic() + 60, program_s=3.0)
    task = Task("measure:0", 0, CASES)
    assert not ended(found, task, process)
    children = list(descendants(process.pid))
    assert len(children) == 1
    for number in (*children, process.pid):
        os.kill(number, 9)
    process.wait()


def test_a_process_that_moves_on_is_given_its_time(tmp_path: Path) -> None:
    task = Task("measure:0", 0, CASES)
    target = str(tmp_path / f"{task.name}.json")
    moving = (
        "import json, sys, time\nfrom pathlib import Path\n"
        "target, part = Path(sys.argv[1]), Path(sys.argv[1] + '.part')\n"
        "for n in range(4): time.sleep(1); part.write_text(json.dumps([0] * n)); part.replace(target)"
    )
    process = subprocess.Popen([sys.executable, "-c", moving, target])
    found = replace(site(tmp_path), deadline=time.monotonic() + 60, program_s=2.5)
    assert ended(found, task, process)
    assert process.returncode == 0


def test_a_call_that_is_cut_leaves_what_was_packed(tmp_path: Path) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    (scratch / "torch").mkdir(parents=True)
    out.mkdir()
    for name in ("batches_uneven", "channels_first"):
        (scratch / "torch" / f"{name}.high.fault.json").write_text('{"traceEvents": []}')
    packer = Packer(scratch, out, "cut")
    packer.add("torch", ["batches_uneven"])
    with tarfile.open(out / "faults.cut.0.tar") as kept:
        assert kept.getnames() == ["batches_uneven.torch.tar.xz"]
    packer.write_measured()
    assert json.loads((out / "measured.cut.json").read_text()) == {}
    packer.finish()
    with tarfile.open(out / "faults.cut.0.tar") as kept:
        assert kept.getnames() == [
            "batches_uneven.torch.tar.xz", "channels_first.torch.tar.xz", "logs.cut.tar.xz", "measured.cut.json"
        ]  # fmt: skip
    assert [path.name for path in out.iterdir()] == ["faults.cut.0.tar"]


def test_a_process_that_did_all_leaves_nothing(tmp_path: Path) -> None:
    task = Task("torch", 0, CASES)
    (tmp_path / "torch").mkdir()
    taken = {f"{case}/fault": "taken" for case in CASES} | {"a/high/fix": "taken"}
    (tmp_path / "torch" / f"{task.name}.taken.json").write_text(json.dumps(taken))
    assert unreached(site(tmp_path), task) == ()


def test_a_process_that_died_at_once_costs_its_first_program(tmp_path: Path) -> None:
    assert unreached(site(tmp_path), Task("measure:0", 0, CASES)) == ("b/high", "b/low", "c/high")


def test_ranks_are_one_job_on_neighbouring_gpus_without_multicast(tmp_path: Path) -> None:
    (tasks,) = tasks_of(suite.cases("batches_uneven,channels_first_under_amp"), ["torch"], gpus=4)
    assert [(task.gpus, task.cases) for task in tasks] == [
        (1, ("channels_first_under_amp/high", "channels_first_under_amp/low", "channels_first_under_amp/harmless")),
        (2, ("batches_uneven/high", "batches_uneven/low")),
    ]
    alone, job = tasks
    assert "torch.distributed.run" not in command(site(tmp_path), alone)
    line = command(site(tmp_path), job)
    assert line[line.index("torch.distributed.run") :][:4] == [
        "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
    ]  # fmt: skip
    around = environment(site(tmp_path), job, slot=1)
    assert around["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert NO_MULTICAST.items() <= around.items()


def test_what_only_the_environment_plants_runs_in_processes_of_its_own_which_take_turns() -> None:
    cases = suite.cases("exchanged_through_host,batches_uneven")
    stages = tasks_of(cases, ["measure:0", "measure:1", "torch"], gpus=2)
    own = [[(task.variant, task.environment) for task in tasks if "exchanged" in task.cases[0]] for tasks in stages]
    planted = (("NCCL_P2P_DISABLE", "1"),)
    assert own == [[("fix", ()), ("fault", planted)], [("fault", planted), ("fix", ())], [("", planted)]]
    assert {task.environment for tasks in stages for task in tasks if "exchanged" not in task.cases[0]} == {()}


def half(variant: str, receipts: list[float]) -> dict[str, object]:
    return {
        "a/high": {
            f"{variant}_ms": 10.0 if variant == "fault" else 8.0,
            "blocks_ms": {variant: [1.0, 2.0]},
            "receipts": {variant: receipts, "tolerance": 1e-3},
        }
    }


@pytest.mark.parametrize(("fixed", "same"), [([1.0, 2.0], True), ([1.0, 2.5], False)])
def test_fault_and_fix_of_two_processes_are_one_case(tmp_path: Path, fixed: list[float], same: bool) -> None:
    for name, part in (("measure0.0.0", half("fix", fixed)), ("measure0.1.0", half("fault", [1.0, 2.0]))):
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    case = merged(tmp_path)["a/high"]
    assert (case["fault_ms"], case["fix_ms"], case["gain_share"]) == ([10.0], [8.0], 0.2)
    assert case["receipts_equal"] == [same]


def test_half_a_measurement_is_no_gain(tmp_path: Path) -> None:
    (tmp_path / "measure0.0.0.json").write_text(json.dumps(half("fault", [1.0])))
    case = merged(tmp_path)["a/high"]
    assert case["receipts_equal"] == []
    assert "gain_share" not in case


def test_one_variant_alone_is_asked_for_by_name(tmp_path: Path) -> None:
    task = Task("measure:0", 0, ("exchanged_through_host/high",), gpus=2, variant="fix")
    assert "--variant" in command(site(tmp_path), task)
    assert "--variant" not in command(site(tmp_path), replace(task, variant=""))
