"""The ledger's laws: categories sum to the allocator's totals at every event; the allocator's parts sum to reserved."""

from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from timesink.measures.memory import memory_ledger
from timesink.measures.memory.allocator import allocator_views, lifetimes
from timesink.measures.memory.classes import Category, memory_classes
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS
from timesink.model.trace import Trace
from timesink.readers import read

MODULE = "torch/nn/modules/module.py(9): _call_impl;train.py(1): step"
FORWARD = f"model.py(3): forward;{MODULE}"
BACKWARD = "torch::autograd::Engine::thread_main()"
ADAM = "torch/optim/adam.py(5): _init_group;train.py(4): step"
WEIGHT = "torch/nn/modules/linear.py(2): __init__;train.py(2): main"
DATA = "train.py(8): load"
CAST = f"at::autocast::cached_cast();{FORWARD}"
KV = "serving/kv_cache.py(4): allocate"
WORKSPACE = f"at::cuda::getNewWorkspace();{FORWARD}"

Row = tuple[str, int, int, str | None]


def trace_of(rows: list[Row], alive: list[tuple[int, int]] = (), marks: list[tuple[str, int, int]] = ()) -> Trace:
    """Events (action, address, bytes, stack) one microsecond apart, and blocks that were there all along."""
    size = [row[2] for row in rows]
    change = [n if row[0] == "alloc" else -n for row, n in zip(rows, size, strict=True)]
    start = sum(n for _, n in alive)
    events = MEMORY_EVENTS.build(
        {
            "rank": pl.Series([0] * len(rows), dtype=pl.Int32),
            "process": pl.Series([0] * len(rows), dtype=pl.Int64),
            "device": pl.Series([0] * len(rows), dtype=pl.Int32),
            "action": pl.Series([row[0] for row in rows], dtype=pl.Categorical()),
            "time_ns": pl.Series(range(0, 1000 * len(rows), 1000), dtype=pl.Int64),
            "address": pl.Series([row[1] for row in rows], dtype=pl.UInt64),
            "bytes": pl.Series(change, dtype=pl.Int64),
            "total_allocated_bytes": pl.Series(start + np.cumsum(np.array(change, np.int64)), dtype=pl.Int64),
            "stack": pl.Series([row[3] for row in rows], dtype=pl.Categorical()),
        }
    )
    held = dict(alive)
    for (action, address, n, _), _change in zip(rows, change, strict=True):
        held = {**held, address: n} if action == "alloc" else {a: b for a, b in held.items() if a != address}
    blocks = MEMORY_BLOCKS.build(
        {
            "rank": pl.Series([0] * len(held), dtype=pl.Int32),
            "device": pl.Series([0] * len(held), dtype=pl.Int32),
            "segment": pl.Series([0] * len(held), dtype=pl.UInt64),
            "address": pl.Series(list(held), dtype=pl.UInt64),
            "bytes": pl.Series(list(held.values()), dtype=pl.Int64),
            "requested_bytes": pl.Series(list(held.values()), dtype=pl.Int64),
            "state": pl.Series(["active"] * len(held), dtype=MEMORY_BLOCKS.columns["state"].dtype),
        }
    )
    tables = {MEMORY_EVENTS: events, MEMORY_BLOCKS: blocks}
    if marks:
        tables[MEMORY_MARKS] = MEMORY_MARKS.build(
            {
                "rank": pl.Series([0] * len(marks), dtype=pl.Int32),
                "device": pl.Series([0] * len(marks), dtype=pl.Int32),
                "name": pl.Series([m[0] for m in marks], dtype=pl.Categorical()),
                "start_ns": pl.Series([m[1] * 1000 for m in marks], dtype=pl.Int64),
                "end_ns": pl.Series([m[2] * 1000 for m in marks], dtype=pl.Int64),
            }
        )
    return Trace("hand", tables)


def classified(trace: Trace) -> list[tuple[int, str]]:
    """(bytes, category) of every lifetime, by bytes."""
    one = memory_classes(trace)[0, 0]
    categories = tuple(Category)
    return sorted((int(n), str(categories[c])) for n, c in zip(one.lives.frame["bytes"], one.code, strict=True))


