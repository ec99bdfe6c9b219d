"""The sentences that a team writes down of a run: where the time goes, what overlaps, what the compiler made of
it. Each is true or absent: shares sum to the time they are of, and what the trace does not show is not said."""

from typing import Final

import polars as pl

from timesink.diagnosis.words import number, per_what, period_text
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage, pipeline
from timesink.measures.compile.summary import compile_counters
from timesink.measures.counters.sampled import sampled
from timesink.measures.steps import steps
from timesink.measures.steps.engine import engine_late
from timesink.measures.steps.parts import pacing_windows, step_kinds
from timesink.measures.steps.per_step import per_step_ns, period_ns, step_windows
from timesink.measures.steps.phases import host_phases, micro_batches, phases
from timesink.measures.steps.slow_steps import of_usual_steps, slow_rates
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.known import is_silent
from timesink.measures.timeline.ranges import Phase, serving_phases
from timesink.measures.timeline.synchronisations import synchronised_ranges
from timesink.model.intervals import Intervals
from timesink.model.tables import COMPILE_EVENTS
from timesink.model.trace import Trace
from timesink.units import NS_PER_S, NS_PER_US, share_text, time_text

_PARTS_SHOWN: Final = 3  # as many as fit in a sentence
_LEAST_SHOWN: Final = 5e-5  # of the time: less would be said to be 0.00 %
_DOMINANT: Final = 1 / 3  # of the step: less is one part among others
_DECODE_STEPS: Final = 3  # fewer say nothing of how often they come
_WORTH_HIDING: Final = 0.01  # of the step


def statements(trace: Trace) -> tuple[str, ...]:
    """Attribution, tokens of a server, the host's phase, counters, overlap, compilation: what the trace supports."""
    trace = of_usual_steps(trace)
    of_each = (_attribution, _serving, _host, _counters, _overlap, _compilation)
    return tuple(filter(None, [sentence(trace) for sentence in of_each]))


def _attribution(trace: Trace) -> str:
    if not _span_ns(trace):
        return ""
    blocked = synchronised_ranges(trace).attribution_only
    how = _with_facts(trace, "block-profiled: attribution, not throughput" if blocked else "as profiled")
    passes = micro_batches(trace) or 1
    updates = f"; {passes} micro-batches to an optimizer step" if passes > 1 else ""
    return f"attribution: {_phase_shares(trace) or _range_shares(trace) or _part_shares(trace)} ({how}){updates}"


def _with_facts(trace: Trace, text: str) -> str:
    """``at resolution=512, batch=8, as profiled``: what the run was, as its author said, before the text."""
    facts = ", ".join(f"{name}={value}" for name, value in trace.facts.items())
    return f"at {facts}, {text}" if facts else text


def _phase_shares(trace: Trace) -> str:
    """Prefill and decode of a serving engine; '' where no engine step was recorded."""
    engine = [phase for phase in serving_phases(trace) if phase.device_ns]
    total_ns = sum(phase.device_ns for phase in engine)
    shares = [
        f"{phase.phase.value} ({number(phase.steps, 'engine step')}) is {share_text(phase.device_ns / total_ns)}"
        for phase in engine
    ]
    return f"{', '.join(shares)} of the GPU time of engine steps" if shares else ""


def _range_shares(trace: Trace) -> str:
    """What of the step the GPU spent on work of the program's largest ranges, and idle; '' where fewer than two of them
    launched work."""
    found = phases(trace)
    named = found.frame.drop_nulls("phase")
    if named.height < 2:
        return ""
    shown = named.head(_PARTS_SHOWN)
    outside_ns = int(found.frame.filter(pl.col("phase").is_null())["time_ns"].sum())
    others_ns = int(named["time_ns"].sum()) - int(shown["time_ns"].sum())
    idle_ns = _span_ns(trace) - found.busy_ns
    rest = [("other ranges", others_ns), ("outside ranges", outside_ns), ("idle", idle_ns)]
    return _shares(trace, [*shown.iter_rows(), *rest])


def _part_shares(trace: Trace) -> str:
    """The kinds of device work, and the idle time."""
    return _shares(trace, sorted(step_kinds(trace).items(), key=lambda one: (-one[1], one[0])))


def _span_ns(trace: Trace) -> int:
    return sum(step_kinds(trace).values())


def _shares(trace: Trace, times: list[tuple[str, int]]) -> str:
    """``of the 2.79 ms step, forward is 40.0 %, backward 52.1 %, idle 7.9 %``: together all of it."""
    span_ns, count = _span_ns(trace), pacing_windows(trace).height
    mean = f"{_mean_step(trace)} of " if steps(trace).times.count > 1 else ""
    of = f"the {mean}{time_text(span_ns / max(count, 1))}"
    named = [f"{name} {share_text(ns / span_ns)}" for name, ns in times if ns > _LEAST_SHOWN * span_ns]
    return f"of {of}, {', '.join(named)}".replace(f", {times[0][0]} ", f", {times[0][0]} is ", 1)


def _mean_step(trace: Trace) -> str:
    """What the mean of the steps as they are is called: not by slow steps as often as they come, as other means."""
    return "mean recorded step" if slow_rates(trace) else "mean step"


