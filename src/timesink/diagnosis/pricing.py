"""What a finding is worth: milliseconds per step, as low / value / high.

A rule that knows what its fix wins states it. Any other finding names a `change`, which is priced here for
`timesink plan --change` too: by the kernel time that goes, or by replaying the trace's dependency graph (`whatif`).
Without a change, or where the trace cannot be replayed, the price is the bound of the finding's claim: the union of
device intervals that the fix could at most remove.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist, median
from typing import Final, NamedTuple

from timesink.diagnosis.verdicts import Bottleneck, Card, Claim, Finding, PricedBy, Quantity
from timesink.knowledge.assumptions import replay as assumed
from timesink.measures.communication import may_communicate
from timesink.measures.communication.pipelines import exposed_transfers, pipeline, schedule
from timesink.measures.communication.waits import collective_waits
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.ranks.lateness import slowed_ns
from timesink.measures.steps.per_step import largest_per_step_ns, per_step_ns, period_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.replay import (
    calibrated_ends,
    calibrated_pricers,
    deflated_pricers,
    pricers,
    step_without_profiler_ns,
)
from timesink.model.intervals import Intervals
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import State, replace
from timesink.units import NS_PER_MS, time_text
from timesink.whatif import Case, Change, Touches
from timesink.whatif.changes.host import MergeUnits
from timesink.whatif.changes.kernels import ShortenKernels, UnderAutocast
from timesink.whatif.changes.transfers import OverlapCollectives
from timesink.whatif.periods import TO_P90
from timesink.whatif.pricing import Price, Pricer

_LEAST: Final = 1e-6  # of a probability that is divided by
_SHARED: Final = 0.01  # claims that share less than this are apart
UNSURE: Final = 0.3  # Swanson's weight of the high end: what is expected of a gain that may be nothing
_TOLD: Final = 1.001  # times as long: less is no other step
_NOTHING: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


class Priced(NamedTuple):
    """A gain per step and how it was found."""

    gain: Quantity
    by: PricedBy


def worth_ms(finding: Finding) -> float:
    """What is expected of a fix, 0 where it has no price: of a bound that may be nothing, three tenths."""
    gain = finding.recoverable
    return 0.0 if gain is None else gain.value or UNSURE * gain.most


def price(finding: Finding, trace: Trace) -> Priced:
    """The price of a finding, in ms per step: what the rule states, else that of its change, else its bound.

    Where the step without a profiler is known, the price is a part of that step. Of a rank that cannot be replayed no
    more is expected than another rank of the job wins by the same change: they wait for each other.
    """
    if finding.stated is not None:
        return Priced(finding.stated, "stated")
    bound = claim_bound(finding, trace)
    change, rank = finding.change, finding.where.rank or 0
    if change is None:
        return Priced(bound, "bound")
    priced = price_change(change, rank, trace, bound)
    if priced is not None:
        return priced
    others = (price_change(change, other, trace) for other in pricers(trace) if other != rank)
    won_ms = next((other.gain.value for other in others if other and other.gain.value > 0.0), bound.value)
    return Priced(replace(bound, value=min(bound.value, won_ms)), "bound")


def price_change(
    change: Change, rank: int, trace: Trace, bound: Quantity = _NOTHING, *, signed: bool = False
) -> Priced | None:
    """What a change wins on a rank, in ms per step, whoever asks; None where the trace cannot be replayed.

    At least nothing, unless `signed`: a change may cost more than it wins, as casts do in a step that waits for its
    host.

    A profiler slows the host, not kernels: where the device bounds the step, the slowed host often seems to leave no
    room for a shorter device step. So where nothing but kernels gets shorter, the gain is their time, as far as the
    host leaves room for it without a profiler, and no replay is asked; nor where casts cannot be replayed. `bound` is
    what is known of a gain that is mostly the profiler's. Its interval is as wide as runs of the program are apart.
    """
    if (unreplayed := _price_without_replay(change, rank, trace)) is not None:
        return unreplayed
    replayed = None
    if rank in pricers(trace):
        if trace.unprofiled_step_ns is None:
            replayed = _price_by_estimate(change, rank, trace)
        else:
            replayed = _price_without_profiler(change, rank, bound, trace)
    if replayed is None:
        if not isinstance(change, UnderAutocast):
            return None
        return Priced(_price_by_kernels(change.kernels, rank, trace), "kernel_time")
    if isinstance(change, OverlapCollectives):
        share = _hidden_by_all(rank, trace)
        replayed = replace(replayed, value=share * replayed.value, low=share * (replayed.low or 0.0))
    return Priced(replayed if signed else _at_least_nothing(replayed), "replay")


def _price_without_replay(change: Change, rank: int, trace: Trace) -> Priced | None:
    """What is known of a change without asking a replay; None where only a replay tells."""
    if isinstance(change, ShortenKernels) and change.touches is Touches.DEVICE:
        return Priced(_price_by_kernels(change, rank, trace), "kernel_time")
    is_unmatched = isinstance(change, OverlapCollectives) and not collective_waits(trace).matched.calls.height
    if is_unmatched and rank in pricers(trace):  # all of it may be waiting for a late rank
        return Priced(_exposed_bound(rank, trace), "bound")
    return None


def likely_ms(change: Change, rank: int, trace: Trace) -> float:
    """The value of `price_change` alone, by one replay: what orders changes; nothing where the trace cannot be
    replayed."""
    if (unreplayed := _price_without_replay(change, rank, trace)) is not None:
        return unreplayed.gain.value
    if rank not in pricers(trace):
        return 0.0
    if trace.unprofiled_step_ns is not None:
        pricer = calibrated_pricers(trace)[rank]
        return pricer.gain_ns(change) * _unprofiled_ratio(pricer, trace.unprofiled_step_ns) / NS_PER_MS
    if change.touches is Touches.DEVICE:
        return pricers(trace)[rank].gain_ns(change) / NS_PER_MS
    return _by_estimate(trace, rank, change, lambda pricer: pricer.gain_ns(change)) / NS_PER_MS


def replay_error(gain: float, step: float) -> float:
    """How far a replay is off at its tenth and ninetieth percentile, in the unit of both."""
    return TO_P90 * math.hypot(assumed.MODEL_ERROR.value * gain, assumed.STEP_ERROR.value * step)


def _as_repeated(gain: Quantity, rank: int, trace: Trace) -> Quantity:
    """The gain as two runs of as many steps as were timed without a profiler would show it: the median step of each is
    off by the spread of its steps over the root of their number, by 1.25 of that (the error of a median)."""
    times = trace.unprofiled_steps_ns
    usual = median(times)
    spread = _OF_NORMAL * median(abs(time - usual) for time in times) / max(usual, 1.0)
    error = TO_P90 * _OF_MEDIAN * spread * math.sqrt(2 / len(times))
    error_ms = error * max(step_without_profiler_ns(trace, rank) / NS_PER_MS - gain.value, 0.0)
    low_ms, high_ms = gain.value - (gain.low or 0.0), gain.most - gain.value
    low_ms, high_ms = gain.value - math.hypot(low_ms, error_ms), gain.value + math.hypot(high_ms, error_ms)
    return replace(gain, low=max(low_ms, 0.0) if gain.value >= 0 else low_ms, high=high_ms)


_TIMED: Final = 4  # steps: of fewer nobody tells how far they are apart
_OF_NORMAL, _OF_MEDIAN = 1.4826, 1.2533  # deviations a median distance; the error of a median over that of a mean


def _at_least_nothing(gain: Quantity) -> Quantity:
    low, high = (None if end is None else max(end, 0.0) for end in (gain.low, gain.high))
    return replace(gain, value=max(gain.value, 0.0), low=low, high=high)


def _price_by_kernels(change: ShortenKernels, rank: int, trace: Trace) -> Quantity:
    """The kernel time that goes: its cases, and apart from them (in quadrature) an error as large as that of a replay.

    Where steps take longer without a profiler than with one, the device was slower then, its kernels too: a capture of
    a few steps ends before the power cap lowers the clocks. Where the host is known, no step is shorter than it needs.
    """
    step_ns = trace.unprofiled_step_ns or max(period_ns(trace, change.device), 1.0)
    ratio = _slower_clock(change.device, trace)
    low_ns, gain_ns, most_ns = (saved_per_step_ns(trace, change, case) * ratio for case in Case)
    error_ns = replay_error(gain_ns, step_ns)
    high_ns = gain_ns + math.hypot(most_ns - gain_ns, error_ns)
    gain = _quantity(gain_ns, gain_ns - math.hypot(gain_ns - low_ns, error_ns), min(high_ns, max(step_ns, gain_ns)))
    if _replayable(rank, trace) is None and not _has_room(rank, trace):  # the device may still wait for its host
        return Quantity.ms(most_ns, 0.0, most_ns)
    gain = _beside_host(gain, rank, trace)
    return _as_repeated(gain, rank, trace) if len(trace.unprofiled_steps_ns) >= _TIMED else gain


def _slower_clock(device: tuple[int, int], trace: Trace) -> float:
    """How many times longer kernels take in the step without a profiler than they were recorded."""
    recorded_ns = max(period_ns(trace, device), 1.0)
    return min(max((trace.unprofiled_step_ns or 0.0) / recorded_ns, 1.0), assumed.SLOWEST_CLOCK.value)


def longer_text(finding: Finding, priced: Priced, trace: Trace) -> str:
    """What is claimed in the step without a profiler, where that is longer and more is won than it took as recorded:
    of kernels at the clock of that step, else the same part of it."""
    claimed_ms, change = claimed_ms_per_step(finding.claim, trace), finding.change
    if priced.by == "stated" or not 0.0 < claimed_ms < priced.gain.value:
        return ""
    if isinstance(change, ShortenKernels) and priced.by == "kernel_time":
        slower, where = _slower_clock(change.device, trace), "at the clock of"
    else:
        slower, where = claim_bound(finding, trace).most / claimed_ms, "in"
    told, time = (time_text(claimed_ms * times * NS_PER_MS) for times in (1.0, slower))
    return f"; {time} {where} the step without the profiler" if slower > _TOLD and time != told else ""


def _beside_host(gain: Quantity, rank: int, trace: Trace) -> Quantity:
    """The gain of a shorter device step as far as the host leaves room for it.

    What the host needs without a profiler is what it took, less what recording cost, and as far off as a replay that
    wins so much. Where the device alone needs the step but for as little, the host is hidden behind it: it needs what
    is expected of a normal error below that, and perhaps nothing. Of ranks that exchange, which have one step, it is
    the host that needs most of it. Without a replay to tell what it needs, nothing is taken off.
    """
    if _replayable(rank, trace) is None:
        return gain
    rank = _slowest_host(trace) if rank in _exchanging(trace) else rank
    pricer = expected_pricer(rank, trace)
    recording_ns = max(pricers(trace)[rank].host_ns - pricer.host_ns, 0.0)
    error_ns, host_ns = replay_error(recording_ns, pricer.step_ns), pricer.host_ns
    is_hidden = pricer.step_ns - pricer.device_ns <= error_ns
    if is_hidden:
        error, room = NormalDist(host_ns, error_ns / TO_P90), pricer.device_ns
        host_ns -= error.variance * error.pdf(room) / max(error.cdf(room), _LEAST)
    ratio = _unprofiled_ratio(pricer, step_without_profiler_ns(trace, rank)) / NS_PER_MS
    beside_ms, error_ms = max(pricer.step_ns - host_ns, 0.0) * ratio, error_ns * ratio
    value, most_ms = min(gain.value, beside_ms), gain.most if is_hidden else min(gain.most, beside_ms + error_ms)
    return Quantity(value, "ms", min(gain.low or 0.0, max(beside_ms - error_ms, 0.0), value), max(most_ms, value))


def _replayable(rank: int, trace: Trace) -> Pricer | None:
    """What replays the expected case of a rank's step without a profiler, where that can be replayed."""
    pricer = expected_pricer(rank, trace) if rank in pricers(trace) else None
    return pricer if pricer is not None and pricer.unreplayable is None and pricer.step_ns else None


