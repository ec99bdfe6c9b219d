"""Fresh processes: split a command without a shell, run it, keep its output, kill its group on a timeout."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from timesink.errors import MissingTool, ToolFailed, UsageError
from timesink.model.record import dataclass, field, replace

_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments and the environment variables to add; never a shell line."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Command:
        """Split as a POSIX shell would split words; leading NAME=value words become environment. No shell runs."""
        try:
            words = shlex.split(text)
        except ValueError as broken:
            raise UsageError(f"cannot split the command {text!r}: {broken}", remedy="balance its quotes") from broken
        added: dict[str, str] = {}
        while words and "=" in words[0]:
            name, _, value = words[0].partition("=")
            if not (name.isascii() and name.isidentifier()):
                break
            added[name] = value
            del words[0]
        if not words:
            raise UsageError(f"the command {text!r} names no program", remedy="give a program and its arguments")
        return cls(tuple(words), added)

    def with_environment(self, **added: str) -> Command:
        """The same command with more environment variables."""
        return replace(self, environment={**self.environment, **added})

    @property
    def text(self) -> str:
        """The command as one would type it."""
        return " ".join(
            [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()] + [shlex.join(self.argv)]
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that ended with status 0: wall-clock bounds (seconds since the epoch), its output, and how long it ran
    by a clock that nobody sets.
    """

    started_s: float
    ended_s: float
    stdout: Path
    stderr: Path
    seconds: float = 0.0


def run(command: Command, folder: Path, *, extra: Mapping[str, str], timeout_s: float) -> Finished:
    """Run to the end with output in `folder`. `ToolFailed` on a status other than 0 or past the time limit."""
    stdout, stderr = folder / "stdout.txt", folder / "stderr.txt"
    environment = {**os.environ, **command.environment, **extra}
    started_s, began_s = time.time(), time.perf_counter()
    with stdout.open("wb") as out, stderr.open("wb") as err:
        try:
            process = subprocess.Popen(
                command.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        except FileNotFoundError as absent:
            raise MissingTool(f"no program {command.argv[0]!r}", remedy="check the path and the spelling") from absent
        except OSError as refused:
            raise ToolFailed(f"{command.argv[0]!r} cannot be started: {refused.strerror}") from refused
        status = _wait(process, timeout_s)
        seconds = time.perf_counter() - began_s
    if status is None:
        raise ToolFailed(f"{command.text!r} ran past {timeout_s:g} s", remedy="raise --timeout or run fewer steps")
    if status != 0:
        raise ToolFailed(
            f"{command.text!r} ended with status {status}: {last_line(stderr)!r}", remedy="make it run alone first"
        )
    return Finished(started_s, time.time(), stdout, stderr, seconds)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit status, or None past the limit. Whatever ends the wait, nothing of the process group is left running."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_line(path: Path) -> str:
    """The last non-empty line of a text file, at most 300 characters: what a failed program had to say."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no error output"
