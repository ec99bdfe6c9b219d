"""The line of the program that all of some GPU work has in common, as the body of a loop has."""

from collections.abc import Iterable

import numpy as np

from timesink.measures.lines.stacks import Line, Stack, op_stacks, stack_book
from timesink.model.arrays import Int64Array
from timesink.model.trace import Trace


def common_line(trace: Trace, ops: Int64Array) -> Line | None:
    """The innermost line that led to all of these rows of `device_ops`; None where no file is known.

    train.py:9 main > train.py:30 step > model.py:5 f
    train.py:9 main > train.py:31 step > model.py:8 g       the common line is train.py:30
    """
    numbers = np.unique(op_stacks(trace)[ops])
    stacks = [stack_book(trace).stacks[number] for number in numbers[numbers >= 0].tolist()]
    shared = list(_shared(stacks)) if stacks else []
    return next((line for line in reversed(shared) if line.file is not None), None)


def _shared(stacks: list[Stack]) -> Iterable[Line]:
    """The lines that all stacks begin with, and of the function in which they part the first line."""
    for level in zip(*stacks, strict=False):
        if len(set(level)) == 1:
            yield level[0]
            continue
        if len({(line.function, line.file) for line in level}) == 1:
            yield min(level, key=lambda line: line.line or 0)
        return
