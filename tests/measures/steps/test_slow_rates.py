"""How often slow steps come in a job of two ranks of which one stands still on its CPU in every so manieth step.

The recording shows few of them, and of the other rank its GPU alone: it waits there for the late one.
"""

from typing import Any

import polars as pl
import pytest
from tests.strategies import frame

from timesink.measures.ranks.job import as_often_ns
from timesink.measures.ranks.paces import estimated_step_ns
from timesink.measures.steps.per_step import period_ns
from timesink.measures.steps.slow_steps import slow_rates
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace

MS = 1_000_000
WORK, STANDS, SENT = 4.0, 50.0, 0.3
"""Milliseconds: a step's product, a checkpoint of the late rank, an exchange."""


def job_of(count: int, slow: set[int], mark: str) -> Trace:
    """`count` steps of two ranks; before the step after one of `slow` the first rank's CPU stands still."""
    rows: dict[Any, list[dict[str, Any]]] = {RANGES: [], HOST_OPS: [], API_CALLS: [], DEVICE_OPS: [], COLLECTIVES: []}
    free, now = [1.0, 1.0], [1.0, 1.02]
    for step in range(count):
        begun = []
        for rank in (0, 1):
            shared, at = {"rank": rank, "process": rank + 1, "thread": rank + 1}, now[rank]
            stands = STANDS if rank == 0 and step in slow else 0.0
            whole = mark.startswith("ProfilerStep")
            row = {
                "name": mark.format(step),
                "start_ns": at * MS,
                "end_ns": (at + (3.0 + stands if whole else 0.7)) * MS,
            }
            (rows[RANGES] if whole else rows[HOST_OPS]).append(
                shared | row | ({"kind": "push_pop", "depth": 0} if whole else {})
            )
            for call, (name, begin) in enumerate((("cudaLaunchKernel", 0.1), ("cudaLaunchKernel", 0.5))):
                correlation = 1000 * rank + 10 * step + call + 1
                times = {"start_ns": (at + begin) * MS, "end_ns": (at + begin + 0.01) * MS}
                rows[API_CALLS].append({"name": name, "correlation": correlation} | shared | times)
            if stands:
                for begin in (3.1, STANDS / 2, STANDS):
                    times = {"start_ns": (at + begin) * MS, "end_ns": (at + begin + 0.01) * MS}
                    rows[API_CALLS].append({"name": "cudaEventQuery", "correlation": 0} | shared | times)
            start = max(free[rank], at + 0.12)
            device = {"rank": rank, "process": rank + 1, "device": rank, "kind": "kernel"}
            kernel = {"name": "gemm", "start_ns": start * MS, "end_ns": (start + WORK) * MS, "stream": 7}
            rows[DEVICE_OPS].append(device | kernel | {"correlation": 1000 * rank + 10 * step + 1})
            begun.append(max(start + WORK, at + 0.52))
            now[rank] = at + 3.0 + stands
        for rank in (0, 1):
            times = {"start_ns": begun[rank] * MS, "end_ns": (max(begun) + SENT) * MS}
            device = {"rank": rank, "process": rank + 1, "device": rank, "stream": 20}
            rows[DEVICE_OPS].append(
                {"name": "ncclDevKernel_AllReduce_Sum", "kind": "kernel", "correlation": 1000 * rank + 10 * step + 2}
                | device
                | times
            )
            rows[COLLECTIVES].append(
                {
                    "kind": "allreduce",
                    "group": "0",
                    "group_size": 2,
                    "in_bytes": 1 << 20,
                    "out_bytes": 1 << 20,
                    "sequence": step,
                }
                | device
                | times
            )
            free[rank] = max(begun) + SENT
    for rank in (0, 1):
        at = now[rank] * MS
        rows[API_CALLS].append(
            {
                "name": "cudaDeviceSynchronize",
                "rank": rank,
                "process": rank + 1,
                "thread": rank + 1,
                "start_ns": at,
                "end_ns": max(at, free[rank] * MS) + 1,
                "correlation": 0,
            }
        )
    whole = {
        table: [
            {key: round(value) if isinstance(value, float) else value for key, value in row.items()} for row in part
        ]
        for table, part in rows.items()
        if part
    }
    return Trace("job", {table: frame(table, part) for table, part in whole.items()})


def with_a_rank_without_steps(trace: Trace) -> Trace:
    """The same, and a third GPU that computes once before and once after: its span is no step."""
    ops = trace.get(DEVICE_OPS)
    ends = [ops["start_ns"].min(), ops["end_ns"].max()]
    row = {"name": "gemm", "kind": "kernel", "rank": 2, "process": 3, "device": 2, "stream": 7, "correlation": 0}
    rows = [row | {"start_ns": end, "end_ns": end + MS} for end in ends]
    tables = {table: trace.get(table) for table in (RANGES, HOST_OPS, API_CALLS, COLLECTIVES)}
    return Trace("job", tables | {DEVICE_OPS: pl.concat([ops, frame(DEVICE_OPS, rows)])})


@pytest.mark.parametrize("mark", ["ProfilerStep#{}", "DistributedDataParallel.forward"])
@pytest.mark.parametrize(
    ("count", "slow", "rate"),
    [(6, {2, 5}, 1 / 3), (7, {1, 3, 5}, 3 / 7), (8, {3, 7}, 1 / 4), (9, {2, 5, 8}, 1 / 3), (6, {1, 4}, 1 / 3),
     (10, {4, 9}, 1 / 5)],
)  # fmt: skip
def test_slow_steps_come_as_often_as_the_late_rank_s_cpu_shows(
    mark: str, count: int, slow: set[int], rate: float
) -> None:
    """The mean step of every rank, and the estimated one, are those of the whole run: one slow step in so many."""
    trace = job_of(count, slow, mark)
    assert slow_rates(trace) == pytest.approx({0: rate, 1: rate}, rel=0.25)
    usual = WORK + SENT
    true_ms = usual + rate * (STANDS + 3.0 - usual)
    estimated = estimated_step_ns(trace)
    assert estimated is not None
    for found in (*(period_ns(trace, (rank, rank)) for rank in (0, 1)), estimated[1]):
        assert found / MS == pytest.approx(true_ms, rel=0.25)
    late_ns, step_ns = as_often_ns(trace, 0.6)
    assert 0 < late_ns < step_ns == pytest.approx(true_ms * MS, rel=0.25)
    assert as_often_ns(with_a_rank_without_steps(trace), 0.6) == (late_ns, step_ns)
