"""Verify one change: runs of both sides in turns, looked at after 6, 12, 18 and 30 pairs, one verdict.

The first pair warms disks and caches and is discarded. The verdict rests on the paired t interval of log ratios of run
means (`statistics`); each look's interval pays for all of them (`look_level`), so looking early costs no false alarms.
Where the interval decides nothing, or the runs forbid a verdict, the reason and the way out are named.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from timesink.errors import UsageError
from timesink.model.arrays import Float64Array
from timesink.records import Record, replace
from timesink.units import S_PER_MINUTE
from timesink.verify import limits
from timesink.verify.explained import carry_over, explanations
from timesink.verify.hindrances import Hindrance, Pair, find_hindrance, grain_log
from timesink.verify.outcomes import ChangeVerdict, GateResult, GateRow, Outcome, Reason, RunRow, inconclusive, invalid
from timesink.verify.power import RunnerLimit, runner_limit
from timesink.verify.runs import SIDES, WHOLE, Side, pair_order, same_check
from timesink.verify.statistics import (
    detectable,
    geometric_mean,
    interval_verdict,
    is_no_chance,
    look_level,
    most_lie_beyond,
    paired_interval,
    pairs_to_decide,
)

Statistic = Literal["mean", "median"]


class ExperimentPlan(Record):
    """How a change is verified, fixed before the first run: pairs at each look, error rate, practical threshold.

    `statistic` condenses a run to one time: the mean, which is what throughput is made of, or the median, which is
    blind to rare slow steps. `least_speed_up`: pairs are made until this speed-up is shown, or shown to be missed.
    `within_s`: no pair begins that would not end within so many seconds, but for the few that any verdict needs; the
    last look is then earlier than planned, by the time that pairs take and not by what they show.
    """

    threshold_ratio: float = limits.STEP_THRESHOLD
    alpha: float = limits.ALPHA
    looks: tuple[int, ...] = limits.LOOKS
    warm_up_pairs: int = 1
    check_tolerance_ratio: float = 0.0
    statistic: Statistic = "mean"
    least_speed_up: float | None = None
    within_s: float = math.inf

    @property
    def interval_level(self) -> float:
        """The level at each look, of the plain interval and of those with what explains the spread taken out."""
        return look_level(self.looks, self.alpha)

    def plain_level(self, pairs: int) -> float:
        """The level of the plain interval of so many pairs: all of it where there are too few for any other."""
        shared = limits.EXPLAINED_SHARE if pairs >= limits.EXPLAINED_PAIRS else 0.0
        return 1 - (1 - self.interval_level) * (1 - shared)

    def limit_here(self, run_sd_ratio: float, df: int) -> RunnerLimit:
        """What this plan sees where runs deviate so, a deviation of so many degrees of freedom."""
        levels = {pairs: self.plain_level(pairs) for pairs in self.looks}
        return runner_limit(run_sd_ratio, df, levels, self.threshold_ratio)

    def time_s(self, run: RunRow) -> float:
        """The one time that a run is condensed to."""
        return run.mean_s if self.statistic == "mean" else run.median_s


Launch = Callable[[Side, int], RunRow]


class Verification(Record):
    """All counted pairs (before, after), in order, and the verdict on the step time."""

    plan: ExperimentPlan
    pairs: tuple[Pair, ...]
    verdict: ChangeVerdict
    notes: tuple[str, ...] = ()


def verify(
    plan: ExperimentPlan,
    launch: Launch,
    progress: Callable[[str], None] = lambda _: None,
    shorten: Callable[[int], None] | None = None,
) -> Verification:
    """Make runs until a look decides or the plan is exhausted; stop at once where results differ.

    `shorten` ends the runs to come after so many steps: asked once, behind the first pair, where whole runs of a plan
    that has a time leave none for the pairs of its first look.
    """
    check_plan(plan)
    number = 1
    reference: RunRow | None = None
    pairs: list[Pair] = []
    planned = look = plan.looks[0]
    ended: tuple[str, ...] = ()
    started = since_s = time.monotonic()
    before = plan.warm_up_pairs  # pairs that took as long as those that count
    progress("both sides run in turns; how long it takes is told after the first pair")
    for pair in range(-plan.warm_up_pairs, plan.looks[-1]):
        made: dict[str, RunRow] = {}
        for side in pair_order(max(pair, 0)):
            row = launch(side, number)
            number += 1
            progress(_describe(row))
            reference = reference or row
            if verdict := _refuse_other_work(reference, row, plan):
                return Verification(plan, tuple(pairs), verdict)
            made[side] = row
        if pair == -1 and (ended := _end_early(plan, tuple(made.values()), started, shorten, progress)):
            reference, since_s, before = None, time.monotonic(), 0
        if pair == -plan.warm_up_pairs and not ended:
            progress(_price(plan, time.monotonic() - started))
        if pair < 0:
            continue
        pairs.append((made[SIDES[0]], made[SIDES[1]]))
        pair_s = (time.monotonic() - since_s) / (len(pairs) + before)
        is_last = len(pairs) >= limits.FEWEST_PAIRS and time.monotonic() - started + pair_s > plan.within_s
        if len(pairs) < look and not is_last:
            progress(f"{len(pairs)} of {look} pairs: about {_wait_text(pair_s * (look - len(pairs)))} ahead")
            continue
        verdict = judge(pairs, plan)
        looks = [] if is_last else [later for later in plan.looks if later > planned]
        if verdict.is_final or not looks or (verdict.reason is Reason.TOO_NOISY and _is_hopeless(verdict, plan)):
            progress(f"{len(pairs)} pairs: {verdict.label}")
            cut = (_cut_short(plan),) if is_last and not verdict.is_final else ()
            return Verification(plan, tuple(pairs), verdict, (*_provenance(pairs[-1]), *ended, *cut))
        planned, needed = looks[0], _pairs_needed(verdict, plan)
        look = min(planned, max(math.ceil(limits.LOOK_MARGIN * needed), len(pairs) + 1)) if needed else planned
        ahead_s = pair_s * (look - len(pairs))
        about = f", needs about {needed} pairs" if needed else ""
        progress(f"{len(pairs)} pairs: {verdict.label}{about}; looked at again after {look}, in {_wait_text(ahead_s)}")
    raise AssertionError("the last look always returns")


def _price(plan: ExperimentPlan, pair_s: float) -> str:
    """What the pairs will take, where one takes so long."""
    first, last = plan.looks[0], plan.looks[-1]
    told = f"about {_wait_text(first * pair_s)} ahead: {first} pairs of {_wait_text(pair_s)}"
    told = f"{told}, or up to {last} ({_wait_text(last * pair_s)}) where runs differ" if last > first else told
    return told if last * pair_s <= plan.within_s else f"{told}; {_wait_text(plan.within_s)} in all at most"


def _fewer_steps(plan: ExperimentPlan, made: Sequence[RunRow], spent_s: float) -> int:
    """After how many steps runs must end for the pairs of the first look to fit into the plan's time, as these runs
    were; 0 where whole ones fit, or nothing could be left out."""
    runs, left_s = 2 * plan.looks[0], plan.within_s - spent_s
    if any(not run.outside_s or not run.steps_s or run.mark == WHOLE for run in made):
        return 0
    if math.isinf(left_s) or runs * sum(run.outside_s or 0.0 for run in made) / len(made) <= left_s:
        return 0
    fitting = min(
        (left_s / runs - (run.outside_s or 0.0)) / (run.steps_s or 1.0) * run.steps + run.steps for run in made
    )
    steps = max(int(fitting), limits.CUT_STEPS)
    return steps if steps < min(run.steps for run in made) else 0


def _end_early(
    plan: ExperimentPlan,
    made: Sequence[RunRow],
    started_s: float,
    shorten: Callable[[int], None] | None,
    progress: Callable[[str], None],
) -> tuple[str, ...]:
    """End the runs to come early where that is needed; what is to be said of it with the verdict."""
    steps = _fewer_steps(plan, made, time.monotonic() - started_s)
    if not steps or shorten is None:
        return ()
    shorten(steps)
    told = f"each run is ended after {steps} steps, to answer within {_wait_text(plan.within_s)}"
    progress(told)
    return (f"{told}: --pairs {','.join(map(str, plan.looks))} takes whole runs",)


def _cut_short(plan: ExperimentPlan) -> str:
    """Why no more pairs were made, and how to have them."""
    pairs = ",".join(map(str, plan.looks))
    return f"no other pair ends within {_wait_text(plan.within_s)}: --pairs {pairs} takes the time that these need"


def _wait_text(seconds: float) -> str:
    return f"{seconds / S_PER_MINUTE:.2g} min" if seconds >= S_PER_MINUTE else f"{seconds:.2g} s"


def _pairs_needed(verdict: ChangeVerdict, plan: ExperimentPlan) -> int | None:
    """How many pairs would decide if effect and noise stay as these pairs show them; None where too many to advise, or
    where what is open is a speed-up that was asked for."""
    if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.effect is None or verdict.run_sd_ratio is None:
        return None
    mean, pair_sd = math.log(verdict.effect.ratio), math.sqrt(2) * verdict.run_sd_ratio
    return pairs_to_decide(
        mean, pair_sd, plan.plain_level(limits.EXPLAINED_PAIRS), plan.threshold_ratio, limits.MOST_PAIRS
    )


def _is_hopeless(verdict: ChangeVerdict, plan: ExperimentPlan) -> bool:
    """Whether the runs of the whole plan would decide nothing: neither as they lie, nor if nothing had changed."""
    if verdict.pairs < limits.HOPELESS_PAIRS or verdict.run_sd_ratio is None:
        return False
    most, pair_sd = math.ceil(limits.HOPELESS * plan.looks[-1]), math.sqrt(2) * verdict.run_sd_ratio
    unchanged = pairs_to_decide(0.0, pair_sd, plan.plain_level(verdict.pairs), plan.threshold_ratio, most)
    return unchanged is None and (_pairs_needed(verdict, plan) or most + 1) > most


def _describe(row: RunRow) -> str:
    if row.mark == WHOLE:
        return f"run {row.number}: {row.side} {row.mean_s:.4g} s"
    return f"run {row.number}: {row.side} {row.mean_s * 1e3:.4g} ms per step over {row.steps - row.dropped} steps"


def _refuse_other_work(reference: RunRow, row: RunRow, plan: ExperimentPlan) -> ChangeVerdict | None:
    """An invalid verdict where two runs compute different results or their steps are hardly the same work, or None."""
    if wrong := check_mismatch(reference, row, plan.check_tolerance_ratio):
        remedy = "fix the program, or state --check-tolerance if the difference is acceptable"
        return invalid(plan.threshold_ratio, Reason.WRONG_RESULT, wrong, remedy)
    were_found = reference.mark or row.mark
    if were_found and abs(row.steps - reference.steps) > limits.STEP_COUNTS * max(row.steps, reference.steps):
        makes = (f"run {run.number} ({run.side}) makes {run.steps} steps{_ending(run)}" for run in (reference, row))
        why = ", ".join(makes)
        remedy = "compare whole runs with --whole, as many steps of both with --steps N, or call timesink.step()"
        return invalid(plan.threshold_ratio, Reason.OTHER_WORK, why, remedy)
    return None


_ENDINGS = {
    "loader": "at each batch of the DataLoader",
    "forward": "at each call of the outermost module",
    "optimizer": "at each step of the first optimizer",
    "profiler": "at each step of the program's profiler",
}


def _ending(run: RunRow) -> str:
    """Where its steps were found to end."""
    return f", {_ENDINGS[run.mark]}" if run.mark in _ENDINGS else ""


def _provenance(pair: Pair) -> tuple[str, ...]:
    """How steps were found, and whether results were compared."""
    notes = []
    if pair[0].mark == WHOLE:
        notes.append("whole runs are compared, from start to end: imports and set-up are part of them")
    marked = [f"{run.side} {run.steps}{_ending(run)}" for run in pair if run.mark in _ENDINGS]
    if marked:
        notes.append(f"steps found in a run: {'; '.join(marked)}")
    if pair[0].check is None:
        notes.append("results of the two sides were not compared")
    return tuple(notes)


def check_plan(plan: ExperimentPlan) -> None:
    """`UsageError` where a plan cannot be carried out."""
    limits.check_looks(plan.looks)
    if not 0 < plan.alpha < 1 or not plan.threshold_ratio > 0:
        what = f"alpha {plan.alpha} and threshold {plan.threshold_ratio} are out of range"
        raise UsageError(what, remedy="give an alpha between 0 and 1 and a threshold above 0")
    if plan.least_speed_up is not None and not 1 < plan.least_speed_up < math.inf:
        remedy = "give a number above 1: 1.1 is ten steps in the time of nine"
        raise UsageError(f"{plan.least_speed_up:g} is not a speed-up", remedy=remedy)


def check_mismatch(reference: RunRow, row: RunRow, tolerance_ratio: float) -> str:
    """What differs between two runs' checks, or "" where they agree or neither gave one."""
    one, other = reference.check, row.check
    if one is other if one is None or other is None else same_check(one, other, tolerance_ratio):
        return ""
    return ", ".join(
        f"run {run.number} ({run.side}) computed {'nothing' if run.check is None else repr(run.check[:80])}"
        for run in (reference, row)
    )


