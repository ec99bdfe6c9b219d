"""A larger batch, once the changes of a plan are made: what an item takes then. It is no rung: its step is another.

Assumed: the host takes what it takes today. Kernels that fill the device take as many times longer as the batch is
larger; others only once they do. What is short keeps its least time; an optimizer's step and collectives are of the
weights and stay. A grid fills the device with a block on every multiprocessor, or with as many as its threads allow: no
trace shows how busy one block keeps it. Usually half-way between them; the latter at the least; at its most all grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.plan.joint import WORTH, Joint
from timesink.diagnosis.plan.memory import DeviceMemory, device_memory
from timesink.diagnosis.pricing import replay_error
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Quantity
from timesink.knowledge.assumptions import machines
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.one_stream import fills
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Float64Array
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Case, Together
from timesink.whatif.changes.kernels import GrowKernels
from timesink.whatif.critical_path import longest_kind, path_shares
from timesink.whatif.graph import Graph

FACTORS: Final = (2, 4, 8, 16, 32)  # doublings, as people try them
ASSUMED: Final = (
    "time of as many items as a step has today, which no rung of a step can be compared with. Assumed: the host needs "
    "what it needs today, kernels that fill the device grow with the batch and smaller ones once they fill it, the "
    "optimizer and collectives not at all. Another batch trains otherwise"
)
BUSY: Final = Limit.ratio(
    0.05,
    "what a host does for which the device waits nearly all the time is not the launching that stays as it is",
    "programs whose larger batches were measured (benchmarks/ladders, H100) keep the device busy for 59 to 97 %",
)
_OF_WEIGHTS: Final = ("communication", "foreach")


@dataclass(frozen=True, slots=True)
class LargerBatch:
    """A batch so many times as large: its step, the time of as many items as a step has today, what bounds it, and what
    it needs more of memory."""

    factor: int
    step: Quantity
    per_item: Quantity
    bound_by: str
    needed_bytes: int | None


def larger_batches(joint: Joint, chosen: Sequence[str], now_ms: float) -> tuple[tuple[LargerBatch, ...], str]:
    """After the chosen changes, which leave a step of `now_ms`: batches twice as large, and so on while each wins
    `WORTH` more of an item; or why there is none."""
    if why := _unknown(joint, chosen):
        return (), why
    found: list[LargerBatch] = []
    before_ms, today = now_ms, Today.of(joint, chosen, now_ms)
    for factor in FACTORS:
        made = today.larger_batch(factor)
        if before_ms - made.per_item.value < WORTH.default * before_ms:
            break
        found.append(made)
        before_ms = made.per_item.value
    why = f"a larger batch would win less than {100 * WORTH.default:g} % of an item's time"
    return tuple(found), "" if found else why


def _unknown(joint: Joint, chosen: Sequence[str]) -> str:
    """Why nothing can be foretold, if so."""
    asked = {card.name for one in joint.offered.values() for card, _ in one.findings if one.fix.name not in chosen}
    if "input-pipeline" in asked:
        return "larger_batch has no price: the device waits for batches, and loading them grows with them"
    if joint.pricer.busy_ns < BUSY.default * joint.pricer.step_ns:
        return f"larger_batch has no price: the device is busy for less than {100 * BUSY.default:g} % of the step"
    if np.bincount(joint.pricer.graph.program.ops.block, minlength=1).max(initial=0) > 1:
        return "larger_batch has no price: the replay cannot make kernels of a CUDA graph longer"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Today:
    """The step of today once changes are made: its graph, what that replays to, and how long it is said to be."""

    joint: Joint
    graph: Graph
    replayed_ns: float
    step_ms: float

    @classmethod
    def of(cls, joint: Joint, chosen: Sequence[str], step_ms: float) -> Today:
        """After the chosen changes, which leave a step of `step_ms`."""
        graph, anchors = Together(tuple(joint.parts(chosen))).rewrite(joint.pricer.graph), joint.pricer.anchors
        return cls(joint, graph, anchors.windows.mean(anchors.periods(graph.replay())), step_ms)

    def larger_batch(self, factor: int) -> LargerBatch:
        """A batch so many times as large."""
        joint, now_ms, anchors = self.joint, self.step_ms, self.joint.pricer.anchors
        ratio = joint.step_ms / max(joint.pricer.step_ns, 1.0)
        own = [device for device in kernel_facts(joint.trace).devices if device[0] == joint.rank]
        grow = Together(tuple(_grown(joint.trace, device, factor) for device in own))
        graphs = [grow.rewrite(self.graph, case) for case in Case]
        replays = [then.replay() for then in graphs]
        more_ms = [ratio * (anchors.windows.mean(anchors.periods(then)) - self.replayed_ns) for then in replays]
        most, value, least = (max(more, 0.0) for more in more_ms)
        error_ms = replay_error(value, now_ms)
        low, high = max(min(least, value) - error_ms, 0.0), min(max(most, value) + error_ms, (factor - 1) * now_ms)
        value = min(value, (factor - 1) * now_ms)
        step = Quantity(now_ms + value, "ms", now_ms + min(low, value), now_ms + max(high, value))
        per_item = Quantity(step.value / factor, "ms", (step.low or 0.0) / factor, step.most / factor)
        expected = Case.EXPECTED.value
        bound_by = longest_kind(path_shares(graphs[expected], replays[expected], anchors))
        working = device_memory(joint.trace).get((joint.rank, joint.device), DeviceMemory()).working
        return LargerBatch(factor, step, per_item, bound_by, None if working is None else (factor - 1) * working)


def _grown(trace: Trace, device: Device, factor: int) -> GrowKernels:
    """How many times as long each kernel and copy of a device takes, by what it fills of the multiprocessors."""
    ops, kernels = trace.get(DEVICE_OPS), kernel_facts(trace).on(device)
    mine = ((ops["rank"] == device[0]) & (ops["device"] == device[1])).to_numpy()
    rows = np.flatnonzero(mine).astype(np.int64)
    stays = kernels.filter(pl.col("optimizer") | pl.col("family").cast(pl.String).is_in(_OF_WEIGHTS))["row"].to_numpy()
    length = np.maximum((ops["end_ns"] - ops["start_ns"]).to_numpy()[rows], 1)
    short = np.minimum(machines.KERNEL_FLOOR_US.ns / length, 1.0)

    def grown(filled: Float64Array) -> Float64Array:
        fill = np.ones(ops.height)
        fill[: filled.size] = filled
        times = short + (1.0 - short) * np.maximum(factor * np.minimum(fill[rows], 1.0), 1.0)
        return np.where(np.isin(rows, stays), 1.0, times)

    whole, packed = map(grown, fills(trace))
    all_of_it = np.where(np.isin(rows, stays), 1.0, float(factor))
    return GrowKernels(factor, device, rows, (all_of_it, (whole + packed) / 2.0, packed))
