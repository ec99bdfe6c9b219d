"""Which line of the program is behind GPU work and waits, from frames, samples, forward operators and ranges.

The line of the program that idle time is blamed on: the innermost frame that is neither Python's nor a library's.
"""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.knowledge.frames import is_own
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.lines import line_times, path_times
from timesink.measures.lines.stacks import longest_line, op_stacks, own_frames, stack_book, stack_of_text
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

DEVICE = """
device_ops | kind   | name | device | stream | start_us | end_us | correlation
first      | kernel | k    |      0 |      7 |       20 |     50 |           1
second     | kernel | k    |      0 |      7 |       60 |    100 |           2
third      | kernel | k    |      0 |      7 |      100 |    150 |           3

api_calls | name             | thread | start_us | end_us | correlation
one       | cudaLaunchKernel |      1 |       12 |     14 |           1
two       | cudaLaunchKernel |      1 |       52 |     54 |           2
three     | cudaLaunchKernel |      2 |       90 |     92 |           3
"""
FRAMES = """
| frames | name | file | line | call_line | thread | start_us | end_us | frame_id | parent_id |
| main | train.py(40): main | train.py | 40 | | 1 | 0 | 200 | 1 | |
| block | train.py(7): block | train.py | 7 | 44 | 1 | 10 | 40 | 2 | 1 |
| torch | torch/nn/functional.py(3): f | torch/nn/functional.py | 3 | 9 | 1 | 11 | 30 | 3 | 2 |
| built | built-in method mm | | | 5 | 1 | 12 | 20 | 4 | 3 |
"""
FORWARD = """
host_ops | name                                    | thread | start_us | end_us | external_id | sequence_number
linear   | aten::linear                            |      1 |       11 |     16 |           1 |               5
mm       | aten::mm                                |      1 |       12 |     15 |           2 |               5
backward | autograd::engine::evaluate_function: Mm |      2 |       80 |     95 |           3 |               5
inner    | aten::mm                                |      2 |       89 |     93 |           4 | -
"""


def lines(trace: Trace) -> list[tuple[str, int | None, str] | None]:
    """File, line and how it is known, of each op."""
    stacks = stack_book(trace).stacks
    found = [stacks[at][-1] if at >= 0 else None for at in op_stacks(trace).tolist()]
    return [None if line is None else (line.file or line.function, line.line, line.known) for line in found]


def test_a_kernel_is_at_the_line_that_called_the_library_around_its_launch() -> None:
    trace = trace_of(DEVICE + FRAMES)
    assert lines(trace) == [("train.py", 9, "line"), ("train.py", 40, "function"), None]


def test_a_backward_kernel_is_at_the_line_of_its_forward_operator() -> None:
    trace = trace_of(DEVICE + FRAMES + FORWARD)
    assert lines(trace)[2] == ("train.py", 9, "line")


def test_paths_hold_the_lines_of_the_calls_between_them() -> None:
    (top, *_) = path_times(trace_of(DEVICE + FRAMES + FORWARD))
    assert [(line.function, line.line) for line in top.stack] == [("main", 44), ("block", 9)]
    assert (top.gpu_ns, top.operations) == (80_000, 2)


def test_times_of_lines_sum_to_the_gpu_time_and_the_idle_time() -> None:
    trace = trace_of(DEVICE + FRAMES)
    times = line_times(trace)
    assert sum(time.gpu_ns for time in times) == 120_000
    assert sum(time.idle_ns for time in times) == 10_000
    assert sum(time.host_ns or 0 for time in times) == 200_000


def test_without_stacks_the_ranges_stand_for_lines_and_steps_are_one_place() -> None:
    ranges = """
ranges | name   | kind     | depth | thread | start_us | end_us
a      | step 1 | push_pop |     0 |      1 |        0 |     51
b      | head   | push_pop |     1 |      1 |       10 |     20
c      | step 2 | push_pop |     0 |      1 |       51 |    120
d      | step 3 | push_pop |     0 |      1 |      120 |    160
"""
    assert lines(trace_of(DEVICE + ranges)) == [("head", None, "range"), ("step #", None, "range"), None]


def test_a_sample_near_the_launch_on_its_thread_says_where_it_was_made() -> None:
    stacks = """
host_stacks | thread | time_us | kind   | stack
a           |      1 |      13 | call   | torch/x.py(3): f;train.py(11): step;train.py(40): main
b           |      1 |      60 | sample | train.py(12): step;train.py(41): main
c           |      3 |      90 | sample | train.py(99): other
"""
    trace = trace_of(DEVICE + stacks)
    assert lines(trace) == [("train.py", 11, "line"), ("train.py", 12, "line"), None]


