"""PyTorch programs on the CPU, none of which knows of timesink, captured through the agent."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.capture.stand_ins import LOOP

from timesink import capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.schedule import StepSchedule

FEW = StepSchedule(settle=2, timed=3, warm_up=1, active=3)


def written(folder: Path, text: str, name: str = "train.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def names(path: Path) -> list[str]:
    """Names of complete events of a trace, in order."""
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


def said(done: capture.Capture) -> str:
    return (done.folder / "log.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_steps_asked_for_are_recorded_and_the_program_ends(torch_python: str, tmp_path: Path) -> None:
    script = written(tmp_path / "a folder with spaces", LOOP, "my train.py")
    done = capture.torch([torch_python, script], steps=FEW, out=tmp_path / "o u t", quiet=True)
    assert done.is_complete
    assert sum(name.startswith("ProfilerStep#") for name in names(done.files[0])) == FEW.active
    assert done.manifest["files"][0]["counts"]["steps"] == FEW.active
    (rank,) = done.manifest["ranks"]
    assert len(rank["unprofiled"]["steps_ms"]) == FEW.timed
    assert len(rank["profiled"]["steps_ms"]) == FEW.active
    assert rank["step_source"] == "optimizer"
    assert "went on to its end" not in said(done)


@pytest.mark.slow
def test_a_program_may_keep_running(torch_python: str, tmp_path: Path) -> None:
    script = written(tmp_path, LOOP)
    done = capture.torch([torch_python, script], steps=FEW, out=tmp_path / "out", quiet=True, keep_running=True)
    assert done.is_complete
    assert "went on to its end" in said(done)


@pytest.mark.slow
def test_an_explicit_step_wins_over_the_optimizers(torch_python: str, tmp_path: Path) -> None:
    text = LOOP.replace("import sys, torch", "import sys, torch, timesink")
    text = text.replace("    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n    timesink.step()\n")
    done = capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert done.manifest["ranks"][0]["step_source"] == "explicit"
    assert sum(name.startswith("Optimizer.step#") for name in names(done.files[0])) == 2 * FEW.active


@pytest.mark.slow
def test_the_programs_own_profiler_marks_steps_and_records_nothing(torch_python: str, tmp_path: Path) -> None:
    text = LOOP.replace("for _", "profiler = torch.profiler.profile()\nprofiler.start()\nfor _")
    text = text.replace("    optimizer.step()\n", "    optimizer.step()\n    profiler.step()\n")
    text += "profiler.stop(); print(len(profiler.key_averages()), 'averages')\n"
    done = capture.torch(
        [torch_python, written(tmp_path, text), "30"], steps=FEW, out=tmp_path / "out", quiet=True, keep_running=True
    )
    assert done.is_complete
    assert done.manifest["ranks"][0]["step_source"] == "profiler"
    assert "0 averages" in said(done)


@pytest.mark.slow
def test_inference_without_an_optimizer_counts_calls_of_the_outermost_module(torch_python: str, tmp_path: Path) -> None:
    text = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
with torch.no_grad():
    for _ in range(100): model(torch.randn(2, 8))
"""
    done = capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert done.manifest["ranks"][0]["step_source"] == "forward"
    assert sum(name == "aten::addmm" for name in names(done.files[0])) == 2 * FEW.active


