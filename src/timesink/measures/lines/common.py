"""The one line to name for some work that many lines led to."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.lines.stacks import (
    Line,
    Stack,
    calls_of_all,
    op_stacks,
    operators_have_stacks,
    sampled_stacks,
    stack_book,
)
from timesink.measures.steps.marks import step_marks
from timesink.model.arrays import Int64Array
from timesink.model.nesting import THREAD
from timesink.model.tables import FRAMES, GENERATED_KERNELS, HOST_STACKS
from timesink.model.trace import Trace, remembered

_ALL: Final = 0.9  # a sample may stand for a launch of a line beside its own


def common_line(trace: Trace, ops: Int64Array) -> Line | None:
    """The innermost line that led to all of these rows of `device_ops`, but for strays; where that is around the steps,
    the first line of the function in which they part. None where no file is known.

    train.py:9 main > train.py:30 step > model.py:5 f
    train.py:9 main > train.py:30 step > model.py:8 g       the common line is train.py:30
    """
    numbers, counts = np.unique(op_stacks(trace)[ops], return_counts=True)
    weights = _by_stack(trace, zip(numbers.tolist(), counts.tolist(), strict=True))
    chain, leading = _shared(weights, least := _ALL * sum(weights.values()))
    if chain and chain not in _around_steps(trace):
        return chain[-1]
    parted = [(stack[len(chain)], weight) for stack, weight in leading.items()]
    functions = defaultdict[tuple[str, str | None], float](float)
    for line, weight in parted:
        functions[line.function, line.file] += weight
    lines = [line for line, _ in parted if functions[line.function, line.file] >= least]
    return min(lines, key=lambda line: line.line or 0) if lines else chain[-1] if chain else None


def longest_line(trace: Trace, ops: Int64Array, weight: Iterable[float]) -> Line | None:
    """The line behind most of these rows of `device_ops`, each with its weight; None where none has a file."""
    told = any(trace.get(table).height for table in (FRAMES, HOST_STACKS, GENERATED_KERNELS))
    if not told and not operators_have_stacks(trace):
        return None
    return heaviest_line(trace, zip(op_stacks(trace)[ops].tolist(), weight, strict=True))


def heaviest_line(trace: Trace, stacks: Iterable[tuple[int, float]]) -> Line | None:
    """The innermost line that holds at least half of what these stacks weigh, with all that it calls; where none
    within the steps does, the heaviest of the innermost lines. Lines without a file are passed by.

    Of `step` at 9 that calls `f` at 3, 4 and 5 in a loop, a third of the time each, that is the call at 9.
    """
    weights = _by_stack(trace, stacks)
    chain, leading = _shared(weights, sum(weights.values()) / 2)
    if leading and (not chain or chain in _around_steps(trace)):
        return _heaviest(leading, -1)[0]
    return chain[-1] if chain else None


def _by_stack(trace: Trace, stacks: Iterable[tuple[int, float]]) -> dict[Stack, float]:
    """What each stack weighs, of their lines with a file; stacks without one say nothing."""
    book, weights = stack_book(trace).stacks, dict[Stack, float]()
    for number, weight in stacks:
        told = _with_files(book[number]) if number >= 0 else ()
        if told:
            weights[told] = weights.get(told, 0.0) + weight
    return weights


def _with_files(stack: Stack) -> Stack:
    return tuple(line for line in stack if line.file is not None)


def _shared(weights: Mapping[Stack, float], least: float) -> tuple[Stack, Mapping[Stack, float]]:
    """The longest chain of calls that stacks of at least so much weight begin with, and those that lead on from it."""
    chain = Stack()
    while weights:
        heaviest, weight = _heaviest(weights, len(chain))
        if weight < least:
            break
        chain = (*chain, heaviest)
        weights = {stack: weight for stack, weight in weights.items() if stack[:-1][: len(chain)] == chain}
    return chain, weights


def _heaviest(weights: Mapping[Stack, float], depth: int) -> tuple[Line, float]:
    """The line at this depth of the stacks with the most weight."""
    lines: dict[Line, float] = {}
    for stack, weight in weights.items():
        lines[stack[depth]] = lines.get(stack[depth], 0.0) + weight
    return max(lines.items(), key=lambda line: (line[1], str(line[0].file), line[0].line or 0))


@remembered
def _around_steps(trace: Trace) -> frozenset[Stack]:
    """The calls that every look at a thread within the steps was under, from the outermost on: they hold the loop over
    the steps, and no part of a step."""
    known, marks, book = sampled_stacks(trace), step_marks(trace).frame, stack_book(trace).stacks
    spans = marks.group_by("rank", "process").agg(pl.col("host_start_ns").min(), pl.col("host_end_ns").max())
    within = known.join(spans, on=["rank", "process"]).filter(
        pl.col("time_ns").is_between("host_start_ns", "host_end_ns")
    )
    seen = within.group_by(THREAD).agg(pl.col("stack").unique())["stack"].to_list()
    calls = [calls_of_all(map(_with_files, map(book.__getitem__, numbers))) for numbers in seen]
    return frozenset(outer for chain in calls for outer in accumulate((line,) for line in chain))
