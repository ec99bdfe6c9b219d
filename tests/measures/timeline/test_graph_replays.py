"""Kernels that a graph replays, joined to what was captured: by node id, by name and order, and never wrongly."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.serving.adopt import unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.nsys_exports import CALL, KERNEL, START, STRINGS, write_sqlite

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.errors import UsageError
from timesink.measures.kernels.attainable import far_operators
from timesink.measures.kernels.classification import classification
from timesink.measures.timeline.attribution import attribution, operator_times
from timesink.measures.timeline.graph_replays import OTHER_KERNELS, OTHER_SHAPE, SEVERAL, graph_replays
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.readers.ranks import with_capture
from timesink.records import replace
from timesink.views.classify import classification_page

Kernel = tuple[str, int]  # its name and its blocks
LAYER: list[Kernel] = [("norm", 8), ("gemm", 64), ("gelu", 32), ("gemm", 96)]
STEP: list[Kernel] = [("embed", 4), *(LAYER * 3), ("logits", 128)]


def event(category: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 5, "tid": 6, "ts": ts, "dur": dur, "args": args}


def shape(blocks: int) -> dict[str, Any]:
    return {"grid": [blocks, 1, 1], "block": [128, 1, 1]}


def captured(*graphs: Sequence[Kernel], size: int | None = None) -> list[dict[str, Any]]:
    """One operator ``op::N`` around the launch of kernel N of all graphs, as ROCm's captures name them."""
    events, ts, number = [], 100, 0
    for graph in graphs:
        start = ts
        events.append(event("cuda_runtime", "hipStreamBeginCapture", ts, 1))
        for name, blocks in graph:
            ts += 10
            dims = {"Input Dims": [[blocks, 16]], "Input type": ["float"], "External id": number + 1}
            events.append(event("cpu_op", f"op::{number}", ts, 8, **dims))
            events.append(event("cuda_runtime", "hipLaunchKernel", ts + 2, 2, kernel=name, **shape(blocks)))
            number += 1
        ts += 10
        events.append(event("cuda_runtime", "hipStreamEndCapture", ts, 1))
        if size is not None:
            events.append(event("user_annotation", f"capture_{size}_FULL", start - 1, ts - start + 3))
        ts += 10
    return events


def replayed(*graphs: Sequence[Kernel], shapes: bool = True, size: int = 0) -> list[dict[str, Any]]:
    events, ts = [], 1000
    for number, graph in enumerate(graphs, start=1):
        if size:
            events.append(event("user_annotation", f"execute_{size}_context_0(0)_generation_{size}({size})", ts - 5, 9))
        events.append(event("cuda_runtime", "hipGraphLaunch", ts, 3, correlation=number))
        for name, blocks in graph:
            ts += 10
            args = {"device": 0, "stream": 7, "correlation": number, **(shape(blocks) if shapes else {})}
            events.append(event("kernel", name, ts, 5, **args))
        ts += 20
    return events


Pair = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Trace]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pairs")

    def joined(capture: list[dict[str, Any]], replay: list[dict[str, Any]]) -> Trace:
        traces = []
        for name, events in (("capture", capture), ("replay", replay)):
            file = folder / f"{name}.json"
            file.write_text(json.dumps({"traceEvents": events}))
            traces.append(read(file))
        return with_capture(traces[1], traces[0])

    return joined


def operators(trace: Trace) -> list[str | None]:
    """The operator of each kernel, in order."""
    names = trace[HOST_OPS]["name"].cast(pl.String).to_list()
    return [names[row] if row >= 0 else None for row in attribution(trace).host_op.tolist()]


def test_replayed_kernels_have_the_operators_and_shapes_that_were_captured(joined: Pair) -> None:
    trace = joined(captured(STEP), replayed(STEP, STEP))
    assert operators(trace) == [f"op::{at}" for at in range(len(STEP))] * 2
    assert graph_replays(trace).joined == 2 * len(STEP)
    assert trace.extent_ns == (1_000_000, trace[DEVICE_OPS]["end_ns"].to_list()[-1])  # the capture takes no time of it
    rows = classification(trace)
    assert rows is not None
    assert rows.operators["input_shapes"].null_count() == 0
    diagnosis = diagnose(trace)
    assert any("28 of 28 kernels" in note.message for note in diagnosis.notes)