BEFORE = {
    "an evaluation": "    for _ in range(40): model(torch.randn(2, 32))",
    "an evaluation that reads": "    print(sum(model(torch.randn(2, 32)).mean().item() for _ in range(40)))",
    "a rollout": "    x = torch.randn(2, 32)\n    while len(seen) < 40: seen.append(x := model(x))",
    "a slow evaluation": "    for _ in range(70): model(torch.randn(2, 32)); time.sleep(0.1)",
    "a loop without modules": "    for _ in range(70): torch.randn(32, 32) @ torch.randn(32, 32); time.sleep(0.1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE)
def test_what_a_program_does_before_it_trains_is_no_step(torch_python: str, tmp_path: Path, before: str) -> None:
    """Its optimizer is there already. Recorded are steps of the training, however many calls came before."""
    text = LOOP.replace("for _ in", f"import time\nseen = []\nwith torch.no_grad():\n{BEFORE[before]}\nfor _ in", 1)
    done = capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert done.manifest["ranks"][0]["step_source"] == "optimizer"
    assert sum(name.startswith("Optimizer.step#") for name in names(done.files[0])) == FEW.active


@pytest.mark.slow
def test_two_ranks_of_torchrun_record_the_same_steps(torch_python: str, tmp_path: Path) -> None:
    text = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    model(torch.randn(4, 16)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
    program = [torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = capture.torch([*program, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert [path.name for path in done.files] == ["rank0.json.gz", "rank1.json.gz"]
    assert done.is_complete
    per_rank = [{n for n in names(path) if n.startswith("ProfilerStep#")} for path in done.files]
    assert per_rank[0] == per_rank[1]


@pytest.mark.slow
def test_steps_whose_batches_lay_ready_are_dropped(torch_python: str, tmp_path: Path) -> None:
    text = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(4000, 8), batch_size=4, num_workers=2, prefetch_factor=3):
    model(x).sum().backward(); optimizer.step()
"""
    done = capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert done.manifest["ranks"][0]["warm_up"] == FEW.warm_up + 2 * 3


@pytest.mark.slow
def test_phases_are_marked_without_edits_also_where_stacks_are_recorded(torch_python: str, tmp_path: Path) -> None:
    """`--stacks` takes frames that run the code of `Module.__call__` for modules: it must be the code of no other."""
    text = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(400, 8), batch_size=4):
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step(); torch.save(model.state_dict(), "/dev/null")
"""
    script = written(tmp_path, text)
    done = capture.torch(
        [torch_python, script], steps=FEW, out=tmp_path / "out", quiet=True, auto_ranges=True, stacks=True
    )
    found = names(done.files[0])
    for phase in ("data", "forward", "backward", "optimizer", "checkpoint"):
        assert found.count(phase) == FEW.active, phase


@pytest.mark.slow
def test_phases_break_no_compiled_graph(torch_python: str, tmp_path: Path) -> None:
    """`fullgraph` makes every graph break an error; the ranges stand around the compiled call, not inside."""
    text = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
fast = torch.compile(model, backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    optimizer.zero_grad(); fast(torch.randn(4, 8)).sum().backward(); optimizer.step()
"""
    script = written(tmp_path, text)
    done = capture.torch([torch_python, script], steps=FEW, out=tmp_path / "out", quiet=True, auto_ranges=True)
    assert names(done.files[0]).count("forward") == FEW.active


@pytest.mark.slow
def test_a_whole_program_needs_no_steps(torch_python: str, tmp_path: Path) -> None:
    text = "import torch\nfor _ in range(5): torch.randn(8, 8) @ torch.randn(8, 8)\n"
    done = capture.torch([torch_python, written(tmp_path, text)], out=tmp_path / "out", quiet=True, whole=True)
    assert done.is_complete
    assert names(done.files[0]).count("aten::mm") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n", "no step was seen"),
        *(
            (LOOP.replace("200", str(made)), f"ended after {made} steps of rank 0: .* needs 9")
            for made in (1, 4, 5, 7, 8)
        ),
        ("raise SystemExit('no such dataset')\n", "status 1: no such dataset"),
        ("import torch\n" + LOOP.replace("optimizer.step()", "1/0"), "ZeroDivisionError"),
    ],
)
def test_a_program_that_makes_no_capture_is_told_why(
    torch_python: str, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert caught.value.fault is Fault.FAILED
    assert caught.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize(("made", "options"), [(8, "--timed 2"), (5, "--settle 1 --timed 0 --steps 3")])
def test_a_program_of_few_steps_is_captured_with_the_options_that_the_error_names(
    torch_python: str, tmp_path: Path, made: int, options: str
) -> None:
    program = [torch_python, written(tmp_path, LOOP), str(made)]
    with pytest.raises(CaptureError) as caught:
        capture.torch(program, steps=FEW, out=tmp_path / "out", quiet=True)
    assert caught.value.remedy and f"ask for fewer: {options}," in caught.value.remedy
    given = dict(zip(options.split()[::2], map(int, options.split()[1::2]), strict=True))
    asked = {"active": "--steps", "settle": "--settle", "timed": "--timed"}
    fewer = replace(FEW, **{name: given[option] for name, option in asked.items() if option in given})
    assert capture.torch(program, steps=fewer, out=tmp_path / "again", quiet=True).is_complete


@pytest.mark.slow
def test_the_step_without_a_profiler_reaches_the_diagnosis(torch_python: str, tmp_path: Path) -> None:
    from timesink.capture.recorded_run import recorded_run

    done = capture.torch([torch_python, written(tmp_path, LOOP)], steps=FEW, out=tmp_path / "out", quiet=True)
    assert recorded_run([done.folder]).step_ms == done.unprofiled_step_ms
    assert recorded_run(done.files).step_ms == done.unprofiled_step_ms
    assert done.read().source.endswith("rank0.json.gz")


@pytest.mark.slow
def test_a_block_of_a_running_program_is_recorded(torch_python: str, tmp_path: Path) -> None:
    """In a process of its own, since torch need not be in the test's."""
    import subprocess

    text = f"""
import sys; sys.path.insert(0, {str(Path(capture.__file__).parents[2])!r})
import timesink, torch
from pathlib import Path
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with timesink.profile(steps=3, out=Path({str(tmp_path / "run")!r})) as run:
    for _ in range(30):
        with timesink.annotate("mine"):
            model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
print(run.capture.manifest["files"][0]["counts"]["steps"], len(run.capture.missing), run.capture.files[0])
"""
    script = written(tmp_path, text)
    done = subprocess.run([torch_python, script], capture_output=True, text=True, check=True)
    steps, missing, file = done.stdout.split()[-3:]
    assert (steps, missing) == ("3", "0")
    assert names(Path(file)).count("mine") == 3


@pytest.mark.slow
def test_a_second_rank_records_its_file_and_has_no_capture(torch_python: str, tmp_path: Path) -> None:
    import subprocess

    text = f"""
import sys; sys.path.insert(0, {str(Path(capture.__file__).parents[2])!r})
import timesink, torch
from pathlib import Path
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with timesink.profile(steps=2, out=Path({str(tmp_path / "run")!r})) as run:
    for _ in range(30):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
try:
    run.read()
except Exception as error:
    print(run.capture, type(error).__name__, error)
"""
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    script = written(tmp_path, text)
    done = subprocess.run([torch_python, script], capture_output=True, text=True, check=True, env=os.environ | ranks)
    assert done.stdout.splitlines()[-1].startswith("None CaptureError there is no capture")
    assert "on rank 0" in done.stdout
    assert [path.name for path in tmp_path.rglob("rank*.json*")] == ["rank1.json.gz"]


@pytest.mark.slow
def test_a_full_collection_is_a_range_of_the_step_it_stopped(torch_python: str, tmp_path: Path) -> None:
    text = LOOP.replace("import sys, torch", "import gc, sys, torch").replace(
        "    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    if _ == 7: gc.collect()\n"
    )
    text = text.replace("import gc,", "import gc; gc.disable()\nimport")
    done = capture.torch([torch_python, written(tmp_path, text)], steps=FEW, out=tmp_path / "out", quiet=True)
    found = names(done.files[0])
    assert found.count("Python GC") == 1
