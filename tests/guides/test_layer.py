"""The post's layer: what its gaps are of all layers, its four actions and their sum, from one capture without options.

The figures of the post stand in a program of invented rows; real captures are of an H100.
"""

import json
from pathlib import Path

import pytest
from tests.guides.answers import sheets
from tests.guides.post_layer import layers

from timesink.cli.app import run

ACTIONS = ["cuda_graph", "fuse_pointwise", "streams 2", "tune_matmuls"]


@pytest.mark.parametrize("tool", ["kineto", "nsys"])
def test_gaps_of_a_layer_are_counted_for_all_layers(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 us a layer; at 80 layers 2.4 ms."""
    trace = getattr(layers(80, 3), tool)(tmp_path)
    (row,) = sheets(capsys, "show", "ranges", trace)["layers"]
    assert (row["name"], row["layers"]) == ("L#_layer", 80)
    assert row["busy_ns"] == pytest.approx(353e3, rel=1e-3) and row["idle_ns"] == pytest.approx(30e3, rel=1e-3)
    assert row["all_idle_ns"] == pytest.approx(2.4e6, rel=1e-3)


def test_layers_of_a_real_model_are_counted_once_where_nvtx_is_mirrored(
    hour: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = sheets(capsys, "show", "ranges", hour / "layers_torch")["layers"]
    assert (row["name"], row["layers"]) == ("L#_layer", 8)
    assert row["busy_ns"] == pytest.approx(1.25e6, rel=0.01)  # as long as one layer alone
    assert row["all_idle_ns"] == 8 * row["idle_ns"] > 0


@pytest.mark.parametrize(
    "names", [["step 1", "step 2"], ["batch 1", "batch 2"], ["stage0", "stage1"], ["forward", "backward"]]
)
def test_what_comes_once_or_holds_one_kernel_is_no_layer(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = layers(1, 2)
    ranges = [row for row in program.named if row["name"] == "L0_layer"]
    for row, name in zip(ranges, names, strict=True):
        row["name"] = name
    assert "layers" not in sheets(capsys, "show", "ranges", program.nsys(tmp_path))


@pytest.mark.parametrize("tool", ["kineto", "nsys"])
def test_the_four_actions_of_the_post_and_their_sum(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The capture knows the step without a profiler, as `timesink capture` does: a graph wins 27 of 30 us, one kernel
    for SiLU and product about 5. Products without shapes and streams beside kernels that fill the GPU have no price."""
    trace = getattr(layers(1, 30), tool)(tmp_path)
    rank = {"rank": 0, "unprofiled": {"step_ms": 0.383, "steps_ms": [0.383] * 10}}
    manifest = {"timesink_manifest": 1, "tool": {"name": "nsys"}, "ranks": [rank], "files": [{"file": trace.name}]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    *rows, together = sheets(capsys, "plan", tmp_path)["layer"]
    assert [row["change"] for row in rows] == ACTIONS
    graph, fusion, streams, tiles = rows
    assert graph["low_ns"] <= 27e3 <= graph["high_ns"] and graph["gain_ns"] == pytest.approx(20.6e3, rel=0.02)
    assert fusion["low_ns"] <= 5e3 <= fusion["high_ns"]
    assert streams["gain_ns"] is tiles["gain_ns"] is None and streams["remark"] and tiles["remark"]
    assert fusion["gain_ns"] == 0  # alone it wins nothing: the CPU is late with every launch, until there is a graph
    assert graph["gain_ns"] <= together["gain_ns"] <= graph["gain_ns"] + fusion["high_ns"]
    assert together["new_step_ns"] >= 353e3 - 13.6e3


def test_the_four_actions_of_a_real_layer(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shapes tell how far products are from their bound; each price is that of `plan --change`. A cold pass does not
    tell steps from layers: `--steps` names what begins one."""
    layer = (hour / "layer_torch", "--steps", "norm_1")
    *rows, together = sheets(capsys, "plan", *layer)["layer"]
    graph, fusion, streams, tiles = rows
    assert all(0 < row["gain_ns"] <= row["high_ns"] for row in (graph, fusion, tiles))
    assert streams["gain_ns"] is None and "no two small kernels follow each other" in streams["remark"]
    assert together["gain_ns"] >= max(row["gain_ns"] for row in (graph, fusion, tiles))
    assert together["gain_ns"] <= 1.1 * sum(row["gain_ns"] for row in (graph, fusion, tiles))
    changes = [word for action in ACTIONS for word in ("--change", action)]
    asked = sheets(capsys, "plan", *layer, *changes)["prices"]
    assert [row["gain_ns"] for row in rows] == [row["gain_ns"] for row in asked[:-1]]


@pytest.mark.parametrize("name", ["layer_torch", "layer_nsys", "layers_torch"])
def test_a_change_that_changes_nothing_is_not_said_to_cost(
    name: str, hour: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A graph of a program that waits for no launch does nothing, and does not undo what the compiler won."""
    capsys.readouterr()
    assert run(["plan", str(hour / name)]) == 0
    assert "would make the step" not in capsys.readouterr().out
