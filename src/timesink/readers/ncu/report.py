"""Nsight Compute reports (``.ncu-rep``): the launch of each profiled kernel, its NVTX ranges, metrics and messages of
the profiler's rules, and what the report says of the session: machine, versions, command line, devices.
"""

from __future__ import annotations

import re
from pathlib import Path

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.ncu import wire
from timesink.readers.ncu.tables import KernelReport, Launch, ReportSession, RuleMessage, trace_of
from timesink.readers.ncu.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    MAGIC,
    DamagedMessage,
    Ending,
    Field,
    blocks,
    count,
    fields,
    real,
    text,
)
from timesink.untrusted.unpack import ReadLimits, unpacked_whole

# The metrics of a ProfileResult: field 13, taken by `wire.collect`.
METRIC_TAG = 13 << 3 | BYTES
_LARGEST_ID = 2**63 - 1
_RULE_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}
_MARKUP = re.compile(r"@(\w+):([^@:]*):([^@]*)@")
_RECAPTURE = "capture again with `ncu -o report PROGRAM`, or copy the file again"


def read_report(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The kernels of the report. `UnreadableTrace` where it holds none."""
    data, damage = unpacked_whole(path, limits, "profile fewer kernels")
    if damage and not data:
        raise UnreadableTrace(path, f"its compression is damaged ({damage})", remedy=_RECAPTURE)
    if not data.startswith(MAGIC):
        raise UnreadableTrace(
            path, f"no Nsight Compute report: it begins with {data[:8]!r}", place="byte 0", remedy=_RECAPTURE
        )
    return trace_of(path, _report(path, format_name, data))


def launch_of(data: bytes, spans: list[tuple[int, int]]) -> Launch:
    """The launch that these fields of a result describe."""
    launch = Launch()
    for start, end in spans:
        for part in fields(data, start, end):
            _take(data, part, launch)
    return launch


def _take(data: bytes, part: Field, launch: Launch) -> None:
    match part.number:
        case 1:
            launch.process = count(part, _LARGEST_ID)
        case 5:
            launch.mangled = text(data, part)
        case 6:
            launch.function = text(data, part)
        case 7:
            launch.demangled = text(data, part)
        case 10:
            launch.grid = _three(data, part)
        case 11:
            launch.block = _three(data, part)
        case 19:
            launch.rules += _rule_messages(data, part)
        case 21:
            launch.ranges = _nvtx_ranges(data, part)
        case 22:
            launch.context = count(part, _LARGEST_ID)
        case 23:
            launch.stream = count(part, _LARGEST_ID)
        case 25:
            states = {one.number: bool(one.value) for one in fields(data, part.start, part.end)}
            launch.lock_requested, launch.lock_executed = states.get(1, False), states.get(2, False)
        case _:
            pass


def _three(data: bytes, part: Field) -> tuple[int, int, int]:
    sizes = {one.number: count(one) for one in fields(data, part.start, part.end)}
    return sizes.get(1, 0), sizes.get(2, 0), sizes.get(3, 0)


def _nvtx_ranges(data: bytes, part: Field) -> list[str]:
    """Names of the push/pop ranges around the launch: NvtxState{2: thread{2: domain{3: range{1: name}}}}."""
    names = []
    for thread in _messages(data, part, 2):
        for domain in _messages(data, thread, 2):
            for pushed in _messages(data, domain, 3):
                names += [text(data, one) for one in _messages(data, pushed, 1)]
    return names


def _rule_messages(data: bytes, part: Field) -> list[RuleMessage]:
    """RuleResult{1: id, 3: body{1: item{1: message{1 text, 2 kind, 4 title}, 10: speedup}}, 4: section}."""
    rule, section, messages = "", None, []
    items: list[Field] = []
    for one in fields(data, part.start, part.end):
        if one.wire != BYTES:
            continue
        if one.number == 1:
            rule = text(data, one)
        elif one.number == 4:
            section = text(data, one) or None
        elif one.number == 3:
            items += _messages(data, one, 1)
    for item in items:
        message, kind, title = _message(data, item)
        if message or title:
            speedup_kind, percent = _speedup(data, item)
            messages.append(RuleMessage(rule, section, kind, title, message, speedup_kind, percent))
    return messages


def _message(data: bytes, item: Field) -> tuple[str, str, str | None]:
    words, kind, title = "", "none", None
    for message in _messages(data, item, 1):
        for one in fields(data, message.start, message.end):
            if one.number == 1 and one.wire == BYTES:
                words = _MARKUP.sub(_label, text(data, one))
            elif one.number == 2:
                kind = _RULE_KINDS.get(one.value, "none")
            elif one.number == 4 and one.wire == BYTES:
                title = text(data, one) or None
    return words, kind, title


def _label(found: re.Match[str]) -> str:
    """Of ``@section:Occupancy:the section@`` and ``@url:the guide:https://...@``, the words a reader sees."""
    return found.group(2) if found.group(1) == "url" else found.group(3)


def _speedup(data: bytes, item: Field) -> tuple[str | None, float | None]:
    for estimate in _messages(data, item, 10):
        kind, percent = None, None
        for one in fields(data, estimate.start, estimate.end):
            if one.number == 1:
                kind = _SPEEDUP_KINDS.get(one.value)
            elif one.number == 2 and one.wire == FIXED64:
                percent = real(data, one)
        return kind, percent
    return None, None


def _messages(data: bytes, part: Field, number: int) -> list[Field]:
    if part.wire != BYTES:
        return []
    return [one for one in fields(data, part.start, part.end) if one.number == number and one.wire == BYTES]


def take_session(data: bytes, details: Field, session: ReportSession) -> None:
    """Add what one SessionDetails message says."""
    for part in fields(data, details.start, details.end):
        if part.wire != BYTES:
            continue
        match part.number:
            case 3 | 4:
                names = {one.number: text(data, one) for one in fields(data, part.start, part.end) if one.wire == BYTES}
                session.host = names.get(5) or session.host
            case 6:
                _take_device(data, part, session)
            case 8:
                pair = {one.number: text(data, one) for one in fields(data, part.start, part.end) if one.wire == BYTES}
                if 1 in pair:
                    session.versions[pair[1]] = pair.get(2, "")
            case 11:
                session.command = text(data, part) or session.command
            case _:
                pass


def take_process(data: bytes, process: Field, session: ReportSession) -> None:
    """Add what one Process message says: its id and its executable."""
    number, name = None, ""
    for part in fields(data, process.start, process.end):
        if part.number == 1:
            number = part.value
        elif part.number == 3 and part.wire == BYTES:
            name = text(data, part)
    if number is not None:
        session.processes[number] = name


def _take_device(data: bytes, part: Field, session: ReportSession) -> None:
    """A device{1: ordinal, 2: product name, 3: attribute{1: name, 2: value{...}}}."""
    ordinal, attributes = 0, dict[str, float | str]()
    for one in fields(data, part.start, part.end):
        if one.number == 1:
            ordinal = count(one)
        elif one.number == 2 and one.wire == BYTES:
            attributes["device__attribute_display_name"] = text(data, one)
        elif one.number == 3 and one.wire == BYTES:
            name, value = _attribute(data, one)
            if name and value is not None:
                attributes.setdefault(name, value)
    session.devices[ordinal] = attributes


def _attribute(data: bytes, part: Field) -> tuple[str, float | str | None]:
    name: str = ""
    value: float | str | None = None
    for one in fields(data, part.start, part.end):
        if one.number == 1 and one.wire == BYTES:
            name = text(data, one)
        elif one.number == 2 and one.wire == BYTES:
            for choice in fields(data, one.start, one.end):
                if choice.wire == BYTES:
                    value = text(data, choice)
                else:
                    value = real(data, choice) if choice.wire in (FIXED32, FIXED64) else float(choice.value)
    return name, value


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
            if block.process is not None:
                take_process(data, block.process, session)
        except DamagedMessage:
            damaged += 1
        for start, end in block.results:
            damaged += _take_result(data, (start, end), spans, launches)
    if not launches:
        place = "" if ending.cut_at is None else f"byte {ending.cut_at}"
        raise UnreadableTrace(path, _emptiness(ending, damaged), place=place, remedy=_RECAPTURE)
    metrics = wire.decode(data, spans)
    sound = (metrics.name >= 0) & (metrics.name < len(names))
    notes = _notes(ending, damaged, int((~sound).sum()), ranges)
    return KernelReport(format_name, launches, names, metrics.only(sound), session, notes=notes)


def _take_result(data: bytes, where: tuple[int, int], spans: wire.MetricSpans, launches: list[Launch]) -> int:
    """Add one kernel; 1 where it is damaged and was left out, with nothing of it kept."""
    known = len(spans.starts)
    try:
        others = wire.collect(data, *where, METRIC_TAG, spans)
        launches.append(launch_of(data, others))
    except DamagedMessage:
        del spans.starts[known:], spans.ends[known:]
        return 1
    spans.counts.append(len(spans.starts) - known)
    return 0


def _emptiness(ending: Ending, damaged: int) -> str:
    if damaged:
        return f"its {damaged} kernels are damaged"
    if ending.cut_at is not None:
        return f"cut off before the first kernel ({ending.why})"
    return "it holds no profiled kernel"


def _notes(ending: Ending, kernels: int, metrics: int, ranges: int) -> tuple[ImportNote, ...]:
    notes = []
    if ending.cut_at is not None:
        why = f"the report breaks off at byte {ending.cut_at}: {ending.why}"
        notes.append(ImportNote(NoteKind.DATA_LOSS, why, 1, "kernel_profiles"))
    if kernels:
        notes.append(ImportNote(NoteKind.DATA_LOSS, "damaged kernels were left out", kernels, "kernel_profiles"))
    if metrics:
        notes.append(ImportNote(NoteKind.DATA_LOSS, "damaged metrics were left out", metrics, "kernel_metrics"))
    if ranges:
        notes.append(ImportNote(NoteKind.SKIPPED, "results of range replay hold no kernel", ranges, "kernel_profiles"))
    return tuple(notes)
