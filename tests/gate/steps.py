"""Laws of the one step: every door's step is of one set of windows, is its idle and its busy time, and no price is more
than the time that it is taken from. Windows are read as rows, and what they hold is summed here."""

import re
from collections.abc import Iterator
from statistics import fmean
from typing import Final

from tests.gate.answers import TIME, Answers, alike, flat, ms

from timesink.errors import UsageError
from timesink.fixes.table import parse_change
from timesink.knowledge.step_parts import WORK_WORDS
from timesink.measures.steps import steps
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.model.tables import DEVICE_OPS
from timesink.units import NS_PER_MS
from timesink.views.plan import what_if_page

_STEP: Final = re.compile(
    rf"(?<!unprofiled )(?<!median )\bthe {TIME} (?:guessed )?(mean )?(?:recorded )?step\b(?! takes an est)"
)
_ESTIMATED: Final = re.compile(rf"the {TIME} (?:guessed )?(?:mean )?step takes an estimated {TIME} without it")
_EXACT: Final = 1e-4  # of a step
_UNEVEN: Final = 1.5  # times as long: slow steps count as often as they come, and no plain mean says it
_ENOUGH: Final = 20_000_000  # pairs of windows and stretches that Python goes through
Device = tuple[int, int]
Spans = list[tuple[int, int]]


def windows_of(of: Answers) -> dict[Device, Spans]:
    """Of each device the windows of its steps, the lone slow ones left out, or else those of another in which it works;
    its whole span where there are none."""
    found: dict[Device, Spans] = {}
    rows = steps(of_usual_steps(of.trace)).windows.select("rank", "device", "start_ns", "end_ns")
    for rank, device, start, end in rows.iter_rows():
        found.setdefault((rank, device), []).append((start, end))
    longest = max(found.values(), key=lambda own: fmean(end - start for start, end in own), default=[])
    for device, spans in busy_spans(of).items():
        is_in_them = any(a < end and b > start for start, end in longest for a, b in spans)
        found.setdefault(device, longest if is_in_them else [(spans[0][0], spans[-1][1])])
    return found


def busy_spans(of: Answers) -> dict[Device, Spans]:
    """Of each device when any of its rows runs, in order."""
    found: dict[Device, Spans] = {}
    rows = of.trace.get(DEVICE_OPS).select("rank", "device", "start_ns", "end_ns").sort("rank", "device", "start_ns")
    for rank, device, start, end in rows.iter_rows():
        spans = found.setdefault((rank, device), [])
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((start, end))
    return found


def covered_ms(windows: Spans, spans: Spans) -> float | None:
    """How much of a window the spans take, the mean; None where no plain mean says it."""
    lengths = [end - start for start, end in windows]
    if max(lengths) > _UNEVEN * min(lengths) or len(windows) * len(spans) > _ENOUGH:
        return None
    return fmean(sum(max(min(end, b) - max(start, a), 0) for a, b in spans) for start, end in windows) / NS_PER_MS


def bar_is_of_the_windows(of: Answers) -> Iterator[str]:
    """The bar's steps are the windows: as many, as long, and with as much of the rows' time in them."""
    windows, busy = windows_of(of), busy_spans(of)
    for part in of.json["step_parts"]:
        device = part["rank"], part["device"]
        own, step_ms = windows[device], part["step_ms"]
        lengths = [(end - start) / NS_PER_MS for start, end in own]
        if part["steps"] not in (len(own), 0) or not min(lengths) * 0.999 <= step_ms <= max(lengths) * 1.001:
            yield f"{part['steps']} steps of {step_ms} ms of {len(own)} windows of {lengths[:4]} ms"
        work_ms = sum(one["ms"] for one in part["parts"] if one["kind"] in WORK_WORDS)
        idle_ms = sum(one["ms"] for one in part["parts"] if one["kind"] not in WORK_WORDS)
        ran_ms = covered_ms(own, busy[device])
        if ran_ms is not None and max(abs(ran_ms - work_ms), abs(ran_ms + idle_ms - step_ms)) > _EXACT * step_ms:
            yield f"{work_ms} ms of work and {idle_ms} ms idle of {step_ms} ms, in which rows run for {ran_ms} ms"


