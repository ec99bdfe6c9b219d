"""Timelines and budgets against figures that others published for the same files.

Most measure tables of device ops derived from those files; where the files are, the tables are held against them.
"""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.measures.conftest import Load
from tests.measures.timeline.known_tables import METRICS, PROFILE_OF, TRACELENS, derived, kept_of, known, published
from tests.measures.timeline.tensorboard_breakdown import ROLES, tensorboard_breakdown

from timesink.knowledge.op_class import op_class
from timesink.measures.timeline import DeviceTimeline, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, DEVICES, SOURCES
from timesink.model.trace import Trace


def figures_ms(budget: DeviceTimeline) -> dict[str, float]:
    figures_ns = {
        "computation_time": budget.compute_ns,
        "exposed_comm_time": budget.exposed_communication_ns,
        "exposed_memcpy_time": budget.exposed_copy_ns,
        "busy_time": budget.busy_ns,
        "idle_time": budget.idle_ns,
        "total_time": budget.span_ns,
        "total_comm_time": budget.communication_ns,
        "total_memcpy_time": budget.copy.total_ns,
    }
    return {kind: value_ns / 1e6 for kind, value_ns in figures_ns.items()}


def file_times_us(trace: Trace) -> pl.DataFrame:
    """op_class, start, length of each device op as the file has them: binary floating-point microseconds."""
    ops, origin_ns = trace[DEVICE_OPS], int(trace[SOURCES]["clock_origin_ns"][0] or 0)
    return ops.select(
        op_class(ops),
        ((pl.col("start_ns") - origin_ns) / 1000).alias("start"),
        ((pl.col("end_ns") - pl.col("start_ns")) / 1000).alias("length"),
    )


def float_union(ops: pl.DataFrame) -> float:
    """Length of the union, in the arithmetic of the reference: an op ends at `start + length`, rounded."""
    total, reach = 0.0, -np.inf
    for start, length in sorted(ops.select("start", "length").iter_rows()):
        end = start + length
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("name", TRACELENS)
def test_in_the_arithmetic_of_tracelens_its_figures_come_out(name: str) -> None:
    expected, ops = published()["timelines_ms"][name], file_times_us(known(name))
    parts = {name: ops.filter(pl.col("op_class") == name) for name in ("compute", "communication", "copy")}
    assert float_union(ops) / 1e3 == pytest.approx(expected["busy_time"], rel=1e-9)
    assert float_union(parts["compute"]) / 1e3 == pytest.approx(expected["computation_time"], rel=1e-9)
    assert float_union(parts["communication"]) / 1e3 == pytest.approx(expected["total_comm_time"], rel=1e-9)
    assert float_union(parts["copy"]) / 1e3 == pytest.approx(expected["total_memcpy_time"], rel=1e-9)


@pytest.mark.parametrize("name", TRACELENS)
def test_exact_figures_differ_from_tracelens_by_its_rounding_only(name: str) -> None:
    """Binary microseconds are spaced by up to 0.98 ns at these times, so both ends of every op may be half that off."""
    trace = known(name)
    (budget,) = device_timeline(trace)
    expected, ops = published()["timelines_ms"][name], file_times_us(trace)
    spacing_ms = float(np.spacing(ops["start"].to_numpy().max())) / 1e3
    for kind, value_ms in figures_ms(budget).items():
        allowed_ms = 2 * spacing_ms if kind == "total_time" else ops.height * spacing_ms
        assert value_ms == pytest.approx(expected[kind], rel=1e-6, abs=allowed_ms), kind
    assert figures_ms(budget)["total_time"] == pytest.approx(expected["total_time"], rel=1e-6)


@pytest.mark.parametrize("name", PROFILE_OF)
def test_the_tables_are_those_of_the_profiles(load: Load, name: str) -> None:
    of_profile, kept = derived(name, load(PROFILE_OF[name])), kept_of(name)
    assert kept.keys() == of_profile.keys()
    assert all(np.array_equal(kept[key], of_profile[key]) for key in kept)


@pytest.mark.parametrize("name", TRACELENS)
def test_where_every_op_has_a_launch_both_conventions_agree(load: Load, name: str) -> None:
    trace = load(f"public/kineto/{name}.json.gz")
    (every,), (linked,) = device_timeline(trace), device_timeline(trace.linked_only())
    assert (every.span_ns, every.busy_ns, every.op_count) == (linked.span_ns, linked.busy_ns, linked.op_count)


@pytest.mark.parametrize(("name", "first_line"), [("resnet50_workers0", 0), ("resnet50_workers4", 5)])
def test_steps_split_as_pytorchs_own_tool_split_them(load: Load, shared_data: Path, name: str, first_line: int) -> None:
    lines = (shared_data / "public/expected/resnet50_tb_plugin.jsonl").read_text().splitlines()
    expected = [
        [cell for cell in row[1:] if not isinstance(cell, str)]
        for row in json.loads(lines[first_line])["steps"]["rows"]
    ]
    roles = [role for role in ROLES if role != "communication_ns"]
    found = tensorboard_breakdown(load(f"public/kineto/{name}.json.gz")).frame.select(roles).rows()
    assert [[value_ns / 1000 for value_ns in row] for row in found] == expected


