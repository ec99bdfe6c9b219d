"""What a capture does not tell: traces that hold nothing to answer from, and what another capture would decide.

A rule that could not look says "undecided". Where no rule could look at anything, the trace itself is the problem, and
an answer such as "no bottleneck" would read like a clean bill. `timesink capture --loop` captures with torch.profiler
first: idle time without a cause is worth an nsys capture then, and kernels that take much of a step an ncu capture.
What takes a good part of a step and is claimed by no finding is named, each such cause of idle time with why.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Final

import polars as pl

from timesink.diagnosis.headline import read_after_work, unfilled
from timesink.diagnosis.pricing import worth_ms
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Clear, Diagnosis, Finding, Found, NotApplicable, Note, StepBudget, Undecided
from timesink.diagnosis.words import as_started, number
from timesink.errors import UnreadableTrace, UsageError
from timesink.knowledge.kernel_names import short_name
from timesink.knowledge.operators import ONLY_ON_CPU
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.knowledge.vendors import Vendor
from timesink.measures.counters import kernel_counters
from timesink.measures.counters.limiter import why_unexplained
from timesink.measures.idle.blame import idle_after_work, idle_of_cause
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.kernels import kernel_targets
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import period_name, share_of_step
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.known import known, said_of_start
from timesink.measures.timeline.start_up import start_up
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import (
    API_CALLS,
    COMPILE_EVENTS,
    DEVICE_OPS,
    DEVICES,
    FRAMES,
    HOST_OPS,
    KERNEL_METRICS,
    KERNEL_PROFILES,
    MEMORY_BLOCKS,
    MEMORY_EVENTS,
    RANGES,
    SOURCES,
    SUMS,
)
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.units import share_text, time_text
from timesink.untrusted import shortened

_RECORD = "record the program on a machine with a GPU: timesink capture torch -- python train.py"
_TIMELINE_OF = "timesink capture nsys -- python train.py"
_RECORD_NSYS = f"{_TIMELINE_OF} records GPU work (nsys needs -t cuda)"
_LAUNCHING = "record the part of the run that launches work: timesink capture {} -- python train.py"
_LONGEST = 60  # letters of a kernel's name in a sentence
_PROFILE = "profile with these counters: timesink capture ncu --set rules -- python train.py"
_REPORT = "give the report itself, if it was made with --set full; else "
_TIMELINE = (
    "`timesink show` shows the sums; for causes and prices give the export of the report: nsys export --type sqlite "
    "REPORT.nsys-rep"
)
_ON_CPU = "move the model and its data to the GPU, then record again"
_MOSTLY = 0.5
_OTHER_DEVICE = "use the vendor's analyzer: timesink reads work of GPUs only (timesink show tables: what the CPU did)"


def check_diagnosis(trace: Trace, diagnosis: Diagnosis) -> None:
    """`UsageError` or `UnreadableTrace` where no rule found anything to look at."""
    if trace.damage and not diagnosis.findings and trace.get(HOST_OPS).height and not trace.get(DEVICE_OPS).height:
        raise _without_gpu_work(trace, "diagnose")
    looked = any(isinstance(ruling.verdict, Found | Clear) for ruling in diagnosis.rulings)
    is_run = trace.get(HOST_OPS).height or trace.get(API_CALLS).height
    if diagnosis.findings or trace.get(DEVICE_OPS).height or trace.get(COMPILE_EVENTS).height:
        return
    if not is_run and (looked or trace.get(MEMORY_EVENTS).height):
        return
    if count := trace.get(KERNEL_PROFILES).height:
        if len({ruling.card.code for ruling in diagnosis.rulings if ruling.card.code.startswith("NCU")}) > 1:
            raise UsageError(
                f"nothing to diagnose in {trace.source}: {number(count, 'profiled kernel')} without the counters that "
                f"say what limits a kernel{_what_it_tells(trace)}",
                remedy=("" if trace.source.endswith(".ncu-rep") else _REPORT) + as_started(trace, _PROFILE),
            )
        return
    raise _without_gpu_work(trace, "diagnose")


def _what_it_tells(trace: Trace) -> str:
    """What counters that are too few tell of the longest kernel; '' where there are none."""
    if not trace.get(KERNEL_METRICS).height:
        return ""
    longest = max(kernel_counters(trace), key=lambda kernel: kernel.duration_ns or 0.0)
    why = why_unexplained(longest).partition("to decide")[0].rstrip(" ;:")  # how to decide is the remedy
    return f". {shortened(longest.function, _LONGEST)}: {why}" if why else ""


def check_device_work(trace: Trace, what: str) -> None:
    """The same where `what` needs a timeline of a GPU, such as ``"idle time"``."""
    if not trace.get(DEVICE_OPS).height:
        raise _one_by_one(trace, what) if trace.get(KERNEL_PROFILES).height else _without_gpu_work(trace, what)


def check_timeline(trace: Trace, what: str) -> None:
    """The same where `what` needs times, of the host or of a GPU."""
    if trace.extent_ns is None and SUMS not in trace:
        raise _one_by_one(trace, what) if trace.get(KERNEL_PROFILES).height else _without_gpu_work(trace, what)


def check_comparable(before: Trace, after: Trace) -> None:
    """The same where two captures have no steps to hold against each other."""
    if all(trace.get(KERNEL_PROFILES).height and not trace.get(DEVICE_OPS).height for trace in (before, after)):
        command = shlex.join(("timesink", "kernels", before.source, "--against", after.source))
        raise UsageError("both hold kernels that were profiled one by one", remedy=f"{command} compares them")
    for trace in (before, after):
        if not any(trace.get(table).height for table in (COMPILE_EVENTS, MEMORY_EVENTS, MEMORY_BLOCKS)):
            check_timeline(trace, "step to compare")


_LEAST_OF_BUSY, _MOST_OF_PROFILED = 0.5, 1.5  # clocks and medians differ by less, seconds or a wrong unit by more


def check_unprofiled_step(trace: Trace) -> None:
    """`UsageError` for a step that is told and cannot be one of this capture without its profiler.

    The GPU's work takes about as long without the profiler, and no step takes much longer without it.
    """
    profiled_ns, told_ns = steps(trace).times.p50_ns, trace.unprofiled_step_ns
    if not (profiled_ns and told_ns):
        return
    lines = device_timeline(trace)
    busy_ns = profiled_ns * max((line.busy_ns / line.span_ns for line in lines if line.span_ns), default=0.0)
    if _LEAST_OF_BUSY * busy_ns <= told_ns <= _MOST_OF_PROFILED * profiled_ns:
        return
    seen = f"the profiled step takes {time_text(profiled_ns)}, the GPU works {time_text(busy_ns)} of it"
    raise UsageError(
        f"a step without the profiler of {time_text(told_ns)} cannot be: {seen}",
        remedy="give --unprofiled-step-ms in milliseconds, of the same program",
    )


def _one_by_one(trace: Trace, what: str) -> UsageError:
    return UsageError(
        f"no {what} in {trace.source}: it holds kernels that were profiled one by one, and no timeline",
        remedy=f"timesink kernels {trace.source} shows them; {as_started(trace, _TIMELINE_OF)} records a timeline",
    )


def _without_gpu_work(trace: Trace, what: str) -> UsageError | UnreadableTrace:
    """The file is cut off before the first GPU work, or none was recorded: what it holds instead, and why that may be.

    One place words it for every maker of accelerators and every profiler.
    """
    asked = f"nothing to {what}" if what == "diagnose" else f"no {what}"
    if SUMS in trace:
        return UsageError(f"{asked} in {trace.source}: it holds {_summed(trace)}, and no timeline", remedy=_TIMELINE)
    if trace.damage:
        why = f"{asked}: {'; '.join(trace.damage)}, and no GPU work is in that part"
        return UnreadableTrace(trace.source, why, remedy="record or copy the file again")
    is_seen, vendor, calls = known(trace), known(trace).vendor, trace.get(API_CALLS).height
    names = ", ".join(is_seen.products)
    elsewhere = [note.message for note in trace.passed_over if note.table == DEVICE_OPS.name]
    if elsewhere:
        held, remedy = f"no GPU work, and {'; '.join(elsewhere)}", _OTHER_DEVICE
    elif calls:
        count = is_seen.launches
        launched = f"{count:,} of which launch or copy" if count else "none of which launches or copies"
        held = f"{calls:,} {vendor.runtime} calls, {launched}, and no record of what the {vendor.unit} did"
        remedy = _why_lost(trace, vendor) if count else _LAUNCHING.format("nsys" if _is_nsys(trace) else "torch")
        held = f"{held} ({names})" if names else held
    elif names:
        work = "work of the CPU only" if trace.holds_rows else "no record of any work"
        held, remedy = f"{work}, though it names {names}", _why_lost(trace, vendor)
    elif trace.holds_rows:
        held, remedy = _held_only(trace), _RECORD_NSYS if _is_nsys(trace) else _RECORD
    else:
        passed = [note.message for note in trace.passed_over]
        held = f"only {'; '.join(passed)}" if passed else "no events"
        remedy = "give the trace that a profiler wrote of the same run" if passed else _RECORD
    if not elsewhere and (operator := _of_cpu(trace)):
        held, remedy = f"work of the CPU only, most of it in {operator}, which only a CPU runs", _ON_CPU
    elif trace.holds_rows:
        remedy = as_started(trace, remedy)
    return UsageError(f"{asked} in {trace.source}: it holds {held}", remedy=remedy)


def _held_only(trace: Trace) -> str:
    """What a capture without calls and without a GPU's name holds."""
    if any(trace.get(table).height for table in (HOST_OPS, RANGES, FRAMES)):
        return "work of the CPU only"
    is_of_memory = any(trace.get(table).height for table in (MEMORY_EVENTS, MEMORY_BLOCKS))
    return "allocations only" if is_of_memory else "a compiler's log only" if COMPILE_EVENTS in trace else "no GPU work"


