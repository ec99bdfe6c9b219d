"""Rules on the ranks of a job: a late one, many that take turns, the stages of a pipeline."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Claim, NotApplicable, OfPeriod, Quantity, Undecided, Where
from timesink.diagnosis.words import number, slowest_step_text
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.depths import cut_stages_ns, depths, layer_ns, waiting_slowdown
from timesink.measures.communication.pipelines import (
    Pipeline,
    Schedule,
    ideal_bubble,
    paced_by_host,
    pipeline,
    schedule,
)
from timesink.measures.communication.stage_traces import stages_of
from timesink.measures.communication.waits import CollectiveWaits, collective_waits, exposed_waits
from timesink.measures.ranks.job import as_often_ns, ranks_of, step_ns
from timesink.measures.ranks.lateness import (
    Lateness,
    LatestRank,
    even_gain,
    lateness,
    lateness_if_exact,
    latest_rank,
    left_by_balance,
    may_hide,
)
from timesink.measures.ranks.paces import estimated_step_ns
from timesink.measures.ranks.parity import ranks_text
from timesink.measures.ranks.worth import may_be_recording, worth_of_rank
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.known import trains
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.rules.communication._reasons import SaidReason, said_in_turn, said_reason
from timesink.units import NS_PER_MS, share_text, time_text

_CAPTURE: Final = "timesink capture torch -- torchrun train.py"


# What a rank is late by: where it shows, and what to ask next.
SIDES = {
    "host_ns": ("its CPU", "what does its CPU do between collectives?"),
    "device_ns": ("more work on its GPU", "which kernels does it run beyond theirs?"),
    "network_ns": ("slower transfers to and from it", "which link, adapter or route do its transfers take?"),
}


def _latest(trace: Trace, limits: Limits) -> Rows:
    """The rank without whose lateness the job gains most: found if that is enough and more than half of it all."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    waits = collective_waits(trace)
    if not waits.matched.calls.height:
        return NotApplicable("no collective of one rank has a counterpart on another")
    late = lateness(trace)
    if late.anchors.size < limits["collectives"]:
        return Undecided(few_text(late), "capture more steps, of every rank")
    worst = latest_rank(late, waits.job.ranks)
    if worst.is_late(limits["gain_ratio"]):
        row, late_by = late.of_rank(worst.rank)
        if may_be_recording(trace, worst.rank, worst.gain_ratio, late_by):
            held = f"rank {worst.rank}'s CPU holds the step up for {share_text(worst.gain_ratio)}"
            return Undecided(f"{held}, no more than recording adds", "timesink capture nsys -- torchrun train.py")
        return [_late_row(trace, worst, row, late_by)]
    figures = {"rank": worst.rank, "gain_ratio": worst.gain_ratio}
    is_open = may_hide(waits, late, limits["gain_ratio"])
    unsure = unsure_text(waits, lateness_if_exact(trace), limits["gain_ratio"]) if is_open else ""
    if not worst.has_most:
        figures = {"rank": worst.rank, "own_ratio": worst.own_ratio}
    lone = [Row((worst.rank, -1), figures, verdict=False)]
    return Undecided(unsure, f"more steps of every rank: {_CAPTURE}") if unsure else lone


def few_text(late: Lateness) -> str:
    """That nobody can be called late by so few collectives."""
    held = number(late.anchors.size, "collective holds", "collectives hold")
    return f"{held} all ranks up, too few to tell one late arrival from a late rank"


def unsure_text(waits: CollectiveWaits, late: Lateness, limit_ratio: float) -> str:
    """That a rank may be late, and that clocks leave it open; empty where, if they are exact, none is by so much."""
    likely = latest_rank(late, waits.job.ranks)
    if not likely.is_late(limit_ratio):
        return ""
    return f"rank {likely.rank} may hold the step up for {share_text(likely.gain_ratio)}, but {_agreement(waits)}"


def _agreement(waits: CollectiveWaits) -> str:
    """How far the clocks of the ranks are known."""
    error_ns = waits.clocks.worst_error_ns
    return "nothing limits how far clocks are apart" if error_ns is None else f"clocks agree to {time_text(error_ns)}"