def step(number: int) -> list[Row]:
    """One training step by hand; every block has a size of its own."""
    a = 1000 * (number + 1)
    return [
        ("alloc", a + 1, 101, FORWARD),  # kept for backward: activation
        ("alloc", a + 2, 102, FORWARD),  # gone before backward: temporary
        ("free_requested", a + 2, 102, None),
        ("alloc", a + 3, 103, BACKWARD),  # gone within backward: temporary
        ("free_requested", a + 3, 103, BACKWARD),
        ("alloc", a + 4, 104, BACKWARD),  # gradient of the weight
        ("free_requested", a + 1, 101, BACKWARD),
        *([("alloc", 5, 208, ADAM)] if number == 0 else []),  # optimizer state, made in the first step
        ("alloc", a + 6, 106, ADAM),
        ("free_requested", a + 6, 106, None),
        ("free_requested", a + 4, 104, "torch/optim/optimizer.py(1): zero_grad"),
    ]


def test_each_kind_of_block_is_told_by_its_stack_and_phases() -> None:
    rows: list[Row] = [("alloc", 1, 104, WEIGHT), ("alloc", 2, 77, DATA), ("alloc", 3, 88, WORKSPACE)]
    trace = trace_of(rows + step(0) + step(1) + step(2))
    expected = {
        (77, "inputs"),
        (88, "library workspaces"),
        (101, "activations"),
        (102, "temporaries"),
        (103, "temporaries"),
        (104, "gradients"),
        (104, "weights"),
        (106, "temporaries"),
        (208, "optimizer state"),
    }
    assert set(classified(trace)) == expected
    assert len(memory_classes(trace)[0, 0].phases.starts) == 3


def test_blocks_older_than_the_record_are_weights_as_often_as_there_are_gradients_of_their_size() -> None:
    """Three of 104 bytes without a stack, one gradient of 104 at a time: one weight and two states."""
    trace = trace_of(step(1) + step(2), alive=[(1, 104), (2, 104), (3, 104), (4, 999)])
    found = [part for part in classified(trace) if part[0] in (104, 999)]
    assert found.count((104, "weights")) == 1
    assert found.count((104, "optimizer state")) == 2
    assert found.count((104, "gradients")) == 2
    assert found.count((999, "unclassified")) == 1
    one = memory_classes(trace)[0, 0]
    assert int(one.by_size.sum()) == 3


def test_a_fused_optimizer_is_known_by_its_annotations_alone() -> None:
    """No allocation shows the optimizer: gradients freed inside zero_grad's range are gradients all the same."""
    one = [("alloc", 1, 10, FORWARD), ("alloc", 2, 20, BACKWARD), ("free_requested", 1, 10, None)]
    rows = [*one, ("free_requested", 2, 20, None), *one, ("free_requested", 2, 20, None)]
    marks = [("Optimizer.zero_grad#AdamW.zero_grad", 3, 3), ("Optimizer.zero_grad#AdamW.zero_grad", 7, 7)]
    assert classified(trace_of(rows, marks=marks)) == [
        (10, "activations"),
        (10, "activations"),
        (20, "gradients"),
        (20, "gradients"),
    ]


def test_casts_half_the_size_of_a_weight_are_weight_copies_and_others_activations() -> None:
    rows: list[Row] = [
        ("alloc", 1, 200, WEIGHT),
        ("alloc", 2, 100, CAST),
        ("alloc", 3, 70, CAST),
        ("alloc", 4, 200, BACKWARD),
        ("free_requested", 2, 100, BACKWARD),
        ("free_requested", 3, 70, BACKWARD),
        ("alloc", 5, 1, FORWARD),
    ]
    found = classified(trace_of(rows))
    assert (100, "low-precision weight copies") in found
    assert (70, "activations") in found