@remembered
def _slowest_host(trace: Trace) -> int:
    """Of the ranks that exchange and can be replayed, of which there is one, that whose host needs most of a step."""
    hosts = {one: pricer for one in _exchanging(trace) if (pricer := _replayable(one, trace))}
    return max(hosts, key=lambda one: hosts[one].host_ns / hosts[one].step_ns)


@remembered
def _exchanging(trace: Trace) -> set[int]:
    """The ranks with collectives that have a counterpart on another."""
    return set(collective_waits(trace).matched.calls["rank"]) if may_communicate(trace) else set()


def _has_room(rank: int, trace: Trace) -> bool:
    """Whether a rank's devices hardly wait for their host: then kernels set the pace, and no replay has to tell."""
    waits = [part.share for part in blamed_time(trace, HOST_CAUSES) if part.device[0] == rank]
    return max(waits, default=0.0) <= replay_error(0.0, 1.0)


def within_claim(priced: Priced, finding: Finding, trace: Trace) -> Quantity:
    """The part of a replayed gain that is the finding's.

    A change may win more than the finding claims, such as time of another finding: that part is not this one's. `high`
    stays as it is, for the replay says that as much is possible; but of a gain that is expected to be nothing it is all
    that is said, and no more than is claimed.
    """
    if priced.by != "replay" or not finding.claim.total_ns:
        return priced.gain
    most = most_claimed_ms([finding], trace)
    value, low = min(priced.gain.value, most), min(priced.gain.low or 0.0, most)
    return replace(priced.gain, value=value, low=low, high=priced.gain.most if value else min(priced.gain.most, most))