def to_result(verification: Verification, suite: str) -> GateResult:
    """The verification as renderers take it: one statistic is gated, the others are only shown."""
    pairs, plan = verification.pairs, verification.plan
    sides = [[pair[at] for pair in pairs] for at in (0, 1)]
    whole = any(run.mark == WHOLE for run in sides[0])
    what = "run time" if whole else "step time"
    times = [geometric_mean([plan.time_s(run) for run in side]) for side in sides]
    rows = [GateRow(what if whole else f"{what} ({plan.statistic})", "s", times[0], times[1], verification.verdict)]
    if verification.verdict.effect is not None and not whole:
        shown = {"mean": "mean_s", "median": "median_s", "95th percentile": "p95_s"}
        if len(pairs) < limits.TAIL_RUNS:
            del shown["95th percentile"]
        del shown[plan.statistic]
        rows += [_shown_row(f"{what} ({name})", sides, field, plan) for name, field in shown.items()]
    runs = sorted((row for pair in pairs for row in pair), key=lambda row: row.number)
    return GateResult(suite, "same-job A/B", tuple(rows), runs=tuple(runs), notes=verification.notes)


def gain_ms(verification: Verification) -> tuple[float, float, float, float] | None:
    """Milliseconds won per step (value, low, high), from the time before and the ratio, and the time before; None
    without an effect."""
    effect = verification.verdict.effect
    before = geometric_mean([verification.plan.time_s(pair[0]) for pair in verification.pairs])
    if effect is None or before is None:
        return None
    value, low, high = (1e3 * before * (1 - ratio) for ratio in (effect.ratio, effect.high, effect.low))
    return value, low, high, 1e3 * before


