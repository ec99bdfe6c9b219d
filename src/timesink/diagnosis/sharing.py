"""Which finding has the time that several claim: shares of claims, dearest first, and room that is left in the step."""

from collections.abc import Iterable, Mapping
from typing import Final

from timesink.diagnosis.gains import (
    at_most,
    scaled,
)
from timesink.diagnosis.pricing import busy_ms, claimed_ms_per_step, held_ms, needed_ms
from timesink.diagnosis.verdicts import Card, Claim, Finding
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.records import State, replace
from timesink.whatif.changes.host import MergeUnits

_SHARED: Final = 0.01  # claims that share less than this are apart


def share_claims(
    ranked: Iterable[tuple[Card, Finding]], trace: Trace, step_ms: float | None
) -> list[tuple[Card, Finding]]:
    """Findings that claim the same device time share it: each keeps what those before it leave.

    A finding whose claim is taken by a third already is worth two thirds of its price. Prices of one rank together
    never exceed the step, nor those of idle time what the device leaves idle of it, nor the upper end of any the step;
    of idle time of which nothing is expected that end is at most what the device does not need of the step;
    what recording costs is a part of the recorded step, and counts in none. Those of several ranks do not add up: ranks
    wait for each other, so a change that wins 2 ms on each of eight wins 2 ms.
    """
    rooms: dict[tuple[int, str], _Room] = {}
    taken: dict[tuple[int, int], Intervals] = {}
    before: dict[tuple[int, int], dict[int, tuple[str, Claim]]] = {}
    shared: list[tuple[Card, Finding]] = []
    for card, finding in ranked:
        claimed = finding.claim.intervals
        left = {device: part - taken.get(device, Intervals.none()) for device, part in claimed.items()}
        claimed_ms = claimed_ms_per_step(finding.claim, trace)
        ratio = claimed_ms_per_step(Claim(left), trace) / claimed_ms if claimed_ms > 0 else 1.0
        for device, part in claimed.items():
            taken[device] = taken.get(device, Intervals.none()) | part
        counted = (_taker(finding.claim, before, trace), 1.0 - ratio) if ratio < 1.0 - _SHARED else None
        worth = scaled(finding.recoverable, ratio) if finding.recoverable else None
        if worth is not None and step_ms is not None and finding.bottleneck is not Bottleneck.PROFILER_OVERHEAD:
            rank = finding.where.rank or 0
            if (rank, "step") not in rooms:
                needed = {"step": 0.0, "idle": busy_ms(rank, trace), "others": held_ms(rank, trace)}
                rooms |= {(rank, what): _Room(max(step_ms - ms, 0.0)) for what, ms in needed.items()}
            is_idle = is_of_idle_time(finding.claim, trace)
            alone = is_idle and not isinstance(finding.change, MergeUnits)  # which changes what others run, too
            held = [rooms[rank, what] for what in ("step", "idle", "others")[: 1 + is_idle + alone]]
            least = min(held, key=lambda room: room.left_ms)
            if counted is None and worth.value > least.left_ms and least.first:
                counted = least.first, 1.0 - least.left_ms / worth.value
            own_ms = min(step_ms, finding.of_ms or step_ms)  # of its steps: the usual ones may be shorter than the mean
            worth = at_most(worth, min(least.left_ms, own_ms), own_ms)
            if is_idle and not worth.value:
                worth = replace(worth, high=min(worth.most, max(step_ms - needed_ms(trace).get(rank, 0.0), 0.0)))
            for room in held:
                room.left_ms, room.first = room.left_ms - worth.value, room.first or card.code
        for device in claimed:
            before.setdefault(device, {})[len(shared)] = card.code, finding.claim
        shared.append((card, replace(finding, recoverable=worth, counted_in=counted or finding.counted_in)))
    return shared


class _Room(State):
    """How much of a time nothing is promised of yet, and the code of the first finding that promised some."""

    left_ms: float
    first: str = ""


def is_of_idle_time(claim: Claim, trace: Trace) -> bool:
    """Whether anything is claimed, and the device runs nothing in it."""
    lines = device_timeline(trace).by_device
    return claim.total_ns > 0 and not any(
        (part & lines[device].busy).total_ns for device, part in claim.intervals.items() if device in lines
    )


def _taker(claim: Claim, before: Mapping[tuple[int, int], Mapping[int, tuple[str, Claim]]], trace: Trace) -> str:
    """The code of the rule whose finding claims most of this time, of those `before` it on its devices."""

    def in_both_ms(entry: tuple[str, Claim]) -> float:
        other = entry[1].intervals
        both = {device: part & other[device] for device, part in claim.intervals.items() if device in other}
        return claimed_ms_per_step(Claim(both), trace)

    on_device = {at: entry for device in claim.intervals for at, entry in before.get(device, {}).items()}
    return max((on_device[at] for at in sorted(on_device)), key=in_both_ms)[0]
