"""What a finding is worth: milliseconds per step, as low / value / high.

A rule that knows what its fix wins states it. Any other finding names a `change`, which is priced here for
`timesink plan --change` too: by the kernel time that goes, or by replaying the trace's dependency graph (`whatif`).
Without a change, or where the trace cannot be replayed, the price is the bound of the finding's claim: the union of
device intervals that the fix could at most remove.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Final, NamedTuple

from timesink.diagnosis.estimates import (
    TIMED,
    as_repeated,
    by_estimate,
    price_by_estimate,
    price_without_profiler,
    unprofiled_ratio,
)
from timesink.diagnosis.gains import (
    NOTHING,
    UNSURE,
    at_least_nothing,
    quantity_ms,
    replay_error,
    scaled,
)
from timesink.diagnosis.verdicts import Claim, Finding, PricedBy, Quantity
from timesink.knowledge.assumptions import replay as assumed
from timesink.measures.communication import may_communicate
from timesink.measures.communication.pipelines import exposed_transfers, pipeline, schedule
from timesink.measures.communication.waits import collective_waits
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.ranks.paces import slowed_ns
from timesink.measures.steps.per_step import largest_per_step_ns, per_step_ns, period_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.replay import (
    calibrated_pricers,
    deflated_pricers,
    pricers,
    step_without_profiler_ns,
)
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered
from timesink.records import replace
from timesink.units import NS_PER_MS, time_text
from timesink.whatif import Case, Change, Touches
from timesink.whatif.changes.kernels import ShortenKernels, UnderAutocast
from timesink.whatif.changes.transfers import OverlapCollectives
from timesink.whatif.periods import TO_P90
from timesink.whatif.pricing import Pricer

_LEAST: Final = 1e-6  # of a probability that is divided by
_TOLD: Final = 1.001  # times as long: less is no other step


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
    change: Change, rank: int, trace: Trace, bound: Quantity = NOTHING, *, signed: bool = False
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
            replayed = price_by_estimate(change, rank, trace)
        else:
            replayed = price_without_profiler(change, rank, bound, trace)
    if replayed is None:
        if not isinstance(change, UnderAutocast):
            return None
        return Priced(_price_by_kernels(change.kernels, rank, trace), "kernel_time")
    if isinstance(change, OverlapCollectives):
        share = _hidden_by_all(rank, trace)
        replayed = replace(replayed, value=share * replayed.value, low=share * (replayed.low or 0.0))
    return Priced(replayed if signed else at_least_nothing(replayed), "replay")


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
        return pricer.gain_ns(change) * unprofiled_ratio(pricer, trace.unprofiled_step_ns) / NS_PER_MS
    if change.touches is Touches.DEVICE:
        return pricers(trace)[rank].gain_ns(change) / NS_PER_MS
    return by_estimate(trace, rank, change, lambda pricer: pricer.gain_ns(change)) / NS_PER_MS


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
    gain = quantity_ms(gain_ns, gain_ns - math.hypot(gain_ns - low_ns, error_ns), min(high_ns, max(step_ns, gain_ns)))
    if _replayable(rank, trace) is None and not _has_room(rank, trace):  # the device may still wait for its host
        return Quantity.ms(most_ns, 0.0, most_ns)
    gain = _beside_host(gain, rank, trace)
    return as_repeated(gain, rank, trace) if len(trace.unprofiled_steps_ns) >= TIMED else gain


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
    return f". That time is {time} {where} the step without the profiler" if slower > _TOLD and time != told else ""


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
    ratio = unprofiled_ratio(pricer, step_without_profiler_ns(trace, rank)) / NS_PER_MS
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
    that is said, and no more than is claimed. What a rule states stays: a job wins more by a rank that is late no more
    than its peers are seen to wait.
    """
    if priced.by != "replay" or not finding.claim.total_ns:
        return priced.gain
    most = most_claimed_ms([finding], trace)
    value, low = min(priced.gain.value, most), min(priced.gain.low or 0.0, most)
    return replace(priced.gain, value=value, low=low, high=priced.gain.most if value else min(priced.gain.most, most))


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
    return bound if pricer is None else scaled(bound, unprofiled_ratio(pricer, step_without_profiler_ns(trace, rank)))


