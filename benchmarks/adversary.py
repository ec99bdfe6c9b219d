"""A judge for programs that are rewarded by the clock: nothing that they say of themselves is believed.

The problem is a Python file of whoever judges: `inputs(seed)` draws the arrays of one call, and may be joined by
`expected(*inputs)`, the right answer (else the unchanged program's), `TOLERANCE`, and `floor_s(*inputs)`, the seconds
that no device can beat: its bytes and operations at the roof. Each side is a file with `solve(*inputs)`.

A call is timed here, in another process than the one it runs in: from the first byte of its inputs, which are new in
every call, to the last byte of its answer, every element of which is compared. Memory, files, streams, clocks and
events of the tested process can thus be what they like. What differs ends the comparison as another result does.

Where both sides use PyTorch, a recording of a call shows what each computes with. The tested process makes it of
itself, so it proves nothing and ends no comparison: it says where to look.

    python -m benchmarks.adversary problem.py old.py new.py
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import math
import os
import re
import runpy
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks import contestant
from timesink.errors import TimesinkError, ToolFailed, UsageError
from timesink.knowledge.kernels import decode
from timesink.knowledge.operators import ALLOCATES, HANDS_ON, LOW_TYPE
from timesink.knowledge.work import operand_sides
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import Record, State, field, replace
from timesink.render import Format, Style, written
from timesink.untrusted import shortened
from timesink.verify import LONGEST_RUN_S
from timesink.verify.environment import Command, last_line, probe_host
from timesink.verify.experiment import ExperimentPlan, verify
from timesink.verify.gate import launching, result_of
from timesink.verify.gpu_watch import GpuWatch
from timesink.verify.outcomes import GateResult, Outcome, RunRow
from timesink.verify.runs import SIDES, RunSteps, Side, WholeRuns, summarise

Arrays = Sequence[npt.NDArray[Any]]

CALLS: Final = 50  # in a run
RIGHT: Final = "every answer right"
_MOST_BYTES: Final = 1 << 31  # of an answer
# Of the size of an answer, by the type it comes in: what another order of operations changes, and half precision does
# not keep to. Whole numbers are equal.
_TOLERANCE: Final = {np.dtype("float64"): 1e-10, np.dtype("float32"): 5e-5, np.dtype("float16"): 5e-3}
_PR_SET_CHILD_SUBREAPER: Final = 36  # of prctl(2): orphans of the tested process become ours


class Problem(Record):
    """What is to be computed, and how an answer is checked."""

    inputs: Callable[[int], Any]
    expected: Callable[..., Any] | None
    floor_s: Callable[..., float] | None
    tolerance: float | None

    @classmethod
    def read(cls, path: Path) -> Problem:
        """From the judge's own file, which is run. `UsageError` where it draws no inputs."""
        if not path.is_file():
            raise UsageError(f"there is no problem at {path}", remedy="give a Python file with inputs(seed)")
        names = runpy.run_path(str(path))
        if not callable(names.get("inputs")):
            raise UsageError(f"{path} has no inputs(seed)", remedy="write one that returns the arrays of a call")
        return cls(names["inputs"], names.get("expected"), names.get("floor_s"), names.get("TOLERANCE"))


