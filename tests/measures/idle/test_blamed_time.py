"""Idle time by cause, inside and outside input, behind waits and elsewhere: every stretch belongs to one of them.

Input that is prepared in steps that nothing marks but their kernels, by hand.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.measures.idle.before_launches import launching_time
from timesink.measures.idle.blame import idle_shares
from timesink.measures.idle.blamed_time import python_time
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.marks import StepMarker, step_marks
from timesink.measures.timeline import device_timeline
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
def test_launching_and_python_never_claim_more_than_the_idle_time(trace: Trace) -> None:
    for part in (*launching_time(trace), *python_time(trace)):
        assert part.intervals.total_ns <= device_timeline(trace)[part.device].idle_ns
        assert 0 <= part.share <= 1


def by_cause(trace: Trace) -> dict[str, int]:
    """Microseconds of idle time by cause."""
    return {share.cause: share.idle_ns // US for share in idle_shares(trace)}


@pytest.mark.parametrize(
    ("waits_from", "waited"), [(10, 85 + 60), (930, 5 + 70), (900, 5 + 100), (995, 5 + 5), (985, 5 + 15)]
)
def test_a_wait_is_charged_with_what_the_host_lost_by_it_and_no_more(waits_from: int, waited: int) -> None:
    """It returns 5 us after the device ran dry; the two gaps of 85 and 60 us are launching but for that."""
    trace = trace_of(f"""
| device_ops | name | correlation | start_us | end_us |
| a          | a    |           1 |       20 |   1000 |
| b          | b    |           2 |     1085 |   1100 |
| c          | c    |           3 |     1160 |   9000 |

| api_calls | name                  | correlation | start_us     | end_us |
| a         | cudaLaunchKernel      |           1 |            0 |      5 |
| the wait  | cudaStreamSynchronize |             | {waits_from} |   1005 |
| b         | cudaLaunchKernel      |           2 |         1085 |   1088 |
| c         | cudaLaunchKernel      |           3 |         1160 |   1163 |

| host_ops | name        | start_us | end_us |
| one      | aten::one   |     1005 |   1045 |
| two      | aten::two   |     1045 |   1120 |
| three    | aten::three |     1120 |   1170 |
""")
    assert by_cause(trace)["sync"] == waited
    assert sum(by_cause(trace).values()) == 85 + 60


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ("| api_calls | cudaMalloc | 1010 | 1190 |", "allocator"),
        ("| api_calls | cudaMallocAsync_v11020 | 1010 | 1190 |", "allocator"),
        ("| api_calls | cudaMallocFromPoolAsync | 1010 | 1190 |", "allocator"),
        ("| api_calls | cuMemAllocAsync | 1010 | 1190 |", "allocator"),
        ("| api_calls | cuMemFreeAsync | 1010 | 1190 |", "allocator"),
        ("| api_calls | hipMallocAsync | 1010 | 1190 |", "allocator"),
        ("| api_calls | hipFreeAsync | 1010 | 1190 |", "allocator"),
        ("| ranges | enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ | 1010 | 1190 |", "loader"),
    ],
)
def test_what_takes_the_host_long_for_a_reason_of_its_own_is_not_the_waits_doing(host: str, cause: str) -> None:
    table, *cells = host.strip("| ").split(" | ")
    row = f"| own | {' | '.join(cells)} |"
    calls = WAITED.partition("| host_ops")[0]
    more = f"| {table} | name | start_us | end_us |\n{row}\n" if table != "api_calls" else ""
    if not more:
        name, start, end = cells
        calls = calls.replace(
            "| b         | cudaLaunch", f"| own | {name} | | {start} | {end} |\n| b         | cudaLaunch"
        )
    found = by_cause(trace_of(calls + more))
    assert found == {cause: 180, "sync": 320 - 180}


@pytest.mark.parametrize(("until", "found"), [(1500, {"sync": 510}), (1510, {"unrecorded_code": 505, "sync": 15})])
def test_host_code_of_half_a_millisecond_is_no_launching(until: int, found: dict[str, int]) -> None:
    """From the return of a wait at 1005 to the launch at `until`."""
    trace = trace_of(f"""
| device_ops | name | correlation | start_us     | end_us |
| a          | a    |           1 |           20 |   1000 |
| b          | b    |           2 | {until + 10} |   9000 |

