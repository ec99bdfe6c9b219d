"""A program's interpreter that stands ready with PyTorch imported; each run of the program is forked from it.

Most of a short run is Python that imports PyTorch. An interpreter stops before the program begins (`capture/inject`
wakes it), imports PyTorch, with what any optimizer imports once it is made, and waits for orders; the process that it
forks for each then begins the program as a fresh one does: no file of the program was read before, no GPU touched.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from timesink.capture.running import agent_environment
from timesink.sandbox import launcher
from timesink.sandbox.runs import BoxedRun, Grants, Sandbox, answered

VARIABLE: Final = "TIMESINK_AHEAD"
_READY_S: Final = 120.0  # for an import of PyTorch on a slow disk
_MOST_BYTES: Final = 1 << 16


def stand_ready(descriptor: int) -> None:
    """In the interpreter: fork at each order and tell its process and how it ended; only the forked ones return."""
    with suppress(Exception):
        import torch._dynamo  # noqa: F401
    line = socket.socket(fileno=descriptor)
    with suppress(BaseException):  # nothing but an order begins the program
        line.send(b"ready")
        while True:
            order, ends, *_ = socket.recv_fds(line, _MOST_BYTES, 3)
            if not order:
                break
            child = os.fork()
            if not child:
                return _begin(line, json.loads(Path(order.decode()).read_bytes()), ends)
            for end in ends:
                os.close(end)
            line.send(str(child).encode())
            line.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def _begin(line: socket.socket, order: Mapping[str, Any], ends: Sequence[int]) -> None:
    line.close()
    os.setsid()
    output, *pipes = ends
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    if pipes:
        os.environ.clear()  # some are those of what stood ready
        tempfile.tempdir = None
    os.environ.update(order["variables"])
    if pipes:
        launcher.enter({**order["spec"], "tell": pipes[0], "life": pipes[1], "words": []})
    if numbers := sys.modules.get("numpy.random"):
        numbers.seed()  # as Python does for its own: no two runs draw alike


class ForkedRun:
    """A run that was forked: waited for as a `subprocess.Popen` is."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self._line, self.pid = line, pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its status, negative for a signal; `TimeoutExpired` where it still runs."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                said = self._line.recv(_MOST_BYTES)
            except (TimeoutError, BlockingIOError) as late:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from late
            self.returncode = int(said) if said else -signal.SIGKILL  # with the interpreter that forked it
        return self.returncode

    def poll(self) -> int | None:
        """Its status; None where it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None


class ReadyProgram:
    """A program that stands ready to be run in `folder`, one run at a time; with a box it is sealed until it begins.
    `orders` is a folder for what each run is told, and for its records."""

    def __init__(self, program: Sequence[str], folder: Path | None, orders: Path, box: Sandbox | None = None) -> None:
        self._program, self._box, self._order = program, box, orders / "begin.json"
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wakes = agent_environment(str(theirs.fileno()), variable=VARIABLE)
        nothing, variables = subprocess.DEVNULL, {**os.environ, **wakes}
        self._waits: subprocess.Popen[bytes] | BoxedRun
        if box is not None:
            self._waits = box.sealed().start(
                program, variables, asked=Grants(records=[orders], keep=(theirs.fileno(),))
            )
        else:
            self._waits = subprocess.Popen(
                list(program), stdin=nothing, stdout=nothing, stderr=nothing, env=variables, cwd=folder,
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        theirs.close()
        self._line.settimeout(_READY_S)
        self._is_ready: bool | None = None

    def is_ready(self) -> bool:
        """Whether it takes orders; waits for its import of PyTorch."""
        if self._is_ready is None:
            self._is_ready = False
            with suppress(OSError):
                self._is_ready = self._line.recv(_MOST_BYTES) == b"ready"
        return self._is_ready and self._waits.poll() is None

    def start(self, variables: Mapping[str, str], output: int) -> ForkedRun:
        """One run, with these variables beside ours, that writes to `output`. `OSError` where it cannot be forked."""
        return self._fork({"variables": dict(variables)}, [output])

    def start_boxed(self, variables: Mapping[str, str], output: int, asked: Grants) -> BoxedRun:
        """The same in a box of its own, with these variables and no other, as `Sandbox.start` has it."""
        assert self._box is not None
        run, spec, given = self._box.prepare(self._program, variables, asked)
        told, tell = os.pipe()
        lived, run.life = os.pipe()
        run.process = self._fork({"variables": given, "spec": spec}, [output, tell, lived])
        os.close(tell)
        os.close(lived)
        answered(run, told)
        return run

    def _fork(self, order: Mapping[str, Any], ends: Sequence[int]) -> ForkedRun:
        self._order.write_text(json.dumps(order), encoding="utf-8")
        self._line.settimeout(_READY_S)
        socket.send_fds(self._line, [str(self._order).encode()], ends)
        return ForkedRun(self._line, int(self._line.recv(_MOST_BYTES) or 0))

    def close(self) -> None:
        """End the interpreter that waits."""
        self._line.close()
        if isinstance(self._waits, BoxedRun):
            self._waits.close()
        else:
            self._waits.kill()
            self._waits.wait()


def can_stand_ready(program: Sequence[str], changed: Sequence[str]) -> bool:
    """Whether the words begin a Python that forks, and no variable was `changed` before PyTorch, which reads some."""
    return not changed and Path(program[0]).name.startswith("python") and sys.platform == "linux"