def beyond_error(gain: Quantity, step_ms: float) -> Quantity:
    """A replayed gain, as a bound alone where it may be nothing and is no more than a replay of such a step is off."""
    is_within = not gain.low and gain.value <= replay_error(gain.value, step_ms)
    return replace(gain, value=0.0) if is_within else gain


def most_claimed_ms(findings: Iterable[Finding], trace: Trace) -> float:
    """The most that a replayed change wins of what findings claim: the time as recorded, or as a part of the step
    without a profiler where that is more. What else it might win is time that others claim, which may be needed."""
    return sum(max(bound_price(one, trace).most, claim_bound(one, trace).most) for one in findings)


def expected_pricer(rank: int, trace: Trace) -> Pricer:
    """What replays the expected case of the step without a profiler."""
    if trace.unprofiled_step_ns is not None:
        return calibrated_pricers(trace)[rank]
    return deflated_pricers(trace)[rank][Case.EXPECTED.value]


def claim_bound(finding: Finding, trace: Trace) -> Quantity:
    """The bound of a finding's claim, as a part of the step without a profiler where that is known."""
    rank, bound = finding.where.rank or 0, bound_price(finding, trace)
    pricer = pricers(trace).get(rank)
    return bound if pricer is None else scaled(bound, _unprofiled_ratio(pricer, step_without_profiler_ns(trace, rank)))