def test_where_replays_are_all_that_is_seen_the_way_to_their_operators_is_said(tmp_path: Path) -> None:
    (alone := tmp_path / "replay.json").write_text(json.dumps({"traceEvents": replayed(STEP, STEP)}))
    (caught := tmp_path / "capture.json").write_text(json.dumps({"traceEvents": captured(STEP)}))
    (said,) = [note.message for note in diagnose(read(alone)).notes if "graphs replay" in note.message]
    assert said.startswith(f"CUDA graphs replay {2 * len(STEP)} kernels without operators, shapes and lines")
    assert "--capture TRACE" in said
    assert any("--capture TRACE" in note for note in classification_page(read(alone), 10).notes)
    counted = tmp_path / "answer.json"
    sql = "SELECT count(*) AS nodes FROM graph_nodes"
    asked = ["query", str(alone), sql, "--capture", str(caught), "-o", str(counted), "--no-cache"]
    assert run(asked) == 0
    assert json.loads(counted.read_text())["rows"] == [{"nodes": len(STEP)}]


def test_launches_of_equal_graphs_are_told_by_their_order(joined: Pair) -> None:
    pieces = [[("embed", 4)], LAYER, LAYER, LAYER, [("logits", 128)]]
    assert operators(joined(captured(*pieces), replayed(*pieces))) == [f"op::{at}" for at in range(len(STEP))]
    trace = joined(captured(*pieces), replayed(LAYER, LAYER))  # any two of three
    assert operators(trace) == [None] * 8
    assert graph_replays(trace).refused == {SEVERAL: 8}


@pytest.fixture(scope="module")
def long_pair(joined: Pair) -> Trace:
    """112 kernels: one of them is less than the share that may differ."""
    return joined(captured(STEP * 8), replayed(STEP * 8))


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_no_edited_pair_is_joined_wrongly(long_pair: Trace, data: st.DataObject) -> None:
    ops = long_pair[DEVICE_OPS]
    who, larger = list(range(ops.height)), set[int]()
    places = st.integers(0, ops.height - 1)
    match data.draw(st.sampled_from(["missing", "swapped", "larger"])):
        case "missing":
            who.pop(data.draw(places))
        case "swapped":
            one, other = data.draw(places), data.draw(places)
            if STEP[one % len(STEP)] != STEP[other % len(STEP)]:  # equal kernels that change places are no edit
                who[one], who[other] = who[other], who[one]
        case _:
            larger = data.draw(st.sets(places, min_size=1))
    blocks = pl.col("grid_x") * pl.when(pl.int_range(pl.len()).is_in(list(larger))).then(2).otherwise(1)
    edited = ops.with_columns(blocks.cast(pl.Int32))[who].with_columns(
        ops["start_ns"][: len(who)], ops["end_ns"][: len(who)]
    )
    trace = replace(long_pair, tables={**long_pair.tables, DEVICE_OPS: edited})
    found, refused = graph_replays(trace).node.tolist(), graph_replays(trace).refused
    assert all(node in (-1, own) for node, own in zip(found, who, strict=True))
    assert (set(refused) == {OTHER_SHAPE} and set(found) == {-1}) == bool(larger)


def test_a_graph_of_which_less_than_98_percent_is_certain_is_refused(joined: Pair) -> None:
    recorded = captured(STEP * 4)
    assert answer(joined(recorded, replayed((STEP * 4)[1:]))) == (55, {})  # of 56
    assert answer(joined(recorded, replayed((STEP * 4)[1:-1]))) == (0, {OTHER_KERNELS: 54})


def test_without_launch_shapes_the_sizes_that_are_stated_must_agree(joined: Pair) -> None:
    def found(size: int) -> GraphAnswer:
        return answer(joined(captured(STEP, size=32), replayed(STEP, shapes=False, size=size)))

    assert found(32) == (14, {})
    assert found(8) == (0, {OTHER_SHAPE: 14})
    two = [*captured(STEP, size=32)]
    later = captured(STEP, size=8)
    for one in later:
        one["ts"] += 500
    assert answer(joined([*two, *later], replayed(STEP, shapes=False, size=6))) == (14, {})  # padded to 8


GraphAnswer = tuple[int, dict[str, int]]


