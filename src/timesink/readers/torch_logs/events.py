"""Rows of `compile_events` and `generated_kernels`, collected while a log of torch.compile is read.

The compiler's messages say where a graph broke and why, which guard failed, which limit was hit. TORCH_TRACE also holds
the code of each graph, with the names of the nodes that each call of a kernel computes, and graphs that say of which
line each node is: the lines of the program that each kernel of a compiled graph computes. With INDUCTOR_PROVENANCE=1 it
holds, for most calls, whole stacks.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import polars as pl

from timesink.errors import UnreadableTrace, cannot_read
from timesink.knowledge import logs
from timesink.model.tables import COMPILE_EVENTS, GENERATED_KERNELS, SOURCES
from timesink.model.trace import Trace
from timesink.readers.ranks import rank_in_name
from timesink.records import State, field
from timesink.startup import regex
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import UnpackedFile

Row = dict[str, Any]
_ZONE_NS: Final = 900 * 1_000_000_000  # time zones differ by quarters of an hour
_CENTURY_NS: Final = 100 * 366 * 86_400 * 10**9  # two of these fit into 64 bits


class Events(State):
    """`rows` in order of the log, times in the log's own clock. `offsets_ns` are samples of what to add to that clock
    to come to the time since 1970, by records that state both."""

    rows: list[Row] = field(default_factory=list)
    offsets_ns: list[int] = field(default_factory=list)
    stray: Counter[str] = field(default_factory=Counter)

    def add(self, event: str, time_ns: int, key: Row, **more: Any) -> Row:
        """One row; its end is its start where none is given."""
        row = {"event": event, "start_ns": time_ns, "end_ns": time_ns, **key, **more}
        self.rows.append(row)
        return row

    def tell_clock(self, since_1970_ns: int, logged_ns: int) -> None:
        """A record states both times. A difference of centuries says nothing."""
        offset_ns = since_1970_ns - logged_ns
        if abs(offset_ns) < _CENTURY_NS:
            self.offsets_ns.append(offset_ns)

    def finish(self) -> None:
        """Fill in what only later records say: the function of a frame, the line at which a graph broke."""
        compilations = {row["frame"]: row for row in self.rows if row["event"] == "compile" and row.get("function")}
        for row in self.rows:
            compiled = compilations.get(row.get("frame"))
            if compiled is not None and row["event"] not in ("phase", "cache_hit", "cache_miss", "cache_bypass"):
                row.setdefault("function", compiled["function"])
                if row.get("file") is None:
                    row["file"], row["line"] = compiled.get("file"), compiled.get("line")
        self._place_breaks()

    def _place_breaks(self) -> None:
        """Old versions state the line of a break only in the name of the function that resumes after it."""
        for number, row in enumerate(self.rows):
            if row["event"] != "graph_break" or not row.pop("unplaced", False):
                continue
            others = self.rows[number + 1 :]
            later = (other for other in others if other["event"] == "compile" and other["frame"] != row["frame"])
            after = next((found for other in later if (found := logs.RESUMED.search(str(other.get("function"))))), None)
            if after is not None:
                row["line"] = int(after["line"])


def key_of(text: str) -> Row:
    """Frame, compilation and attempt of a compile id such as ``2/0_1``; all null for others."""
    found = logs.COMPILE_ID.search(text)
    if found is None:
        return {"frame": None, "compilation": None, "attempt": None}
    return {
        "frame": int(found["frame"]),
        "compilation": int(found["compilation"]),
        "attempt": int(found["attempt"] or 0),
    }


_GENERAL: Final = ("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")
_NO_GUARD: Final = ("triggered by", "user stack trace", "file ", "recompiling function")


class Place(NamedTuple):
    """A place in the program and what the compiler says of it; None where it does not say."""

    file: str | None
    line: int | None
    reason: str | None
    function: str | None = None


def graph_break(lines: Sequence[str]) -> Place:
    """From the message of a graph break, any version since 2.0; the innermost frame named is the place."""
    file, line, reason = None, None, None
    for number, text in enumerate(lines):
        if (found := logs.USER_CODE.search(text)) is not None and file is None:
            file, line = found["file"], int(found["line"])
        elif (found := logs.REASON.match(text)) is not None and reason is None:
            reason = found["why"].strip() or None
            if reason and reason.startswith(_GENERAL):  # the particular reason comes below the general one
                reason = next((later.strip() for later in lines[number + 1 :] if later.strip()), reason)
        elif reason is None and (found := logs.OLD_REASON.match(text)) is not None and found["why"].strip():
            reason = found["why"].strip()
    if file is None:
        frames = [found for text in lines if (found := logs.FRAME.match(text)) is not None]
        if frames:
            file, line = frames[-1]["file"], int(frames[-1]["line"])
    return Place(file, line, reason)


def recompilation(lines: Sequence[str]) -> Place:
    """From a recompilation's message or payload: the function where it is named, and the newest guard that failed."""
    head = next((match for text in lines if (match := logs.RECOMPILING.match(text.strip()))), None)
    guard = next((found for text in lines if (found := failed_guard(text))), None)
    if head is None:
        return Place(None, None, guard)
    return Place(head["file"], int(head["line"]), guard, head["function"])


