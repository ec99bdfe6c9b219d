"""Reads the sentences of a diagnosis back into numbers and says which of them are false.

Everything is checked against the trace or against the evidence by other means than the sentences were made: shares by
their sums, times by their shares, backward work by the sequence numbers of its operators.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis, Finding
from timesink.knowledge.op_class import communicates
from timesink.measures.steps.parts import pacing_windows
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline import device_timeline
from timesink.model.alignment import launching_calls
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace

_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_TIME = r"(\d[\d.]*) (ns|us|ms|s)\b"
_SHARE = r"(\d[\d.]*) %"
_PART = re.compile(rf"{_TIME} of the {_TIME} (?:guessed )?(?:mean )?(?:step|window)(?: \({_SHARE}\))?")
_STEP = re.compile(rf"of the {_TIME}")
_SAVES = re.compile(
    rf"saves (?:at most )?{_TIME} "
    rf"(?:\({_SHARE} of the ((?:mean |unprofiled )?step|(?:longest )?window)(?:, [\d.]+ \w+)?\)|per step"
    r"|of the recorded time)"
    rf"(?:, (?:at least {_TIME}|{_TIME} to {_TIME}))?"
)
_GENERATED = re.compile(r"CompiledFxGraph|CompiledFunction|Torch-Compiled Region|ProfilerStep")
_PER_STEP = re.compile(r"per step|each step|of the [\d.]+ \w+ step|of the step|mean step|unprofiled step")
_BACKWARD = re.compile(r"(?:^|, )\W*backward\W* (?:is )?" + _SHARE)
ROUNDED = 0.006  # three digits: half a unit of the last, as a share of the smallest figure, in each of two numbers


def ms(value: str, unit: str) -> float:
    return float(value) * _UNITS[unit]


def alike(one: float, other: float, slack: float = 0.0) -> bool:
    return abs(one - other) <= 2 * ROUNDED * max(abs(one), abs(other)) + slack


def false_sentences(diagnosis: Diagnosis, trace: Trace, accumulates: int = 1) -> list[str]:
    """What is wrong, a line each; nothing where all sentences hold. `accumulates`: the program's micro-batches."""
    return [
        *_verdict(diagnosis),
        *_of_which(diagnosis, trace),
        *(fault for _, finding in diagnosis.findings for fault in _finding(finding)),
        *(fault for text in diagnosis.statements for fault in _statement(text, trace, accumulates)),
        *_without_steps(diagnosis),
        *_prices(diagnosis),
        *_devices(diagnosis),
        *_names(diagnosis),
    ]


