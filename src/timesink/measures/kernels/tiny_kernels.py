"""Kernels that are over almost before they have begun: how many a step has, and how busy they keep the device."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.assumptions import machines
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps.per_step import period_ns, share_of_step, step_windows
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import begun_in
from timesink.model.schema import picked
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass
from timesink.whatif.change import Selection


@dataclass(frozen=True, slots=True, eq=False)
class TinyKernels:
    """Kernels of one device that are shorter than `kernels.TINY_US`, collectives aside.

    `best` of the selection is the share of its time that a kernel has beyond the least time of any. `per_step` of the
    `of_per_step` kernels of a step are tiny; `busy_ratio` is the share of the step in which the device works.
    """

    kernels: Selection
    per_step: float
    of_per_step: float
    busy_ratio: float


@remembered
def tiny_kernels(trace: Trace) -> tuple[TinyKernels, ...]:
    """Per device with any."""
    facts, found = kernel_facts(trace), []
    for device in facts.devices:
        kernels = facts.on(device).select("row", "start_ns", "length", "family")
        kernels = picked(kernels, kernels["family"] != "communication")
        tiny = kernels.filter(pl.col("length") < assumed.TINY_US.ns)
        if not tiny.height or not period_ns(trace, device):
            continue
        windows = step_windows(trace, device)
        beyond = 1.0 - np.minimum(machines.KERNEL_FLOOR_US.ns / np.maximum(tiny["length"].to_numpy(), 1), 1.0)
        found.append(
            TinyKernels(
                kernels=Selection(device, {"tiny": tiny["row"].to_numpy()}, best=beyond),
                per_step=float(np.mean(begun_in(tiny["start_ns"].to_numpy(), *windows))),
                of_per_step=float(np.mean(begun_in(kernels["start_ns"].to_numpy(), *windows))),
                busy_ratio=share_of_step(trace, device, device_timeline(trace)[device].busy),
            )
        )
    return tuple(found)
