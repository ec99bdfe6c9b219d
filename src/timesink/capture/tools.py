"""What runs on this machine: an installed nsys or ncu, the options that its help names, and the Python of a program."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.errors import failure, missing, refused
from timesink.knowledge.profiler_texts import TOOL_OPTION
from timesink.untrusted import numbers_in, stated_version
from timesink.untrusted.nvidia_tools import find_tool

_PATIENCE_S = 120.0
_PACKAGES = {
    "nsys": "install Nsight Systems (package nsight-systems) or Nsight Compute, which carries one, or give --tool PATH",
    "ncu": "install Nsight Compute (package nsight-compute), or give --tool PATH",
}
_HELP = {"nsys": ("profile", "--help"), "ncu": ("--help",)}


@dataclass(frozen=True, slots=True)
class Tool:
    """`version` has as many parts as the tool states; `options` are those of `nsys profile` or of `ncu`, None where no
    tool was asked: then it is taken for the newest."""

    name: str
    path: Path
    version: tuple[int, ...]
    options: frozenset[str] | None
    help_text: str

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {'.'.join(map(str, self.version))}"

    def knows(self, option: str) -> bool:
        """Whether this version has the option (`--name`, without a value)."""
        return self.options is None or option in self.options

    def require(self, option: str, why: str) -> str:
        """The option, or `CaptureError` where this version does not have it."""
        if not self.knows(option):
            raise refused(f"{self.title} has no option {option} ({why})", f"leave it out, or use a newer {self.name}")
        return option


def find_installed(name: str, given: Path | None = None) -> Tool:
    """The tool given, or the one found. `CaptureError` where there is none, or it does not run."""
    path = given.absolute() if given is not None else find_tool(name)
    if path is None:
        raise missing(f"{name} is not on this machine", _PACKAGES[name])
    if not path.is_file():
        raise missing(f"there is no {name} at {path}", "check the path")
    version = stated_version(ask_tool(path, "--version")).partition("-")[0]
    words = ask_tool(path, *_HELP[name])
    options = frozenset(re.findall(TOOL_OPTION, words))
    return Tool(name, path, numbers_in(version) or (0,), options, words)


def tool_to_show(name: str, given: Path | None = None) -> Tool:
    """The tool whose command line is to be shown: the installed one, else the newest as its documentation has it."""
    if given is None and find_tool(name) is None:
        return Tool(name, Path(name), (), None, "")
    return find_installed(name, given)


def ask_tool(path: Path, *arguments: str) -> str:
    """What the tool prints when asked; `CaptureError` where it cannot be asked."""
    try:
        done = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or "no answer in time"
        raise failure(f"{path} does not run: {why}", "check the installation") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        what = f"{path} {' '.join(arguments)} ended with status {done.returncode}"
        raise failure(f"{what}: {said[-1][:200] if said else ''}", "check the installation")
    return done.stdout


# Programs that run the words after their options here, in a process of its own.
_WRAPPERS = ("env", "nice", "taskset", "numactl", "stdbuf", "chrt", "ionice")
_OLDEST = (3, 10)
_LACKS_TORCH, _TOO_OLD = 91, 92
_LOOK = f"""
import sys
if sys.version_info < {_OLDEST}: sys.exit({_TOO_OLD})
import importlib.util
if importlib.util.find_spec("torch") is None: sys.exit({_LACKS_TORCH})
"""
_IMPORT = """
import torch
print("torch", torch.__version__, "with a GPU" if torch.cuda.is_available() else "without a GPU")
"""


def interpreter_of(program: Sequence[str]) -> list[str] | None:
    """The words that start it, wrappers such as env included; None where only running the program would tell."""
    if not program:
        return None
    at = next((at for at, word in enumerate(program) if _is_python(word)), None)
    if at == 0 or (at is not None and Path(program[0]).name in _WRAPPERS):
        return list(program[: at + 1])
    found = shutil.which(program[0])
    if found is None:
        return None
    with Path(found).open("rb") as file:
        line = file.readline(200).decode("utf-8", "replace").strip()
    words = line.removeprefix("#!").split()
    return words if line.startswith("#!") and any(_is_python(word) for word in words) else None


def _is_python(word: str) -> bool:
    """Whether a word is an interpreter's name, such as python, python3.11 or a path to one."""
    name = Path(word).name.removesuffix(".exe")
    return name.startswith("python") and not name.removeprefix("python").strip("0123456789.")


def check_torch(program: Sequence[str], *, load: bool = False) -> str:
    """What is known of PyTorch in the program's interpreter, "" where the command line does not tell which that is.

    `load` imports it, which takes seconds, and says its version. `CaptureError` where it is not there, cannot be
    loaded, or the interpreter is too old for the agent.
    """
    interpreter = interpreter_of(program)
    if interpreter is None or shutil.which(interpreter[0]) is None:
        return ""
    name = shlex.join(interpreter)
    try:
        asked = [*interpreter, "-c", _LOOK + (_IMPORT if load else "")]
        done = subprocess.run(
            asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode == _LACKS_TORCH:
        remedy = "name the interpreter that has it, such as .venv/bin/python, or use timesink capture nsys"
        raise missing(f"{name} has no PyTorch, and torch.profiler is a part of it", remedy)
    if done.returncode == _TOO_OLD:
        oldest = ".".join(map(str, _OLDEST))
        raise missing(f"{name} is older than Python {oldest}", f"run the program with {oldest} or newer")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise failure(f"{name} cannot import torch: {said[-1][:200] if said else ''}", "repair its PyTorch")
    return f"{done.stdout.strip()}, of {name}" if load else name
