"""Attribution, kernels, launches, copies and steps against figures that others published for the same files."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.measures.conftest import Load

from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.kernels import kernels
from timesink.measures.steps import steps
from timesink.measures.steps.marks import step_of_ops
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import attribution, host_nesting, launch_links, operator_times
from timesink.measures.timeline.copies import copies
from timesink.measures.timeline.launches import launch_units
from timesink.measures.timeline.quality import quality
from timesink.measures.timeline.ranges import range_projection
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace

WITH_SUMMARY = (
    "h100_Falconsai_nsfw_image_detection",
    "h100_gaunernst_bert-small-uncased",
    "mi210_gpu_only",
    "mi300_Falconsai_nsfw_image_detection",
    "mi300_gaunernst_bert-small-uncased",
    "torch_compile_triton",
)
RESNET = [("resnet50_workers0", 0), ("resnet50_workers4", 5)]


def attributed_kernels(trace: Trace) -> pl.DataFrame:
    """op, name, stream, length_ns of every kernel."""
    rows = attribution(trace).host_op
    names = trace.get(HOST_OPS)["name"].cast(pl.String)
    op = [names[row] if row >= 0 else None for row in rows.tolist()]
    ops = trace[DEVICE_OPS].with_columns(pl.Series("op", op, pl.String), pl.col("name").cast(pl.String))
    return ops.filter(pl.col("kind") == "kernel").with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    )


@pytest.mark.parametrize("name", WITH_SUMMARY)
def test_every_kernel_belongs_to_the_operator_tracelens_names(load: Load, shared_data: Path, name: str) -> None:
    found = attributed_kernels(load(f"public/kineto/{name}.json.gz"))
    with (shared_data / "public/expected" / f"{name}.kernel_summary.csv").open() as text:
        rows = list(csv.DictReader(text))
    for row in rows:
        mine = found.filter((pl.col("name") == row["Kernel name"]) & (pl.col("stream") == int(row["Kernel stream"])))
        if "Parent cpu_op" in row:
            mine = mine.filter(pl.col("op") == row["Parent cpu_op"])
        lengths_us = mine["length_ns"].to_numpy() / 1e3
        assert lengths_us.size == int(row["Kernel duration (µs)_count"])
        for figure in ("sum", "mean", "min", "max"):
            expected = float(row[f"Kernel duration (µs)_{figure}"])
            assert getattr(np, figure)(lengths_us) == pytest.approx(expected, rel=1e-9), figure
    assert found.height == sum(int(row["Kernel duration (µs)_count"]) for row in rows)


@pytest.mark.parametrize(("name", "first_line"), RESNET)
def test_operators_cost_what_pytorchs_own_tool_says(load: Load, shared_data: Path, name: str, first_line: int) -> None:
    """All operators, in microseconds. That tool counts only the outer of two nested calls of one name as a call."""
    lines = (shared_data / "public/expected/resnet50_tb_plugin.jsonl").read_text().splitlines()
    trace = load(f"public/kineto/{name}.json.gz")
    host, nesting = trace[HOST_OPS], host_nesting(trace)
    outermost = nesting.outermost_of_name(host["name"].to_physical().cast(pl.Int64).to_numpy())
    calls = dict(host.filter(pl.Series(outermost))["name"].cast(pl.String).value_counts().iter_rows())
    found = {
        row["name"]: (calls[row["name"]], row["self_device_ns"], row["total_device_ns"], row["total_host_ns"])
        for row in operator_times(trace).iter_rows(named=True)
    }
    columns = ("device_self_duration", "device_total_duration", "host_total_duration")
    expected = {
        row["name"]: (row["calls"], *(1000 * row[column] for column in columns))
        for row in json.loads(lines[first_line + 2])["data"]
    }
    assert found == expected


@pytest.mark.parametrize(("name", "first_line"), RESNET)
def test_kernels_cost_what_pytorchs_own_tool_says(load: Load, shared_data: Path, name: str, first_line: int) -> None:
    lines = (shared_data / "public/expected/resnet50_tb_plugin.jsonl").read_text().splitlines()
    expected = {
        row[0]: (row[2], 1000 * row[3], 1000 * row[5], 1000 * row[6])
        for row in json.loads(lines[first_line + 3])["data"]["rows"]
    }
    frame = kernels(load(f"public/kineto/{name}.json.gz"))
    assert {row[0]: row[1:] for row in frame.select("name", "count", "total_ns", "max_ns", "min_ns").rows()} == expected
    assert frame["time_ratio"].sum() == pytest.approx(1)


def test_kernels_of_a_graph_replay_go_to_no_captured_operator(load: Load) -> None:
    trace = load("public/kineto/vllm_decode_graph.json.gz")
    owned = np.bincount(launch_links(trace).call)
    assert owned.max() == 421  # of 425 kernels
    replayed = launch_links(trace).call == owned.argmax()
    launch = trace[API_CALLS].row(int(owned.argmax()), named=True)
    assert "GraphLaunch" in launch["name"]
    for row in set(attribution(trace).host_op[replayed].tolist()) - {-1}:
        around = trace[HOST_OPS].row(row, named=True)
        assert around["thread"] == launch["thread"]
        assert around["start_ns"] <= launch["start_ns"] < around["end_ns"]


def test_ranges_own_the_gpu_work_that_hta_finds(load: Load) -> None:
    """HTA drops the last of the five steps, GPU ops by launch and ranges by when they run on the GPU.

    So of the optimizer's 45 kernels, 9 a step, it counts the 27 that run before the last step begins on the host.
    """
    trace = load("public/kineto/ns_resolution_rank0.json.gz")
    ops, step = trace[DEVICE_OPS], step_of_ops(trace)
    frame = steps(trace).frame
    assert (step < frame.height - 1).sum() == 4876
    projected = range_projection(trace).with_columns(pl.col("name").cast(pl.String))
    optimizer = projected.filter(pl.col("name") == "Optimizer.step#SGD.step")
    assert optimizer["op_count"].to_list() == [9] * 5
    assert optimizer.filter(pl.col("first_ns") < frame["host_start_ns"][-1])["op_count"].sum() == 27
    (copied,) = ops.filter(pl.col("correlation") == 135139)["start_ns"]
    forward = projected.filter(pl.col("name") == "DistributedDataParallel.forward").row(0, named=True)
    assert forward["first_ns"] <= copied < forward["last_ns"]


def test_launch_delay_kernel_gap_and_self_times_are_htas(load: Load) -> None:
    trace = load("public/kineto/simple_add.json.gz")
    ops = trace[DEVICE_OPS].with_row_index("op").with_columns(pl.col("op").cast(pl.Int64))
    units = launch_units(trace).join(ops.select("op", "correlation", "end_ns"), on="op")
    fft = units.filter(pl.col("correlation") == 5597).row(0, named=True)
    assert fft["op_start_ns"] - fft["call_start_ns"] == 27_000
    stream = ops.filter(pl.col("stream") == fft["stream"]).sort("start_ns")
    gaps = (stream["start_ns"] - stream["end_ns"].shift(1)).to_list()
    assert gaps[stream["correlation"].to_list().index(5604)] == 7_000
    host, self_ns = trace[HOST_OPS], host_nesting(trace).self_ns
    outer = host.with_columns(pl.Series("self_ns", self_ns)).filter(
        (pl.col("name") == "aten::relu_") & (pl.col("end_ns") - pl.col("start_ns") == 93_000)
    )
    inside = host.with_columns(pl.Series("self_ns", self_ns)).filter(
        pl.col("start_ns").is_between(outer["start_ns"][0], outer["end_ns"][0] - 1)
        & (pl.col("name") == "aten::clamp_min_")
    )
    launch = trace[API_CALLS].filter(
        pl.col("start_ns").is_between(inside["start_ns"][0], inside["end_ns"][0])
        & (pl.col("name") == "cudaLaunchKernel")
    )
    assert outer["self_ns"].to_list() == [15_000 + 32_000]
    assert (launch["end_ns"] - launch["start_ns"]).to_list() == [17_000]
    assert inside["self_ns"].to_list() == [14_000 + 17_000 + 15_000]


def test_pinned_copies_are_not_pageable(load: Load) -> None:
    found = copies(load("public/nsys/h100_2gpu_1s.sqlite"))
    on_first = found.filter((pl.col("device") == 0) & (pl.col("copy_kind") == "h2d")).row(0, named=True)
    assert (on_first["src_memory"], on_first["count"]) == ("pinned", 223)
    assert (on_first["bytes"] // 10**6, round(on_first["total_ns"] / 1e6, 1)) == (25_475, 920.9)
    assert round(on_first["gigabytes_per_s"], 1) == 27.7
    pageable = found.filter("pageable")
    assert (pageable["count"].sum(), pageable["bytes"].sum()) == (4, 3_136)


def test_unlinked_work_is_counted(load: Load, shared_data: Path) -> None:
    """Ranks 1 and 3 of the DLRM job hold 64 device ops without a launch record, the others none."""
    found = []
    for rank in range(8):
        (path,) = (shared_data / "public/kineto/dlrm_8rank").glob(f"worker{rank}_*")
        measured = quality(load(str(path.relative_to(shared_data))))
        found.append(measured.device_op_count - measured.linked_count)
    assert found == [0, 64, 0, 64, 0, 0, 0, 0]


def test_the_loop_that_sorts_on_the_host_loads_data_and_the_one_that_does_not_does_not(load: Load) -> None:
    before = load("own/kineto/gpt_before.json.gz")
    loading = input_pipeline(before)[0]
    assert loading.name is None
    told = load("own/nsys/gpt_before.sqlite")
    named = input_pipeline(told)[0]
    assert named.name == "data_load"
    each_ns, named_ns = (
        per_step_ns(trace, (0, 0), found.loading) for trace, found in ((before, loading), (told, named))
    )
    assert each_ns == pytest.approx(named_ns, rel=0.1)
    idle = device_timeline(before)[0, 0].idle & loading.loading
    assert idle.total_ns > 0.85 * loading.loading.total_ns
    assert not input_pipeline(load("own/kineto/gpt_after.json.gz")).by_rank


@pytest.mark.parametrize("name", [name for name, _ in RESNET])
def test_the_gpu_idles_inside_loading_as_counted_by_the_microsecond(load: Load, name: str) -> None:
    trace = load(f"public/kineto/{name}.json.gz")

    def microseconds(frame: pl.DataFrame) -> set[int]:
        spans = frame.select(pl.col("start_ns") // 1000, pl.col("end_ns") // 1000).iter_rows()
        return {instant for start, end in spans for instant in range(start, end)}

    loader = trace[RANGES].filter(pl.col("name").cast(pl.String).str.starts_with("enumerate(DataLoader)"))
    ops = trace[DEVICE_OPS]
    span = range(ops["start_ns"].min() // 1000, ops["end_ns"].max() // 1000)
    idle = (microseconds(loader) & set(span)) - microseconds(ops)
    found = input_pipeline(trace)[0]
    assert found.name == loader["name"][0]
    inside = Intervals.union_all(line.idle & found.loading for line in device_timeline(trace))
    assert inside.total_ns == 1000 * len(idle)


def test_reading_the_loss_every_step_drains_the_gpu(load: Load) -> None:
    """Twelve steps, the last of which drains after the last kernel: nothing follows it."""
    found = synchronisations(load("own/kineto/gpt_before.json.gz")).calls
    reads = found.filter(pl.col("host_op") == "aten::_local_scalar_dense")
    assert (reads.height, (reads["drain_ns"] > 0).sum()) == (12, 11)


def test_steps_of_a_marked_loop(load: Load) -> None:
    for name, count, dropped in (
        ("own/kineto/gpt_before.json.gz", 11, {"truncated": 1}),
        ("own/nsys/gpt_before.sqlite", 13, {"truncated": 1, "warm_up": 2}),
    ):
        found = steps(load(name))
        assert (found.count, found.dropped) == (count, dropped)
