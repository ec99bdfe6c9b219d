"""What a trial measured, as a page: what each change won or why it was not tried, and what is kept together; what
`timesink fix` made of a program: edits that are kept, taken back, and offered; and what a machine takes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from timesink.fixes.table import BY_NAME
from timesink.recipes.table import RECIPES
from timesink.trials.machine import MachineFile
from timesink.trials.records import APART, LATE, Repair, RepairAnswer, TrialAnswer, TrialPlan, Tried
from timesink.units import NS_PER_MS, NS_PER_US, S_PER_MINUTE, share_text, time_text
from timesink.views import Cell, Page, listed
from timesink.views.figures import LadderChart

WORTH: Final = TrialPlan("").worth
_NAMED: Final = 4  # changes in a sentence


def trial_page(answer: TrialAnswer, program: str) -> Page:
    """The page of a trial of `program`, a command line."""
    measured = [*{(one.name, one.beside): one for one in answer.result.tried if one.pairs}.values()]  # the last looks
    changes = (_row(answer, one) for one in sorted(measured, key=lambda one: one.ratio))
    reasons = [(one.name, one.failed or one.left or one.refused) for one in answer.result.tried]
    left = (*((name, why[:1].upper() + why[1:]) for name, why in reasons if why), *answer.left_out.items())
    make = ((name, BY_NAME[name].title, answer.result.places.get(RECIPES[name].where)) for name in answer.kept)
    sheets = (
        listed("trial.changes", changes),
        listed("trial.rungs", _rungs(answer)),
        listed("trial.fresh", _fresh(answer)),
        listed("trial.memory", (_memory(one) for one in measured if one.memory_bytes)),
        listed("trial.make", make),
        listed("trial.left_out", left),
    )
    notes = (*_course(answer), *_warnings(measured), *_as_it_is(answer))
    shown = tuple(sheet for sheet in sheets if sheet.rows)
    return Page(f"Trial of {program}", shown, notes, charts=_charts(answer), lede=conclusion(answer))


def conclusion(answer: TrialAnswer) -> str:
    """How much was tried, what to make, and what the step then takes, in one sentence."""
    tried, applied = answer.counts
    told = f"{tried} of {applied} changes that apply were tried" if applied else "No change applies"
    if answer.kept:
        proof = answer.confirmed[answer.kept]
        base, changed = time_text(proof.mean_base_ms * NS_PER_MS), time_text(proof.mean_with_ms * NS_PER_MS)
        low, high = (1 - ratio for ratio in reversed(proof.interval))
        runs = f"fresh processes: {len(proof.with_ms)} with, {len(proof.base_ms)} without"
        won = f"{share_text(1 - proof.ratio)} less, {share_text(low)} to {share_text(high)}; {runs}"
        return f"{told}. {' + '.join(answer.kept)}: a step of {base} takes {changed} ({won})."
    if (best := _best_unproven(answer)) is not None:
        interval = f"{share_text(1 - best.high)} to {share_text(1 - best.low)}"
        why = answer.left_out.get(best.name) or "no time was left for fresh processes, which decide"
        return f"{told}. {best.name} won {share_text(1 - best.ratio)} ({interval}) in the running program; {why}."
    told = f"{told}, and none was shown to make the step at least {share_text(WORTH)} shorter."
    seeming = [one for one in answer.result.last_looks if one.pairs and one.seems_to_win(WORTH)]
    if (best := min(seeming, key=lambda one: one.ratio, default=None)) is not None:
        blocks = f"{best.pairs} pairs of blocks, {share_text(1 - best.high)} to {share_text(1 - best.low)}"
        told = f"{told} {best.name} may: {share_text(1 - best.ratio)} less ({blocks}) is too few or too wide to tell."
    return told


def _best_unproven(answer: TrialAnswer) -> Tried | None:
    """The change that won most in the running program."""
    won = [one for one in answer.result.last_looks if one.may_win(WORTH)]
    return min(won, key=lambda one: one.ratio, default=None)


def _course(answer: TrialAnswer) -> list[str]:
    """What a step is where it is more than one mark, what ended the trial before its time, whether more may win."""
    notes, found = [], answer.result
    if found.period.marks > 1:
        notes.append(f"A step is {found.period.marks} of the program's {found.mark} steps and what lies between them.")
    elif not found.period.marks:
        notes.append(f"A step is an iteration of the loop in {found.period.within}, with all its {found.mark} steps.")
    if found.paused > APART:
        told = f"Pauses between steps (evaluations, files that are saved) took {share_text(found.paused)} of the time"
        notes.append(f"{told}: a step's gain is so much less of the whole.")
    if answer.ended:
        notes.append(f"It ended early: {answer.ended}. What was measured until then stands.")
    notes += _log_of(answer)
    if answer.left and not answer.signal:
        more = f"{max(2 * answer.budget_s / S_PER_MINUTE, 1):.0f}m"
        notes.append(f"Not tried: {', '.join(answer.left[:_NAMED])}. A longer --budget, such as {more}, tries more.")
    return notes


def _log_of(answer: TrialAnswer | RepairAnswer) -> list[str]:
    return [f"A run failed: all that the runs printed is in {answer.log}."] if answer.log else []


def _warnings(measured: list[Tried]) -> list[str]:
    return [
        f"{one.name} compiled {one.recompiled} more graphs after its first step: shapes, values or modes differ "
        "between calls (TORCH_LOGS=recompiles names them)."
        for one in measured
        if one.recompiled
    ]


def _as_it_is(answer: TrialAnswer) -> list[str]:
    """How steady the program was without any change, in one process and from one to the next."""
    running_ms = answer.result.base_ms
    times = [time_text(ms * NS_PER_MS) for ms in running_ms]
    notes = (
        [f"As it is, a step took {times[0]} when the trial began and {times[-1]} when it ended."] if times[1:] else []
    )
    proof = answer.confirmed.get(answer.kept)
    if proof is not None and running_ms and abs(running_ms[0] / proof.mean_base_ms - 1) > APART:
        notes.append(
            f"In fresh processes it took {time_text(proof.mean_base_ms * NS_PER_MS)}: they time the program's first "
            "steps, the trial later ones of one process, where caches are warm and clocks may be others."
        )
    return notes


def _row(answer: TrialAnswer, one: Tried) -> tuple[Cell, ...]:
    foretold = answer.foretold.get(one.name) if not one.beside else None
    without_ns = one.without_ms * NS_PER_MS  # of pairs the ratio decides: a row of two medians may say another thing
    times_ns = (without_ns, without_ns * one.ratio)
    gains = (1 - ratio for ratio in (one.ratio, one.high, one.low, one.shortest))
    return (one.name, ", ".join(one.beside) or None, *times_ns, foretold.value if foretold else None, *gains)


def _memory(one: Tried) -> tuple[Cell, ...]:
    return (one.name, ", ".join(one.beside) or None, one.base_memory_bytes or None, one.memory_bytes)


def _steps_ms(answer: TrialAnswer) -> list[tuple[str, float, float]]:
    """The rungs that are still kept: name, the step before and after, in ms."""
    rungs = [(name, step_ms) for name, step_ms in answer.result.rungs if name in answer.result.kept]
    before = [*answer.result.base_ms[:1], *(step_ms for _, step_ms in rungs)]
    return [(name, earlier, step_ms) for (name, step_ms), earlier in zip(rungs, before, strict=False)]


def _rungs(answer: TrialAnswer) -> list[tuple[Cell, ...]]:
    return [(name, after * NS_PER_MS, 1 - after / before) for name, before, after in _steps_ms(answer)]


def _fresh(answer: TrialAnswer) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    proofs = [(" + ".join(names), proof) for names, proof in answer.confirmed.items()]
    for names, proof in proofs:
        check = proof.check
        drift = (check.apart, check.base_apart, check.tolerated) if check else (None, None, None)
        step_ns = (proof.mean_base_ms * NS_PER_MS, proof.mean_with_ms * NS_PER_MS)
        low, high = (1 - ratio for ratio in reversed(proof.interval))
        rows.append((names, *step_ns, 1 - proof.ratio, low, high, *drift))
    return rows


def _charts(answer: TrialAnswer) -> tuple[LadderChart, ...]:
    steps = _steps_ms(answer)
    if not steps:
        return ()
    rungs = ((name, before, after, after, after) for name, before, after in steps)
    title = "What is left of the step after each change, measured"
    return (LadderChart.of(title, steps[0][1], rungs, conclusion(answer)),)


def repair_page(answer: RepairAnswer, program: str, place: str) -> Page:
    """The page of a repair of `program`, a command line, in `place`, which says where the edits are."""
    kept = answer.kept
    back, offered = ([one for one in answer.repairs if one.decided == what] for what in ("taken back", "offered"))
    offers = ((one.fix, one.where, f"{one.why[:1].upper()}{one.why[1:]}", _edit_of(one)) for one in offered)
    sheets = (
        listed("trial.kept", map(_edit_row, kept)),
        listed("trial.taken_back", map(_edit_row, back)),
        listed("trial.offered", offers),
    )
    notes = (f"{place}.", f"It ended because {answer.ended}.", *_log_of(answer))
    shown, said = tuple(sheet for sheet in sheets if sheet.rows), repair_conclusion(answer)
    return Page(f"Repair of {program}", shown, notes, charts=_repair_charts(answer), lede=said)


def repair_conclusion(answer: RepairAnswer) -> str:
    """What all that is kept wins, in one sentence."""
    if not answer.kept and any(one.why.startswith(LATE) for one in answer.repairs):
        return "An edit was made that could not be decided in the time: give more with --budget."
    if not answer.kept:
        return "No edit makes the step at least 2 % shorter and leaves its results as they are."
    before, after = (time_text(ms * NS_PER_MS) for ms in (answer.base_ms, answer.after_ms))
    won, most, least = (share_text(1 - ratio) for ratio in answer.ratios)
    names, pairs = " + ".join(one.fix for one in answer.kept), min(one.pairs for one in answer.kept)
    runs = f"{pairs} pairs of fresh processes{' or more each' * (len(answer.kept) > 1)}"
    return f"{names}: a step of {before} takes {after} ({won} less, {least} to {most}; {runs})."


def _edit_of(one: Repair) -> str:
    """The lines that go and come, without those around them."""
    lines = [line for line in one.diff.splitlines()[2:] if line[:1] in "+-"]
    return "; ".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def _edit_row(one: Repair) -> tuple[Cell, ...]:
    effect, check = one.effect, one.check
    times = [None if ms is None else ms * NS_PER_MS for ms in (one.before_ms, one.after_ms)]
    gains = (1 - effect.ratio, 1 - effect.high, 1 - effect.low) if effect else (None, None, None)
    drift = (check.apart, check.room) if check else (None, None)
    foretold = one.foretold.value if one.foretold else None
    return (one.fix, one.where, foretold, *times, *gains, *drift, one.commit or None, one.why)


def _repair_charts(answer: RepairAnswer) -> tuple[LadderChart, ...]:
    if not answer.kept:
        return ()
    steps = pairwise(answer.steps_ms)
    rungs = ((one.fix, before, after, after, after) for one, (before, after) in zip(answer.kept, steps, strict=True))
    return (LadderChart.of("The step after each edit", answer.base_ms, rungs, repair_conclusion(answer)),)


_CALLS: Final = {
    "operator": ("an operator and its launch", 1),
    "operator_recorded": ("the same while torch.profiler records", 1),
    "frames": ("a call of a Python function", 100),
    "graph_20": ("a CUDA graph of 20 kernels, launched", 1),
    "graph_220": ("a CUDA graph of 220 kernels, launched", 1),
    "inferred": ("a layer of two matmuls, inferred", 6),
    "inferred_cast": ("the same under autocast", 6),
    "hooked": ("the same with a hook", 6),
    "inferred_compiled": ("the same compiled by itself", 6),
    "trained": ("a layer of two matmuls, trained", 6),
    "trained_cast": ("the same under autocast", 6),
    "trained_compiled": ("the same compiled by itself", 6),
    "inferred_convolved": ("a layer of a convolution, inferred", 6),
    "inferred_convolved_cast": ("the same under autocast", 6),
    "trained_convolved": ("a layer of a convolution, trained", 6),
    "trained_convolved_cast": ("the same under autocast", 6),
}
"""What each of the bench's calls of the CPU is, and how many there are in what is timed."""
_FLOPS_PER_US_OF_TERA: Final = 1e6
_RATES: Final = {
    "dram_bandwidth": "memory",
    "l2_bandwidth": "L2 cache",
    "copy_bandwidth": "copy from pinned memory",
    "pageable_bandwidth": "copy from pageable memory",
}