def _of_cpu(trace: Trace) -> str:
    """The operator that shows that a program computes on the CPU by its own choice, for most of the time; else ''."""
    own = trace.get(HOST_OPS).filter(matches(trace.get(HOST_OPS)["name"], ONLY_ON_CPU))
    first_ns, last_ns = trace.extent_ns or (0, 0)
    is_most = Intervals.of(own.sort("start_ns")).total_ns > _MOSTLY * (last_ns - first_ns)
    return str(own["name"].mode().sort()[0]) if own.height and is_most else ""


def _summed(trace: Trace) -> str:
    """What sums by name tell: how many of what, and of kernels, else of the first kind, which took most."""
    kinds = trace[SUMS]["what"].unique(maintain_order=True).to_list()
    told = []
    for what in kinds:
        rows = trace[SUMS].filter(pl.col("what") == what)
        timed = rows.drop_nulls("total_ns").sort("total_ns", descending=True, maintain_order=True)
        whole = ""
        if timed.height and what == ("kernel" if "kernel" in kinds else kinds[0]):
            name = str(timed["name"][0])
            longest = short_name(name) if what == "kernel" else shortened(name, _LONGEST)
            whole = f" ({time_text(int(timed['total_ns'].sum()))}, most in {longest})"
        told.append(f"{number(rows.height, *_WORDS.get(what, (what,)))}{whole}")
    *first, last = told
    return f"sums of {', '.join(first)} and {last}" if first else f"sums of {last}"


