"""Work that is captured into a CUDA graph does not run, and a trace of it is not diagnosed."""

from pathlib import Path

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Undecided
from timesink.measures.timeline.known import known
from timesink.measures.timeline.quality import graph_capture
from timesink.model.trace import Trace
from timesink.readers import read


def captured(begin_us: int, end_us: int, last_us: int = 1000) -> Trace:
    """A thread that captures a graph from `begin_us` to `end_us`, whose last call returns at `last_us`."""
    calls = [
        ("hipStreamIsCapturing", 0, 1), ("hipStreamBeginCapture", begin_us - 1, begin_us),
        *(("hipLaunchKernel", at, at + 5) for at in range(begin_us + 10, end_us - 10, 20)),
        ("hipStreamEndCapture", end_us, end_us + 1), ("hipGraphInstantiateWithFlags", end_us + 2, last_us),
    ]  # fmt: skip
    rows = [f"| c | {name} | {number} | {start} | {end} |" for number, (name, start, end) in enumerate(calls)]
    ops = "| device_ops | name | correlation | start_us | end_us |\n| k | a | 90 | 2 | 4 |\n| k | a | 91 | 990 | 992 |"
    return trace_of("\n".join(["| api_calls | name | correlation | start_us | end_us |", *rows, "", ops]))


def test_the_time_between_begin_and_end_is_captured() -> None:
    found = graph_capture(captured(100, 900))
    assert (found.captured_ns, found.share) == (800_000, 0.8)


def test_a_trace_of_a_capture_is_not_diagnosed_and_says_what_to_record() -> None:
    diagnosis = diagnose(captured(100, 900))
    assert diagnosis.bottleneck is Bottleneck.UNDECIDED
    assert diagnosis.findings == diagnosis.statements == diagnosis.notes == ()
    assert diagnosis.steps.count == 0
    assert diagnosis.statement.startswith("80.0 % of the trace is the capture of a CUDA graph")
    assert all(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings)


@pytest.mark.parametrize(
    "trace", [captured(100, 400), trace_of("| api_calls | name | start_us | end_us |\n| c | a | 0 | 9 |")]
)
def test_a_short_capture_within_a_run_bars_nothing(trace: Trace) -> None:
    assert graph_capture(trace).share < 0.5
    assert known(trace).bar is None


def test_the_capture_of_a_serving_engine_s_graph_is_not_diagnosed(shared_data: Path) -> None:
    path = shared_data / "public/kineto/vllm_graph_capture_rank_0.json.gz"
    if not path.exists():
        pytest.skip("the capture trace of AMD-AGI/TraceLens (vllm_decode_full/capture_traces) is not here")
    assert "of the trace records how a CUDA graph is captured" in diagnose(read(path)).statement


DECODES = {
    "sglang_decode": "551 operations in 10.4 ms (544 replayed by 1 graph launch)",
    "vllm_decode_graph": "434 operations in 10.7 ms (421 replayed by 1 graph launch)",
}


@pytest.mark.parametrize(("name", "said"), DECODES.items())
def test_one_step_of_a_serving_engine_is_called_one_and_nothing_beside_it_is_told(
    shared_data: Path, name: str, said: str
) -> None:
    statement = diagnose(read(shared_data / f"public/kineto/{name}.json.gz")).statement
    assert f"one decode step of a serving engine: {said}" in statement
    assert "record ten or more" in statement
    # The bar is of the whole window: where the step is a small part of it, the statement names both.
    assert ("The step is 2.19 % of the 474 ms window" in statement) == (name == "sglang_decode")
    assert "unexplained" not in statement


def test_layers_within_one_step_of_an_engine_are_no_steps() -> None:
    calls = [f"| c | cudaLaunchKernel | {n} | {10 + n * 10} | {12 + n * 10} |" for n in range(60)]
    ops = [f"| k | {['norm', 'gemm', 'attention'][n % 3]} | {n} | {15 + n * 10} | {24 + n * 10} |" for n in range(60)]
    trace = trace_of(
        "| ranges | name | start_us | end_us |\n| s | step[EXTEND bs=15 toks=15360] | 0 | 700 |\n\n"
        + "\n".join(["| api_calls | name | correlation | start_us | end_us |", *calls]) + "\n\n"
        + "\n".join(["| device_ops | name | correlation | start_us | end_us |", *ops])
    )  # fmt: skip
    diagnosis = diagnose(trace)
    assert diagnosis.steps.count == 0
    assert "of the 599 us window" in diagnosis.statement
