"""What is quoted of a trace: the lines of `timesink show statement`, and the answers of `timesink show checks`."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.in_short import statements
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Clear, Diagnosis, Evidence, NotApplicable, Quantity, StepBudget, Undecided
from timesink.errors import UsageError
from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.kernels import KernelFamily
from timesink.knowledge.step_parts import WORK_WORDS
from timesink.measures.communication.stage_traces import stages_of
from timesink.measures.compile.summary import compile_summary
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.one_stream import one_stream_runs
from timesink.measures.kernels.small_grids import tiny_kernels
from timesink.measures.steps import step_times, steps
from timesink.measures.steps.per_step import period_name, step_windows
from timesink.measures.steps.spikes import spikes
from timesink.measures.timeline import device_gaps
from timesink.measures.timeline.copies import exposed_copies
from timesink.measures.timeline.known import is_silent
from timesink.model.tables import COMPILE_EVENTS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.units import share_text, time_text
from timesink.views import Page, listed
from timesink.views.pipeline import Staged, rate_text
from timesink.views.pipeline import statement as pipeline_statement


def statement_page(trace: Trace, before: Trace | None = None) -> Page:
    """Where the time goes, how fast it is, what overlaps, and what the compiler made of it; the change from `before`.

    What the trace does not show is left out. Raises `UsageError` where it shows nothing of it.
    """
    stages = stages_of(trace)
    overlaps = [] if stages is None else [f"pipeline: {pipeline_statement(stages)}, as profiled"]
    lines = [*statements(trace), *_throughput(trace, before), *_spikes(trace), *overlaps]
    lines += _graph_breaks(trace, before)
    if not lines:
        raise UsageError(
            "the trace shows no steps, no ranges and no compilation to state anything of",
            remedy="record steps: timesink capture torch -- python train.py",
        )
    return _page(lines)


def logged_statement_page(staged: Staged, before: Staged | None = None) -> Page:
    """What the logs of a program's stages say of its period; the change from `before`."""
    change = ""
    if before is not None:
        now_ns, old_ns = (side.logs.overlap.period_ns for side in (staged, before))
        change = _change(now_ns, old_ns)
    return _page([f"pipeline: {pipeline_statement(staged.logs)}{change}"])


def _page(lines: list[str]) -> Page:
    rows = (tuple(line.split(": ", 1)) for line in lines)
    return Page("statement", (listed("statement.statements", rows),))


def _change(now_ns: float, old_ns: float) -> str:
    return f", {time_text(old_ns)} before ({100 * (now_ns / old_ns - 1):+.1f} %; one run each)" if old_ns else ""


def _throughput(trace: Trace, before: Trace | None) -> Iterator[str]:
    """How long a step takes: a throughput where it was timed without a profiler, which slows it."""
    if (now := _step(trace)) is None:
        return
    took_ns, step, scope = now
    change = ""
    if before is not None and (old := _step(before)) is not None and _is_timed(before) == _is_timed(trace):
        change = _change(took_ns, old[0])
    facts = "".join(f", {name}={value}" for name, value in trace.facts.items())
    took = f"{step} takes {time_text(took_ns)}"
    if _is_timed(trace):
        yield f"throughput: {took}, {rate_text(took_ns, trace.facts)} ({scope} without a profiler{facts}){change}"
    else:
        yield f"profiled step: {took} ({scope}{facts}; no throughput: a profiler ran){change}"


def _is_timed(trace: Trace) -> bool:
    return bool(trace.unprofiled_step_ns or trace.unprofiled_steps_ns)


def _step(trace: Trace) -> tuple[float, str, str] | None:
    """The median of the steps that were timed without a profiler, or the one figure known of them, else of those that
    were recorded; what it is and of how many. None where there are none."""
    timed = trace.unprofiled_steps_ns
    if trace.unprofiled_step_ns and not timed:
        return trace.unprofiled_step_ns, "a step", "one figure,"
    times = step_times([round(value) for value in timed]) if timed else steps(trace).times
    scope = f"{times.count} {'steps' if timed else 'steady steps'}"
    return (times.p50_ns, "the median step", scope) if times.p50_ns else None


