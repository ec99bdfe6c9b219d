"""What a capture needs of the program's interpreter is looked at before the program runs."""

import sys
from pathlib import Path

import pytest
from tests.capture.conftest import Program

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.tools import check_torch, interpreter_of
from timesink.cli.app import run

# An interpreter that answers as one without torch, too old, broken, or whole would.
ANSWERS = {"without": 91, "old": 92, "broken": 1, "whole": 0}


@pytest.fixture
def pythons(executable: Program) -> dict[str, str]:
    text = '#!/bin/sh\necho "torch 9.9 with a GPU"\necho "ImportError: libcudart.so.99" >&2\nexit {}\n'
    made = {}
    for name, status in ANSWERS.items():
        folder = Path(executable(f"{name}", text.format(status)))
        made[name] = str(folder.rename(folder.with_name(f"python{len(made)}")))
    return made


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (["python3", "a.py"], ["python3"]),
        (["env", "A=1", "/x/python3.11", "-u", "a.py"], ["env", "A=1", "/x/python3.11"]),
        (["srun", "-n", "4", "python", "a.py"], None),
        (["no-such-program"], None),
        ([], None),
    ],
)
def test_the_interpreter_is_taken_from_the_command_line(program: list[str], words: list[str] | None) -> None:
    assert interpreter_of(program) == words


def test_a_script_names_its_interpreter_in_its_first_line(executable: Program) -> None:
    script = executable("launcher", "#!/opt/some/bin/python3.12 -sP\nimport sys\n")
    assert interpreter_of([str(script), "train.py"]) == ["/opt/some/bin/python3.12", "-sP"]
    assert interpreter_of([str(executable("plain", "#!/bin/sh\nexit\n"))]) is None


@pytest.mark.parametrize(
    ("which", "fault", "message"),
    [
        ("without", Fault.MISSING, "has no PyTorch"),
        ("old", Fault.MISSING, "older than Python 3.10"),
        ("broken", Fault.FAILED, "cannot import torch: ImportError: libcudart"),
    ],
)
def test_first_contact_defect_14_an_interpreter_that_cannot_be_captured_is_named(
    pythons: dict[str, str], which: str, fault: Fault, message: str
) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        check_torch([pythons[which], "train.py"])
    assert caught.value.fault is fault
    assert caught.value.remedy


def test_first_contact_defect_14_neither_dry_run_nor_capture_nor_loop_gets_as_far_as_the_program(
    pythons: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["capture", "torch", "--dry-run"], ["capture", "torch"], ["capture", "--loop"]):
        assert run([*command, "--", pythons["without"], "train.py"]) == 5
        shown = capsys.readouterr()
        assert "has no PyTorch" in shown.err
        assert "ready" not in shown.out


def test_first_contact_defect_14_a_dry_run_says_which_pytorch_it_found(
    pythons: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "out")
    assert run(["capture", "torch", "--dry-run", "-o", folder, "--", pythons["whole"], "train.py"]) == 0
    assert f"torch 9.9 with a GPU, of {pythons['whole']}" in capsys.readouterr().out


def test_an_interpreter_nobody_can_tell_is_said_not_to_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", "torch", "--dry-run", "-o", str(tmp_path / "o"), "--", "sh", "run.py"]) == 0
    assert "not looked at" in capsys.readouterr().out
    assert check_torch(["sh", "run.py"]) == ""


def test_this_interpreter_has_torch_or_is_said_not_to() -> None:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        with pytest.raises(CaptureError, match="has no PyTorch"):
            check_torch([sys.executable, "x.py"])
    else:
        assert check_torch([sys.executable, "x.py"]) == sys.executable
