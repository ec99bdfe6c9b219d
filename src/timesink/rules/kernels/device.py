"""Rules on kernels that leave much of the device unused: small or tiny ones, streams in turns, a low clock."""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.judge import Fact, Rows
from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule
from timesink.diagnosis.verdicts import Bottleneck, Clear, Evidence, NotApplicable, Quantity, Undecided, Verdict
from timesink.diagnosis.words import of_period
from timesink.fixes import table as fixes
from timesink.measures.counters.sampled import low_activity, slow_clocks
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.small_grids import grids_known, serialized_streams, small_grids
from timesink.measures.kernels.tiny_kernels import tiny_kernels
from timesink.measures.steps.per_step import period_ns
from timesink.model.record import replace
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    GPU_METRICS,
    GRAPH_NODES,
    HOST_OPS,
    RANGES,
)
from timesink.model.trace import Trace
from timesink.rules.kernels import KERNEL_READS, LINE_READS, STEADY, kernel_row, kernel_rule
from timesink.whatif.change import Case

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
    most = of_period(trace, runs.device, won.measured.value * period_ns(trace, runs.device))
    return Undecided(
        f"{runs.rows.size} small kernels of device {runs.device[1]} follow each other on one stream, and whether one "
        f"needs another the trace does not say: if none does, {_STREAMS} streams win at most {most}",
        f"timesink plan TRACE --change 'streams {_STREAMS}', for the part of the program that is independent",
    )


def _won(trace: Trace, runs: OneStreamRuns, limit: float) -> Evidence:
    change, step_ns = fixes.INDEPENDENT_STREAMS.change(runs, _STREAMS), period_ns(trace, runs.device)
    share = saved_per_step_ns(trace, change, Case.EXPECTED) / step_ns if step_ns else 0.0
    return Evidence(
        f"time that {_STREAMS} streams would win of small kernels of device {runs.device[1]}",
        Quantity(share, "ratio"),
        f"independent kernels on several streams{STEADY}",
        Quantity(limit, "ratio"),
        "device_ops",
        change.longest(trace),
    )


