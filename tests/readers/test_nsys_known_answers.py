"""What is known of the public Nsight Systems exports, by hand or from their authors' own figures."""

from pathlib import Path

import polars as pl
import pytest

from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, DEVICES, RANGES, SOURCES, SYNCS, THREADS
from timesink.model.trace import NoteKind, Trace
from timesink.readers import read

NS_PER_MS = 1_000_000


@pytest.fixture(scope="module")
def trace_of(shared_data: Path):
    def reading(name: str) -> Trace:
        return read(shared_data / f"{name}.sqlite", cache=False)

    return reading


def ops(trace: Trace, device: int) -> pl.DataFrame:
    return trace[DEVICE_OPS].filter(pl.col("device") == device)


def idle_ns(frame: pl.DataFrame) -> tuple[int, int]:
    """Idle time by union of intervals, and the span it is taken of."""
    starts, ends = frame["start_ns"].to_list(), frame["end_ns"].to_list()
    busy, reached = 0, min(starts)
    for start, end in sorted(zip(starts, ends, strict=True)):
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    span = max(ends) - min(starts)
    return span - busy, span


def test_h100_1s_is_busy_once_copies_count_and_looks_idle_where_only_kernels_do(trace_of):
    gpu = ops(trace_of("public/nsys/h100_2gpu_1s"), 0)
    idle, span = idle_ns(gpu)
    assert (round(idle / NS_PER_MS, 2), round(span / NS_PER_MS, 2)) == (6.56, 969.45)
    kernels = gpu.filter(pl.col("kind") == "kernel")
    idle, span = idle_ns(kernels)
    assert round(idle / NS_PER_MS, 1) == 938.1
    assert round((span - idle) / NS_PER_MS, 2) == 22.39


def test_h100_1s_copies_223_pinned_and_4_pageable_times(trace_of):
    trace = trace_of("public/nsys/h100_2gpu_1s")
    copies = trace[DEVICE_OPS].filter(pl.col("copy_kind") == "h2d")
    pinned = copies.filter((pl.col("src_memory") == "pinned") & (pl.col("device") == 0))
    duration_ns = (pinned["end_ns"] - pinned["start_ns"]).sum()
    assert pinned.height == 223
    assert round(pinned["bytes"].sum() / 1e6) == 25475
    assert round(duration_ns / NS_PER_MS, 1) == 920.9
    pageable = copies.filter(pl.col("src_memory") == "pageable")
    assert (pageable.height, pageable["bytes"].sum()) == (4, 3136)


@pytest.mark.parametrize(
    ("name", "device", "expected_ms"),
    [
        ("before", 0, [270.86, 28.99, 26.03, 299.85]),
        ("before", 1, [264.32, 34.34, 31.39, 298.66]),
        ("after", 0, [237.47, 61.75, 59.14, 299.22]),
        ("after", 1, [251.36, 47.88, 45.27, 299.24]),
    ],
)
def test_h100_pair_by_interval_union(trace_of, name, device, expected_ms):
    """Busy with kernels, idle where only kernels count, idle where copies count too, span of the kernels."""
    gpu = ops(trace_of(f"public/nsys/h100_2gpu_{name}"), device)
    kernels = gpu.filter(pl.col("kind") == "kernel")
    idle_kernels, span = idle_ns(kernels)
    first, last = kernels["start_ns"].min(), kernels["end_ns"].max()
    window = gpu.filter((pl.col("end_ns") > first) & (pl.col("start_ns") < last)).with_columns(
        pl.col("start_ns").clip(first, None), pl.col("end_ns").clip(None, last)
    )
    idle_all, _ = idle_ns(window)
    found_ms = [ns / NS_PER_MS for ns in (span - idle_kernels, idle_kernels, idle_all, span)]
    assert found_ms == pytest.approx(expected_ms, abs=0.006)


def test_the_interval_algebra_agrees_with_the_plain_union(trace_of):
    gpu = ops(trace_of("public/nsys/h100_2gpu_1s"), 0)
    idle, span = idle_ns(gpu)
    union = Intervals.of(gpu)
    assert union.total_ns == span - idle


def test_two_gpus_and_two_processes_make_two_ranks(trace_of):
    trace = trace_of("public/nsys/h100_2gpu_1s")
    assert trace[DEVICES].select("rank", "device").rows() == [(0, 0), (1, 1)]
    assert trace[SOURCES]["tool_version"].unique().to_list() == ["2026.2.1.210"]
    assert trace[DEVICES]["name"].null_count() == 2


def test_healthy_idles_one_percent(trace_of):
    assert idle_ns(ops(trace_of("public/nsys/healthy_1pct"), 0)) == (3_990_000, 403_990_000)


def test_saxpy_takes_its_rank_and_ranges_from_mpi(trace_of):
    trace = trace_of("public/nsys/saxpy_mpi")
    assert trace[SOURCES].select("rank", "tool_version").rows() == [(0, "2022.2.1.31")]
    assert trace[RANGES].filter(pl.col("domain") == "MPI").height == 17
    assert "MPI Rank 0" in trace[THREADS]["name"].to_list()
    copies = trace[DEVICE_OPS].filter(pl.col("kind") == "copy")
    assert copies.group_by("copy_kind").agg(pl.col("bytes").sum()).sort("copy_kind").rows() == [
        ("h2d", 2_621_440_000),
        ("d2h", 1_310_720_000),
    ]


def test_a_report_whose_events_may_be_incomplete_says_so(trace_of):
    notes = trace_of("public/nsys/power_iteration").notes
    assert sum(note.kind is NoteKind.DATA_LOSS and "Not all CUDA events" in note.message for note in notes) == 1


def test_gpt_before_synchronises_streams_and_copies_pageable(trace_of):
    trace = trace_of("own/nsys/gpt_before")
    assert trace[SYNCS]["kind"].value_counts().rows() == [("stream", 83)]
    copies = trace[DEVICE_OPS].filter(pl.col("copy_kind") == "h2d")
    assert (copies.height, copies["src_memory"].unique().to_list()) == (67, ["pageable"])
    assert trace[DEVICES].select("name", "sm_count", "compute_major").rows() == [("NVIDIA H200", 132, 9)]
