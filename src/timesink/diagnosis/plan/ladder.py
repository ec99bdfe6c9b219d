"""The ladder of a program: changes one after another, each priced in the graph that those before it leave.

What several changes win together is one replay with all of them, whatever their order: a rung wins the difference
between two such replays. So the gains of rungs add up to that of all, which is at most the step.

Which comes next: what is expected of it and of the one after it, causes before symptoms, and the first finding's change
first, unless another surely wins more. Of what is expected of a gain its interval is a part: one that reaches far up
counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from timesink.diagnosis import headline
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.gains import replay_error
from timesink.diagnosis.places import ChangePlace, place_in_program
from timesink.diagnosis.plan import NOTHING, WORTH, Joint
from timesink.diagnosis.plan.batch import DeviceMemory, LargerBatch, device_memory, larger_batches, said_of_memory
from timesink.diagnosis.plan.candidate import Chosen, Named, candidates, to_look_into
from timesink.diagnosis.plan.order import allowed, best, following, repairs
from timesink.diagnosis.pricing import claimed_ms_per_step
from timesink.diagnosis.verdicts import Diagnosis, Finding, Quantity
from timesink.diagnosis.words import guessed_steps
from timesink.fixes import Fix
from timesink.fixes.measured import MeasuredPrices
from timesink.knowledge.programs import ProgramKind
from timesink.measures.ranks.telling import telling
from timesink.measures.steps.slow_steps import usual_steps
from timesink.measures.timeline.known import known
from timesink.measures.timeline.replay import pricers
from timesink.model.trace import Trace
from timesink.records import Record, field, replace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.whatif import Change


class Rung(Record):
    """One change of a plan: the step before and after it, and what it wins of the step before it, in ms.

    `of_ms` is the step today, `cumulative_ms` what this change and those before it win of it. `findings` are the codes
    of the rules that ask for it: none where only the replay says that it wins. `place` is where it goes. `bound_by` is
    what most of the critical path consists of then. `memory` says what it takes of the device's memory, if anything.
    """

    fix: Fix
    of_ms: float
    before_ms: float
    after: Quantity
    gain: Quantity
    cumulative_ms: float
    findings: tuple[str, ...] = ()
    place: ChangePlace = ChangePlace()
    bound_by: str = ""
    needs: tuple[str, ...] = ()
    memory: str = ""

    @property
    def id(self) -> str:
        """The name of the fix."""
        return self.fix.name

    @property
    def after_ms(self) -> float:
        """The step after it."""
        return self.after.value


class Plan(Record):
    """The rungs in order; the price of every candidate alone; and where it ends.

    `floor_ms` is the step when all is won that any candidate may win, and `floor` says why the ladder ends. Of those of
    `singles` that are no rungs and win or cost less than one, the value alone is known. `left` is what the changes that
    are no rungs would still win, where that is as much as a rung. `refused` says why there is no ladder, if so;
    `unpriced` which changes have no price, and why. `batches` are larger ones, after all rungs; `free_bytes` at most is
    free of the device's memory today. `measured` is what of its prices was.
    """

    step_ms: float | None
    rungs: tuple[Rung, ...] = ()
    singles: Mapping[str, Quantity] = field(default_factory=dict)
    left: Mapping[str, Quantity] = field(default_factory=dict)
    floor_ms: float = 0.0
    floor: str = ""
    refused: str = ""
    unpriced: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    batches: tuple[LargerBatch, ...] = ()
    free_bytes: int | None = None
    measured: MeasuredPrices | None = None


def plan(
    trace: Trace,
    diagnosis: Diagnosis | None = None,
    worth: float = WORTH.default,
    measured: MeasuredPrices | None = None,
) -> Plan:
    """The ladder of a trace: changes that win `worth` of the step or more, best first, by measured prices where these
    are known."""
    diagnosis, usual = diagnosis or diagnose(trace), usual_steps(telling(trace))
    joint = changes_offered(trace, diagnosis, measured)
    if isinstance(joint, str):
        return Plan(headline.step_ms(usual or telling(trace)), refused=joint, measured=measured)
    first = next(iter(diagnosis.findings), None)
    apart = first if first and _is_apart(first[1], usual) else None
    with nullcontext() if measured is None else measured.assumed():
        made = _climbed(joint, worth, None if apart else first)
    notes = [str(note) for note in headline.steps_apart(usual)]
    notes += filter(None, [headline.estimated_step(telling(trace))])
    if apart:
        notes.append(f"{apart[0].code}, the first finding, is not of the steps that this plan is of")
    return replace(made, measured=measured, notes=(*made.notes, *notes))


def _is_apart(finding: Finding, usual: Trace | None) -> bool:
    """Whether all that a finding claims is outside of the usual steps."""
    return usual is not None and bool(finding.claim.intervals) and not claimed_ms_per_step(finding.claim, usual)


class Alone(Record, eq=False):
    """One change of a plan by itself: what it wins on the plan's `rank`, what it changes there, and how its findings
    are priced where no replay prices it (`by`)."""

    rank: int
    gain: Quantity
    changes: tuple[Change, ...]
    by: str


def alone(trace: Trace, diagnosis: Diagnosis, names: set[str], measured: MeasuredPrices | None) -> dict[str, Alone]:
    """Of a plan's changes those that are named, each by itself."""
    joint = changes_offered(trace, diagnosis, measured)
    if isinstance(joint, str):
        return {}
    found = {}
    with nullcontext() if measured is None else measured.assumed():
        for name in names.intersection(joint.offered):
            if (gain := joint.alone(name, 0.0)) is not None:
                own, one = joint.offered[name].unreplayed(joint.rank), tuple(joint.parts({name}))
                found[name] = Alone(joint.rank, gain, one, next((f.priced_by or "" for f in own), ""))
    return found


