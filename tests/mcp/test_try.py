"""The tool that tries changes: a declared command by its name, and what the trial's page says."""

import sys
from pathlib import Path

import anyio

from timesink.mcp import declared as module
from timesink.mcp.declared import Declared, try_declared


def test_a_program_that_makes_no_step_says_why(tmp_path: Path) -> None:
    declared = Declared({"train": (sys.executable, "-c", "print('no torch here')")}, tmp_path, 60.0)
    answer = anyio.run(try_declared, declared, "train")
    assert answer["argv"] == list(declared.commands["train"]) and answer["exit_code"] == 5
    assert any("no step was seen" in line for line in answer["last_lines" + module.MARK])