def _exposed_bound(rank: int, trace: Trace) -> Quantity:
    """At most what a rank's communication takes with no computation beside it, as a part of the step without a
    profiler."""
    exposed = {device: part for device, part in exposed_transfers(trace).items() if device[0] == rank}
    most_ns = largest_per_step_ns(trace, exposed)
    whole = Quantity.ms(most_ns, 0.0, most_ns)
    return scaled(whole, _unprofiled_ratio(pricers(trace)[rank], step_without_profiler_ns(trace, rank)))


def bound_price(finding: Finding, trace: Trace) -> Quantity:
    """At most the claimed device time per step, in ms; at least nothing."""
    high_ms = claimed_ms_per_step(finding.claim, trace)
    expected = finding.claim.expected
    value_ms = high_ms if expected is None else claimed_ms_per_step(Claim(expected), trace)
    return Quantity(value_ms, "ms", low=0.0, high=high_ms)


def claimed_ms_per_step(claim: Claim, trace: Trace) -> float:
    """Claimed time within the steady steps, averaged over them, on the device where it is largest."""
    return largest_per_step_ns(trace, claim.intervals) / NS_PER_MS


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
    before: list[tuple[str, Claim]] = []
    shared = []
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
                needed = {"step": 0.0, "idle": _busy_ms(rank, trace), "others": _held_ms(rank, trace)}
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
                worth = replace(worth, high=min(worth.most, max(step_ms - _needed_ms(trace).get(rank, 0.0), 0.0)))
            for room in held:
                room.left_ms, room.first = room.left_ms - worth.value, room.first or card.code
        before.append((card.code, finding.claim))
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


def _busy_ms(rank: int, trace: Trace) -> float:
    """The time per step in which the device of a rank that works least runs anything."""
    lines = device_timeline(trace).by_device.items()
    busy = (per_step_ns(trace, device, line.busy) for device, line in lines if device[0] == rank)
    return min(busy, default=0.0) / NS_PER_MS


