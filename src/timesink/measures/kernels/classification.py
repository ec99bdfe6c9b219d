"""Every operator of a recorded step beside its roofline: work, bound, attained time, by module and pass.

The module is that of PyTorch's stacks (`nn.Module: Linear_0`, with those around it, without their numbers, so that
equal layers are one), else the innermost range that a person named. A backward operator belongs to its forward
operator's.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.frames import MODULE_CALL, MODULE_NUMBER
from timesink.knowledge.gpus import GpuPeaks
from timesink.knowledge.ranges import NUMBERED_STEP, OPTIMIZER_STEP, OWN_RANGES
from timesink.measures.kernels.attainable import grouped_calls, operator_calls, with_bounds
from timesink.measures.kernels.facts import kernel_facts, within
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import push_pop_ranges, range_nesting
from timesink.measures.timeline.autograd import by_tool, forward_operators, inside_backward
from timesink.model.arrays import Int64Array, IntArray
from timesink.model.names import matches
from timesink.model.nesting import Nesting
from timesink.model.tables import FRAMES, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

FORWARD: Final = "forward"
_BY: Final = ("module", "pass")


class Classification(Record, eq=False):
    """Operators of one device's steady steps (of its whole span, where there are none).

    `operators`: one row per module, pass (forward, backward, optimizer), operator, shapes and arithmetic, longest
    first; columns as in `Attainable.operators`, with bound and work null where they are not known, all of them sums
    over `step_count` steps. `busy_ns` is the time of all kernels in those steps, `step_ns` that of the steps.
    """

    device: Device
    step_count: int
    step_ns: int
    busy_ns: int
    operators: pl.DataFrame

    @property
    def has_shapes(self) -> bool:
        """Whether any operator's shapes were recorded."""
        return self.operators["input_shapes"].null_count() < self.operators.height


def classification(trace: Trace, gpu: GpuPeaks | None = None) -> Classification | None:
    """The operators of the device with most kernel time; None without kernels. `gpu`: its peaks, where given."""
    facts = kernel_facts(trace)
    totals = {device: int(facts.on(device)["length"].sum()) for device in facts.devices}
    if not totals:
        return None
    device = max(totals, key=lambda one: (totals[one], (-one[0], -one[1])))
    start, end = step_windows(trace, device)
    kernels = _inside(facts.on(device), start, end)
    calls = operator_calls(trace, kernels)
    rows = calls["host_op"].to_numpy()
    calls = calls.with_columns(modules(trace)[rows], _passes(trace)[rows])
    operators = with_bounds(trace, grouped_calls(calls, _BY), gpu).sort(
        ["device_ns", "name", "input_shapes", "math", *_BY], descending=[True, False, False, False, False, False]
    )
    busy_ns = int(kernels["length"].sum())
    return Classification(device, len(start), int((end - start).sum()), busy_ns, operators)


def _inside(kernels: pl.DataFrame, start: Int64Array, end: Int64Array) -> pl.DataFrame:
    """The kernels that begin in one of these windows."""
    begun = kernels["start_ns"].to_numpy()
    window = np.searchsorted(start, begun, side="right") - 1
    return kernels.filter(pl.Series((window >= 0) & (begun < end[np.maximum(window, 0)])))


def _passes(trace: Trace) -> pl.Series:
    """The pass that each row of `host_ops` is part of."""
    found = np.where(inside_backward(trace), "backward", FORWARD)
    ranges, nesting = push_pop_ranges(trace), range_nesting(trace)
    if ranges.height:
        around = nesting.innermost_of(trace.get(HOST_OPS))
        inside = within(matches(ranges["name"], OPTIMIZER_STEP).to_numpy(), nesting)
        found = np.where((around >= 0) & inside[np.maximum(around, 0)], "optimizer", found)
    return pl.Series("pass", found, dtype=pl.String)


@remembered
def modules(trace: Trace) -> pl.Series:
    """For each row of `host_ops` the classes of modules around it, outermost first; else the named range; else null."""
    forward = forward_operators(trace)
    maker = np.where(forward >= 0, forward, np.arange(forward.size))
    ops, frames = trace.get(HOST_OPS), trace.get(FRAMES)
    frames = frames.filter(matches(frames["name"], MODULE_CALL))
    names, at = _paths(frames, ops) if frames.height else _ranges(trace, ops)
    return names[at[maker] % len(names)]


def _ranges(trace: Trace, ops: pl.DataFrame) -> tuple[pl.Series, IntArray]:
    """Names of ranges, null the last of them; and of each of these operators which is around it, the innermost that a
    person named and that is no step."""
    ranges, nesting = push_pop_ranges(trace), range_nesting(trace)
    is_step = (matches(ranges["name"], OWN_RANGES) | matches(ranges["name"], NUMBERED_STEP)).to_numpy()
    named = nesting.innermost_value(np.where(by_tool(trace) | is_step, -1, np.arange(ranges.height)))
    names = pl.Series("module", [*ranges["name"].cast(pl.String), None], dtype=pl.String)
    return names, np.append(named, -1)[nesting.innermost_of(ops)]


def _paths(frames: pl.DataFrame, ops: pl.DataFrame) -> tuple[pl.Series, IntArray]:
    """Paths of modules, and of each of these operators which is around it."""
    nesting = Nesting.of(frames)
    names = [MODULE_NUMBER.sub("", str(name).partition(": ")[2]) for name in frames["name"].cast(pl.String)]
    paths: dict[int, str] = {-1: ""}

    def path(row: int) -> str:
        if row not in paths:
            above = path(int(nesting.parent[row]))
            paths[row] = f"{above}/{names[row]}" if above else names[row]
        return paths[row]

    around, at = np.unique(nesting.innermost_of(ops), return_inverse=True)
    return pl.Series("module", [path(row) or None for row in around.tolist()], dtype=pl.String), at