def _exposed_bound(rank: int, trace: Trace) -> Quantity:
    """At most what a rank's communication takes with no computation beside it, as a part of the step without a
    profiler."""
    exposed = {device: part for device, part in exposed_transfers(trace).items() if device[0] == rank}
    most_ns = largest_per_step_ns(trace, exposed)
    whole = Quantity.ms(most_ns, 0.0, most_ns)
    return scaled(whole, unprofiled_ratio(pricers(trace)[rank], step_without_profiler_ns(trace, rank)))


def bound_price(finding: Finding, trace: Trace) -> Quantity:
    """At most the claimed device time per step, in ms; at least nothing."""
    high_ms = claimed_ms_per_step(finding.claim, trace)
    expected = finding.claim.expected
    value_ms = high_ms if expected is None else claimed_ms_per_step(Claim(expected), trace)
    return Quantity(value_ms, "ms", low=0.0, high=high_ms)


def claimed_ms_per_step(claim: Claim, trace: Trace) -> float:
    """Claimed time within the steady steps, averaged over them, on the device where it is largest."""
    return largest_per_step_ns(trace, claim.intervals) / NS_PER_MS


def busy_ms(rank: int, trace: Trace) -> float:
    """The time per step in which the device of a rank that works least runs anything."""
    lines = device_timeline(trace).by_device.items()
    busy = (per_step_ns(trace, device, line.busy) for device, line in lines if device[0] == rank)
    return min(busy, default=0.0) / NS_PER_MS


def held_ms(rank: int, trace: Trace) -> float:
    """The most that any rank needs per step which this one exchanges with, with kernels that take no longer beside
    exchanges: no step of theirs is shorter. The stages of a pipeline need what they fill and drain in."""
    line, plan = pipeline(trace), schedule(trace)
    if line is not None and plan is not None and rank in line.ranks:
        return (max(plan.stage_ns) if plan.is_continuous else plan.filled_ns(plan.items, plan.chunks)) / NS_PER_MS
    together = _exchanging(trace)
    if rank not in together:
        return 0.0
    needed, slowed = needed_ms(trace), slowed_ns(trace)
    return max(needed[one] - slowed.get(one, 0.0) / NS_PER_MS for one in together & needed.keys())


def _hidden_by_all(rank: int, trace: Trace) -> float:
    """The share of what a rank wins by hiding its transfers that its job wins: what the rank wins that hides least,
    for which the others wait. What a rank needs less than another of the step, it has to spare."""
    exposed, needed = dict[int, float](), needed_ms(trace)
    for key, part in exposed_transfers(trace).items():
        exposed[key[0]] = max(exposed.get(key[0], 0.0), per_step_ns(trace, key, part) / NS_PER_MS)
    most_ms = held_ms(rank, trace)
    least_ms = min((ms + max(most_ms - needed.get(one, most_ms), 0.0) for one, ms in exposed.items()), default=0.0)
    return min(least_ms / exposed[rank], 1.0) if most_ms and exposed.get(rank) else 1.0


@remembered
def needed_ms(trace: Trace) -> Mapping[int, float]:
    """By rank, what its device that works least needs per step: all it runs but waiting for other ranks."""
    transfers, needed = exposed_transfers(trace), dict[int, float]()
    for key, line in device_timeline(trace).by_device.items():
        waiting = line.exposed_communication - transfers.get(key, Intervals.none())
        of_device = per_step_ns(trace, key, line.busy - waiting) / NS_PER_MS
        needed[key[0]] = min(of_device, needed.get(key[0], of_device))
    return needed