def _shown_row(name: str, sides: Sequence[Sequence[RunRow]], field: str, plan: ExperimentPlan) -> GateRow:
    """A secondary figure of runs, by the field of `RunRow`, with its own interval; it is shown and decides nothing."""
    before, after = ([getattr(run, field) for run in side] for side in sides)
    off = grain_log(list(zip(*sides, strict=True)))
    interval = paired_interval(np.log(after) - np.log(before), plan.interval_level).widened(off)
    why = f"shown beside the {plan.statistic}, not judged"
    verdict = inconclusive(plan.threshold_ratio, Reason.NOT_MEASURED, why, "", pairs=len(before))
    verdict = replace(verdict, effect=interval.effect(1 - plan.alpha))
    return GateRow(name, "s", geometric_mean(before), geometric_mean(after), verdict, gated=False)


def judge(pairs: Sequence[Pair], plan: ExperimentPlan) -> ChangeVerdict:
    """The verdict on the step time after these pairs. Never raises for bad values: it says what is bad."""
    times = np.array([[plan.time_s(run) for run in pair] for pair in pairs], np.float64).reshape(-1, 2)
    if len(pairs) < limits.MIN_PAIRS:
        why, remedy = f"{len(pairs)} pairs; a deviation needs two", f"make {plan.looks[0]} pairs"
        return inconclusive(plan.threshold_ratio, Reason.TOO_FEW_RUNS, why, remedy, pairs=len(pairs))
    if not (np.all(np.isfinite(times)) and np.all(times > 0)):
        why, remedy = f"a run's {plan.statistic} step time is not a positive number", "check the step source"
        return inconclusive(plan.threshold_ratio, Reason.BAD_VALUES, why, remedy, pairs=len(pairs))
    ratios = np.diff(np.log(times))[:, 0]
    interval = paired_interval(ratios, plan.plain_level(len(pairs))).widened(grain_log(pairs))
    pair_sd = float(interval.se) * math.sqrt(len(pairs))
    verdict = interval_verdict(interval, plan.threshold_ratio, 1 - plan.alpha)
    explained: tuple[str, ...] = ()
    carried = carry_over(pairs, times)
    few = verdict.outcome in _SIGN and not (
        is_no_chance(interval) and _is_borne_out(pairs, ratios, plan, _SIGN[verdict.outcome])
    )
    if carried or few or verdict.outcome is Outcome.INCONCLUSIVE:
        cleared, explained = _explain(pairs, times, plan, carried)
        biased = None if carried else verdict.effect  # no interval is better than one that is known to be off
        verdict = cleared or replace(verdict, outcome=Outcome.INCONCLUSIVE, effect=biased, false_alarm_ratio=None)
    verdict = replace(
        verdict,
        pairs=len(pairs),
        run_sd_ratio=pair_sd / math.sqrt(2),  # a pair's log ratio holds the deviations of two runs
        notes=(*explained, *_warnings(pairs, pair_sd / math.sqrt(2), plan)),
        least_speed_up=plan.least_speed_up,
    )
    hindrance = find_hindrance(pairs, verdict.outcome, plan.threshold_ratio, plan.interval_level)
    if hindrance is None and verdict.outcome is Outcome.INCONCLUSIVE:
        remedy = f"make {plan.looks[-1]} pairs, or let a run leave nothing behind: files, caches, heat, processes"
        too_noisy = _explain_noise(verdict, plan)
        hindrance = Hindrance(Reason.CARRY_OVER, carried, remedy) if carried else too_noisy
    if hindrance is None:
        return verdict
    reason, why, remedy = hindrance
    undecided = replace(verdict, outcome=Outcome.INCONCLUSIVE, false_alarm_ratio=None)
    return replace(undecided, reason=reason, explanation=why, to_resolve=remedy)


