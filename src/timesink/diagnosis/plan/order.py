"""Which change of a plan comes next: what it is expected to win, alone and with what may follow."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from timesink.diagnosis.gains import to_be_expected
from timesink.diagnosis.plan import WORTH, Joint
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Finding, Quantity

NEARLY: Final = Limit.ratio(
    0.75,
    "a change comes before one that wins more where it wins this much of that, and mends a cause, or leads further",
    "benchmarks/faults: broken_in_pieces, whose graph breaks win 0.76 of what a CUDA graph of the pieces does",
)


LATER: Final = Limit.ratio(
    0.25,
    "of changes after the first, one that leads further comes before one that wins more where it wins this much "
    "of that: what comes first is tried first, later ones are steps on the way",
    "benchmarks/ladders, tune: a graph that wins half of what compiling does, and lets bf16 win two thirds",
)


Gain = Callable[[Collection[str]], Quantity | None]


def expected(gain: Quantity | None) -> float:
    """What is to be expected of a gain, by its interval; nothing of one without a price."""
    return 0.0 if gain is None else to_be_expected(gain.low or 0.0, gain.value, gain.most)


def leads_to(
    name: str, chosen: Sequence[str], after: Iterable[str], gain: Gain, likely: Callable[[Collection[str]], float]
) -> float:
    """What is expected after this change, and is likely after the best after it: the time that both rungs take off the
    steps on the way. Changes of launches and changes of kernels often win little without each other."""
    taken = {*chosen, name}
    return expected(gain(taken)) + max((likely({*taken, other}) for other in after if other != name), default=0.0)


def near_best(worth: Mapping[str, float], nearly: float = NEARLY.default) -> list[str]:
    """Those that win nearly as much as the best; the best where it wins nothing."""
    most = max(worth.values())
    return [name for name, gain in worth.items() if gain == most or gain >= nearly * most > 0]


def following(joint: Joint, names: Iterable[str], chosen: Sequence[str]) -> list[str]:
    """Those of some changes that can be made after the chosen ones."""
    return [
        name
        for name in names
        if name not in chosen and allowed(joint, name, chosen) and not _waits_first(joint, name, chosen)
    ]


def allowed(joint: Joint, name: str, chosen: Sequence[str]) -> bool:
    """Whether a change can still be made: no other of the plan makes it, excludes it or lacks it."""
    change = joint.offered[name].fix
    others = [joint.offered[other].fix for other in chosen]
    made = any(name in other.subsumes or name in other.excludes for other in others)
    return not made and not set(change.excludes) & set(chosen) and set(change.needs) <= set(chosen)


def _waits_first(joint: Joint, name: str, chosen: Sequence[str]) -> bool:
    """Whether one comes before it that wins something: a graph cannot hold a step that still waits for the device."""
    first = [one for one in joint.offered[name].fix.after if one in joint.offered and one not in chosen]
    return any(joint.likely_ms({one}) >= WORTH.default * joint.step_ms for one in first)


def best(
    joint: Joint, more: Mapping[str, Quantity], chosen: Sequence[str], least_ms: float, top: Finding | None
) -> str | None:
    """The next change, by what each wins `more` than the chosen ones: of those that win nearly most, one that mends a
    cause, and that leads furthest; the lesser of two that make the same where the greater adds too little.

    What no finding asks for must win so much even where it wins least. Where nothing is chosen yet, the change of the
    `top` finding comes first, or what wins more even at its least.
    """
    worthy = {name: gain for name, gain in more.items() if gain.value >= least_ms}
    sure = {name for name, gain in worthy.items() if (gain.low or 0.0) >= least_ms}
    worthy = {name: gain for name, gain in worthy.items() if name in sure or joint.offered[name].findings}
    if not worthy:
        return None
    of_top = [name for name in worthy if not chosen and repairs(joint, name, top)]
    if of_top:
        most = max(worthy[name].value for name in of_top)
        worthy = {name: gain for name, gain in worthy.items() if name in of_top or (gain.low or 0.0) > most}
    gains = {name: expected(gain) for name, gain in worthy.items()}
    near = near_best(gains)
    causes = [name for name in near if joint.offered[name].mends_a_cause]
    if causes and len(causes) < len(near):
        near = causes
    elif chosen:
        near = near_best(gains, LATER.default)
    found = near[0] if len(near) == 1 else max(sorted(near), key=lambda name: _furthest(joint, name, chosen))
    for lesser in joint.offered[found].fix.subsumes:
        if lesser in worthy and worthy[found].value - worthy[lesser].value < least_ms:
            return lesser
    return found


def repairs(joint: Joint, name: str, finding: Finding | None) -> bool:
    """Whether a change repairs this finding."""
    return any(own is finding for _, own in joint.offered[name].findings)


def _furthest(joint: Joint, name: str, chosen: Sequence[str]) -> float:
    return leads_to(name, chosen, following(joint, joint.offered, [*chosen, name]), joint.gain, joint.likely_ms)