def test_a_cache_that_names_itself_is_a_cache() -> None:
    assert classified(trace_of([("alloc", 1, 64, KV), ("alloc", 2, 8, FORWARD), ("free_requested", 2, 8, None)])) == [
        (8, "temporaries"),
        (64, "kv cache"),
    ]


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """Any sequence of allocations and releases, any stacks, over blocks that were or were not there before."""
    alive = [(9000 + n, draw(st.integers(1, 50))) for n in range(draw(st.integers(0, 3)))]
    held = dict(alive)
    rows: list[Row] = []
    stacks = st.sampled_from([FORWARD, BACKWARD, ADAM, WEIGHT, DATA, CAST, KV, WORKSPACE, None])
    for n in range(draw(st.integers(1, 25))):
        if held and draw(st.booleans()):
            address = draw(st.sampled_from(sorted(held)))
            rows.append(("free_requested", address, held.pop(address), draw(stacks)))
        else:
            address = draw(st.sampled_from([a for a in range(1, 8) if a not in held] or [100 + n]))
            held[address] = draw(st.integers(1, 1 << 40))
            rows.append(("alloc", address, held[address], draw(stacks)))
    return trace_of(rows, alive)


@given(programs())
def test_categories_sum_to_the_allocators_total_at_every_event(trace: Trace) -> None:
    ledger = memory_ledger(trace)[0, 0]
    assert (ledger.live_bytes >= 0).all()
    assert (ledger.live_bytes.sum(axis=0) == ledger.totals_bytes).all()
    assert sum(ledger.at_peak().values()) == ledger.peak_bytes == ledger.totals_bytes.max()
    assert sum(holder.bytes for holder in ledger.holders(1000)) == ledger.peak_bytes


@given(programs(), st.integers(0, 24))
def test_a_ring_buffer_that_dropped_the_first_events_changes_no_total(trace: Trace, dropped: int) -> None:
    whole = lifetimes(trace)[0, 0]
    kept = {**trace.tables, MEMORY_EVENTS: trace[MEMORY_EVENTS][dropped:]}
    rest = lifetimes(Trace("rest", kept))
    if (0, 0) in rest:
        live = rest[0, 0].live_bytes()
        assert live[1:].tolist() == whole.live_bytes()[1 + dropped :].tolist()


@given(programs())
def test_addresses_have_no_meaning_of_their_own(trace: Trace) -> None:
    shift = pl.col("address") + 1_000_000
    moved = {
        table: frame.with_columns(shift) if "address" in frame.columns else frame
        for table, frame in trace.tables.items()
    }
    one, other = memory_ledger(trace)[0, 0], memory_ledger(Trace("moved", moved))[0, 0]
    assert one.live_bytes.tolist() == other.live_bytes.tolist()


def test_the_public_snapshot_sums_to_the_byte_at_every_event(shared_data: Path) -> None:
    trace = read(shared_data / "public" / "memory" / "snapshot.pickle", cache=False)
    ledger = memory_ledger(trace)[0, 0]
    assert ledger.classes.lives.unpaired == 0
    assert (ledger.classes.lives.frame["address"] > 0).all()  # nothing the allocator counts is unaccounted for
    assert ledger.totals_bytes[1:].tolist() == trace[MEMORY_EVENTS]["total_allocated_bytes"].to_list()
    assert (ledger.live_bytes.sum(axis=0) == ledger.totals_bytes).all()
    assert int(ledger.totals_bytes[-1]) == trace[MEMORY_SEGMENTS]["requested_bytes"].sum()
    # By hand from the file: 327 weights of fp32, as many gradients, twice as many moments; peak 22,827,925,508 bytes.
    assert ledger.peak_bytes == 22_827_925_508
    at_peak = ledger.at_peak()
    assert at_peak[Category.OPTIMIZER_STATE] == 2 * 3_877_647_360
    assert at_peak[Category.WEIGHTS] == at_peak[Category.GRADIENTS] == 3_877_647_360
    assert ledger.unclassified_ratio < 0.10
    view = allocator_views(trace)[0, 0]
    parts = (view.requested_bytes, view.rounding_bytes, view.awaiting_bytes, view.split_free_bytes, view.cached_bytes)
    assert sum(parts) == view.reserved_bytes == 23_842_521_088