class Judge(State):
    """Runs both sides on a problem, as `experiment.verify` asks for them. Files must stay as they are at the start."""

    problem: Problem
    commands: Mapping[Side, Command]
    folder: Path
    watch: GpuWatch
    timeout_s: float = LONGEST_RUN_S
    calls: int = CALLS
    _sums: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sums = {path: _sum(path) for path in map(_program, self.commands.values())}

    def launch(self, side: Side, number: int) -> RunRow:
        """One run in a fresh process; its check says that every answer was right, or what was not."""
        foreign, started_s, probed_s = self.watch.foreign_processes(), time.time(), probe_host()
        seconds, wrong = self._play(side)
        changed = [path.name for path, sum_ in self._sums.items() if _sum(path) != sum_]
        wrong = f"a change to {changed[0]}" if changed else wrong
        if side == "before" and wrong:
            raise ToolFailed(f"the unchanged program is wrong: {wrong}", remedy="judge against a program that is right")
        row = summarise(RunSteps(tuple(seconds) or (1.0,), wrong or RIGHT, "judged"), side, number)
        state = self.watch.state(started_s, time.time(), foreign)
        gpu = {name: getattr(state, name) for name in ("sm_mhz", "celsius", "slowed_by", "foreign")}
        return replace(row, probe_s=(probed_s + probe_host()) / 2, **gpu)

    def _play(self, side: Side) -> tuple[list[float], str]:
        """Seconds of each call, and what was wrong with the first that was."""
        seconds: list[float] = []
        with ExitStack() as stack:
            tested = stack.enter_context(self._contestant(side))
            expected = self.problem.expected
            if expected is None:  # beside either side, so that both wait as long between calls and are scheduled alike
                unchanged = stack.enter_context(self._contestant("before"))

                def expected(*inputs: npt.NDArray[Any]) -> Arrays:
                    return unchanged.ask(inputs)[0]

            for call in range(self.calls):
                inputs = _arrays(self.problem.inputs(secrets.randbits(32)))
                try:
                    answers, taken_s = tested.ask(inputs)
                except (OSError, EOFError, ValueError) as broken:
                    return seconds, f"call {call + 1}: no answer ({tested.last_words() or broken})"
                floor_s = self.problem.floor_s(*inputs) if self.problem.floor_s else 0.0
                wrong = f"{taken_s * 1e6:.3g} us is impossible, the floor is {floor_s * 1e6:.3g} us"
                if taken_s >= floor_s:
                    wrong = difference(_arrays(expected(*inputs)), answers, self.problem.tolerance)
                if wrong:
                    return seconds, f"call {call + 1}: {wrong}"
                seconds.append(taken_s)
        return seconds, ""

    def compare_work(self) -> list[str]:
        """What a recording of the second call of each side shows, where both use PyTorch; empty where not."""
        traces, largest = [], 0
        for side in SIDES:
            path = self.folder / f"{side}.json"
            try:
                with self._contestant(side, contestant.RECORDED) as tested:
                    for _ in range(2):  # the first call prepares what later ones use
                        inputs = _arrays(self.problem.inputs(secrets.randbits(32)))
                        tested.ask(inputs)
                        shown = tested.received()
                if not shown:
                    return []
                path.write_bytes(shown[0].tobytes())
                traces.append(read(path, cache=False))
            except (OSError, EOFError, ValueError, TimesinkError):
                return [f"no call of the program {side} the change could be recorded"]
            largest = max((array.size for array in inputs), default=0)
        return compare_work(traces[0], traces[1], largest)

    def _contestant(self, side: Side, *options: str) -> Contestant:
        return Contestant(self.commands[side], self.folder / f"{side}.txt", self.timeout_s, options)


class Contestant:
    """A process that answers calls, as a context: past its time limit it is killed, and at the end whatever it left."""

    def __init__(self, command: Command, log: Path, timeout_s: float, options: Sequence[str] = ()) -> None:
        _adopt_orphans()
        self._mine, self._log = _children(), log
        python = command.argv[0] if len(command.argv) > 1 else sys.executable
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, contestant.__file__, str(_program(command)), *options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                env={**os.environ, **command.environment},
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._timer = threading.Timer(timeout_s, self._process.kill)
        self._is_ready = False

    def ask(self, inputs: Arrays) -> tuple[Arrays, float]:
        """The answer to one call, and the seconds from the first byte of its inputs to the last of the answer."""
        if not self._is_ready:
            self._is_ready = self.received() == []
        started_s = time.perf_counter()
        contestant.send(self._requests, inputs)
        answers = self.received()
        return answers, time.perf_counter() - started_s

    def received(self) -> Arrays:
        """What it sends next. `EOFError` where it ended."""
        answers = contestant.receive(self._answers, _MOST_BYTES)
        if answers is None:
            raise EOFError("it ended")
        return answers

    def last_words(self) -> str:
        """The last line that it printed, cut."""
        return last_line(self._log)[:40] if self._log.stat().st_size else ""

    def __enter__(self) -> Contestant:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(BrokenPipeError):
                pipe.close()
        while left := _children() - self._mine:  # what it left running would slow the other side's next run
            for orphan in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)


