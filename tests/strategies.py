"""Hypothesis strategies of tables that obey the schema: small, crowded with ties, overlaps and missing links."""

from collections.abc import Callable
from typing import Any

import polars as pl
from hypothesis import strategies as st

from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace

Record = dict[str, Any]

KERNELS = ("gemm", "softmax", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
CALLS = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaStreamSynchronize")


def frame(table: Table, records: list[Record]) -> pl.DataFrame:
    """A checked frame of records, which leave out what is null; missing keys of a required column are an error."""
    if not records:
        return table.empty()
    return table.build({name: [record.get(name) for record in records] for name in {key for r in records for key in r}})


@st.composite
def device_op(draw: st.DrawFn, ranks: int = 2, devices: int = 2, horizon_ns: int = 120) -> Record:
    """One op. Short horizon: ops overlap, touch, repeat and have no length at all."""
    start = draw(st.integers(0, horizon_ns))
    kind = draw(st.sampled_from(["kernel", "kernel", "copy", "set", "graph"]))
    record: Record = {
        "rank": draw(st.integers(0, ranks - 1)),
        "device": draw(st.integers(0, devices - 1)),
        "process": 1,
        "stream": draw(st.sampled_from([7, 20])),
        "kind": kind,
        "name": draw(st.sampled_from(KERNELS)) if kind == "kernel" else kind,
        "start_ns": start,
        "end_ns": start + draw(st.integers(0, 30)),
        "correlation": draw(st.none() | st.integers(1, 12)),
    }
    if kind == "copy":
        record["copy_kind"] = draw(st.sampled_from(["h2d", "d2h", "d2d"]))
        record["src_memory"] = draw(st.sampled_from(["pageable", "pinned", "device"]))
        record["dst_memory"] = draw(st.sampled_from(["pageable", "pinned", "device"]))
        record["bytes"] = draw(st.none() | st.integers(0, 10**6))
    return record


@st.composite
def api_call(draw: st.DrawFn, ranks: int = 2, horizon_ns: int = 120) -> Record:
    start = draw(st.integers(0, horizon_ns))
    return {
        "rank": draw(st.integers(0, ranks - 1)),
        "process": 1,
        "thread": draw(st.integers(1, 2)),
        "name": draw(st.sampled_from(CALLS)),
        "start_ns": start,
        "end_ns": start + draw(st.integers(0, 15)),
        "correlation": draw(st.none() | st.integers(1, 12)),
    }


@st.composite
def nested(draw: st.DrawFn, names: tuple[str, ...], thread: int) -> list[Record]:
    """Properly nested intervals of one thread: a walk that opens and closes, with time passing or standing still."""
    steps = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from(names)), max_size=16))
    now, open_, done = 0, [], []
    for opens, passed, name in steps:
        now += passed
        if opens or not open_:
            record = {"rank": 0, "process": 1, "thread": thread, "name": name, "start_ns": now, "depth": len(open_)}
            open_.append(record)
            done.append(record)
        else:
            open_.pop()["end_ns"] = now
    while open_:
        now += 1
        open_.pop()["end_ns"] = now
    return done


@st.composite
def traces(draw: st.DrawFn, min_ops: int = 0) -> Trace:
    """Device ops, calls, operators and ranges of two ranks; correlations meet, miss, and serve several ops."""
    ops = draw(st.lists(device_op(), min_size=min_ops, max_size=14))
    calls = draw(st.lists(api_call(), max_size=14, unique_by=lambda call: (call["rank"], call["correlation"])))
    host = [op for thread in (1, 2) for op in draw(nested(("aten::mm", "aten::add", "aten::to"), thread))]
    ranges = [{**one, "kind": "push_pop"} for one in draw(nested(("forward", "backward", "step"), 1))]
    for number, op in enumerate(host):
        op.pop("depth")
        op["external_id"] = number + 1
    return Trace(
        "test",
        {
            DEVICE_OPS: frame(DEVICE_OPS, ops),
            API_CALLS: frame(API_CALLS, calls),
            HOST_OPS: frame(HOST_OPS, host),
            RANGES: frame(RANGES, ranges),
        },
    )


def shifted(trace: Trace, by_ns: int) -> Trace:
    """The same trace on a clock that reads `by_ns` later."""

    def move(table: Table) -> pl.DataFrame:
        times = [name for name in table.columns if name in ("start_ns", "end_ns", "time_ns")]
        return trace[table].with_columns(pl.col(name) + by_ns for name in times)

    return Trace(trace.source, {table: move(table) for table in trace}, trace.notes)


def reordered(trace: Trace, order: Callable[[pl.DataFrame], pl.DataFrame]) -> Trace:
    """The same trace whose rows came in another order: ties end up elsewhere, the sorting a table promises stays."""
    frames = {table: order(trace[table]).sort(table.sorted_by, maintain_order=True) for table in trace}
    return Trace(trace.source, frames, trace.notes)
