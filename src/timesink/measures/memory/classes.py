"""What each block of memory is for: by the stack of its allocation, by when it lived, and last by its size.

The order of the rules is the order of evidence: a frame that names its purpose, then the phases a block was born and
died in, then sizes that match those of gradients. What none of them decides is *unclassified*; its share is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from timesink.measures.memory.lifetimes import BEFORE, Lifetimes, lifetimes
from timesink.measures.memory.phases import BACKWARD, FORWARD, OPTIMIZER, Phases, facts, phases_of
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import BoolArray, Int8Array, Int64Array
from timesink.model.trace import Trace, remembered


class Category(StrEnum):
    """What memory holds, in the order of the ledger."""

    WEIGHTS = "weights"
    CAST_WEIGHTS = "low-precision weight copies"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    COMMUNICATION = "communication"
    KV_CACHE = "kv cache"
    INPUTS = "inputs"
    WORKSPACES = "library workspaces"
    UNCLASSIFIED = "unclassified"


CODES = {category: code for code, category in enumerate(Category)}


_CACHES_ALIKE = 4

# What torch.profiler's own categories are here; its autograd details are tensors that backward needs and frees.
_OF_PROFILER = {
    Category.WEIGHTS: ["parameter"],
    Category.OPTIMIZER_STATE: ["optimizer_state"],
    Category.INPUTS: ["input"],
    Category.TEMPORARIES: ["temporary", "autograd_detail"],
    Category.ACTIVATIONS: ["activation"],
    Category.GRADIENTS: ["gradient"],
}


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """`code`: per lifetime, the position of its category in `Category`; `by_size`: decided by size alone."""

    lives: Lifetimes
    phases: Phases
    code: Int8Array
    by_size: BoolArray

    def of(self, category: Category) -> BoolArray:
        """Which lifetimes are of that category."""
        return np.asarray(self.code == CODES[category])


@remembered
def memory_classes(trace: Trace) -> Mapping[Device, Classes]:
    """The category of every lifetime, per (rank, device)."""
    return {key: _of_device(trace, key[0], lives) for key, lives in lifetimes(trace).items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Lives:
    """Facts about lifetimes, as columns: the phase they were born and died in, and whether they outlive their run."""

    born: Int64Array
    died: Int64Array
    size: Int64Array
    birth: Int8Array
    death: Int8Array
    outlives_run: BoolArray
    persists: BoolArray
    shown: dict[str, BoolArray]


def _facts(lives: Lifetimes, phases: Phases) -> _Lives:
    born, died = lives.frame["born"].to_numpy(), lives.frame["died"].to_numpy()
    count = lives.count
    birth, death = np.full(born.size, -1, np.int8), np.full(born.size, -1, np.int8)
    run_end = np.zeros(born.size, np.int64)
    inside, ends = born >= 0, died < count
    birth[inside], death[ends] = phases.of_event[born[inside]], phases.of_event[died[ends]]
    run_end[inside] = phases.run_end[born[inside]]
    # A block alive over a whole step lasts: it is no tensor of one step.
    step = np.searchsorted(phases.starts, born, "right")
    following = np.append(phases.starts, [count, count])[np.minimum(step + 1, phases.starts.size + 1)]
    shown = facts(lives.frame["stack"])
    lasts = (died >= count) | ((died > following) if phases.starts.size else (2 * (died - born) > count))
    return _Lives(born, died, lives.frame["bytes"].to_numpy(), birth, death, died >= run_end, lasts, shown)


def _of_device(trace: Trace, rank: int, lives: Lifetimes) -> Classes:
    phases = phases_of(trace, rank, lives)
    life = _facts(lives, phases)
    code = np.full(life.born.size, CODES[Category.UNCLASSIFIED], np.int8)
    open_ = np.ones(code.size, bool)

    def settle(category: Category, which: BoolArray) -> None:
        chosen = which & open_
        code[chosen] = CODES[category]
        open_[chosen] = False

    given = lives.frame["category"]
    for category, names in _OF_PROFILER.items():
        settle(category, given.cast(pl.String).is_in(names).fill_null(False).to_numpy())
    for category, which in _by_stack(life):
        settle(category, which)
    for category, which in _by_phase(life, phases):
        settle(category, which)
    by_size = open_.copy()
    for category, which in _by_size(life, code, open_):
        settle(category, which)
    code[_cast_weights(life, code)] = CODES[Category.CAST_WEIGHTS]
    return Classes(lives, phases, code, by_size & ~open_)


def _by_stack(life: _Lives) -> list[tuple[Category, BoolArray]]:
    """Frames that name their purpose."""
    shown, lasts = life.shown, life.persists
    in_backward = life.birth == BACKWARD
    from_optimizer = (life.birth == OPTIMIZER) | shown["optimizer"]
    return [
        (Category.WORKSPACES, shown["workspace"]),
        (Category.KV_CACHE, shown["kv_cache"]),
        (Category.OPTIMIZER_STATE, from_optimizer & lasts),
        (Category.TEMPORARIES, from_optimizer),
        (Category.COMMUNICATION, shown["reducer"] & ~in_backward),
        (Category.WEIGHTS, shown["weights"] & lasts & ~in_backward),
        (Category.TEMPORARIES, shown["weights"] & ~in_backward),
        (Category.GRADIENTS, shown["sharding"] & in_backward & life.outlives_run),
        (Category.COMMUNICATION, shown["sharding"] | shown["reducer"]),
    ]


def _by_phase(life: _Lives, phases: Phases) -> list[tuple[Category, BoolArray]]:
    """When they were born, and when they died."""
    shown = life.shown
    forward = (life.birth == FORWARD) & shown["known"]
    inside = forward & ~life.outlives_run
    trained = phases.has_backward
    outside = forward & ~shown["module"] & bool(shown["module"].any())
    return [
        (Category.ACTIVATIONS, (life.birth == BACKWARD) & shown["recompute"]),
        (Category.GRADIENTS, (life.birth == BACKWARD) & life.outlives_run),
        (Category.TEMPORARIES, life.birth == BACKWARD),
        (Category.INPUTS, shown["data"] | (outside & life.outlives_run))
        if trained
        else (Category.INPUTS, shown["data"]),
        (Category.ACTIVATIONS, forward & life.outlives_run & ~life.persists & trained),
        (Category.TEMPORARIES, (inside & ~life.persists) | (forward & ~life.persists)),
        (
            Category.ACTIVATIONS,
            (life.birth == -1) & np.isin(life.death, (BACKWARD, FORWARD)) & ~life.persists & trained,
        ),
    ]


def _cast_weights(life: _Lives, code: Int8Array) -> BoolArray:
    """Copies autocast made that are half as large as a weight; casts of activations have other sizes."""
    of_weight = np.isin(code, [CODES[Category.WEIGHTS], CODES[Category.GRADIENTS]])
    is_cast = life.shown["cast"] & np.isin(code, [CODES[Category.ACTIVATIONS], CODES[Category.TEMPORARIES]])
    return np.asarray(is_cast & np.isin(2 * life.size, np.unique(life.size[of_weight])))


def _by_size(life: _Lives, code: Int8Array, left: BoolArray) -> list[tuple[Category, BoolArray]]:
    """Older than the record and without a stack: of each size as many weights as there are gradients, then states."""
    is_gradient = code == CODES[Category.GRADIENTS]
    sizes, at_once = _most_at_once(life, is_gradient)
    expected = dict(zip(sizes.tolist(), at_once.tolist(), strict=True))
    old = left & (life.born == BEFORE)
    weights, states, gradients = np.zeros(old.size, bool), np.zeros(old.size, bool), np.zeros(old.size, bool)
    order = np.flatnonzero(old)
    seen: dict[int, int] = {}
    for at in order:
        size = int(life.size[at])
        if size not in expected:
            continue
        if not life.persists[at]:
            gradients[at] = True
            continue
        number = seen[size] = seen.get(size, 0) + 1
        weights[at], states[at] = number <= expected[size], expected[size] < number <= 3 * expected[size]
    found = [(Category.GRADIENTS, gradients), (Category.WEIGHTS, weights), (Category.OPTIMIZER_STATE, states)]
    return [*found, (Category.KV_CACHE, _alike(life, left) & ~is_gradient.any())]


def _alike(life: _Lives, left: BoolArray) -> BoolArray:
    """Without training: long-lived blocks made outside of any module, four or more of one size, as caches are."""
    outside = left & life.persists & life.shown["known"] & ~life.shown["module"] & ~life.shown["data"]
    sizes, counts = np.unique(life.size[outside], return_counts=True)
    return np.asarray(outside & np.isin(life.size, sizes[counts >= _CACHES_ALIKE]))


def _most_at_once(life: _Lives, chosen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """For each size among the chosen, the most of them alive at one event."""
    sizes = np.unique(life.size[chosen])
    most = []
    for size in sizes:
        mine = chosen & (life.size == size)
        edges = np.concatenate([life.born[mine], life.died[mine]])
        change = np.concatenate([np.ones(mine.sum(), np.int64), -np.ones(mine.sum(), np.int64)])
        order = np.lexsort((change, edges))
        most.append(int(np.cumsum(change[order]).max()))
    return sizes, np.array(most, np.int64)
