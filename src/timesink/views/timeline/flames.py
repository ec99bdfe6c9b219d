"""Flame graphs: device time, idle time and host time by who called whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernel_names import short_names
from timesink.measures.kernels.classification import modules
from timesink.measures.timeline.call_trees import CallTree, device_tree, host_tree, idle_tree, module_tree
from timesink.measures.timeline.tree_changes import TreeChange
from timesink.model.arrays import Int64Array
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.views.figures import Flame
from timesink.views.timeline.lanes import family

LEAST_SHARE: Final = 1 / 2000  # half a pixel of a wide screen
SHOWN_PATHS: Final = 15  # a screenful
_TREES: Final = (
    ("device", "GPU time by what launched it", device_tree),
    ("idle", "Idle time by cause and by who kept the GPU waiting", idle_tree),
    ("host", "Host time by thread", host_tree),
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