def test_a_stack_of_symbols_names_functions_of_the_programs_own_binary() -> None:
    text = "/lib/libcuda.so.1(0): cuLaunch;/home/me/sim(0): solve(int);/home/me/sim(0): main;/lib/libc.so.6(0): start"
    assert [(line.function, line.file) for line in stack_of_text(text)] == [("main", None), ("solve(int)", None)]


def test_the_longest_line_is_that_of_most_weight() -> None:
    trace = trace_of(DEVICE + FRAMES)
    rows = trace[DEVICE_OPS].with_row_index("row")["row"].to_numpy()
    line = longest_line(trace, rows, [1.0, 5.0, 100.0])
    assert line is not None and (line.file, line.line) == ("train.py", 40)
    assert longest_line(trace, rows[2:], [1.0]) is None


def test_samples_say_where_the_host_was_while_the_device_waited() -> None:
    stacks = """
host_stacks | thread | time_us | kind   | stack
a           |      1 |      53 | sample | train.py(12): step;train.py(41): main
b           |      1 |      56 | sample | numpy/core.py(3): f;train.py(13): step;train.py(41): main
c           |      1 |      58 | sample | train.py(13): step;train.py(41): main
"""
    late = DEVICE.replace("|       52 |     54 |           2", "|       58 |     59 |           2")
    (blamed,) = blamed_time(trace_of(late + stacks), ("python", "untraced"))
    assert (blamed.file, blamed.line) == ("train.py", 13)


STACK = """
| frames | name | file                          | line | thread | start_us | end_us | frame_id | parent_id |
| main   | a    | train.py                      |   40 |      1 |        0 |    100 |        1 |          |
| loss   | b    | mine/loss.py                  |    7 |      1 |       10 |     90 |        2 |         1 |
| module | c    | torch/nn/modules/module.py    | 1783 |      1 |       20 |     80 |        3 |         2 |
| built  | d    |                               |      |      1 |       30 |     60 |        4 |         3 |
| thread | e    | threading.py                  | 1032 |      2 |        0 |    100 |        5 | |
| lost   | f    | /x/site-packages/lib/deep.py  |    3 |      2 |       10 |     20 |        6 |        99 |
"""


def test_each_frame_has_the_innermost_frame_of_the_program_around_it() -> None:
    """First contact defect 11."""
    assert own_frames(trace_of(STACK)).row.tolist() == [0, 1, 1, 1, -1, -1]


def test_frames_that_claim_to_call_each_other_end_somewhere() -> None:
    (main,) = [line for line in STACK.splitlines() if "train.py" in line]
    looped = "| main | a | torch/x.py | 40 | 1 | 0 | 100 | 1 | 4 |"
    assert own_frames(trace_of(STACK.replace(main, looped))).row.tolist() == [-1, 1, 1, 1, -1, -1]


def test_a_trace_without_stacks_has_none() -> None:
    assert own_frames(trace_of("ranges | name | thread | start_us | end_us")).row.tolist() == []


def test_idle_time_is_at_the_line_of_the_program_that_called_the_library() -> None:
    """First contact defect 11."""
    device = """
device_ops | kind   | name | device | stream | start_us | end_us | correlation
before     | kernel | k    |      0 |      7 |        0 |     20 |           1
after      | kernel | k    |      0 |      7 |       85 |     95 |           2

api_calls | name             | thread | start_us | end_us | correlation
first     | cudaLaunchKernel |      1 |        1 |      2 |           1
second    | cudaLaunchKernel |      1 |       82 |     84 |           2
"""
    (blamed,) = blamed_time(trace_of(STACK + device), ("python", "untraced"))
    assert (blamed.file, blamed.line) == ("mine/loss.py", 7)


@pytest.mark.parametrize("file", ["train.py", "mine/loss.py", "/home/me/project/torch_utils.py", "src\\step.py"])
def test_files_of_the_program_are_its_own(file: str) -> None:
    assert is_own(file)


@pytest.mark.parametrize(
    "file",
    ["torch/nn/functional.py", "threading.py", "/usr/lib/python3.11/queue.py", "/v/site-packages/x/y.py", "<string>",
     "", "multiprocessing/process.py", "transformers/trainer.py", "<frozen os>",
     "/home/me/src/timesink/capture/agent/torch_hooks.py"],
)  # fmt: skip
def test_files_of_python_and_of_libraries_are_not(file: str) -> None:
    assert not is_own(file)