def failed_guard(text: str) -> str | None:
    """The guard in one line, without the number of the cache entry and the source line after it."""
    found = logs.GUARD.match(text.rstrip())
    guard = found["guard"].strip() if found else ""
    return guard if guard and not guard.lower().startswith(_NO_GUARD) else None


def compile_events(events: Events, rank: int) -> pl.DataFrame:
    """The rows as the table of that rank; times count from 1970 where a record tells the log's year and time zone."""
    offset_ns = _offset_ns(events)
    schema = {name: dtype for name, dtype in COMPILE_EVENTS.schema.items() if name not in ("rank", "process")}
    rows = [{name: row.get(name) for name in schema} for row in events.rows]
    frame = pl.DataFrame(rows, schema=schema)
    columns = {name: frame[name] for name in schema}
    for name in ("start_ns", "end_ns"):
        columns[name] = frame[name] + offset_ns
    return COMPILE_EVENTS.build({"rank": rank, "process": 0, **columns})


def _offset_ns(events: Events) -> int:
    """From the log's clock to the time since 1970: a year and a time zone; 0 where no record tells."""
    if not events.offsets_ns:
        return 0
    return round(median(events.offsets_ns) / _ZONE_NS) * _ZONE_NS


Compilation = tuple[Any, Any]
"""Number of the frame, and of its compilation."""
_BODY: Final = regex(logs.BODY_OF_CODE, re.MULTILINE)
_MOST_FRAMES: Final = 100


class Call(State):
    """A call of a kernel in a graph's code: its number for the stacks, and what it computes, as texts of the table."""

    kernel: str
    handle: int | None
    stacks: tuple[str, ...]


class Graphs(State):
    """Collects what the records of a log say of compiled graphs, compilation by compilation; `rows` are of those whose
    end was seen."""

    rows: list[Row] = field(default_factory=list)
    _written: dict[Compilation, dict[str, str]] = field(default_factory=dict)
    _lowered: dict[Compilation, dict[str, str]] = field(default_factory=dict)
    _calls: dict[Compilation, list[Call]] = field(default_factory=dict)

    def take(self, name: str, compilation: Compilation, payload: str) -> None:
        """A record; those of other names say nothing here. `ValueError` where one is not what its name says."""
        if name == "dynamo_output_graph":
            self._written[compilation] = _places(payload)
        elif name == "inductor_post_grad_graph":
            self._lowered[compilation] = _places(payload)
        elif name == "inductor_output_code":
            self._close(compilation, None)
            places = [self._written.get(compilation, {}), self._lowered.get(compilation, {})]
            self._calls[compilation] = list(_calls(payload, places))
        elif name == "inductor_provenance_tracking_kernel_stack_traces":
            self._explain(compilation, kernel_calls(payload))
        elif name.startswith("fx_graph_cache_"):
            found = logs.GRAPH_KEY.search(payload)
            self._close(compilation, found["key"] if found else None)

    def finish(self) -> None:
        """Graphs that no cache keeps have no key."""
        for compilation in list(self._calls):
            self._close(compilation, None)

    def _explain(self, compilation: Compilation, told: list[Call]) -> None:
        calls = self._calls.setdefault(compilation, [])
        known = {(call.kernel, call.handle): call for call in calls}
        for one in told:
            call = known.get((one.kernel, one.handle))
            if call is None:
                calls.append(one)
            elif one.stacks:
                call.stacks = one.stacks

    def _close(self, compilation: Compilation, graph: str | None) -> None:
        self.rows += rows_of(self._calls.pop(compilation, []), graph)


