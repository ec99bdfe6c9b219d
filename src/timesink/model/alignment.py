"""Which member of a recorded sequence each member of a later, possibly edited one is: never a guess.

Members are numbers that stand for what is known of a kernel (its name, grid and block). A longest common subsequence
says which members stayed; a pair counts only where every longest common subsequence has it::

    recorded  A B B C D
    later     A B C D        A, C and D are told; which B is left out is not, so B is nobody's: 0 -1 3 4
    later     A B B D C      C and D changed places, so neither is told: 0 1 2 -1 -1

Which call launched which device operation: profilers give both the same number, the correlation.

Correlations are numbered process by process, so identity is (rank, process, correlation): never the order of rows, and
never a list of names.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from timesink._native import first_places
from timesink.model.arrays import BoolArray, Int32Array, Int64Array

_CELLS: Final = 1 << 24  # more is no table to fill for one graph: such sequences must be equal


def aligned(later: Int64Array, recorded: Int64Array) -> Int64Array:
    """For each member of `later` its place in `recorded`, or -1 where that is not certain."""
    if later.size == recorded.size and np.array_equal(later, recorded):
        return np.arange(later.size, dtype=np.int64)
    place = np.full(later.size, -1, np.int64)
    if not later.size or not recorded.size or later.size * recorded.size > _CELLS:
        return place
    head, tail = _common_lengths(later, recorded), _common_lengths(later[::-1], recorded[::-1])[::-1, ::-1]
    longest = head[-1, -1]
    equal = later[:, None] == recorded[None, :]
    possible = equal & (head[:-1, :-1] + 1 + tail[1:, 1:] == longest)
    avoidable = (head[:-1] + tail[1:] == longest).any(axis=1)  # some longest subsequence does without the member
    certain = (possible.sum(axis=1) == 1) & ~avoidable
    place[certain] = possible[certain].argmax(axis=1)
    return _without_moved(later, recorded, place)


def _common_lengths(later: Int64Array, recorded: Int64Array) -> Int64Array:
    """At [i, j] the length of the longest common subsequence of the first i and the first j members."""
    lengths = np.zeros((later.size + 1, recorded.size + 1), np.int32)
    for row, member in enumerate(later.tolist(), start=1):
        above = lengths[row - 1]
        lengths[row, 1:] = np.maximum.accumulate(np.maximum(above[1:], above[:-1] + (recorded == member)))
    return lengths  # type: ignore[return-value]


def _without_moved(later: Int64Array, recorded: Int64Array, place: Int64Array) -> Int64Array:
    """The places, less those between where a member was and where an equal one now is: anything may have moved there.

    The stretch lasts from the last certain pair before both to the first certain pair behind both.
    """
    told = np.flatnonzero(place >= 0)
    free = np.setdiff1d(np.arange(recorded.size), place[told])
    kept = place.copy()
    for row in np.flatnonzero(place < 0).tolist():
        was = free[recorded[free] == later[row]]
        if was.size:
            now = np.searchsorted(place[told], [was[0], was[-1]])  # how many certain pairs stand before each
            before = np.searchsorted(told, row)
            low, high = min(int(now[0]), int(before)), max(int(now[1]), int(before))
            kept[told[low:high]] = -1
    return kept


def reshaped(later: Int64Array, recorded: Int64Array, place: Int64Array, names: tuple[Int64Array, Int64Array]) -> bool:
    """Whether between two certain pairs a kernel of the same name stands in both, launched in another shape: the
    sequence is of another size. `names` are the names of both sequences' members."""
    told = np.flatnonzero(place >= 0)
    edges = [(-1, -1), *zip(told.tolist(), place[told].tolist(), strict=True), (later.size, recorded.size)]
    for (row, at), (next_row, next_at) in pairwise(edges):
        if next_row - row > 1 and next_at - at > 1:
            here, there = slice(row + 1, next_row), slice(at + 1, next_at)
            same_name = np.isin(names[0][here], names[1][there])
            if (same_name & ~np.isin(later[here], recorded[there])).any():
                return True
    return False


