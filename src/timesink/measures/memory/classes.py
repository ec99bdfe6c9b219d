"""What each block of memory is for: by the stack of its allocation, by when it lived, and last by its size.

The order of the rules is the order of evidence: a frame that names its purpose, then the phases a block was born and
died in, then sizes that match those of gradients. What none of them decides is *unclassified*; its share is shown.

Every allocator event has a *phase*: forward, backward or optimizer. The autograd engine and the optimizer leave their
frames in every stack below them; an event whose stack shows neither belongs to the phase of the allocation before it.
Annotations of the optimizer (`record_function` marks that snapshots carry) are used where there are any: a fused
optimizer allocates nothing, so its stacks never show.
"""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import polars as pl

from timesink.knowledge import frames as known_frames
from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.ranges import TORCH_OPTIMIZER_STEP, TORCH_ZERO_GRAD
from timesink.measures.memory.allocator import BEFORE, Lifetimes, lifetimes
from timesink.measures.timeline import Device
from timesink.model.arrays import BoolArray, Int8Array, Int64Array
from timesink.model.names import matches
from timesink.model.tables import MEMORY_MARKS
from timesink.model.trace import Trace, remembered
from timesink.records import Record


def stack_facts(stacks: pl.Series) -> dict[str, BoolArray]:
    """For every row of `stacks`, whether each pattern occurs in it; `known`: whether there is a stack at all."""
    shown = {name: matches(stacks, pattern).to_numpy().astype(bool) for name, pattern in known_frames.STACKS.items()}
    return {**shown, "known": stacks.is_not_null().to_numpy()}


def user_frame(stack: str | None) -> str:
    """The innermost frame of a stack that is the user's own, or else its innermost Python or named frame."""
    frames = (stack or "").split(";")
    python = [frame for frame in frames if ".py(" in frame]
    own = [frame for frame in python if not any(mark in frame for mark in known_frames.LIBRARIES)]
    named = [frame for frame in frames if "at::" in frame or "autograd" in frame]
    return next(iter(own or python or named or frames), "")


FORWARD, BACKWARD, OPTIMIZER, RELEASE = 0, 1, 2, 3  # places in PHASE_NAMES
PHASE_NAMES = ("forward", "backward", "optimizer", "gradient release")


class Phases(Record, eq=False):
    """`of_event`: phase of each event. `run_end`: per event, the position where its run of one phase ends.

    `starts`: positions where a step begins: the first forward event of the record, and of each stretch after an
    optimizer step. Where no optimizer shows, every backward pass ends a step.
    """

    of_event: Int8Array
    run_end: Int64Array
    starts: Int64Array

    @property
    def has_backward(self) -> bool:
        """Whether anything was trained in the record."""
        return bool((self.of_event == BACKWARD).any())


def phases_of(trace: Trace, rank: int, lives: Lifetimes) -> Phases:
    """The phases of one device's events, by stacks, annotations and what comes before."""
    events = lives.events
    shown = stack_facts(events["stack"])
    is_alloc = (events["action"] == "alloc").to_numpy() & (events["bytes"] > 0).to_numpy()
    # With Python stacks only, the engine's own threads have none: what has no stack among others that do is backward.
    by_silence = bool(shown["known"][is_alloc].any()) and not bool((shown["backward"] & ~shown["python"]).any())
    silent = ~shown["known"] if by_silence else np.zeros(events.height, bool)
    phase = np.full(events.height, -1, np.int8)
    phase[is_alloc & shown["known"]] = FORWARD
    phase[is_alloc & (shown["backward"] | silent)] = BACKWARD
    phase[is_alloc & shown["optimizer"]] = OPTIMIZER
    stepped = _ranges(trace, rank, TORCH_OPTIMIZER_STEP)
    phase[_inside(events, stepped)] = OPTIMIZER
    frees = (events["bytes"] < 0).to_numpy()
    released = _inside(events, _ranges(trace, rank, TORCH_ZERO_GRAD))
    released |= matches(events["stack"], known_frames.ZERO_GRAD).to_numpy()
    phase[frees & released] = RELEASE
    filled = _filled(phase)
    cuts = np.searchsorted(events["time_ns"].to_numpy(), stepped["start_ns"].to_numpy(), "left")
    return Phases(filled, _run_ends(filled, cuts), _starts(filled, _steps_done(filled, events, stepped)))


def _ranges(trace: Trace, rank: int, pattern: str) -> pl.DataFrame:
    marks = trace.get(MEMORY_MARKS).filter(pl.col("rank") == rank)
    return marks.filter(matches(marks["name"], pattern)).select("start_ns", "end_ns").sort("start_ns", "end_ns")


def _inside(events: pl.DataFrame, marks: pl.DataFrame) -> BoolArray:
    time = events["time_ns"].to_numpy()
    inside = np.zeros(time.size, bool)
    for start, end in marks.iter_rows():
        inside[np.searchsorted(time, start, "left") : np.searchsorted(time, end, "right")] = True
    return inside


