"""What nsys records as ranges: what NVTX names, MPI and library calls, operators, and who held the Python lock.

The last becomes states of threads. Operators are those of a framework (`torch.autograd.profiler.emit_nvtx`), whose
names say what else is known: ``aten::mm, seq = 12, op_id = 7, sizes = [[64, 512], [512, 8]]``.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink import _native
from timesink.knowledge.profiler_texts import EMITTED_OPERATOR, EMITTED_SEQUENCE, EMITTED_SHAPES
from timesink.knowledge.ranges import PYTHON_LOCK
from timesink.model.tables import HOST_OPS, RANGES, THREAD_STATES
from timesink.model.trace import NoteKind
from timesink.readers.nsys import export as sources
from timesink.readers.nsys.export import Export
from timesink.readers.nsys.identifiers import UNNAMED, process_of, symbols
from timesink.readers.nsys.session import ExportReading

LIBRARIES = (*sources.MPI, sources.CUBLAS, sources.CUDNN)
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
    name = pl.col("name").cast(pl.String)
    emitted = named.filter(pl.col("kind") == "push_pop").select(
        "rank", "process", "thread", "start_ns", "end_ns",
        name.str.extract(EMITTED_OPERATOR).alias("name"),
        name.str.extract(EMITTED_SEQUENCE).cast(pl.Int64, strict=False).alias("sequence_number"),
        name.str.extract(EMITTED_SHAPES).alias("input_shapes"),
    )  # fmt: skip
    return session.table(HOST_OPS, emitted.drop_nulls("name"))


def _nvtx(session: ExportReading) -> pl.DataFrame:
    """Ranges with the columns of `ranges`, but for their depth; `lock` marks those of the Python lock."""
    frame = session.rows(sources.NVTX)
    kind = frame["eventType"].replace_strict(_event_types(session.export), default=None, return_dtype=pl.Int32)
    named = session.strings.own_or_of(frame["text"], frame["textId"]).fill_null(UNNAMED)
    frame = frame.with_columns(kind.alias("kind"), process_of(frame["globalTid"]), named.alias("name"))
    marks = int((kind == MARK).sum())
    session.note(NoteKind.SKIPPED, "NVTX marks have no duration and are not kept", marks, sources.NVTX.name)
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
    for source in LIBRARIES:
        domain = {sources.CUBLAS: "cuBLAS", sources.CUDNN: "cuDNN"}.get(source, "MPI")
        frame = _closed(session, session.rows(source), f"{domain} calls")
        name = session.strings.of(frame["textId" if "textId" in frame.columns else "nameId"]).fill_null(UNNAMED)
        whose = session.whose(frame)
        parts.append(
            frame.select(
                **whose,
                domain=pl.lit(domain),
                name=name,
                start_ns="start",
                end_ns="end",
                kind=pl.lit("push_pop"),
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
    stated = symbols(export, sources.EVENT_TYPES)
    return {
        **{ours: ours for ours in _SYMBOLS.values()},
        **{number: _SYMBOLS[name] for number, name in stated.items() if name in _SYMBOLS},
    }