def _serving(trace: Trace) -> str:
    """How often a serving engine makes a token for each request, and how many in a second as far as requests are known;
    '' where the trace does not hold several steps of an engine."""
    decoding = [one for one in serving_phases(trace) if one.phase is Phase.DECODE and one.requests and one.period_ns]
    if not decoding or len(decoding[0].periods_ns) < _DECODE_STEPS:
        return _engine(trace)
    found = decoding[0]
    assert found.requests and found.period_ns
    rate = found.requests * NS_PER_S / found.period_ns
    return (
        f"serving: a decode step of {found.requests:,.0f} requests on average begins every "
        f"{time_text(found.period_ns)} (the median of {len(found.periods_ns)}): the time per output token, and "
        f"{rate:,.0f} tokens/s, if each request gets one token a step{_host_parts(trace)}"
    )


def _engine(trace: Trace) -> str:
    """The same of an engine whose steps say nothing of their requests."""
    times = steps(trace).times
    if not engine_late(trace) or times.p50_ns is None or times.count < _DECODE_STEPS:
        return ""
    return (
        f"serving: an engine step begins every {time_text(times.p50_ns)} (the median of {times.count}): the time per "
        f"output token, if each request gets one token a step{_host_parts(trace)}"
    )


def _host_parts(trace: Trace) -> str:
    """What the engine's thread does in a step, and how long the device waits for it."""
    engines = engine_late(trace)
    if not engines:
        return ""
    one = max(engines, key=lambda engine: engine.late_ns)
    waits = f"waits {time_text(one.late_ns)} for it" if one.late_ns >= NS_PER_US else "does not wait for it"
    return (
        f"; on average its thread is {time_text(one.host_ns)} of a step in code between CUDA calls and "
        f"{time_text(one.blocked_ns)} in blocking calls, and the GPU {waits}"
    )


def _host(trace: Trace) -> str:
    """The range in which the program's thread spends more than a third of the step; '' where there is none."""
    found = host_phases(trace)
    if not found.frame.height or found.frame["time_ns"][0] <= _DOMINANT * found.busy_ns:
        return ""
    name, time_ns = found.frame.row(0)
    period = _mean_step(trace) if steps(trace).times.count else "window"
    each = max(found.step_count, 1)
    return (
        f"CPU: the program's thread is in {name} for {time_text(time_ns / each)} of the {period} of "
        f"{time_text(found.busy_ns / each)} ({_with_facts(trace, share_text(time_ns / found.busy_ns))})"
    )


def _counters(trace: Trace) -> str:
    """What hardware counters say of the steady steps of the first device that has samples."""
    for device in device_timeline(trace).by_device:
        start, end = step_windows(trace, device)
        if means := sampled(trace, device, Intervals(start, end)):
            shares = ", ".join(f"{mean.what} {share_text(mean.share)}" for mean in means)
            samples = number(max(mean.samples for mean in means), "sample")
            return f"counters: on average over {period_text(trace, device)}, {shares} ({samples}, GPU {device[1]})"
    return ""


def _overlap(trace: Trace) -> str:
    """How well computation, communication and copies hide each other in a steady step of the device with the longest
    span: hidden time over what could be hidden; '' where one of them takes nearly all the time, and for the stages of a
    pipeline, whose receives are waits for the stage before."""
    lines = sorted(device_timeline(trace).by_device.values(), key=lambda line: (-line.span_ns, line.rank, line.device))
    if not lines or not steps(trace).times.count or pipeline(trace) is not None:
        return ""
    line = lines[0]
    device = (line.rank, line.device)
    kinds = (("compute", line.compute), ("communication", line.communication), ("copies", line.copy))
    stages = tuple(PipelineStage(name, per_step_ns(trace, device, work)) for name, work in kinds)
    overlap = OverlapScore(stages, per_step_ns(trace, device, line.busy))
    possible_ns = overlap.serial_ns - overlap.longest.time_ns
    if overlap.score is None or possible_ns < _WORTH_HIDING * period_ns(trace, device):
        return ""
    times = ", ".join(f"{stage.name} {time_text(stage.time_ns)}" for stage in stages if stage.time_ns)
    return (
        f"overlap: {times} of {period_text(trace, device)}; OverlapScore {overlap.score:.2f} "
        "(0 one after another, 1 the longest hides the others)"
    )


def _compilation(trace: Trace) -> str:
    counters = compile_counters(trace)
    counts, per = [], per_what(trace)
    if COMPILE_EVENTS in trace:
        counts.append(f"graph breaks {counters['graph_breaks']:.0f}, recompilations {counters['recompilations']:.0f}")
        counts += ["if TORCH_LOGS named them"] if is_silent(trace) else []
    if "regions_per_step" in counters:
        regions, graphs = counters["regions_per_step"], counters["graphs_per_step"]
        counts.append(f"{number(regions, 'compiled region')} of {number(graphs, 'graph')} {per}")
    if steady := counters.get("steady_compilations"):
        counts.append(f"{steady:.0f} compilations in steady steps")
    if counts and "launches_per_step" in counters:
        counts.append(f"{counters['launches_per_step']:.0f} launches {per}")
    return f"compile: {', '.join(counts)}" if counts else ""
