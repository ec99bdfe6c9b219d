"""Flame graphs of device, idle and host time by who called whom; and the figures of `timesink compare`: what changed by
call path, the step of each side by what it is made of, and a usual step of each, one below the other.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.verdicts import StepBudget
from timesink.knowledge.kernel_names import short_names
from timesink.measures.kernels.classification import modules
from timesink.measures.steps import steps
from timesink.measures.steps.parts import pacing_windows
from timesink.measures.steps.per_step import period_name
from timesink.measures.timeline import Device, of_device
from timesink.measures.timeline.call_trees import (
    CallTree,
    TreeChange,
    device_tree,
    host_step_count,
    host_tree,
    idle_tree,
    module_tree,
    step_count,
    step_device_tree,
    step_host_tree,
    step_idle_tree,
    tree_change,
)
from timesink.model.arrays import Int64Array
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record, replace
from timesink.units import time_text
from timesink.views.figures import Flame, FlameChange, Lane, Timeline
from timesink.views.timeline import family, timeline_of
from timesink.views.timeline.runs import chosen

LEAST_SHARE: Final = 1 / 2000  # half a pixel of a wide screen
SHOWN_PATHS: Final = 15  # a screenful
_TREES: Final = (
    ("device", "GPU time by what launched it", device_tree),
    ("idle", "Idle time by cause and by who kept the GPU waiting", idle_tree),
    ("host", "CPU time by thread", host_tree),
)


def flames_of(trace: Trace) -> tuple[Flame, ...]:
    """The flame graphs of what took any time."""
    found = (_flame(trace, key, title, measure(trace)) for key, title, measure in _TREES)
    return tuple(flame for flame in found if flame is not None)


def areas_of(trace: Trace) -> Flame | None:
    """GPU time by module, operator and kernel; None where nothing ran on a device."""
    named = trace.get(HOST_OPS).height > modules(trace).null_count()
    title = f"GPU time by {'module, ' if named else ''}operator and kernel"
    return _flame(trace, "areas", title, module_tree(trace))


def _flame(trace: Trace, key: str, title: str, tree: CallTree) -> Flame | None:
    if not len(tree):
        return None
    shown = seen(tree)
    kinds = _kinds(trace)
    return Flame(
        key, title, shown, tuple(_costliest(tree)), {name: kinds[name] for name in shown.names if name in kinds}
    )


@remembered
def _kinds(trace: Trace) -> Mapping[str, str]:
    """The colour of kernels and copies by their short names, as the timeline has it."""
    rows = trace.get(DEVICE_OPS).select(pl.col("name", "kind").cast(pl.String)).unique(maintain_order=True).rows()
    short = short_names(name for name, _ in rows)
    return {short[name]: family(name) if kind == "kernel" else "copy" for name, kind in rows}


def seen(tree: CallTree) -> CallTree:
    """The paths that take a share of the whole that can be seen."""
    whole = tree.total_ns[tree.parent < 0].sum()
    kept = np.flatnonzero(tree.total_ns >= whole * LEAST_SHARE)
    number = np.full(len(tree) + 1, -1, np.int64)
    number[kept] = np.arange(kept.size)
    return CallTree(tuple(tree.names[at] for at in kept), number[tree.parent[kept]], tree.total_ns[kept])


def own_ns(tree: CallTree) -> Int64Array:
    """The time of each node less that of its children."""
    own = tree.total_ns.copy()
    inside = tree.parent >= 0
    np.subtract.at(own, tree.parent[inside], tree.total_ns[inside])
    return own


def _costliest(tree: CallTree) -> Iterator[tuple[str, int, float]]:
    own, whole = own_ns(tree), int(tree.total_ns[tree.parent < 0].sum())
    for at in np.argsort(-own, kind="stable")[:SHOWN_PATHS].tolist():
        if own[at] > 0:
            yield " › ".join(path(tree, at)), int(own[at]), float(own[at] / whole)


def path(tree: CallTree | TreeChange, node: int) -> list[str]:
    """The names from the outside in."""
    names = []
    while node >= 0:
        names.append(tree.names[node])
        node = int(tree.parent[node])
    return names[::-1]


_TREES_OF_STEPS: Final = (
    ("device", "GPU time by what launched it", "GPU", step_device_tree, step_count),
    ("idle", "Idle time by cause and by who kept the GPU waiting", "GPU", step_idle_tree, step_count),
    ("host", "CPU time of all threads by who called whom", "rank", step_host_tree, host_step_count),
)


class ShownStep(Record, eq=False):
    """A step of a capture: its title, and everything that ran in it on one rank."""

    title: str
    timeline: Timeline


class Compared(Record, eq=False):
    """The figures of two captures. `budgets` are of the GPU that paces most steps of each; `steps` are as long as one
    another, and empty where a side has no steps."""

    budgets: tuple[StepBudget, ...]
    changes: tuple[FlameChange, ...]
    steps: tuple[ShownStep, ...]


def compared(before: Trace, after: Trace) -> Compared:
    """The figures of two captures."""
    sides = []
    for trace in (before, after):
        paced = Counter(pacing_windows(trace).select("rank", "device").iter_rows())  # the GPU that paces most steps
        if paced:
            sides.append((trace, max(paced, key=lambda device: (paced[device], device))))
    if len(sides) < len((before, after)):
        return Compared((), (), ())
    budgets = [one for trace, device in sides for one in step_budgets(trace) if (one.rank, one.device) == device]
    shown = [step for trace, device in sides if (step := _usual_step(trace, device)) is not None]
    return Compared(tuple(budgets), tuple(_changes(before, after)), _as_long(shown) if len(shown) == len(sides) else ())


def _changes(before: Trace, after: Trace) -> Iterator[FlameChange]:
    stepwise = period_name(before) == period_name(after) == "step"
    for key, title, whose, measure, count in _TREES_OF_STEPS:
        per = f"per step of a {whose}" if stepwise else "of the recorded window"
        both = tree_change(measure(before), measure(after), (count(before), count(after)))
        roots = both.parent < 0
        if roots.any():
            old, new = (float(side[roots].sum()) for side in (both.before_ns, both.after_ns))
            words = f"{title}, {per}: {time_text(old)} before, {time_text(new)} after"
            yield FlameChange(key, words, _seen(both), tuple(_largest(both)))


def _seen(tree: TreeChange) -> TreeChange:
    """The paths that take a share of either whole that can be seen."""
    larger, roots = np.maximum(tree.before_ns, tree.after_ns), tree.parent < 0
    kept = np.flatnonzero(larger >= larger[roots].sum() * LEAST_SHARE)
    number = np.full(len(tree) + 1, -1, np.int64)
    number[kept] = np.arange(kept.size)
    names = tuple(tree.names[at] for at in kept)
    return TreeChange(names, number[tree.parent[kept]], tree.before_ns[kept], tree.after_ns[kept])


def _largest(tree: TreeChange) -> Iterator[tuple[str, float, float, float]]:
    """What changed most by itself, without those below it."""
    own = np.stack((tree.before_ns, tree.after_ns))
    inside = tree.parent >= 0
    for side, total in zip(own, (tree.before_ns, tree.after_ns), strict=True):
        np.subtract.at(side, tree.parent[inside], total[inside])
    change = own[1] - own[0]
    for at in np.argsort(-np.abs(change), kind="stable")[:SHOWN_PATHS].tolist():
        yield " › ".join(path(tree, at)), float(own[0, at]), float(own[1, at]), float(change[at])


def _usual_step(trace: Trace, device: Device) -> ShownStep | None:
    """The step nearest to the median of the device; None where there are none."""
    rank, gpu = device
    rows = steps(trace).windows.filter(of_device((rank, gpu)))
    timeline = timeline_of(trace) if rows.height else None
    if timeline is None:
        return None
    apart = (rows["period_ns"] - rows["period_ns"].median()).abs()
    step, start, end = rows[int(apart.arg_min() or 0)].select("step", "start_ns", "end_ns").row(0)
    lanes = [number for number, lane in enumerate(timeline.lanes) if lane.rank == rank and lane.device in (None, gpu)]
    place = np.full(len(timeline.lanes) + 1, -1, np.int64)
    place[lanes] = np.arange(len(lanes))
    cut = tuple(_cut(timeline.lanes[number], start, end, place) for number in lanes)
    frame = steps(trace).frame
    label = frame.filter(pl.col("step") == step)["label"][0] if frame["label"].n_unique() > 1 else f"step {step}"
    title = f"{label} on GPU {gpu} of rank {rank}, {time_text(end - start)}"
    return ShownStep(title, replace(timeline, start_ns=start, end_ns=end, lanes=cut, notes=(), marks={}))


def _cut(lane: Lane, start: int, end: int, place: Int64Array) -> Lane:
    """What of a lane reaches into a stretch, and the new places of what caused it."""
    rows = [chosen(runs, np.flatnonzero((runs.end_ns > start) & (runs.start_ns < end))) for runs in lane.rows]
    kept = [runs for runs in rows if runs.start_ns.size] or rows[:1]
    return replace(lane, rows=tuple(replace(runs, from_lane=place[runs.from_lane]) for runs in kept))


def _as_long(shown: list[ShownStep]) -> tuple[ShownStep, ...]:
    """With blank behind the shorter one, so that a pixel is as long in both."""
    longest = max(step.timeline.end_ns - step.timeline.start_ns for step in shown)
    return tuple(
        replace(step, timeline=replace(step.timeline, end_ns=step.timeline.start_ns + longest)) for step in shown
    )
