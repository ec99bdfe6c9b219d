"""Declared commands: nothing else runs, nothing is added to them, and what they started ends with them."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.client", reason="mcp is not installed (pip install mcp)")
pytest.importorskip("duckdb", reason="duckdb is not installed (pip install duckdb)")

from tests.mcp.test_server import Call, spoken, started
from tests.render.test_hostile_names import ACTS_ON_TERMINAL, HOSTILE

from timesink.cli.app import run
from timesink.errors import UsageError
from timesink.mcp import MARK
from timesink.mcp.declared import Declared, declared_commands
from timesink.mcp.server import build

PYTHON = sys.executable


def declared(folder: Path, program: str, name: str = "train") -> tuple[str, ...]:
    """The options that declare a Python program."""
    (folder / f"{name}.py").write_text(program)
    return ("--allow-exec", "--command", f"{name}={PYTHON} {name}.py 'two words' $HOME;ls")


def serving(folder: Path, program: str) -> object:
    """A server of a folder, in this process, that may run a Python program."""
    _, _, command = declared(folder, program)
    return build([folder], Declared(declared_commands([command], None), folder, timeout_s=60))


def test_no_tool_runs_programs_unless_they_were_declared(tmp_path: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        assert "run" not in {tool.name for tool in (await client.list_tools()).tools}

    spoken(build([tmp_path]), talk)


def test_a_declared_command_runs_as_it_was_declared_without_a_shell(tmp_path: Path) -> None:
    program = "import os, sys\nprint(sys.argv[1:], os.getcwd())\nsys.exit(3)\n"

    async def talk(client: Any, call: Call) -> None:
        tools = (await client.list_tools()).tools
        (tool,) = (tool for tool in tools if tool.name == "run")
        assert len(tools) == 12
        assert not tool.annotations.read_only_hint
        assert tool.annotations.destructive_hint
        assert "train: " in tool.description
        answer = await call("run", name="train")
        assert answer["exit_code"] == 3
        assert answer["last_lines" + MARK] == [f"['two words', '$HOME;ls'] {tmp_path}"]

    started(tmp_path, talk, *declared(tmp_path, program))


def test_a_string_that_is_no_declared_name_runs_nothing(tmp_path: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        for name in ("", "train; ls", "train\n", "TRAIN", "train --x", "python train.py", "../train"):
            assert "choose one of: train" in (await call("run", name=name))["error"]

    spoken(serving(tmp_path, "open('ran', 'w')"), talk)
    assert not (tmp_path / "ran").exists()


def test_what_a_program_writes_is_data_and_short(tmp_path: Path) -> None:
    printed = json.dumps([name.encode("utf-8", "replace").decode() for name in HOSTILE])
    program = f"import sys\nfor text in {printed}: print(text); print(text, file=sys.stderr)\n"

    async def talk(client: Any, call: Call) -> None:
        answer = await call("run", name="train")
        assert answer["exit_code"] == 0
        lines = answer["last_lines" + MARK]
        assert 0 < sum(map(len, lines)) <= 3_000
        assert not any(ACTS_ON_TERMINAL.search(line) for line in lines)

    spoken(serving(tmp_path, program), talk)


@pytest.mark.slow
def test_a_command_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    late = "import time; time.sleep(3); open('late', 'w')"
    program = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {late!r}])\ntime.sleep(60)\n"

    async def talk(client: Any, call: Call) -> None:
        answer = await call("run", name="train")
        assert answer["timed_out_after_s"] == 1
        assert answer["exit_code"] < 0

    started(tmp_path, talk, *declared(tmp_path, program), "--timeout", "1")
    time.sleep(3)
    assert not (tmp_path / "late").exists()


def test_commands_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "commands.toml"
    file.write_text('[commands]\ncheck = "timesink verify --before \'python a.py\'"\nlist = ["ls", "-l"]\n')
    assert declared_commands(["train=python t.py"], file) == {
        "train": ("python", "t.py"),
        "check": ("timesink", "verify", "--before", "python a.py"),
        "list": ("ls", "-l"),
    }


@pytest.mark.parametrize(
    ("texts", "file", "says"),
    [
        (["python t.py"], None, "declares no command"),
        (["Up=ls"], None, "is not a name"),
        (["a=ls", "a=ls"], None, "declared twice"),
        (["a="], None, "has no words"),
        (["a='ls"], None, "cannot be read"),
        ([], "a = 1", "holds other than"),
        ([], "[commands]\na = 1", "has no words"),
        ([], "[commands", "is no TOML"),
        ([], "a = " + "[" * 5_000, "is no TOML"),
        ([], "a = " + "9" * 5_000, "is no TOML"),
        ([], "a = 2026-13-45", "is no TOML"),
    ],
)
def test_what_declares_nothing_is_refused(tmp_path: Path, texts: list[str], file: str | None, says: str) -> None:
    path = None
    if file is not None:
        path = tmp_path / "commands.toml"
        path.write_text(file)
    with pytest.raises(UsageError, match=says):
        declared_commands(texts, path)


def test_the_option_and_the_commands_need_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", "--allow-exec"]) == 2
    assert "nothing to allow" in capsys.readouterr().err
    assert run(["mcp", "--command", "a=ls"]) == 2
    assert "add --allow-exec" in capsys.readouterr().err
