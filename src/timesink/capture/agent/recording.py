"""The agent: counts the program's steps, times some without a profiler, has some recorded, and ends the program.

A step ends where the program says so: ``timesink.step()``, else its own profiler's ``step()``, else the step of the
first optimizer that steps, else a backward pass, else a CUDA graph's replay, else a call of the outermost module, else
an iteration of the program's loop. What a CUDA graph holds of these ends a step wherever the graph is replayed.

Each rank (known from torch.distributed or from the variables of its launcher) tells the capture's parent how far it is
in one small JSON file, which is replaced at every change of phase. `StepTimer` times every step of a program that runs
as it is: no profiler, nothing muted, and to its own end.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from pathlib import Path
from time import perf_counter  # the program may set `time.perf_counter`; this one is from before
from typing import Any, NoReturn

from timesink.capture.agent.marks import OneThatCounts, Sightings, StepMark
from timesink.capture.agent.recorders import RangeRecorder, Recorder, Stopwatch, TorchRecorder, is_capturing, wait
from timesink.capture.agent.settings import program_settings
from timesink.capture.agent.start_up import StartUpWatch
from timesink.capture.schedule import AgentPlan, Mode

RANKS = "ranks"
_FAILURES = (OSError, RuntimeError, ImportError, ValueError)
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_WORLD_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


class Agent:
    """One per process. Every public method may be called from any place of the program, and does little.

    `start_up` has looked on since the process began; an agent that a running program makes has none.
    """

    def __init__(self, plan: AgentPlan, start_up: StartUpWatch | None = None) -> None:
        self.plan = plan
        self.source: StepMark | None = None
        self.finished = False
        self.prefetched = 0
        self.evidence = Sightings()
        self.captured: StepMark | None = None
        self._warm_up = plan.steps.warm_up
        self._ended = 0
        self._process = os.getpid()
        self._start_up = start_up
        self._status: Status | None = None
        self._recorder: Recorder = Recorder()
        self._watch: Stopwatch | None = None
        self._optimizer, self._data = OneThatCounts(), OneThatCounts()

    @property
    def facts(self) -> dict[str, Any]:
        """What this rank has told of itself so far; nothing where another process has the rank."""
        return {} if self._status is None else self._status.facts

    @property
    def has_optimizer(self) -> bool:
        """Whether the program has made an optimizer."""
        return self.evidence.has_optimizer

    def tell_seen(self) -> None:
        """Leave what was seen of a program that has shown no step so far."""
        if self.source is None and os.getpid() == self._process:
            self.evidence.write(Path(self.plan.folder))

    def record_whole(self) -> None:
        """Where the plan is to record the whole program: from now to its end."""
        if self.plan.whole and self._claim():
            self._tell(phase="active", step_source="whole")
            if self.plan.mode is not Mode.TIME:
                self._recorder.prepare(0)
                atexit.register(self._end_whole)

    def leave(self) -> None:
        """The recorded block is over, whether or not its steps were recorded."""
        if not self.finished:
            self.finished = True
            self._recorder.abandon()

    def explicit_step(self) -> None:
        """``timesink.step()``."""
        self.step_ended(StepMark.EXPLICIT)

    def optimizer_stepped(self, optimizer: object) -> None:
        """One of the optimizers has stepped; one counts."""
        self.evidence.seen.optimizer_steps += 1
        if self._optimizer.counts(optimizer):
            self.step_ended(StepMark.OPTIMIZER)

    def batch_handed_out(self, data: object) -> None:
        """A batch of one of the data sets; one counts."""
        if self._data.counts(data):
            self.step_ended(StepMark.LOADER)

    def step_ended(self, source: StepMark) -> None:
        """One step has ended, says `source`."""
        if self.plan.whole and self._status is not None:
            self._ended += 1
            if self._ended == self.plan.steps.settle:
                self._tell_start_up()
        if self.finished or self.plan.whole or not self._is_here(source):
            return
        if is_capturing():
            self.captured = source if self.captured is None else max(source, self.captured)
            if self.plan.mode is not Mode.STEPS and self._ended <= self._before_recording:
                self._ended, self._watch = 0, None  # steps are replays from here on, so settle and time anew
            return
        self._mark(source)

    def _is_here(self, source: StepMark) -> bool:
        """Whether this process makes the steps. A forked one does where it trains and the one before it showed none,
        unless it is a helper, as workers of a loader are."""
        if os.getpid() == self._process:
            return True
        children = sys.modules.get("multiprocessing.process")
        is_helper = children is not None and children.current_process().daemon
        if self.source is None and source >= StepMark.BACKWARD and not is_helper:
            self._process = os.getpid()
        return os.getpid() == self._process

    def _mark(self, source: StepMark) -> None:
        if source < StepMark.BACKWARD and self.evidence.awaits_training:
            return
        if self.source is None or (source > self.source and self._ended <= self._before_recording):
            if self._status is None and not self._claim():
                return
            self.source, self._ended = source, 0
        if source is self.source:
            self._ended += 1
            try:
                self._at_boundary(self._ended)
            except _FAILURES as error:
                self._fail(error)

    @property
    def _before_recording(self) -> int:
        return self.plan.steps.settle + self.plan.steps.timed

    def _claim(self) -> bool:
        """Take the rank; a second process of the same rank, or a rank that is not wanted, records nothing."""
        rank, world = rank_and_world()
        status = Status(Path(self.plan.folder), rank, world)
        if not status.claim():
            self.finished = True
            return False
        self._status = status
        atexit.register(self._program_ends)
        if self.plan.mode is Mode.TORCH:
            self._status.tell(file=f"rank{rank}.json.gz")
            self._recorder = TorchRecorder(self.plan, Path(self.plan.folder) / f"rank{rank}.json.gz")
        elif self.plan.mode is Mode.RANGE and (rank == 0 or not self.plan.first_rank_only):
            self._recorder = RangeRecorder(self.plan.early)
        return True

    def _at_boundary(self, ended: int) -> None:
        """The state machine: what happens once `ended` steps have ended."""
        steps, recording = self.plan.steps, self._before_recording
        active = recording + self._warm_up
        if self._watch is not None:
            self._watch.lap()
        if ended == 1:
            self._tell(step_source=self.source.name.lower() if self.source is not None else "")
        if ended == steps.settle:
            self._tell_start_up()
        if ended == steps.settle and steps.timed:
            self._tell(phase="timed")
            self._watch = Stopwatch()
        if ended == recording:
            self._begin_recording()
            active = recording + self._warm_up
        if ended == active:
            self._tell(phase="active")
            wait()
        if recording < ended < active + steps.active:
            self._recorder.step(ended - active + 1)
        if ended == active:
            self._recorder.start()
            self._watch = Stopwatch()
        if ended == active + steps.active:
            self._end_recording()

    def _tell_start_up(self) -> None:
        """What comes from here on is steady, by plan."""
        if self._start_up is not None and (parts := self._start_up.end()):
            self._tell(start_up_ns=parts)

    def _begin_recording(self) -> None:
        """The timed steps are over."""
        if self._watch is not None:
            self._tell(unprofiled=self._watch.result())
            self._watch = None
        if self.plan.mode is Mode.TIME:
            self._finish()
        if self._warm_up:
            self._warm_up += self.prefetched
        self._tell(phase="warm_up", warm_up=self._warm_up, settings=program_settings())
        self._recorder.prepare(self._warm_up)

    def _end_recording(self) -> None:
        """The active steps are over. The times are asked for once the trace is closed: asking waits for the device."""
        assert self._watch is not None
        self._recorder.stop()
        self._tell(profiled=self._watch.result())
        self._finish()

    def _program_ends(self) -> None:
        """The program is over before its recording is: what it records is closed, as PyTorch's profiler crashes a
        process that ends under it, and the steps it made are told."""
        if not self.finished and os.getpid() == self._process:
            self.leave()
            self._tell(steps_made=self._ended)

    def _end_whole(self) -> None:
        if os.getpid() == self._process and not self.finished:
            wait()
            self._tell_start_up()
            try:
                self._recorder.stop()
            except _FAILURES as error:
                self._fail(error)
            else:
                self._finish()

    def _tell(self, **facts: object) -> None:
        assert self._status is not None
        self._status.tell(**facts)

    def _fail(self, error: Exception) -> None:
        self.finished = True
        self._tell(phase="failed", error=f"{type(error).__name__}: {error}"[:500])

    def _finish(self) -> None:
        """Tell the parent, and end the program where the plan says so."""
        self.finished = True
        self._tell(phase="done", software=software())
        self.evidence.withdraw(Path(self.plan.folder))
        if self.plan.stop and not self.plan.whole:
            end_program()


def end_program() -> NoReturn:
    """As the program would: its own endings run, then it leaves gloo's groups, whose threads abort a process that ends
    while it is in one. NCCL's are left alone: leaving them may wait for other ranks."""
    atexit.register(_leave_gloo)
    raise SystemExit(0)


