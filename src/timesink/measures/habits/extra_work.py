"""Kernels in the order in which each thread launched them, which stretches of one order occur in another, and work that
a step can do without, with the idle time in which the host was on its way to launch it.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl

from timesink._native import numbered
from timesink.knowledge.kernel_traits import OF_BACKWARD
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, slices
from timesink.model.intervals import Intervals, begun_in
from timesink.model.names import matches
from timesink.model.nesting import key_slices, numbered_rows, thread_slices
from timesink.model.schema import lean
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, release_after, remembered
from timesink.records import Record

WAITING_CAUSES: Final = (*LAUNCHING_CAUSES, "sync", "os_call")
"""The same, and waits: where these go with the work."""


HostTimes = Mapping[tuple[int, int], Intervals]
NOTHING: Final[HostTimes] = MappingProxyType({})


class ExtraWork(Record, eq=False):
    """On one device: `rows` of `device_ops`, ascending, and `per_step`, how many of them a steady step has. `host` is
    time of (process, thread) that is there for them alone: from launch to launch of those that follow each other, and
    what a measure adds. `idle` are the gaps that they ended, and what else of the device's idle time is while the host
    does that."""

    device: Device
    rows: Int64Array
    per_step: float
    host: HostTimes
    idle: Intervals


def extra_work(
    trace: Trace, flags: BoolArray, host: HostTimes = NOTHING, causes: Collection[str] = LAUNCHING_CAUSES
) -> tuple[ExtraWork, ...]:
    """Per device with any flagged row of `device_ops`; idle time counts where it is blamed on one of `causes`."""
    ops, blame = trace.get(DEVICE_OPS), idle_blame(trace)
    host = together(host, _launching(trace, flags))
    busy_host = Intervals.union_all(host.values())
    found = []
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        rows = first + np.flatnonzero(flags[first:last])
        if rows.size:
            ended, all_idle = (
                Intervals.of(part.filter(pl.col("cause").is_in(list(causes))))
                for part in (blame.ended_by(rows), blame.on((rank, device)))
            )
            idle = ended | (all_idle & busy_host)
            found.append(ExtraWork((rank, device), rows, _per_step(trace, (rank, device), rows), host, idle))
    return tuple(found)


@release_after("HAB")
@remembered
def launch_order(trace: Trace) -> Int32Array:
    """Rows of `device_ops` with a launch of their own, in the order in which each thread launched them."""
    links, calls = launch_links(trace), trace.get(API_CALLS)
    rows = np.flatnonzero((links.call >= 0) & ~links.shared)
    launched = np.full(calls.height, -1, np.int32)  # by each call, which are in order of thread and start
    launched[links.call[rows]] = rows
    call = np.flatnonzero(launched >= 0)
    if not (np.diff(calls["start_ns"].to_numpy()[call]) == 0).any():
        return launched[call]
    where = calls.select("rank", "process", "thread", "start_ns")[call]  # of calls at one moment the op decides
    order = where.with_columns(pl.Series("row", launched[call]))
    return order.sort("rank", "process", "thread", "start_ns", "row")["row"].to_numpy()


def _launching(trace: Trace, flags: BoolArray) -> HostTimes:
    """By (process, thread): from the first to the last launch of flagged rows that follow each other."""
    calls, order, kind = trace.get(API_CALLS), launch_order(trace), trace.get(DEVICE_OPS)["kind"]
    order = order[flags[order] | (kind[order] != "set").to_numpy()]  # a memset belongs to the kernel after it
    call, flagged = launch_links(trace).call[order], np.flatnonzero(flags[order])
    if not flagged.size:
        return {}
    start, end = (calls[name].to_numpy()[call[flagged]] for name in ("start_ns", "end_ns"))
    threads = list(thread_slices(calls))
    thread = np.searchsorted([first for _, first, _ in threads], call[flagged], side="right") - 1
    begins = np.flatnonzero(np.append(True, (np.diff(flagged) != 1) | (np.diff(thread) != 0)))
    started, over, thread = start[begins], np.maximum.reduceat(end, begins), thread[begins]
    launching: dict[tuple[int, int], Intervals] = {}
    edges = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), thread.size]  # calls are in order of thread
    for first, last in pairwise(edges):
        _, *key = threads[thread[first]][0]
        own = Intervals.union_of(started[first:last], over[first:last])
        launching[key[0], key[1]] = launching.get((key[0], key[1]), Intervals.none()) | own
    return launching


def _per_step(trace: Trace, device: Device, rows: Int64Array) -> float:
    starts = trace.get(DEVICE_OPS)["start_ns"].to_numpy()[rows]
    return float(np.mean(begun_in(starts, *step_windows(trace, device))))


def together(some: HostTimes, others: HostTimes) -> HostTimes:
    """The times of both."""
    return {key: some.get(key, Intervals.none()) | others.get(key, Intervals.none()) for key in {**some, **others}}


STRETCH: Final = 5  # kernels: fewer in a row are alike by chance, as matrix products with their epilogues are
KINDS: Final = 3  # different kernels among them: one operation over and over says nothing
PLAIN: Final = ("pointwise", "copy", "fill", "reduction", "foreach", "random", "index")


class Launched(Record, eq=False):
    """`frame`: kernels that a recorded call launched alone, by rank, process, thread and time of launch.

    Columns: row (of `device_ops`), rank, process, thread, launched_ns, family, and `code`: one number for each name
    with its grid. `of_backward`: (rank, process, thread) of the threads that launch what only backward passes have,
    where another thread of the process launches too.
    """

    frame: pl.DataFrame
    of_backward: frozenset[tuple[int, int, int]]

    def is_backward(self, rows: pl.DataFrame) -> BoolArray:
        """Whether a thread of the backward pass launched each of these rows of `frame`."""
        keys = rows.select("rank", "process", "thread")
        number, first = numbered_rows(keys)
        return np.array([key in self.of_backward for key in keys[first].iter_rows()], np.bool_)[number]


def by_process(trace: Trace, rows: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, int]]:
    """Of each process the rows of `Launched.frame` in the order of their launches, and how many steps its rank has."""
    for part in rows.sort("launched_ns", "row").partition_by("rank", "process"):
        yield part, steps(trace).frame.filter(steps(trace).frame["rank"] == part["rank"][0]).height


@release_after("HAB")
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
