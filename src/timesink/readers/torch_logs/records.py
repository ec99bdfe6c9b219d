"""A log of torch.compile as a trace: its records, and the events that they tell.

A record is a line with the prefix of PyTorch's loggers. A structured one (TORCH_TRACE) is a JSON envelope, with a
payload indented below it; a message in text (TORCH_LOGS) takes several lines, each with a prefix of its own.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from timesink.errors import UnreadableTrace, cannot_read
from timesink.knowledge import logs
from timesink.model.tables import COMPILE_EVENTS, GENERATED_KERNELS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace, noted
from timesink.readers.formats import is_text_log
from timesink.readers.ranks import rank_in_name
from timesink.readers.torch_logs.events import (
    Events,
    Graphs,
    Row,
    compile_events,
    generated_kernels,
    graph_break,
    key_of,
    recompilation,
)
from timesink.records import State, field
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import UnpackedFile

_YEAR: Final = 1972  # lines carry none; a leap year, so that every day exists


class Losses(State):
    """What could not be kept, counted: records whose JSON is broken, payloads that are not what was written (their
    digest differs), and lines of others."""

    records: int = 0
    payloads: int = 0
    foreign: int = 0


class LogRecord(State):
    """One line. `time_ns` counts from the beginning of an unknown year in an unknown time zone. `envelope` is None for
    text; `payload` None where there is none, or where it is damaged: `digest` is what it should have."""

    time_ns: int
    rank: int | None
    text: str = ""
    envelope: dict[str, Any] | None = None
    digest: str | None = None
    payload: str | None = None


def records(lines: Iterable[str], losses: Losses) -> Iterator[LogRecord]:
    """Every record in order of the file."""
    record: LogRecord | None = None
    below: list[str] = []
    for line in lines:
        prefix = logs.LINE.match(line)
        if prefix is None:
            if line.startswith("\t") and record is not None and record.digest:
                below.append(line[1:])
            elif line.strip():
                losses.foreign += 1
            continue
        if record is not None:
            yield _with_payload(record, below, losses)
        record, below = _record(prefix), []
        losses.records += record is None
    if record is not None:
        yield _with_payload(record, below, losses)


def _record(prefix: re.Match[str]) -> LogRecord | None:
    """The record that a line begins; None where it is damaged."""
    rest = prefix["rest"]
    rank = int(prefix["rank"]) if prefix["rank"] else None
    time_ns = _time_ns(prefix)
    if time_ns is None or not rest.startswith('{"'):
        return None if time_ns is None else LogRecord(time_ns, rank, rest)
    try:
        envelope = parsed(rest)
    except ValueError:
        return None
    if not isinstance(envelope, dict):
        return None
    digest, stated = envelope.get("has_payload"), envelope.get("rank")
    rank = stated if isinstance(stated, int) and 0 <= stated < 1 << 31 else rank
    return LogRecord(time_ns, rank, "", envelope, digest if isinstance(digest, str) else None)


def _with_payload(record: LogRecord, lines: list[str], losses: Losses) -> LogRecord:
    """The record with the lines below it, where they are what was written."""
    if record.digest is not None:
        payload = "\n".join(lines)
        if hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest() == record.digest:
            record.payload = payload
        else:
            losses.payloads += 1
    return record


def _time_ns(prefix: re.Match[str]) -> int | None:
    text = f"{_YEAR}-{prefix['month']}-{prefix['day']} {prefix['clock']}"
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000 + int(prefix["micros"]) * 1_000


_CACHES = {"hit": "cache_hit", "miss": "cache_miss", "bypass": "cache_bypass"}
_BREAK = "dynamo_graph_break_reason"


class Structured(State):
    """Turns envelopes into rows of `events` and what `graphs` collects; `strings` is the log's table of file names."""

    events: Events
    strings: dict[int, str] = field(default_factory=dict)
    graphs: Graphs = field(default_factory=Graphs)
    _started: dict[tuple[Any, Any], Row] = field(default_factory=dict)
    _open: dict[tuple[Any, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    _broken: set[tuple[Any, Any]] = field(default_factory=set)

    def take(self, record: LogRecord) -> None:
        """One record."""
        envelope = record.envelope or {}
        key = {name: _whole(envelope.get(of)) for name, of in _KEYS}
        self._graph(record, envelope, key)
        if isinstance(envelope.get("str"), list) and len(envelope["str"]) == 2:
            text, number = envelope["str"]
            if (named := _whole(number)) is not None:
                self.strings[named] = str(text)
        elif isinstance(envelope.get("dynamo_start"), dict):
            self._start(record, envelope["dynamo_start"], key)
        elif isinstance(envelope.get("compilation_metrics"), dict):
            self._metrics(record, envelope["compilation_metrics"], key)
        elif isinstance(envelope.get("artifact"), dict):
            self._artifact(record, str(envelope["artifact"].get("name")), key)
        elif "chromium_event" in envelope and record.payload:
            self._chromium(record, record.payload, key)

    def finish(self) -> None:
        """Compilations whose end the log does not hold."""
        self.graphs.finish()
        for started in self._started.values():
            self.events.rows.append(started | {"reason": "the log ends before this compilation does"})

    def _start(self, record: LogRecord, start: dict[str, Any], key: Row) -> None:
        stack = start.get("stack")
        last = stack[-1] if isinstance(stack, list) and stack else None
        inner = last if isinstance(last, dict) else {}
        number, name = _whole(inner.get("filename")), inner.get("name")
        file = None if number is None else self.strings.get(number)
        place = {"function": _text(name), "file": file, "line": _whole(inner.get("line"))}
        row = {"event": "compile", "start_ns": record.time_ns, "end_ns": record.time_ns, **key, **place}
        self._started.setdefault((key["frame"], key["compilation"]), row)

    def _metrics(self, record: LogRecord, metrics: dict[str, Any], key: Row) -> None:
        started = self._started.pop((key["frame"], key["compilation"]), None)
        begin_ns = started["start_ns"] if started else record.time_ns
        start_s, took_s = (_number(metrics.get(name)) for name in ("start_time", "entire_frame_compile_time_s"))
        if start_s is not None:
            self.events.tell_clock(int(start_s * 1e9), begin_ns)
        end_ns = record.time_ns if took_s is None else begin_ns + int(took_s * 1e9)
        place = {
            "function": _text(metrics.get("co_name")),
            "file": _text(metrics.get("co_filename")),
            "line": _whole(metrics.get("co_firstlineno")),
        }
        if (key["frame"], key["compilation"]) not in self._broken:
            listed = metrics.get("restart_reasons")
            reasons = [str(reason) for reason in listed] if isinstance(listed, list) else []
            for reason in (reason for reason in reasons if not reason.startswith("<class ")):  # other restarts
                self.events.add("graph_break", begin_ns, key | place, reason=reason, unplaced=True)
        guards, failed = metrics.get("guard_count"), metrics.get("fail_type")
        row = self.events.add("compile", begin_ns, key | place, guards=_whole(guards))
        row["end_ns"], row["graph_ops"] = max(begin_ns, end_ns), _whole(metrics.get("graph_op_count"))
        if failed:
            self.events.add("failure", record.time_ns, key | place, reason=str(metrics.get("fail_reason") or failed))
        elif guards is None and not metrics.get("graph_op_count"):
            self.events.add("skipped", record.time_ns, key | place, reason="nothing in it to compile")

    def _artifact(self, record: LogRecord, name: str, key: Row) -> None:
        lines = (record.payload or "").splitlines()
        stem, _, last = name.rpartition("_")
        if name == _BREAK:
            self._broken.add((key["frame"], key["compilation"]))
            place = graph_break(lines)
            self.events.add("graph_break", record.time_ns, key, file=place.file, line=place.line, reason=place.reason)
        elif name == "recompile_reasons":
            found = recompilation(_listed(record.payload or ""))
            self.events.add("recompile", record.time_ns, key, reason=found.reason)
        elif last in _CACHES and stem.endswith("cache"):
            self.events.add(_CACHES[last], record.time_ns, key, function=stem)

    def _graph(self, record: LogRecord, envelope: dict[str, Any], key: Row) -> None:
        if not record.payload:
            return
        artifact = envelope.get("artifact")
        named = [str(artifact.get("name"))] if isinstance(artifact, dict) else list(envelope)
        for name in named:
            try:
                self.graphs.take(name, (key["frame"], key["compilation"]), record.payload)
            except ValueError:
                self.events.stray["lists of kernels that are no JSON"] += 1

    def _chromium(self, record: LogRecord, payload: str, key: Row) -> None:
        try:
            event = parsed(payload)
            name, phase, at_ns = str(event["name"]), event["ph"], int(float(event["ts"]) * 1e3)
        except (ValueError, KeyError, TypeError, OverflowError):
            self.events.stray["timed events that are no Chrome events"] += 1
            return
        self.events.tell_clock(at_ns, record.time_ns)
        opened = self._open[str(event.get("tid")), name]
        if phase == "B":
            opened.append(at_ns)
        elif phase == "E" and opened:
            length_ns = max(at_ns - opened.pop(), 0)
            row = self.events.add("phase", record.time_ns - length_ns, key, function=name)
            row["end_ns"] = record.time_ns


_KEYS = (("frame", "frame_id"), ("compilation", "frame_compile_id"), ("attempt", "attempt"))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11 else None


def _listed(payload: str) -> list[str]:
    """A payload that is a JSON list of texts, or plain lines."""
    try:
        found = parsed(payload)
    except ValueError:
        return payload.splitlines()
    parts = found if isinstance(found, list) else [found]
    return [line for part in parts for line in str(part).splitlines()]


_BEGINS: Final = {"graph_breaks": "Graph break", "recompiles": "Recompiling function", "guards": "GUARDS:"}


class Text(State):
    """Turns lines into rows of `events`."""

    events: Events
    _open: dict[str, tuple[str, int, list[str]]] = field(default_factory=dict)

    def take(self, record: LogRecord) -> None:
        """One line."""
        found = logs.MESSAGE.match(record.text)
        if found is None:
            return
        channel, said, id_ = found["channel"] or "", found["said"], found["id"] or ""
        if channel in _BEGINS:
            if said.startswith(_BEGINS[channel]):
                self._close(channel)
                self._open[channel] = (id_, record.time_ns, [])
            if channel in self._open:
                self._open[channel][2].append(said)
        elif channel == "perf_hints" and said.strip():
            self.events.add("perf_hint", record.time_ns, key_of(id_), reason=said.strip())
        else:
            self._plain(record.time_ns, id_, said)

    def finish(self) -> None:
        """What the end of the log leaves open."""
        for channel in list(self._open):
            self._close(channel)

    def _plain(self, time_ns: int, id_: str, said: str) -> None:
        if (limit := logs.LIMIT.search(said)) is not None:
            self.events.add("limit", time_ns, key_of(id_), reason=f"{limit['limit']} ({limit['count']})")
        elif (limited := logs.LIMITED.match(said)) is not None and self.events.rows:
            last = self.events.rows[-1]
            if last["event"] == "limit" and "function" not in last:
                last |= {"function": limited["function"], "file": limited["file"], "line": int(limited["line"])}
        elif (skipped := logs.SKIPPED.match(said)) is not None:
            more = {"function": skipped["function"], "file": skipped["file"], "reason": skipped["why"]}
            self.events.add("skipped", time_ns, key_of(id_), **more)
        elif (tracing := logs.TRACING.search(said)) is not None:
            key = key_of(id_)
            if not key["attempt"]:
                more = {"function": tracing["function"], "file": tracing["file"]}
                self.events.add("compile", time_ns, key, **more, line=int(tracing["line"]))

    def _close(self, channel: str) -> None:
        if channel not in self._open:
            return
        id_, time_ns, lines = self._open.pop(channel)
        key = key_of(id_)
        if channel == "graph_breaks":
            place = graph_break(lines)
            self.events.add("graph_break", time_ns, key, file=place.file, line=place.line, reason=place.reason)
        elif channel == "recompiles":
            found = recompilation(lines)
            named = {"function": found.function} if found.function else {}
            more = named | {"file": found.file, "line": found.line, "reason": found.reason}
            self.events.add("recompile", time_ns, key, **more)
        else:
            self.events.add("guards", time_ns, key, guards=sum(bool(logs.GUARD_LEAF.search(line)) for line in lines))


def read_log(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """Every record of the log; a log of text without any holds no event, if its author set TORCH_LOGS, as a note says.
    `UnreadableTrace` where another file has none, or the file cannot be read."""
    losses, events, ranks, count = Losses(), Events(), set[int](), 0
    structured, text = Structured(events), Text(events)
    file = UnpackedFile(path, limits)
    for record in records(_lines(file), losses):
        count += 1
        if record.rank is not None:
            ranks.add(record.rank)
        if record.envelope is not None:
            structured.take(record)
        else:
            text.take(record)
    if not count and (file.problem or not is_text_log(path)):
        raise UnreadableTrace(path, "no record of PyTorch's loggers can be read", remedy="give the log as written")
    structured.finish()
    text.finish()
    events.finish()
    rank = min(ranks) if ranks else rank_in_name(path) or 0
    source = {"path": [str(path)], "format": format_name, "rank": rank, "size_bytes": path.stat().st_size}
    tables = {COMPILE_EVENTS: compile_events(events, rank), SOURCES: SOURCES.build(source)}
    if structured.graphs.rows:
        tables[GENERATED_KERNELS] = generated_kernels(structured.graphs.rows, rank)
    return Trace(str(path), tables, _notes(file.problem, losses, events, ranks))


def _lines(file: UnpackedFile) -> Iterator[str]:
    """Lines as the digests count them: only a newline ends one."""
    rest = b""
    try:
        for piece in file:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
    except OSError as error:
        raise cannot_read(file.path, error) from error
    if rest:
        yield rest.decode("utf-8", "replace")


def _notes(damage: str, losses: Losses, events: Events, ranks: set[int]) -> tuple[ImportNote, ...]:
    unclocked = "the log states no year and no time zone: its times are right to each other only"
    several = f"one log of ranks {', '.join(map(str, sorted(ranks)))}: all counted as the first"
    counted = (
        (NoteKind.DAMAGE, f"{damage}; what came before it was read", int(bool(damage))),
        (NoteKind.DATA_LOSS, "records whose JSON is broken", losses.records),
        (NoteKind.DATA_LOSS, "payloads that are damaged (their MD5 differs)", losses.payloads),
        *((NoteKind.DATA_LOSS, what, count) for what, count in sorted(events.stray.items())),
        (NoteKind.SKIPPED, "lines from other sources than PyTorch's loggers", losses.foreign),
    )
    notes = [note for row in counted for note in noted(*row, COMPILE_EVENTS)]
    notes += noted(NoteKind.ASSUMED, several, len(ranks) if len(ranks) > 1 else 0, COMPILE_EVENTS, whole=True)
    if events.rows and not events.offsets_ns:
        place = len(notes) - (len(ranks) > 1)
        notes.insert(place, ImportNote(NoteKind.ASSUMED, unclocked, len(events.rows), COMPILE_EVENTS.name, whole=True))
    return tuple(notes)
