"""Steps of serving engines: found without marks, read from annotations, and what of them grows with the requests.

Loaders of several workers give as many batches at a time: of a few recorded steps some wait long, others not.
"""

import random

import polars as pl
import pytest
from tests.measures.steps.spike_traces import MS, US, Loop
from tests.rules.cases import cases_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.steps.engine import Root, blocked_tokens, engine_late, full_batches
from timesink.measures.steps.launch_sequences import decode_rounds
from timesink.measures.steps.slow_steps import usual_steps
from timesink.measures.timeline.ranges import StepRequests, requests_of
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

_COLUMNS = {"call": pl.Int64, "name": pl.String, "copy_kind": pl.String, "bytes": pl.Int64}


def _launched(names: list[str], copies: int) -> pl.DataFrame:
    """Replays of these graphs, one call each of nine kernels, each followed by copies of tokens to the host."""
    rows = []
    for call, name in enumerate(names):
        rows += [(2 * call, f"{name} {number}", None, None) for number in range(9)]
        rows += [(2 * call + 1, "copy", "d2h", 256)] * copies
    frame = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
    starts = pl.int_range(pl.len()) * 10
    return frame.with_columns(starts.alias("start_ns"), (starts + 9).alias("end_ns"))


def _rounds(names: list[str], copies: int = 1) -> list[int] | None:
    ops = _launched(names, copies)
    found = decode_rounds(ops, ops["name"].rank("dense").to_numpy().astype("int64"))
    return None if found is None else found.tolist()


def test_steps_of_a_server_are_launches_of_the_graph_that_decodes() -> None:
    assert _rounds(["decode"] * 8) == [10 * at for at in range(8)]
    mixed = ["decode", "prefill"] * 3 + ["decode"] * 6
    assert _rounds(mixed) == [10 * at for at, name in enumerate(mixed) if name == "decode"]
    assert _rounds(["decode"] * 8, copies=0) is None, "no token leaves the device"
    assert _rounds(["one", "other"] * 8 + ["one"] * 3) is not None
    assert _rounds(["one", "other", "third"] * 8) is None, "none of them is in most launches"
    assert _rounds(["decode"] * 7) is None


def test_annotations_say_tokens_of_prompts_and_requests_that_decode() -> None:
    assert requests_of("execute_context_2(512)_generation_7(7)") == StepRequests(512, 7)
    assert requests_of("execute_32_context_0(0)_generation_32(32)") == StepRequests(0, 32)
    assert requests_of("execute_32_context_1(sq512sk512)_generation_31(31)") is None
    assert requests_of("step[EXTEND bs=2 toks=900]") == StepRequests(900, 0)
    assert requests_of("step[DECODE bs=32]") == StepRequests(0, 32)
    assert requests_of("[Executor] _forward_step 7: 1 ctx reqs, 64 ctx tokens, 3 gen reqs") == StepRequests(64, 3)
    assert requests_of("[Executor] _forward_step 8: 0 ctx reqs, 4 gen reqs") == StepRequests(0, 4)
    assert requests_of("train step 12") is None


def test_kernels_of_a_few_microseconds_take_as_long_for_twice_the_requests() -> None:
    trace = cases_of("batch-small")[0].trace
    ops, is_cache = trace[DEVICE_OPS], pl.col("name").cast(pl.String).str.starts_with("paged")
    for length_ns, grows_ns in ((4_500, 0), (5_500, 5_500)):
        end = pl.when(is_cache).then(pl.col("start_ns") + length_ns).otherwise("end_ns").alias("end_ns")
        found = full_batches(Trace("shorter", {**trace.tables, DEVICE_OPS: ops.with_columns(end)}))[0]
        assert found.step_ns - found.fixed_ns == grows_ns
        assert (found.requests, found.joined) == (8, 1)


def test_only_a_step_of_many_launches_is_tried_as_a_graph() -> None:
    trace = cases_of("engine-late")[0].trace
    calls, ops = trace[API_CALLS], trace[DEVICE_OPS]
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains("Launch"))
    for count in (18, 22):
        apart = [(pl.col("start_ns") + 700 * at, pl.col("end_ns") + 700 * at) for at in range(1, count)]
        ids = [(pl.col("correlation") + 10_000 * at).alias("correlation") for at in range(1, count)]
        more_calls = [launches.with_columns(*times, one) for times, one in zip(apart, ids, strict=True)]
        more_ops = [ops.with_columns(*times, one) for times, one in zip(apart, ids, strict=True)]
        order = ("rank", "process", "thread", "start_ns", "end_ns")
        tables = {
            **trace.tables,
            API_CALLS: pl.concat([calls, *more_calls]).sort(order),
            DEVICE_OPS: pl.concat([ops, *more_ops]).sort("rank", "device", "start_ns", "end_ns"),
        }
        (engine,) = engine_late(Trace("eager", tables))
        assert round(engine.launches) == count
        assert (Root.LAUNCHES in engine.changes) is (count > 20)


def test_a_chunk_takes_its_share_of_a_prompt_and_a_quarter_more() -> None:
    case = cases_of("prefill-blocks")[0].trace
    (found,) = blocked_tokens(Trace("anew", case.tables))
    assert (found.waiting, found.prompt_tokens, found.chunk) == (7, 8192, 1024)
    assert found.chunked_ns == 1_000_000 + 3_000_000 / 8 * 1.25


def loaded(waits_ms: list[float]) -> Trace:
    """Steps of about 12 ms of kernels that wait for their batch so long."""
    loop = Loop(random.Random(1))
    for number, wait_ms in enumerate(waits_ms):
        begin = loop.now
        loop.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", int(wait_ms * MS) + 50 * US)
        for index in range(12):
            loop.now += loop.about(5 * US)
            loop.launch(f"kernel_{index}", MS)
        loop.wait()
        loop.mark(f"ProfilerStep#{number}", begin)
    return loop.trace()


@pytest.mark.parametrize(
    "waits_ms",
    [
        [0, 20, 0, 90, 0, 0],  # two workers, which fall behind
        [0, 80, 0, 25, 0, 0],
        [0, 0, 15, 0, 0, 60, 0, 0],  # three
        [0, 100, 0, 0, 0, 40, 0, 0, 0],  # four
        [0, 12, 0, 11, 0, 70, 0],
    ],
)
def test_batches_that_come_several_at_a_time_are_how_the_program_runs(waits_ms: list[float]) -> None:
    trace = loaded(waits_ms)
    found = diagnose(trace)
    assert (usual_steps(trace), found.bottleneck) == (None, Bottleneck.INPUT_PIPELINE)
    gain = found.findings[0][1].recoverable
    assert gain is not None
    assert gain.value == pytest.approx(sum(waits_ms) / len(waits_ms), rel=0.6)  # the ends of so few steps are unknown


@pytest.mark.parametrize("waits_ms", [[0, 0, 0, 90, 0, 0], [0, 2, 0, 90, 0, 0], [0, 0, 60, 0, 0, 0, 0]])
def test_one_step_that_waits_is_an_accident(waits_ms: list[float]) -> None:
    trace = loaded(waits_ms)
    assert usual_steps(trace) is not None
    assert diagnose(trace).statement.startswith("typical steps are fine; ")
