"""Nsight Compute reports (``.ncu-rep``): the launch of each profiled kernel, its NVTX ranges, metrics and messages of
the profiler's rules, and what the report says of the session: machine, versions, command line, devices.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.knowledge import ncu_texts
from timesink.knowledge.gpus import PER_OPCODE
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.model.trace import ImportNote, NoteKind, Trace, noted
from timesink.readers.formats import beginning
from timesink.readers.ncu import wire
from timesink.readers.ncu.tables import KernelReport, Launch, ReportSession, RuleMessage, trace_of
from timesink.readers.ncu.wire import MAGIC, Ending, blocks, count, real, text
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.protobuf import BYTES, FIXED32, FIXED64, DamagedMessage, WireField, fields
from timesink.untrusted.unpack import unpacked_whole

# The metrics of a ProfileResult: field 13, taken by `wire.collect`.
METRIC_TAG = 13 << 3 | BYTES
_LARGEST_ID = 2**63 - 1
_RULE_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}
_RECAPTURE = "capture again with `ncu -o report PROGRAM`, or copy the file again"


def read_report(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The kernels of the report. `UnreadableTrace` where it holds none."""
    data, damage = unpacked_whole(path, limits, "profile fewer kernels")
    if damage and not data:
        raise UnreadableTrace(path, f"its compression is damaged ({damage})", remedy=_RECAPTURE)
    if not data.startswith(MAGIC):
        raise UnreadableTrace(
            path, f"no Nsight Compute report: it {beginning(data)}", place="byte 0", remedy=_RECAPTURE
        )
    return trace_of(path, _report(path, format_name, data))


def launch_of(data: bytes, spans: list[tuple[int, int]]) -> Launch:
    """The launch that these fields of a result describe."""
    launch = Launch()
    for start, end in spans:
        for field in fields(data, start, end):
            if field.number == _RULES:
                launch.rules += _rule_messages(data, field)
            elif field.number in _OF_LAUNCH:
                name, value_of = _OF_LAUNCH[field.number]
                setattr(launch, name, value_of(data, field))
    return launch


def _id(_: bytes, field: WireField) -> int:
    return count(field, _LARGEST_ID)


def _clock_control(data: bytes, field: WireField) -> str:
    """From whether a locked clock was asked for (1), and had (2)."""
    states = {inner.number: bool(inner.value) for inner in _inside(data, field)}
    return ("locked_base" if states.get(2) else "lock_failed") if states.get(1) else "unlocked"


def _three(data: bytes, field: WireField) -> tuple[int, int, int]:
    sizes = {inner.number: count(inner) for inner in _inside(data, field)}
    return sizes.get(1, 0), sizes.get(2, 0), sizes.get(3, 0)


def _nvtx_ranges(data: bytes, field: WireField) -> list[str]:
    """Names of the push/pop ranges around the launch: NvtxState{2: thread{2: domain{3: range{1: name}}}}."""
    names = []
    for thread in _messages(data, field, 2):
        for domain in _messages(data, thread, 2):
            for pushed in _messages(data, domain, 3):
                names += [text(data, name) for name in _messages(data, pushed, 1)]
    return names


def _rule_messages(data: bytes, field: WireField) -> list[RuleMessage]:
    """RuleResult{1: id, 3: body{1: item{1: message{1 text, 2 kind, 4 title}, 10: speedup}}, 4: section}."""
    names = _texts(data, field)
    messages = []
    for body in _messages(data, field, 3):
        for item in _messages(data, body, 1):
            message, kind, title = _message(data, item)
            if message or title:
                speedup = _speedup(data, item)
                messages.append(RuleMessage(names.get(1, ""), names.get(4) or None, kind, title, message, *speedup))
    return messages


def _message(data: bytes, item: WireField) -> tuple[str, str, str | None]:
    words, kind, title = "", "none", None
    for message in _messages(data, item, 1):
        for inner in _inside(data, message):
            if inner.number == 1 and inner.wire == BYTES:
                words = ncu_texts.RULE_MARKUP.sub(_label, text(data, inner))
            elif inner.number == 2:
                kind = _RULE_KINDS.get(inner.value, "none")
            elif inner.number == 4 and inner.wire == BYTES:
                title = text(data, inner) or None
    return words, kind, title


def _label(markup: re.Match[str]) -> str:
    """Of ``@section:Occupancy:the section@`` and ``@url:the guide:https://...@``, the words a reader sees."""
    return markup.group(2) if markup.group(1) == "url" else markup.group(3)


def _speedup(data: bytes, item: WireField) -> tuple[str | None, float | None]:
    kind, percent = None, None
    for inner in _inside(data, next(iter(_messages(data, item, 10)), None)):
        if inner.number == 1:
            kind = _SPEEDUP_KINDS.get(inner.value)
        elif inner.number == 2 and inner.wire == FIXED64:
            percent = real(data, inner)
    return kind, percent


_RULES = 19
_OF_LAUNCH: Final[Mapping[int, tuple[str, Callable[[bytes, WireField], object]]]] = {
    1: ("process", _id),
    5: ("mangled", text),
    6: ("function", text),
    7: ("demangled", text),
    10: ("grid", _three),
    11: ("block", _three),
    21: ("ranges", _nvtx_ranges),
    22: ("context", _id),
    23: ("stream", _id),
    25: ("clock_control", _clock_control),
}
"""Fields of a result by their number: what of the launch each is, and how it is read."""


