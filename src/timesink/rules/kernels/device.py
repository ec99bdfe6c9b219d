"""Rules on kernels that leave much of the device unused: small or tiny ones, streams in turns, a low clock."""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.judge import Rows
from timesink.diagnosis.rule import Limits, make_rule
from timesink.diagnosis.verdicts import Clear, Evidence, NotApplicable, Quantity, Undecided, Verdict
from timesink.diagnosis.words import of_period
from timesink.fixes import table as fixes
from timesink.measures.counters.sampled import low_activity, slow_clocks
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.small_grids import (
    block_threads,
    blocks_known,
    grids_known,
    serialized_streams,
    small_grids,
    tiny_kernels,
)
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline.replay import pricers
from timesink.model.schema import SHOWN_ROWS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.kernels import kernel_row, kernel_rule
from timesink.whatif import Case

_NO_GRIDS: Final = Undecided(
    "no grid, or no count of multiprocessors, is recorded", "timesink capture nsys -- python train.py"
)
_SAMPLED: Final = "timesink capture nsys --gpu-metrics -- python train.py"
_HZ_PER_MHZ: Final = 1e6
_STREAMS: Final = 4  # those of the page of one-stream


def _small_grids(trace: Trace) -> Rows:
    """Where pages of unified memory move to a kernel, more blocks do not bring them sooner: its gain is a bound."""
    if not grids_known(trace):
        return _NO_GRIDS
    rows = []
    for kernels in small_grids(trace):
        row = kernel_row(trace, fixes.BATCH_SMALL_CALLS.change(kernels))
        rows.append(replace(row, change=None) if kernels.groups["paged"].size else row)
    return rows


def _part_warps(trace: Trace) -> Rows:
    if not blocks_known(trace):
        return _NO_GRIDS
    rows = []
    for kernels in fixes.FILL_WARPS.replay(trace):
        sizes = block_threads(trace)[kernels.rows].value_counts(sort=True).to_series().head(SHOWN_ROWS).to_list()
        rows.append(kernel_row(trace, kernels, sizes=f"{', '.join(map(str, sizes))} thread{'s' * (sizes != [1])}"))
    return rows


def _turns(trace: Trace) -> Rows:
    return [
        kernel_row(
            trace,
            fixes.STREAMS.change(streams.serial),
            waits=streams.waits,
            turns=streams.turns,
            streams=", ".join(map(str, streams.streams)),
        )
        for streams in serialized_streams(trace)
    ]


def _tiny(trace: Trace) -> Rows:
    return [
        kernel_row(
            trace,
            fixes.FUSE_TINY_KERNELS.change(tiny.kernels),
            kernels=tiny.per_step,
            of=tiny.of_per_step,
            busy_ratio=tiny.busy_ratio,
        )
        for tiny in tiny_kernels(trace)
    ]


def _idle_multiprocessors(trace: Trace) -> Rows:
    devices = low_activity(trace)
    if not devices:
        return Undecided("no samples of active multiprocessors were taken while kernels ran", _SAMPLED)
    return [
        kernel_row(
            trace,
            fixes.FILL_DEVICE.change(part.kernels),
            busy_ratio=part.busy_ratio,
            active_ratio=part.active.share,
            samples=part.active.samples,
        )
        for part in devices
    ]


def _slow_clocks(trace: Trace) -> Rows:
    clocks = slow_clocks(trace)
    if not clocks:
        return Undecided("no samples of the clock were taken, or the highest clock is not stated", _SAMPLED)
    return [
        kernel_row(
            trace,
            fixes.FULL_CLOCK.change(clock.kernels),
            clock_ratio=clock.clock_hz / clock.most_hz,
            clock_mhz=clock.clock_hz / _HZ_PER_MHZ,
            most_mhz=clock.most_hz / _HZ_PER_MHZ,
            samples=clock.samples,
        )
        for clock in clocks
    ]


def _check_one_stream(trace: Trace, limits: Limits) -> Verdict:
    """Undecided where several streams could win more than the limit, for a trace shows no dependence."""
    if not grids_known(trace):
        return _NO_GRIDS
    devices = [runs for runs in one_stream_runs(trace) if runs.rows.size]
    if not devices:
        return NotApplicable("no two small kernels follow each other on one stream")
    facts = [(_won(trace, runs, limits["saved_ratio"]), runs) for runs in devices]
    won, runs = max(facts, key=lambda fact: fact[0].measured.value)
    if not won.is_over:
        return Clear(tuple(fact for fact, _ in facts))
    ask = f"timesink plan TRACE --change 'streams {_STREAMS}', for the part of the program that is independent"
    most = of_period(trace, runs.device, won.measured.value * period_ns(trace, runs.device))
    return Undecided(
        f"{runs.rows.size} small kernels of GPU {runs.device[1]} follow each other on one stream, and whether one "
        f"needs another the trace does not say: if none does, {_STREAMS} streams win at most {most}",
        ask if runs.device[0] in pricers(trace) else "mark the steps and record ten: a price is per step",
    )


def _won(trace: Trace, runs: OneStreamRuns, limit: float) -> Evidence:
    change, step_ns = fixes.INDEPENDENT_STREAMS.change(runs, _STREAMS), period_ns(trace, runs.device)
    share = saved_per_step_ns(trace, change, Case.EXPECTED) / step_ns if step_ns else 0.0
    return Evidence(
        f"time that {_STREAMS} streams would save on small kernels of GPU {runs.device[1]}",
        Quantity(share, "ratio"),
        "independent kernels on several streams; over the steady steps",
        Quantity(limit, "ratio"),
        "device_ops",
        change.longest(trace),
    )


RULES: Final = (
    kernel_rule("small-grids", fixes.BATCH_SMALL_CALLS, _small_grids),
    make_rule("one-stream", _check_one_stream),
    kernel_rule("tiny-kernels", fixes.FUSE_TINY_KERNELS, _tiny),
    kernel_rule("busy-not-working", fixes.FILL_DEVICE, _idle_multiprocessors),
    kernel_rule("clock-throttled", fixes.FULL_CLOCK, _slow_clocks),
    kernel_rule("unused-lanes", fixes.FILL_WARPS, _part_warps),
    kernel_rule("stream-serialization", fixes.STREAMS, _turns),
)
