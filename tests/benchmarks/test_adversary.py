"""Cheats are caught, and honest changes are not refused."""

import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from benchmarks.adversary import RIGHT, Judge, Problem, difference, judged
from tests.benchmarks.cheats import HONEST, NO_FASTER, WRONG

from timesink.errors import ToolFailed, UsageError
from timesink.render import Format, Style, written
from timesink.verify.environment import Command
from timesink.verify.gpu_watch import GpuWatch
from timesink.verify.outcomes import Outcome

PROBLEM = """
import numpy as np

def inputs(seed):
    return np.random.default_rng(seed).standard_normal((64, 32))
"""
EXPECTED = """
def expected(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)
"""


def judge(folder: Path, changed: str, problem: str = PROBLEM + EXPECTED) -> Judge:
    """A judge of three calls a run, of the honest program and one that adds `changed` to what it knows."""
    for name, text in (("problem", problem), ("old", HONEST), ("new", f"{HONEST}\n{changed}\n")):
        (folder / f"{name}.py").write_text(text)
    commands = {side: Command((str(folder / f"{name}.py"),)) for side, name in (("before", "old"), ("after", "new"))}
    watch = GpuWatch(folder)
    watch.absent = "not looked for"
    return Judge(Problem.read(folder / "problem.py"), commands, folder, watch, 60, calls=3)


def test_there_are_more_than_thirty_cheats() -> None:
    assert len(WRONG) + len(NO_FASTER) >= 36


@pytest.mark.slow
@pytest.mark.parametrize("cheat", WRONG)
def test_what_is_not_computed_by_the_end_of_the_call_is_wrong(cheat: str, tmp_path: Path) -> None:
    assert judge(tmp_path, WRONG[cheat]).launch("after", 1).check != RIGHT


@pytest.mark.parametrize("cheat", NO_FASTER)
def test_a_clock_inside_of_the_process_is_not_asked(cheat: str, tmp_path: Path) -> None:
    run = judge(tmp_path, NO_FASTER[cheat]).launch("after", 1)
    assert run.check == RIGHT
    assert run.mean_s > 0.02


def test_without_a_right_answer_the_unchanged_program_gives_it(tmp_path: Path) -> None:
    assert judge(tmp_path, "", PROBLEM).launch("after", 1).check == RIGHT
    wrong = judge(tmp_path, WRONG["last row alone"], PROBLEM).launch("after", 2).check
    assert wrong == "call 1: 32 of 2048 values are wrong, the first at [63, 0]"


def test_either_side_runs_beside_the_unchanged_program_where_that_gives_the_answer(tmp_path: Path) -> None:
    """What waits between its calls is scheduled sooner on a busy machine: beside one side alone, that was faster."""
    made, begun = judge(tmp_path, "", PROBLEM), []
    opened = made._contestant
    with mock.patch.object(Judge, "_contestant", lambda _, side: begun.append(side) or opened(side)):
        made.launch("before", 1)
        made.launch("after", 2)
    assert begun == ["before", "before", "after", "before"]


def test_a_time_below_the_floor_is_impossible(tmp_path: Path) -> None:
    impossible = judge(tmp_path, "", PROBLEM + EXPECTED + "def floor_s(x): return 3600\n")
    assert "is impossible, the floor is 3.6e+09 us" in str(impossible.launch("after", 1).check)


def test_what_a_program_leaves_running_is_ended(tmp_path: Path) -> None:
    pid = str(tmp_path / "pid")
    daemon = (
        "import os\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
        f"  open({pid!r}, 'w').write(str(os.getpid()))\n  time.sleep(600)\n os._exit(0)\n"
        f"while not os.path.exists({pid!r}) or not os.path.getsize({pid!r}): time.sleep(0.01)\n"
        "def solve(x): return softmax(x)"
    )
    assert judge(tmp_path, daemon).launch("after", 1).check == RIGHT
    time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_unchanged_program_that_is_wrong_judges_nothing(tmp_path: Path) -> None:
    wrong = judge(tmp_path, "", PROBLEM + "def expected(x): return x\n")
    with pytest.raises(ToolFailed, match="the unchanged program is wrong: call 1"):
        wrong.launch("before", 1)
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UsageError, match=r"has no inputs\(seed\)"):
        Problem.read(tmp_path / "empty.py")


def test_a_verdict_refuses_a_cheat_as_another_result(tmp_path: Path) -> None:
    judge(tmp_path, WRONG["by shape"])
    old, new, problem = (tmp_path / name for name in ("old.py", "new.py", "problem.py"))
    result = judged(problem, old, new, calls=3)
    assert (result.outcome, result.exit_code()) == (Outcome.INVALID, 4)
    assert "call 2: 2048 of 2048 values are wrong" in written(result, Format.JSON, Style(width=120))


SOFTMAX = {
    "plain": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "shifted": lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1)[:, None],
    "by logarithm": lambda x: np.exp(x - np.log(np.exp(x).sum(-1, keepdims=True))),
    "summed backwards": lambda x: np.exp(x) / np.exp(x)[:, ::-1].cumsum(-1)[:, -1:],
    "by a matmul": lambda x: np.exp(x) * (1 / (np.exp(x) @ np.ones((x.shape[1], 1), x.dtype))),
}
PRODUCT = {
    "plain": lambda x: x @ x.T,
    "transposed": lambda x: (x @ x.T).T,
    "einsum": lambda x: np.einsum("ik,jk->ij", x, x),
    "outer products": lambda x: sum(np.multiply.outer(column, column) for column in x.T),
    "split in two": lambda x: x[:, ::2] @ x[:, ::2].T + x[:, 1::2] @ x[:, 1::2].T,
}
NORM = {
    "plain": lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
    "two moments": lambda x: (x - x.mean(-1)[:, None]) / np.sqrt((x**2).mean(-1) - x.mean(-1) ** 2)[:, None],
    "centred first": lambda x: (c := x - x.mean(-1, keepdims=True)) / np.sqrt((c * c).mean(-1, keepdims=True)),
    "reciprocal root": lambda x: (c := x - x.mean(-1)[:, None]) * (1 / np.sqrt((c * c).mean(-1)))[:, None],
    "copied": lambda x: np.ascontiguousarray(((x.T - x.mean(-1)) / x.std(-1)).T),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [SOFTMAX, PRODUCT, NORM], ids=["softmax", "product", "norm"])
def test_honest_changes_are_not_refused(steps: dict[str, Callable[[np.ndarray], np.ndarray]], dtype: type) -> None:
    """Each way to compute it against the plain one, at nine sizes: 216 in all."""
    refused = []
    for name, (rows, columns) in product(
        set(steps) - {"plain"},
        [(1, 2), (3, 17), (64, 32), (33, 257), (128, 100), (8, 1024), (200, 64), (50, 31), (16, 16)],
    ):
        x = np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(dtype)
        if fault := difference([steps["plain"](x)], [steps[name](x)]):
            refused.append((name, rows, columns, fault))
    assert refused == []
