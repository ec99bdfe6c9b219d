"""Programs with faults are repaired and compute the same; traps, which a naive pattern breaks, are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.fixes.suite import FAULTS, SEVERAL, TRAPS, Piece, program
from tests.edits.repairing import repaired

from timesink.edits.table import EDITS
from timesink.fixes.table import FIXES

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


def test_the_table_of_fixes_says_which_can_be_written() -> None:
    assert {fix.name for fix in FIXES if fix.edit} == set(EDITS)