def _late_by_cpu(trace: Trace, device: Device, held_ns: float) -> Intervals:
    """The longest stretches, of `held_ns` a step together, in which a late rank's GPU neither computes nor exchanges:
    the same time as its peers wait for it, earlier in the step, whatever its CPU does in it."""
    line = device_timeline(trace)[device]
    still = Intervals.one(line.span_start_ns, line.span_end_ns) - line.compute - line.exposed_communication
    share = min(1.0, held_ns / max(per_step_ns(trace, device, still), 1.0))
    longest = np.argsort(-still.lengths_ns, kind="stable")
    taken_before = still.lengths_ns[longest].cumsum() - still.lengths_ns[longest]
    kept = longest[taken_before < share * still.total_ns]
    return Intervals.union_of(still.start_ns[kept], still.end_ns[kept])


def _late_row(trace: Trace, worst: LatestRank, row: Mapping[str, Any], late_by: str) -> Row:
    waits, rank, gain = collective_waits(trace), worst.rank, worst.gain_ratio
    (side, question), worth = SIDES[late_by], worth_of_rank(trace, rank, gain, late_by)
    held_ns, period = as_often_ns(trace, max(gain, worth.gain_ns / worth.step_ns))
    members = waits.job.members
    device, host = members.filter(members["rank"] == rank).select("device", "host").row(0)
    claim = {key: part for key, part in exposed_waits(trace).items() if key[0] != rank}
    why = said_reason(trace, (rank, device), late_by, held_ns)
    if late_by == "host_ns":
        claim[rank, device] = _late_by_cpu(trace, (rank, device), held_ns) | why.intervals
    times = {name: row[f"{name[:-2]}ns"] / NS_PER_MS for name in ("own_ms", "device_ms", "network_ms")}
    held = {"held": _held(trace, held_ns, period)}
    figures = {**row, "gain_ratio": gain, **times, **held, "host": host, "side": side + why.does, "question": question}
    figures |= {"reason_ms": why.excess_ns / NS_PER_MS} if why.does else {}
    stated = Quantity.ms(worth.gain_ns, worth.low_ns, worth.high_ns)
    where = Where(rank=rank, device=device, **why.where)
    return Row(
        (rank, device), figures, claim=Claim(claim), stated=stated, where=where, advice=why.advice, cause=why.rule
    )


def _held(trace: Trace, held_ns: float, period: float) -> OfPeriod:
    return OfPeriod(f"{slowest_step_text(trace)} up for {time_text(held_ns)}", held_ns / period)


_SHARED_SIDES = {
    "host_ns": "on the CPU",
    "device_ns": "in what their GPUs compute",
    "network_ns": "in transfers among some of them",
}


