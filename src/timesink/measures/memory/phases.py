"""Forward, backward, optimizer: the phase of every allocator event, told by the stacks of the allocations around it.

The autograd engine and the optimizer leave their frames in every stack below them. An event that shows neither belongs
to the phase of the allocation before it. Annotations of the optimizer (`record_function` marks that snapshots carry)
are used where there are any: a fused optimizer allocates nothing, so its stacks never show.

What a call stack says of an allocation: one bit per fact, asked once per distinct stack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.memory.lifetimes import Lifetimes
from timesink.model.arrays import BoolArray, Int8Array, Int64Array
from timesink.model.names import matches
from timesink.model.tables import MEMORY_MARKS
from timesink.model.trace import Trace

# Frames read "file(line): function", separated by ";"; C++ frames without a file are the bare function.
PATTERNS = {
    "workspace": r"getNewWorkspace|getCurrentCUDABlasHandle|CUDABlasLtWorkspace|[cC]uda?[dD]nn\w*[wW]orkspace"
    r"|getChosenWorkspaceSize|getCUDABlasLtWorkspace|getCurrentCUDASolver",
    "optimizer": r"torch/optim/|: _init_group|/optimizers?/|(?:Fused|CPU)?Adam\w*\.py\(|deepspeed/runtime/zero/stage",
    "backward": r"autograd::Engine|PythonEngine|torch/autograd/__init__\.py\(\d+\): (?:backward|_make_grads|grad)"
    r"|: _engine_run_backward|torch/_tensor\.py\(\d+\): backward|autograd::generated::\w+Backward\d*::apply",
    "recompute": r"torch/utils/checkpoint\.py",
    "sharding": r"_fsdp_collectives\.py|_fsdp_param\.py|_fsdp_param_group\.py|fsdp/_flat_param\.py"
    r"|fsdp/_runtime_utils\.py|fsdp/flat_param\.py",
    "reducer": r"c10d::Reducer|: _ddp_init_helper|parallel/distributed\.py\(\d+\): __init__|ProcessGroupNCCL"
    r"|distributed/distributed_c10d\.py",
    "cast": r"autocast::cached_cast",
    "kv_cache": r"(?i)kv_?cache|past_?key_?value|cache_utils\.py|static_?cache|paged_?attention|block_manager"
    r"|cache_engine",
    "weights": r"torch/nn/modules/\w+\.py\(\d+\): (?:__init__|reset_parameters|_apply|convert)|torch/nn/parameter\.py"
    r"|: load_state_dict|: from_pretrained|torch/nn/init\.py|: _init_sharded_param|: init_weights|: _init_weights",
    "module": r"torch/nn/modules/module\.py\(\d+\): _call_impl",
    "data": r"torch/utils/data/",
    "python": r"\.py\(\d+\): ",
}


def facts(stacks: pl.Series) -> dict[str, BoolArray]:
    """For every row of `stacks`, whether each pattern occurs in it; `known`: whether there is a stack at all."""
    found = {name: matches(stacks, pattern).to_numpy().astype(bool) for name, pattern in PATTERNS.items()}
    return {**found, "known": stacks.is_not_null().to_numpy()}


def place(stack: str | None) -> str:
    """The innermost frame of a stack that is the user's own, or else its innermost Python or named frame."""
    frames = (stack or "").split(";")
    python = [frame for frame in frames if ".py(" in frame]
    own = [frame for frame in python if not any(mark in frame for mark in _LIBRARIES)]
    named = [frame for frame in frames if "at::" in frame or "autograd" in frame]
    return next(iter(own or python or named or frames), "")


_LIBRARIES = ("/torch/", "torch/", "site-packages/", "dist-packages/", "/contextlib.py(")


FORWARD, BACKWARD, OPTIMIZER, RELEASE = 0, 1, 2, 3
NAMES = ("forward", "backward", "optimizer", "gradient release")
_OPTIMIZER_RANGE, _RELEASE_RANGE = r"^Optimizer\.step#", r"^Optimizer\.zero_grad#"
_RELEASE_FRAME = r": zero_grad\b"


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
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
    """Phases of one device's events."""
    events = lives.events
    shown = facts(events["stack"])
    is_alloc = (events["action"] == "alloc").to_numpy() & (events["bytes"] > 0).to_numpy()
    # With Python stacks only, the engine's own threads have none: what has no stack among others that do is backward.
    by_silence = bool(shown["known"][is_alloc].any()) and not bool((shown["backward"] & ~shown["python"]).any())
    silent = ~shown["known"] if by_silence else np.zeros(events.height, bool)
    phase = np.full(events.height, -1, np.int8)
    phase[is_alloc & shown["known"]] = FORWARD
    phase[is_alloc & (shown["backward"] | silent)] = BACKWARD
    phase[is_alloc & shown["optimizer"]] = OPTIMIZER
    stepped = _ranges(trace, rank, _OPTIMIZER_RANGE)
    phase[_inside(events, stepped)] = OPTIMIZER
    frees = (events["bytes"] < 0).to_numpy()
    released = _inside(events, _ranges(trace, rank, _RELEASE_RANGE))
    released |= matches(events["stack"], _RELEASE_FRAME).to_numpy()
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
    """Events without a phase of their own take that of the event before; those at the start, forward."""
    at = np.where(phase >= 0, np.arange(phase.size), -1)
    at = np.maximum.accumulate(at) if at.size else at
    return np.where(at >= 0, phase[at], FORWARD).astype(np.int8)


def _run_ends(phase: Int8Array, cuts: Int64Array) -> Int64Array:
    """Where each event's run ends: at another phase, or at an optimizer step that allocated nothing."""
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
