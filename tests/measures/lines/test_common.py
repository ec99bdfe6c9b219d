"""One line for work that many lines led to: where its time comes together within the steps, or where it parts."""

import numpy as np
import pytest
from tests.tables import trace_of

from timesink.measures.lines.common import common_line, heaviest_line
from timesink.measures.lines.stacks import Line, stack_book, stack_of_text
from timesink.model.trace import Trace

MAIN = ";a.py(20): main"
STEP = f";a.py(9): step{MAIN}"


def launched(*stacks: str, before: str = "", thread: int = 1) -> Trace:
    """Two steps of 200 us with a launch at each of these stacks, and samples of `before` ahead of the first."""
    lines = ["| device_ops | name | correlation | start_us | end_us |", "|-|-|-|-|-|"]
    times = [(1000 + 200 * step + 10 * at, at) for step in range(2) for at in range(len(stacks))]
    lines += [f"| k | gemm | {number} | {start + 2} | {start + 5} |" for number, (start, _) in enumerate(times)]
    lines += ["", "| api_calls | name | thread | correlation | start_us | end_us |", "|-|-|-|-|-|-|"]
    lines += [
        f"| c | cudaLaunchKernel | 1 | {number} | {start} | {start + 2} |" for number, (start, _) in enumerate(times)
    ]
    lines += ["", "| ranges | name | thread | start_us | end_us |", "|-|-|-|-|-|"]
    lines += [f"| s | ProfilerStep#{step} | 1 | {1000 + 200 * step} | {1200 + 200 * step} |" for step in range(2)]
    lines += ["", "| host_stacks | thread | time_us | kind | stack |", "|-|-|-|-|-|"]
    lines += [f"| s | {thread} | {start + 1} | sample | {stacks[at]} |" for start, at in times if stacks[at]]
    lines += [f"| s | {thread} | 500 | sample | {before} |"] if before else []
    return trace_of("\n".join(lines))


def place(line: Line | None) -> str:
    return f"{line.file}:{line.line}" if line else ""


def heaviest(trace: Trace, *weighted: tuple[str, float]) -> str:
    book = stack_book(trace)
    return place(heaviest_line(trace, [(book.number(stack_of_text(text)), weight) for text, weight in weighted]))


@pytest.mark.parametrize(
    ("weighted", "where"),
    [
        ([(f"a.py({at}): f{STEP}", 1.0) for at in (3, 4, 5)], "a.py:9"),  # a helper's lines: the call of it
        ([(f"a.py(3): f{STEP}", 2.0), (f"a.py(4): f{STEP}", 1.0)], "a.py:3"),
        ([(f"a.py(3): f{STEP}", 3.0), (f"a.py(10): step{MAIN}", 2.0)], "a.py:3"),
        ([("a.py(1): x", 1.0), ("b.py(2): y", 2.0), ("c.py(3): z", 2.0)], "c.py:3"),  # none holds half
        ([("", 9.0), ("a.py(1): x", 1.0)], "a.py:1"),
        ([("", 1.0)], ""),
    ],
)
def test_the_line_of_a_loop_is_where_its_time_comes_together(weighted: list[tuple[str, float]], where: str) -> None:
    assert heaviest(launched(""), *weighted) == where
    assert heaviest(launched(""), *reversed(weighted)) == where


PARTS = [f"a.py({at}): train{MAIN}" for at in (3, 4, 5)]


@pytest.mark.parametrize(
    ("trace", "where"),
    [
        (launched(*PARTS), "a.py:5"),  # main calls train once: that is around the steps
        (launched(*PARTS, before="b.py(1): build;a.py(19): main"), "a.py:5"),  # before them it was elsewhere
        (launched(*PARTS, "a.py(21): main"), "a.py:20"),  # main has the loop, and another line in it
        (launched(*PARTS, "a.py(6): train;a.py(20): main"), "a.py:5"),
        (launched(*PARTS, thread=7), "a.py:5"),  # a thread that launches nothing
        (launched("", before=PARTS[0]), "a.py:20"),  # no look at a step: nothing tells what is around them
    ],
)
def test_a_line_that_all_steps_run_under_is_no_place_in_them(trace: Trace, where: str) -> None:
    assert heaviest(trace, *((part, 1.0) for part in PARTS)) == where


@pytest.mark.parametrize(
    ("stacks", "of", "where"),
    [
        ([f"a.py(3): f{STEP}"], 1, "a.py:3"),
        ([*(f"a.py({at}): f{STEP}" for at in (3, 4)), f"a.py(10): step{MAIN}"], 2, "a.py:9"),  # the call of the helper
        (PARTS, 2, "a.py:3"),  # parts of the loop's own body: its first line
        ([*PARTS, ""], 4, "a.py:3"),  # one launch of a range alone
        ([*PARTS[:1], *[PARTS[1]] * 19], 20, "a.py:4"),  # a stray
        (["b.py(1): x", "c.py(2): y"], 2, ""),
    ],
)
def test_work_of_many_lines_is_at_the_line_they_share(stacks: list[str], of: int, where: str) -> None:
    assert place(common_line(launched(*stacks), np.arange(of))) == where