def _held_ms(rank: int, trace: Trace) -> float:
    """The most that any rank needs per step which this one exchanges with, with kernels that take no longer beside
    exchanges: no step of theirs is shorter. The stages of a pipeline need what they fill and drain in."""
    line, plan = pipeline(trace), schedule(trace)
    if line is not None and plan is not None and rank in line.ranks:
        return (max(plan.stage_ns) if plan.is_continuous else plan.filled_ns(plan.items, plan.chunks)) / NS_PER_MS
    together = _exchanging(trace)
    if rank not in together:
        return 0.0
    needed, slowed = _needed_ms(trace), slowed_ns(trace)
    return max(needed[one] - slowed.get(one, 0.0) / NS_PER_MS for one in together & needed.keys())


def _hidden_by_all(rank: int, trace: Trace) -> float:
    """The share of what a rank wins by hiding its transfers that its job wins: what the rank wins that hides least,
    for which the others wait. What a rank needs less than another of the step, it has to spare."""
    exposed, needed = dict[int, float](), _needed_ms(trace)
    for key, part in exposed_transfers(trace).items():
        exposed[key[0]] = max(exposed.get(key[0], 0.0), per_step_ns(trace, key, part) / NS_PER_MS)
    most_ms = _held_ms(rank, trace)
    least_ms = min((ms + max(most_ms - needed.get(one, most_ms), 0.0) for one, ms in exposed.items()), default=0.0)
    return min(least_ms / exposed[rank], 1.0) if most_ms and exposed.get(rank) else 1.0


@remembered
def _needed_ms(trace: Trace) -> Mapping[int, float]:
    """By rank, what its device that works least needs per step: all it runs but waiting for other ranks."""
    transfers, needed = exposed_transfers(trace), dict[int, float]()
    for key, line in device_timeline(trace).by_device.items():
        waiting = line.exposed_communication - transfers.get(key, Intervals.none())
        of_device = per_step_ns(trace, key, line.busy - waiting) / NS_PER_MS
        needed[key[0]] = min(of_device, needed.get(key[0], of_device))
    return needed


def _taker(claim: Claim, before: Iterable[tuple[str, Claim]], trace: Trace) -> str:
    """The code of the rule whose finding claims most of this time."""

    def in_both_ms(entry: tuple[str, Claim]) -> float:
        other = entry[1].intervals
        both = {device: part & other[device] for device, part in claim.intervals.items() if device in other}
        return claimed_ms_per_step(Claim(both), trace)

    return max(before, key=in_both_ms)[0]


def _price_by_estimate(change: Change, rank: int, trace: Trace) -> Quantity | None:
    """The gain in replays with the profiler's cost taken off by estimate; None where the trace cannot be replayed.

    The interval holds the intervals at little and at much cost. Neither it nor the value exceeds the step at the
    expected cost, of which they are shown as a share.
    """
    if change.touches is Touches.DEVICE:  # the device is not slowed, but what it gains is a part of the same step
        replay, step_ns = pricers(trace)[rank].price(change), step_without_profiler_ns(trace, rank)
        gains_ns = (min(each_ns, step_ns) for each_ns in (replay.gain_ns, replay.low_ns, replay.high_ns))
        return _quantity(*gains_ns) if replay.replayed else None
    replays = [pricer.price(change) for pricer in deflated_pricers(trace)[rank]]
    if not all(replay.replayed for replay in replays):
        return None
    low_ns, high_ns = min(replay.low_ns for replay in replays), max(replay.high_ns for replay in replays)
    gain_ns = _by_estimate(trace, rank, change, lambda pricer: pricer.price(change).gain_ns)
    return _quantity(gain_ns, min(low_ns, gain_ns), max(min(high_ns, replays[Case.EXPECTED.value].step_ns), gain_ns))


def _by_estimate(trace: Trace, rank: int, change: Change, gain_ns: Callable[[Pricer], float]) -> float:
    """What is to be expected of a gain: that at the expected cost of recording.

    Under Nsight Systems, whose cost programs differ in by as much as its ends, it is that with little and with much
    cost, too; the ends of torch.profiler are extremes of 33 captures. What the device runs is left of the step.
    """
    cautious, expected, hopeful = deflated_pricers(trace)[rank]
    if trace.get(HOST_OPS).height:
        return gain_ns(expected)
    value_ns = gain_ns(expected)
    every_ns = to_be_expected(gain_ns(cautious), value_ns, gain_ns(hopeful))
    return every_ns if every_ns <= value_ns else min(every_ns, max(expected.room_ns(change), value_ns))


