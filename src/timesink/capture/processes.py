"""Run a program in a process group of its own, pass on what it says, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Protocol

from timesink.capture.errors import failure, refused
from timesink.knowledge.profiler_texts import NAMED_ERROR

_POLL_S = 0.1
_GRACE_S = {signal.SIGINT: 60.0, signal.SIGTERM: 10.0, signal.SIGKILL: 10.0}
_CHUNK_BYTES = 1 << 14
_ERROR_LINES = 40  # from the end, among which an error is looked for
_TAIL_BYTES = 8000


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its status (negative: the signal), seconds, and the file with what it said."""

    status: int
    seconds: float
    log: Path

    def tail(self, lines: int = 3) -> list[str]:
        """The last lines it said that are not empty."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            said = file.read().decode("utf-8", "replace").splitlines()
        return [line.strip() for line in said if line.strip()][-lines:]

    def last_words(self) -> str:
        """The line that names its last error, else the last two."""
        return last_words(self.tail(_ERROR_LINES), 2)

    def said(self) -> str:
        """Everything it said."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def last_words(said: Sequence[str], lines: int) -> str:
    """The line that names the last error of a program, with the next one where it ends in a colon; else its last lines.

    What stands before it is the way to it, and what stands behind it is of other processes.
    """
    at = max((at for at, line in enumerate(said) if NAMED_ERROR.match(line)), default=None)
    words = said[-lines:] if at is None else said[at : at + 1 + said[at].endswith(":")]
    return " / ".join(words) or "it said nothing"


@dataclass(frozen=True, slots=True)
class Watch:
    """`tick` is called about ten times a second; once it returns True, the program has `grace_s` to end by itself. Of
    one that does not end, or has no time left, each signal is waited for `signal_s` at most."""

    tick: Callable[[], bool]
    grace_s: float = 120.0
    signal_s: float = 60.0


class Running(Protocol):
    """A process of ours at the head of a process group of its own."""

    @property
    def pid(self) -> int:
        """Its number, and that of its group."""

    @property
    def returncode(self) -> int | None:
        """As of a `subprocess.Popen`, like the methods."""

    def poll(self) -> int | None:
        """Its status, None where it still runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its status once it ends, `TimeoutExpired` where it does not in time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a program runs: `variables` beside those of this process, and a folder other than ours. `start` begins its
    process by those variables and the file that it writes to, where another way is had than a new one."""

    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    start: Callable[[Mapping[str, str], int], Running] | None = None


def run(
    argv: Sequence[str],
    log: Path,
    *,
    setting: Setting,
    timeout_s: float,
    quiet: bool = False,
    watch: Watch | None = None,
) -> Ended:
    """Run to the end. Its output goes to stderr (unless `quiet`) and to `log`; once it is told to end, to `log` alone.

    On an interrupt, and past `timeout_s`, the whole process group is asked to end and then killed.
    """
    began_s = time.monotonic()
    output, written = os.pipe()
    try:
        process = setting.start(setting.variables, written) if setting.start else _new(argv, setting, written)
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(written)
    copier = _Copier(output, log, quiet)
    try:
        _wait(process, watch, began_s + timeout_s)
    finally:
        signal_s = watch.signal_s if watch is not None else max(_GRACE_S.values())
        if process.poll() is None:
            copier.mute()
        end_group(process, signal_s)
        copier.finish(signal_s)
    return Ended(process.wait(), time.monotonic() - began_s, log)


def _new(argv: Sequence[str], setting: Setting, output: int) -> subprocess.Popen[bytes]:
    variables = {**os.environ, **setting.variables}
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
            cwd=setting.folder,
            start_new_session=True,
        )
    except FileNotFoundError as absent:
        raise refused(f"there is no program {argv[0]!r}", "check the path and the spelling") from absent
    except OSError as error:
        raise failure(f"{argv[0]!r} cannot be started: {error.strerror}", "check its permissions") from error


def _wait(process: Running, watch: Watch | None, deadline_s: float) -> None:
    """Until the process ends by itself; `CaptureError` past the deadline. A program that is done may take its time."""
    done_at_s: float | None = None
    while process.poll() is None:
        now_s = time.monotonic()
        if watch is not None and done_at_s is None and watch.tick():
            done_at_s = now_s
        if done_at_s is not None and watch is not None and now_s - done_at_s > watch.grace_s:
            return
        if now_s > deadline_s:
            raise failure("the program ran past the time limit", "raise --timeout, or ask for fewer steps")
        time.sleep(_POLL_S)
    if watch is not None:
        watch.tick()


def end_group(process: Running, most_s: float = 60.0) -> None:
    """Interrupt, terminate, kill the process group, each if the one before did not do; also what outlives its head. A
    killed one is always waited for."""
    for kind, usual_s in _GRACE_S.items():
        if process.poll() is not None:
            break
        grace_s = usual_s if kind is signal.SIGKILL else min(usual_s, most_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Copier:
    """A thread that copies a pipe to the log and to stderr. A full disk ends the log, not the program."""

    def __init__(self, source: int, log: Path, quiet: bool) -> None:
        self._source = source
        self._log = log
        self._quiet = quiet
        log.touch()
        self._thread = Thread(target=self._copy, daemon=True)
        self._thread.start()

    def mute(self) -> None:
        """From here on the log alone: what a program says as it is interrupted is no fault of its own."""
        self._quiet = True

    def finish(self, most_s: float) -> None:
        """Wait for the end of the pipe, but not for a stray child that holds it open."""
        self._thread.join(min(_GRACE_S[signal.SIGKILL], most_s))

    def _copy(self) -> None:
        with self._log.open("ab", buffering=0) as file, os.fdopen(self._source, "rb", buffering=0) as source:
            writing = True
            while chunk := source.read(_CHUNK_BYTES):
                if not self._quiet:
                    sys.stderr.write(chunk.decode("utf-8", "replace"))
                    sys.stderr.flush()
                if writing:
                    try:
                        file.write(chunk)
                    except OSError:
                        writing = False
