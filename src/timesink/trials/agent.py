"""The trial in the program: between steps it switches changes on and off, times blocks of steps, and keeps what wins.

A step ends where a capture's agent finds it (`capture.agent`). All of one trial is one generator, `Trial.script`, which
the end of each step resumes: what stands between two `yield`s happens between two steps of the program.

Blocks with a change alternate with blocks without it, so that a clock that falls or a neighbour that wakes touches both
alike. A block is timed in pieces, with the device idle at both ends of each. What is reported is the median ratio of
neighbouring blocks with its range, and the ratio of the shortest pieces beside it: what else runs on a host only ever
makes a piece longer, so that one repeats better where the host is noisy.

In a job of several ranks all run the same script. What one of them sees (a time, a refusal, a failure) is shared
between steps through the job's own store, so that all decide alike and switch at the same step.
"""

import atexit
import json
import os
import sys
from collections.abc import Generator, Sequence
from dataclasses import asdict, replace
from math import ceil, inf
from pathlib import Path
from statistics import fmean
from time import perf_counter, sleep, time  # the program may set them; these are from before
from typing import Any, Final

from timesink.capture.agent.marks import StepMark
from timesink.capture.agent.recorders import Recorder, TorchRecorder, wait
from timesink.capture.agent.recording import rank_and_world
from timesink.capture.agent.settings import count_graphs
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.recipes.program import own_files
from timesink.recipes.table import EXCLUDED_BY, SWITCHES
from timesink.trials.baton import Baton, may_stand_beside
from timesink.trials.pairs import Pair, TimedBlock, is_decided, summarized
from timesink.trials.periods import Pauses, Periods
from timesink.trials.records import Period, TrialPlan, TrialResult, Tried
from timesink.trials.switched import SwitchedProgram, most_memory, reset_memory

VARIABLE: Final = "TIMESINK_TRY"
_LEAST_STEPS, _MOST_STEPS = 3, 4000  # of a block
_LONG_STEP_MS: Final = 250.0
_MOST_OF_LONG: Final = 6  # such steps of a run that is compared as a whole
_LOOKS: Final = 3  # at a block that holds a pause: where it always does, that is what the change does
_WAIT_S: Final = 0.05
_MANY_MARKS: Final = 4  # of a period whose number of marks differs
_MOST_GIVEN_S: Final = 600.0
_PIECE_S: Final = 0.03
_SHARES, _SCREEN_PAIRS = 1.5, 2  # of its even share of the time one change may take, but for so many pairs
_SETTLE_S: Final = 1.0
_SETTLE_MS: Final = 3000.0
_RECORDED: Final = StepSchedule(warm_up=2, active=3)  # steps of the capture that the plan is made of
_RECORDED_OF_LONG, _LONG_MS = StepSchedule(warm_up=1, active=1), 300.0
_MOST_TOGETHER: Final = 100
CUT_SHORT: Final = "the time was up while it was measured"
TIME_WAS_UP: Final = "the time was up before it was tried"
_SINGLES: Final = 0.7  # of the time goes to single changes, the rest to putting them together
Script = Generator[None, None, Any]