def to_be_expected(low: float, value: float, high: float) -> float:
    """Of a figure whose tenth, fiftieth and ninetieth percentiles are known: three, four and three tenths of them
    (Swanson's rule; Hurst, Brown and Swanson, AAPG Bulletin 84, 2000)."""
    return UNSURE * (low + high) + (1 - 2 * UNSURE) * value


def _price_without_profiler(change: Change, rank: int, bound: Quantity, trace: Trace) -> Quantity | None:
    """The gain of a replay brought to the step without a profiler; None where the trace cannot be replayed."""
    pricer, step_ns = calibrated_pricers(trace)[rank], trace.unprofiled_step_ns or 0.0
    replay = pricer.price(change)
    if not replay.replayed:
        return None
    ratio = _unprofiled_ratio(pricer, step_ns)
    low_ns, high_ns = (end_ns * ratio for end_ns in _beside_hosts(change, rank, replay, trace))
    if change.touches is Touches.DEVICE:  # the device is not slowed, but a slowed host may hide what it gains
        profiled = pricers(trace)[rank].price(change)
        low_ns, high_ns = min(low_ns, profiled.low_ns), max(high_ns, profiled.high_ns)
    if replay.refused is not None:  # mostly profiling: nothing of it is sure, the bound is all that is known
        low_ns, high_ns = min(low_ns, 0.0), max(high_ns, (bound.high or bound.value) * NS_PER_MS)
    gain_ns = replay.gain_ns * ratio
    if change.touches is Touches.HOST and len(pricers(trace)) == 1:  # what the device needs, no profiler adds to
        gain_ns = min(gain_ns, max(step_ns - pricers(trace)[rank].busy_ns, low_ns))
    gain = _quantity(*(min(each_ns, step_ns) for each_ns in (gain_ns, low_ns, high_ns)))
    return _as_repeated(gain, rank, trace) if len(trace.unprofiled_steps_ns) >= _TIMED else gain


def _beside_hosts(change: Change, rank: int, replay: Price, trace: Trace) -> tuple[float, float]:
    """The ends of a replayed gain with what it is on the hosts that may be hidden behind the device, which is another
    error than that of the replay."""
    hosts = (
        pricer.gain_ns(change) * replay.step_ns / pricer.step_ns for pricer in calibrated_ends(trace).get(rank, ())
    )
    gains = replay.gain_ns, *hosts
    less, more = replay.gain_ns - min(gains), max(gains) - replay.gain_ns
    low = replay.gain_ns - math.hypot(replay.gain_ns - replay.low_ns, less)
    return low, replay.gain_ns + math.hypot(replay.high_ns - replay.gain_ns, more)


def _unprofiled_ratio(pricer: Pricer, step_ns: float) -> float:
    """The step without a profiler over the one that is replayed."""
    return step_ns / pricer.step_ns if pricer.step_ns else 1.0


def in_order(gain: Quantity) -> Quantity:
    """The price with low ≤ value ≤ high, whatever a rule stated: the least of what it says is sure counts."""
    value = min(gain.value, gain.most)
    return replace(gain, value=value, low=None if gain.low is None else min(gain.low, value))


def _quantity(gain_ns: float, low_ns: float, high_ns: float) -> Quantity:
    if gain_ns >= 0.0:  # a change that wins is not said to lose, as far off as its replay may be
        low_ns, high_ns = max(low_ns, 0.0), max(high_ns, 0.0)
    return Quantity.ms(gain_ns, min(low_ns, gain_ns), max(high_ns, gain_ns))


def at_most(worth: Quantity, left_ms: float, step_ms: float) -> Quantity:
    """The gain as far as earlier findings leave any of the step; no end of the interval exceeds the whole step. What is
    known as a bound alone stays one."""
    value, low = min(worth.value, left_ms), min(worth.low or 0.0, left_ms)
    is_bound = worth.value >= worth.most
    return replace(worth, value=value, low=low, high=value if is_bound else max(min(worth.most, step_ms), value))


def scaled(worth: Quantity, ratio: float) -> Quantity:
    """That share of a gain."""
    low, high = (None if value is None else value * ratio for value in (worth.low, worth.high))
    return replace(worth, value=worth.value * ratio, low=low, high=high)