def answer(trace: Trace) -> GraphAnswer:
    found = graph_replays(trace)
    return found.joined, found.refused


def eager(*steps: Sequence[Kernel]) -> list[dict[str, Any]]:
    events, ts, number = [], 100, 0
    for step in steps:
        for name, blocks in step:
            number += 1
            ts += 20
            events.append(event("cpu_op", f"eager::{name}", ts, 15))
            events.append(event("cuda_runtime", "cudaLaunchKernel", ts + 2, 2, correlation=number))
            args = {"device": 0, "stream": 7, "correlation": number, **shape(blocks)}
            events.append(event("kernel", name, ts + 6, 9, **args))
    return events


def test_an_eager_run_of_the_same_step_stands_in_for_the_capture(joined: Pair) -> None:
    copy = [("copy", 1)]
    trace = joined(eager(copy, STEP, copy, STEP, copy, STEP, copy), replayed(STEP))
    assert operators(trace) == [f"eager::{name}" for name, _ in STEP]
    with pytest.raises(UsageError, match="does not say which kernels"):
        joined(eager(copy, STEP[1:], copy), replayed(STEP))


def test_a_capture_beside_its_replay_is_joined_and_no_rank_of_its_own(tmp_path: Path) -> None:
    for name, events in (("a", captured(STEP)), ("b", replayed(STEP))):
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    trace = read(tmp_path)
    assert trace.rank_numbers == (0,)
    assert graph_replays(trace).joined == len(STEP)


def test_node_ids_lead_to_the_call_that_made_the_node(tmp_path: Path) -> None:
    file = write_sqlite(
        tmp_path / "graphs.sqlite",
        f"""
{STRINGS}
{START}

{KERNEL}
start end deviceId contextId streamId correlationId globalPid demangledName graphNodeId
900 950 0 1 7 30 7: 1 21
960 990 0 1 7 30 7: 1 22

{CALL}
start end globalTid correlationId nameId
100 110 7:9 1 2
120 130 7:9 2 2
800 810 7:9 30 2

CUDA_GRAPH_NODE_EVENTS
start end globalTid graphNodeId originalGraphNodeId
104 105 7:9 11 -
124 125 7:9 12 -
200 201 7:9 21 11
202 203 7:9 22 12

NVTX_EVENTS
start end globalTid eventType text
90 115 7:9 59 "aten::mm, op_id = 1, sizes = [[64, 512], [512, 8]]"
117 140 7:9 59 "aten::add, op_id = 2, sizes = [[64, 8], [64, 8]]"
""",
    )
    trace = read(file)
    assert operators(trace) == ["aten::mm", "aten::add"]
    assert graph_replays(trace).by_node == 2


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of a decoder: eager.json and graph.json of torch.profiler, node.sqlite of nsys (benchmarks/serving)."""
    folder = tmp_path_factory.mktemp("h200")
    unpacked(folder, "pair/")
    return folder / "pair"


def gpu_us(trace: Trace, steps: int) -> dict[str, float]:
    """GPU time of the model's operators in a step."""
    rows = operator_times(trace).filter(pl.col("self_device_ns") > 0).select("name", "self_device_ns").rows()
    around = {"aten::copy_", "aten::roll", "aten::fill_"}  # launched outside of the graph, or for it
    return {name: ns / steps / 1000 for name, ns in rows if name not in around}


def test_operators_of_a_graph_take_what_they_take_eagerly(h200: Path) -> None:
    eager_run, replay, nodes = (read(h200 / name) for name in ("eager.json", "graph.json", "node.sqlite"))
    joined = with_capture(replay, eager_run)
    assert answer(joined) == (440, {})
    assert answer(nodes) == (550, {})
    assert graph_replays(nodes).by_node == 550
    expected = gpu_us(eager_run, 4)
    for found in (gpu_us(joined, 8), gpu_us(nodes, 10)):
        assert found.keys() == expected.keys()
        differing = sum(abs(found[name] - expected[name]) for name in expected)
        assert differing < 0.02 * sum(expected.values())  # of the time of the model's kernels
    bounds = [
        {far.name: far.attained_ratio for far in far_operators(trace)}["aten::cat"] for trace in (eager_run, joined)
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=0.02)  # each replay is a call of its own
