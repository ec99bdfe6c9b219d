"""The Python that will run a program, as far as its command line tells, and whether it has what a capture needs."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault, failure

_PATIENCE_S = 120.0
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
        raise CaptureError(
            Fault.MISSING,
            f"{name} has no PyTorch, and torch.profiler is a part of it",
            remedy="name the interpreter that has it, such as .venv/bin/python, or use timesink capture nsys",
        )
    if done.returncode == _TOO_OLD:
        oldest = ".".join(map(str, _OLDEST))
        raise CaptureError(
            Fault.MISSING, f"{name} is older than Python {oldest}", remedy=f"run the program with {oldest} or newer"
        )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise failure(f"{name} cannot import torch: {said[-1][:200] if said else ''}", "repair its PyTorch")
    return f"{done.stdout.strip()}, of {name}" if load else name
