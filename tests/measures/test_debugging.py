"""What anomaly mode takes of the host beside its checks, by hand."""

from __future__ import annotations

from tests.tables import trace_of

from timesink.measures.habits.debugging import _looking_up, _with_stacks


def test_a_layer_that_is_run_again_stores_stacks_too_and_backward_nodes_store_none() -> None:
    trace = trace_of("""
| host_ops | name | thread | start_us | end_us | sequence_number | forward_thread |
| forward | aten::mul | 1 | 0 | 60 | 3 | 0 |
| engine | `autograd::engine::evaluate_function: MulBackward0` | 2 | 100 | 400 | 3 | 1 |
| again | aten::mul | 2 | 120 | 180 | 7 | 0 |
| plain | aten::mul | 2 | 200 | 280 |  | 0 |

| api_calls | name | thread | start_us | end_us | correlation |
| forward | cudaLaunchKernel | 1 | 50 | 55 | 1 |
| again | cudaLaunchKernel | 2 | 170 | 175 | 2 |
""")
    found = _with_stacks(trace, {})
    spans = {
        key[1]: list(zip((part.start_ns // 1000).tolist(), (part.end_ns // 1000).tolist(), strict=True))
        for key, part in found.items()
    }
    assert spans == {1: [(0, 50)], 2: [(120, 170)]}


def test_the_last_of_the_stacks_in_a_row_is_written_as_long_as_those_before_it_or_until_the_next_call() -> None:
    trace = trace_of("""
| os_calls | name | thread | start_us | end_us |
| one | stat64 | 1 | 0 | 2 |
| same | stat64 | 1 | 4 | 6 |
| two | stat64 | 1 | 106 | 108 |
| three | stat64 | 1 | 308 | 310 |
| later | stat64 | 1 | 2000 | 2002 |

| api_calls | name | thread | start_us | end_us |
| soon | cudaLaunchKernel | 1 | 2050 | 2060 |
""")
    (part,) = _looking_up(trace).values()
    # pauses of 100 and 200 us: 150 us after the last of three stacks; after the one alone a call comes first
    assert (part.start_ns // 1000).tolist() == [0, 2000]
    assert (part.end_ns // 1000).tolist() == [310 + 150, 2050]
