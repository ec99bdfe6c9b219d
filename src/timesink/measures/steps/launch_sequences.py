"""What the busiest device of a process runs, in order, and the rounds in it that could be the steps.

Steps of a trace without marks are the outermost loop of that sequence (`loops`), or begin at kernels that the user
names.

Steps of a server that nobody annotated are the launches of the graph that makes a token for every request. Prompts come
when they come, so that hardly any kernel but those of decoding is in every step. A server replays the same graph again
and again, that graph takes most of the device's time, and after it tokens leave the device.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.op_class import communicates
from timesink.measures.steps.loops import candidates, loop_of, outermost_loop
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int64Array, found_at, median
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import StepChoice, Trace, remembered
from timesink.records import Record
from timesink.units import time_text

PROCESS: Final = ("rank", "process")
# With its name, what an operation is.
_KIND: Final = ("kind", "grid_x", "grid_y", "grid_z", "copy_kind", "bytes")


class LaunchSequence(Record, eq=False):
    """What the busiest device of a process runs, collectives left out, in order of launch, or of running.

    `kinds` numbers what each operation is, `time_ns` is when it was launched or ran; `ops` are the rows themselves.
    """

    rank: int
    process: int
    ops: pl.DataFrame
    kinds: Int64Array
    time_ns: Int64Array

    def next_to(self, begun_ns: Int64Array) -> Int64Array:
        """The position of the operation that each instant comes before, or of the last one; each position once."""
        return np.unique(np.searchsorted(self.time_ns, begun_ns).clip(max=self.time_ns.size - 1))


def launch_sequences(trace: Trace, on_device: bool) -> Iterator[LaunchSequence]:
    """One per process that ran something on a device."""
    calls, call = trace.get(API_CALLS), launch_links(trace).call
    launched_ns = pl.Series("launched_ns", found_at(calls["start_ns"].to_numpy(), call))
    ops = trace.get(DEVICE_OPS).select(*PROCESS, "device", "stream", "name", "start_ns", "end_ns", *_KIND)
    ops = ops.with_columns(launched_ns, pl.Series("call", call)).filter(~communicates(ops["name"]))
    order = ("start_ns", "end_ns") if on_device else ("launched_ns", "start_ns")
    if not on_device:
        ops = ops.filter(pl.col("call") >= 0)
    for process, of_process in by_process(ops):
        busy = of_process.group_by("device").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy_ns"))
        device = busy.sort(["busy_ns", "device"], descending=[True, False])["device"][0]
        ordered = of_process.filter(pl.col("device") == device).sort(order)
        kinds = ordered.select(pl.struct(pl.col("name").to_physical(), *_KIND).rank("dense").cast(pl.Int64) - 1)
        time_ns = ordered[order[0]].to_numpy()
        yield LaunchSequence(*process, ordered, kinds.to_series().to_numpy(), time_ns)


def first_kernel_ns(launched: LaunchSequence, position: int) -> int:
    """When the first kernel of the last round was launched, or ran, as that of every other anchors it: a round may
    begin with a copy. Of a round without one, when it began."""
    kernels = np.flatnonzero(launched.ops["kind"][position:].is_in(["kernel", "graph"]))
    return int(launched.time_ns[position + (kernels[0] if kernels.size else 0)])


def round_starts(
    launched: LaunchSequence, choice: StepChoice | None, updates_ns: Int64Array | None = None
) -> Int64Array | None:
    """Positions at which rounds begin; None where no loop is found, or nothing has the name that the user gave.
    `updates_ns`: when optimizers' work was launched, ascending."""
    gaps_ns = np.diff(launched.time_ns, prepend=launched.time_ns[:1])
    if choice is not None and choice.pattern is not None:
        named = np.flatnonzero(matches(launched.ops["name"], choice.pattern).to_numpy())
        every = max(round(named.size / choice.count), 1) if choice.count else 1
        return named[::every] if named.size > 1 else None
    count = choice.count if choice is not None else None
    if count is not None:
        loop = loop_of(launched.kinds, gaps_ns, count)
    else:
        updates = None if updates_ns is None else np.searchsorted(launched.time_ns, updates_ns)
        loop = outermost_loop(launched.kinds, gaps_ns, updates)
    return None if loop is None else loop.starts


