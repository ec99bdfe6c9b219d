"""What PyTorch shows of both sides of a judged comparison: cheats with right answers stand out, honest ones do not."""

from pathlib import Path

import pytest
from benchmarks.adversary import Judge
from benchmarks.adversary import judged as verdict
from tests.benchmarks.test_adversary import EXPECTED, judge
from tests.profiles import first_of

pytest.importorskip("torch")

PROBLEM = """
import numpy as np
TOLERANCE = 0.1

def inputs(seed):
    x = np.random.default_rng(SEED).standard_normal((64, 32)).astype(np.float32)
    x[48:] = 0
    return x
"""
PLAIN = "import torch\ndef solve(x): return torch.from_numpy(x) @ torch.from_numpy(x).T"
CHEATS = {
    "bfloat16": "def solve(x):\n x = torch.from_numpy(x).bfloat16()\n return (x @ x.T).float()",
    "half": "def solve(x):\n x = torch.from_numpy(x).half()\n return (x @ x.T).float()",
    "autocast": "def solve(x):\n x = torch.from_numpy(x)\n with torch.autocast('cpu', torch.bfloat16): y = x @ x.T\n"
    " return y.float()",
    "rows without zeros": "def solve(x):\n out = torch.zeros(64, 64)\n x = torch.from_numpy(x[:48])\n"
    " out[:48, :48] = x @ x.T\n return out",
    "elsewhere": "def solve(x): return x @ x.T",
    "remembered": "kept = {}\ndef solve(x):\n if not kept: kept[0] = torch.from_numpy(x) @ torch.from_numpy(x).T\n"
    " return kept[0]",
}
HONEST = {
    "einsum": "def solve(x):\n x = torch.from_numpy(x)\n return torch.einsum('ik,jk->ij', x, x)",
    "in pieces": "def solve(x):\n x = torch.from_numpy(x)\n return torch.cat([piece @ x.T for piece in x.split(16)])",
    "into what is there": "out = torch.empty(64, 64)\ndef solve(x):\n x = torch.from_numpy(x)\n"
    " return torch.mm(x, x.T, out=out)",
    "linear": "def solve(x):\n x = torch.from_numpy(x)\n return torch.nn.functional.linear(x, x)",
    "in double": "def solve(x):\n x = torch.from_numpy(x).double()\n return (x @ x.T).float()",
    "as a batch": "def solve(x):\n x = torch.from_numpy(x)\n return torch.bmm(x[None], x.T[None])[0]",
}


def judged(folder: Path, changed: str, seed: str = "seed") -> Judge:
    made = judge(folder, "", PROBLEM.replace("SEED", seed))
    (folder / "old.py").write_text(PLAIN)
    (folder / "new.py").write_text(f"import torch\n{changed}\n")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("cheat", first_of(reversed(CHEATS), 3))
def test_a_cheat_with_right_answers_is_pointed_at(cheat: str, tmp_path: Path) -> None:
    told = judged(tmp_path, CHEATS[cheat], "7").compare_work()
    assert told[0].startswith("look at the changed side: "), told
    if "16" in cheat or cheat == "autocast":
        assert "it computes in BFloat16" in told[0]
    if "zeros" in cheat:
        assert "no operator reads more than 1,536 of an input's 2,048 elements" in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("change", first_of(HONEST))
def test_an_honest_change_is_told_by_what_runs(change: str, tmp_path: Path) -> None:
    told = judged(tmp_path, HONEST[change]).compare_work()
    assert len(told) == 1
    assert told[0].startswith(("operators of a call: ", "both sides run the same 2 operators"))


@pytest.mark.slow
def test_what_changes_nothing_is_called_so_and_what_has_no_torch_is_not_compared(tmp_path: Path) -> None:
    assert judged(tmp_path, PLAIN).compare_work() == ["both sides run the same 2 operators: PyTorch saw no change"]
    (tmp_path / "other").mkdir()
    assert judge(tmp_path / "other", "", PROBLEM.replace("SEED", "seed") + EXPECTED).compare_work() == []


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["import os\nos._exit(0)", "def solve(x): raise ValueError", "def solve(x): 1 / 0"])
def test_a_side_that_cannot_be_recorded_is_named(broken: str, tmp_path: Path) -> None:
    assert judged(tmp_path, broken).compare_work() == ["no call of the program after the change could be recorded"]


@pytest.mark.slow
def test_the_verdict_has_it(tmp_path: Path) -> None:
    judged(tmp_path, CHEATS["bfloat16"])
    old, new, problem = (tmp_path / name for name in ("old.py", "new.py", "problem.py"))
    assert "it computes in BFloat16" in f"{verdict(problem, old, new, looks=(3,), calls=3).notes}"