def take_session(data: bytes, details: WireField, session: ReportSession) -> None:
    """Add what one SessionDetails message says."""
    for field in _inside(data, details):
        if field.wire != BYTES:
            continue
        match field.number:
            case 3 | 4:
                session.host = _texts(data, field).get(5) or session.host
            case 6:
                _take_device(data, field, session)
            case 8:
                pair = _texts(data, field)
                if 1 in pair:
                    session.versions[pair[1]] = pair.get(2, "")
            case 11:
                session.command = text(data, field) or session.command


def _take_device(data: bytes, device: WireField, session: ReportSession) -> None:
    """A device{1: ordinal, 2: product name, 3: attribute{1: name, 2: value{...}}}."""
    ordinal, attributes = 0, dict[str, float | str]()
    for field in _inside(data, device):
        if field.number == 1:
            ordinal = count(field)
        elif field.number == 2 and field.wire == BYTES:
            attributes["device__attribute_display_name"] = text(data, field)
        elif field.number == 3 and field.wire == BYTES:
            name, value = _attribute(data, field)
            if name and value is not None:
                attributes.setdefault(name, value)
    session.devices[ordinal] = attributes


def _attribute(data: bytes, attribute: WireField) -> tuple[str, float | str | None]:
    value: float | str | None = None
    for holder in _messages(data, attribute, 2):
        for choice in _inside(data, holder):
            if choice.wire == BYTES:
                value = text(data, choice)
            else:
                value = real(data, choice) if choice.wire in (FIXED32, FIXED64) else float(choice.value)
    names = [text(data, name) for name in _messages(data, attribute, 1)]
    return (names[-1] if names else ""), value


def _inside(data: bytes, message: WireField | None) -> Iterator[WireField]:
    """The fields of a message; none where there is no message."""
    return iter(()) if message is None else fields(data, message.start, message.end)


def _messages(data: bytes, message: WireField, number: int) -> list[WireField]:
    """The fields with that number that hold bytes: messages or texts."""
    if message.wire != BYTES:
        return []
    return [inner for inner in _inside(data, message) if inner.number == number and inner.wire == BYTES]


def _texts(data: bytes, message: WireField) -> dict[int, str]:
    """The fields that hold bytes, as texts by their number."""
    return {inner.number: text(data, inner) for inner in _inside(data, message) if inner.wire == BYTES}


def _report(path: Path, format_name: str, data: bytes) -> KernelReport:
    names: list[str] = []
    launches: list[Launch] = []
    spans = wire.MetricSpans()
    session, ending = ReportSession(), Ending()
    damaged = ranges = 0
    for block in blocks(data, ending):
        names += block.strings
        ranges += block.ranges
        try:
            if block.session is not None:
                take_session(data, block.session, session)
        except DamagedMessage:
            damaged += 1
        for start, end in block.results:
            damaged += _take_result(data, (start, end), spans, launches)
    if not launches:
        place = "" if ending.cut_at is None else f"byte {ending.cut_at}"
        raise UnreadableTrace(path, _emptiness(ending, damaged), place=place, remedy=_RECAPTURE)
    metrics = wire.decode(data, spans)
    damaged_opcodes = _add_opcodes(data, spans, metrics, names)
    sound = (metrics.name >= 0) & (metrics.name < len(names))
    notes = _notes(ending, damaged, int((~sound).sum()) + damaged_opcodes, ranges)
    return KernelReport(format_name, launches, names, metrics.only(sound), session, notes=notes)


def _add_opcodes(data: bytes, spans: wire.MetricSpans, metrics: wire.MetricColumns, names: list[str]) -> int:
    """Give the metric of executed opcodes the text ``OPCODE: count; ...``, commonest first; how many are damaged."""
    numbers = [number for number, name in enumerate(names) if name == PER_OPCODE]
    damaged = 0
    for index in np.flatnonzero(np.isin(metrics.name, numbers)).tolist() if numbers else ():
        try:
            counts = wire.instances(data, spans.starts[index], spans.ends[index])
        except DamagedMessage:
            damaged += 1
            continue
        ordered = sorted((-count, name) for name, count in counts.items() if isfinite(count))
        if ordered:
            metrics.texts[index] = "; ".join(f"{name}: {-negative:.0f}" for negative, name in ordered)
    return damaged


def _take_result(data: bytes, where: tuple[int, int], spans: wire.MetricSpans, launches: list[Launch]) -> int:
    """Add one kernel; 1 where it is damaged and was left out, with nothing of it kept."""
    before = len(spans.starts)
    try:
        others = wire.collect(data, *where, METRIC_TAG, spans)
        launches.append(launch_of(data, others))
    except DamagedMessage:
        del spans.starts[before:], spans.ends[before:]
        return 1
    spans.counts.append(len(spans.starts) - before)
    return 0


def _emptiness(ending: Ending, damaged: int) -> str:
    if damaged:
        return f"its {damaged} kernels are damaged"
    return "it holds no profiled kernel" if ending.cut_at is None else f"cut off before the first kernel ({ending.why})"


def _notes(ending: Ending, kernels: int, metrics: int, ranges: int) -> tuple[ImportNote, ...]:
    broken = f"the report breaks off at byte {ending.cut_at}: {ending.why}"
    return (
        *noted(NoteKind.DAMAGE, broken, int(ending.cut_at is not None), KERNEL_PROFILES),
        *noted(NoteKind.DATA_LOSS, "damaged kernels were left out", kernels, KERNEL_PROFILES),
        *noted(NoteKind.DATA_LOSS, "damaged metrics were left out", metrics, KERNEL_METRICS),
        *noted(NoteKind.SKIPPED, "results of range replay hold no kernel", ranges, KERNEL_PROFILES),
    )