def _is_borne_out(pairs: Sequence[Pair], ratios: Float64Array, plan: ExperimentPlan, sign: int) -> bool:
    """Whether a change of this sign is in most pairs, and in the median step too or else beyond any doubt: a few steps
    that take twenty times as long make a mean, and by chance a side."""
    if not most_lie_beyond(sign * ratios, plan.threshold_ratio):
        return False
    if _is_in_medians(pairs, plan, sign):
        return True
    interval = paired_interval(sign * ratios, 1 - limits.RARE)
    return len(pairs) >= limits.EXPLAINED_PAIRS and bool(interval.low > math.log1p(plan.threshold_ratio))


def _is_in_medians(pairs: Sequence[Pair], plan: ExperimentPlan, sign: int) -> bool:
    """Whether the median steps of runs change by more than the threshold in this direction."""
    medians = np.diff(np.log([[run.median_s for run in pair] for pair in pairs]))[:, 0]
    return bool(sign * medians.mean() > math.log1p(plan.threshold_ratio))


_SIGN: Final = {Outcome.SLOWER: 1, Outcome.FASTER: -1}


def _explain(
    pairs: Sequence[Pair], times: Float64Array, plan: ExperimentPlan, carried: str
) -> tuple[ChangeVerdict | None, tuple[str, ...]]:
    """The verdict once what explains how runs differ is taken out, with what that is; None where nothing decides
    (but for what the build before a run leaves), or reasons contradict each other."""
    # Where the plain interval is out, its part of the error rate is free.
    plain = plan.plain_level(len(pairs))
    found = explanations(pairs, times, plain if carried else plan.interval_level - plain + 1, carried=bool(carried))
    off, level = grain_log(pairs), 1 - plan.alpha
    verdicts = [(interval_verdict(one.widened(off), plan.threshold_ratio, level), note) for one, note in found]
    decided = [
        told
        for told, (interval, _) in zip(verdicts, found, strict=True)
        if told[0].outcome is Outcome.NO_DIFFERENCE
        or (is_no_chance(interval) and _is_in_medians(pairs, plan, _SIGN.get(told[0].outcome, 0)))
    ]
    if len({verdict.outcome for verdict, _ in decided}) == 1:
        return decided[0][0], (f"judged with what explains how runs differ taken out: {decided[0][1]}",)
    return verdicts[0][0] if carried and verdicts else None, tuple(
        f"seen, and not enough to decide: {note}" for _, note in found
    )