def changes_offered(trace: Trace, diagnosis: Diagnosis, measured: MeasuredPrices | None = None) -> Joint | str:
    """The changes that a ladder could be made of, and what sets of them win; or why there is no ladder. Both are of the
    usual steps, as findings are."""
    usual = usual_steps(telling(trace))
    trace, own = usual or telling(trace), [one for one in diagnosis.findings if not _is_apart(one[1], usual)]
    step_ms, diagnosis = headline.step_ms(trace), replace(diagnosis, findings=tuple(own))
    if (refused := _refused(trace, diagnosis)) or step_ms is None:
        return refused or "the trace has no GPU work"
    every, rank = candidates(diagnosis, known(trace).program), _rank(trace, diagnosis)
    offered = [one for one in every if not one.fix.refused(trace)]
    unknown = [one.claim for _, one in diagnosis.findings if to_look_into(one)]
    return Joint(trace, rank, step_ms, offered, measured, sum(claimed_ms_per_step(claim, trace) for claim in unknown))


def _refused(trace: Trace, diagnosis: Diagnosis) -> str:
    barred = headline.not_diagnosable(trace)
    if barred is not None:
        return barred.why
    if diagnosis.partial:
        return f"only part of the capture could be read: {diagnosis.partial}"
    if headline.has_empty_steps(trace) or not pricers(trace):
        return "no complete step was found, and a plan is per step"
    return ""


def _rank(trace: Trace, diagnosis: Diagnosis) -> int:
    """The rank of the first finding that can be replayed; else the first rank."""
    ranks = pricers(trace)
    return next((rank for _, f in diagnosis.findings if (rank := f.where.rank or 0) in ranks), min(ranks))


