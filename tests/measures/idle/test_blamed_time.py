"""Idle time by cause, inside and outside input, behind waits and elsewhere: every stretch belongs to one of them.

Input that is prepared in steps that nothing marks but their kernels, by hand.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.measures.idle.blamed_time import blamed_time, drained_time, launching_time, python_time, sync_gain
from timesink.measures.idle.causes import CAUSES
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.marks import StepMarker, step_marks
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.trace import Trace

US = 1_000

WAITED = """
| device_ops | name | correlation | start_us | end_us |
| a          | a    |           1 |       20 |   1000 |
| b          | b    |           2 |     1220 |   1320 |
| c          | c    |           3 |     1420 |   1520 |
| d          | d    |           4 |     1520 |   9000 |

| api_calls | name                  | correlation | start_us | end_us |
| a         | cudaLaunchKernel      |           1 |        0 |      5 |
| the wait  | cudaStreamSynchronize |             |       10 |   1005 |
| b         | cudaLaunchKernel      |           2 |     1200 |   1205 |
| c         | cudaLaunchKernel      |           3 |     1400 |   1405 |
| d         | cudaLaunchKernel      |           4 |     1450 |   1455 |

| host_ops | name        | start_us | end_us |
| one      | aten::one   |     1010 |   1210 |
| two      | aten::two   |     1210 |   1410 |
"""


@given(traces())
def test_inside_and_outside_input_and_behind_waits_sum_to_the_idle_time(trace: Trace) -> None:
    inside = blamed_time(trace, CAUSES, preparing=True)
    outside = blamed_time(trace, CAUSES, preparing=False)
    waits = [drained_time(trace, root) for root in ("wait", "allocator", "copy_in", "copy_out")]
    for part in inside:
        others = [one.intervals for group in (outside, *waits) for one in group if one.device == part.device]
        covered = part.intervals
        for other in others:
            covered = covered | other
        assert covered.total_ns == device_timeline(trace)[part.device].idle_ns


@given(traces())
def test_launching_and_python_never_claim_more_than_the_idle_time(trace: Trace) -> None:
    for part in (*launching_time(trace), *python_time(trace)):
        assert part.intervals.total_ns <= device_timeline(trace)[part.device].idle_ns
        assert 0 <= part.share <= 1


def test_gaps_behind_a_wait_are_the_waits_until_the_host_is_ahead_again() -> None:
    found = sync_gain(trace_of(WAITED))
    assert found.behind_ns[0] == 320 * US
    assert found.root.drop_nulls().unique().to_list() == ["wait"]


STEPPED = """
| ranges | name             | start_us | end_us | times | every_us |
| step   | ProfilerStep#{n} |        0 |   9000 |     6 |     9000 |

| device_ops | name | correlation | start_us | end_us | times | every_us |
| a          | a    |         100 |       20 |   1000 |     6 |     9000 |
| b          | b    |         200 |     1220 |   1320 |     6 |     9000 |
| c          | c    |         300 |     1420 |   1520 |     6 |     9000 |
| d          | d    |         400 |     1520 |   9000 |     6 |     9000 |

| api_calls | name                  | correlation | start_us | end_us | times | every_us |
| a         | cudaLaunchKernel      |         100 |        0 |      5 |     6 |     9000 |
| the wait  | cudaStreamSynchronize |             |       10 |   1005 |     6 |     9000 |
| b         | cudaLaunchKernel      |         200 |     1200 |   1205 |     6 |     9000 |
| c         | cudaLaunchKernel      |         300 |     1400 |   1405 |     6 |     9000 |
| d         | cudaLaunchKernel      |         400 |     1450 |   1455 |     6 |     9000 |

| host_ops | name      | start_us | end_us | times | every_us |
| one      | aten::one |     1010 |   1210 |     6 |     9000 |
| two      | aten::two |     1210 |   1410 |     6 |     9000 |
"""


def test_where_removing_the_waits_wins_the_gaps_back_they_are_claimed_as_one() -> None:
    trace = trace_of(STEPPED)
    assert sync_gain(trace).effective(0)
    (waits,) = drained_time(trace, "wait")
    (left,) = launching_time(trace)
    assert waits.intervals.total_ns == device_timeline(trace)[0, 0].idle_ns - left.intervals.total_ns
    assert waits.per_step_ns >= 320 * US
    assert left.per_step_ns == 0


def test_where_the_trace_cannot_be_replayed_a_wait_is_charged_no_more_than_it_lost() -> None:
    found = sync_gain(trace_of(WAITED))
    assert not found.effective(0)
    (waits,) = drained_time(trace_of(WAITED), "wait")
    assert waits.intervals.total_ns == 200 * US  # up to the launch; its latency would be there without the wait too


@pytest.mark.parametrize(
    ("call", "root"), [("cudaStreamSynchronize", "wait"), ("cudaFree", "allocator"), ("cuMemFree_v2", "allocator")]
)
def test_a_call_that_frees_memory_drains_for_the_allocator(call: str, root: str) -> None:
    found = sync_gain(trace_of(WAITED.replace("cudaStreamSynchronize", call.ljust(21))))
    assert set(found.root.drop_nulls()) == {root}


@pytest.mark.parametrize(
    ("way", "side", "size", "root"),
    [
        ("h2d", "src_memory", "1 MB", "copy_in"),
        ("h2d", "src_memory", "8 B", "wait"),
        ("d2h", "dst_memory", "1 MB", "copy_out"),
        ("d2h", "dst_memory", "8 B", "wait"),
    ],
)
def test_the_wait_right_behind_a_pageable_copy_of_data_is_part_of_the_copy(
    way: str, side: str, size: str, root: str
) -> None:
    trace = trace_of(f"""
| device_ops | kind   | name | copy_kind | {side}   | bytes  | correlation | start_us | end_us |
| the copy   | copy   | copy | {way}       | pageable   | {size} |           1 |       20 |   1000 |
| b          | kernel | b    |           |            |        |           2 |     1220 |   9000 |

| api_calls | name                  | correlation | start_us | end_us |
| the copy  | cudaMemcpyAsync       |           1 |        0 |      9 |
| the wait  | cudaStreamSynchronize |             |       10 |   1005 |
| b         | cudaLaunchKernel      |           2 |     1200 |   1205 |
""")
    assert set(sync_gain(trace).root.drop_nulls()) == {root}


def test_short_untraced_stretches_are_dispatch_and_long_ones_python() -> None:
    trace = trace_of("""
| device_ops | name | correlation | start_us | end_us |
| a          | a    |           1 |       20 |    100 |
| b          | b    |           2 |      150 |    200 |
| c          | c    |           3 |      500 |    600 |

| api_calls | name             | correlation | start_us | end_us |
| a         | cudaLaunchKernel |           1 |        0 |      5 |
| b         | cudaLaunchKernel |           2 |      140 |    145 |
| c         | cudaLaunchKernel |           3 |      490 |    495 |
""")
    (python,) = python_time(trace)
    assert python.intervals.total_ns == 290 * US
    (launching,) = launching_time(trace)
    assert launching.intervals.total_ns == (50 + 10) * US


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
