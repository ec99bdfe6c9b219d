"""Rules on exchanges between GPUs: exposed, small, repeated or awaited ones, and kernels that they slow down."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Claim, NotApplicable, Quantity, Undecided, Where
from timesink.diagnosis.words import number, of_period, of_step
from timesink.fixes.advised import OVERLAP_COLLECTIVES
from timesink.fixes.transfers import BUCKETS, NO_SYNC, ONE_PROCESS_PER_GPU
from timesink.knowledge.assumptions import fixes as assumed
from timesink.measures.communication import (
    DeviceCommunication,
    communication,
    contention,
    may_communicate,
    unnamed_exchange,
)
from timesink.measures.communication.collectives import (
    ExchangeRuns,
    awaited_collectives,
    collective_units,
    exchange_runs,
    repeated_exchanges,
    small_part,
    transfers,
)
from timesink.measures.communication.links import link_curve
from timesink.measures.communication.pipelines import exposed_transfers
from timesink.measures.communication.structures import REPLICAS, Structure, sent_in_line, structures
from timesink.measures.communication.waits import collective_waits
from timesink.measures.steps.per_step import per_step_ns, period_ns, share_of_step
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text
from timesink.whatif import Case
from timesink.whatif.changes.host import MergeExchanges


def _exposed(trace: Trace) -> Rows:
    """A device and its communication with no computation beside it, less waiting for the last rank."""
    devices = [device for device in communication(trace) if device.kernel_count]
    if not devices and (name := unnamed_exchange(trace)) is not None:
        return Undecided(
            f"ranges named like an exchange launch {name} on a stream of their own: no library known to timesink",
            "timesink show lists these kernels: if they communicate, their time with none beside them counts",
        )
    exposed = exposed_transfers(trace)
    at_work = [device for device in devices if device_timeline(trace)[device.rank, device.device].compute]
    if devices and not at_work:
        shares = (share_of_step(trace, key, exposed[key]) for key in ((one.rank, one.device) for one in devices))
        return Undecided(
            "every kernel that was recorded communicates: what could run beside it was not",
            "record the kernels that compute, too",
            most_ratio=max(shares),
        )
    return [_exposed_row(trace, device) for device in at_work]


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
        "overlapped": f"{share_text(device.overlap_ratio)} of all" if device.overlap_ratio else "No",
        "barriers_ratio": barriers_ns / max(device.total_ns, 1) if barriers_ns else None,
        "waited": "and less waiting for the last rank" if waited else None,
        "late": None if waited else "read all ranks together first: a late peer shows as communication",
    }
    how = structures(trace).get(key, Structure(""))
    if how is REPLICAS:
        return Row(key, figures, exposed, where=place, fix=ONE_PROCESS_PER_GPU, variant=how.name)
    if how.earlier is None:
        return Row(key, figures, exposed, change=OVERLAP_COLLECTIVES.change(), where=place, variant=how.name)
    every_ns, in_line_ns = (per_step_ns(trace, key, part) for part in (exposed, exposed & sent_in_line(trace, key)))
    won = how.earlier
    stated = Quantity.ms(won.value * in_line_ns, won.low * in_line_ns, won.high * every_ns)
    return Row(key, figures, exposed, stated=stated, where=place, variant=how.name)


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


def _small(trace: Trace, limits: Limits) -> Rows:
    """The GPU that loses most to rows of small exchanges, or the first whose small collectives are many and exposed for
    long enough; where there is none, all that have any."""
    by_loss = sorted(exchange_runs(trace), key=lambda runs: -runs.lost.total_ns)
    if rows := [row for row in (_in_rows(trace, runs) for runs in by_loss) if _is_over(row, limits)]:
        return rows[:1]
    calls = transfers(trace) if may_communicate(trace) else None
    if calls is None or not calls.height:
        return NotApplicable("the trace holds no collectives")
    if calls["bytes"].null_count() == calls.height:
        return Undecided("no collective's size is recorded", "timesink capture torch -- torchrun train.py")
    devices = calls.select("rank", "device").unique().sort("rank", "device").rows()
    every = [_of_size(trace, calls, device, limits) for device in devices]
    return [row for row in every if _is_over(row, limits)][:1] or every


def _is_over(row: Row, limits: Limits) -> bool:
    return all(row.figures[name] > limits[name] for name in ("per_step", "exposed_ratio"))


def _in_rows(trace: Trace, runs: ExchangeRuns) -> Row:
    """Of exchanges one after the other one is left, on every rank."""
    every = {thread: part for one in exchange_runs(trace) for thread, part in one.host.items()}
    figures = {
        "rank": runs.device[0],
        "exposed_ratio": share_of_step(trace, runs.device, runs.lost),
        "per_step": runs.per_step,
        "in_row": runs.in_row if round(runs.in_row) < round(runs.per_step) else None,
        "lost": of_step(trace, runs.device, runs.lost),
        "counted": "launched with no matmul between them",
    }
    change = MergeExchanges.rows(every, runs.in_row)
    claim = Claim({runs.device: runs.lost})
    return Row(runs.device, figures, change=change, claim=claim, fix=BUCKETS, variant="rows")


def _of_size(trace: Trace, calls: pl.DataFrame, device: Device, limits: Limits) -> Row:
    curve = link_curve(trace)
    measured = None if curve is None else curve.small_bytes()
    small_bytes = int(limits["small_bytes"]) if measured is None else measured
    small = small_part(trace, calls, device, small_bytes)
    exposed_ns = per_step_ns(trace, device, small.exposed)
    latency = " (below it latency is most of the time: measured by nccl-bench)" if measured else ""
    figures = {
        "rank": device[0],
        "exposed_ratio": share_of_step(trace, device, small.exposed),
        "per_step": small.per_step,
        "size": bytes_text(small_bytes),
        "exposed_ns": exposed_ns,
        "p50_ns": small.p50_ns,
        "counted": f"collectives of less than {bytes_text(small_bytes)}{latency}",
    }
    stated = Quantity.ms(exposed_ns, 0.0, exposed_ns + small.launch_step_ns)
    return Row(device, figures, claim=Claim({device: small.exposed}), stated=stated, variant="sizes")


def _repeated(trace: Trace) -> Rows:
    """The device that loses most to exchanges that could be left out: they are exposed, or slow kernels down."""
    rows = []
    for one in repeated_exchanges(trace):
        change = NO_SYNC.change(one.early, one.slowed)
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
        change, where = (
            BUCKETS.change(units.host, unit_bytes),
            Where(rank=units.device[0], device=units.device[1]),
        )
        variant = "sums" if units.sums else ""
        yield Row(units.device, figures, units.idle, change=change, where=where, variant=variant)


RULES: Final = (
    declare("communication-exposed", _exposed, fix=OVERLAP_COLLECTIVES),
    declare("communication-small", _small, asks_limits=True),
    declare("kernels-contended", _contended),
    declare("exchange-repeated", _repeated, fix=NO_SYNC),
    declare("collective-awaited", _awaited),
    declare("units-small", _units, fix=BUCKETS),
)
