"""Programs with faults are repaired and compute the same; traps, which a naive pattern breaks, are left alone.

Flags: one argument or line more, where the program makes what is changed; else none.
"""

import ast
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixes.suite import FAULTS, SEVERAL, TRAPS, Piece, program
from tests.recipes.repairing import repaired

from timesink.recipes.table import proposals

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
PIECES = {piece.name: piece for piece in FAULTS}
TOLD = {"norm", "score", "loss"}
"""What is only told: it is of the last step in which it was."""


def computed(text: str) -> dict[str, Any]:
    """All numbers and parameters that the program holds when it is over, as lists."""
    held: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), held)
    torch.autograd.set_detect_anomaly(False)
    found: dict[str, Any] = {}
    for name, value in held.items():
        if isinstance(value, torch.nn.Module):
            found[name] = [p.detach().sum().item() for p in value.parameters()]
        elif isinstance(value, torch.Tensor):
            found[name] = value.detach().float().sum().item()
        elif isinstance(value, float) or name == "losses":
            found[name] = value
    return {name: value for name, value in found.items() if name not in TOLD}


@pytest.mark.slow
@pytest.mark.parametrize("piece", FAULTS, ids=lambda piece: piece.name)
def test_a_fault_is_repaired_and_the_program_computes_the_same(tmp_path: Path, piece: Piece) -> None:
    faulty = program([piece], steps=2)
    text, made = repaired(tmp_path, faulty)
    assert made == {piece.fix} and text != faulty
    before, after = computed(faulty), computed(text)
    assert before.keys() - after.keys() <= {"mean", "p"}  # the names of a loop that is none any more
    for name in before.keys() & after.keys():
        assert after[name] == pytest.approx(before[name], rel=2e-5, abs=1e-6), name


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_trap_is_left_alone(tmp_path: Path, trap: Piece) -> None:
    text, made = repaired(tmp_path, program([trap], steps=2))
    assert not made
    assert text == program([trap], steps=2)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_naive_pattern_would_break_the_trap(trap: Piece) -> None:
    text = program([trap], steps=2)
    assert trap.naive_of in text
    before = computed(text)
    naive = text.replace(trap.naive_of, trap.naive)
    if trap.fix == "build_once":  # what is built before the loop is not built in it
        naive = "\n".join(line for line in naive.splitlines() if not line.startswith("    keep ="))
    try:
        after = computed(naive)
    except (RuntimeError, MemoryError):
        return
    assert any(after[name] != pytest.approx(before[name], rel=1e-6) for name in before.keys() & after.keys())


def test_a_loop_whose_names_are_read_after_it_is_only_offered(tmp_path: Path) -> None:
    text = program([PIECES["average_one_by_one"]], steps=2)
    assert repaired(tmp_path, text)[1] == {"list_operations"}
    assert repaired(tmp_path, f"{text}print(p.shape)\n")[1] == set()
    assert repaired(tmp_path, f"{text}print([p.shape for p in model.parameters()])\n")[1] == {"list_operations"}


@pytest.mark.parametrize("name", list(SEVERAL)[:5])
def test_all_faults_of_a_program_are_repaired_one_after_another(tmp_path: Path, name: str) -> None:
    faulty = program(SEVERAL[name], steps=2)
    text, made = repaired(tmp_path, faulty)
    assert made == {piece.fix for piece in SEVERAL[name]}
    assert computed(text)["model"] == pytest.approx(computed(faulty)["model"], rel=2e-5, abs=1e-6)


SCRIPT = """import torch
from torch import nn

model = nn.Linear(3, 3)
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,  # tuned
)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x),
                                       y)
    loss.backward()
"""
PLACES = {"model": 11, "optimizer": 5, "loader": 9}


def patched(folder: Path, script: str, *names: str) -> tuple[str, list[str]]:
    """The script with all proven edits, and those that were made."""
    file = folder / "train.py"
    file.write_text(script)
    places = {what: f"{file}:{line}" for what, line in PLACES.items()}
    found = [(source, one) for source, one in proposals([file], names, places) if not one.unproven]
    parts = [part for _, one in found for part in one.replacements]
    return (found[0][0].edited(parts) if found else script), [one.fix for _, one in found]


def test_all_that_is_an_argument_or_a_line_is_written(tmp_path: Path) -> None:
    text, made = patched(tmp_path, SCRIPT, "tf32", "bf16", "fused_optimizer", "loader_workers", "pin_memory", "compile")
    ast.parse(text)
    assert sorted(made) == ["bf16", "fused_optimizer", "loader_workers", "pin_memory", "tf32"]
    assert text.splitlines()[1] == 'torch.set_float32_matmul_precision("high")'
    assert "lr=1e-3, fused=True,  # tuned" in text
    assert "shuffle=True" in text and ", num_workers=" in text and ", pin_memory=True" in text
    assert '    with torch.autocast("cuda", dtype=torch.bfloat16):\n        loss = nn.functional' in text


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (SCRIPT.replace("lr=1e-3,", "lr=1e-3, fused=False,"), "fused_optimizer"),  # somebody decided otherwise
        (SCRIPT.replace("lr=1e-3,", "**options,"), "fused_optimizer"),
        (SCRIPT.replace("import torch\n", "import torch as th\n", 1), "tf32"),
        (SCRIPT.replace("y)", '"""a\nb""")'), "bf16"),
        ("this is no Python\n", "tf32"),
    ],
)
def test_what_cannot_be_written_safely_is_left(tmp_path: Path, script: str, name: str) -> None:
    assert patched(tmp_path, script, name) == (script, [])
    assert not list(proposals([tmp_path / "train.py"], [name], {}))