def _explain_noise(verdict: ChangeVerdict, plan: ExperimentPlan) -> Hindrance:
    """How large a change these pairs could show, and how many more would decide."""
    pair_sd, level = math.sqrt(2) * (verdict.run_sd_ratio or 0), plan.plain_level(verdict.pairs)
    least = detectable(pair_sd, verdict.pairs, level, plan.threshold_ratio)
    why = f"the interval crosses a threshold; {verdict.pairs} pairs show a slow-down of {100 * least:.1f} % in "
    why += "half of all trials"
    if needed := _pairs_needed(verdict, plan):
        remedy = f"about {max(needed, verdict.pairs + 1)} pairs if effect and noise stay as they are"
    else:
        at = f"over {limits.MOST_PAIRS} pairs: the effect lies at the threshold of {100 * plan.threshold_ratio:g} %"
        remedy = f"{at}; decide whether a change of that size matters"
    if _is_hopeless(verdict, plan):
        why += f"; {plan.looks[-1]} pairs would decide nothing here"
        remedy += "; time more steps a run, or compare inside of one process: timesink.verify_change(old, new)"
    return Hindrance(Reason.TOO_NOISY, why, remedy)


def _warnings(pairs: Sequence[Pair], run_sd: float, plan: ExperimentPlan) -> tuple[str, ...]:
    runs = [run for pair in pairs for run in pair]
    notes = []
    if plan.threshold_ratio < limits.SD_WARNING * run_sd:
        threshold = f"the threshold of {100 * plan.threshold_ratio:g} %"
        notes.append(f"{threshold} is under twice the run-to-run deviation of {100 * run_sd:.2g} %")
    shortest = min(run.steps for run in runs)
    if shortest < limits.WANTED_STEPS and runs[0].mark != WHOLE:
        notes.append(f"runs of {shortest} steps: warm-up is detected reliably from {limits.WANTED_STEPS} steps")
    if unsettled := sum(not run.settled for run in runs):
        notes.append(f"{unsettled} of {len(runs)} runs never settle; their second half was used")
    if slowed := sum(bool(run.slowed_by) for run in runs):
        notes.append(f"the GPU was slowed in {slowed} of {len(runs)} runs")
    return tuple(notes)