def test_gpu_utilisation_by_the_millisecond_is_that_of_pytorchs_own_tool() -> None:
    """Its counter reads percent of each millisecond after the profiler's start; the last stretch is longer."""
    events = published()["counters"]["GPU 0 Utilization"]
    edges_ns = np.array([time_us * 1000 for time_us, _ in events], np.int64)
    ops = known(METRICS)[DEVICE_OPS]
    covered_ns = Intervals.of(ops.filter(ops["kind"] == "kernel")).covered_ns(edges_ns[:-1], edges_ns[1:])
    percent = [percent for _, percent in events[:-1]]
    assert (100 * covered_ns / np.diff(edges_ns)).tolist() == pytest.approx(percent, rel=1e-12)


def test_blocks_per_multiprocessor_are_those_of_pytorchs_own_tool() -> None:
    """Its counter rises at each kernel to ten times blocks per multiprocessor and falls to 0 at the kernel's end."""
    events, trace = published()["counters"]["GPU 0 Est. SM Efficiency"], known(METRICS)
    multiprocessors = int(trace[DEVICES]["sm_count"][0])
    kernels = trace[DEVICE_OPS].filter(pl.col("kind") == "kernel")
    blocks = pl.col("grid_x") * pl.col("grid_y") * pl.col("grid_z")
    found = kernels.select(pl.col("start_ns") // 1000, 10 * blocks / multiprocessors).rows()
    assert [[start, pytest.approx(blocks)] for start, blocks in found] == events[::2]
    assert [time_us for time_us, _ in events[1::2]] == (kernels["end_ns"] // 1000).to_list()


def test_a_copy_bound_gpu_is_busy(load: Load) -> None:
    budget = device_timeline(load("public/nsys/h100_2gpu_1s.sqlite"))[0, 0]
    assert (round(budget.span_ns / 1e6, 2), round(budget.idle_ns / 1e6, 2)) == (969.45, 6.56)
    assert round(100 * budget.busy_ratio, 1) == 99.3
    assert budget.span_ns - budget.compute_ns == pytest.approx(
        947.0e6, abs=0.1e6
    )  # a tool that sees kernels only: idle


@pytest.mark.parametrize(
    ("name", "device", "kernel_span_ms", "idle_ms", "comm_ms"),
    [
        ("h100_2gpu_before", (0, 0), 299.85, 26.03, 17.17),
        ("h100_2gpu_before", (1, 1), 298.66, 31.39, 8.23),
        ("h100_2gpu_after", (0, 0), 299.22, 59.14, 9.99),
        ("h100_2gpu_after", (1, 1), 299.24, 45.27, 23.75),
        ("healthy_1pct", (0, 0), 403.99, 3.99, 0.00),
    ],
)
def test_idle_time_counts_copies(
    name: str, device: tuple[int, int], kernel_span_ms: float, idle_ms: float, comm_ms: float
) -> None:
    """The published span runs from the first kernel to the last; ours from the first op, which may be a copy."""
    trace = known(name)
    budget, ops = device_timeline(trace)[device], trace[DEVICE_OPS]
    kernels = ops.filter((ops["kind"] == "kernel") & (ops["rank"] == device[0]) & (ops["device"] == device[1]))
    kernel_span_ns = kernels.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item()
    found = (kernel_span_ns / 1e6, budget.idle_ns / 1e6, budget.communication_ns / 1e6)
    assert tuple(round(value, 2) for value in found) == (kernel_span_ms, idle_ms, comm_ms)
    assert budget.span_ns >= kernel_span_ns
    assert budget.exposed_communication_ns == budget.communication_ns


def test_exposed_communication_and_gpu_time_of_two_runs() -> None:
    """25.40 -> 33.74 ms exposed, 535.20 -> 488.84 ms on the GPUs' kernels, as the fixture's authors compare them."""
    totals = []
    for name in ("h100_2gpu_before", "h100_2gpu_after"):
        trace = known(name)
        budgets, ops = list(device_timeline(trace)), trace[DEVICE_OPS]
        exposed_ms = sum(budget.exposed_communication_ns for budget in budgets) / 1e6
        kernels = ops.filter(ops["kind"] == "kernel")
        totals.append(
            (round(exposed_ms, 2), round(kernels.select(pl.col("end_ns") - pl.col("start_ns")).sum().item() / 1e6, 2))
        )
    assert totals == [(25.40, 535.20), (33.74, 488.84)]


def test_ranks_of_one_step_are_measured_apart(load: Load, shared_data: Path) -> None:
    """First SendRecv of each DLRM rank in microseconds: the rank that waits least arrives last, which is rank 7."""
    waits_us = []
    for rank in range(8):
        (path,) = (shared_data / "public/kineto/dlrm_8rank").glob(f"worker{rank}_*")
        ops = load(str(path.relative_to(shared_data)))[DEVICE_OPS]
        first = ops.filter(ops["name"].cast(pl.String).str.contains("SendRecv")).sort("start_ns").head(1)
        assert op_class(first).to_list() == ["communication"]
        waits_us.append((first["end_ns"] - first["start_ns"])[0] // 1000)
    assert waits_us == [2146, 7635, 518, 6132, 4882, 4679, 514, 10]
    assert min(range(8), key=waits_us.__getitem__) == 7
