"""Switches in real programs on a CPU: what applies is measured, what does not says why, nothing breaks the program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.trials.program import PROGRAM

import timesink
from timesink.capture.running import INJECT
from timesink.trials.agent import VARIABLE
from timesink.trials.checks import alike_losses
from timesink.trials.records import TrialPlan
from timesink.trials.repair import RepairOrder, fix_program
from timesink.trials.run import ProgramRuns, recorded, shares_of_lines, waits_of_step
from timesink.trials.workplace import open_workplace

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def run(program: str, folder: Path, plan: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The result of a program with a trial in it (empty without a plan), and what it printed."""
    script, file = folder / "train.py", folder / "trial.json"
    script.write_text(program)
    source = str(Path(timesink.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join((str(INJECT), source))}
    if plan is not None:
        environment[VARIABLE] = TrialPlan(str(file), **plan).to_json()
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(file.read_text()) if plan is not None else {}, ran.stdout


def test_a_slow_loader_is_found_and_what_does_not_apply_says_why(tmp_path: Path) -> None:
    names = ("loader_workers", "tf32", "channels_last", "no_recomputation", "set_to_none", "drop_debugging")
    found, _ = run(PROGRAM, tmp_path, {"names": names, "budget_s": 60.0, "block_s": 0.1})
    assert (found["root"], found["optimizer"], found["mark"]) == ("Sequential", "Adam", "optimizer")
    by_name = {one["name"]: one for one in found["tried"] if not one["beside"]}
    assert by_name["loader_workers"]["ratio"] < 0.5
    assert "loader_workers" in found["kept"] and found["phase"] == "done"
    assert by_name["set_to_none"]["pairs"] >= 2  # enough where neither is worth it
    for name, why in (
        ("tf32", "not on a GPU"),
        ("channels_last", "no convolution"),
        ("no_recomputation", "no activation is recomputed"),
        ("drop_debugging", "anomaly mode is off"),
    ):
        assert why in by_name[name]["refused"]


def test_all_blocks_that_a_model_repeats_are_found() -> None:
    """In lists of lists too, and no leaf, no head, nothing inside of another block."""
    from torch import nn

    from timesink.recipes.model import _repeated_blocks

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    class Cell(Block):
        pass

    stages = nn.ModuleList(nn.Sequential(Block(), Block()) for _ in range(2))
    model = nn.ModuleDict({"stages": stages, "cells": nn.ModuleList([Cell(), Cell()]), "head": Block()})
    found = _repeated_blocks([*model.modules()])
    assert found == [*stages[0], *stages[1], *model["cells"]]
    plain = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    assert _repeated_blocks([*plain.modules()]) == [*plain]
    assert _repeated_blocks([*nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).modules()]) == []