RULES: Final = (
    kernel_rule(
        "KRN107",
        "small-grids",
        rows=_small_grids,
        fix=fixes.BATCH_SMALL_CALLS,
        bottleneck=Bottleneck.OCCUPANCY,
        subject="kernels with fewer blocks than multiprocessors",
        how="kernels keep {fixes.grids_spread:words} the share of multiprocessors they fill",
        advice="Cut the work into more blocks: split long rows or the inner dimension, batch several inputs, or run "
        "independent kernels of this kind at once.",
        otherwise="",
        verify="Capture again: the kernel that does this work has at least one block per multiprocessor and is "
        "shorter.",
        limits={"saved_ratio": Limit.ratio(0.03, "fewer than three steps in a hundred are won back", HEALTHY)},
        reads=(*KERNEL_READS, EVENT_WAITS),
        references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#occupancy",),
    ),
    Rule(
        "KRN110",
        _check_one_stream,
        needs=(DEVICE_OPS,),
        reads=(API_CALLS, HOST_OPS, RANGES, DEVICES, GPU_METRICS, GRAPH_NODES),
        limits={"saved_ratio": Limit.ratio(0.05, "streams are work: they should win one step in twenty", HEALTHY)},
        references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#streams",),
        name="one-stream",
    ),
    kernel_rule(
        "KRN111",
        "tiny-kernels",
        rows=_tiny,
        fix=fixes.FUSE_TINY_KERNELS,
        bottleneck=Bottleneck.POINTWISE_UNFUSED,
        subject="kernels under {kernels.tiny_us}",
        how="{fixes.tiny_merged:words} of such kernels are merged into others, and what starting one takes goes",
        words="{kernels:.0f} of {of:.0f} kernels, on a device that is busy {busy_ratio:share}",
        facts=(
            Fact("kernels", "{subject} per step on device {device}", "kernels", "counted in the steady steps"),
            Fact("busy_ratio", "busy time of device {device}", "ratio", "over the steady steps", shown="missed"),
        ),
        advice="Fuse them (torch.compile, foreach or fused forms), or batch inputs so that one kernel does the work of "
        "many; a CUDA graph alone leaves this time as it is.",
        verify="Capture again: there are fewer kernels per step, and the step is shorter.",
        otherwise="no kernel is shorter than {kernels.tiny_us}",
        limits={
            "kernels": Limit(100, "kernels", "fewer are soon fused by hand, and win little", HEALTHY, passes=">="),
            "busy_ratio": Limit.ratio(0.9, "a device that waits longer is short of launches", HEALTHY, passes=">="),
            "saved_ratio": Limit.ratio(0.1, "merging kernels is work: it should win one step in ten", HEALTHY),
        },
        references=("https://docs.pytorch.org/docs/stable/torch.compiler.html",),
        symptom=True,
    ),
    kernel_rule(
        "KRN112",
        "busy-not-working",
        rows=_idle_multiprocessors,
        fix=fixes.FILL_DEVICE,
        bottleneck=Bottleneck.OCCUPANCY,
        subject="kernels that keep few multiprocessors at work",
        how="kernels keep {fixes.grids_spread:words} the share of multiprocessors that were active",
        words="kernels run {busy_ratio:share} of the time, and {active_ratio:share} of the multiprocessors are active "
        "while they do",
        facts=(
            Fact(
                "active_ratio",
                "multiprocessors active while kernels run on device {device}",
                "ratio",
                "{samples} samples in the steady steps",
                "gpu_metrics",
                shown="always",
            ),
            Fact("busy_ratio", "busy time of device {device}", "ratio", "over the steady steps", shown="missed"),
        ),
        advice="Cut the work into more blocks, batch several inputs, or run independent kernels at the same time.",
        otherwise="",
        verify="Capture again with the counters: more multiprocessors are active, and the step is shorter.",
        limits={
            "saved_ratio": Limit.ratio(0.05, "fewer than one step in twenty is won back", HEALTHY),
            "busy_ratio": Limit.ratio(0.5, "a device that mostly waits has a larger loss", HEALTHY, passes=">="),
        },
        needs=(DEVICE_OPS, GPU_METRICS),
        reads=(*LINE_READS, API_CALLS, RANGES, DEVICES),
        references=("https://docs.nvidia.com/nsight-systems/UserGuide/index.html#gpu-metrics",),
        symptom=True,
        capture=_SAMPLED,
    ),
    kernel_rule(
        "KRN113",
        "clock-throttled",
        rows=_slow_clocks,
        fix=fixes.FULL_CLOCK,
        bottleneck=Bottleneck.CLOCK_THROTTLED,
        subject="kernels below the highest clock",
        how="half of what they would gain at the highest clock",
        words="the clock is {clock_mhz:.0f} MHz, {clock_ratio:share} of the highest",
        facts=(
            Fact(
                "clock_ratio",
                "clock of device {device} while kernels run",
                "ratio",
                "{samples} samples, over {most_mhz:.0f} MHz",
                "gpu_metrics",
            ),
        ),
        advice="Look at nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK for what holds the clock down: a power "
        "cap, heat, or locked clocks.",
        otherwise="",
        verify="Capture again with the counters: the clock is higher while kernels run.",
        limits={
            "clock_ratio": Limit.ratio(
                0.9, "clocks wander by some per cent", "an H100 under load: 1.98 of 1.98 GHz", passes="<"
            ),
            "saved_ratio": Limit.ratio(0.02, "fewer than two steps in a hundred are won back", HEALTHY),
        },
        needs=(DEVICE_OPS, GPU_METRICS, DEVICES),
        reads=(*LINE_READS, API_CALLS, RANGES),
        references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
        symptom=True,
        capture=_SAMPLED,
    ),
    kernel_rule(
        "STR101",
        "stream-serialization",
        rows=_turns,
        fix=fixes.STREAMS,
        bottleneck=Bottleneck.STREAM_SERIALIZATION,
        subject="kernels that wait for one on another stream",
        how="of each pair of neighbours on two streams, what both take longer than at once",
        words="streams {streams} take turns {turns:.0f} times per step, with {waits:.0f} event waits",
        facts=(
            Fact(
                "waits",
                "event waits per step on device {device}",
                "waits",
                "edges or calls that make a stream wait for an event",
            ),
        ),
        advice="Take the event waits between the streams out of the loop and wait once, where a result is needed; keep "
        "work off the default stream.",
        verify="Capture again: kernels of both streams overlap, and the step is shorter.",
        otherwise="kernels ran on one stream only, or always overlapped",
        limits={
            "saved_ratio": Limit.ratio(0.03, "fewer than three steps in a hundred are won back", HEALTHY),
            "waits": Limit(
                4,
                "waits",
                "a step that forks and joins two streams once needs that many waits",
                "fork and join of two streams: two waits each",
            ),
        },
        reads=(*KERNEL_READS, EVENT_WAITS),
        references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#concurrent-kernel-execution",),
    ),
)
