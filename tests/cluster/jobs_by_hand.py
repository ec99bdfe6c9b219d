"""Jobs of which the truth is known: when each rank came to each collective, and what its clock showed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.ranks.job import SCHEMAS, Job
from timesink.model.tables import DEVICE_OPS, SOURCES
from timesink.model.trace import Trace
from timesink.records import replace

Numbers = npt.NDArray[np.int64]
EPOCH_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Drift:
    """A clock that shows `offset_ns` too much at `EPOCH_NS` and gains `ratio` of the time that passes."""

    offset_ns: int = 0
    ratio: float = 0.0

    def shows(self, time_ns: Numbers) -> Numbers:
        return time_ns + self.offset_ns + np.rint(self.ratio * (time_ns - EPOCH_NS)).astype(np.int64)


def calls_frame(rows: Sequence[dict[str, object]]) -> pl.DataFrame:
    """Rows of `Job.calls`; what a row leaves out is the plainest."""
    plain = {"device": 0, "stream": 7, "kind": "allreduce", "labelled": True, "holds": True,
             "work_before_ns": 0}  # fmt: skip
    frame = pl.DataFrame([{**plain, **row} for row in rows], schema=SCHEMAS["calls"])
    return frame.sort(frame.columns, nulls_last=True)


def job_of(calls: pl.DataFrame, hosts: dict[int, str] | None = None) -> Job:
    """A job of these calls; every rank on a clock of its own, or on its host's."""
    ranks = calls["rank"].unique().sort().to_list()
    clocks = [f"host {hosts[rank]}" if hosts else f"file {rank}" for rank in ranks]
    members = pl.DataFrame(
        {"rank": ranks, "device": 0, "clock": clocks}, schema_overrides={"rank": pl.Int32, "device": pl.Int32}
    )
    blank = Job.empty()
    members = pl.concat([blank.members, members], how="diagonal")
    exposed = calls.filter("holds").select("rank", "device", "start_ns", "end_ns")
    return replace(blank, members=members, calls=calls, exposed=exposed.sort("*"))


def collectives(arrival_ns: npt.ArrayLike, transfer_ns: npt.ArrayLike) -> pl.DataFrame:
    """Calls of a job on one true clock: row i of `arrival_ns` holds when each rank comes to collective i; all leave
    `transfer_ns[i]` after the last has come."""
    arrival = np.asarray(arrival_ns, np.int64) + EPOCH_NS
    end = arrival.max(axis=1) + np.asarray(transfer_ns, np.int64)
    return calls_frame(
        [
            {"rank": rank, "start_ns": int(arrival[at, rank]), "end_ns": int(end[at])}
            for at in range(arrival.shape[0])
            for rank in range(arrival.shape[1])
        ]
    )


def on_clocks(calls: pl.DataFrame, clocks: dict[int, Drift]) -> pl.DataFrame:
    """The same calls as each rank's own clock shows them."""
    parts = []
    for (rank,), mine in calls.partition_by("rank", as_dict=True).items():
        clock = clocks.get(rank, Drift())
        shown = {name: clock.shows(mine[name].to_numpy()) for name in ("start_ns", "end_ns")}
        parts.append(mine.with_columns(pl.Series(name, values) for name, values in shown.items()))
    return pl.concat(parts).sort(calls.columns, nulls_last=True)


def rank_trace(rank: int, steps: int = 4, late_ns: int = 0, host: str | None = "node", world: int = 4) -> Trace:
    """A rank that computes 7 us (and `late_ns` more) of each 10 us step, and reduces with the others until its end."""
    ops = []
    for step in range(steps):
        begin = EPOCH_NS + 10_000 * step
        ops.append((begin, begin + 7_000 + late_ns, 7, "gemm"))
        ops.append((begin + 7_000 + late_ns, begin + 10_000, 20, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"))
    frame = DEVICE_OPS.build(
        {
            "rank": rank, "device": rank, "process": 100 + rank, "kind": "kernel",
            "start_ns": [op[0] for op in ops], "end_ns": [op[1] for op in ops],
            "stream": [op[2] for op in ops], "name": [op[3] for op in ops],
        }
    )  # fmt: skip
    source = SOURCES.build({"rank": rank, "path": f"rank{rank}.json", "format": "kineto_json", "host": host,
                            "world_size": world})  # fmt: skip
    return Trace(f"rank{rank}.json", {SOURCES: source, DEVICE_OPS: frame})
