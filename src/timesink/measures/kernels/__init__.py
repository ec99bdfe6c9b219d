"""Kernels of a step: classes, attainable time, and patterns a change would shorten.

Which kernels there are, how often they run, how long, and how small they are; which of them to profile.

`kernel_targets` lists the functions of a timeline that a kernel profiler should look at, and where their steady
launches are.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from timesink.knowledge.kernel_symbols import function_name
from timesink.knowledge.op_class import class_of_ops
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps.per_step import per_step_ns, period_ns, step_windows
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record


@remembered
def kernels(trace: Trace) -> pl.DataFrame:
    """Kernels by name: one row per (rank, device, name), longest total first.

    Columns: rank, device, name, op_class, count, total_ns, mean_ns, min_ns, max_ns, time_ratio. `time_ratio` is the
    row's share of all kernel durations on the device, which sum to 1; durations of kernels that ran at once on several
    streams count in full, so it is no share of busy time. Graphs traced as a whole are not kernels and are left out.
    """
    key = ["rank", "device", "name"]
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        _kernel_rows(trace)
        .lazy()
        .with_columns(length.alias("length"))
        .group_by(key)
        .agg(
            pl.col("op_class").first(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("length").sum().alias("total_ns"),
            pl.col("length").mean().alias("mean_ns"),
            pl.col("length").min().alias("min_ns"),
            pl.col("length").max().alias("max_ns"),
        )
        .with_columns((pl.col("total_ns") / pl.col("total_ns").sum().over("rank", "device")).alias("time_ratio"))
        .with_columns(pl.col("name").cast(pl.String))
        .sort(["rank", "device", "total_ns", "name"], descending=[False, False, True, False])
        .collect()
    )


def kernel_lengths(trace: Trace, names: Sequence[str]) -> Mapping[tuple[int, int, str], Int64Array]:
    """How long each launch of these kernels took in ns, by rank, device and name."""
    rows = _kernel_rows(trace).with_columns(pl.col("name").cast(pl.String)).filter(pl.col("name").is_in(names))
    parts = rows.partition_by("rank", "device", "name", as_dict=True)
    return {key: (part["end_ns"] - part["start_ns"]).to_numpy() for key, part in parts.items()}


def median_kernel_ns(trace: Trace) -> Mapping[tuple[int, int], float]:
    """How long the median kernel of each device takes, by rank and device."""
    facts = kernel_facts(trace)
    return {device: median(facts.on(device)["length"].to_numpy()) for device in facts.devices}


def _kernel_rows(trace: Trace) -> pl.DataFrame:
    ops = trace.get(DEVICE_OPS)
    rows = ops.select("rank", "device", "name", "start_ns", "end_ns").with_columns(class_of_ops(trace))
    return rows.filter(ops["kind"] == "kernel")


class KernelTarget(Record):
    """One function worth profiling.

    `step_ns` is its device time per steady step and `step_ratio` the share of the step; `per_step` is how many launches
    a step has, `grids` how many different shapes, `mean_ns` its mean time.
    """

    function: str
    step_ns: float
    step_ratio: float
    mean_ns: float
    per_step: int
    grids: int

    @property
    def pattern(self) -> str:
        """A regular expression that its name alone matches."""
        return f"^{re.escape(self.function)}$"


def kernel_targets(trace: Trace) -> tuple[KernelTarget, ...]:
    """Every function of the busiest device that runs in a steady step, the one with the most time per step first.

    Communication is left out: it waits for other ranks, and replaying one rank's launches would hang.
    """
    frame = kernels(trace)
    if not frame.height:
        return ()
    totals = frame.group_by("rank", "device", maintain_order=True).agg(pl.col("total_ns").sum())
    rank, device, _ = totals.sort("total_ns", descending=True, maintain_order=True).row(0)
    functions: dict[str, list[str]] = {}
    own = (pl.col("rank") == rank) & (pl.col("device") == device) & (pl.col("op_class") == "compute")
    for name in frame.filter(own)["name"].to_list():
        functions.setdefault(function_name(name), []).append(name)
    targets = [_target(trace, (rank, device), function, names) for function, names in functions.items()]
    steady = (target for target in targets if target.step_ns > 0)
    return tuple(sorted(steady, key=lambda target: (-target.step_ns, target.function)))


def _target(trace: Trace, device: tuple[int, int], function: str, names: list[str]) -> KernelTarget:
    ops = trace[DEVICE_OPS].filter(
        (pl.col("rank") == device[0]) & (pl.col("device") == device[1]) & pl.col("name").cast(pl.String).is_in(names)
    )
    starts, ends = step_windows(trace, device)
    begin = ops["start_ns"]
    step_ns = per_step_ns(trace, device, Intervals.of(ops))
    inside = int(((begin >= int(starts[0])) & (begin < int(ends[0]))).sum())
    shapes = Counter(ops.select("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z").iter_rows())
    length = period_ns(trace, device)
    return KernelTarget(
        function,
        step_ns,
        step_ns / length if length else 0.0,
        float((ops["end_ns"] - begin).mean() or 0.0),  # type: ignore[arg-type]
        inside,
        len(shapes),
    )
