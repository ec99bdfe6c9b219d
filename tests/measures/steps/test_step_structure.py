"""The structure of steps: phases of a serving engine, blocks that end in a wait."""

from pathlib import Path

import polars as pl
import pytest
from tests.tables import trace_of

from timesink.diagnosis.in_short import statements
from timesink.knowledge.assumptions import idle as assumed
from timesink.measures.timeline.ranges import Phase, phase_of, serving_phases
from timesink.measures.timeline.synchronisations import synchronised_ranges
from timesink.model.schema import Table
from timesink.model.trace import Trace
from timesink.readers import read


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", (Phase.DECODE, 32)),
        ("execute_context_2(900)_generation_0(0)", (Phase.PREFILL, 2)),
        ("execute_34_context_2(sq900sk900sqsq0sqsk0)_generation_32(sq32sk9sqsq32sqsk9)", (Phase.MIXED, 34)),
        ("step[DECODE bs=32]", (Phase.DECODE, 32)),
        ("step[EXTEND bs=2 toks=900]", (Phase.PREFILL, 2)),
        ("step[UNKNOWN bs=2]", None),
        ("execute_model", None),
    ],
)
def test_the_annotation_of_an_engine_step_tells_its_phase(name: str, phase: tuple[Phase, int] | None) -> None:
    assert phase_of(name) == phase


@pytest.mark.parametrize("engine", ["vllm_decode_graph", "sglang_decode"])
def test_a_captured_decode_step_is_one_decode_step(shared_data: Path, engine: str) -> None:
    (path,) = (shared_data / "public/kineto").glob(f"{engine}*")
    (found,) = serving_phases(read(path))
    assert (found.phase, found.steps, found.requests) == (Phase.DECODE, 1, 32)
    assert found.device_ns > 0


def test_decode_steps_tell_the_time_per_output_token() -> None:
    names = ["execute_40_context_1(8)_generation_32(32)", *["execute_32_context_0(0)_generation_32(32)"] * 4]
    ranges = [f"| r | {name} | {at * 20} | {at * 20 + 12} |" for at, name in enumerate(names)]
    calls = [f"| c | cudaLaunchKernel | {at} | {at * 20 + 1} | {at * 20 + 2} |" for at in range(5)]
    ops = [f"| k | gemm | {at} | {at * 20 + 3} | {at * 20 + 9} |" for at in range(5)]
    trace = trace_of(
        "\n".join(["| ranges | name | start_ms | end_ms |", *ranges, ""])
        + "\n".join(["", "| api_calls | name | correlation | start_ms | end_ms |", *calls, ""])
        + "\n".join(["", "| device_ops | name | correlation | start_ms | end_ms |", *ops])
    )
    decode, mixed = serving_phases(trace)
    assert (decode.phase, decode.steps, decode.periods_ns) == (Phase.DECODE, 4, (20_000_000,) * 3)
    assert mixed.periods_ns == (20_000_000,)
    (said,) = [sentence for sentence in statements(trace) if sentence.startswith("serving")]
    assert "32 requests on average begins every 20.0 ms (the median of 3)" in said
    assert "1,600 tokens/s, if each request gets one token a step" in said


def blocks(count: int, waiting: int) -> Trace:
    """Blocks one after another, each with one launch; the first `waiting` of them end in a wait for the stream."""
    ranges, calls, ops = [], [], []
    for n in range(count):
        at = n * 100
        ranges.append(f"| r | block_{n} | {at} | {at + 90} |")
        calls.append(f"| c | cudaLaunchKernel | {n + 1} | {at + 5} | {at + 10} |")
        ops.append(f"| k | gemm | {n + 1} | {at + 12} | {at + 70} |")
        if n < waiting:
            calls.append(f"| w | cudaStreamSynchronize | | {at + 12} | {at + 72} |")
    return trace_of(
        "\n".join(["| ranges | name | start_us | end_us |", *ranges])
        + "\n\n"
        + "\n".join(["| api_calls | name | correlation | start_us | end_us |", *calls])
        + "\n\n"
        + "\n".join(["| device_ops | name | correlation | start_us | end_us |", *ops])
    )


@pytest.mark.parametrize(
    ("count", "waiting", "is_so"),
    [(10, 10, True), (10, 8, False), (*[assumed.TIMED_BLOCKS.whole - 1] * 2, False)],
)
def test_instrumentation_that_waits_after_each_block_is_recognised(count: int, waiting: int, is_so: bool) -> None:
    found = synchronised_ranges(blocks(count, waiting))
    assert (found.blocks, found.waiting, found.attribution_only) == (count, waiting, is_so)


def test_a_range_around_blocks_is_no_block() -> None:
    inner = blocks(10, 10)
    outer = trace_of("| ranges | name | start_us | end_us |\n| r | epoch | 0 | 2000 |")
    (ranges,) = outer.tables
    both = Trace("test", {**inner.tables, ranges: ranges.build(_joined(inner, outer, ranges))})
    assert synchronised_ranges(both).blocks == 10


def _joined(first: Trace, second: Trace, table: Table) -> dict[str, pl.Series]:
    return dict(pl.concat([first[table], second[table]]).to_dict())