def _spikes(trace: Trace) -> Iterator[str]:
    """Steps that stand out, apart from the steady ones: how many for which cause, and what the mean gains without them.

    ``p99 9.93 ms against p50 3.03 ms: 2 allocator growth, 1 recompilation; without them the mean step gains 2.10 %``
    """
    found, times = spikes(trace), steps(trace).times
    if not found.found or not times.p50_ns:
        return
    causes = Counter(spike.kind.value.replace("_", " ") for spike in found.found)
    named = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
    periods = {device: step_windows(trace, device) for device in found.examined}
    whole_ns = sum(int((end - start).sum()) for start, end in periods.values())
    share = sum(spike.excess_ns for spike in found.found) / max(whole_ns, 1)
    longest = max(spike.period_ns for spike in found.found)
    slow = f"p99 {time_text(times.p99_ns)}" if times.p99_ns else f"{time_text(longest)} at most"
    without = f"without them the mean step gains {share_text(share)}"
    yield f"spikes: {slow} against p50 {time_text(times.p50_ns)}: {named}; {without}"


def _graph_breaks(trace: Trace, before: Trace | None) -> Iterator[str]:
    """``graph_breaks 0 -> 2, first at model.py:81``: the first is the one that breaks most often."""
    if before is None or COMPILE_EVENTS not in trace or COMPILE_EVENTS not in before:
        return
    found, old = compile_summary(trace), compile_summary(before)
    first = next((part for part in found.breaks if part.file is not None), None)
    place = f", first at {first.file}:{first.line}" if first is not None else ""
    doubt = "; none only if TORCH_LOGS named them" if is_silent(before) or is_silent(trace) else ""
    yield f"graph: graph_breaks {old.graph_breaks} -> {found.graph_breaks}{place}{doubt}"


MUCH: Final = Limit.ratio(
    0.1,
    "what takes so much of a step is not called clear, though no rule finds a cause in it",
    "benchmarks/faults: recording keeps a GPU idle for up to a fifth of a step",
)
# What a reader of a timeline looks for, one after another, and the rules that look for it. Where the one named last
# does not apply, there is nothing of the kind to look at.
_GAPS: Final = "GPU idle gaps"
_SERIAL: Final = "kernels one after another that could overlap"
_SMALL: Final = "small kernels"
_COPIES: Final = "copies between CPU and GPU"
_COLLECTIVES: Final = "gaps at collectives"
_CHECKS: Final = {
    _GAPS: ("IDL",),
    _SERIAL: ("STR101", "KRN110"),
    _SMALL: ("KRN104", "KRN111", "CMP101", ""),
    _COPIES: ("CPY",),
    _COLLECTIVES: ("COM", "COM101"),
}


class _Seen(Record):
    """How many of what a check looks for the capture holds, in words, and what of the step that takes."""

    count: str
    share: float = 0.0
    taken: str = ""


def checks_page(trace: Trace) -> Page:
    """The five checks of a timeline, each found, clear or undecided: how many there are, what they cost, what next."""
    diagnosis, seen = diagnose(trace), _seen(trace)
    rows = {what: _checked(diagnosis, codes) for what, codes in _CHECKS.items()}
    rows[_SMALL] = _counted(trace, *rows[_SMALL])
    told = ((what, *_after_count(seen[what], *row)) for what, row in rows.items())
    return Page("The five checks of a timeline", (listed("statement.checks", told),))


def _after_count(seen: _Seen, answer: str, why: str, what_next: str) -> tuple[str, str, str]:
    """An answer after what was counted; what takes much of the step is not clear."""
    if answer == "clear" and seen.share >= MUCH.default:
        answer, what_next = "undecided", "timesink show idle TRACE"
    taken = seen.taken if answer != "found" else ""
    return answer, "; ".join(filter(None, (seen.count, taken, why))), what_next