def test_channels_last_gives_every_weight_the_layout_of_its_gradient() -> None:
    """A kernel of 1 x 1 too: an optimizer that finds two layouts goes through parameters one by one."""
    import torch

    from timesink.recipes.model import lay_channels_last
    from timesink.recipes.program import RunningProgram

    model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 1), torch.nn.Conv2d(16, 8, 3))
    optimizer, program = torch.optim.Adam(model.parameters()), RunningProgram(lambda _: False)
    pictures = torch.randn(2, 8, 8, 8)

    def train(given: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(given).sum().backward()
        optimizer.step()

    train(pictures)
    program._note_optimizer(optimizer)
    program._roots[id(model)] = model
    undo = lay_channels_last(program)
    train(program.around["channels_last"](lambda _, given: given)(model, pictures))
    weights = [p for p in model.parameters() if p.dim() == 4]
    for weight in weights:
        assert weight.grad is not None
        layouts = {weight.stride(), weight.grad.stride(), optimizer.state[weight]["exp_avg"].stride()}
        assert len(layouts) == 1 and weight.stride()[1] == 1
    undo()
    assert [weight.stride() for weight in weights] == [(8, 1, 1, 1), (144, 9, 3, 1)]


def test_losses_without_switches_are_those_of_the_program_alone(tmp_path: Path) -> None:
    short = PROGRAM.replace("STEPS = 20_000", "STEPS = 40")
    _, alone = run(short, tmp_path, None)
    found, said = run(short, tmp_path, {"steps": 10})
    assert said == alone.replace("\r", "")
    assert found["losses"][:4] == [float(line.split()[1]) for line in alone.splitlines()]
    assert 2 <= len(found["steps_ms"]) <= 10  # pieces of some steps each


def test_losses_with_workers_are_those_of_the_same_batches(tmp_path: Path) -> None:
    plan = {"steps": 5}
    one, _ = run(PROGRAM, tmp_path, plan)
    other, _ = run(PROGRAM, tmp_path, {**plan, "fixed": ("loader_workers",)})
    assert other["losses"][:5] == one["losses"][:5]


RENEWED = """
import copy, torch, weakref

torch.manual_seed(0)

class Learner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        cast.add((made, torch.is_autocast_enabled("cpu")))
        return self.outer(self.inner(x).tanh())

def tell():
    print(most, len({number for number, on in cast if on}) > 5, flush=True)

import atexit
atexit.register(tell)
model, made, cast, held, most = Learner(), 0, set(), [], 0
outer = torch.optim.SGD(model.parameters(), lr=0.1)
for turn in range(TURNS):
    outer.zero_grad()
    for task in range(3):
        learner, made = copy.deepcopy(model), made + 1
        inner = torch.optim.SGD(learner.parameters(), lr=0.1)
        held = [one for one in held if one() is not None] + [weakref.ref(learner), weakref.ref(inner)]
        x = torch.randn(8, 16)
        for _ in range(2):
            inner.zero_grad()
            (learner(x) - x).square().mean().backward()
            inner.step()
        for mine, other in zip(model.parameters(), learner.parameters()):
            mine.grad = (mine - other).detach() if mine.grad is None else mine.grad + (mine - other).detach()
    outer.step()
    most = max(most, len(held))
"""


def test_a_model_made_for_each_task_is_held_by_the_program_alone(tmp_path: Path) -> None:
    """Copies that we held would fill the GPU. What is on around calls is on around those of copies to come."""
    names = ("bf16", "channels_last", "compile", "fused_optimizer", "frozen_garbage")
    _, alone = run(RENEWED.replace("TURNS", "20"), tmp_path, None)
    found, tried = run(
        RENEWED.replace("TURNS", "100_000"), tmp_path, {"names": names, "budget_s": 15.0, "block_s": 0.05}
    )
    assert alone.split()[1] == "False" and tried.split()[1] == "True"
    assert int(tried.split()[0]) <= int(alone.split()[0]) + 2
    by_name = {one["name"]: one for one in found["tried"]}
    assert all("makes its model anew" in by_name[name]["refused"] for name in ("channels_last", "compile"))
    assert "makes optimizers anew" in by_name["fused_optimizer"]["refused"] and by_name["bf16"]["pairs"]


BREAKS = PROGRAM.replace(
    "model = torch",
    """
class Fussy(torch.nn.Module):
    def forward(self, x):
        assert not torch.is_autocast_enabled("cpu"), "this model wants float32"
        return x
model = torch""",
).replace("torch.nn.Tanh()", "Fussy()")


def test_a_change_that_breaks_the_model_ends_the_change_and_not_the_program(tmp_path: Path) -> None:
    found, _ = run(BREAKS, tmp_path, {"names": ("bf16", "foreach"), "budget_s": 60.0, "block_s": 0.05})
    by_name = {one["name"]: one for one in found["tried"]}
    assert "this model wants float32" in by_name["bf16"]["failed"]
    assert by_name["foreach"]["pairs"] >= 2  # enough where neither is worth it
    assert "bf16" not in found["kept"]


@pytest.mark.parametrize(("infers", "casts"), [(True, 1), (False, 3)])
def test_weights_are_cast_once_where_a_program_only_infers(infers: bool, casts: int) -> None:
    """Three calls: in training weights change between them, so each casts them again."""
    import torch

    from timesink.recipes.model import autocast_model
    from timesink.recipes.program import RunningProgram

    program, model, given = RunningProgram(lambda _: False), torch.nn.Linear(4, 4), torch.ones(2, 4)
    program._called[id(model)] = model
    with torch.set_grad_enabled(not infers):
        undo = autocast_model("bf16", program)
        call = program.around["bf16"](torch.nn.Module.__call__)
        with torch.profiler.profile() as profiled:
            for _ in range(3):
                call(model, given)
        undo()
    seen = sum(event.name == "aten::_to_copy" and event.input_shapes is not None for event in profiled.events())
    assert seen == 3 * 2 + 2 * casts  # what is given, the result; weight and bias
    assert model(given).dtype is torch.float32 and not program.around


def test_an_error_of_the_program_itself_stays_its_own(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(PROGRAM.replace("loss.backward()", "loss.backward(); 1 / 0 if number == 3 else None"))
    environment = {
        **os.environ,
        VARIABLE: TrialPlan(str(tmp_path / "t.json"), ("foreach",)).to_json(),
        "PYTHONPATH": os.pathsep.join((str(INJECT), str(Path(timesink.__file__).parents[1]))),
    }
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "ZeroDivisionError" in ran.stderr


def test_an_edit_is_made_in_a_copy_and_proven_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the 20 ms that one sample takes is won by workers; the optimizer's lists are worth less than 2 %."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    workplace = open_workplace("timesink-fix", tmp_path / "copy")
    order = RepairOrder(["loader_workers", "set_to_none"], 600.0)
    answer = fix_program([sys.executable, "train.py"], workplace, tmp_path, order)
    assert len(answer.kept) == 1, answer
    (kept,) = answer.kept
    assert kept.fix == "loader_workers" and kept.effect is not None and kept.effect.ratio < 0.7
    assert "num_workers=" in (tmp_path / "copy" / "train.py").read_text()
    assert (tmp_path / "here" / "train.py").read_text() == PROGRAM


_RUNS = """
import {first}
import os, sys, time, torch
from pathlib import Path
torch.manual_seed(0)
weights = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
with open("runs.txt", "a") as said:
    said.write(f"{{os.getppid()}} {{sys.argv[1:]}} {{__name__}} {{torch.cuda.is_initialized()}}\\n")
for step in range(400):
    if step == 200 and Path("ends").exists():
        os.kill(os.getpid(), 9) if Path("ends").read_text() == "killed" else sys.exit(3)
    optimizer.zero_grad()
    loss = weights(torch.rand(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)  # its period is looked for before steps are timed
"""


def test_the_second_run_and_all_after_it_begin_where_pytorch_is_imported_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read files and arguments as a new process does, end as one does, and leave nothing behind them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(_RUNS.format(first="math"))
    runs = ProgramRuns([sys.executable, "train.py", "--lr", "1"], tmp_path, "", tmp_path)
    first, second = runs.fixed(), runs.fixed()
    (tmp_path / "train.py").write_text(_RUNS.format(first="math").replace("lr=0.1", "lr=0.2"))
    edited = runs.fixed()
    for ends, said in (("killed", "status -9"), ("exits", "status 3")):
        (tmp_path / "ends").write_text(ends)
        assert said in runs.once(TrialPlan("", fixed=(), budget_s=20.0, steps=500))[1]
    rows = [line.split(maxsplit=1) for line in (tmp_path / "runs.txt").read_text().splitlines()]
    forker = int(rows[1][0])
    assert [int(parent) for parent, _ in rows] == [os.getpid()] + 4 * [forker]
    assert {rest for _, rest in rows} == {"['--lr', '1'] __main__ False"}
    assert first.losses == second.losses != edited.losses
    runs.close()
    with pytest.raises(ProcessLookupError):
        os.kill(forker, 0)


def test_a_program_that_sets_variables_before_pytorch_is_begun_anew_each_time(tmp_path: Path) -> None:
    """PyTorch reads some when it is imported."""
    (tmp_path / "train.py").write_text(_RUNS.format(first="os; os.environ['TORCH_SET_BY_THE_PROGRAM'] = '1'"))
    runs = ProgramRuns([sys.executable, "train.py"], tmp_path, "", tmp_path)
    for _ in range(2):
        runs.fixed()
    parents = [line.split()[0] for line in (tmp_path / "runs.txt").read_text().splitlines()]
    assert parents == 2 * [str(os.getpid())]


_INFERS = """
import torch
torch.manual_seed(0)
into, out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
with torch.no_grad():
    for batch in torch.utils.data.DataLoader(torch.arange(400_000.0).reshape(-1, 4), batch_size=2):
        out(into(batch))
"""


def test_a_program_that_only_infers_runs_changed_from_its_first_calls_on(tmp_path: Path) -> None:
    """The loader's first batch comes before any model; outputs of all runs are of the same batches."""
    (tmp_path / "infer.py").write_text(_INFERS)
    runs = ProgramRuns([sys.executable, "infer.py"], tmp_path, "", tmp_path)
    first, second, changed = runs.fixed(), runs.fixed(), runs.fixed(("bf16",))
    runs.close()
    before, again, after = alike_losses(first, second, changed)
    assert changed.steps_ms and min(map(len, (before, again, after))) > 20
    assert before[:20] == again[:20] == pytest.approx(after[:20], rel=0.02) and before[:20] != after[:20]
    assert len(set(before[:20])) == 20


def test_a_line_has_the_share_of_the_step_that_passes_in_it_and_in_what_it_calls(tmp_path: Path) -> None:
    text = _RUNS.format(first="time").replace("from pathlib", "def rest(): time.sleep(0.02)\nfrom pathlib")
    text = text.replace("    optimizer.zero_grad", "    rest()\n    time.sleep(0.1)\n    optimizer.zero_grad")
    (tmp_path / "train.py").write_text(text)
    runs = ProgramRuns([sys.executable, "train.py"], tmp_path, "", tmp_path)
    shares = shares_of_lines(recorded(runs.capture, runs.fixed(capture=runs.capture)))
    runs.close()
    at = {row.strip(): number for number, row in enumerate(text.splitlines(), 1)}
    inner, call, long = (shares["train.py", at[row]] for row in
                         ("def rest(): time.sleep(0.02)", "rest()", "time.sleep(0.1)"))  # fmt: skip
    assert 0 < inner <= call < long < call + long <= 1


def test_waits_of_a_step_are_counted_in_what_was_recorded(tmp_path: Path) -> None:
    """Without a GPU each value that is handed to Python is one: three of a loss in each step, and one of its mean."""
    text = _RUNS.format(first="time").replace(
        "    loss.backward()", "    [loss.item() for _ in range(3)]; float(loss)\n    loss.backward()"
    )
    counted = list[float | None]()
    for program in (text, text.replace("[loss.item() for _ in range(3)]; float(loss)", "pass")):
        (tmp_path / "train.py").write_text(program)
        runs = ProgramRuns([sys.executable, "train.py"], tmp_path, "", tmp_path)
        counted.append(waits_of_step(recorded(runs.capture, runs.fixed(capture=runs.capture))))
        runs.close()
    assert counted == [4.0, 0.0] and waits_of_step(None) is None