def _climbed(joint: Joint, worth: float, top: Named | None) -> Plan:
    least_ms = worth * joint.step_ms
    singles = {name: gain for name in joint.offered if (gain := joint.alone(name, least_ms)) is not None}
    unpriced = tuple((name, "the trace cannot be replayed") for name in joint.offered if name not in singles)
    if unpriced and not any(gain.low for gain in singles.values()):
        why = joint.pricer.unreplayable or "no change wins anything for sure"
        return Plan(joint.step_ms, refused=f"its steps cannot be replayed: {why}", unpriced=unpriced)
    chosen: list[str] = []
    rungs: list[Rung] = []
    won = NOTHING
    while True:
        rest = following(joint, singles, chosen)
        before_ms = joint.step_ms - won.value
        likely = [name for name in rest if joint.likely_ms({*chosen, name}) - won.value >= least_ms]
        gains = {name: gain for name in likely if (gain := joint.gain({*chosen, name})) is not None}
        more = {name: _marginal(gain, won, before_ms) if won.value else gain for name, gain in gains.items()}
        found = best(joint, more, chosen, least_ms, None if top is None else top[1])
        if found is None:
            matter = [name for name in rest if abs(joint.likely_ms({*chosen, name}) - won.value) >= least_ms]
            others = rest if joint.pricer.unreplayable else matter
            gains = {name: gain for name in others if (gain := joint.gain({*chosen, name})) is not None}
            break
        chosen.append(found)
        before = rungs[-1].after if rungs else Quantity(joint.step_ms, "ms", joint.step_ms, joint.step_ms)
        rungs.append(_rung(joint, found, before, more[found], gains[found], chosen))
        won, singles[found] = gains[found], joint.alone(found, 0.0) or NOTHING
    left = {name: _marginal(gain, won, joint.step_ms) for name, gain in gains.items() if gain.value > won.value}
    every = _compatible(joint, [*chosen, *rest])
    most = joint.gain(every)
    after_ms = rungs[-1].after.low if rungs and rungs[-1].after.low is not None else joint.step_ms
    floor_ms = min(after_ms, max(joint.step_ms - ((most and most.high) or 0.0), joint.least_ms(every)))
    unsure = {name: gain for name, gain in left.items() if gain.value >= least_ms}
    said = _why_it_ends(joint, chosen, worth, bool(unsure))
    does = [name for name in gains if joint.parts({name})]  # the others change nothing, and cost nothing
    sure = [name for name in does if gains[name].most < won.value]
    lost = {name: more_ms for name in sure if (more_ms := won.value - gains[name].value) >= least_ms}
    told = () if top is None else _beside_diagnosis(joint, rungs, singles, top, least_ms)
    batches, none = larger_batches(joint, chosen, rungs[-1].after_ms if rungs else joint.step_ms)
    free = device_memory(joint.trace).get((joint.rank, joint.device), DeviceMemory()).free
    notes = (
        *told, *_notes(rungs, joint.claimed, unsure), *_costly(rungs, singles, lost),
        *_superfluous(joint, chosen, won, least_ms), *filter(None, (none, guessed_steps(joint.trace))),
        *_to_measure(joint.trace, rungs),
    )  # fmt: skip
    return Plan(joint.step_ms, tuple(rungs), singles, left, floor_ms, said, "", unpriced, notes, batches, free)


_MORE: Final = {
    "GPU": "the step is then GPU-bound{attained}: going further takes another algorithm, better kernels or another GPU",
    "CPU": "the step is then CPU-bound: going further takes less work on the CPU, or more work for the GPU per step",
}


def _why_it_ends(joint: Joint, chosen: Sequence[str], worth: float, unsure: bool) -> str:
    attained = joint.attained(chosen)
    words = "" if attained is None else f", with kernels at {share_text(attained)} of what it can attain"
    more = _MORE.get(joint.bound_by(chosen), "").format(attained=words)
    sure = "is sure to win" if unsure else "wins"
    end = f"no further change that this capture shows {sure} {100 * worth:g} % of the step"
    return f"{end}; {more}" if more else end


def _beside_diagnosis(
    joint: Joint, rungs: Sequence[Rung], singles: Mapping[str, Quantity], top: Named, least_ms: float
) -> Iterator[str]:
    """Why the ladder does not begin with the first finding; or why its first change wins more or less than that."""
    card, finding = top
    own = [name for name in singles if repairs(joint, name, finding)]
    if not rungs:
        if not own:
            first_step = finding.advice.partition(". ")[0].rstrip(".")
            yield f"{card.code}, the first finding, names no change yet: {first_step}"
        return
    first = rungs[0]
    counted = finding.recoverable
    if first.id in own:
        if counted is not None and abs(first.gain.value - counted.value) >= least_ms:
            how = "the rest is time that other findings claim"
            if first.gain.value <= counted.value:
                how = "that price leaves out what else takes time then"
            elif finding.fix is not None and finding.fix.name != first.id:
                how = f"that is the price of {finding.fix.name}, which repairs the same"
            won, priced = _ms_text(first.gain.value), _ms_text(counted.value)
            yield f"{first.id} wins {won}, {card.code} is priced at {priced}: {how}"
        return
    at_first = following(joint, own, [])
    name = max(at_first or own, key=lambda name: (singles[name].value, name), default="")
    if not name:
        yield f"{card.code}, the first finding, has no change that can be replayed: the plan starts with {first.id}"
    elif singles[name].value < least_ms:
        yield f"{name}, for {card.code}, the first finding, wins too little to be a step of the plan"
    else:
        low, own_gain = _ms_text(first.gain.low or 0.0), _ms_text(singles[name].value)
        yield (
            f"{first.id} comes before {name}, the change for {card.code}, the first finding: it wins at least {low}, "
            f"{name} {own_gain}"
        )


