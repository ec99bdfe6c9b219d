"""Kernels in the order in which each thread launched them, and which stretches of one order occur in another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink._native import numbered
from timesink.knowledge.kernel_traits import OF_BACKWARD
from timesink.measures.habits.extra_work import launch_order
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, Int64Array, slices
from timesink.model.names import matches
from timesink.model.nesting import numbered_rows, thread_slices
from timesink.model.record import dataclass
from timesink.model.schema import lean
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

STRETCH: Final = 5  # kernels: fewer in a row are alike by chance, as matrix products with their epilogues are
KINDS: Final = 3  # different kernels among them: one operation over and over says nothing
PLAIN: Final = ("pointwise", "copy", "fill", "reduction", "foreach", "random", "index")


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """`frame`: kernels that a recorded call launched alone, by rank, process, thread and time of launch.

    Columns: row (of `device_ops`), rank, process, thread, launched_ns, family, and `code`: one number for each name
    with its grid. `of_backward`: (rank, process, thread) of the threads that launch what only backward passes have,
    where another thread of the process launches too.
    """

    frame: pl.DataFrame
    of_backward: frozenset[tuple[int, int, int]]

    def is_backward(self, rows: pl.DataFrame) -> BoolArray:
        """Whether a thread of the backward pass launched each of these rows of `frame`."""
        keys = rows.select("rank", "process", "thread").iter_rows()
        return np.fromiter((key in self.of_backward for key in keys), np.bool_, rows.height)


def by_process(trace: Trace, rows: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, int]]:
    """Of each process the rows of `Launched.frame` in the order of their launches, and how many steps its rank has."""
    for part in rows.sort("launched_ns", "row").partition_by("rank", "process"):
        yield part, steps(trace).frame.filter(steps(trace).frame["rank"] == part["rank"][0]).height


@remembered
def launched(trace: Trace) -> Launched:
    """Put the kernels in order."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    facts, is_kernel = kernel_facts(trace), np.zeros(ops.height, np.bool_)
    is_kernel[facts.frame["row"].to_numpy()] = True
    row = launch_order(trace)
    row = row[is_kernel[row]]
    call, names = links.call[row], ops["name"][row]
    code = pl.Series(numbered_rows(pl.DataFrame({"name": names}))[0])
    for name in ("grid_x", "grid_y", "grid_z"):
        grid = ops[name][row].fill_null(0)
        if grid.min() != grid.max():  # one column after another: all in numbers of 64 bits would be many
            code = pl.Series(numbered_rows(pl.DataFrame({"code": code, "grid": grid}))[0])
    columns = {name: lean(calls[name][call]) for name in ("rank", "process", "thread", "start_ns")}
    frame = pl.DataFrame(
        {
            "row": row,
            **{name: columns.pop(name) for name in ("rank", "process", "thread")},
            "launched_ns": columns.pop("start_ns"),
            "family": facts.at(pl.Series(row), "family")["family"],
            "code": code,
        }
    )
    return Launched(frame, _backward_threads(frame, matches(names, OF_BACKWARD).to_numpy()))


def _backward_threads(frame: pl.DataFrame, backward: BoolArray) -> frozenset[tuple[int, int, int]]:
    threads = [(key, bool(backward[first:last].any())) for key, first, last in thread_slices(frame)]
    kinds: dict[tuple[int, int], list[bool]] = {}
    for key, works in threads:
        kinds.setdefault(key[:2], []).append(works)
    return frozenset(key for key, works in threads if works and not all(kinds[key[:2]]))


def stretches(codes: Int64Array, length: int) -> Int64Array:
    """One number for each run of `length` codes, by where it starts: equal numbers, equal runs."""
    grams = letters = np.asarray(codes - codes.min(initial=0), np.int64)
    most = width = int(letters.max(initial=0)) + 1
    for reach in range(1, min(length, codes.size)):
        if most * width > np.iinfo(np.int64).max:
            grams, most = np.unique(grams, return_inverse=True)[1].ravel(), codes.size
        grams, most = grams[: codes.size - reach] * width, most * width
        grams += letters[reach:]
    return grams[: max(codes.size - length + 1, 0)]


def occurring(codes: Int64Array, elsewhere: Int64Array, telling: BoolArray) -> BoolArray:
    """Which of `codes` lie in a run of `STRETCH` that also occurs in `elsewhere`, of `KINDS` or more, one `telling`."""
    found = np.zeros(codes.size, np.bool_)
    if min(codes.size, elsewhere.size) < STRETCH:
        return found
    number, first = numbered([stretches(np.concatenate((elsewhere, [-1], codes), dtype=np.int64), STRETCH)])
    known = number[elsewhere.size + 1 :] < np.searchsorted(first, elsewhere.size - STRETCH + 1)
    runs, tells = (np.lib.stride_tricks.sliding_window_view(of, STRETCH) for of in (codes, telling))
    for some in slices(0, known.size):
        starts = some.start + np.flatnonzero(known[some] & tells[some].any(axis=1))
        kinds = 1 + (np.diff(np.sort(runs[starts], axis=1), axis=1) != 0).sum(axis=1)
        for start in starts[kinds >= KINDS]:
            found[start : start + STRETCH] = True
    return found


def begun_alike(codes: Int64Array, elsewhere: Int64Array, chosen: BoolArray) -> BoolArray:
    """At which of `codes` a run begins like one of those that are `chosen` in a row `elsewhere`, as far as the shortest
    of these goes: of three kernels in "abcxabc" like "abcd" and "abc", at 0 and 4."""
    begins = np.flatnonzero(chosen & ~np.append(False, chosen[:-1]))
    length = int((np.flatnonzero(chosen & ~np.append(chosen[1:], False)) + 1 - begins).min(initial=elsewhere.size))
    found = np.zeros(codes.size, np.bool_)
    if begins.size and codes.size >= length:
        numbers = stretches(np.concatenate((codes, [-1], elsewhere)).astype(np.int64), length)
        count = codes.size - length + 1
        found[:count] = np.isin(numbers[:count], numbers[codes.size + 1 + begins])
    return found


def telling(families: pl.Series) -> BoolArray:
    """Which kernels are more than a plain pass over memory."""
    return ~families.is_in(list(PLAIN)).to_numpy()
