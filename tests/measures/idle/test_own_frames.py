"""The line of the program that idle time is blamed on: the innermost frame that is neither Python's nor a library's."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.knowledge.frames import is_own
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.lines.stacks import own_frames

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
     "", "multiprocessing/process.py", "transformers/trainer.py", "<frozen os>"],
)  # fmt: skip
def test_files_of_python_and_of_libraries_are_not(file: str) -> None:
    assert not is_own(file)