_WORDS = {
    "copy": ("kind of copies", "kinds of copies"),
    "api_call": ("CUDA call",),
    "os_call": ("system call",),
}


def _is_nsys(trace: Trace) -> bool:
    return trace.get(SOURCES)["format"].str.starts_with("nsys").any()


def _why_lost(trace: Trace, vendor: Vendor) -> str:
    """What makes a profiler lose the device's side of a run that did use the device."""
    asked = "" if trace.get(API_CALLS).height else "{} left out, "  # what records calls records GPU work, too
    if _is_nsys(trace):
        return (
            f"find out why nsys recorded no GPU work ({asked.format('-t cuda')}no permission for GPU counters and "
            "traces, WSL, the driver's version): run timesink doctor, then timesink capture nsys -- python train.py"
        )
    return (
        f"find out why the profiler recorded no {vendor.unit} work ({asked.format(vendor.records_by)}{vendor.tracer} "
        "busy or not permitted, or the profile ended before the work): run timesink doctor, then timesink capture "
        "torch -- python train.py"
    )


UNEXPLAINED: Final = Limit.ratio(
    0.05,
    "idle time that torch.profiler sees no cause for is worth another run from a twentieth of the step on",
    "below it, all of it recovered would be hard to tell from run-to-run noise with a handful of runs",
)
KERNEL_SHARE: Final = Limit.ratio(
    0.05,
    "a kernel below a twentieth of the step cannot repay a replay of forty passes, however slow it is",
    "Amdahl: 5 % of the step is the most that it could win",
)
MOST_KERNELS = 3  # each costs a replay of its own: a minute
_NOT_RECORDED = ("unrecorded_code", "unexplained")