| api_calls | name                  | correlation | start_us | end_us       |
| a         | cudaLaunchKernel      |           1 |        0 |            5 |
| the wait  | cudaStreamSynchronize |             |       10 |         1005 |
| b         | cudaLaunchKernel      |           2 |  {until} | {until + 10} |
""")
    assert by_cause(trace) == found


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


@pytest.mark.parametrize(
    ("call", "cause"), [("cudaStreamSynchronize", "sync"), ("cudaFree", "allocator"), ("cuMemFree_v2", "allocator")]
)
def test_a_call_that_frees_memory_drains_for_the_allocator(call: str, cause: str) -> None:
    assert by_cause(trace_of(WAITED.replace("cudaStreamSynchronize", call.ljust(21))))[cause] == 320


@pytest.mark.parametrize(
    ("way", "side", "size", "cause"),
    [
        ("h2d", "src_memory", "1 MB", "copy_staging"),
        ("h2d", "src_memory", "8 B", "sync"),
        ("d2h", "dst_memory", "1 MB", "copy_staging"),
        ("d2h", "dst_memory", "8 B", "sync"),
    ],
)
def test_the_wait_right_behind_a_pageable_copy_of_data_is_part_of_the_copy(
    way: str, side: str, size: str, cause: str
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
    assert list(by_cause(trace)) == [cause]


KERNELS = ("gemm_a", "relu_b", "gemm_c", "softmax_d", "gemm_e", "loss_f", "gemm_g", "add_h")


def program(
    prepares_us: int, sends: Sequence[int | str], prefix: str = "at::native::", reads: Sequence[int | str] = ()
) -> Trace:
    """Six steps: the host works for so long, sends copies, launches eight kernels 20 us apart and reads; bytes each."""
    ops, calls, now = [], [], 0
    rows: list[tuple[str, str, int | str]] = [("batch", "h2d", size) for size in sends]
    rows += [(name, "", "") for name in KERNELS] + [("result", "d2h", size) for size in reads]
    for _ in range(6):
        now += prepares_us
        for name, copied, moved in rows:
            kind, call = ("copy", "cudaMemcpyAsync") if copied else ("kernel", "cudaLaunchKernel")
            times = f"{now + 10} | {now + 25}"
            ops.append(f"| k | {kind} | `{prefix}{name}` | {copied} | {moved} | {times} | {len(ops) + 1} |")
            calls.append(f"| c | {call} | {now} | {now + 5} | {len(ops)} |")
            now += 20
    return trace_of(
        "\n".join(["| device_ops | kind | name | copy_kind | bytes | start_us | end_us | correlation |", *ops])
        + "\n\n"
        + "\n".join(["| api_calls | name | start_us | end_us | correlation |", *calls])
    )


@pytest.mark.parametrize(
    ("prepares_us", "sends", "prefix", "stretches"),
    [
        (2000, [65_536], "at::native::", 5),
        (2000, [65_536], "", 0),  # nothing shows a framework, whose programs have an input
        (2000, [4_096], "at::native::", 0),
        (400, [65_536], "at::native::", 0),
    ],
)
def test_without_marks_long_host_work_before_a_copy_of_more_than_a_value_prepares_input(
    prepares_us: int, sends: list[int], prefix: str, stretches: int
) -> None:
    """From the end of the last launch, 15 us before, to the copy; before the first copy none is known."""
    trace = program(prepares_us, sends, prefix)
    assert step_marks(trace).marker is StepMarker.KERNEL_PATTERN
    found = input_pipeline(trace)
    assert found.frame.height == stretches
    assert sum(rank.loading.total_ns for rank in found.by_rank.values()) == stretches * (prepares_us + 15) * 1_000


@pytest.mark.parametrize(
    ("sends", "reads", "stretches"),
    [
        ([65_536], [65_536], 0),  # as much comes back as was read
        ([16_384], [16_384, 2_048], 0),  # a game in Python: states and actions
        ([8_192], [50_000_000], 0),  # scores, of which the CPU samples
        ([40_000, 24_000], [65_536], 0),  # two answers to one result
        ([65_536], [30_000, 30_000, 30_000], 0),
        ([65_536], [4], 5),  # a loss was read
        ([65_536, 65_536], [65_536], 5),  # more than what was read
        ([65_536], [""], 5),  # nothing tells how much was read
    ],
)
def test_what_may_be_made_of_results_that_were_read_is_no_input_that_can_be_prepared_ahead(
    sends: list[int], reads: list[int | str], stretches: int
) -> None:
    trace = program(2000, sends, reads=reads)
    assert step_marks(trace).marker is StepMarker.KERNEL_PATTERN
    assert input_pipeline(trace).frame.height == stretches
