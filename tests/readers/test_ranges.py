"""Values that no machine has are not used, and a note says how many there were, of which column."""

import math
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from fuzz.seeds import nsys_sqlite

from timesink.model.tables import ALL, DEVICE_OPS
from timesink.model.trace import NoteKind
from timesink.readers import read
from timesink.readers.plausibility import within_ranges
from timesink.records import replace


def test_every_clock_size_and_shape_of_a_launch_declares_its_range() -> None:
    shapes = ("grid_", "block_")
    free = [
        f"{table.name}.{name}"
        for table in ALL
        for name, column in table.columns.items()
        if (name.startswith(shapes) or name.endswith("start_ns") or name == "end_ns") and column.within is None
    ]
    assert free == ["sources.start_ns", "sources.end_ns"]  # of the file itself, which nothing is added to


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """An export in which one kernel has a block of 5,000 threads and a copy has 2^60 bytes."""
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(nsys_sqlite()[0])
    with sqlite3.connect(path) as db:
        first = "WHERE rowid = (SELECT min(rowid) FROM {0})"
        for table, column, value in (
            ("CUPTI_ACTIVITY_KIND_KERNEL", "blockX", 5_000),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "bytes", 1 << 60),
        ):
            db.execute(f"UPDATE {table} SET {column} = ? {first.format(table)}", (value,))
    return path


@pytest.mark.parametrize("cache", [True, False])
def test_what_lies_outside_is_not_used_and_said(damaged: Path, cache: bool) -> None:
    trace = read(damaged, cache=cache)
    said = {note.message.split(" outside")[0] for note in trace.notes if note.kind is NoteKind.DATA_LOSS}
    assert said == {"1 values of device_ops.block_x", "1 values of device_ops.bytes"}
    for name in ("block_x", "bytes"):
        within = DEVICE_OPS.columns[name].within
        assert within is not None
        assert trace[DEVICE_OPS][name].max() <= within[1]


def test_a_row_that_cannot_be_without_its_time_is_left_out(damaged: Path) -> None:
    trace = read(damaged, cache=False)
    ops = trace[DEVICE_OPS]
    far = ops.with_columns(end_ns=pl.when(pl.int_range(pl.len()) == 0).then(1 << 62).otherwise("end_ns"))
    held = within_ranges(replace(trace, tables={**trace.tables, DEVICE_OPS: far}))
    assert held[DEVICE_OPS].height == ops.height - 1
    assert "1 values of device_ops.end_ns outside" in held.notes[-1].message
    assert within_ranges(held) is held


def test_a_pass_that_failed_stays_one() -> None:
    from timesink.model.tables import KERNEL_PROFILES
    from timesink.model.trace import Trace

    row = {
        "rank": [0, 0, 0], "profile": [0, 1, 2], "process": [1, 1, 1], "name": ["k"] * 3,
        "duration_ns": [math.nan, -5.0, 7.0], "metrics": [1] * 3, "failed_metrics": [0] * 3,
    }  # fmt: skip
    held = within_ranges(Trace("test", {KERNEL_PROFILES: KERNEL_PROFILES.build(row)}))
    nan, negative, real = held[KERNEL_PROFILES]["duration_ns"]
    assert math.isnan(nan)
    assert (negative, real) == (None, 7.0)