def occurrence(later: Int64Array, stream: Int64Array) -> int | None:
    """Where `later` stands in a longer stream: its last place, if all are turns of one loop; None where it is not
    certain which of several places it is.

    Places overlap, or a neighbour equals the edge: one member could be missing there. Two places may be two equal parts
    of one turn, so that there must be one, or at least three with the same between each two.
    """
    found = _places(later, stream)
    if not found:
        return None
    if any(_ambiguous_edge(later, stream, at) for at in found):
        return None
    gaps = {tuple(stream[at:nxt].tolist()) for at, nxt in pairwise(found)}
    if any(len(gap) < later.size for gap in gaps) or len(found) == 2 or len(gaps) > 1:
        return None
    return found[-1]


def _places(later: Int64Array, stream: Int64Array) -> list[int]:
    if not later.size or later.size > stream.size:
        return []
    starts: BoolArray = np.ones(stream.size - later.size + 1, np.bool_)
    for offset in range(later.size):
        starts &= stream[offset : offset + starts.size] == later[offset]
        if not starts.any():
            return []
    return np.flatnonzero(starts).tolist()


def _ambiguous_edge(later: Int64Array, stream: Int64Array, at: int) -> bool:
    end = at + later.size
    return bool((at > 0 and stream[at - 1] == later[0]) or (end < stream.size and stream[end] == later[-1]))


def in_order(candidates: Sequence[Sequence[int]]) -> list[int]:
    """Of each turn's possible numbers the one that follows its neighbours', -1 where that is not certain.

    Turns run in the order of their numbers, so one that is certain tells the next and the last; where both ends tell,
    they must agree: [[0], [1, 2], [1, 2], [3]] gives [0, 1, 2, 3], and [[0], [1, 2], [3]] gives [0, -1, 3].
    """
    from_front, from_back = _following(candidates, 1), _following(candidates[::-1], -1)[::-1]
    return [
        max(front, back) if front == back or min(front, back) < 0 else -1
        for front, back in zip(from_front, from_back, strict=True)
    ]


def _following(candidates: Sequence[Sequence[int]], step: int) -> list[int]:
    told: list[int] = []
    for options in candidates:
        follows = told[-1] + step if told and told[-1] >= 0 else -1
        told.append(options[0] if len(options) == 1 else follows if follows in options else -1)
    return told


def launching_calls(ops: pl.DataFrame, calls: pl.DataFrame) -> Int32Array:
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where the recording holds none.

    Where several calls carry one correlation (a driver call inside a runtime call), the first row, which encloses the
    others, is the launch. Operations of several processes, and the calls with the same correlations::

        ops    process  correlation      calls  process  correlation      launching calls
        0      1        7                0      1        7                0
        1      1        8                1      1        7  (inside 0)    -1
        2      2        7                2      2        7                2
    """
    call = np.full(ops.height, -1, np.int32)
    if ops.height and calls.height:
        op_ids, call_ids = _correlations(ops), _correlations(calls)
        if (process := _one_process(ops)) is not None and process == _one_process(calls):
            return first_places(op_ids, call_ids).astype(np.int32)
        calls_of = dict(_rows_by_process(calls))
        for process, op_rows in _rows_by_process(ops):
            if process in calls_of:
                call_rows = calls_of[process]
                position = first_places(op_ids[op_rows], call_ids[call_rows])
                call[op_rows] = np.where(position >= 0, call_rows[position], -1)
    return call


def _correlations(frame: pl.DataFrame) -> Int64Array:
    """Correlations, with -1 for null: no profiler numbers a launch so."""
    ids = frame["correlation"]
    return (ids.fill_null(-1) if ids.null_count() else ids).to_numpy()


def _one_process(frame: pl.DataFrame) -> tuple[int, int] | None:
    """The (rank, process) of all rows, None where they have several."""
    (rank, last_rank), (process, last) = ((frame[key].min(), frame[key].max()) for key in ("rank", "process"))
    return (rank, process) if (rank, process) == (last_rank, last) else None  # type: ignore[return-value]


def _rows_by_process(frame: pl.DataFrame) -> Iterator[tuple[tuple[int, int], Int64Array]]:
    """Row numbers of each (rank, process)."""
    if (process := _one_process(frame)) is not None:
        yield process, np.arange(frame.height)
        return
    numbered = frame.select("rank", "process").with_row_index("row")
    rows = numbered.group_by("rank", "process").agg(pl.col("row").cast(pl.Int64))
    for rank, process, numbers in rows.sort("rank", "process").iter_rows():
        yield (rank, process), np.asarray(numbers, np.int64)