def one_step_on_a_page(of: Answers) -> Iterator[str]:
    """A length of a step without another name is the bar's; one that is called the mean may be of all steps."""
    shown = [part["step_ms"] for part in of.json["step_parts"] if part["steps"]]
    for door, sentences in of.sentences.items():
        for sentence in sentences if shown else ():
            for value, unit, is_mean in _STEP.findall(sentence):
                if not is_mean and not any(alike(ms(value, unit), one) for one in shown):
                    yield f"{door}: a step of {value} {unit} beside {shown}: {sentence[:160]}"
    for card, finding in of.diagnosis.findings:
        if shown and finding.of_ms and not finding.which and not any(alike(finding.of_ms, one) for one in shown):
            yield f"{card.code} is of {finding.of_ms} ms beside {shown}"


def unprofiled_step_of(of: Answers) -> float | None:
    """The step that prices are shares of, as the diagnosis says it: told, estimated, or the longest of the bar."""
    told = of.trace.unprofiled_step_ns
    shown = [part["step_ms"] for part in of.json["step_parts"]]
    estimated = _ESTIMATED.search(flat(of.doors["-v"]))
    if told:
        return told / NS_PER_MS
    return ms(estimated[3], estimated[4]) if estimated else max(shown, default=None)


def every_door_begins_with_one_step(of: Answers) -> Iterator[str]:
    """Findings' shares, the plan, the server's plan and `plan --change` are of the step that the diagnosis names."""
    if (known_ms := unprofiled_step_of(of)) is None:
        return
    lengths = {"the server's plan": of.plan_of_server.get("step_ms")}
    said = re.search(rf"plan: \d+ changes?, {TIME} to", of.plan)
    lengths["the plan"] = ms(*said.groups()) if said else None
    for card, finding in of.diagnosis.findings:
        if finding.which in ("", "unprofiled") and finding.period == "step":
            lengths[card.code] = finding.of_ms
    try:
        rows = what_if_page(of.trace, (parse_change("graph"),)).sheets[0].rows
        lengths |= {f"plan --change on rank {row[0]}": float(row[2] or 0.0) / NS_PER_MS for row in rows}
    except UsageError:
        pass
    for door, step_ms in lengths.items():
        if step_ms and not alike(step_ms, known_ms):
            yield f"{door} begins with {step_ms} ms, the diagnosis with {known_ms} ms"


def price_within_its_time(of: Answers) -> Iterator[str]:
    """A fix saves no more than the time of the steps that its finding claims, but where it says that others get shorter
    too, and of steps apart."""
    windows = windows_of(of)
    for card, finding in of.diagnosis.findings:
        gain, parts = finding.recoverable, finding.claim.intervals
        does_more = "next to them" in finding.message or (finding.fix and finding.fix.does_more)
        if gain is None or not parts or does_more or finding.which in ("mean", "longest"):
            continue
        spans = {
            key: list(zip(part.start_ns.tolist(), part.end_ns.tolist(), strict=True)) for key, part in parts.items()
        }
        taken = [covered_ms(windows[key], own) for key, own in spans.items()]
        most_ms = max((one for one in taken if one is not None), default=0.0)
        if None not in taken and gain.value > 1.02 * most_ms + 1e-6:
            yield f"{card.code} saves {gain.value} ms of {most_ms} ms ({finding.priced_by}): {finding.message[:100]}"


def plan_adds_up(of: Answers) -> Iterator[str]:
    """Each step of the plan begins where the one before it ends, and promises no more than is left there."""
    left_ms = of.plan_of_server.get("step_ms") or 0.0
    for rung in of.plan_of_server.get("rungs", ()):
        then = rung["then_ms"]
        if not alike(rung["step_ms"], left_ms):
            yield f"{rung['change']} begins with {rung['step_ms']} ms, where {left_ms} ms are left"
        if not 0.0 <= (then["low"] or 0.0) <= then["value"] * 1.001 <= (then["high"] or then["value"]) * 1.002:
            yield f"{rung['change']} ends at {then}"
        if then["value"] > rung["step_ms"] * 1.001:
            yield f"{rung['change']} makes {rung['step_ms']} ms longer: {then}"
        left_ms = then["value"]


LAWS: Final = (bar_is_of_the_windows, one_step_on_a_page, price_within_its_time)
OF_PAGES: Final = (every_door_begins_with_one_step, plan_adds_up)