def _places(text: str) -> dict[str, str]:
    """The line of each node of a printed graph, as a stack of one frame."""
    places, here = {}, ""
    for line in text.splitlines():
        if (found := logs.NODE_FILE.match(line)) is not None:
            here = _text(found["file"], found["line"], found["function"])
        elif line.lstrip().startswith("#"):
            here = ""
        elif here and (node := logs.NODE.match(line)) is not None:
            places[node["name"]] = here
    return places


def _calls(code: str, places: list[dict[str, str]]) -> Iterator[Call]:
    """The calls of a graph's code in order, each with the lines of the nodes that the comment above it names.

    Names are of the graph as it was written, or as it was lowered; one that both have at different lines says nothing.
    """
    body = _BODY.search(code)
    nodes: list[str] = []
    handle: tuple[str, int] | None = None
    for line in code[body.start() : body.end()].splitlines() if body else ():
        if (sources := logs.SOURCE_NODES.match(line)) is not None:
            nodes, handle = [name.strip() for name in sources["nodes"].split(",")], None
        elif (told := logs.KERNEL_HANDLE.match(line)) is not None:
            handle = told["kernel"], int(told["call"])
        elif (call := logs.CALL_IN_CODE.match(line)) is not None:
            kernel = call["kernel"]
            own = nodes[-1:] if kernel.startswith("extern_kernels.") else nodes  # what comes before made its inputs
            of_nodes = [{graph[node] for graph in places if node in graph} for node in own]
            stacks = tuple(sorted({next(iter(found)) for found in of_nodes if len(found) == 1}))
            yield Call(kernel, handle[1] if handle and handle[0] == kernel else None, stacks)
            nodes, handle = [], None


def kernel_calls(payload: str) -> list[Call]:
    """The calls of a JSON object from "kernel:number" to stacks; others are left out. `ValueError` for other texts."""
    found = parsed(payload)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    calls = []
    for key, told in found.items():
        match, listed = logs.KERNEL_CALL.match(key), told.get("stack_traces") if isinstance(told, dict) else told
        if match is not None and isinstance(listed, list):
            texts = dict.fromkeys(text for one in listed if isinstance(one, str) and (text := _stack(one)))
            calls.append(Call(match["kernel"], int(match["call"]), tuple(texts)))
    return calls


def _stack(text: str) -> str:
    """Python's text of a stack, outermost first, as that of the table, innermost first."""
    frames = [found for line in text.splitlines() if (found := logs.FRAME.match(line)) is not None]
    return ";".join(_text(one["file"], one["line"], one["function"]) for one in frames[: -1 - _MOST_FRAMES : -1])


def _text(file: str, line: str, function: str | None) -> str:
    return f"{file}({line}): {function or ''}".replace(";", ",")


def rows_of(calls: list[Call], graph: str | None) -> list[Row]:
    """A row for each stack of each call, in order; one without a stack for a call that has none."""
    return [
        {"graph": graph, "kernel": call.kernel, "call": number, "stack": stack}
        for number, call in enumerate(calls, 1)
        for stack in call.stacks or (None,)
    ]


def generated_kernels(rows: list[Row], rank: int) -> pl.DataFrame:
    """The rows as the table of that rank."""
    schema = {name: dtype for name, dtype in GENERATED_KERNELS.schema.items() if name not in ("rank", "process")}
    frame = pl.DataFrame(rows, schema={name: pl.Int32 if name == "call" else pl.String for name in schema})
    columns: Mapping[str, pl.Series] = {name: frame[name].cast(dtype) for name, dtype in schema.items()}
    return GENERATED_KERNELS.build({"rank": rank, "process": 0, **columns})


def stacks_of_file(path: Path, format_name: str, limits: ReadLimits) -> Trace:
    """The calls of one graph, from a file that holds nothing else. `UnreadableTrace` where it holds none."""
    try:
        text = b"".join(map(bytes, UnpackedFile(path, limits))).decode("utf-8", "replace")
        calls = sorted(kernel_calls(text), key=lambda call: call.handle or 0)
    except OSError as error:
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise UnreadableTrace(path, str(error), remedy="give the file as the compiler wrote it") from error
    rank = rank_in_name(path) or 0
    source = {"path": [str(path)], "format": format_name, "rank": rank, "size_bytes": path.stat().st_size}
    rows = generated_kernels(rows_of(calls, None), rank)
    return Trace(str(path), {GENERATED_KERNELS: rows, SOURCES: SOURCES.build(source)})
