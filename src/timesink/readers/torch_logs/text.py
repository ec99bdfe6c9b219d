"""Text records (TORCH_LOGS) as events: messages of several lines, each line with the prefix of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from timesink.readers.torch_logs.events import Events, key_of
from timesink.readers.torch_logs.lines import Record
from timesink.readers.torch_logs.messages import graph_break, recompilation

_LINE: Final = re.compile(
    r"(?:\[(?P<id>[^\]\s]*\d{1,9}/\d{1,9}[^\]\s]*|-/-)\] )?(?:\[__(?P<channel>\w+)\] ?)?(?P<said>.*)$"
)
_BEGINS: Final = {"graph_breaks": "Graph break", "recompiles": "Recompiling function", "guards": "GUARDS:"}
_LIMIT: Final = re.compile(r"hit config\.(?P<limit>\w+) \((?P<count>\d{1,9})\)")
_LIMITED: Final = re.compile(r"\s*function: '(?P<function>[^']+)' \((?P<file>.+):(?P<line>\d{1,9})\)")
_SKIPPED: Final = re.compile(r"^skipping:? (?P<function>\S+) \(reason: (?P<why>.*), file: (?P<file>.*)\)")
_TRACING: Final = re.compile(r"Step 1: torchdynamo start tracing (?P<function>\S+) (?P<file>.+):(?P<line>\d{1,9})")
_LEAF: Final = re.compile(r"\+- (?![A-Za-z]*Manager\b)[A-Z_]+")


@dataclass(slots=True)
class _Block:
    channel: str
    id: str
    time_ns: int
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Text:
    """Turns lines into rows of `events`."""

    events: Events
    _open: dict[str, _Block] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """One line."""
        found = _LINE.match(record.text)
        if found is None:
            return
        channel, said, id_ = found["channel"] or "", found["said"], found["id"] or ""
        if channel in _BEGINS:
            if said.startswith(_BEGINS[channel]):
                self._close(channel)
                self._open[channel] = _Block(channel, id_, record.time_ns)
            if channel in self._open:
                self._open[channel].lines.append(said)
        elif channel == "perf_hints" and said.strip():
            self.events.add("perf_hint", record.time_ns, key_of(id_), reason=said.strip())
        else:
            self._plain(record.time_ns, id_, said)

    def finish(self) -> None:
        """What the end of the log leaves open."""
        for channel in list(self._open):
            self._close(channel)

    def _plain(self, time_ns: int, id_: str, said: str) -> None:
        if (limit := _LIMIT.search(said)) is not None:
            self.events.add("limit", time_ns, key_of(id_), reason=f"{limit['limit']} ({limit['count']})")
        elif (limited := _LIMITED.match(said)) is not None and self.events.rows:
            last = self.events.rows[-1]
            if last["event"] == "limit" and "function" not in last:
                last |= {"function": limited["function"], "file": limited["file"], "line": int(limited["line"])}
        elif (skipped := _SKIPPED.match(said)) is not None:
            more = {"function": skipped["function"], "file": skipped["file"], "reason": skipped["why"]}
            self.events.add("skipped", time_ns, key_of(id_), **more)
        elif (tracing := _TRACING.search(said)) is not None:
            key = key_of(id_)
            if not key["attempt"]:
                more = {"function": tracing["function"], "file": tracing["file"]}
                self.events.add("compile", time_ns, key, **more, line=int(tracing["line"]))

    def _close(self, channel: str) -> None:
        block = self._open.pop(channel, None)
        if block is None:
            return
        key = key_of(block.id)
        if channel == "graph_breaks":
            place = graph_break(block.lines)
            self.events.add("graph_break", block.time_ns, key, file=place.file, line=place.line, reason=place.reason)
        elif channel == "recompiles":
            found = recompilation(block.lines)
            named = {"function": found.function} if found.function else {}
            self.events.add(
                "recompile", block.time_ns, key, **named, file=found.file, line=found.line, reason=found.reason
            )
        else:
            leaves = sum(bool(_LEAF.search(line)) for line in block.lines)
            self.events.add("guards", block.time_ns, key, guards=leaves)