def unexplained_share(trace: Trace) -> float:
    """The largest share of a step that a device is idle without a cause in the trace."""
    return max((part.share for part in blamed_time(trace, _NOT_RECORDED)), default=0.0)


def kernels_worth_it(trace: Trace) -> tuple[str, ...]:
    """Patterns of the few kernels that take enough of a step to be looked into, the longest first."""
    worth = [target for target in kernel_targets(trace) if target.step_ratio >= KERNEL_SHARE.default]
    return tuple(target.pattern for target in worth[:MOST_KERNELS])


def with_kernels(timeline: Trace, profiled: Trace) -> Trace:
    """The tables of the timeline with those of the profiled kernels: rank 0 ran twice and is read as one."""
    added = {table: profiled[table] for table in profiled if table not in timeline}
    both = {table: pl.concat([timeline.get(table), profiled.get(table)]) for table in (SOURCES, DEVICES)}
    filled = both[DEVICES].group_by("rank", "device").agg(pl.all().drop_nulls().last())  # each knows other facts
    added |= {SOURCES: both[SOURCES], DEVICES: DEVICES.check(filled.sort("rank", "device"))}
    return replace(timeline, tables={**timeline.tables, **added}, notes=(*timeline.notes, *profiled.notes))


def joined(first: Diagnosis, second: Diagnosis | None) -> Diagnosis:
    """The first diagnosis, with what the second can decide and it cannot. One ruling per rule, as before."""
    if second is None:
        return first
    other = {ruling.card.code: ruling for ruling in second.rulings}
    rulings, taken = [], []
    for ruling in first.rulings:
        instead = other.get(ruling.card.code)
        open_here = isinstance(ruling.verdict, Undecided)
        if open_here and instead is not None and not isinstance(instead.verdict, Undecided | NotApplicable):
            rulings.append(instead)
            taken.append(ruling.card.code)
        else:
            rulings.append(ruling)
    findings = [*first.findings, *(entry for entry in second.findings if entry[0].code in taken)]
    findings.sort(key=lambda entry: (-worth_ms(entry[1]), entry[0].code, entry[1].message))
    what = f"decided by the nsys capture: {', '.join(taken)}" if taken else "the nsys capture decides no further rule"
    notes = (Note(what), Note(f"the nsys capture by itself says: {second.statement}"))
    sources = (*first.sources, *second.sources)
    return replace(
        first, rulings=tuple(rulings), findings=tuple(findings), sources=sources, notes=(*first.notes, *notes)
    )


OWED: Final = Limit.ratio(
    0.05,
    "what takes less of the step is not a cause of its own",
    "docs/explanation/science.md, whose fault an idle GPU is",
)
_OF_DEVICE: Final = ("kernel_gap", "graph_gap")
_COPIES: Final = "copy"
_WORDS_OF: Final = {**IDLE_WORDS, _COPIES: "copies within GPU memory with no kernel beside them"}
_BETWEEN: Final = ", which the GPU leaves between kernels: fewer and longer kernels leave less"
_ON_GPU: Final = ", and no rule prices them: write results where they are wanted"
_BELOW: Final = ": no rule found anything to change there"
_LACKING: Final = ": GPU work may be missing there"
_AFTER: Final = (
    ", most of it after the last kernel. There the CPU reads what the GPU wrote, and the GPU waits for nothing"
)
_PAGES: Final = "migration"


