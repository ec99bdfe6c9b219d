"""The device's part of optimizer steps: from the first to the last kernel launched in one, and which are not fused.

Fused AdamW reads parameter, gradient and two moments and writes three of them: 7 passes over memory. Operation by
operation it takes about 20, SGD with momentum 14 instead of 5: a fused step keeps about 35 % of the kernel time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.facts import OPTIMIZER_RANGE, kernel_facts
from timesink.measures.kernels.shortened import Shortened, rows_of
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.ranges import range_projection
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.graph import Range

FUSED: Final = r"(?i)FusedOptimizer|Fused\w*(?:Adam|Sgd|Lamb|Lion)|fused_(?:adam|sgd|lamb|lion)"
_MEMBERS: Final = ("pointwise", "foreach", "fill", "copy", "reduction")
# Causes of idle time that fewer launches take away.
_HOST_CAUSES: Final = ("dispatch", "cuda_call", "launch_latency", "python", "untraced", "optimizer")
_KEPT: Final = Range(0.6, 0.35, 0.2)


@dataclass(frozen=True, slots=True, eq=False)
class OptimizerKernels:
    """One device. `unfused` are the kernels that a fused step replaces; `idle` is idle time in which the host was on
    its way to launch one of them, blocking waits aside; `per_step` is how many of them a step runs, `one_by_one` how
    many update a single parameter (the others update lists)."""

    device: Device
    unfused: Shortened
    idle: Intervals
    per_step: float
    one_by_one: float


@remembered
def optimizer_kernels(trace: Trace) -> tuple[OptimizerKernels, ...]:
    """Per device on which an optimizer's step runs kernels."""
    facts = kernel_facts(trace)
    spans = _spans(trace)
    found = []
    for device in facts.devices:
        mine = facts.on(device).filter("optimizer")
        if not mine.height:
            continue
        fused = matches(trace.get(DEVICE_OPS)["name"].gather(mine["row"]), FUSED).any()
        passes = pl.col("family").is_in(_MEMBERS) & pl.col("fused").is_null()
        loose = mine.filter(passes & pl.lit(not fused))  # beside a fused step, others clip gradients or count
        rows = rows_of(loose)
        count = max(_steps(trace, device, spans), 1)
        single = loose.filter(pl.col("family") != "foreach").height
        found.append(
            OptimizerKernels(
                device,
                Shortened.of(device, rows, (rows, _KEPT)),
                _idle(trace, rows),
                rows.size / count,
                single / count,
            )
        )
    return tuple(found)


def _idle(trace: Trace, rows: Int64Array) -> Intervals:
    """Idle time that one of the kernels ended, blamed on the host's own work."""
    ended = idle_blame(trace).ended_by(rows)
    return Intervals.of(ended.filter(pl.col("cause").is_in(_HOST_CAUSES)))


def _spans(trace: Trace) -> dict[Device, Intervals]:
    """From the first to the last device op launched in each optimizer range."""
    instances = range_projection(trace).instances
    mine = instances.filter(matches(instances["name"], OPTIMIZER_RANGE))
    found = {}
    for (rank, device), part in mine.group_by("rank", "device"):
        span = Intervals.union_of(part["first_ns"].to_numpy(), part["last_ns"].to_numpy())
        found[int(str(rank)), int(str(device))] = span
    return found


def _steps(trace: Trace, device: Device, spans: dict[Device, Intervals]) -> int:
    """How many times the optimizer ran: the marked steps, or, without such, separate stretches of it."""
    marked = steps(trace).frame.filter(pl.col("rank") == device[0]).height
    return marked or len(spans.get(device, Intervals.none()))
