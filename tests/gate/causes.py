"""Laws of causes: what the bar blames has a finding that claims it, and a finding blames no more than the bar does."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.gate.answers import SHARE, TIME, Answers, alike, ms

from timesink.diagnosis.verdicts import Bottleneck
from timesink.knowledge.step_parts import IDLE_WORDS, WORK_WORDS
from timesink.measures.idle.blame import idle_blame, is_effective
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.idle.causes import HOST_CAUSES, LAUNCHING_CAUSES, searching
from timesink.measures.kernels.small_grids import small_grids
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import share_of_step, step_windows
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.copies import awaited_pages
from timesink.measures.timeline.start_up import start_up
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS

OWED: Final = 0.05  # of the step: what takes more has a finding, a bound, or a reason why not
_GREATER_PART: Final = 0.5
_REPLAYED: Final = 0.05  # of the step: as far off as a replay may be
_OF_COPIES: Final = ("copy", "copy_staging", "dependency_copy", "sync")
_BLAMED: Final[Mapping[Bottleneck, tuple[str, ...]]] = {
    Bottleneck.HOST_SYNC: ("sync",),
    Bottleneck.ALLOCATOR: ("allocator",),
    Bottleneck.GARBAGE_COLLECTION: ("garbage_collection",),
    Bottleneck.INPUT_PIPELINE: ("loader",),
    Bottleneck.RECOMPILATION: ("compile",),
    Bottleneck.OPERATING_SYSTEM: ("os_call",),
    Bottleneck.LATE_START: ("unexplained",),
    Bottleneck.UNRECORDED_CODE: ("python", "unrecorded_code", "logging", "checkpoint"),
    Bottleneck.HOST_PYTHON: ("python", "unrecorded_code", "logging", "checkpoint"),
    Bottleneck.LAUNCH_BOUND: LAUNCHING_CAUSES,
    Bottleneck.HOST_TO_DEVICE_COPY: _OF_COPIES,
    Bottleneck.DEVICE_TO_HOST_COPY: _OF_COPIES,
}
_SHOWN: Final = re.compile(rf"(?:waits|hold it for|is idle for) {TIME} of ([^(]*)(?:\(median [^)]*\) )?\({SHARE}\)")


def causes_are_owned(of: Answers) -> Iterator[str]:
    """A cause of a twentieth of the step is claimed by findings for its greater part there, or a reason says it."""
    claimed: dict[tuple[int, int], list[Intervals]] = {}
    for _, finding in of.diagnosis.findings:
        if finding.counted_in or finding.recoverable is None or finding.recoverable.most:
            for device, part in finding.claim.intervals.items():
                claimed.setdefault(device, []).append(part)
    said, trace = of.verdict + "".join(str(note) for note in of.diagnosis.notes), of_usual_steps(of.trace)
    for name, share in of.bar.items():
        cause = next((kind for kind, words in IDLE_WORDS.items() if words == name), None)
        if cause is None or cause == "loader" or share < 100 * OWED or name in said or not of.rows:
            continue
        owed = {part.device: part.intervals for part in blamed_time(trace, (cause,))}
        both = {device: part & Intervals.union_all(claimed.get(device, [])) for device, part in owed.items()}
        held, blamed = (
            sum(share_of_step(trace, device, part) for device, part in parts.items()) for parts in (both, owed)
        )
        ratio = held / blamed if blamed else 0.0  # of the step, as the bar is: a warm-up has causes of its own
        if ratio < _GREATER_PART:
            yield f"{name} takes {share} % of the step, of which findings claim {ratio:.0%}"


def unrecorded_time_is_named_so(of: Answers) -> Iterator[str]:
    """Time of the CPU of which nothing was recorded is *unrecorded code* in its row as on the bar: of one time, one
    name."""
    unrecorded = {part.device: part.intervals for part in blamed_time(of.trace, ("unrecorded_code",))}
    for card, finding in of.diagnosis.findings:
        for device, part in finding.claim.intervals.items() if card.code == "IDL104" else ():
            most = 2 * (part & unrecorded[device]).total_ns > part.total_ns
            is_named = finding.bottleneck is Bottleneck.UNRECORDED_CODE
            if most != is_named and (most or finding.fix):  # a wait for work has none
                yield f"{finding.name}, whose time is {'' if most else 'not '}mostly unrecorded: {finding.message}"
    for row in of.rows:
        parts = sum(of.bar.get(IDLE_WORDS[cause], 0.0) for cause in ("python", "logging", "checkpoint"))
        if row.name == "host-python" and of.bar.get("unrecorded code", 0.0) > parts + of.bar.get("other", 0.0):
            yield f"host-python below a bar of {dict(of.bar)}"


def exchanges_are_told_apart(of: Answers) -> Iterator[str]:
    """Where GPUs are said to be busy, the share of exchanges with no computation beside them is said."""
    share = of.bar.get("exposed communication", 0.0)
    if of.is_without_bottleneck and " busy " in of.verdict and share and "in communication alone" not in of.verdict:
        yield f"busy, of which {share} % is exchanges: {of.verdict}"


def copies_are_mended_in_their_direction(of: Answers) -> Iterator[str]:
    """Nothing is fetched ahead that the GPU made, and nothing is sent late that it needs."""
    ways = {"prefetch": Bottleneck.HOST_TO_DEVICE_COPY, "copy_behind": Bottleneck.DEVICE_TO_HOST_COPY}
    for card, finding in of.diagnosis.findings:
        name = finding.fix.name if finding.fix else ""
        if ways.get(name, finding.bottleneck) is not finding.bottleneck:
            yield f"{card.name}: {name} for {finding.bottleneck}"
        if name == "prefetch_pages":  # pages are fetched to whichever side touches them next
            continue
        if finding.bottleneck is Bottleneck.DEVICE_TO_HOST_COPY and re.search(
            r"fetch|next (?:batch|piece)", finding.advice
        ):
            yield f"{card.name}: {finding.advice} for {finding.bottleneck}"


def one_cause(of: Answers) -> Iterator[str]:
    """A finding that names a cause charges no more to it than the bar does."""
    for card, finding in of.diagnosis.findings:
        found = _SHOWN.search(finding.message)
        if found is None or finding.bottleneck not in _BLAMED or len(of.diagnosis.devices) != 1 or not of.bar:
            continue
        causes = [of.bar.get({**WORK_WORDS, **IDLE_WORDS}[kind], 0.0) for kind in _BLAMED[finding.bottleneck]]
        most = sum(causes) + of.bar.get("other", of.bar["idle"]) * any(not share for share in causes)
        charged_ms, step_ms = ms(found[1], found[2]), of.json["step_parts"][0]["step_ms"]
        if " mean " in found[3] and not alike(ms(*re.findall(TIME, found[3])[0]), step_ms):
            continue  # of all steps, where the bar is of the usual ones
        if charged_ms > (1.02 * most + 0.1) / 100 * step_ms:
            yield f"{card.name} charges {charged_ms} ms, the bar {most:.3g} % of {step_ms} ms: {dict(of.bar)}"


def waits_cost_what_they_win(of: Answers) -> Iterator[str]:
    """No wait is charged with more of the step than a step without it may save: what the host does after a wait takes
    it as long without one. Waits that win the good part of it are the root of all of it (`is_effective`). Of a step
    that is told, the estimate is known to be off."""
    for card, finding in of.diagnosis.findings:
        found, gain = _SHOWN.search(finding.message), finding.recoverable
        if finding.bottleneck is not Bottleneck.HOST_SYNC or of.trace.unprofiled_step_ns or not found or not gain:
            continue
        charged, won = float(found[4]) / 100, gain.most / (finding.of_ms or 1.0)
        if finding.of_ms and won < charged - _REPLAYED and not is_effective(won, charged):
            yield f"{card.name} is charged with {found[4]} %, and saves at most {won:.1%}"


def kernels_of_a_late_host_are_a_bound(of: Answers) -> Iterator[str]:
    """Without steps nobody replays what the host needs: where the GPU waits for it, shorter kernels may win nothing."""
    waits = [part.share for part in blamed_time(of.trace, HOST_CAUSES)]
    if of.diagnosis.steps.count or max(waits, default=0.0) < OWED:
        return
    for card, finding in of.diagnosis.findings:
        if finding.priced_by == "kernel_time" and finding.recoverable and finding.recoverable.low:
            yield f"{card.name} surely saves {finding.recoverable.low} ms of a window in which the GPU waits"


def bars_of_steps_have_steps(of: Answers) -> Iterator[str]:
    """What is divided by steps is said to have some: "no steps found" stood above a bar "of the step"."""
    if any(budget.steps for budget in of.diagnosis.budgets) and not of.diagnosis.steps.count:
        yield f"no step, and {[budget.steps for budget in of.diagnosis.budgets]} in the bar"


def guessed_steps_hold_the_work(of: Answers) -> Iterator[str]:
    """Nobody says that nothing limits a program by guessed steps that hold less than half of what its GPUs ran."""
    if of.diagnosis.bottleneck is not Bottleneck.NONE or steps(of.trace).origin is not StepOrigin.GUESSED:
        return
    lines = device_timeline(of.trace).by_device.items()
    held = sum(int(line.busy.covered_ns(*step_windows(of.trace, device)).sum()) for device, line in lines)
    if 2 * held < sum(line.busy.total_ns for _, line in lines):
        yield f"no bottleneck, by {held} ns of the work"


def exchanges_have_work_beside_them(of: Answers) -> Iterator[str]:
    """No exchange is said to have no computation beside it where none was recorded: nobody knows what it could be."""
    lines = device_timeline(of.trace).by_device
    for card, finding in of.diagnosis.findings:
        if card.code == "COM101" and not any(lines[device].compute for device in finding.claim.intervals):
            yield f"{card.name} of a device without computation: {finding.message}"


def more_blocks_bring_no_page(of: Answers) -> Iterator[str]:
    """What a kernel of few blocks may win is no time before its first page of unified memory."""
    for kernels in small_grids(of.trace):
        ops = of.trace[DEVICE_OPS][kernels.rows]
        start_ns, end_ns = (ops[end].to_numpy() for end in ("start_ns", "end_ns"))
        waits = awaited_pages(of.trace, kernels.device, only_first=True).covered_ns(start_ns, end_ns)
        if kernels.best is None or (kernels.best * (end_ns - start_ns) < 0.999 * waits).any():
            yield f"kernels of few blocks win time before their first page: {waits.tolist()[:5]}"


_ALONE: Final = re.compile(rf"happens once: .*? for {TIME}, .*? alone for {TIME}")
_START: Final = re.compile(rf"{SHARE} of the [0-9.]+ [a-z]+ capture is start-up, .*?(?:take|for) {TIME}")


def start_up_names_its_whole(of: Answers) -> Iterator[str]:
    """The share that start-up takes and its time are of one whole, which is named."""
    start = start_up(of.trace)
    for text in (of.diagnosis.statement, *(note.message for note in of.diagnosis.notes)):
        told = _START.search(text)
        if told and abs(float(told[1]) / 100 * start.span_ns / 1e6 - ms(told[2], told[3])) > 0.02 * start.span_ns / 1e6:
            yield f"not the time of its share of {start.span_ns / 1e6} ms: {text}"
        elif "happens once" in text and told is None:
            yield f"names no whole of its time: {text}"
        if (both := _ALONE.search(text)) and ms(both[3], both[4]) > 1.01 * ms(both[1], both[2]):
            yield f"one call keeps the GPU waiting for longer than all: {text}"


def waits_of_a_search_are_its_own(of: Answers) -> Iterator[str]:
    """No wait by which a search of algorithms times them is told to be removed: it goes with the search."""
    stretches = idle_blame(of.trace).stretches
    waits = stretches.filter(stretches["cause"] == "sync")["sync_row"].drop_nulls().unique().to_list()
    if any(searching(of.trace)[waits]):
        yield "a wait of a search of algorithms is a wait of the program"
