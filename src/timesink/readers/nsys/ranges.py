"""What nsys records as ranges: what NVTX names, MPI and library calls, operators, and who held the Python lock; and
`host_stacks`, what it saw of the stacks of host threads.

The lock becomes states of threads. Operators are those of a framework (`torch.autograd.profiler.emit_nvtx`), whose
names say what else is known: ``aten::mm, seq = 12, op_id = 7, sizes = [[64, 512], [512, 8]]``.

There are two kinds of stack. Native ones are chains of symbols: of CPU samples (`--sample`) and of CUDA calls
(`--cudabacktrace`). Python ones (2024 and later: `--python-sampling`, `--python-backtrace`) are NVTX marks, the frames
of which an export holds as JSON where it is made with `--include-json=true`.
"""

from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any

import numpy as np
import polars as pl

from timesink import _native
from timesink.knowledge import nsys_tables
from timesink.knowledge.nsys_tables import ExportTable
from timesink.knowledge.profiler_texts import EMITTED_OPERATOR, EMITTED_SEQUENCE, EMITTED_SHAPES
from timesink.knowledge.ranges import PYTHON_LOCK
from timesink.model.tables import HOST_OPS, HOST_STACKS, RANGES, THREAD_STATES
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import Export
from timesink.readers.nsys.identifiers import UNNAMED, process_of, symbols
from timesink.readers.nsys.session import ExportReading, combined
from timesink.untrusted.plain_json import parsed

LIBRARIES = (*nsys_tables.MPI, nsys_tables.CUBLAS, nsys_tables.CUDNN)
# Event types of NVTX_EVENTS (ENUM_NSYS_EVENT_TYPE): these have kept their numbers from 2021 to 2026.
CATEGORY, MARK, DOMAIN, PUSH_POP, START_END = 33, 34, 75, 59, 60
_SYMBOLS = {
    "NvtxCategory": CATEGORY,
    "NvtxMark": MARK,
    "NvtxDomainCreate": DOMAIN,
    "NvtxPushPopRange": PUSH_POP,
    "NvtxStartEndRange": START_END,
}
_PAYLOADS = ("doubleValue", "floatValue", "int64Value", "uint64Value", "int32Value", "uint32Value")


def ranges_and_lock_states(session: ExportReading) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`ranges`, the part of `thread_states` that nsys's Python lock trace recorded as ranges, and the `host_ops` that a
    program recorded as ranges; these stay ranges, too."""
    named = _nvtx(session)
    lock = named.filter("lock")
    every = pl.concat([named.filter(~pl.col("lock")), *_library(session)], how="diagonal")
    states = session.part(THREAD_STATES, lock, state=lock["name"])
    return _nested(session, every), states, _operators(session, named)


def _operators(session: ExportReading, named: pl.DataFrame) -> pl.DataFrame:
    """`host_ops` of the ranges that are operators."""
    name = pl.col("name")
    nested = named.filter(pl.col("kind") == "push_pop")
    emitted = nested.with_columns(name.str.extract(EMITTED_OPERATOR).alias("operator"))
    emitted = emitted.drop_nulls("operator").select(
        "rank", "process", "thread", "start_ns", "end_ns",
        name.str.extract(EMITTED_SEQUENCE).cast(pl.Int64, strict=False).alias("sequence_number"),
        name.str.extract(EMITTED_SHAPES).alias("input_shapes"),
        name="operator",
    )  # fmt: skip
    return session.table(HOST_OPS, emitted)


def _nvtx(session: ExportReading) -> pl.DataFrame:
    """Ranges with the columns of `ranges`, but for their depth; `lock` marks those of the Python lock."""
    frame = session.rows(nsys_tables.NVTX)
    kind = frame["eventType"].replace_strict(_event_types(session.export), default=None, return_dtype=pl.Int32)
    named = session.strings.own_or_of(frame["text"], frame["textId"]).fill_null(UNNAMED)
    frame = frame.with_columns(kind.alias("kind"), process_of(frame["globalTid"]), named.alias("name"))
    marks = int((kind == MARK).sum())
    session.note(NoteKind.SKIPPED, "NVTX marks have no duration and are not kept", marks, nsys_tables.NVTX.name)
    spans = _closed(session, frame.filter(pl.col("kind").is_in([PUSH_POP, START_END])), "NVTX ranges")
    of_domain, of_category = ["process", "domainId"], ["process", "domainId", "category"]
    domains = frame.filter((pl.col("kind") == DOMAIN) & (pl.col("domainId") != 0))
    for keys, made, ours in ((of_domain, domains, "domain"), (of_category, frame.filter(kind == CATEGORY), "called")):
        names = made.select(*keys, pl.col("name").alias(ours)).unique(keys, keep="last", maintain_order=True)
        spans = spans.join(names, on=keys, how="left", maintain_order="left", nulls_equal=ours == "called")
    nameless = (pl.col("domainId") != 0) & pl.col("domain").is_null()
    return spans.select(
        **session.whose(spans.clone()),
        domain=pl.when(nameless).then(pl.format("domain {}", "domainId")).otherwise("domain"),
        name="name",
        start_ns="start",
        end_ns="end",
        kind=pl.when(pl.col("kind") == START_END).then(pl.lit("start_end")).otherwise(pl.lit("push_pop")),
        lock=pl.col("name").str.contains(PYTHON_LOCK) & (pl.col("domainId") != 0).fill_null(False),
        category=pl.coalesce("called", pl.col("category").replace(0, None).cast(pl.String)),
        color="color",
        payload=pl.coalesce(pl.col(name).cast(pl.Float64) for name in _PAYLOADS),
    )


def _library(session: ExportReading) -> list[pl.DataFrame]:
    """MPI, cuBLAS and cuDNN calls as ranges of a domain of that name; exports keep them in tables of their own."""
    parts = []
    for source in filter(session.has, LIBRARIES):
        domain = {nsys_tables.CUBLAS: "cuBLAS", nsys_tables.CUDNN: "cuDNN"}.get(source, "MPI")
        frame = _closed(session, session.rows(source), f"{domain} calls")
        name = session.strings.of(frame["textId" if "textId" in frame.columns else "nameId"]).fill_null(UNNAMED)
        whose = session.whose(frame)
        parts.append(
            frame.select(
                **whose, domain=pl.lit(domain), name=name, start_ns="start", end_ns="end", kind=pl.lit("push_pop")
            )
        )
    return [part for part in parts if part.height]


def _nested(session: ExportReading, frame: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with the depth of each: how many ranges of its thread, of any domain or kind, enclose it."""
    order = ["rank", "process", "thread", "start_ns", "end_ns"]
    frame = frame.sort(order, descending=[False, False, False, False, True], maintain_order=True)
    group = frame.select(pl.struct("rank", "process", "thread").rle_id()).to_series().cast(pl.Int64)
    keys = (group, frame["start_ns"], frame["end_ns"])
    _, depth, _ = _native.enclose(*(np.ascontiguousarray(key.to_numpy(), dtype=np.int64) for key in keys))
    return session.table(RANGES, frame, depth=pl.Series(depth))


