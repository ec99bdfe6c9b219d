"""The trial from outside: the program is run with the agent in it, then as it is and with all that is kept, in turns.

A hang ends the change that hung, and the program is begun again for the others. What stays on is run twice in fresh
processes beside two runs of the program as it is: the step is confirmed there, and losses are held against each other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Final

from timesink.capture.errors import failure
from timesink.capture.processes import Watch, run
from timesink.capture.running import INJECT
from timesink.trials.agent import VARIABLE
from timesink.trials.records import Confirmed, Receipt, TrialAnswer, TrialPlan, TrialResult, Tried
from timesink.trials.switches import EXCLUDED_BY, SWITCHES, Drift

_HANGS_S: Final = 90.0
_TOLERATED: Final[dict[Drift, float]] = {
    "exact": 1e-6,
    "other batches": 1e-6,
    "rounding": 1e-3,
    "lower precision": 3e-2,
}
"""How far losses may leave those of the base, as a share of their size, beyond what two runs of the base differ."""


class _Patience:
    """Ends the program when it is done, or when its result has not changed for too long."""

    def __init__(self, file: Path, budget_s: float) -> None:
        self._file, self._until = file, time.monotonic() + budget_s
        self._seen, self._since = "", time.monotonic()
        self.hung = False

    def tick(self) -> bool:
        """Whether the program is to end now."""
        said = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        if said != self._seen:
            self._seen, self._since = said, time.monotonic()
        phase = json.loads(said)["phase"] if said else ""
        self.hung = phase != "done" and bool(said) and time.monotonic() - self._since > _HANGS_S
        return phase == "done" or self.hung or time.monotonic() > self._until


def _run_once(program: Sequence[str], plan: TrialPlan, log: Path, quiet: bool) -> tuple[TrialResult, bool]:
    """One process with the agent in it: what it found, and whether it hung."""
    file = Path(plan.file)
    file.unlink(missing_ok=True)
    patience = _Patience(file, plan.budget_s + 600)
    places = [str(INJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    extra = {VARIABLE: plan.to_json(), "PYTHONPATH": os.pathsep.join(places)}
    ended = run(program, log, extra=extra, timeout_s=plan.budget_s + 900, quiet=quiet, watch=Watch(patience.tick, 5.0))
    if not file.exists():
        words = " / ".join(ended.tail()) or "it said nothing"
        raise failure(
            f"the program ended with status {ended.status} before a step was seen: {words[:300]}", "run it alone"
        )
    return _read(file), patience.hung


def _read(file: Path) -> TrialResult:
    given: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    tried = [Tried(**{**one, "beside": tuple(one["beside"])}) for one in given.pop("tried")]
    joint = given.pop("joint")
    joint = Tried(**{**joint, "beside": tuple(joint["beside"])}) if joint else None
    return TrialResult(**{**given, "tried": tried, "joint": joint, "kept": tuple(given["kept"])})


def try_changes(
    program: Sequence[str], folder: Path, *, names: Sequence[str] = (), budget_s: float = 180.0, quiet: bool = False
) -> TrialAnswer:
    """Try each change of `names` (all where empty) on a program, and confirm what wins together.

    `budget_s` is for the trial in one process; confirming takes four short runs more. `CaptureError` where the program
    fails by itself or no step is seen in it.
    """
    began, left = time.monotonic(), list(names or SWITCHES)
    folder.mkdir(parents=True, exist_ok=True)
    log, found = folder / "log.txt", None
    while left:
        plan = TrialPlan(str(folder.absolute() / "trial.json"), tuple(left), budget_s=budget_s)
        result, hung = _run_once(program, plan, log, quiet)
        found = result if found is None else replace(result, tried=found.tried + result.tried)
        if not hung:
            break
        found.tried.append(Tried(result.now_trying, failed=f"the program stood still for {_HANGS_S:.0f} s"))
        seen = {one.name for one in found.tried}
        left = [name for name in left if name not in seen]
    assert found is not None
    confirmed: dict[tuple[str, ...], Confirmed] = {}
    left_out: dict[str, str] = {}
    if found.phase != "done":  # it ended, or hung, before changes were put together
        found.kept = _winners(found.tried, plan.worth)
        seen = {one.name for one in found.tried}
        found.tried += [Tried(n, refused="the program ended before it was tried") for n in plan.names if n not in seen]
    kept = found.kept
    while kept:
        confirmed[kept] = proof = _confirm(program, kept, folder, quiet)
        if proof.receipt is None or proof.receipt.holds:
            break
        blamed = _most_drifting(kept)
        left_out[blamed] = (
            f"losses leave those of the base: {proof.receipt.apart:.2g} apart at step {proof.receipt.steps}"
        )
        kept = tuple(name for name in kept if name != blamed)
    if kept and confirmed[kept].ratio > 1 - plan.worth:
        left_out |= dict.fromkeys(kept, "what it won in one process was not won again in fresh ones")
        kept = ()
    return TrialAnswer(found, time.monotonic() - began, kept, confirmed, left_out)


def _winners(tried: Sequence[Tried], worth: float) -> tuple[str, ...]:
    """The changes that win by themselves, the best first, one of those that exclude each other."""
    kept: list[str] = []
    for one in sorted(tried, key=lambda one: one.ratio):
        if one.wins(worth) and one.name not in kept and not EXCLUDED_BY.get(one.name, frozenset()) & set(kept):
            kept.append(one.name)
    return tuple(kept)


def _most_drifting(names: Sequence[str]) -> str:
    """Of several changes the one that may move results most."""
    return max(names, key=lambda name: _TOLERATED[SWITCHES[name].drift])


def _confirm(program: Sequence[str], names: tuple[str, ...], folder: Path, quiet: bool) -> Confirmed:
    """Base and changed in turns, twice each, in processes of their own."""
    runs: dict[bool, list[TrialResult]] = {False: [], True: []}
    for is_changed in (False, True, False, True):
        fixed = names if is_changed else ()
        plan = TrialPlan(str(folder.absolute() / "fresh.json"), fixed=fixed, budget_s=60.0)
        result, _ = _run_once(program, plan, folder / "fresh.txt", quiet)
        runs[is_changed].append(result)
    base_ms, with_ms = (tuple(median(r.steps_ms) for r in runs[which] if r.steps_ms) for which in (False, True))
    drifts = {SWITCHES[name].drift for name in names}
    losses = [result.losses for result in runs[False]], runs[True][0].losses
    return Confirmed(
        base_ms, with_ms, _receipt(*losses, max(_TOLERATED[drift] for drift in drifts), "other batches" in drifts)
    )


def _receipt(base: list[list[float]], changed: list[float], tolerated: float, shuffled: bool) -> Receipt | None:
    steps = min(map(len, (*base, changed)))
    if not steps:
        return None
    first, second, other = (losses[steps - max(1, steps // 4) : steps] for losses in (*base, changed))
    size = max(abs(fmean(first)), 1e-6)
    if shuffled and not _apart(other, first) <= tolerated:
        error = stdev(first) / sqrt(len(first)) if len(first) > 1 else 0.0
        shift = abs(fmean(other) - fmean(first)) / size
        return Receipt(steps, shift, _apart(second, first), tolerated + 3 * sqrt(2) * error / size)
    return Receipt(steps, _apart(other, first), _apart(second, first), tolerated)


def _apart(one: list[float], other: list[float]) -> float:
    """The mean distance of two series, step by step, as a share of the second."""
    return fmean(abs(mine - theirs) / max(abs(theirs), 1e-6) for mine, theirs in zip(one, other, strict=True))