def _costly(rungs: Sequence[Rung], singles: Mapping[str, Quantity], lost: Mapping[str, float]) -> Iterator[str]:
    """Changes that cost more than they win: in ms beside all rungs (`lost`), or each by itself."""
    for name, more_ms in sorted(lost.items()):
        yield f"{name} is left out: it would make the step {_ms_text(more_ms)} longer"
    for rung in rungs:
        if singles[rung.id].value < 0:
            more_ms = -singles[rung.id].value
            yield f"{rung.id} by itself makes the step {_ms_text(more_ms)} longer: apply it only after those before it"


def _superfluous(joint: Joint, chosen: Sequence[str], won: Quantity, least_ms: float) -> Iterator[str]:
    """Rungs but the last that win less than a rung beside all the others: who makes those need not make these."""
    for at, name in enumerate(chosen[:-1]):
        others = [*chosen[:at], *chosen[at + 1 :]]
        fixes = [joint.offered[other].fix for other in others]
        gain = None if any(name in (*fix.needs, *fix.after) for fix in fixes) else joint.gain(others)
        if gain is not None and won.value - gain.value < least_ms:
            more_ms = max(won.value - gain.value, 0.0)
            wins = f"only {_ms_text(more_ms)}" if more_ms * NS_PER_MS >= 1 else "nothing"
            yield f"{name} wins {wins} more beside the later changes: leave it out if you make those"


def _to_measure(trace: Trace, rungs: Sequence[Rung]) -> list[str]:
    """What of the ladder a trial can measure in the program itself."""
    names = [rung.id for rung in rungs if rung.fix.recipe and rung.fix.recipe.switch]
    if not names or known(trace).program is not ProgramKind.PYTORCH:
        return []
    return [f"to measure instead of predict: timesink try --only {','.join(names)} -- python train.py"]


def _notes(rungs: Sequence[Rung], claimed: Chosen, unsure: Mapping[str, Quantity]) -> tuple[str, ...]:
    """What the prices leave out, those of `claimed` changes a replay; and what may win more that nothing asks for."""
    notes = []
    bounds = ", ".join(rung.id for rung in rungs if rung.id in claimed)
    if bounds:
        notes.append(f"no replay says what {bounds} wins: that is at most what its findings claim")
    notes += [
        f"{name} may win another {_ms_text(gain.value)}"
        f"{f' (at least {_ms_text(gain.low)})' if gain.low else ', perhaps nothing'}; no finding asks for it"
        for name, gain in sorted(unsure.items())
    ]
    if any(not rung.findings for rung in rungs):
        notes.append("changes without a finding: predicted by replay only")
    return tuple(notes)


def _ms_text(value_ms: float) -> str:
    return time_text(value_ms * NS_PER_MS)


def _compatible(joint: Joint, names: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for name in names:
        if allowed(joint, name, kept):
            kept.append(name)
    return kept


def _rung(joint: Joint, name: str, before: Quantity, gain: Quantity, now: Quantity, chosen: Sequence[str]) -> Rung:
    """The step after it: as far off as this change's gain beyond the others is, and as that of all of them is, which
    those before it leave open; no shorter than what is left to run."""
    before_ms = before.value
    after_ms = before_ms - gain.value
    least_ms = min(before_ms - gain.most, joint.step_ms - now.most)
    most_ms = max(before_ms - (gain.low or 0.0), joint.step_ms - (now.low or 0.0))
    low_ms = min(after_ms, max(least_ms, joint.least_ms(chosen)))
    after = Quantity(after_ms, "ms", low_ms, max(after_ms, min(most_ms, before.most)))
    candidate = joint.offered[name]
    codes = tuple(sorted({card.code for card, _ in candidate.findings}))
    place = place_in_program(joint, name, chosen)
    waits = tuple(one for one in candidate.fix.after if one in chosen)
    return Rung(
        candidate.fix, joint.step_ms, before_ms, after, gain, now.value, codes, place, joint.bound_by(chosen),
        (*candidate.fix.needs, *waits), said_of_memory(joint.trace, (joint.rank, joint.device), candidate.fix),
    )  # fmt: skip


def _marginal(now: Quantity, won: Quantity, before_ms: float) -> Quantity:
    """What is won beyond what was: expected, where all of both win least and most, and as far off as replays are."""
    value = min(max(now.value - won.value, 0.0), before_ms)
    ends = [(now.low or 0.0) - (won.low or 0.0), now.most - won.most]
    error_ms = replay_error(value, before_ms)
    low, high = min(*ends, value - error_ms), max(*ends, value + error_ms)
    return Quantity(value, "ms", max(low, 0.0), min(high, before_ms))
