"""Which kernel stands where another stood: what no operator names is the same work where its place in the step is.

Recordings of Nsight Systems know no operators, and a change of type, library or GPU renames kernels. Their order stays:
first the launches that are the same on both sides are found, then, between two of these, those of the same kernel, then
those that do the same, whatever their type and tile::

    before   copy  gemm_bf16  add  gemm_bf16  loss
    after    copy  gemm_fp32  add  gemm_fp32  loss      gemm_bf16 is now gemm_fp32, by its place

Only pairs that every best order has count, so what was added, left out or moved takes no one's place.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

import numpy as np

from timesink.knowledge.kernel_names import work_of
from timesink.measures.steps.work import OrderedKernel
from timesink.model.alignment import aligned

_LIKE: Final[tuple[Callable[[OrderedKernel], Hashable], ...]] = (
    lambda one: (one.kernel, one.grid),
    lambda one: one.kernel,
    lambda one: work_of(one.kernel),
)
Order = Sequence[OrderedKernel]
Pair = tuple[OrderedKernel, OrderedKernel]


def in_place_of(before: Order, after: Order, like: int = 0) -> Iterator[Pair]:
    """Pairs of launches, one of each side, that stand at the same place of a step."""
    if not (before and after) or like == len(_LIKE):
        return
    number: dict[Hashable, int] = {}
    old, new = (
        np.array([number.setdefault(_LIKE[like](one), len(number)) for one in side], np.int64)
        for side in (before, after)
    )
    at = (0, 0)
    certain = [(int(place), row) for row, place in enumerate(aligned(new, old)) if place >= 0]
    for place, row in [*certain, (len(before), len(after))]:
        yield from in_place_of(before[at[0] : place], after[at[1] : row], like + 1)
        if place < len(before):
            yield before[place], after[row]
        at = place + 1, row + 1


def places(before: Order, after: Order) -> tuple[dict[OrderedKernel, int], dict[OrderedKernel, int]]:
    """Per side a number for each launch of which a kernel took another's place: those that share places share it.

    Those that are launched more or less often on one side have none: some of these launches stand nowhere on the other.
    """
    groups: list[tuple[set[OrderedKernel], set[OrderedKernel]]] = []
    for old, new in dict.fromkeys(in_place_of(before, after)):
        touched = [group for group in groups if old in group[0] or new in group[1]]
        joined = {old}.union(*(group[0] for group in touched)), {new}.union(*(group[1] for group in touched))
        groups = [*(group for group in groups if group not in touched), joined]
    counts = Counter(before), Counter(after)
    changed = [
        group
        for group in groups
        if {one.kernel for one in group[0]} != {one.kernel for one in group[1]}
        and sum(counts[0][one] for one in group[0]) == sum(counts[1][one] for one in group[1])
    ]
    sides = ({one: number for number, group in enumerate(changed) for one in group[side]} for side in (0, 1))
    return next(sides), next(sides)
