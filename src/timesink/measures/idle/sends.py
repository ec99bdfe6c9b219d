"""What threads send to a device from the host's memory, in the order of their launches; and what they send again.

A tensor that a program makes on the host for each layer, such as a list of neighbours, looks like a batch: host work,
and a copy. But it comes several times in a step, of one size, between kernels of one pass.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.measures.steps.marks import step_marks
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.autograd import backward_calls
from timesink.measures.timeline.copies import on_trips
from timesink.model.arrays import Int64Array
from timesink.model.nesting import THREAD
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

_STEPS: Final = 2  # one window may be the whole capture
_LEAST: Final = 3  # times a step: images and labels of one size are two
_SENT: Final = pl.Schema(
    {"rank": pl.Int32}
    | dict.fromkeys((*THREAD[1:], "call", "start_ns", "before_ns", "times"), pl.Int64)
    | {"is_first": pl.Boolean}
)


@remembered
def launching_calls(trace: Trace) -> pl.DataFrame:
    """Calls that launched device work (`call`, rows of `api_calls`), by start, and its `bytes`; `brings`: all of it was
    copied from host memory, did not come from the device, and is no answer to what was read."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    linked, call = links.linked, links.call.astype(np.int64)
    row = np.flatnonzero(links.launching(calls.height)).astype(np.int32)
    row = row[np.argsort(calls["start_ns"].to_numpy()[row], kind="stable")]
    is_copy, known = (ops["kind"] == "copy").fill_null(False), ops["bytes"].fill_null(0).to_numpy()
    sent = linked & (is_copy & ops["copy_kind"].eq_missing("h2d")).to_numpy() & ~on_trips(trace)
    read = linked & (is_copy & ops["copy_kind"].eq_missing("d2h")).to_numpy()
    brings = np.ones(calls.height, np.bool_)
    brings[call[linked & ~sent]] = False
    copied, answered = (summed(call[of], known[of], calls.height)[row] for of in (linked, read))
    launched = calls.select(*THREAD, "start_ns")[row].with_columns(
        call=row, brings=brings[row], bytes=copied, read=answered
    )
    brought = copied[brings[row]]
    return _without_answers(launched) if brought.size and answered.sum() >= brought.min() else launched


def _without_answers(calls: pl.DataFrame) -> pl.DataFrame:
    """Uploads of no more than their thread read since the one before bring nothing: what they hold may be made of what
    was read, and then none of it can be prepared ahead::

        brings  bytes  read
        false   16384  16384  the actions that a network chose
        true    16384  0      false: what a game in Python made of them
    """
    is_over = ~pl.col("brings") & pl.col("brings").shift(fill_value=False).over(THREAD)
    turns = calls.with_columns(turn=is_over, sent=pl.col("bytes") * pl.col("brings"))
    turns = turns.with_columns(pl.col("turn").cum_sum().over(THREAD))  # oldest Polars: no window in a window
    sent, read = pl.col("sent").sum().over(*THREAD, "turn"), pl.col("read").sum().over(*THREAD, "turn")
    return turns.with_columns(pl.col("brings") & ((read < sent) | (sent == 0)))


@remembered
def sent_again(trace: Trace) -> pl.DataFrame:
    """What a thread sends of one size in a step as often as layers do, each after a kernel of the same pass: rank,
    process, thread, `call`, `start_ns`, `before_ns` (its thread's launch before), `times` in the step, and whether it
    `is_first` there."""
    calls = launching_calls(trace)
    brings, size, step = calls["brings"].to_numpy(), calls["bytes"].to_numpy(), _step_of(trace, calls)
    within = np.flatnonzero(brings & (step >= 0))
    _, times = np.unique(np.stack((step[within], size[within])), axis=1, return_counts=True)
    if times.max(initial=0) < _LEAST:
        return pl.DataFrame(schema=_SENT)
    calls = calls.with_columns(step=step, turn=(~brings).astype(np.int64)).with_columns(
        pl.col("turn").cum_sum().over(THREAD), before_ns=pl.col("start_ns").shift().over(THREAD)
    )
    back_ns = np.sort(trace.get(API_CALLS)["start_ns"].to_numpy()[backward_calls(trace)])
    passes = np.searchsorted(back_ns, calls["start_ns"].to_numpy())  # a batch comes once for each backward pass
    own = [*THREAD, "step", "bytes", "passes"]
    sent = calls.with_columns(passes=pl.Series(passes))[within].with_columns(
        times=pl.col("turn").n_unique().over(own), is_first=pl.col("start_ns") == pl.col("start_ns").min().over(own)
    )
    return (
        sent.filter((pl.col("times") >= _LEAST) & pl.col("before_ns").is_not_null()).select(_SENT.names()).cast(_SENT)
    )


def _step_of(trace: Trace, calls: pl.DataFrame) -> Int64Array:
    """The number of the step of its process in which each call was made; -1 outside of any, or where one is known."""
    found = np.full(calls.height, -1, np.int64)
    for key, own in step_marks(trace).frame.sort("host_start_ns").partition_by(THREAD[:2], as_dict=True).items():
        mine = np.flatnonzero(((calls["rank"] == key[0]) & (calls["process"] == key[1])).to_numpy())
        begun = calls["start_ns"].to_numpy()[mine]
        at = np.searchsorted(own["host_start_ns"].to_numpy(), begun, side="right") - 1
        inside = (at >= 0) & (begun < own["host_end_ns"].to_numpy()[at]) & (own.height >= _STEPS)
        found[mine] = np.where(inside, at, -1)
    return found
