"""Looks at one step are looks at all that call the same."""

import pytest
from tests.tables import trace_of

from timesink.measures.lines.folded import folded_samples
from timesink.model.trace import Trace


def steps(second: str = "aten::mul", kind: str = "sample", thread: int = 1) -> Trace:
    """Steps of 100 and 200 us, each of two operators; the second takes twice as long for all."""
    return trace_of(f"""
| device_ops | name | correlation | start_us | end_us |
|---|---|---|---|---|
| k | gemm | 1 | 10 | 20 |
| k | gemm | 2 | 115 | 130 |

| api_calls | name | thread | correlation | start_us | end_us |
|---|---|---|---|---|---|
| c | cudaLaunchKernel | 1 | 1 | 5 | 6 |
| c | cudaLaunchKernel | 1 | 2 | 110 | 112 |

| host_ops | name | thread | start_us | end_us |
|---|---|---|---|---|
| o | aten::mm | 1 | 4 | 8 |
| o | aten::mul | 1 | 50 | 55 |
| o | aten::mm | 1 | 108 | 116 |
| o | {second} | 1 | 200 | 210 |

| ranges | name | thread | start_us | end_us |
|---|---|---|---|---|
| s | ProfilerStep#1 | 1 | 0 | 100 |
| s | ProfilerStep#2 | 1 | 100 | 300 |

| host_stacks | thread | time_us | kind | stack |
|---|---|---|---|---|
| s | {thread} | 25 | {kind} | a.py(3): f |
| s | {thread} | 250 | {kind} | a.py(9): f |
""")


def times(trace: Trace) -> list[float]:
    return [time_ns / 1000 for time_ns in folded_samples(trace)["time_ns"]]


def test_a_look_between_two_operators_is_between_them_in_each_step() -> None:
    assert times(steps()) == pytest.approx([25, 75, 150, 250], abs=2)


@pytest.mark.parametrize("trace", [steps("aten::exp"), steps(kind="call")])
def test_steps_of_other_operators_and_stacks_of_calls_stay(trace: Trace) -> None:
    assert times(trace) == [25, 250]


def test_a_thread_that_calls_nothing_goes_by_time() -> None:
    assert times(steps(thread=7)) == pytest.approx([25, 75, 150, 250])
