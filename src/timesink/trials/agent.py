"""The trial in the program: between steps it switches changes on and off, times blocks of steps, and keeps what wins.

A step ends where a capture's agent finds it (`capture.agent`). All of one trial is one generator, `Trial.script`, which
the end of each step resumes: what stands between two `yield`s happens between two steps of the program.

Blocks with a change alternate with blocks without it, so that a clock that falls or a neighbour that wakes touches both
alike; a block is timed as a whole, with the device idle at both ends. What is reported is the ratio of neighbouring
blocks, with an interval by Student's t over the pairs, and the ratio of the shortest blocks beside it: where the host
is noisy, that one repeats better.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import asdict, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Final

from timesink.capture.agent.recorders import wait
from timesink.capture.agent.recording import Agent, StepMark, rank_and_world
from timesink.capture.schedule import AgentPlan, Mode
from timesink.trials.program import RunningProgram
from timesink.trials.records import TrialPlan, TrialResult, Tried
from timesink.trials.switches import EXCLUDED_BY, LOADER_OPTIONS, SWITCHES, Refusal, Undo

VARIABLE: Final = "TIMESINK_TRY"
# Two-sided 95 % quantiles of Student's t, by pairs less one, up to `_MOST_PAIRS`.
_T95: Final = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776}
_LEAST_PAIRS, _MOST_PAIRS = 3, 5
_SINGLES: Final = 0.6  # of the time goes to single changes, the rest to putting them together
_FAILURES: Final = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError, OSError)

Script = Generator[None, None, Any]


class Trial(Agent):
    """The agent of a trial: counts steps as any agent does, and at each one's end resumes the script."""

    def __init__(self, plan: TrialPlan) -> None:
        super().__init__(AgentPlan(Mode.STEPS, str(Path(plan.file).parent)))
        self.trial = plan
        self.program = RunningProgram(self._take_blame)
        for name in plan.fixed:
            self.program.loader_options |= LOADER_OPTIONS.get(name, {})
        self.program.copies_without_waiting = "pin_memory" in plan.fixed
        self.result = TrialResult()
        self._script: Script | None = None
        self._on: dict[str, Undo] = {}
        self._broken = ""
        self._deadline = 0.0

    def _mark(self, source: StepMark) -> None:
        """As of an agent, but a better mark of steps begins the script anew only while nothing has been tried."""
        if self.source is None or (source > self.source and self.result.phase == "settle"):
            self.source, self._script = source, self.script()
            atexit.register(self._write)
        if source is self.source and self._script is not None:
            if source in (StepMark.LOADER, StepMark.FORWARD) and self.has_optimizer and not self.program.optimizers:
                return  # before the training
            if "compile_graph" in self._on:
                _begin_graphs_anew()
            try:
                next(self._script)
            except StopIteration:
                self.finished = True
                self._write()
                raise SystemExit(0) from None

    def _take_blame(self, error: BaseException) -> bool:
        """Whether the error is that of the change that was switched on last, which then is off; anything else is the
        program's own."""
        if not self._on or self._broken:
            return False
        name = next(reversed(self._on))
        self._broken = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
        self._off(name)
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return True

    def _turn_on(self, name: str) -> None:
        self._broken = ""
        self._on[name] = SWITCHES[name].turn_on(self.program)

    def _off(self, name: str) -> None:
        if undo := self._on.pop(name, None):
            undo()

    def _write(self) -> None:
        if os.getpid() != self._process:
            return
        losses = [float(loss) for loss in self.program.losses]
        rank, _ = rank_and_world()
        self.result.rank, self.result.losses = rank, losses
        target = Path(f"{self.trial.file}.rank{rank}" if rank else self.trial.file)
        partial = target.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(asdict(self.result)), encoding="utf-8")
        partial.replace(target)

    def _say(self, phase: str, now_trying: str = "") -> None:
        self.result.phase, self.result.now_trying = phase, now_trying
        self._write()

    def script(self) -> Script:
        """The whole trial, step by step."""
        for name in self.trial.fixed:
            if name not in LOADER_OPTIONS:  # which are on from the first batch
                self._turn_on(name)
        for _ in range(self.trial.settle + max((SWITCHES[name].warm_up for name in self.trial.fixed), default=0)):
            yield
        self._describe()
        if not self.trial.names:
            yield from self._time_steps()
            return
        self._deadline = time.perf_counter() + self.trial.budget_s
        base_ms = yield from self._time_block()
        self.result.base_ms.append(base_ms)
        singles_end = self._deadline - (1 - _SINGLES) * self.trial.budget_s
        for name in self.trial.names:
            if time.perf_counter() < singles_end:
                self.result.tried.append((yield from self._try(name)))
            else:
                self.result.tried.append(Tried(name, refused="the time was up before it was tried"))
        yield from self._join()
        self.result.base_ms.append((yield from self._time_block()))
        self._say("done")

    def _describe(self) -> None:
        root, optimizer = self.program.root, self.program.step_optimizer
        self.result.root = "" if root is None else type(root).__name__
        self.result.optimizer = "" if optimizer is None else type(optimizer).__name__
        self.result.mark = "" if self.source is None else self.source.name.lower()
        self._say("trying")

    def _time_steps(self) -> Script:
        """Every step by itself, for a run that is compared as a whole."""
        _reset_memory()
        for _ in range(self.trial.steps):
            wait()
            started = time.perf_counter()
            yield
            wait()
            self.result.steps_ms.append((time.perf_counter() - started) * 1e3)
        self.result.memory_bytes = _most_memory()
        self._say("done")

    def _time_block(self, least: int = 3) -> Generator[None, None, float]:
        """Milliseconds a step of one block: at least so many steps, and about `block_s`."""
        wait()
        started, steps = time.perf_counter(), 0
        while steps < least or time.perf_counter() - started < self.trial.block_s:
            yield
            steps += 1
        wait()
        return (time.perf_counter() - started) * 1e3 / steps

    def _try(self, name: str, beside: Iterable[str] = ()) -> Generator[None, None, Tried]:
        """One change, beside others that are on already: blocks with it and without it in turns."""
        tried = Tried(name, tuple(beside))
        self._say("trying", name)
        started = time.perf_counter()
        try:
            self._turn_on(name)
            for _ in range(SWITCHES[name].warm_up):
                yield
        except Refusal as why:
            return replace(tried, refused=str(why))
        except _FAILURES as error:  # what a change breaks as it is made
            self._off(name)
            return replace(tried, failed=f"{type(error).__name__}: {error}"[:300])
        tried.warm_up_s = time.perf_counter() - started
        pairs: list[tuple[float, float]] = []
        while not self._broken and not _is_decided(pairs, self.trial.worth):
            _reset_memory()
            with_ms = yield from self._time_block()
            if self._broken:
                break
            tried.memory_bytes = max(tried.memory_bytes, _most_memory())
            self._off(name)
            yield
            _reset_memory()
            without_ms = yield from self._time_block()
            tried.base_memory_bytes = max(tried.base_memory_bytes, _most_memory())
            pairs.append((with_ms, without_ms))
            if time.perf_counter() > self._deadline and len(pairs) >= _LEAST_PAIRS:
                break
            if not _is_decided(pairs, self.trial.worth):
                self._turn_on(name)
                yield
        self._off(name)
        if self._broken.startswith("the program"):
            return replace(tried, refused=self._broken)
        if self._broken:
            return replace(tried, failed=self._broken[:300])
        return _summarized(tried, pairs)

    def _join(self) -> Script:
        """Changes are put together, the best first; the others are tried again beside those that are kept, since a step
        that waited for its input shows no kernel's gain. At the end each is tried off once more: what is worth nothing
        beside the others goes."""
        worth = self.trial.worth
        applied = sorted((one for one in self.result.tried if one.pairs), key=lambda one: one.ratio)
        kept: list[str] = []
        for name in (one.name for one in applied if applied[0].wins(worth)):
            if name in kept or EXCLUDED_BY.get(name, frozenset()) & set(kept) or time.perf_counter() > self._deadline:
                continue
            if kept:
                beside = yield from self._try(name, kept)
                self.result.tried.append(beside)
                if not beside.wins(worth):
                    continue
            yield from self._keep(name, kept)
        for name in kept[:-1]:
            if time.perf_counter() < self._deadline:
                yield from self._try_off(name, kept)
        if kept:
            yield from self._time_joint(kept)

    def _keep(self, name: str, kept: list[str]) -> Script:
        """Switch a change on to stay."""
        self._turn_on(name)
        for _ in range(SWITCHES[name].warm_up):
            yield
        if not self._broken:
            kept.append(name)
        self.result.kept = tuple(kept)
        self._say("joining", name)

    def _try_off(self, name: str, kept: list[str]) -> Script:
        """Whether a change that is kept still wins beside those that came after it."""
        others = [other for other in kept if other != name]
        self._off(name)
        again = yield from self._try(name, others)
        kept.remove(name)
        if again.wins(self.trial.worth / 4):
            yield from self._keep(name, kept)
        self.result.kept = tuple(kept)

    def _time_joint(self, kept: list[str]) -> Script:
        """All that is kept against nothing of it, in turns."""
        pairs = []
        tried = Tried(" + ".join(kept))
        for _ in range(_LEAST_PAIRS):
            _reset_memory()
            with_ms = yield from self._time_block()
            tried.memory_bytes = max(tried.memory_bytes, _most_memory())
            for name in reversed(kept):
                self._off(name)
            yield
            _reset_memory()
            without_ms = yield from self._time_block()
            tried.base_memory_bytes = max(tried.base_memory_bytes, _most_memory())
            pairs.append((with_ms, without_ms))
            for name in kept:
                self._turn_on(name)
            for _ in range(max(SWITCHES[name].warm_up for name in kept)):
                yield
        for name in reversed(kept):
            self._off(name)
        self.result.joint = _summarized(tried, pairs)


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The ratio of neighbouring blocks, with and without: its geometric mean and the ends of its 95 % interval."""
    logs = [log(with_ms / without_ms) for with_ms, without_ms in pairs]
    middle = fmean(logs)
    if len(logs) < 2:
        return exp(middle), 0.0, float("inf")
    half = _T95[len(logs) - 1] * stdev(logs) / sqrt(len(logs))
    return exp(middle), exp(middle - half), exp(middle + half)


def _is_decided(pairs: list[tuple[float, float]], worth: float) -> bool:
    """Whether more pairs would change nothing: the interval is narrow, or lies on one side of what matters."""
    if len(pairs) < _LEAST_PAIRS:
        return False
    _, low, high = interval(pairs)
    return len(pairs) >= _MOST_PAIRS or high - low < 1.5 * worth or low > 1 - worth


def _summarized(tried: Tried, pairs: list[tuple[float, float]]) -> Tried:
    if not pairs:
        return replace(tried, refused="the time was up before it could be measured")
    middle, low, high = interval(pairs)
    with_ms, without_ms = zip(*pairs, strict=True)
    return replace(
        tried,
        pairs=len(pairs),
        with_ms=median(with_ms),
        without_ms=median(without_ms),
        ratio=middle,
        low=low,
        high=high,
        shortest=min(with_ms) / min(without_ms),
    )


def _begin_graphs_anew() -> None:
    import torch

    torch.compiler.cudagraph_mark_step_begin()


def _reset_memory() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def _most_memory() -> int:
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_initialized() else 0


def begin(text: str) -> None:
    """Wait for the program to import torch, then watch it."""
    from timesink.capture import in_program
    from timesink.capture.agent import start, torch_hooks

    if start.is_bystander(sys.orig_argv):
        return
    trial = Trial(TrialPlan.from_json(text))
    in_program.listeners.append(trial.explicit_step)

    def install() -> None:
        trial.program.install()
        torch_hooks.install(trial)

    start.when_imported("torch", install)