def machine_page(file: MachineFile, found: Mapping[str, Mapping[str, Any]]) -> Page:
    """What was measured of a machine, by kinds of questions, and where it is kept."""
    calls = {**found.get("machine", {}), **found.get("regions", {})}
    host = (
        (what, *(time * NS_PER_US / count for time in calls[name]))
        for name, (what, count) in _CALLS.items()
        if name in calls
    )
    rates = ((what, calls[name] / NS_PER_US) for name, what in _RATES.items() if name in calls)
    sheets = (
        listed("machine.host", host),
        listed("machine.memory", rates),
        listed("machine.products", _products(found.get("products", {}))),
    )
    held = file.machine
    parts = ", ".join(str(part) for part in (held.get("gpu") or "no GPU", f"PyTorch {held.get('torch')}"))
    return Page(f"This machine: {parts}", tuple(sheet for sheet in sheets if sheet.rows), (f"kept in {file.path}",))


def _products(products: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    """Of square products operations a second by type."""
    sides: Sequence[int] = products.get("sides", ())
    for at, side in enumerate(sides):
        place = (at * len(sides) + at) * len(sides) + at
        operations = 2 * side * side * side
        rates = (
            operations / products[kind][place] / _FLOPS_PER_US_OF_TERA for kind in ("fp32", "tf32", "bf16", "fp16")
        )
        yield (side, *rates)
