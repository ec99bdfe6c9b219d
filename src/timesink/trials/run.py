"""The trial from outside: the program is run as it is and recorded, then with the agent in it, then with what is kept.

The first run foretells: its capture's plan says which change to try first. A hang ends the change that hung, and the
program is begun again for the others. What stays on is run in fresh processes in turns with the program as it is: the
step is confirmed there, and losses are held against each other.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from timesink.capture.errors import failure
from timesink.capture.processes import Setting, Watch, run
from timesink.capture.running import agent_environment
from timesink.errors import TimesinkError, UsageError
from timesink.recipes.reads import EVERY
from timesink.recipes.table import EXCLUDED_BY, RECIPES, SWITCHES
from timesink.trials.agent import VARIABLE
from timesink.trials.ahead import ReadyProgram, can_stand_ready
from timesink.trials.records import (
    TOLERATED,
    Confirmed,
    Foretold,
    TrialAnswer,
    TrialPlan,
    TrialResult,
    Tried,
    alike_losses,
    hold_losses,
)
from timesink.units import NS_PER_MS

if TYPE_CHECKING:
    from timesink.model.trace import Trace

_HANGS_S: Final = 90.0
_COMPILES: Final = 8.0
"""A first step with a change may take so many times what it costs to try: compilers take minutes."""
_LEAST_S: Final = 30.0  # of a trial, however long the program takes to start
_CONFIRMING: Final = 3.5  # times what the first run took
_AHEAD: Final = 10  # steps between two waits: the host of an edited program may run ahead, as it does by itself
_EDITED_S, _TIMED_S = 20.0, 1.5  # of timed steps of an edited program: at most, and at least


class _Patience:
    """Ends the program when it is done, or when its result has not changed for too long."""

    def __init__(self, file: Path, budget_s: float) -> None:
        self._file, self._until = file, time.monotonic() + budget_s
        self._seen, self._since = "", time.monotonic()
        self.hung, self.patience_s = False, _HANGS_S

    def tick(self) -> bool:
        """Whether the program is to end now."""
        said = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        if said != self._seen:
            self._seen, self._since = said, time.monotonic()
        result = json.loads(said) if said else {"phase": "", "now_trying": ""}
        cost_s = sum(SWITCHES[name].cost_s for name in result["now_trying"].split(" + ") if name)
        self.patience_s = max(_HANGS_S, _COMPILES * cost_s)
        is_done = result["phase"] == "done"
        self.hung = not is_done and bool(said) and time.monotonic() - self._since > self.patience_s
        return is_done or self.hung or time.monotonic() > self._until


class ProgramRuns:
    """Runs of one program with the agent in it, one after another, in `place` or where we are; the second
    and all after it are forked where that can be. `base` are those of the program as it is."""

    def __init__(
        self, program: Sequence[str], folder: Path, check: str, quiet: bool, place: Path | None = None
    ) -> None:
        self._program, self._folder, self._check, self._quiet, self._place = program, folder, check, quiet, place
        self.base: list[TrialResult] = []
        self.capture = folder / "rank0.json.gz"
        self._ready: ReadyProgram | None = None

    def close(self) -> None:
        """End what stands ready."""
        if self._ready is not None:
            self._ready.close()

    def once(self, plan: TrialPlan) -> tuple[TrialResult, str]:
        """One process: what it found, and what ended it before it was done: that it hung, or its status and last words;
        empty for a program that came to its own end. `CaptureError` where no step was seen in it."""
        file = self._folder / "result.json"
        file.unlink(missing_ok=True)
        plan, patience = replace(plan, file=str(file), check=self._check), _Patience(file, plan.budget_s + 600)
        start = self._ready.start if self._ready and self._ready.is_ready() else None
        setting = Setting(agent_environment(plan.to_json(), variable=VARIABLE), self._place, start)
        watch, limit_s = Watch(patience.tick, 2.0 if self._place is None else 0.0), plan.budget_s + 900
        log = self._folder / "log.txt"
        ended = run(self._program, log, setting=setting, timeout_s=limit_s, quiet=self._quiet, watch=watch)
        last = " / ".join(ended.tail()[-2:]) or "it said nothing"
        words = f"the program ended with status {ended.status}: {last}"[:400]
        if not file.exists():
            raise failure(f"no step was seen: {words}", "run it alone")
        result = _read(file)
        if self._ready is None and can_stand_ready(self._program, result.variables):
            self._ready = ReadyProgram(self._program, self._place)
        if patience.hung:
            return result, f"the program stood still for {patience.patience_s:.0f} s"
        return result, "" if result.phase == "done" or not ended.status else words

    def fixed(self, names: Sequence[str] = (), capture: Path | None = None) -> TrialResult:
        """Steps timed with these changes on from the start, some more recorded into `capture`. Of a program in a place
        of its own as many as lie between two values that its edits tell."""
        plan = TrialPlan("", fixed=tuple(names), budget_s=60.0, capture=str(capture or ""))
        if self._place is not None:
            plan = replace(plan, budget_s=_EDITED_S, steps=EVERY, together=_AHEAD, timed_s=_TIMED_S, stacks=True)
        result, broke = self.once(plan)
        if not names:
            if not result.steps_ms:
                raise failure(f"no step could be timed: {broke or 'the program made too few'}", "run it alone")
            self.base.append(result)
        return result

    def in_place(self, names: Sequence[str], budget_s: float) -> TrialResult:
        """Each of the changes tried in one process; after one that hangs or ends it, the others in a new one."""
        left, found, until = list(names), TrialResult(), time.monotonic() + budget_s
        while left:
            budget_s = max(until - time.monotonic(), _LEAST_S)
            result, broke = self.once(TrialPlan("", tuple(left), budget_s=budget_s))
            found = replace(result, tried=found.tried + result.tried)
            if result.phase == "done" or not (result.now_trying if broke else result.tried):
                break
            if broke:
                found.tried.append(Tried(result.now_trying, failed=broke))
            seen = {one.name for one in found.tried}
            left = [name for name in left if name not in seen]
        return found


def _read(file: Path) -> TrialResult:
    given: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    tried = [Tried(**{**one, "beside": tuple(one["beside"])}) for one in given.pop("tried")]
    joint = given.pop("joint")
    joint = Tried(**{**joint, "beside": tuple(joint["beside"])}) if joint else None
    rungs = [(name, step_ms) for name, step_ms in given.pop("rungs")]
    return TrialResult(**{**given, "tried": tried, "joint": joint, "rungs": rungs, "kept": tuple(given["kept"])})


def try_changes(
    program: Sequence[str],
    *,
    names: Sequence[str] = (),
    budget_s: float = 180.0,
    check: str = "",
    quiet: bool = False,
) -> TrialAnswer:
    """Try each change of `names` (all where empty) on a program, and confirm what wins together.

    `budget_s` is for everything: what the first run of the program took is kept back for those that confirm.
    `CaptureError` where the program fails by itself or no step is seen in it, `UsageError` for what is no change.
    """
    if absent := [name for name in names if name not in SWITCHES]:
        raise UsageError(f"{absent[0]!r} cannot be tried", remedy=f"choose from {', '.join(SWITCHES)}")
    with (
        TemporaryDirectory(prefix="timesink-try-") as folder,
        closing(ProgramRuns(program, Path(folder), check, quiet)) as runs,
    ):
        return _try(runs, names or tuple(SWITCHES), budget_s)


def _try(runs: ProgramRuns, names: Sequence[str], budget_s: float) -> TrialAnswer:
    began = time.monotonic()
    base = runs.fixed(capture=runs.capture)
    run_s = time.monotonic() - began
    foretold = foretell(recorded(runs.capture, base))
    order = sorted(names, key=lambda name: -_promise(name, foretold))
    left_s = budget_s - (time.monotonic() - began) - _CONFIRMING * run_s
    found = runs.in_place(order, max(left_s, _LEAST_S))
    worth = TrialPlan("").worth
    if found.phase != "done":  # it ended, or hung, before changes were put together
        found.kept = _winners(found.tried, worth)
        seen = {one.name for one in found.tried}
        found.tried += [Tried(n, refused="the program ended before it was tried") for n in order if n not in seen]
    found.places = found.places or base.places
    confirmed: dict[tuple[str, ...], Confirmed] = {}
    left_out: dict[str, str] = {}
    kept = found.kept
    while kept:
        proof = _confirm(runs, kept)
        if not proof.with_ms:
            left_out |= dict.fromkeys(kept, "a fresh process with all that won made no step")
            kept = ()
            break
        confirmed[kept] = proof
        if proof.receipt is None or proof.receipt.holds:
            break
        blamed = _most_drifting(kept)
        left_out[blamed] = (
            f"losses leave those of the base: {proof.receipt.apart:.2g} apart at step {proof.receipt.steps}"
        )
        kept = tuple(name for name in kept if name != blamed)
    if kept and not confirmed[kept].wins(worth):
        left_out |= dict.fromkeys(kept, "what it won in one process was not won again in fresh ones")
        kept = ()
    return TrialAnswer(found, time.monotonic() - began, kept, confirmed, left_out, foretold)


def _promise(name: str, foretold: Mapping[str, Foretold]) -> float:
    """What to try first: the gain that is foretold of a change (or little, where nothing is) per second of trying."""
    gain = foretold[name].value if name in foretold else 0.02
    return max(gain, 0.0) / SWITCHES[name].cost_s


def recorded(capture: Path, base: TrialResult) -> Trace | None:
    """The capture with the step as it is without a profiler; None where there is none that can be read."""
    from timesink.readers import read

    with suppress(TimesinkError):
        if capture.is_file() and base.steps_ms:
            steps_ns = tuple(step_ms * NS_PER_MS for step_ms in base.steps_ms)
            return read([capture], cache=False).with_unprofiled_step(median(steps_ns), steps_ns)
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


def _winners(tried: Sequence[Tried], worth: float) -> tuple[str, ...]:
    """The changes that win by themselves, the best first, one of those that exclude each other."""
    kept: list[str] = []
    broken = {one.name for one in tried if one.failed}
    for one in sorted(tried, key=lambda one: one.ratio):
        is_barred = one.name in {*kept, *broken} or EXCLUDED_BY.get(one.name, frozenset()) & set(kept)
        if one.wins(worth) and not is_barred:
            kept.append(one.name)
    return tuple(kept)


def _most_drifting(names: Sequence[str]) -> str:
    """Of several changes the one that may move results most."""
    return max(names, key=lambda name: TOLERATED[RECIPES[name].drift])


def _confirm(runs: ProgramRuns, names: tuple[str, ...]) -> Confirmed:
    """Base and changed in turns, in processes of their own, a third of each where two do not tell them apart; of the
    base the first run stands for one turn."""
    changed = [runs.fixed(names)]
    if len(runs.base) < 2:
        runs.fixed()
    changed.append(runs.fixed(names))
    proof = _compare(runs, changed, names)
    if not proof.with_ms or not proof.overlaps:
        return proof
    if len(runs.base) < 3:
        runs.fixed()
    return _compare(runs, [*changed, runs.fixed(names)], names)


def _compare(runs: ProgramRuns, changed: list[TrialResult], names: tuple[str, ...]) -> Confirmed:
    """The runs of the base beside those with these changes."""
    base_ms, with_ms = (
        tuple(median(result.steps_ms) for result in results if result.steps_ms) for results in (runs.base, changed)
    )
    worst = max((RECIPES[name].drift for name in names), key=list(TOLERATED).index)
    receipt = hold_losses(*alike_losses(runs.base[0], runs.base[1], changed[0]), worst)
    return Confirmed(base_ms, with_ms, receipt)
