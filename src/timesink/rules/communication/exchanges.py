"""Rules on exchanges between GPUs: exposed, small, repeated or awaited ones, and kernels that they slow down."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.rule import Limits, found_or_clear, make_rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Evidence,
    Finding,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.diagnosis.words import number, of_period, of_step
from timesink.fixes import table as fixes
from timesink.knowledge.assumptions import fixes as assumed
from timesink.measures.communication.collectives import (
    ExchangeRuns,
    SmallCollectives,
    awaited_collectives,
    collective_units,
    exchange_runs,
    repeated_exchanges,
    small_collectives,
)
from timesink.measures.communication.communication import (
    DeviceCommunication,
    communication,
    contention,
    may_communicate,
    unnamed_exchange,
)
from timesink.measures.communication.links import link_curve
from timesink.measures.communication.pipelines import exposed_transfers
from timesink.measures.communication.structures import structures
from timesink.measures.communication.waits import collective_waits
from timesink.measures.steps.per_step import period_ns, share_of_step
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text, time_text
from timesink.whatif.change import Case
from timesink.whatif.changes.host import MergeExchanges

_CAPTURE: Final = "timesink capture torch -- torchrun train.py"


def _exposed(trace: Trace) -> Rows:
    """A device and its communication with no computation beside it, less waiting for the last rank."""
    devices = [device for device in communication(trace) if device.kernel_count]
    if not devices and (name := unnamed_exchange(trace)) is not None:
        return Undecided(
            f"ranges named like an exchange launch {name} on a stream of their own: no library known to timesink",
            "timesink show lists these kernels: if they communicate, their time with none beside them counts",
        )
    return [_exposed_row(trace, device) for device in devices]


def _exposed_row(trace: Trace, device: DeviceCommunication) -> Row:
    key = (device.rank, device.device)
    waited = collective_waits(trace).matched.calls.height > 0
    exposed = exposed_transfers(trace)[key]

    def place() -> Where:
        names = communication(trace).by_name
        own = names.filter((names["rank"] == device.rank) & (names["device"] == device.device))
        return Where(rank=device.rank, device=device.device, kernel=own["name"].to_list()[0])

    barriers_ns = communication(trace).barriers_ns(key)
    figures = {
        "exposed_ratio": share_of_step(trace, key, exposed),
        "rank": device.rank,
        "overlap_ratio": device.overlap_ratio or 0.0,
        "barriers_ratio": barriers_ns / max(device.total_ns, 1) if barriers_ns else None,
        "waited": "and less waiting for the last rank" if waited else None,
        "late": None if waited else "read all ranks together first: a late peer shows as communication",
    }
    change, how = fixes.OVERLAP_COLLECTIVES.change(), structures(trace).get(key, "")
    return Row(key, figures, exposed, change=change, where=place, variant=how)


def _awaited(trace: Trace) -> Iterator[Row]:
    for awaited in awaited_collectives(trace):
        rank, device = awaited.device
        share = share_of_step(trace, awaited.device, awaited.idle)
        figures = {"idle_ratio": share, "rank": rank, "count": awaited.count, "call": awaited.call}
        where = Where(rank=rank, device=device, op=awaited.call)
        yield Row(awaited.device, figures, awaited.idle, where=where)


def _contended(trace: Trace) -> Iterator[Row]:
    """Overlap that slows kernels may still be the best there is: nothing says that any of it can be won. Of the second
    turns of kernels that hold every multiprocessor nothing is."""
    if not any(one.kernel_count for one in communication(trace)):
        return
    for row in contention(trace).iter_rows(named=True):
        device = (row["rank"], row["device"])
        span_ns = device_timeline(trace)[device].span_ns
        share = max(0.0, row["excess_ns"] / span_ns) if span_ns else 0.0
        lost_ns = share * period_ns(trace, device)
        figures = {
            "excess_ratio": share,
            "rank": device[0],
            "kernels": number(row["kernels"], "kernel takes", "kernels take"),
            "slower_ratio": row["excess_ns"] / max(row["beside_ns"] - row["excess_ns"], 1),
            "lost": of_period(trace, device, lost_ns),
        }
        yield Row(device, figures, stated=Quantity.ms(0.0, 0.0, lost_ns))


def _check_small(trace: Trace, limits: Limits) -> Verdict:
    """Found for the GPU that loses most to rows of small collectives, or whose small collectives are exposed longest,
    if long enough."""
    by_loss = sorted(exchange_runs(trace), key=lambda runs: -runs.lost.total_ns)
    if rows := [found for runs in by_loss if (found := _judge_rows(trace, limits, runs)) is not None]:
        return found_or_clear(rows[:1])
    collectives = small_collectives(trace) if may_communicate(trace) else None
    if collectives is None or not collectives.calls.height:
        return NotApplicable("the trace holds no collectives")
    if collectives.calls["bytes"].null_count() == collectives.calls.height:
        return Undecided("no collective's size is recorded", "timesink capture torch -- torchrun train.py")
    judged = [_judge_small(collectives, device, limits) for device in collectives.devices]
    findings = [one for one in judged if isinstance(one, Finding)]
    return found_or_clear(findings[:1] or chain.from_iterable(pair for pair in judged if not isinstance(pair, Finding)))


def _judge_rows(trace: Trace, limits: Limits, runs: ExchangeRuns) -> Finding | None:
    """Of exchanges one after the other one is left, on every rank."""
    lost = Evidence(
        f"time without computation while GPU {runs.device[1]} is given small exchanges",
        Quantity(share_of_step(trace, runs.device, runs.lost), "ratio"),
        "from the launch of the first of a row to that of the last, over the steady steps",
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="device_ops",
    )
    count = Evidence(
        f"small exchanges one after the other per step of rank {runs.device[0]}",
        Quantity(runs.per_step, "calls"),
        "launched with no product between them, over the steady steps",
        limit=Quantity(limits["per_step"], "calls"),
    )
    if not (count.is_over and lost.is_over):
        return None
    every = {thread: part for one in exchange_runs(trace) for thread, part in one.host.items()}
    return Finding(
        message=f"GPU {runs.device[1]} computes nothing for {of_step(trace, runs.device, runs.lost)} while the CPU of "
        f"rank {runs.device[0]} launches {runs.per_step:.0f} small exchanges, {runs.in_row:.0f} in a row",
        bottleneck=Bottleneck.COMMUNICATION_SMALL,
        where=Where(rank=runs.device[0], device=runs.device[1]),
        evidence=(lost, count),
        advice="Make one exchange of each row: flatten tensors, stack figures; read none before the last.",
        verify="Capture again: fewer exchanges per step, and the GPU waits less for the CPU.",
        claim=Claim({runs.device: runs.lost}),
        change=MergeExchanges.rows(every, runs.in_row),
        fix=fixes.BUCKETS,
    )


_MEASURED = " (below it latency is most of the time: measured by nccl-bench)"


def _judge_small(
    collectives: SmallCollectives, device: tuple[int, int], limits: Limits
) -> Finding | tuple[Evidence, Evidence]:
    curve = link_curve(collectives.trace)
    measured = None if curve is None else curve.small_bytes()
    small_bytes = int(limits["small_bytes"]) if measured is None else measured
    small = collectives.of(device, small_bytes)
    count = Evidence(
        f"small collectives per step of rank {device[0]}, GPU {device[1]}",
        Quantity(small.per_step, "calls"),
        f"collectives of less than {bytes_text(small_bytes)}{_MEASURED if measured else ''} over the steady steps",
        limit=Quantity(limits["per_step"], "calls"),
        table="collectives",
    )
    share = Evidence(
        "their exposed transfer",
        Quantity(small.exposed_ratio, "ratio"),
        "transfer with no computation beside it, over the steady steps",
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="collectives",
    )
    if not (count.is_over and share.is_over):
        return count, share
    return Finding(
        message=f"{small.per_step:.0f} collectives of less than {bytes_text(small_bytes)} in a step stand "
        f"exposed for {time_text(small.exposed_step_ns)} of it on rank {device[0]} ({share_text(small.exposed_ratio)}"
        f"); half of them take {time_text(small.p50_ns)} or less",
        bottleneck=Bottleneck.COMMUNICATION_SMALL,
        where=Where(rank=device[0], device=device[1]),
        evidence=(count, share),
        advice="Merge small collectives: larger buckets (bucket_cap_mb), flattened tensors, one for all metrics.",
        verify="Capture again: fewer collectives per step, and the exposed transfer falls.",
        claim=Claim({device: small.exposed}),
        stated=Quantity.ms(small.exposed_step_ns, 0.0, small.exposed_step_ns + small.launch_step_ns),
    )


def _repeated(trace: Trace) -> Rows:
    """The device that loses most to exchanges that could be left out: they are exposed, or slow kernels down."""
    rows = []
    for one in repeated_exchanges(trace):
        change = fixes.NO_SYNC.change(one.early, one.slowed)
        slowed = change.kernels.beside.saved(trace, Case.EXPECTED) if change.kernels.beside else Intervals.none()
        claim = one.exposed | slowed
        figures = {
            "exposed_ratio": share_of_step(trace, one.device, claim),
            "rank": one.device[0],
            "times": one.times,
            "step_bytes": one.step_bytes,
            "least_bytes": one.step_bytes / one.times,
            "lost": of_step(trace, one.device, claim),
        }
        where = Where(rank=one.device[0], device=one.device[1], op="DistributedDataParallel.forward")
        rows.append(Row(one.device, figures, claim=Claim({one.device: claim}), change=change, where=where))
    return sorted(rows, key=lambda row: -row.figures["exposed_ratio"])[:1]


def _units(trace: Trace) -> Iterator[Row]:
    """A device that waits while the host launches many small collectives between products."""
    for units in collective_units(trace):
        unit_bytes = None if units.step_bytes is None else units.step_bytes / units.per_step
        if unit_bytes is not None and unit_bytes > assumed.UNIT_BYTES.value:
            continue
        figures = {
            "idle_ratio": share_of_step(trace, units.device, units.idle),
            "per_step": units.per_step,
            "unit_bytes": unit_bytes,
            "lost": of_step(trace, units.device, units.idle),
        }
        where = Where(rank=units.device[0], device=units.device[1])
        yield Row(units.device, figures, units.idle, change=fixes.BUCKETS.change(units.host, unit_bytes), where=where)


RULES: Final = (
    declare("communication-exposed", _exposed, fix=fixes.OVERLAP_COLLECTIVES),
    make_rule("communication-small", _check_small),
    declare("kernels-contended", _contended),
    declare("exchange-repeated", _repeated, fix=fixes.NO_SYNC),
    declare("collective-awaited", _awaited),
    declare("units-small", _units, fix=fixes.BUCKETS),
)
