"""Runs of a program with the agent in it, each in time, and what the capture of the first one foretells."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from shutil import copyfile
from statistics import fmean
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Final

from timesink.capture.agent.marks import SEEN, read_seen
from timesink.capture.errors import A_STEP, CaptureError, Fault, failure
from timesink.capture.processes import Running, Setting, Watch, run
from timesink.capture.running import agent_environment
from timesink.errors import TimesinkError
from timesink.recipes.reads import EVERY
from timesink.trials.agent import VARIABLE
from timesink.trials.ahead import ReadyProgram, can_stand_ready
from timesink.trials.apart import ProgramApart
from timesink.trials.baton import leave_alone, pipes_in
from timesink.trials.records import LATE, Foretold, Period, TrialPlan, TrialResult, Tried
from timesink.units import NS_PER_MS

if TYPE_CHECKING:
    from timesink.model.trace import Trace

_HANGS_S: Final = 90.0
_LEAST_S: Final = 0.5  # in which no program starts
_WITHIN: Final = 0.96  # of the time that is left, in which the agent ends by itself
_SIGNAL_S: Final = 0.3
_POLL_S: Final = 0.1
_EDITED_S, _TIMED_S, _IN_TURNS_S = 20.0, 1.5, 2.5  # of timed steps of an edited program: at most, at least, in turns


Tell = Callable[[str], None]
Waits = Callable[[TrialResult], None]


def unheard(_: str) -> None:
    """Where nobody listens."""


class TimeIsUp(CaptureError):
    """There is no time left for another run."""

    def __init__(self) -> None:
        super().__init__(Fault.FAILED, LATE, remedy="give more with --budget")


class _Patience:
    """Ends the program when it is done, or when its result has not changed for too long; tells what is tried. `waits`
    is called again and again while the program waits for what to try."""

    def __init__(self, file: Path, patience_s: float, waits: Waits | None, tell: Tell) -> None:
        self._file, self.patience_s, self._waits, self._tell = file, patience_s, waits, tell
        self._seen, self._since, self.hung = "", time.monotonic(), False
        self._trying = ""

    def tick(self) -> bool:
        """Whether the program is to end now."""
        said = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        if said != self._seen:
            self._seen, self._since = said, time.monotonic()
        told = json.loads(said) if said else {"phase": "", "now_trying": ""}
        phase, trying = told["phase"], told["now_trying"]
        if trying not in ("", self._trying):
            self._tell(f"{trying} is switched on and off")
        self._trying = trying
        is_done = phase == "done"
        if phase == "waiting" and self._waits is not None:
            self._waits(_read(self._file))
            self._since = time.monotonic()
        self.hung = not is_done and bool(said) and time.monotonic() - self._since > self.patience_s
        return is_done or self.hung


class ProgramRuns:
    """Runs of one program with the agent in it, one after another, in `place` or where we are; the second
    and all after it are forked where that can be. `base` are those of the program as it is. None lasts beyond `until_s`
    of the monotonic clock; what was found of one that was interrupted is `unfinished`. What they print goes to a log
    that outlives us once a run has failed: `kept_log`, else empty. Runs of `beside` may stand beside ours."""

    def __init__(
        self, program: Sequence[str], folder: Path, check: str, place: Path | None = None,
        apart: ProgramApart | None = None, tell: Tell = unheard,
    ) -> None:  # fmt: skip
        self._program, self._folder, self._check, self._place, self._tell = program, folder, check, place, tell
        self.base: list[TrialResult] = []
        self.capture, self.order = folder / "rank0.json.gz", folder / "order.json"
        self.until_s = inf
        self.period: Period | None = None
        self.unfinished: TrialResult | None = None
        self._ready: ReadyProgram | None = None
        self._apart = apart
        self.beside: ProgramRuns | None = None
        self._log, self.kept_log = folder / "log.txt", ""

    def close(self) -> None:
        """End what stands ready, and keep what the runs printed where one failed."""
        if self.kept_log:
            copyfile(self._log, self.kept_log)
        if self._apart is not None:
            self._apart.close()
        if self._ready is not None:
            self._ready.close()
        if self.beside is not None:
            self.beside.close()

    def once(
        self, plan: TrialPlan, patience_s: float = _HANGS_S, waits: Waits | None = None
    ) -> tuple[TrialResult, str]:
        """One process: what it found, and what ended it before it was done: that it hung, that the time was up, or its
        status and last words; empty for a program that came to its own end. `waits` is called again and again while the
        program waits for what to try. `CaptureError` where no step was seen."""
        began_s = time.monotonic()
        left_s = min(self.until_s - began_s, plan.ends_at - time.time())
        if left_s < _LEAST_S:
            raise TimeIsUp
        file = self._folder / "result.json"
        patience = _Patience(file, patience_s, waits, self._tell)
        for old in (file, *self._folder.glob(SEEN.format("*"))):
            old.unlink(missing_ok=True)
        ends_at = time.time() + left_s * _WITHIN
        plan = replace(plan, file=str(file), check=self._check, ends_at=ends_at, period=self.period)
        setting = Setting(agent_environment(plan.to_json(), variable=VARIABLE), self._place, self._starter(plan))
        watch = Watch(patience.tick, 2.0 if self._place is None else 0.0, _SIGNAL_S)
        why, status = "", 0
        try:
            ended = run(self._program, self._log, setting=setting, timeout_s=left_s, quiet=True, watch=watch)
            status = ended.status
            why = f"the program ended with status {status}: {ended.last_words()}"[:400]
        except CaptureError as error:
            if error.fault is not Fault.FAILED or time.monotonic() < began_s + left_s:
                raise
            status, why = -signal.SIGKILL, LATE
        finally:
            self.unfinished = _read(file) if file.exists() else None
        result, self.unfinished = self.unfinished, None
        if self._apart is not None:
            self._apart.hold_to(self._log)
        if status and why != LATE and not patience.hung and (result is None or result.phase != "done"):
            self._failed((result.now_trying if result else "") or " + ".join(plan.fixed) or "as it is", why)
        if result is None or not result.mark:
            raise self._stepless(why)
        self.period = self.period or result.period
        if self._apart is not None:
            self._apart.name_as_ours(result)
        self._stand_ready(result)
        if patience.hung:
            return result, f"the program stood still for {patience.patience_s:.0f} s"
        return result, "" if result.phase == "done" or not status else why

    def _starter(self, plan: TrialPlan) -> Callable[[Mapping[str, str], int], Running] | None:
        """What begins a run. One that is recorded is not forked: CUPTI sees no work of a GPU in a forked process."""
        afresh = bool(plan.capture)
        if self._ready is not None and not afresh and self._ready.is_ready():
            return self._ready.start
        return partial(self._apart.start, afresh=afresh) if self._apart is not None else None

    def _failed(self, what: str, why: str) -> None:
        """Tell of a run that failed, and where all that it printed will be."""
        if not self.kept_log:
            file, self.kept_log = mkstemp(prefix="timesink-", suffix=".log")
            os.close(file)
        self._tell(f"{what}: {why}; all it printed: {self.kept_log}")

    def _stand_ready(self, result: TrialResult) -> None:
        if self.beside is not None and result.may_stand_beside:
            self.beside._stand_ready(result)
        if self._apart is not None:
            self._apart.stand_ready(result.variables)
        elif self._ready is None and can_stand_ready(self._program, result.variables):
            self._ready = ReadyProgram(self._program, self._place, self._folder)

    def _stepless(self, why: str) -> CaptureError:
        """Why there is nothing to time: what was seen, and what to type."""
        seen = read_seen(self._folder)
        nothing = "it had not imported PyTorch by then" if why == LATE else "it did not import PyTorch"
        what = f"no step was seen (none of: {A_STEP}): {why}; {seen or nothing}"
        if self.kept_log:
            return failure(what, f"make the program run alone first; all it printed is in {self.kept_log}")
        return failure(what, "call timesink.step() at the end of each step of the program, or give more with --budget")

    def first(self, plan: TrialPlan, patience_s: float) -> str:
        """The program as it is, timed and then recorded, and what ended it before it was done. What tries changes is
        another process: launches of one that a profiler was in stay slower after it."""
        plan = replace(plan, capture=str(self.capture))
        result, broke = self.once(plan, patience_s)
        if not result.steps_ms and result.period != Period() and broke != LATE:
            self.period = Period()  # it was over before enough of the longer ones came round
            result, broke = self.once(plan, patience_s)
        self._check_timed(result, broke)
        self.base.append(result)
        return broke

    def ordered(self, plan: TrialPlan, waits: Waits, patience_s: float) -> tuple[TrialResult, str]:
        """The program as it is, timed again, and then what `waits` orders, in one process."""
        result, broke = self.once(replace(plan, order=str(self.order)), patience_s, waits)
        if result.steps_ms:
            self.base.append(replace(result, tried=[], kept=(), rungs=[], joint=None, base_ms=[]))
        return result, broke

    def fixed(
        self, names: Sequence[str] = (), capture: Path | None = None, budget_s: float = 60.0, turns: Sequence[str] = ()
    ) -> TrialResult:
        """Steps timed with these changes on from the start, for so long at most, some more recorded into `capture`. Of
        a program in a place of its own as many as lie between two values that its edits tell. `turns` are pipes: what
        stands beside it takes as much time again."""
        plan = TrialPlan("", fixed=tuple(names), budget_s=budget_s, capture=str(capture or ""), turns=tuple(turns))
        if self._place is not None:
            most_s, least_s = (2 * _EDITED_S, 2 * _IN_TURNS_S) if turns else (_EDITED_S, _TIMED_S)
            plan = replace(plan, budget_s=most_s, steps=EVERY, moved_at=EVERY, timed_s=least_s, stacks=True)
        result, broke = self.once(plan)
        if not names:
            self._check_timed(result, broke)
            self.base.append(result)
        return result

    def side_by_side(self, change: Callable[[], object]) -> tuple[TrialResult, TrialResult]:
        """A run of the program as it stands and one of it after `change`, which take turns. `CaptureError` where one
        fails, whatever the reason; the other is ended."""
        assert self.beside is not None and self._apart is not None
        self.beside.until_s, self.beside.period = self.until_s, self.period
        self._apart.begun.clear()
        with pipes_in(self.beside._folder) as pipes, ThreadPoolExecutor(1) as pool:
            first = pool.submit(self._in_turns, pipes)
            while not (self._apart.begun.wait(_POLL_S) or first.done()):
                pass
            try:
                change()
                second = self.beside._in_turns(pipes[::-1])
            except BaseException:
                self._apart.end()
                raise
            return first.result(), second

    def _in_turns(self, pipes: Sequence[str]) -> TrialResult:
        try:
            return self.fixed(turns=pipes)
        finally:
            leave_alone(pipes[1])

    def _check_timed(self, result: TrialResult, broke: str) -> None:
        """`CaptureError` where none of the steps that were seen could be timed."""
        if not result.steps_ms:
            remedy = "give more with --budget" if broke == LATE else "run it alone"
            raise failure(f"no step could be timed: {broke or 'the program made too few'}", remedy)


def _read(file: Path) -> TrialResult:
    return result_of(json.loads(file.read_text(encoding="utf-8")))


def result_of(found: Mapping[str, Any]) -> TrialResult:
    """What a process found, by what it wrote."""
    given = dict(found)
    tried = [_tried(one) for one in given.pop("tried")]
    joint, partial = (_tried(one) if (one := given.pop(name)) else None for name in ("joint", "partial"))
    rungs = [(name, step_ms) for name, step_ms in given.pop("rungs")]
    kept, applied = (tuple(given.pop(name)) for name in ("kept", "applied"))
    period, parts = Period(**given.pop("period")), {"tried": tried, "joint": joint, "partial": partial, "rungs": rungs}
    return TrialResult(**{**given, **parts, "kept": kept, "applied": applied, "period": period})


def _tried(one: dict[str, Any]) -> Tried:
    return Tried(**{**one, "beside": tuple(one["beside"])})


def recorded(capture: Path, base: TrialResult) -> Trace | None:
    """The capture with the step as it is without a profiler; None where there is none that can be read, or where it
    lacks the work of a GPU that the program had."""
    from timesink.model.tables import DEVICE_OPS
    from timesink.readers import read

    with suppress(TimesinkError):
        if capture.is_file() and base.steps_ms:
            steps_ns = tuple(step_ms * NS_PER_MS for step_ms in base.steps_ms)
            trace = read([capture], cache=False)
            if trace.get(DEVICE_OPS).height or not base.memory_bytes:
                return trace.with_unprofiled_step(fmean(steps_ns), steps_ns)
    return None


def foretell(trace: Trace | None) -> dict[str, Foretold]:
    """What the plan of a trace foretells of each change alone, as shares of the step; nothing where no plan can be made
    of it."""
    from timesink.diagnosis.engine import diagnose
    from timesink.diagnosis.places import place_in_program
    from timesink.diagnosis.plan.ladder import changes_offered

    if trace is None:
        return {}
    with suppress(TimesinkError):
        joint = changes_offered(trace, diagnose(trace))
        if not isinstance(joint, str):
            gains = {name: gain for name in joint.offered if (gain := joint.gain({name}))}
            return {
                name: Foretold(
                    gain.value / joint.step_ms,
                    (gain.low or 0.0) / joint.step_ms,
                    gain.most / joint.step_ms,
                    place_in_program(joint, name, ()).where,
                )
                for name, gain in gains.items()
            }
    return {}


def edits_refused(trace: Trace | None) -> frozenset[str]:
    """Edits whose precondition the trace refuses."""
    from timesink.fixes.table import BY_NAME
    from timesink.recipes.table import EDITS

    return frozenset(name for name in EDITS if trace is not None and BY_NAME[name].refused(trace))


def shares_of_lines(trace: Trace | None) -> dict[tuple[str, int], float]:
    """For each line (name of the file, number from 1) that was recorded: the share of the program's CPU time that
    passes in it and in what it calls, or of its GPU time where that is more. Recording makes Python dearer."""
    from timesink.measures.lines import host_stack_times, path_times

    shares: dict[tuple[str, int], float] = {}
    if trace is not None:
        on_cpu = [(stack, time_ns) for (_, stack), time_ns in (host_stack_times(trace) or {}).items()]
        for times in (on_cpu, [(time.stack, time.gpu_ns) for time in path_times(trace)]):
            sums, total_ns = Counter[tuple[str, int]](), sum(time_ns for _, time_ns in times)
            for stack, time_ns in times:
                for place in {(Path(at.file).name, at.line) for at in stack if at.file and at.line}:
                    sums[place] += time_ns
            for place, time_ns in sums.items():
                shares[place] = max(shares.get(place, 0.0), time_ns / max(total_ns, 1))
    return shares


def waits_of_step(trace: Trace | None) -> float | None:
    """How often the first rank waits for a result in a recorded step: calls that block until the GPU is done, and where
    no GPU works, operators that hand a value to Python. None without a trace."""
    from timesink.knowledge.operators import HANDS_A_VALUE
    from timesink.measures.steps.per_step import begun_per_step
    from timesink.measures.timeline.synchronisations import blocking_calls
    from timesink.model.names import matches
    from timesink.model.tables import DEVICE_OPS, HOST_OPS

    if trace is None:
        return None
    on_gpu, ops = bool(trace.get(DEVICE_OPS).height), trace.get(HOST_OPS)
    waits = blocking_calls(trace) if on_gpu else ops.filter(matches(ops["name"], HANDS_A_VALUE))
    return begun_per_step(trace, min(trace.rank_numbers, default=0), waits["start_ns"])
