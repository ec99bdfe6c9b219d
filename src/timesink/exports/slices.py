"""Intervals as begin and end events that nest, which is all that a track of Perfetto can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of the interval `row`; `is_begin` says which."""

    time_ns: int
    row: int
    is_begin: bool


def nesting_lanes(start_ns: Sequence[int], end_ns: Sequence[int]) -> list[list[int]]:
    """Rows on as few lines as this order finds, such that on each line any two intervals are apart or nested.

    Rows come longest first among those that start together; each goes to the first line whose innermost open interval
    it fits into.
    """
    order = sorted(range(len(start_ns)), key=lambda row: (start_ns[row], -end_ns[row], row))
    lanes: list[list[int]] = []
    open_ends: list[list[int]] = []
    for row in order:
        lane = _fitting(open_ends, start_ns[row], end_ns[row])
        if lane == len(lanes):
            lanes.append([])
            open_ends.append([])
        lanes[lane].append(row)
        open_ends[lane].append(end_ns[row])
    return lanes


def _fitting(open_ends: list[list[int]], start: int, end: int) -> int:
    """The first line on which an interval nests; one past the last where there is none. Closes what has ended."""
    for lane, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            return lane
    return len(open_ends)


def edges(rows: Sequence[int], start_ns: Sequence[int], end_ns: Sequence[int]) -> Iterator[Edge]:
    """The events of one line in order: what ends at an instant ends before what begins there."""
    stack: list[int] = []
    for row in rows:
        while stack and end_ns[stack[-1]] <= start_ns[row]:
            closed = stack.pop()
            yield Edge(end_ns[closed], closed, is_begin=False)
        stack.append(row)
        yield Edge(start_ns[row], row, is_begin=True)
    while stack:
        closed = stack.pop()
        yield Edge(end_ns[closed], closed, is_begin=False)
