"""Samples of all steps in each of them: what a thread does at one place of a step it does there in every step.

A profiler looks at a thread a few times a step, and a capture holds a few steps. Where steps call the same operators in
the same order, a look between two of them in one step is a look between these in all others::

    step       operator   look   operator        look at
    [0, 100)   10         30     50              30
    [100, 220) 112        -      152             132
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.steps.marks import step_marks
from timesink.model.arrays import Int64Array
from timesink.model.nesting import THREAD, slice_of
from timesink.model.tables import API_CALLS, HOST_OPS, HOST_STACKS
from timesink.model.trace import Trace, remembered

_NEAR: Final = 8  # steps before and after
_MOST: Final = 200_000  # samples in all: more of them tell enough where they are


@remembered
def folded_samples(trace: Trace) -> pl.DataFrame:
    """The table of host stacks, with each periodic sample in the steps around it that are alike as well; by
    time."""
    recorded = trace.get(HOST_STACKS)
    samples, marks = recorded.filter(pl.col("kind") == "sample"), step_marks(trace)
    if marks.on_device or not 0 < samples.height * marks.frame.height <= _MOST:
        return recorded
    parts = [recorded]
    for key, own in samples.partition_by(THREAD, as_dict=True).items():
        windows = marks.frame.filter(pl.col("rank") == key[0], pl.col("process") == key[1])
        ends = list(windows.select("host_start_ns", "host_end_ns").sort("host_start_ns").iter_rows())
        parts += _elsewhere(own, list(_anchors(trace, key, ends)))
    return pl.concat(parts).sort(*THREAD, "time_ns")


def _anchors(trace: Trace, key: tuple[int, ...], windows: list[tuple[int, int]]) -> Iterator[tuple[bytes, Int64Array]]:
    """Of each step what the thread called in it, and when: from the step's begin to its end."""
    table = next((one for one in (HOST_OPS, API_CALLS) if _of_thread(trace.get(one), key).height), API_CALLS)
    rows = _of_thread(trace.get(table), key)
    start_ns, name = rows["start_ns"].to_numpy(), rows["name"].to_physical().to_numpy()
    for begin, end in windows:
        first, last = np.searchsorted(start_ns, (begin, end))
        yield name[first:last].tobytes(), np.array([begin, *start_ns[first:last].tolist(), end], np.int64)


def _of_thread(table: pl.DataFrame, key: tuple[int, ...]) -> pl.DataFrame:
    return table[slice(*slice_of(table, THREAD, key))]


def _elsewhere(samples: pl.DataFrame, windows: list[tuple[bytes, Int64Array]]) -> Iterator[pl.DataFrame]:
    """The samples of each step at their places in the steps around it that call the same."""
    for at, (called, anchors) in enumerate(windows):
        own = samples.filter(pl.col("time_ns").is_between(anchors[0], anchors[-1], closed="left"))
        near = range(max(at - _NEAR, 0), min(at + _NEAR + 1, len(windows))) if own.height else ()
        for other in near:
            there, moved = windows[other]
            if other != at and there == called:
                base = anchors[0]  # differences of whole ns fit a float
                time_ns = np.interp(own["time_ns"].to_numpy() - base, anchors - base, (moved - moved[0]).astype(float))
                yield own.with_columns(time_ns=pl.Series(time_ns.astype(np.int64) + moved[0]))
