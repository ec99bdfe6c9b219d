"""`host_stacks`: what Nsight Systems saw of the stacks of host threads.

There are two kinds of stack. Native ones are chains of symbols: of CPU samples (`--sample`) and of CUDA calls
(`--cudabacktrace`). Python ones (2024 and later: `--python-sampling`, `--python-backtrace`) are NVTX marks, the frames
of which an export holds as JSON where it is made with `--include-json=true`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any

import polars as pl

from timesink.model.tables import HOST_STACKS
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import export as sources
from timesink.readers.nsys.export import ExportTable
from timesink.readers.nsys.ranges import MARK
from timesink.readers.nsys.session import ExportReading, combined
from timesink.untrusted.plain_json import parsed

_NAMED = ("File", "Function")
_SAMPLING = "Python Periodic Sampling"
_DEEPEST = 256  # frames of one stack that are kept, the innermost ones
_AGAIN = "nsys export --type sqlite --include-json=true"


def host_stacks(session: ExportReading) -> pl.DataFrame | None:
    """Every stack with the moment and the thread of which it is; None where stacks of no kind were recorded."""
    schemas = session.export.read(sources.PYTHON_SCHEMAS)["name"].fill_null("")
    of_python = bool(schemas.str.starts_with("Python ").any())  # as a payload of NVTX marks
    if not of_python and not session.has(sources.CPU_SAMPLES, sources.CALL_CHAINS):
        return None
    parts = []
    if session.has(sources.CPU_SAMPLES):
        parts += _native(session, session.rows(sources.CPU_SAMPLES), "id", sources.SAMPLE_CHAINS, "sample")
    if session.has(sources.CALL_CHAINS):
        parts += _native(session, session.rows(sources.CALL_STACKS), "callchainId", sources.CALL_CHAINS, "call")
    return combined(HOST_STACKS, [*parts, *(_python(session) if of_python else ())])


def _native(
    session: ExportReading, events: pl.DataFrame, key: str, source: ExportTable, kind: str
) -> list[pl.DataFrame]:
    """Events with the chains that belong to them; of a chain, what has a symbol."""
    chains = session.export.read(source)
    named = chains.filter((pl.col("unresolved").fill_null(0) == 0) & (pl.col("stackDepth") < _DEEPEST))
    module, symbol = (session.strings.of(named[name]) for name in ("module", "symbol"))
    frames = named.select("id", "stackDepth", text=pl.format("{}(0): {}", module, symbol)).drop_nulls()
    stacks = frames.sort("id", "stackDepth").group_by("id").agg(pl.col("text").str.join(";").alias("stack"))
    found = events.drop_nulls(key).join(stacks, left_on=key, right_on="id", how="inner", maintain_order="left")
    return [_part(session, found, kind)] if found.height else []


def _part(session: ExportReading, frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    return session.part(HOST_STACKS, frame.rename({"start": "time_ns"}), kind=kind)


def _python(session: ExportReading) -> list[pl.DataFrame]:
    """The marks whose payload is a list of Python frames."""
    marks = session.rows(sources.PYTHON_STACKS).filter(pl.col("eventType") == MARK)
    texts = session.strings.own_or_of(marks["jsonText"], marks["jsonTextId"])
    marks = marks.with_columns(texts.alias("json")).drop_nulls("json")
    if not marks.height:
        message = f"Python stacks were recorded, but the export leaves them out; export again: {_AGAIN}"
        session.notes.append(ImportNote(NoteKind.SKIPPED, message, table=HOST_STACKS.name))
        return []
    payloads = {text: _payload_frames(text) for text in marks["json"].unique()}
    name_of = _names(session, payloads.values())
    stacks = {text: _stack(frames, name_of) for text, frames in payloads.items()}
    marks = marks.with_columns(marks["json"].replace_strict(stacks, return_dtype=pl.String).alias("stack")).drop_nulls(
        "stack"
    )
    periodic = marks["json"].str.contains(_SAMPLING, literal=True)
    return [_part(session, marks.filter(periodic), "sample"), _part(session, marks.filter(~periodic), "call")]


def _payload_frames(text: str) -> list[dict[str, Any]]:
    """The frames of a payload, innermost first; none where it is no JSON."""
    try:
        return _frames(parsed(text, strict=False))[:_DEEPEST]
    except ValueError:
        return []


def _names(session: ExportReading, payloads: Iterable[list[dict[str, Any]]]) -> dict[object, str]:
    """What each number of a file or function stands for: exports name them by the row of their text in `StringIds`."""
    numbers = {frame[key] for frames in payloads for frame in frames for key in _NAMED if isinstance(frame[key], int)}
    ids = pl.Series(sorted(numbers), dtype=pl.Int64)
    return {number: unescape(text) for number, text in zip(ids, session.strings.of(ids), strict=True) if text}


def _stack(frames: list[dict[str, Any]], name_of: Mapping[object, str]) -> str | None:
    """The frames as one text, ``file(line): function`` each; None where nothing is known of any."""
    named = [{key: name_of.get(frame[key], frame[key]) for key in _NAMED} | {"Line": frame["Line"]} for frame in frames]
    texts = [
        f"{frame['File']}({frame['Line']}): {frame['Function']}" for frame in named if isinstance(frame["File"], str)
    ]
    return ";".join(text.replace(";", ",") for text in texts) or None


def _frames(value: Any) -> list[dict[str, Any]]:
    """The objects with a file, a line and a function, wherever they stand in the payload, in its order."""
    if isinstance(value, list):
        return [frame for inner in value for frame in _frames(inner)]
    if not isinstance(value, dict):
        return []
    if all(isinstance(value.get(key), (str, int)) for key in (*_NAMED, "Line")):
        return [value]
    return [frame for inner in value.values() for frame in _frames(inner)]