def unclaimed(trace: Trace, budgets: Iterable[StepBudget], findings: Sequence[Finding]) -> Iterator[Note]:
    """Notes on what takes a good part of a step and is no finding: start-up, then the causes of the device that gives
    most of its step to such. Those are what the device itself leaves between kernels, copies of its own, and what no
    rule passes its limit on. Where there is no finding, it is all that is said."""
    start, lines = start_up(trace), device_timeline(trace).by_device.items()
    claims = {device: [start.calls.get(device[0], Intervals.none()) & line.idle] for device, line in lines}
    begun = max((share_of_step(trace, device, part) for device, (part,) in claims.items()), default=0.0)
    if begun >= OWED.default and not known(trace).missing:
        wholes = {share_text(begun): period_name(trace), share_text(start.share): f"{time_text(start.span_ns)} capture"}
        what = " and ".join(f"{share} of the {whole}" for share, whole in wholes.items())
        yield Note(said_of_start(start, what))
    for found in findings:
        if found.counted_in or found.recoverable is None or found.recoverable.most:
            for device, part in found.claim.intervals.items():
                claims[device].append(part)
    lost = max((_lost(trace, budget, claims) for budget in budgets), key=lambda one: sum(one.values()), default={})
    after = {_PAGES} if _PAGES in lost and _is_after_work(trace) else set()
    others = lost.keys() - {*_OF_DEVICE, _COPIES, *after}
    after = set() if read_after_work(trace) else after  # said first
    below, is_of = _LACKING if known(trace).hides_work else _BELOW, f" of the {period_name(trace)} is"
    for why, kinds in ((_BETWEEN, _OF_DEVICE), (_ON_GPU, (_COPIES,)), (_AFTER, after), (below, others)):
        named = [(share_text(lost[kind]), _WORDS_OF[kind]) for kind in lost if kind in kinds]
        if named and not (why is _BELOW and not findings and unfilled(trace)):  # the verdict says why
            shown = not findings or sum(lost[kind] for kind in lost if kind in kinds) >= _MOSTLY
            parts = (
                f"{share}{of} {words}" for (share, words), of in zip(named, chain([is_of], repeat("")), strict=False)
            )
            yield Note(f"{', '.join(parts)}{why}", "" if shown else "unclaimed")


def _is_after_work(trace: Trace) -> bool:
    """Whether most of the idle time before pages of unified memory comes after a device's last kernel."""
    devices = device_timeline(trace).by_device
    after_ns = sum(idle_after_work(trace, device).total_ns for device in devices)
    return 2 * after_ns > sum(idle_of_cause(trace, device, _PAGES).total_ns for device in devices)


def _lost(trace: Trace, budget: StepBudget, claims: Mapping[Device, Sequence[Intervals]]) -> dict[str, float]:
    """The causes of a device's idle time, and its copies within its own memory, of which findings that may save
    anything claim less than half, as shares of the step."""
    device = (budget.rank, budget.device)
    large = [part.kind for part in budget.parts if part.time_ns >= OWED.default * budget.period_ns]
    blamed = {kind: idle_of_cause(trace, device, kind) for kind in large if kind in IDLE_WORDS}
    if _COPIES in large:
        within = trace[DEVICE_OPS].filter(rank=device[0], device=device[1], copy_kind="d2d")
        blamed[_COPIES] = Intervals.of(within) & device_timeline(trace)[device].exposed_copy
    claimed = Intervals.union_all(claims[device])
    free = {kind: time for kind, time in blamed.items() if (time & claimed).total_ns < _MOSTLY * time.total_ns}
    shares = {kind: share_of_step(trace, device, time) for kind, time in free.items()}
    return {kind: share for kind, share in shares.items() if share >= OWED.default}