def _leave_gloo() -> None:
    if (distributed := _distributed()) is not None and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()


def _distributed() -> Any:
    """torch.distributed where the process is in a group; else None."""
    found = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_available() and found.is_initialized() else None


class Status:
    """The status file of one rank. The first process that claims a rank has it."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.path = folder / RANKS / f"{rank}.json"
        self.facts: dict[str, Any] = {"rank": rank, "world": world, "pid": os.getpid(), "phase": "settle", "notes": []}

    def claim(self) -> bool:
        """Create the file; False where another process of this rank came first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.open("x", encoding="utf-8").close()
        except FileExistsError:
            return False
        self.tell()
        return True

    def tell(self, **facts: object) -> None:
        """Store more facts. A full disk is the parent's to report; the program goes on."""
        self.facts.update(facts)
        replacement = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            replacement.write_text(json.dumps(self.facts), encoding="utf-8")
            replacement.replace(self.path)
        except OSError as error:
            sys.stderr.write(f"timesink: cannot write {self.path}: {error.strerror}\n")


def free_folder(wanted: Path, rank: int) -> Path:
    """The folder, or the first of its name with a number in which this rank has not recorded: the same for all ranks,
    as all record into each."""
    folder, number = wanted, 1
    while (folder / RANKS / f"{rank}.json").exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def software() -> dict[str, str]:
    """Versions of what the program has loaded, and its GPU."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "jax", "cupy", "numba", "deepspeed", "transformers", "lightning"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    torch = sys.modules.get("torch")
    if torch is not None:
        found["cuda (of torch)"] = str(torch.version.cuda)
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def rank_and_world(environment: Mapping[str, str] | None = None) -> tuple[int, int]:
    """(rank, number of ranks); (0, 1) where nothing says otherwise."""
    if environment is None and (distributed := _distributed()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    variables = os.environ if environment is None else environment
    rank = _first(variables, _RANK_VARIABLES, 0)
    return rank, max(_first(variables, _WORLD_VARIABLES, 1), rank + 1)


def _first(variables: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    return next((int(variables[name]) for name in names if variables.get(name, "").isdigit()), default)


class StepTimer(Agent):
    """Keeps the times between the best marks seen so far: a better one starts anew.

    With `plan.stop` the program is ended after `plan.steps.active` steps. Calls of modules and batches end no program
    that has an optimizer: they may come before the training.
    """

    def __init__(self, plan: AgentPlan) -> None:
        super().__init__(plan)
        self._host_s: list[float] = []
        self._most = plan.steps.active if plan.stop else None

    def _mark(self, source: StepMark) -> None:
        if self.source is None:
            atexit.register(self.write)
        if self.source is None or source > self.source:
            self.source, self._watch = source, Stopwatch()
            self._host_s = [perf_counter()]
        elif source is self.source and self._watch is not None:
            self._watch.lap()
            self._host_s.append(perf_counter())
            if len(self._host_s) - 1 == self._most and not self._may_be_before_the_training:
                self.write()
                end_program()

    @property
    def _may_be_before_the_training(self) -> bool:
        return self.source in (StepMark.LOOP, StepMark.LOADER) or (
            self.source is StepMark.FORWARD and self.has_optimizer
        )

    def write(self) -> None:
        """Hand the times over, once. Where the device's cannot be had, those of the host."""
        if self.finished or self.source is None or os.getpid() != self._process:
            return
        self.finished = True
        rank, world = rank_and_world()
        facts = {"rank": rank, "world": world, "mark": self.source.name.lower(), "steps_ms": self._times_ms()}
        target = Path(self.plan.folder) / f"found-{os.getpid()}.json"
        partial = target.with_suffix(".tmp")
        partial.write_text(json.dumps(facts), encoding="utf-8")
        partial.replace(target)

    def _times_ms(self) -> list[float]:
        """A step has the host's time where CUDA began within it."""
        host_ms = [(end - start) * 1e3 for start, end in pairwise(self._host_s)]
        try:
            device_ms = self._watch.times_ms() if self._watch is not None else []
        except RuntimeError:  # the marks lie on streams of several devices, or the device has failed
            device_ms = []
        if len(device_ms) != len(host_ms):
            device_ms = host_ms
        times_ms = [device if isfinite(device) else host for device, host in zip(device_ms, host_ms, strict=True)]
        return times_ms[: self._most]