def _steps_done(phase: Int8Array, events: pl.DataFrame, stepped: pl.DataFrame) -> Int64Array:
    """How many optimizer steps lie before each event: by annotation, else by stack, else one per backward pass."""
    if stepped.height:
        return np.searchsorted(stepped["end_ns"].to_numpy(), events["time_ns"].to_numpy(), "left")
    last = OPTIMIZER if (phase == OPTIMIZER).any() else BACKWARD
    runs = np.diff((phase == last).astype(np.int8), prepend=0) > 0
    return np.cumsum(runs)


def _filled(phase: Int8Array) -> Int8Array:
    """Events without a phase of their own (-1) take that of the event before; those at the start, forward (0).

    phase   -1  1 -1  2
    result   0  1  1  2
    """
    at = np.where(phase >= 0, np.arange(phase.size), -1)
    at = np.maximum.accumulate(at) if at.size else at
    return np.where(at >= 0, phase[at], FORWARD).astype(np.int8)


def _run_ends(phase: Int8Array, cuts: Int64Array) -> Int64Array:
    """The position where each event's run ends: at another phase, or at an optimizer step that allocated nothing.

    phase    0  0  1  1  1  0      with a cut at 4
    result   2  2  4  4  5  6
    """
    if not phase.size:
        return np.empty(0, np.int64)
    edges = np.unique(np.concatenate([np.flatnonzero(np.diff(phase)) + 1, cuts[cuts > 0], [phase.size]]))
    return np.asarray(edges[np.searchsorted(edges, np.arange(phase.size), side="right")])


def _starts(phase: Int8Array, done: Int64Array) -> Int64Array:
    """The first forward event after each optimizer step, and that of the record."""
    forward = np.flatnonzero(phase == FORWARD)
    if not (phase == BACKWARD).any() or not forward.size:
        return np.empty(0, np.int64)
    is_first = np.append(True, np.diff(done[forward]) > 0)
    return np.asarray(forward[is_first], np.int64)


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


# What torch.profiler's own categories are here; its autograd details are tensors that backward needs and frees.
_OF_PROFILER = {
    Category.WEIGHTS: ["parameter"],
    Category.OPTIMIZER_STATE: ["optimizer_state"],
    Category.INPUTS: ["input"],
    Category.TEMPORARIES: ["temporary", "autograd_detail"],
    Category.ACTIVATIONS: ["activation"],
    Category.GRADIENTS: ["gradient"],
}


class Classes(Record, eq=False):
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


class _Lives(Record, eq=False):
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
    shown = stack_facts(lives.frame["stack"])
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
    trained = phases.has_backward
    outside = forward & ~shown["module"] & bool(shown["module"].any())
    older = (life.birth == -1) & np.isin(life.death, (BACKWARD, FORWARD))
    return [
        (Category.ACTIVATIONS, (life.birth == BACKWARD) & shown["recompute"]),
        (Category.GRADIENTS, (life.birth == BACKWARD) & life.outlives_run),
        (Category.TEMPORARIES, life.birth == BACKWARD),
        (Category.INPUTS, shown["data"] | (outside & life.outlives_run & trained)),
        (Category.ACTIVATIONS, forward & life.outlives_run & ~life.persists & trained),
        (Category.TEMPORARIES, forward & ~life.persists),
        (Category.ACTIVATIONS, older & ~life.persists & trained),
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
    seen: dict[int, int] = {}
    for at in np.flatnonzero(old):
        size = int(life.size[at])
        if size not in expected:
            continue
        if not life.persists[at]:
            gradients[at] = True
            continue
        number = seen[size] = seen.get(size, 0) + 1
        # Two moments, and a copy in full precision.
        weights[at], states[at] = number <= expected[size], expected[size] < number <= 3 * expected[size]
    found = [(Category.GRADIENTS, gradients), (Category.WEIGHTS, weights), (Category.OPTIMIZER_STATE, states)]
    return [*found, (Category.KV_CACHE, _alike(life, left) & ~is_gradient.any())]


def _alike(life: _Lives, left: BoolArray) -> BoolArray:
    """Without training: long-lived blocks made outside of any module, four or more of one size, as caches are."""
    outside = left & life.persists & life.shown["known"] & ~life.shown["module"] & ~life.shown["data"]
    sizes, counts = np.unique(life.size[outside], return_counts=True)
    return np.asarray(outside & np.isin(life.size, sizes[counts >= assumed.CACHES_ALIKE.whole]))


def _most_at_once(life: _Lives, chosen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """For each size among the chosen lifetimes, ascending, the most of them alive at one event.

    Births (+1) and deaths (-1) in order of position are summed up; at one position deaths come first.
    """
    sizes = np.unique(life.size[chosen])
    most = []
    for size in sizes:
        of_size = chosen & (life.size == size)
        edges = np.concatenate([life.born[of_size], life.died[of_size]])
        change = np.concatenate([np.ones(of_size.sum(), np.int64), -np.ones(of_size.sum(), np.int64)])
        order = np.lexsort((change, edges))
        most.append(int(np.cumsum(change[order]).max()))
    return sizes, np.array(most, np.int64)
