"""Compare two existing captures: what moved, and why. Without a calibration it explains and gives no verdict.

The change in step time is split into parts, matched between the sides, in whole nanoseconds that sum to the change.
Findings of two diagnoses are matched: gone, new, changed or the same. Single steps that change otherwise than the rest
are named, because a mean or median hides them.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Card, Diagnosis, Finding, Where
from timesink.measures.steps.parts import pacing_windows, step_series
from timesink.measures.steps.work import step_work
from timesink.measures.timeline.host_times import range_times
from timesink.measures.timeline.start_up_parts import long_starts
from timesink.model.arrays import median
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.units import SIGMA_PER_MAD, share_text, time_text
from timesink.verify.calibration import RunDeviation, judge_captures
from timesink.verify.changes import explained_change
from timesink.verify.counters import share_note, step_metrics
from timesink.verify.environment import HARD, accepting, differences, not_one_change, trace_facts
from timesink.verify.limits import KERNEL_THRESHOLD, STEP_THRESHOLD
from timesink.verify.outcomes import (
    WITHOUT_PROFILER,
    ChangeVerdict,
    Contribution,
    Fate,
    FindingChange,
    GateResult,
    GateRow,
    How,
    Outcome,
    RangeChange,
    RangeSide,
    Reason,
    inconclusive,
    invalid,
)
from timesink.verify.suspects import suspects


def compare_captures(
    sides: tuple[Trace, Trace],
    diagnoses: tuple[Diagnosis, Diagnosis] | None = None,
    *,
    threshold_ratio: float = STEP_THRESHOLD,
    deviation: RunDeviation | None = None,
    facts: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    allowed: Sequence[str] = (),
) -> GateResult:
    """The comparison of two traces; of what became of their findings, where they were diagnosed.

    `facts` are what is known of each capture, such as its manifest says; without them, what the traces say themselves.
    Facts that are `allowed` to differ forbid no comparison. Without a `deviation` between runs there is no verdict.
    """
    before, after = facts or (trace_facts(sides[0]), trace_facts(sides[1]))
    if all(trace.settings for trace in sides):
        before, after = {**sides[0].settings, **before}, {**sides[1].settings, **after}
    differing = differences(before, after)
    times_ns = [[float(value) for value in step_series(trace)] for trace in sides]
    series = [[value / 1e9 for value in side] for side in times_ns]
    verdict = comparability(differing, allowed, threshold_ratio)
    if verdict is None:
        verdict = judge_captures(series[0], series[1], threshold_ratio, deviation)
    means = [sum(side) / len(side) if side else None for side in series]
    rows = [GateRow("step time (mean)", "s", means[0], means[1], verdict), *_shown(sides, verdict)]
    findings = () if diagnoses is None else finding_changes(*diagnoses)
    result = GateResult("", "two captures", tuple(rows), differing, findings=findings)
    if verdict.outcome is Outcome.INVALID:
        return replace(result, notes=(*_paced(sides), *not_one_change(differing)))
    made = explained_change(step_work(sides[0]), step_work(sides[1]))
    notes = [
        *_paced(sides),
        *filter(None, [share_note(sides)]),
        *_new_and_gone(made.contributions),
        *not_one_change(differing),
    ]
    return replace(
        result, **made._asdict(), ranges=range_changes(*sides), sides=sides, suspects=suspects(differing, made.changes),
        start_up=start_up_changes(*sides), notes=(*notes, *single_changes(times_ns[0], times_ns[1], threshold_ratio)),
    )  # fmt: skip


def comparability(
    differing: Mapping[str, tuple[str, str]], allowed: Sequence[str], threshold_ratio: float
) -> ChangeVerdict | None:
    """An invalid verdict where captures measure different things, else None."""
    forbidding = [name for name in HARD if name in differing and name not in allowed]
    if not forbidding:
        return None
    why = "; ".join(f"{name}: {differing[name][0]} before, {differing[name][1]} after" for name in forbidding)
    reason = Reason.OTHER_WORK if "ranks" in forbidding else Reason.OTHER_ENVIRONMENT
    way = f"capture both sides alike, or accept with {accepting(forbidding)}"
    return invalid(threshold_ratio, reason, why, way)


def _shown(sides: tuple[Trace, Trace], verdict: ChangeVerdict) -> list[GateRow]:
    """The step as it was timed without the profiler, shares of the step, launches per step: shown and not judged, since
    one run says little of them."""
    before, after = (step_metrics(trace) for trace in sides)
    quiet = inconclusive(verdict.threshold_ratio, Reason.ONE_RUN_A_SIDE, "", "")
    old, new = (None if (ns := trace.unprofiled_step_ns) is None else ns / 1e9 for trace in sides)
    timed = [GateRow(WITHOUT_PROFILER, "s", old, new, quiet, how=How.EXACT, gated=False)]
    return [
        *(timed if old and new else []),
        *(
            GateRow(name, one.unit, one.value, after[name].value, quiet, how=one.how, gated=False)
            for name, one in sorted(before.items())
            if name in after
        ),
    ]


def _paced(sides: tuple[Trace, Trace]) -> Iterator[str]:
    """How many steps of each side were taken apart, and where."""
    for name, trace in zip(("before", "after"), sides, strict=True):
        windows = pacing_windows(trace)
        counts = windows.group_by("rank", "device").len().sort("rank", "device").iter_rows()
        places = [f"{count} on rank {rank} GPU {device}" for rank, device, count in counts]
        told = f"{windows.height} step{'s' * (windows.height != 1)}"
        yield f"{name}: " + (f"{told}, {', '.join(places)}" if places else "no GPU work")


def _new_and_gone(parts: Sequence[Contribution]) -> list[str]:
    new, gone = (sum(part.name.endswith(fate) for part in parts) for fate in ("(new)", "(vanished)"))
    return [f"{len(parts)} part{'s' * (len(parts) != 1)}: {new} new, {gone} vanished"] if parts else []


Part = TypeVar("Part")


def match_parts(
    before: Sequence[Part], after: Sequence[Part], *alike: Callable[[Part], object]
) -> list[tuple[Part | None, Part | None]]:
    """Pairs, each part once, in the order of `before` and then of what is new in `after`.

    Parts that are `alike` by the first function are pairs, each in order of occurrence; those left over by the next.
    """
    partner: dict[int, int] = {}
    for key in alike:
        free: dict[object, list[int]] = defaultdict(list)
        for at in sorted(set(range(len(after))) - set(partner.values())):
            free[key(after[at])].append(at)
        for at, part in enumerate(before):
            if at not in partner and free[key(part)]:
                partner[at] = free[key(part)].pop(0)
    pairs = [(part, after[partner[at]] if at in partner else None) for at, part in enumerate(before)]
    return [*pairs, *((None, after[at]) for at in sorted(set(range(len(after))) - set(partner.values())))]


def start_up_changes(before: Trace, after: Trace) -> tuple[Contribution, ...]:
    """The time before the first steady step of each side's slowest rank, by what it was spent on; none unless both
    count from the same begin. Their changes sum to its change."""
    sides = [max(long_starts(trace), key=lambda one: one.span_ns, default=None) for trace in (before, after)]
    if not (sides[0] and sides[1] and sides[0].is_told == sides[1].is_told):
        return ()
    old, new = ({part[:2]: part[2] for part in side.parts} for side in sides if side)
    return tuple(
        Contribution(": ".join(filter(None, key)), old.get(key, 0), new.get(key, 0))
        for key in dict.fromkeys([*old, *new])
    )


def range_changes(before: Trace, after: Trace) -> tuple[RangeChange, ...]:
    """Ranges by name, those with most time of the host after the change first; none unless both captures have some."""
    old, new = _ranges(before), _ranges(after)
    if not (old and new):
        return ()
    names = sorted({*old, *new}, key=lambda name: (-_total(new.get(name)), -_total(old.get(name)), name))
    return tuple(RangeChange(name, old.get(name), new.get(name)) for name in names)


def _ranges(trace: Trace) -> dict[str, RangeSide]:
    """The mean range of each name, of all ranks together."""
    sums = range_times(trace).group_by("name").agg(pl.col("count", "total_ns", "device_ns").sum())
    return {name: RangeSide(count, host / count, device / count) for name, count, host, device in sums.iter_rows()}


def _total(side: RangeSide | None) -> float:
    return side.count * side.host_ns if side else 0.0


_PLACE = ("range", "op", "kernel", "file", "line", "stream")


def finding_changes(before: Diagnosis, after: Diagnosis) -> tuple[FindingChange, ...]:
    """Matched by code and place, then by code alone in order; changed where the recoverable time moved by over 5 %."""
    pairs = match_parts(before.findings, after.findings, _by_place, lambda entry: entry[0].code)
    changes = [_finding_change(old, new) for old, new in pairs]
    return tuple(sorted(changes, key=lambda change: (change.code, change.message)))


def _by_place(entry: tuple[Card, Finding]) -> object:
    card, finding = entry
    return (card.code, *(getattr(finding.where, name) for name in _PLACE))


def _finding_change(old: tuple[Card, Finding] | None, new: tuple[Card, Finding] | None) -> FindingChange:
    card, finding = new or old or (None, None)
    assert card is not None
    assert finding is not None
    prices = [side[1].recoverable if side else None for side in (old, new)]
    before, after = (None if price is None else price.value for price in prices)
    where = finding.where
    fate = Fate.NEW if old is None else Fate.GONE if new is None else _compare_prices(before, after)
    moved = old is not None and new is not None and _moved(old[1].where, new[1].where)
    message = finding.message + (_crossing(old[1], new[1]) if old and new else "")
    return FindingChange(card.code, finding.name, message, fate, before, after, where.file, where.line, moved)


def _crossing(old: Finding, new: Finding) -> str:
    """Where a fix saves less and what it is of rose, or the other way round: both, else it reads like a cure."""
    if not (old.recoverable and new.recoverable and old.evidence and new.evidence):
        return ""
    was, now = old.evidence[0], new.evidence[0]
    if was.label != now.label or was.measured.unit != "ratio":
        return ""
    saved, share = (old.recoverable.value, new.recoverable.value), (was.measured.value, now.measured.value)
    if Fate.SAME in (_compare_prices(*saved), _compare_prices(*share)) or (saved[0] < saved[1]) == (
        share[0] < share[1]
    ):
        return ""
    less, rose = ("less", "rose") if saved[1] < saved[0] else ("more", "fell")
    shares = " to ".join(map(share_text, share))
    return f". A fix saves {less} than before, yet {now.label} {rose} from {shares}"


def _moved(old: Where, new: Where) -> bool:
    """Whether it is somewhere else in the program, of what both captures tell; streams are numbered anew in each."""
    places = [(getattr(old, name), getattr(new, name)) for name in _PLACE if name != "stream"]
    return any(one != other for one, other in places if one is not None and other is not None)


def _compare_prices(before: float | None, after: float | None) -> Fate:
    if before is None or after is None:
        return Fate.SAME if before is after else Fate.CHANGED
    return Fate.SAME if abs(after - before) <= KERNEL_THRESHOLD * abs(before) else Fate.CHANGED


_FEWEST: Final = 5
_DEVIATIONS: Final = 5.0  # of the median absolute deviation, scaled to a normal one's standard deviation
_SHOWN: Final = 4


def single_changes(before_ns: Sequence[float], after_ns: Sequence[float], threshold_ratio: float) -> list[str]:
    """One sentence per step that changes otherwise than the rest, the furthest first; none without pairs of steps.

    Where both captures hold equally many steps, the n-th of one is taken for the n-th of the other: the same place in
    the same plan. Each pair's log ratio is held against the median of all; a step is named where it lies further off
    than the others scatter (5 scaled median absolute deviations), and by more than the threshold. Nothing is judged:
    one step of one run is no basis for a verdict.
    """
    if len(before_ns) != len(after_ns) or len(before_ns) < _FEWEST or min(*before_ns, *after_ns) <= 0:
        return []
    change = np.log(np.asarray(after_ns, np.float64) / np.asarray(before_ns, np.float64))
    usual = median(change)
    apart = np.abs(change - usual)
    noise = _DEVIATIONS * SIGMA_PER_MAD * median(apart)
    odd = np.flatnonzero(apart > max(noise, math.log1p(threshold_ratio)))
    if 2 * odd.size >= change.size:  # then no step is the usual one
        return []
    order = sorted(odd.tolist(), key=lambda step: (-apart[step], step))
    sentences = [
        f"step {step + 1} of {change.size}: {time_text(before_ns[step])} before, {time_text(after_ns[step])} after "
        f"({_percent(float(change[step]))}), where the median step changes by {_percent(usual)}"
        for step in order[:_SHOWN]
    ]
    return [*sentences, f"{odd.size - _SHOWN} more steps stand apart"] if odd.size > _SHOWN else sentences


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):+.1f} %"
