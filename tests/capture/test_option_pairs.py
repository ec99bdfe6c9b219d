"""Every pair of the options that change what happens inside a captured program, on a real program on the CPU."""

import json
import os
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from timesink.capture.running import agent_environment
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode, StepSchedule

pytestmark = pytest.mark.slow

OPTIONS = {
    "stacks": {"stacks": True}, "memory": {"memory": True}, "no-shapes": {"shapes": False},
    "auto-ranges": {"auto_ranges": True}, "whole": {"whole": True}, "keep-running": {"stop": False},
}  # fmt: skip
PAIRS = [(), *((name,) for name in OPTIONS), *combinations(OPTIONS, 2)]
STEPS = StepSchedule(settle=1, timed=2, warm_up=1, active=2)

# One process loads torch; a forked child of it is the program of each pair, since the agent's hooks stay in place.
# Modules within modules, one without parameters; batches; a backward pass; two optimizers; an evaluation; a checkpoint.
PROGRAM = """
import io, json, os, sys, torch, torch._dynamo, torch._inductor.config
from torch.utils.data import DataLoader, TensorDataset

def train():
    inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    model = torch.nn.Sequential(inner, torch.nn.Dropout(0.1), torch.nn.Linear(8, 2))
    optimizers = [torch.optim.AdamW(inner.parameters()), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)]
    data = TensorDataset(torch.randn(80, 8), torch.zeros(80, dtype=torch.long))
    for x, y in DataLoader(data, batch_size=8):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step(); optimizer.zero_grad()
        with torch.no_grad():
            model(x)
        torch.save(model.state_dict(), io.BytesIO())

ended = []
for plan in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = json.dumps(plan)
        from timesink.capture import agent
        agent.begin()
        train()
        sys.exit(0)
    ended.append(os.waitpid(child, 0)[1])
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, Path]]:
    """The status with which the program of each pair ended (0: by itself, without an error), and its folder."""
    root = tmp_path_factory.mktemp("pairs")
    folders = [root / ("-and-".join(pair) or "plain") for pair in PAIRS]
    plans = [plan_of(pair, folder) for pair, folder in zip(PAIRS, folders, strict=True)]
    text = f"VARIABLE = {VARIABLE!r}\n{PROGRAM}"
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    command = [torch_python, "-c", text, json.dumps([json.loads(plan.to_json()) for plan in plans])]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(PAIRS, zip(json.loads(done.stdout.splitlines()[-1]), folders, strict=True), strict=True))


def plan_of(pair: tuple[str, ...], folder: Path) -> AgentPlan:
    folder.mkdir()
    changed = {name: value for option in pair for name, value in OPTIONS[option].items()}
    plan = AgentPlan(Mode.TORCH, str(folder), STEPS, **changed)
    assert set(agent_environment(plan)) == {VARIABLE, "PYTHONPATH"}
    return plan


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "+".join(pair) or "none")
def test_first_contact_every_pair_of_options_records_and_leaves_the_program_alive(
    ended: dict[tuple[str, ...], tuple[int, Path]], pair: tuple[str, ...]
) -> None:
    status, folder = ended[pair]
    assert status == 0
    told = json.loads((folder / "ranks" / "0.json").read_text())
    assert (told["phase"], told.get("error")) == ("done", None)
    assert (folder / "rank0.json.gz").stat().st_size > 1000
