"""Operators that a program recorded as NVTX ranges give the tables that torch.profiler gives of the same program."""

from __future__ import annotations

import lzma
from pathlib import Path

import polars as pl
import pytest

from timesink.measures.timeline.attribution import attribution
from timesink.measures.timeline.host_times import range_times
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read

DATA = Path(__file__).resolve().parents[1] / "data" / "nsys"
STEPS = {"nsys": 2, "torch": 4}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("emitted") / "emit_nvtx.sqlite"
    path.write_bytes(lzma.decompress((DATA / "emit_nvtx.sqlite.xz").read_bytes()))
    return read(path, cache=False)


@pytest.fixture(scope="module")
def profiled() -> Trace:
    return read(DATA / "emit_nvtx.torch.json.gz", cache=False)


def of_model(trace: Trace, steps: int) -> dict[str, tuple[float, float]]:
    """Calls and kernels per step of the operators that launched any, but those that each loop alone has."""
    in_place = pl.col("name").cast(pl.String).str.ends_with("_")
    frame = attribution(trace).operators.filter(pl.col("kernels") > 0, ~in_place)
    rows = frame.select("name", "calls", "kernels").rows()
    return {name: (calls / steps, kernels / steps) for name, calls, kernels in rows}


def test_the_operator_table_is_torch_profiler_s(emitted: Trace, profiled: Trace) -> None:
    ours = of_model(emitted, STEPS["nsys"])
    assert len(ours) > 8
    assert ours == of_model(profiled, STEPS["torch"])
    assert attribution(emitted).unattributed_count == 0


def test_sequence_numbers_and_shapes_are_read_off_the_names(emitted: Trace) -> None:
    ops = emitted[HOST_OPS].with_columns(pl.col("name", "input_shapes").cast(pl.String))
    products = ops.filter(pl.col("name") == "aten::addmm")
    assert set(products["input_shapes"]) == {
        "[[1024], [64, 512], [512, 1024], [], []]",
        "[[512], [64, 1024], [1024, 512], [], []]",
    }
    assert products["sequence_number"].is_not_null().all()
    assert ops.filter(pl.col("name") == "aten::empty")["sequence_number"].null_count() > 0


def test_the_backward_of_forward_is_the_same_share_under_both(emitted: Trace, profiled: Trace) -> None:
    for trace in (emitted, profiled):
        times = range_times(trace)
        ns = {name: (device, back) for name, device, back in times.select("name", "device_ns", "backward_ns").rows()}
        assert ns["forward"][1] / ns["backward"][0] == pytest.approx(0.975, abs=0.01)


def test_what_nvtx_attaches_to_a_range_is_kept(emitted: Trace) -> None:
    ranges = emitted[RANGES].with_columns(pl.col("name", "domain", "category").cast(pl.String))
    kept = ranges.filter(pl.col("name").is_in(["epoch part", "fetch", "decode"]))
    columns = ("name", "domain", "category", "color", "payload", "kind")
    assert kept.sort("start_ns").select(columns).rows()[:3] == [
        ("epoch part", "trainer", "progress", 255, None, "start_end"),
        ("fetch", "loader", "input", 32768, 2.0, "push_pop"),
        ("decode", None, None, 16744448, 1.0, "push_pop"),
    ]
