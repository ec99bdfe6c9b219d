"""The device waits for the compiler within steady steps.

## What it detects
Idle time of a device while the launching thread compiles: TorchDynamo and Inductor ranges, Triton compilation,
autotuning.

## Why it matters
Compilation belongs to the first steps. In a steady step it means that a guard fails again and again: a shape, an
integer or a flag that changes, and each time seconds of compilation for one step.

## How it is measured
Idle stretches inside a range or operator that names the compiler, over the steady steps. Where nobody recorded such
ranges, as under Nsight Systems, a compiler is seen by what it ends with: between two launches of a thread that loads
compiled kernels (`cuModuleLoadData`) in between, the device waits for it. A compiler also runs what it made, to choose
among variants: such trials go with it at best, since no trace says which launches they are.

## What to do
`TORCH_LOGS=recompiles` names the guard. Mark the dimension dynamic (`mark_dynamic`), pad to a few sizes, or pass the
changing number as a tensor.

## When it misleads
A capture that begins before the program is warm shows ordinary first compilations; steps are then left out as warm-up
where they stand out, and counted where they do not. Where only the loading of kernels is recorded, other work of the
host since the launch before it counts as the compiler's.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.fixes import table as fixes
from timesink.knowledge.ranges import COMPILE_WORK
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.steps.steps import steps
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.rules.idle._family import IdlePattern, pattern_rule
from timesink.whatif.change import Target
from timesink.whatif.changes.host import DropCompiler


def drop_compiler(trace: Trace, blamed: BlamedTime) -> DropCompiler:
    """Nothing is compiled any more; trials are made within the compiler's ranges, or else until the step is over."""
    rank, waits = blamed.device[0], Intervals.union_all(blamed.host.values())
    tables = (trace.get(table).filter(pl.col("rank") == rank) for table in (RANGES, HOST_OPS))
    named = [Intervals.of(part.filter(matches(part["name"], COMPILE_WORK)).sort("start_ns")) for part in tables]
    trials = Intervals.union_all(named)
    if not len(trials):
        kept = steps(trace).kept.filter(pl.col("rank") == rank)
        begin, end = kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy()
        trials = _from_first(waits, Intervals.union_of(begin, end))
    windows = dict.fromkeys(blamed.host, trials)
    return DropCompiler(Target("windows", windows=blamed.host), Target("windows", windows=windows))


def _from_first(parts: Intervals, windows: Intervals) -> Intervals:
    """Of each window the time from where the first of the parts in it begins: [3, 4) and [6, 7) in [0, 10) give
    [3, 10)."""
    place = np.searchsorted(parts.start_ns, windows.start_ns)
    first = np.append(parts.start_ns, np.iinfo(np.int64).max)[place]
    inside = first < windows.end_ns
    return Intervals.union_of(first[inside], windows.end_ns[inside])


PATTERN = IdlePattern(
    time=lambda trace: blamed_time(trace, ("compile",)),
    bottleneck=Bottleneck.RECOMPILATION,
    label="idle time in compilation",
    how="idle stretches inside a range that names the compiler, or between two launches around the loading of compiled "
    "kernels, over the steady steps",
    subject="the compiler",
    advice="Run with TORCH_LOGS=recompiles: it names the guard that fails; mark the dimension dynamic, pad to few "
    "sizes, or pass the number as a tensor.",
    verify="Capture again after the change: no compile range lies in the steady steps.",
    change=drop_compiler,
    fix=fixes.NO_RECOMPILATION,
)

RULE = pattern_rule(
    "IDL107",
    __name__,
    PATTERN,
    Limit.ratio(
        0.02,
        "a steady step of a compiled program compiles nothing",
        "benchmarks/faults: healthy compiled programs compile nothing after warm-up",
    ),
    "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
)
