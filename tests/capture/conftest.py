"""Stand-ins for tools and programs, and the real ones where they are found."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from timesink.untrusted.nvidia_tools import find_tool

SOURCE = Path(__file__).resolve().parents[2] / "src"

Program = Callable[[str, str], Path]


@pytest.fixture
def executable(tmp_path: Path) -> Program:
    """Writes an executable file: (name, text with its own first line)."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch: the variable TIMESINK_TEST_TORCH_PYTHON, else this one; or skip."""
    python = os.environ.get("TIMESINK_TEST_TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{python} has no torch (TIMESINK_TEST_TORCH_PYTHON names an interpreter that has)")
    return python


@pytest.fixture(scope="session")
def nsys() -> Path:
    """A real Nsight Systems: the variable TIMESINK_TEST_NSYS, else the one installed; or skip."""
    given = os.environ.get("TIMESINK_TEST_NSYS")
    path = Path(given) if given else find_tool("nsys")
    if path is None:
        pytest.skip("no nsys on this machine (Debian: package nsight-systems; TIMESINK_TEST_NSYS names one)")
    return path


@pytest.fixture
def command_line() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `timesink` with arguments, as a user would; keyword arguments are variables."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "timesink", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, **variables},
        )

    return run
