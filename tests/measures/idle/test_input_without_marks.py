"""Input that is prepared in steps that nothing marks but their kernels, by hand."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.marks import StepMarker, step_marks
from timesink.model.trace import Trace

KERNELS = ("gemm_a", "relu_b", "gemm_c", "softmax_d", "gemm_e", "loss_f", "gemm_g", "add_h")


def program(prepares_us: int, bytes_: int) -> Trace:
    """Six steps: the host works for so long, copies a batch, and launches eight kernels 20 us apart."""
    ops, calls, now = [], [], 0
    for _ in range(6):
        now += prepares_us
        for at, name in enumerate(("batch", *KERNELS)):
            kind, copied, moved = ("kernel", "", "") if at else ("copy", "h2d", str(bytes_))
            call = "cudaLaunchKernel" if at else "cudaMemcpyAsync"
            ops.append(f"| k | {kind} | `{name}` | {copied} | {moved} | {now + 10} | {now + 25} | {len(ops) + 1} |")
            calls.append(f"| c | {call} | {now} | {now + 5} | {len(ops)} |")
            now += 20
    return trace_of(
        "\n".join(["| device_ops | kind | name | copy_kind | bytes | start_us | end_us | correlation |", *ops])
        + "\n\n"
        + "\n".join(["| api_calls | name | start_us | end_us | correlation |", *calls])
    )


@pytest.mark.parametrize(
    ("prepares_us", "bytes_", "stretches"), [(2000, 65_536, 5), (2000, 4_096, 0), (400, 65_536, 0)]
)
def test_without_marks_long_host_work_before_a_copy_of_more_than_a_value_prepares_input(
    prepares_us: int, bytes_: int, stretches: int
) -> None:
    """From the end of the last launch, 15 us before, to the copy; before the first copy none is known."""
    trace = program(prepares_us, bytes_)
    assert step_marks(trace).marker is StepMarker.KERNEL_PATTERN
    found = input_pipeline(trace)
    assert found.frame.height == stretches
    assert sum(rank.loading.total_ns for rank in found.by_rank.values()) == stretches * (prepares_us + 15) * 1_000
