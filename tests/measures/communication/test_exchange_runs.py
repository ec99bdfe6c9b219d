"""Short exchanges that follow each other are told from units between products, in both profilers."""

from pathlib import Path

import pytest
from benchmarks.faults.adopt import archive
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.strategies import frame

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.collectives import exchange_runs
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.readers import read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tool", "count", "in_row"),
    [
        ("experts_exchanged_one_by_one", "torch", 99, 33),
        ("experts_exchanged_one_by_one", "nsys", 99, 33),
        ("gradients_reduced_one_by_one", "nsys", 192, 192),
    ],
)
def test_a_row_of_exchanges_is_one_finding(name: str, tool: str, count: int, in_row: int, tmp_path: Path) -> None:
    unpacked(archive(name, tool), tmp_path)
    paths = captures_in(tmp_path)[f"{name}.high.fault"]
    trace = read(paths if len(paths) > 1 else paths[0])
    assert {round(runs.in_row) for runs in exchange_runs(trace)} == {in_row}
    found = [one for _, one in diagnose(trace).findings if one.bottleneck is Bottleneck.COMMUNICATION_SMALL]
    told = f", {in_row} in a row" if in_row < count else ""
    assert f"launches {count} small exchanges{told}" in found[0].message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("sharded_layers", "torch"),
        ("sharded_layers", "nsys"),
        ("mixed_lengths", "torch"),
        ("mixed_lengths", "nsys"),
        ("many_pieces_by_turns", "torch"),
        ("batches_one_at_a_time", "nsys"),
        ("stages_of_unlike_length", "torch"),
        ("stages_of_unlike_length", "nsys"),
    ],
)
def test_units_and_buckets_and_messages_of_stages_are_no_row(name: str, tool: str, tmp_path: Path) -> None:
    unpacked(archive(name, tool), tmp_path)
    paths = next(paths for capture, paths in captures_in(tmp_path).items() if capture.endswith("fault"))
    assert exchange_runs(read(paths if len(paths) > 1 else paths[0])) == ()


def forward_and_back(product_thread: int, count: int) -> Trace:
    """Forward a product, back a product that `product_thread` launches, and after each a message."""
    api, ops = [], []
    for at in range(2 * count):
        thread = product_thread if at >= count else 1
        for kind, name in enumerate(("gemm", "ncclDevKernel_SendRecv")):
            begin, key = 1_000 * at + 300 * kind + 1, 2 * at + kind + 1
            host = {"rank": 0, "process": 1, "thread": thread if not kind else 1, "correlation": key}
            api.append(host | {"name": "cudaLaunchKernel", "start_ns": begin, "end_ns": begin + 5})
            device = {"rank": 0, "process": 1, "device": 0, "stream": 7 + kind, "kind": "kernel", "correlation": key}
            ops.append(device | {"name": name, "start_ns": begin + 20, "end_ns": begin + 220})
    return Trace("forward and back", {API_CALLS: frame(API_CALLS, api), DEVICE_OPS: frame(DEVICE_OPS, ops)})


@pytest.mark.parametrize("thread", [1, 2])
@pytest.mark.parametrize("count", [4, 8, 9, 16, 32])
def test_products_of_another_thread_stand_between_exchanges_too(thread: int, count: int) -> None:
    """The backward pass has a thread of its own in PyTorch."""
    assert exchange_runs(forward_and_back(thread, count)) == ()
