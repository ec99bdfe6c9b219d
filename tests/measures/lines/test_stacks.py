"""Which line of the program is behind GPU work and waits, from frames, samples, forward operators and ranges.

The line of the program that idle time is blamed on: the innermost frame that is neither Python's nor a library's.
"""

import pytest
from tests.tables import trace_of

from timesink.knowledge.frames import is_own
from timesink.measures.lines.common import longest_line
from timesink.measures.lines.stacks import op_stacks, stack_book, stack_of_text
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


def lines(trace: Trace) -> list[tuple[str, int | None, str] | None]:
    """File, line and how it is known, of each op."""
    stacks = stack_book(trace).stacks
    found = [stacks[at][-1] if at >= 0 else None for at in op_stacks(trace).tolist()]
    return [None if line is None else (line.file or line.function, line.line, line.known) for line in found]


def test_a_stack_of_symbols_names_functions_of_the_programs_own_binary() -> None:
    text = "/lib/libcuda.so.1(0): cuLaunch;/home/me/sim(0): solve(int);/home/me/sim(0): main;/lib/libc.so.6(0): start"
    assert [(line.function, line.file) for line in stack_of_text(text)] == [("main", None), ("solve(int)", None)]


def test_the_longest_line_is_that_of_most_weight() -> None:
    trace = trace_of(DEVICE + FRAMES)
    rows = trace[DEVICE_OPS].with_row_index("row")["row"].to_numpy()
    line = longest_line(trace, rows, [1.0, 5.0, 100.0])
    assert line is not None and (line.file, line.line) == ("train.py", 40)
    assert longest_line(trace, rows[2:], [1.0]) is None


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