def _seen(trace: Trace) -> dict[str, _Seen]:
    """By check, whatever it costs; shares are of the device on which that is most."""
    kernels, small = kernel_facts(trace).frame, f"under {assumed.TINY_US.value:.0f} us"
    in_runs = sum(runs.rows.size for runs in one_stream_runs(trace))
    copied = sum(one.count for one in exposed_copies(trace) if one.direction in _BETWEEN)
    tiny = kernels.filter(kernels["length"] < assumed.TINY_US.ns).height
    exchanges = kernels.filter(kernels["family"] == KernelFamily.COMMUNICATION.value).height
    return {
        _GAPS: _taking(trace, "idle", "{} is idle", _many(device_gaps(trace).op.size, "gap", "gaps")),
        _SERIAL: _Seen(_many(in_runs, "small kernel in runs on one stream", "small kernels in runs on one stream")),
        _SMALL: _Seen(_many(tiny, f"kernel {small}", f"kernels {small}")),
        _COPIES: _taking(trace, "copy", "exposed copies take {}", _many(copied, "copy", "copies")),
        _COLLECTIVES: _taking(
            trace, "communication", "exposed communication takes {}",
            _many(exchanges, "kernel of collectives", "kernels of collectives"),
        ),
    }  # fmt: skip


def _taking(trace: Trace, kind: str, words: str, count: str) -> _Seen:
    share = max((_share(one, kind) for one in step_budgets(trace)), default=0.0)
    return _Seen(count, share, words.format(f"{share_text(share)} of the {period_name(trace)}"))


def _many(count: int, noun: str, plural: str) -> str:
    return f"{count:,} {noun if count == 1 else plural} in the capture"


def _share(budget: StepBudget, kind: str) -> float:
    """The share of a device's step that is idle, or work of a kind."""
    parts = (one.time_ns for one in budget.parts if one.kind == kind or (kind == "idle" and one.kind not in WORK_WORDS))
    return sum(parts) / budget.period_ns


_BETWEEN: Final = ("h2d", "d2h")


def _counted(trace: Trace, answer: str, why: str, what_next: str) -> tuple[str, str, str]:
    """The check of small kernels after their count: rules ask whether a fix pays, which is another question."""
    found = tiny_kernels(trace)
    if not found:
        whole = bool((trace.get(DEVICE_OPS)["kind"] == "graph").any())
        if whole:
            return "undecided", "graphs were recorded whole, and not their kernels", "nsys --cuda-graph-trace=node"
        return answer, why, what_next
    short, every = (sum(getattr(one, name) for one in found) for name in ("per_step", "of_per_step"))
    count = f"{short:.0f} of {every:.0f} kernels of a step take less than {assumed.TINY_US.value:.0f} us"
    if answer == "found":
        code, _, message = why.partition(": ")
        return answer, f"{code}: {count}; {message}", what_next
    if answer == "clear" and 2 * short >= every:
        return "found", f"{count}; what that costs: {why}", "timesink explain KRN111"
    return answer, f"{count}; {why}", what_next


def _checked(diagnosis: Diagnosis, codes: tuple[str, ...]) -> tuple[str, str, str]:
    """The answer, why, and what next: the dearest finding, else what is open, else the figure nearest to its limit."""
    wanted = tuple(filter(None, codes))
    for card, finding in diagnosis.findings:
        if card.code.startswith(wanted):
            return (
                "found",
                f"{card.code}: {finding.message}; {saving_text(finding, after=finding.message)}",
                finding.advice,
            )
    verdicts = {one.card.code: one.verdict for one in diagnosis.rulings if one.card.code.startswith(wanted)}
    if isinstance(lead := verdicts.get(codes[-1]), NotApplicable):
        return "clear", lead.why, ""
    facts = [fact for one in verdicts.values() if isinstance(one, Clear) for fact in one.evidence if fact.limit]
    for one in verdicts.values():
        if isinstance(one, Undecided) and not (one.elsewhere and facts):
            return "undecided", one.why, one.to_decide
    if facts:
        near = max(facts, key=_nearness)
        return "clear", f"{near.label}: {_figure(near.measured)} (limit {_figure(near.limit)})", ""
    return "clear", next((one.why for one in verdicts.values() if isinstance(one, NotApplicable)), ""), ""


def _nearness(fact: Evidence) -> float:
    """How near a figure that passes its limit is to it, from below or from above: 1 at the limit."""
    ends = fact.measured.value, fact.limit.value if fact.limit else 0.0
    return min(ends) / (max(ends) or 1.0)


def _figure(quantity: Quantity | None) -> str:
    if quantity is None:
        return "none"
    return share_text(quantity.value) if quantity.unit == "ratio" else f"{quantity.value:.3g} {quantity.unit}"
