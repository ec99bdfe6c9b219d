"""What works on other systems than Linux, told before anything is imported that they have not."""

import subprocess
import sys
from pathlib import Path

import pytest

import timesink

TRACE = Path(timesink.__file__).parent / "cli/demo/gpt_before.json.xz"
ELSEWHERE = """
import sys
import polars, numpy, click, multiprocessing, subprocess, asyncio  # for this system, not for the one that is played
sys.platform = {system!r}
if {system!r} == "win32":
    sys.modules["fcntl"] = sys.modules["resource"] = None
import timesink
from timesink.cli.app import run
{program}
"""


def played(system: str, program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", ELSEWHERE.format(system=system, program=program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["capture", "verify", "gate", "try", "fix"])
@pytest.mark.parametrize("system", ["win32", "darwin", "linux"])
def test_what_runs_programs_says_where_it_does(system: str, command: str) -> None:
    ran = played(system, f"sys.exit(run([{command!r}, '--help']))")
    works = system == "linux" or (system == "darwin" and command not in ("try", "fix"))
    assert ran.returncode == (0 if works else 5), ran.stderr
    assert ("runs on Linux alone" in ran.stderr) is not works
    assert "Traceback" not in ran.stderr


def test_a_recording_is_read_on_windows_and_the_names_that_run_programs_say_so() -> None:
    read = played("win32", f"sys.exit(run(['diagnose', '--no-cache', {str(TRACE)!r}]))")
    assert read.returncode == 0 and "input pipeline" in read.stdout, read.stderr
    names = played("win32", "for name in ('try_', 'gate', 'verify_change'):\n    getattr(timesink, name)")
    assert "ImportError: timesink try_ runs on Linux alone, not on win32; diagnose" in names.stderr