class StepCandidate(Record):
    """A loop of kernels that could be the step: how many rounds, and how long the median one takes, in ns."""

    rounds: int
    p50_ns: float

    def __str__(self) -> str:
        return f"{self.rounds} steps of {time_text(self.p50_ns)}"


@remembered
def step_candidates(trace: Trace) -> tuple[StepCandidate, ...]:
    """The loops of the kernels that could be the steps, fewest rounds first, of the process that launches most."""
    orders = list(launch_sequences(trace, not launch_links(trace).linked_count))
    if not orders:
        return ()
    launched = max(orders, key=lambda order: order.kinds.size)
    found = [
        StepCandidate(loop.rounds, median(np.diff(launched.time_ns[loop.starts])))
        for loop in candidates(launched.kinds)
    ]
    return tuple(sorted(found, key=lambda candidate: candidate.rounds))


def by_process(rows: pl.DataFrame) -> Iterator[tuple[tuple[int, int], pl.DataFrame]]:
    """The rows of each process of this recording, in order."""
    rows = rows.filter(pl.col("process") >= 0)  # steps of another recording are none of this one
    for (rank, process), part in sorted(rows.partition_by(PROCESS, as_dict=True, maintain_order=True).items()):
        yield (int(rank), int(process)), part


_TOKENS_MOST: Final = 1 << 16  # bytes: eight thousand requests' tokens of eight bytes


def decode_rounds(ops: pl.DataFrame, kinds: Int64Array) -> Int64Array | None:
    """Positions in `ops`, in launch order, of the first op of every decoding graph; None where there is no such loop.

    Only the graph that is launched most often counts; it is launched in most steps of its kind, and a small copy to the
    host follows nearly every launch before the next one. Rounds of a loop around them are no steps.
    """
    frame = pl.DataFrame({"call": ops["call"], "kind": kinds, "busy_ns": ops["end_ns"] - ops["start_ns"]})
    frame = frame.with_row_index("at").filter(pl.col("call") >= 0)
    replays = frame.group_by("call", maintain_order=True).agg(
        pl.col("at").min(), pl.len().alias("ops"), pl.col("kind").hash().sum().alias("what"), pl.col("busy_ns").sum()
    )
    replays = replays.filter(pl.col("ops") >= assumed.GRAPH_OPS.whole)
    if not replays.height:
        return None
    by_graph = replays.group_by("what").agg(pl.len().alias("count"), pl.col("busy_ns").sum())
    most = by_graph.sort("count", "busy_ns", "what", descending=[True, True, False]).row(0, named=True)
    if most["count"] < assumed.DECODE_ROUNDS.whole or most["count"] < assumed.DECODE_SHARE.value * replays.height:
        return None
    if most["busy_ns"] < assumed.DECODE_SHARE.value * float(frame["busy_ns"].sum()):
        return None
    starts = replays.filter(pl.col("what") == most["what"])["at"].to_numpy().astype(np.int64)
    tokens = np.flatnonzero(((ops["copy_kind"] == "d2h") & (ops["bytes"] <= _TOKENS_MOST)).fill_null(False).to_numpy())
    left = np.searchsorted(tokens, starts[1:]) > np.searchsorted(tokens, starts[:-1])
    return starts if left.mean() >= assumed.ROUNDS_AT_HOME.value and not _within_a_loop(np.diff(starts)) else None


def _within_a_loop(lengths: Int64Array) -> bool:
    """Whether each so many rounds have more to do, always as many: a loop around that of the tokens, whose turns are
    the steps. Prompts of a server come at no such pace."""
    longer = np.flatnonzero(lengths > median(lengths))
    return len(longer) > 2 and longer[1] - longer[0] > 1 and not np.diff(longer, 2).any()