class Trial(SwitchedProgram):
    """The agent of a trial: counts steps as any agent does, and at each one's end resumes the script."""

    def __init__(self, plan: TrialPlan) -> None:
        super().__init__(plan)
        self.trial = plan
        self.result = TrialResult()
        self._script: Script | None = None
        self._deadline = 0.0
        self._pauses, self._periods, self._observes = Pauses(), Periods(), False

    def _mark(self, source: StepMark) -> None:
        """As of an agent, but a better mark of steps begins the script anew only while nothing has been tried."""
        if self.source is None or (source > self.source and self.result.phase == "settle"):
            self._periods.end()
            given_s = min(self.trial.ends_at - time(), _MOST_GIVEN_S)
            self._periods, self._observes = Periods(given_s), False
            self.source, self._script = source, self.script()
            self.result.mark = source.name.lower()
            atexit.register(self._write)
        if source is self.source and self._script is not None:
            if source < StepMark.BACKWARD and self.evidence.awaits_training:
                return
            for begin_step in filter(None, (SWITCHES[name].each_step for name in self._on)):
                begin_step()
            if self._observes:
                self._periods.note()
            elif not self._periods.ends():
                return
            try:
                next(self._script)
            except StopIteration:
                self.finished = True
                self._write()
                raise SystemExit(0) from None

    def _write(self) -> None:
        if os.getpid() != self._process:
            return
        losses = [float(loss) for loss in self.program.losses]
        rank, _ = rank_and_world()
        self.result.paused = self._pauses.share
        self.result.rank, self.result.losses, self.result.first_loss = rank, losses, self.program.first_output
        target = Path(f"{self.trial.file}.rank{rank}" if rank else self.trial.file)
        partial = target.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(asdict(self.result)), encoding="utf-8")
        partial.replace(target)

    def _say(self, phase: str, now_trying: str = "") -> None:
        self.result.phase, self.result.now_trying = phase, now_trying
        self._write()

    def script(self) -> Script:
        """The whole trial, step by step."""
        if self.source is not None and self.source <= StepMark.FORWARD:
            yield from self._see_model()
        yield from self._find_period()
        for name in self.trial.fixed:
            if not SWITCHES[name].loader and name not in self._on:  # those are on from the first batch
                self._turn_on(name)
        steps = max((SWITCHES[name].warm_up for name in self.trial.fixed), default=0)
        for _ in range(ceil((self.trial.settle + steps) / self._marks)):
            yield
        self._describe()
        self._deadline = perf_counter() + min(self.trial.budget_s, self.trial.ends_at - time())
        if not self.trial.names:
            yield from self._time_steps()
            if self.trial.capture:
                yield from self._record()
            yield from self._wait_for_order()
        if not self.trial.names:
            self._say("done")
            return
        began = perf_counter()
        step_ms = self.trial.step_ms or fmean(self.result.steps_ms or [0.0])
        step_ms = (yield from self._time_block(step_ms)).mean
        self.result.base_ms.append((yield from self._time_block(step_ms)).mean)
        applied = [name for name in self.trial.names if self._applies(name)]
        fixed, until = self.trial.fixed, began + _SINGLES * (self._deadline - began)
        until = until if len(applied) > 1 else self._deadline
        for at, name in enumerate(applied):
            if self._is_late(until):
                self.result.tried.append(Tried(name, left=TIME_WAS_UP))
            else:
                share = perf_counter() + max(_SHARES * (until - perf_counter()) / (len(applied) - at), _PIECE_S)
                self.result.tried.append((yield from self._try((name,), fixed, share)))
        yield from self._join()
        self.result.applied = tuple(name for name in self.trial.asked if self._applies(name))
        self._switch_off(list(self._on))
        self.result.base_ms.append((yield from self._time_block(step_ms)).mean)
        self._say("done")

    def _wait_for_order(self) -> Script:
        """What to try, once the other process has read what an earlier run recorded; the program's own losses are kept
        apart."""
        order = Path(self.trial.order)
        if not self.trial.order:
            return
        self.program.keeps_losses = False
        self._say("waiting")
        until = perf_counter() + self.trial.ends_at - time()
        while not all(self._share(order.exists())) and not self._is_late(until):
            sleep(_WAIT_S)  # a short program would be over
        yield
        if order.exists():
            given = json.loads(order.read_text(encoding="utf-8"))
            self.trial = replace(self.trial, names=tuple(given["names"]), asked=tuple(given["asked"]))
            self._deadline = perf_counter() + min(given["budget_s"], self.trial.ends_at - time())

    def _find_period(self) -> Script:
        """What of the marks makes a step; the program's own word for it is one."""
        if self.trial.period is not None:
            self._periods.set(self.trial.period, sys._getframe())
        elif self.source not in (StepMark.LOOP, StepMark.PROFILER, StepMark.EXPLICIT):
            self._observes = True
            self._periods.observe(sys._getframe())
            while not all(self._share(self._periods.is_seen)):
                yield
            self._observes = False
            self._periods.find()
            if (first := self._share(asdict(self._periods.period))[0]) != asdict(self._periods.period):
                self._periods.set(Period(**first), sys._getframe())
        self.result.period = self._periods.period

    @property
    def _marks(self) -> int:
        """How many of the program's own steps one period holds, about: what warms up or settles does so by these."""
        return self._periods.period.marks or _MANY_MARKS

    def _see_model(self) -> Script:
        """Where no optimizer tells steps apart, what a program calls may be a small part of what it repeats."""
        until = perf_counter() + _SETTLE_S
        while not all(self._share(self.program.has_shown_all)) and not self._is_late(until):
            yield
        self.program.settle_roots()

    def _describe(self) -> None:
        made = self.program.root, self.program.step_optimizer
        self.result.root, self.result.optimizer = ("" if one is None else type(one).__name__ for one in made)
        self.result.places, self.result.files = dict(self.program.places), own_files()
        self.result.batches_made_on_gpu = any(batches.made_on_gpu for batches in self.program.iterators)
        self._say("trying")

    def _time_steps(self) -> Script:
        """Steps for a run that is compared as a whole, in pieces as those of a trial: as many between two waits as last
        for `_PIECE_S`, told as their mean. At least `steps` of them and for `timed_s`, unless that takes all the time
        there is."""
        weights = self.program.weights() if self.trial.moved_at else []
        reset_memory()
        baton, steps = Baton(self.trial.turns, wait), self.trial.steps
        baton.take(self._deadline)
        began, made, together, whole = perf_counter(), 0, 1, list[float]()
        while not self._is_late(self._deadline if made < steps else began + self.trial.timed_s):
            baton.take(self._deadline)
            together = min(together, self.trial.moved_at - made) if made < self.trial.moved_at else together
            (piece_ms,), is_paused = yield from self._time_pieces(1, together)
            self.result.steps_ms.append(piece_ms)
            if not is_paused or self.trial.moved_at:
                whole.append(piece_ms)
            made += together
            if made == together:  # the first piece is one step
                is_long = self.result.steps_ms[0] > _LONG_STEP_MS and not self.trial.moved_at
                steps = min(steps, _MOST_OF_LONG) if self._share(is_long)[0] else steps
                together = self._share(min(max(ceil(_PIECE_S * 1e3 / self.result.steps_ms[0]), 1), _MOST_TOGETHER))[0]
            if weights and made == self.trial.moved_at:
                ends = zip(weights, self.program.weights(), strict=False)
                self.result.moved = [float((end - start).abs().mean()) for start, end in ends]
        baton.leave(self._deadline)
        self.result.steps_ms = whole or self.result.steps_ms
        self.result.memory_bytes, self.result.may_stand_beside = most_memory(), may_stand_beside(sys.modules["torch"])

    def _record(self) -> Script:
        """Some steps under torch.profiler, in the first rank; the others go along."""
        steps = _RECORDED if fmean(self.result.steps_ms) < _LONG_MS else _RECORDED_OF_LONG
        plan = AgentPlan(Mode.TORCH, str(Path(self.trial.capture).parent), steps, stacks=self.trial.stacks)
        recorder = TorchRecorder(plan, Path(self.trial.capture)) if not rank_and_world()[0] else Recorder()
        recorder.prepare(steps.warm_up)
        for at in range(steps.warm_up):
            yield
            recorder.step(at - steps.warm_up + 1)
        wait()
        recorder.start()
        for at in range(steps.active):
            yield
            if at + 1 < steps.active:
                recorder.step(at + 2)
        recorder.stop()

    def _time_block(self, step_ms: float) -> Generator[None, None, TimedBlock]:
        """One block of about `block_s`, in the slowest rank; `step_ms` is what a step takes."""
        count = ceil(self.trial.block_s * 1e3 / step_ms) if step_ms else 0
        least = _LEAST_STEPS if max(step_ms, *self.result.base_ms[:1], 0.0) < _LONG_STEP_MS else 1
        count = min(max(count, least), _MOST_STEPS)
        size = max(least, ceil(_PIECE_S * 1e3 / step_ms)) if step_ms else count
        for _ in range(_LOOKS):
            pieces, is_paused = yield from self._time_pieces(max(1, count // size), size)
            said = self._share([fmean(pieces), min(pieces), self._broken, is_paused])
            if not any(paused for *_, paused in said):
                break
        self._broken = next((broken for *_, broken, _ in said if broken), "")
        return TimedBlock(float(max(mean for mean, *_ in said)), float(max(least for _, least, *_ in said)))

    def _time_pieces(self, count: int, size: int) -> Generator[None, None, tuple[list[float], bool]]:
        """Milliseconds a step of each piece, with the device idle at its ends, and whether one holds a pause."""
        pieces, gaps_s = list[float](), list[float]()
        for _ in range(count):
            wait()
            started = before = perf_counter()
            for _ in range(size):
                yield
                gaps_s.append(perf_counter() - before)
                before += gaps_s[-1]
            wait()
            pieces.append((perf_counter() - started) * 1e3 / size)
        return pieces, self._pauses.note(gaps_s)

    def _applies(self, name: str) -> bool:
        """Whether a change can be made at all: it is made and undone at once."""
        refused, failed = self._switch_on((name,))
        self._switch_off((name,))
        if refused or failed:
            self.result.tried.append(Tried(name, refused=refused, failed=failed))
        return not (refused or failed)

    def _try(
        self, names: Sequence[str], beside: Sequence[str] = (), until: float = inf
    ) -> Generator[None, None, Tried]:
        """Changes, beside others that are on already: blocks with them and without them in turns. Beyond `until` no
        more than tells a change that may win from one that does not: what may has a second look."""
        tried = Tried(" + ".join(names), tuple(beside))
        self._say("trying", tried.name)
        started, pairs, graphs = perf_counter(), list[Pair](), 0
        with_ms = without_ms = self.result.base_ms[0]
        settle = ceil(max(SWITCHES[name].settle for name in (*names, *beside)) / self._marks)
        warm_up = ceil(max(SWITCHES[name].warm_up for name in names) / self._marks)
        while not is_decided(pairs, self.trial.worth):
            refused, failed = self._switch_on(names)
            if refused or failed:
                return replace(tried, refused=refused, failed=failed)
            yield
            graphs = graphs if pairs else count_graphs()
            for _ in range(1, min(settle, ceil(_SETTLE_MS / with_ms)) if pairs else warm_up):
                yield
            if not pairs:
                tried.warm_up_s = perf_counter() - started
                if without_ms < _LONG_STEP_MS:
                    with_ms = (yield from self._time_block(0.0)).mean
            reset_memory()
            changed = yield from self._time_block(with_ms)
            with_ms = changed.mean
            tried.memory_bytes = max(tried.memory_bytes, most_memory())
            self._switch_off(names)
            if self._broken:
                break
            if not pairs:
                tried.recompiled = count_graphs() - graphs
            for _ in range(min(settle, ceil(_SETTLE_MS / without_ms))):
                yield
            reset_memory()
            plain = yield from self._time_block(without_ms)
            without_ms = plain.mean
            tried.base_memory_bytes = max(tried.base_memory_bytes, most_memory())
            pairs.append((changed, plain))
            self.result.partial = replace(summarized(tried, pairs), left=CUT_SHORT)
            self._write()
            if self._is_late(self._deadline) or (len(pairs) >= _SCREEN_PAIRS and self._is_late(until)):
                break
        self.result.partial = None
        if self._broken:
            return replace(tried, failed=self._broken[:300])
        late = "" if len(pairs) >= _SCREEN_PAIRS else CUT_SHORT
        return replace(summarized(tried, pairs), left=late)

    def _join(self) -> Script:
        """Changes are put together, the best first; the others are tried again beside those that are kept, since a step
        that waited for its input shows no kernel's gain. Before one is kept, what only seems to win has a second look.
        At the end each is tried off once more: what is worth nothing beside the others goes."""
        worth = self.trial.worth
        applied = sorted((one for one in self.result.tried if one.pairs), key=lambda one: one.ratio)
        kept: list[str] = []
        for one in applied:
            if EXCLUDED_BY.get(one.name, frozenset()) & set(kept) or not (kept or one.seems_to_win(worth)):
                continue
            beside = one
            if kept or not one.wins(worth):
                if self._is_late(self._deadline):
                    continue
                beside = yield from self._try((one.name,), kept)
                self.result.tried.append(beside)
                if not beside.wins(worth):
                    continue
            yield from self._keep(one.name, kept)
            if one.name in kept:
                self.result.rungs.append((one.name, beside.with_ms))
        for name in kept[:-1]:
            if not self._is_late(self._deadline):
                yield from self._try_off(name, kept)
        if kept and not self._is_late(self._deadline):
            self.result.joint = yield from self._try(kept)

    def _keep(self, name: str, kept: list[str]) -> Script:
        """Switch a change on to stay."""
        refused, failed = self._switch_on((name,))
        for _ in range(0 if refused or failed else SWITCHES[name].settle):
            yield
        if name in self._on:
            kept.append(name)
        self.result.kept = tuple(kept)
        self._say("joining", name)

    def _try_off(self, name: str, kept: list[str]) -> Script:
        """Whether a change that is kept still wins beside those that came after it."""
        self._off(name)
        again = yield from self._try((name,), [other for other in kept if other != name])
        kept.remove(name)
        if again.wins(self.trial.worth / 4):
            yield from self._keep(name, kept)
        else:
            self.result.tried.append(again)
        self.result.kept = tuple(kept)


def begin(text: str) -> None:
    """Wait for the program to import torch, then watch it."""
    from timesink.capture import in_program
    from timesink.capture.agent import is_bystander, torch_hooks
    from timesink.capture.agent.imports import when_imported

    if is_bystander(sys.orig_argv):
        return
    trial, given = Trial(TrialPlan.from_json(text)), dict(os.environ)

    def install() -> None:
        trial.result.variables = sorted({name for name, _ in os.environ.items() ^ given.items()})
        in_program.listeners.append(trial.explicit_step)
        trial.program.install()
        torch_hooks.install(trial)

    when_imported("torch", install)
