"""The lines of the program that each kernel of a compiled graph computes, as TorchInductor's log states them.

TORCH_TRACE holds the code of each graph, with the names of the nodes that each call of a kernel computes, and graphs
that say of which line each node is. With INDUCTOR_PROVENANCE=1 it also holds, for most calls, whole stacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge import logs
from timesink.model.record import dataclass, field
from timesink.model.tables import GENERATED_KERNELS, SOURCES
from timesink.model.trace import Trace
from timesink.readers.formats import HEAD_BYTES, Reader
from timesink.readers.ranks import rank_in_name
from timesink.startup import regex
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import ReadLimits, UnpackedFile, unpacked_head

Row = dict[str, Any]
Compilation = tuple[Any, Any]
"""Number of the frame, and of its compilation."""
_KEY: Final = regex(logs.KERNEL_CALL)
_FRAME: Final = regex(logs.FRAME)
_GRAPH: Final = regex(logs.GRAPH_KEY)
_FILE: Final = regex(logs.NODE_FILE)
_NODE: Final = regex(logs.NODE)
_SOURCES: Final = regex(logs.SOURCE_NODES)
_HANDLE: Final = regex(logs.KERNEL_HANDLE)
_CALL: Final = regex(logs.CALL_IN_CODE)
_BODY: Final = regex(logs.BODY_OF_CODE, re.MULTILINE)
_HEAD: Final = regex(logs.KERNEL_STACKS)
_MOST_FRAMES: Final = 100


@dataclass(slots=True)
class Call:
    """A call of a kernel in a graph's code: its number for the stacks, and what it computes, as texts of the table."""

    kernel: str
    handle: int | None
    stacks: tuple[str, ...]


@dataclass(slots=True)
class Graphs:
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
            found = _GRAPH.search(payload)
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
        if (found := _FILE.match(line)) is not None:
            here = _text(found["file"], found["line"], found["function"])
        elif line.lstrip().startswith("#"):
            here = ""
        elif here and (node := _NODE.match(line)) is not None:
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
        if (sources := _SOURCES.match(line)) is not None:
            nodes, handle = [name.strip() for name in sources["nodes"].split(",")], None
        elif (told := _HANDLE.match(line)) is not None:
            handle = told["kernel"], int(told["call"])
        elif (call := _CALL.match(line)) is not None:
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
        match, listed = _KEY.match(key), told.get("stack_traces") if isinstance(told, dict) else told
        if match is not None and isinstance(listed, list):
            texts = dict.fromkeys(text for one in listed if isinstance(one, str) and (text := _stack(one)))
            calls.append(Call(match["kernel"], int(match["call"]), tuple(texts)))
    return calls


def _stack(text: str) -> str:
    """Python's text of a stack, outermost first, as that of the table, innermost first."""
    frames = [found for line in text.splitlines() if (found := _FRAME.match(line)) is not None]
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


class KernelStacks(Reader):
    """Reader of the stacks of one graph in a file of its own, as tools that split TORCH_TRACE write it."""

    format = "inductor_provenance"
    kind = "companion"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first key of the object."""
        return _HEAD.match((unpacked_head(head, HEAD_BYTES) or b"").decode("utf-8", "replace")) is not None

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The calls of the graph, whose key the file does not say."""
        try:
            text = b"".join(map(bytes, UnpackedFile(path, limits))).decode("utf-8", "replace")
            calls = sorted(kernel_calls(text), key=lambda call: call.handle or 0)
        except OSError as error:
            raise UnreadableTrace(path, error.strerror or str(error), remedy="check the path") from error
        except ValueError as error:
            raise UnreadableTrace(path, str(error), remedy="give the file as the compiler wrote it") from error
        rank = rank_in_name(path) or 0
        source = {"path": [str(path)], "format": self.format, "rank": rank, "size_bytes": path.stat().st_size}
        rows = generated_kernels(rows_of(calls, None), rank)
        return Trace(str(path), {GENERATED_KERNELS: rows, SOURCES: SOURCES.build(source)})
