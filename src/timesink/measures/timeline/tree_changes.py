"""Two trees of call paths as one: what each path took before and after."""

from __future__ import annotations

import numpy as np

from timesink.measures.timeline.call_trees import CallTree
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.record import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class TreeChange:
    """The paths of either tree: per node its name, its parent's number (-1 for a root, always smaller than its own),
    and the time in ns of it and all below it on each side. Names are untrusted text.

    On each side the roots sum to what that side's tree sums to; a node's time is at least the sum of its children's.
    """

    names: tuple[str, ...]
    parent: Int64Array
    before_ns: Float64Array
    after_ns: Float64Array

    def __len__(self) -> int:
        return len(self.names)


def tree_change(before: CallTree, after: CallTree, counts: tuple[int, int] = (1, 1)) -> TreeChange:
    """Both trees, each divided by its count, such as that of its steps; paths of equal names are one."""
    number: dict[tuple[int, str], int] = {}
    sides = []
    for tree in (before, after):
        node = np.full(len(tree) + 1, -1, np.int64)  # the last place is that of no parent
        for at, (name, parent) in enumerate(zip(tree.names, tree.parent.tolist(), strict=True)):
            node[at] = number.setdefault((int(node[parent]), name), len(number))
        sides.append(node[:-1])
    total = np.zeros((2, len(number)))
    for at, (tree, node, count) in enumerate(zip((before, after), sides, counts, strict=True)):
        np.add.at(total[at], node, tree.total_ns / max(count, 1))
    parents = np.array([parent for parent, _ in number], np.int64)
    return TreeChange(tuple(name for _, name in number), parents, *total)
