"""What changes take of memory and what is free of it, by hand; what nobody recorded is said to be unknown."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from tests.diagnosis.test_plan import climbed, joint

from timesink.diagnosis.plan import batch as memory
from timesink.fixes.compute import CUDA_GRAPH
from timesink.fixes.transfers import REMOVE_SYNC
from timesink.measures.steps import steps
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, DEVICES, MEMORY_EVENTS
from timesink.model.trace import Trace

KEY = (0, 0)


def small(events: list[tuple[int, int]], sent: list[tuple[int, int]] = ()) -> Trace:
    """Allocations and releases (time, bytes) on a device of 1,000 bytes, of which the allocator holds 300; copies."""
    time, size = (pl.Series(list(column), dtype=pl.Int64) for column in zip(*events, strict=True))
    zeros = pl.Series([0] * len(events), dtype=pl.Int32)
    made = MEMORY_EVENTS.build({
        "rank": zeros, "process": zeros.cast(pl.Int64), "device": zeros, "time_ns": time, "bytes": size,
        "action": pl.Series(["alloc"] * len(events), dtype=pl.Categorical()),
        "total_allocated_bytes": size.cum_sum(), "total_reserved_bytes": zeros.cast(pl.Int64) + 300,
    })  # fmt: skip
    device = DEVICES.build({
        "rank": pl.Series([0], dtype=pl.Int32), "device": pl.Series([0], dtype=pl.Int32),
        "name": pl.Series(["small"], dtype=pl.Categorical()), "memory_bytes": pl.Series([1000], dtype=pl.Int64),
    })  # fmt: skip
    return Trace("small", {MEMORY_EVENTS: made, DEVICES: device})


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps from 0 to 100 and from 100 to 200; what is between 50 and 80 of each runs a second time."""
    kept = pl.DataFrame({"rank": [0, 0], "host_start_ns": [0, 100], "host_end_ns": [100, 200]})
    again = Intervals.union_of(np.array([50, 150]), np.array([80, 180]))
    monkeypatch.setattr(memory, "steps", lambda _: SimpleNamespace(kept=kept))
    monkeypatch.setattr(memory, "recomputed", lambda _: (SimpleNamespace(device=KEY, host={(1, 1): again}),))


@pytest.mark.usefixtures("two_steps")
def test_a_step_s_own_memory_is_its_peak_above_its_start_and_recomputation_s_what_its_stretches_leave() -> None:
    # step 1: 100 → 140 → 110, then 60 + 20 - 20 again; step 2 the same from 100 on
    step = [(10, 40), (40, -30), (55, 60), (60, 20), (70, -20), (90, -70)]
    events = [(0, 100), *step, *((time + 100, size) for time, size in step)]
    found = memory.device_memory(small(events))[KEY]
    assert found.free == 700
    assert found.working == 190  # the first step begins with nothing: 40 - 30 + 60 + 20 above 100
    assert found.again == 60


@pytest.mark.usefixtures("two_steps")
def test_a_step_s_own_memory_is_that_of_the_step_that_takes_most() -> None:
    assert memory.device_memory(small([(-5, 100), (10, 40), (40, -40), (110, 70), (140, -70)]))[KEY].working == 70


@pytest.mark.parametrize(
    ("needed", "free", "said"),
    [
        (11_000_000_000, 60_000_000_000, "needs 11.0 GB more; at most 60.0 GB are free"),
        (61_000_000_000, 60_000_000_000, "needs 61.0 GB more; only 60.0 GB are free"),
        (11_000_000_000, None, "needs 11.0 GB more; free memory unknown in this capture"),
        (None, None, "extra memory unknown; free memory unknown in this capture"),
    ],
)
def test_what_is_needed_and_what_is_free_are_said_as_far_as_they_are_known(
    needed: int | None, free: int | None, said: str
) -> None:
    assert memory.needed_text(needed, free) == said


def test_the_demo_s_memory_is_what_its_events_say() -> None:
    """One event after another, in place of columns."""
    trace = joint().trace
    found = memory.device_memory(trace)[KEY]
    events = [row for row in trace[MEMORY_EVENTS].iter_rows(named=True) if row["device"] == 0]
    assert found.free == trace[DEVICES]["memory_bytes"][0] - max(row["total_reserved_bytes"] for row in events)
    rises = []
    for start, end in steps(trace).kept.select("host_start_ns", "host_end_ns").iter_rows():
        inside = [row for row in events if start <= row["time_ns"] < end]
        before = inside[0]["total_allocated_bytes"] - inside[0]["bytes"]
        rises.append(max(row["total_allocated_bytes"] for row in inside) - before)
    assert found.working == max(rises)
    copies = trace[DEVICE_OPS].filter(pl.col("copy_kind") == "h2d")["bytes"]
    assert found.sent is not None
    assert 0 < found.sent <= copies.sum()
    assert all(batch.needed_bytes == (batch.factor - 1) * max(rises) for batch in climbed().batches)


def test_a_change_that_takes_none_says_nothing() -> None:
    assert memory.said_of_memory(joint().trace, KEY, REMOVE_SYNC) == ""
    assert memory.said_of_memory(joint().trace, KEY, CUDA_GRAPH).endswith("are free")
    assert memory.said_of_memory(joint().trace, (0, 7), CUDA_GRAPH).startswith("extra memory unknown")