def _texts(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (diagnosis.statement, *diagnosis.statements)
    for _, finding in diagnosis.findings:
        yield from (finding.message, saving_text(finding), *(shown.measured.unit or "" for shown in finding.evidence))


def _verdict(diagnosis: Diagnosis) -> Iterator[str]:
    """A saving in the verdict is the first finding's, or that of each that it names; a busy share is a share."""
    named = diagnosis.findings if "No finding surely saves" in diagnosis.statement else diagnosis.findings[:1]
    for found in _SAVES.finditer(diagnosis.statement):
        gains = [finding.recoverable for _, finding in named if finding.recoverable]
        if not any(alike(ms(found[1], found[2]), gain.value or gain.most) for gain in gains):
            yield f"the verdict saves what no finding does: {diagnosis.statement}"
    for found in re.finditer(rf"busy {_SHARE}", diagnosis.statement):
        if float(found[1]) > 100.5:
            yield f"busier than busy: {diagnosis.statement}"


def _of_which(diagnosis: Diagnosis, trace: Trace) -> Iterator[str]:
    """A share of another step than those that were recorded is called one of the step without the profiler; where slow
    ones are told apart, shares are of the others."""
    if any("findings are for the other steps" in str(note) for note in diagnosis.notes):
        return
    recorded_ms = [period_ns(trace, device) / 1e6 for device in device_timeline(trace).by_device]
    for _, finding in diagnosis.findings:
        said = _SAVES.search(saving_text(finding))
        if finding.of_ms and said and said[4] and said[4].endswith("step"):
            is_recorded = any(abs(finding.of_ms - step_ms) <= 0.005 * step_ms for step_ms in recorded_ms)
            if is_recorded is said[4].startswith("unprofiled"):
                yield f"{finding.of_ms:.4g} ms, of {recorded_ms}: {said[0]}"


def _finding(finding: Finding) -> Iterator[str]:
    """Times are the share of the step that they are said to be, and stand in the evidence."""
    known_ms = [fact.measured.value for fact in finding.evidence if fact.measured.unit == "ms"]
    known_shares = [fact.measured.value for fact in finding.evidence if fact.measured.unit == "ratio"]
    for found in _PART.finditer(finding.message):
        time_ms, step_ms = ms(found[1], found[2]), ms(found[3], found[4])
        share = float(found[5]) / 100 if found[5] else time_ms / step_ms
        if not alike(time_ms / step_ms, share, 1e-4) or share > 1.005:
            yield f"{100 * share:.3g} % is not {found[1]} {found[2]} of the step: {finding.message}"
        if not any(alike(time_ms, known) for known in known_ms) and not any(
            alike(share, known, 1e-4) for known in known_shares
        ):
            yield f"{found[0]} stands in no evidence: {finding.message}"
    yield from _more_saved_than_told(finding)
    yield from _beyond_its_factor(finding)
    if re.search(r"can go|limit \d", finding.message):
        yield f"limits and savings do not belong here: {finding.message}"
    yield from _saving(finding)


def _more_saved_than_told(finding: Finding) -> Iterator[str]:
    """Who reads that 822 us are spent and 1.49 ms are saved is owed the rest."""
    told = [ms(*found) for found in re.findall(_TIME, _STEP.sub("", finding.message))]
    gain = finding.recoverable
    if (
        gain
        and told
        and gain.value > sum(told) * (1 + ROUNDED)
        and "slow the kernels next to them" not in finding.message
    ):
        yield f"{gain.value} ms are saved of what takes less: {finding.message}"


def _beyond_its_factor(finding: Finding) -> Iterator[str]:
    """Who reads that a kernel of 13.2 ms is at most 1.07 times as fast does not believe that a fix saves 13.0 ms."""
    told = re.search(rf"{_TIME}(?: in all)?, spends .* at most ([\d.]+)× as fast", finding.message)
    if told and finding.recoverable and finding.where.kernel:
        most = ms(told[1], told[2]) * (1 - 1 / float(told[3]))
        if finding.recoverable.value > most * 1.05 + ROUNDED * ms(told[1], told[2]):
            yield f"{finding.recoverable.value} ms are saved, {most:.3g} ms by its factor: {finding.message}"
    most_of = re.search(rf"{_TIME}(?: in all)?, spends at most {_SHARE}", finding.message)
    if most_of and finding.recoverable and not finding.of_ms:
        most = ms(most_of[1], most_of[2]) * float(most_of[3]) / 100
        if finding.recoverable.value > most * (1 + 2 * ROUNDED):
            yield f"{finding.recoverable.value} ms are saved of {most:.3g} ms at most: {finding.message}"
    then = re.search(rf"spends (?:{_SHARE}|.* to {_SHARE}).* The next cause, [^,]+, takes {_SHARE}", finding.message)
    if then and float(then[3]) > 1.02 * float(then[1] or then[2]):
        yield f"the next cause takes more than the first: {finding.message}"


def _names(diagnosis: Diagnosis) -> Iterator[str]:
    """A kernel is named, not declared: of `void k(int *, const float *)` a reader needs `k`."""
    if found := re.search(r"\w\((?:const )?\w+ ?\*[^)]*", diagnosis.statement):
        yield f"parameters of a kernel ({found[0]}): {diagnosis.statement}"


def _saving(finding: Finding) -> Iterator[str]:
    text, gain = saving_text(finding), finding.recoverable
    if "saves 0 ns" in text or (gain is not None and gain.value > 0 and not _SAVES.search(text)):
        yield f"no saving that can be read: {text}"
    for found in _SAVES.finditer(text):
        value, share = ms(found[1], found[2]), float(found[3]) / 100 if found[3] else None
        low = ms(found[5], found[6]) if found[5] else ms(found[7], found[8]) if found[7] else 0.0
        high = ms(found[9], found[10]) if found[9] else value
        if not low <= value * (1 + ROUNDED) or not value <= high * (1 + ROUNDED):
            yield f"not low <= value <= high: {text}"
        if (share is None) is bool(finding.of_ms) or (share and not alike(value / finding.of_ms, share, 1e-4)):
            yield f"{found[3]} % is not {found[1]} {found[2]} of {finding.of_ms} ms: {text}"


def _statement(text: str, trace: Trace, accumulates: int) -> Iterator[str]:
    if _GENERATED.search(text):
        yield f"a generated name is no phase: {text}"
    counted = re.search(r"(\d+) micro-batches", text)
    if counted and int(counted[1]) != accumulates:
        yield f"the program has {accumulates} micro-batches: {text}"
    if text.startswith("attribution:"):
        yield from _attribution(text, trace)
    if text.startswith("overlap:"):
        yield from _overlap(text)


def _attribution(text: str, trace: Trace) -> Iterator[str]:
    body = text.partition(" (as profiled)")[0].partition(" (block-profiled")[0]
    shares = [float(share) for share in re.findall(rf"{_SHARE}(?=,|$| of the GPU time)", body)]
    if abs(sum(shares) - 100) > 0.06 * max(len(shares), 2):
        yield f"shares sum to {sum(shares):.2f} %: {text}"
    said, known, idle = _BACKWARD.search(body), backward_share(trace), re.search(r", idle ([\d.]+) %", body)
    busy = 100 - (float(idle[1]) if idle else 0.0)  # `known` is a share of it
    if said and known is not None and abs(float(said[1]) / busy - known) > 0.03:
        yield f"by sequence numbers backward is {100 * known:.1f} %: {text}"


def _overlap(text: str) -> Iterator[str]:
    found = re.search(r"OverlapScore ([\d.]+)", text)
    step = re.search(rf"of the (?:mean step of )?{_TIME}", text)
    stages = [ms(*time) for time in re.findall(rf"(?:compute|communication|copies) {_TIME}", text)]
    if not found or not step or len(stages) < 2:
        yield f"unreadable: {text}"
        return
    score, step_ms = float(found[1]), ms(step[1], step[2])
    busy_ms = sum(stages) - score * (sum(stages) - max(stages))
    if not 0 <= score <= 1 or max(stages) > step_ms * 1.01 or busy_ms > step_ms * 1.02 + 0.01 * sum(stages):
        yield f"more is done than the step holds: {text}"


def _without_steps(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.steps.count:
        yield from (f"there are no steps: {text}" for text in _texts(diagnosis) if _PER_STEP.search(text))


def _prices(diagnosis: Diagnosis) -> Iterator[str]:
    """low <= value <= high <= step, and no more than the step together on each rank; steps that stand apart from the
    usual ones are priced of the mean of all, a whole of its own."""
    total_ms, step_of = Counter[tuple[int, str]](), dict[tuple[int, str], float]()
    for card, finding in diagnosis.findings:
        gain, step_ms, whole = finding.recoverable, finding.of_ms, (finding.where.rank or 0, finding.which)
        if gain is None:
            continue
        low, high = gain.low or 0.0, gain.value if gain.high is None else gain.high
        if not low <= gain.value * (1 + 1e-9) <= high * (1 + 2e-9):
            yield f"{card.code}: not {low} <= {gain.value} <= {high}"
        if step_ms is None:
            continue
        total_ms[whole] += gain.value  # type: ignore[assignment]
        step_of[whole] = max(step_of.get(whole, 0.0), step_ms)
        if high > step_ms * (1 + 1e-9):
            yield f"{card.code}: {high} ms of a step of {step_ms} ms"
    for whole, step_ms in step_of.items():
        if total_ms[whole] > step_ms * (1 + 1e-9):
            yield f"together {total_ms[whole]} ms of a step of {step_ms} ms"


def _devices(diagnosis: Diagnosis) -> Iterator[str]:
    for device in diagnosis.devices:
        parts_ns = device.compute_ns + device.exposed_comm_ns + device.exposed_copy_ns + device.idle_ns
        if parts_ns != device.span_ns:
            yield f"device {device.device}: {parts_ns} of {device.span_ns} ns"


def backward_share(trace: Trace) -> float | None:
    """The share of device time, in the steps, of work launched inside operators that have a forward one; None where no
    operator says so. Calls are placed by time and thread alone."""
    host, calls, ops = trace.get(HOST_OPS), trace.get(API_CALLS), trace.get(DEVICE_OPS)
    if "forward_thread" not in host.columns or not calls.height or not ops.height:
        return None
    engine = pl.col("name").cast(pl.String).str.starts_with("autograd::engine")
    linked = host.filter(((pl.col("forward_thread") > 0) & pl.col("sequence_number").is_not_null()) | engine)
    if not linked.height:
        return None
    inside = np.zeros(calls.height, np.bool_)
    for key, of_thread in linked.partition_by("rank", "process", "thread", as_dict=True).items():
        rank, process, thread = key
        spans = Intervals.union_of(of_thread["start_ns"].to_numpy(), of_thread["end_ns"].to_numpy())
        mine = ((calls["rank"] == rank) & (calls["process"] == process) & (calls["thread"] == thread)).to_numpy()
        start = calls["start_ns"].to_numpy()[mine]
        inside[mine] = spans.covered_ns(start, start + 1) > 0
    call = launching_calls(ops, calls)
    windows = pacing_windows(trace)
    total, backward = 0, 0
    for (rank, device), own in windows.partition_by("rank", "device", as_dict=True).items():
        mine = ((ops["rank"] == rank) & (ops["device"] == device)).to_numpy()
        steady = Intervals(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        start, end = ops["start_ns"].to_numpy()[mine], ops["end_ns"].to_numpy()[mine]
        kernel = (ops["kind"] != "copy").to_numpy()[mine] & ~communicates(ops["name"]).to_numpy()[mine]
        linked_to = (call[mine] >= 0) & inside[np.maximum(call[mine], 0)]
        hiding = Intervals.union_of(start[kernel], end[kernel])
        shown = Intervals.union_of(start[linked_to & ~kernel], end[linked_to & ~kernel]) - hiding
        total += (Intervals.union_of(start, end) & steady).total_ns
        backward += (Intervals.union_of(start[linked_to & kernel], end[linked_to & kernel]) & steady).total_ns
        backward += (shown & steady).total_ns
    return backward / total if total else None


def told(faults: Iterable[str]) -> str:
    return "\n".join(faults)