def _closed(session: ExportReading, frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Ranges that have an end; the others were open when the capture stopped."""
    kept = frame.drop_nulls("end")
    message = f"{what} that were still open when the capture ended"
    session.note(NoteKind.DATA_LOSS, message, frame.height - kept.height, RANGES)
    return kept


def event_numbers(export: Export, *types: int) -> list[int]:
    """The export's numbers of these types of event, ascending."""
    return sorted(number for number, ours in _event_types(export).items() if ours in types)


def _event_types(export: Export) -> dict[int, int]:
    """The export's numbers of the event types we read, as ours."""
    stated = symbols(export, nsys_tables.EVENT_TYPES)
    return {
        **{ours: ours for ours in _SYMBOLS.values()},
        **{number: _SYMBOLS[name] for number, name in stated.items() if name in _SYMBOLS},
    }


_NAMED = ("File", "Function")
_SAMPLING = "Python Periodic Sampling"
_DEEPEST = 256  # frames of one stack that are kept, the innermost ones
_AGAIN = "nsys export --type sqlite --include-json=true"


def host_stacks(session: ExportReading) -> pl.DataFrame | None:
    """Every stack with the moment and the thread of which it is; None where stacks of no kind were recorded."""
    schemas = session.export.read(nsys_tables.PYTHON_SCHEMAS)["name"].fill_null("")
    of_python = bool(schemas.str.starts_with("Python ").any())  # as a payload of NVTX marks
    if not of_python and not session.has(nsys_tables.CPU_SAMPLES, nsys_tables.CALL_CHAINS):
        return None
    parts = []
    if session.has(nsys_tables.CPU_SAMPLES):
        parts += _with_chains(session, session.rows(nsys_tables.CPU_SAMPLES), "id", nsys_tables.SAMPLE_CHAINS, "sample")
    if session.has(nsys_tables.CALL_CHAINS):
        parts += _with_chains(
            session, session.rows(nsys_tables.CALL_STACKS), "callchainId", nsys_tables.CALL_CHAINS, "call"
        )
    return combined(HOST_STACKS, [*parts, *(_python(session) if of_python else ())])


def _with_chains(
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
    marks = session.rows(nsys_tables.PYTHON_STACKS).filter(pl.col("eventType") == MARK)
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
