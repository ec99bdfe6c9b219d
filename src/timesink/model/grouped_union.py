"""Total length of unions of intervals, one union per group, all groups in one pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]


def union_ns(group: Array, start_ns: Array, end_ns: Array, group_count: int) -> Array:
    """For each group 0 .. group_count - 1, how many nanoseconds its intervals cover together.

    The running maximum of ends restarts at each group because every group is shifted past the reach of the one before.
    """
    if not group.size:
        return np.zeros(group_count, np.int64)
    order = np.lexsort((start_ns, group))
    group, start, end = group[order], start_ns[order] - start_ns.min(), end_ns[order] - start_ns.min()
    stride = int(end.max()) + 1
    if group_count > 1 and stride * group_count >= np.iinfo(np.int64).max:
        return _one_by_one(group, start, end, group_count)
    shift = group * stride
    reach = np.maximum.accumulate(end + shift)
    before = np.concatenate(([-1], reach[:-1]))
    added = np.maximum(end + shift - np.maximum(start + shift, before), 0)
    covered = np.zeros(group_count, np.int64)
    np.add.at(covered, group, added)
    return covered


def _one_by_one(group: Array, start: Array, end: Array, group_count: int) -> Array:
    """The same where shifted times would leave int64: halves of the groups, which shift half as far."""
    half = group_count // 2
    low = group < half
    return np.concatenate(
        (
            union_ns(group[low], start[low], end[low], half),
            union_ns(group[~low] - half, start[~low], end[~low], group_count - half),
        )
    )