def difference(right: Arrays, given: Arrays, tolerance: float | None = None) -> str:
    """What an answer differs in from the right one, or "": number, shape and type of its arrays, then every element.

    Elements may differ by the tolerance of the type, of their own size and the array's root mean square.
    """
    if len(right) != len(given):
        return f"{len(given)} arrays, not {len(right)}"
    for one, other in zip(right, given, strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{other.dtype}{list(other.shape)}, not {one.dtype}{list(one.shape)}"
        if one.dtype.kind not in "fc":
            off = one != other
        else:
            exact = np.asarray(one, np.complex128 if one.dtype.kind == "c" else np.float64)
            size = np.abs(exact)
            finite = size[np.isfinite(size)]
            scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
            allowed = _TOLERANCE.get(one.real.dtype, 1e-10) if tolerance is None else tolerance
            with np.errstate(invalid="ignore"):
                off = ~((np.abs(other - exact) <= allowed * (size + scale)) | (exact == other))
            off &= ~(np.isnan(exact) & np.isnan(other))
        if np.any(off):
            first = tuple(map(int, np.argwhere(off)[0]))
            return f"{np.count_nonzero(off)} of {off.size} values are wrong, the first at {list(first)}"
    return ""


def _arrays(given: Any) -> list[npt.NDArray[Any]]:
    return [np.asarray(one) for one in (given if isinstance(given, (tuple, list)) else (given,))]


def _program(command: Command) -> Path:
    """The Python file that a command names: `solution.py`, or `python solution.py`."""
    path = Path(command.argv[-1])
    if path.suffix != ".py" or not path.is_file() or len(command.argv) > 2:
        raise UsageError(f"{command.text!r} is no Python file", remedy="give --before old.py --after new.py")
    return path


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _adopt_orphans() -> None:
    """Make what outlives a tested process our child, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> set[int]:
    """Processes whose parent this one is."""
    found = set()
    for status in Path("/proc").glob("*/stat"):
        if not status.parent.name.isdecimal():
            continue
        try:
            fields = status.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(status.parent.name))
    return found


_LOW_MATH: Final = ("fp16", "bf16", "fp8", "fp4", "int8", "tf32")
_NO_WORK, _LOW = (re.compile(HANDS_ON), re.compile(ALLOCATES)), re.compile(LOW_TYPE)
_LONGEST: Final = 60  # characters of a kernel's name


class ShownWork(Record):
    """One call. `parts`: its kernels; where there are none, its operators with shapes and types, without those that
    only hand a tensor on. `types`: in which it computes. `read`: the most elements that the operators of one name read;
    None where not all tell."""

    kind: str
    parts: Counter[str]
    types: frozenset[str]
    read: int | None

    @classmethod
    def of(cls, trace: Trace) -> ShownWork:
        """Of the recording of a call."""
        kernels = trace.get(DEVICE_OPS).filter(pl.col("kind") == "kernel")["name"].cast(pl.String).to_list()
        wanted = ("name", "input_shapes", "input_dtypes")
        told = trace.get(HOST_OPS).select(pl.col(*wanted).cast(pl.String).fill_null("")).rows()
        operators = [row for row in told if not any(of.search(row[0]) for of in _NO_WORK)]
        types = {found for _, _, dtypes in operators for found in _LOW.findall(dtypes)}
        types |= {found for kernel in kernels if (found := decode(kernel).math) in _LOW_MATH}
        read: Counter[str] = Counter()
        for name, shapes, _ in operators:
            read[name] += max((math.prod(side) for side in operand_sides(shapes) if side), default=0)  # of the largest
        known = bool(operators) and all(name.startswith("aten::") and shapes for name, shapes, _ in operators)
        parts = Counter(kernels or [" ".join(row) for row in operators])
        return cls("kernel" if kernels else "operator", parts, frozenset(types), max(read.values()) if known else None)


def compare_work(before: Trace, after: Trace, largest: int) -> list[str]:
    """What to know of one call of each side; `largest` is the size of the largest input in elements."""
    old, new = ShownWork.of(before), ShownWork.of(after)
    if not old.parts:
        return ["PyTorch saw no work on the unchanged side, so nothing is known of the changed one's"]
    count = f"{old.parts.total()} {old.kind}{'s' * (old.parts.total() > 1)}"
    if not new.parts:
        return [f"look at the changed side: PyTorch saw no kernel and no operator in a call, and {count} before"]
    if old.parts == new.parts:
        return [f"both sides run the same {count}: PyTorch saw no change"]
    remarks = []
    if lower := ", ".join(sorted(new.types - old.types)):
        remarks.append(f"look at the changed side: it computes in {lower}, the unchanged one does not")
    if new.kind != old.kind:
        remarks.append(f"look at the changed side: it runs no kernel on the GPU, and {count} before")
    if new.read is not None and new.read < largest and (old.read is None or old.read >= largest):
        remarks.append(
            f"look at the changed side: no operator reads more than {new.read:,} of an input's {largest:,} elements"
        )
    gone, come = old.parts - new.parts, new.parts - old.parts
    named = [f"{shortened(name, _LONGEST)} ({count})" for name, count in come.most_common(2)]
    told = f"{(old.parts & new.parts).total()} the same, {gone.total()} only before, {come.total()} only after"
    return [*remarks, f"{new.kind}s of a call: {told}{': ' if named else ''}{', '.join(named)}"]


def judged(
    problem: Path,
    before: Path,
    after: Path,
    looks: Sequence[int] = (6, 12, 18),
    calls: int = CALLS,
    tell: Callable[[str], None] = lambda _: None,
) -> GateResult:
    """Both sides' verdict after these numbers of pairs of runs, and what to look at."""
    commands: dict[Side, Command] = {"before": Command((str(before),)), "after": Command((str(after),))}
    with launching(commands, WholeRuns(None)) as launcher:
        judge = Judge(Problem.read(problem), commands, launcher.folder, launcher.watch, launcher.timeout_s, calls)
        verification = verify(ExperimentPlan(looks=tuple(looks)), judge.launch, tell)
        result = result_of(verification, "", launcher)
        if verification.verdict.outcome is Outcome.INVALID:
            return result
        return replace(result, notes=(*result.notes, *judge.compare_work()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("problem", "before", "after"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in a run")
    given = parser.parse_args(arguments)
    result = judged(given.problem, given.before, given.after, calls=given.calls, tell=print)
    print(written(result, Format.TEXT, Style(width=120)))
    return result.exit_code()


if __name__ == "__main__":
    sys.exit(main())