def _uneven(trace: Trace, limits: Limits) -> Rows:
    """Found where all ranks' own lateness together costs enough and no rank has more than half of it."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    waits = collective_waits(trace)
    late = lateness(trace)
    if late.anchors.size < 2:
        return NotApplicable("fewer than two collectives hold all ranks up")
    gain = even_gain(late)
    if gain <= limits["gain_ratio"]:
        is_open = may_hide(waits, late, limits["gain_ratio"])
        if is_open and (likely := even_gain(lateness_if_exact(trace))) > limits["gain_ratio"]:
            late_ranks = f"ranks may be late in turns, for {share_text(likely)}, but {_agreement(waits)}"
            return Undecided(late_ranks, f"more steps of every rank: {_CAPTURE}")
        return [Row((-1, -1), {"gain_ratio": gain})]
    if late.is_of_one:
        return NotApplicable("one rank has more than half of the lateness: it is late, the others are not unequal")
    held_ns, period = as_often_ns(trace, gain)
    held_ms, error = held_ns / NS_PER_MS, assumed.GAIN_ERROR.value
    saved_ms = held_ms * (1 - left_by_balance(late))
    latest = tuple(late.own_ns)
    sums = {name: int(late.ranks[name].sum()) for name in _SHARED_SIDES}
    late_by = max(sums, key=lambda name: sums[name])
    why = said_in_turn(trace, [*_in_turn(trace, late, latest)]) if late_by == "host_ns" else SaidReason()
    figures = {
        "gain_ratio": gain,
        "latest": ranks_text(latest),
        "side": _SHARED_SIDES[late_by] + why.does,
        "held": _held(trace, held_ns, period),
        **{f"{name[:-2]}ms": summed_ns / NS_PER_MS for name, summed_ns in sums.items()},
    }
    stated = Quantity(saved_ms, "ms", saved_ms * (1 - error), held_ms * (1 + error))
    where, claim = Where(rank=latest[0], **why.where), Claim(exposed_waits(trace))
    return [Row((latest[0], -1), figures, where=where, claim=claim, stated=stated, advice=why.advice)]


def _in_turn(trace: Trace, late: Lateness, ranks: Iterable[int]) -> Iterator[tuple[Device, Intervals]]:
    """The GPUs of late ranks, and the time of each in which its CPU makes it late."""
    own, share = dict(late.ranks.select("rank", "host_ns").rows()), step_ns(collective_waits(trace).job) / late.span_ns
    for device in device_timeline(trace).by_device:
        if device[0] in ranks:
            yield device, _late_by_cpu(trace, device, own[device[0]] * share)


_SLOWS: Final = 1.02  # times as long: less is the noise of a step
_ENDLESS: Final = 1 << 20  # items that follow each other without a pause


def _describe_bubble(plan: Schedule) -> str:
    """What fills the bubble, as shares of the step."""
    if plan.is_serial:
        return "One item is in it at a time"
    period = max(plan.period_ns, 1.0)
    return (
        f"With {plan.title} filling and draining takes {share_text(plan.filling_ns / period)} "
        f"(ideal {share_text(plan.ideal_ratio)}), uneven stages {share_text(plan.uneven_ns / period)}, "
        f"and transfers, launches and waiting {share_text(plan.excess_ns / period)}"
    )


class _Filled(Record):
    """What would shorten the step: `gain_ns` at least, as expected, at most."""

    gain_ns: tuple[float, float, float]
    advice: str
    said: str = ""


def _better(trace: Trace, line: Pipeline, plan: Schedule) -> _Filled:
    """More items at a time, more micro-batches or even stages: what wins most."""
    count, many = len(line.ranks), assumed.MICRO_BATCHES.whole * len(line.ranks)
    if plan.is_serial:
        return _together(trace, line, plan, many)
    counts = [n for n in _doublings(max(many, 2 * plan.micro_batches)) if n > plan.micro_batches]
    gains = {n: plan.gain_ns(n, 1.0, cut) for n, cut in cut_stages_ns(trace, line, plan, counts).items()}
    often = max(gains, key=lambda n: gains[n][1])
    more = gains[often]
    movable = max(plan.stage_ns) - min(plan.stage_ns) > layer_ns(trace, line, plan)
    even = tuple(share * plan.uneven_ns for share in (assumed.EVENED.low, assumed.EVENED.value, assumed.EVENED.high))
    cut = (
        f"{often} micro-batches leave an ideal bubble of {share_text(ideal_bubble(count, often, plan.chunks))}, "
        f"{plan.chunks + 1} chunks a rank (interleaved) of "
        f"{share_text(ideal_bubble(count, plan.micro_batches, plan.chunks + 1))}"
    )
    evened = (
        f"Even out the stages: the longest takes {time_text(max(plan.stage_ns))}, the mean {time_text(plan.mean_ns)}"
    )
    is_more = not movable or more[1] >= even[1]
    best, advice = (more, f"Use more micro-batches: {cut}.") if is_more else (even, f"{evened}; {cut}.")
    least, expected, most = (max(0.0, ns) for ns in best)
    if not expected:
        advice = (
            f"Keep {number(plan.micro_batches, 'micro-batch', 'micro-batches')}: more of them cost what they fill, "
        )
        advice += "and the stages differ by less than a layer."
    return _Filled((least, expected, most), advice)


def _doublings(most: int) -> list[int]:
    """2, 4, 8 … up to `most`, and that."""
    return sorted({most} | {1 << power for power in range(1, most.bit_length())})


def _together(trace: Trace, line: Pipeline, plan: Schedule, many: int) -> _Filled:
    """Items that go one at a time, two at a time; where a step has several or ends in an update, all of its."""
    slowdown, apart = waiting_slowdown(trace, line), depths(trace)
    what = "Let the next item enter before the last one has left: two or more at a time"
    if trains(trace):
        cuts = cut_stages_ns(trace, line, plan, _doublings(max(plan.items, many)))
        least, count = max((plan.gain_ns(count, slowdown, cut)[1], count) for count, cut in cuts.items())
        gain = (least + plan.gain_ns(count, 1.0, cuts[count])[1]) / 2  # it waits, nobody knows how seldom
        most = max(plan.gain_ns(count, 1.0)[1] for count in cuts)
        what = f"Let the next item enter before the last one has left: {count} micro-batches (1F1B, GPipe)"
        if gain <= 0:
            what = "Use larger batches: cut smaller, this one costs its CPU and small kernels more than the bubble"
        said = f". With {count} micro-batches {time_text(plan.period_ns - gain)} are predicted"
    elif apart is None:
        least, most = (plan.gain_ns(_ENDLESS, slower)[1] for slower in (slowdown, 1.0))
        gain = (least + most) / 2
        said = f". Overlapped {time_text(plan.period_ns - gain)} are predicted"
    else:
        period_ns = apart.period_ns(2)
        gain, most = plan.period_ns - period_ns, plan.period_ns - max(stage.alone_ns for stage in apart.stages)
        least = gain * (1 - assumed.GAIN_ERROR.high) if apart.measured else 2 * gain - most
        said = f". With two items at a time {time_text(period_ns)} are predicted"
    slow = "" if slowdown < _SLOWS else (
        f"; receives that wait beside a stage make it {share_text(slowdown - 1)} longer: give them fewer channels "
        "(NCCL_MAX_P2P_NCHANNELS)"
    )  # fmt: skip
    figures = (max(0.0, min(least, gain)), max(0.0, gain), max(0.0, most, gain))
    return _Filled(figures, f"{what}; even out the stages{slow}.", said if gain > 0 else "")


def _standing(trace: Trace, limits: Limits) -> Rows:
    """Found where the bubble is larger than its limit."""
    line = pipeline(trace)
    if line is None:
        return NotApplicable(
            "no ranges name stages, and no two ranks mostly send to and receive from each other in steady steps"
        )
    overlap, plan = line.overlap, schedule(trace)
    rank = max(zip(line.ranks, overlap.stages, strict=True), key=lambda at: at[1].time_ns)[0]
    by_host = paced_by_host(trace, trace.unprofiled_step_ns or (estimated_step_ns(trace) or (0.0, 0.0))[1])
    if overlap.bubble_ratio <= limits["bubble_ratio"] or by_host > limits["bubble_ratio"]:
        return [Row((rank, -1), {"bubble_ratio": overlap.bubble_ratio}, verdict=False)]
    assert plan is not None  # there is a pipeline
    found, stages = _better(trace, line, plan), stages_of(trace)
    score = 0.0 if stages is None or stages.score is None else stages.score
    figures = {
        "bubble_ratio": overlap.bubble_ratio,
        "stages": len(line.ranks),
        "how": "" if line.labelled else " (by kernel names)",
        "period_ns": overlap.period_ns,
        "bubble": _describe_bubble(plan),
        "longest_ns": overlap.longest.time_ns,
        "said": found.said,
        "advice": found.advice,
        "score": score,
        "ideal_ratio": plan.ideal_ratio,
        "micro_batches": plan.micro_batches,
        "chunks": plan.chunks,
    }
    standing = {
        key: Intervals.one(part.span_start_ns, part.span_end_ns) - part.compute
        for key, part in device_timeline(trace).by_device.items()
        if key[0] in line.ranks
    }
    stated = Quantity.ms(found.gain_ns[1], *found.gain_ns[::2])
    return [Row((rank, -1), figures, where=Where(rank=rank), claim=Claim(standing), stated=stated)]


RULES: Final = (
    declare("straggler", _latest, asks_limits=True),
    declare("ranks-imbalanced", _uneven, asks_limits=True),
    declare("pipeline-bubble", _standing, asks_limits=True),
)
