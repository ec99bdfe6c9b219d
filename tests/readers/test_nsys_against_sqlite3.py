"""Every row of every export, against the obvious way to read it."""

from collections import Counter
from pathlib import Path

import pytest
from tests.readers.slow_nsys import SlowExport

from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read

OWN = Path(__file__).resolve().parents[1] / "data" / "nsys" / "gpt_before_5_steps.sqlite"
SHARED = (
    "own/nsys/gpt_before",
    "public/nsys/fuser_report",
    "public/nsys/h100_2gpu_1s",
    "public/nsys/h100_2gpu_after",
    "public/nsys/h100_2gpu_before",
    "public/nsys/healthy_1pct",
    "public/nsys/power_iteration",
    "public/nsys/saxpy_mpi",
)


@pytest.fixture(scope="module", params=["", *SHARED], ids=lambda name: name.rpartition("/")[2] or OWN.stem)
def both(request: pytest.FixtureRequest) -> tuple[Trace, SlowExport]:
    path = OWN
    if request.param:
        path = request.getfixturevalue("shared_data") / f"{request.param}.sqlite"
    return read(path, cache=False), SlowExport(path)


def counted(trace: Trace, table: Table, *names: str, kind: str = "") -> Counter[tuple[object, ...]]:
    if table not in trace:
        return Counter()
    frame = trace[table]
    return Counter((frame.filter(frame["kind"] == kind) if kind else frame).select(names).rows())


@pytest.mark.slow
def test_every_kernel_is_read(both):
    trace, slow = both
    place = ("process", "device", "stream", "correlation", "start_ns", "end_ns", "name")
    shape = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers")
    assert counted(trace, DEVICE_OPS, *place, *shape, kind="kernel") == slow.kernels()


def test_every_copy_and_memset_is_read(both):
    trace, slow = both
    place = ("process", "device", "stream", "start_ns", "end_ns", "bytes")
    kinds = ("copy_kind", "src_memory", "dst_memory")
    assert counted(trace, DEVICE_OPS, *place, *kinds, kind="copy") == slow.copies()
    assert counted(trace, DEVICE_OPS, "device", "start_ns", "end_ns", "bytes", "dst_memory", kind="set") == slow.sets()


def test_every_call_is_read(both):
    trace, slow = both
    assert counted(trace, API_CALLS, "process", "thread", "start_ns", "end_ns", "correlation", "name") == slow.calls()
    assert counted(trace, OS_CALLS, "thread", "start_ns", "end_ns", "name") == slow.os_calls()


def test_every_range_is_read(both):
    trace, slow = both
    names = ("process", "thread", "start_ns", "end_ns", "name", "domain", "kind")
    assert counted(trace, RANGES, *names) == slow.ranges()


def test_depth_is_the_number_of_enclosing_ranges(both):
    trace, slow = both
    if sum(slow.ranges().values()) > 2000:
        pytest.skip("the definition is quadratic; the smaller files cover it")
    assert counted(trace, RANGES, "thread", "start_ns", "end_ns", "depth") == slow.depths()
