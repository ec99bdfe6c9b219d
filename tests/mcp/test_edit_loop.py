"""A scripted agent that edits by `next_edit` and `judge`, and agents that cheat, whose changes the judge refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp.client", reason="mcp is not installed (pip install mcp)")
pytest.importorskip("duckdb", reason="duckdb is not installed (pip install duckdb)")
pytest.importorskip("torch")

from tests.profiles import first_of, takes_minutes

from timesink.mcp import MARK
from timesink.mcp.declared import Declared, judge_declared, next_declared
from timesink.trials.workplace import head

PROGRAM = """import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = [torch.randn(256, 128) for _ in range(4)]
for step in range(100000):
    x = batches[step % 4]
    mask = torch.triu(torch.ones(1536, 1536), 1)
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean() + mask[0, 0]
    loss.backward()
    optimizer.step()
"""
CHEATS = {
    "half of the batch": ("x = batches[step % 4]", "x = batches[step % 4][:128]"),
    "every other step": ("    optimizer.step()", "    if step % 2:\n        optimizer.step()"),
    "frozen layers": ("optimizer = ", "for p in model[:2].parameters():\n    p.requires_grad_(False)\noptimizer = "),
    "the clock": ("import torch\n", "import time\ntime.perf_counter = lambda: 0.0\nimport torch\n"),
    "the judge": ("import torch\n", "import os\nfast = 'TIMESINK_TRY' in os.environ\nimport torch\n"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "as it is")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def serving(folder: Path) -> Declared:
    return Declared({"train": (sys.executable, "train.py")}, folder, 500.0, [head(folder)])


def judged(declared: Declared) -> dict[str, Any]:
    return anyio.run(judge_declared, declared, "train", False)


@pytest.mark.slow
@takes_minutes
def test_an_agent_that_does_as_it_is_told_wins_and_stops(folder: Path) -> None:
    declared, skip, kept = serving(folder), list[str](), list[float]()
    for _ in range(3):
        edit = anyio.run(next_declared, declared, "train", ",".join(skip))["edit"]
        if edit is None:
            break
        diff = "\n".join(edit["diff" + MARK]) + "\n"
        subprocess.run(["patch", "-p1", "-s"], input=diff, text=True, cwd=folder, check=True)
        said = judged(declared)
        if said["outcome"] == "faster":
            kept.append(said["wins"][1])
            git(folder, "commit", "-q", "-a", "-m", "kept")  # taking the next edit back leaves this one
        else:
            git(folder, "checkout", "-q", "train.py")
            skip.append(edit["fix"])
    assert kept[0] > 0.02, said
    text = (folder / "train.py").read_text()
    assert text.index("mask = ") < text.index("for step")
    assert judged(declared)["outcome"] == "unchanged"


@pytest.mark.slow
@pytest.mark.parametrize("cheat", first_of(CHEATS))
def test_a_cheat_is_refused_also_where_it_is_committed(folder: Path, cheat: str) -> None:
    declared = serving(folder)
    (folder / "train.py").write_text(PROGRAM.replace(*CHEATS[cheat]))
    git(folder, "commit", "-q", "-a", "-m", "faster")
    said = judged(declared)
    assert said["outcome"] == "refused", json.dumps(said, indent=1)
