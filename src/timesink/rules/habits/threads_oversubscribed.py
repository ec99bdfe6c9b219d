"""The program runs more threads than it has processors, and the device waits for the host.

## What it detects
A capture whose manifest says that each process runs its operators on more threads than there are processors for it
(`torch.get_num_threads()` times the ranks of the machine, over the processors that the process may use), and a device
that waits for host work of 0.1 ms and more at a time.

## Why it matters
Threads of one operator wait for each other at its end. With two for each processor one of them always sleeps, and the
operator takes as long as the sleeping one; containers that see all processors of a machine but may use a few get this
by default.

## How it is measured
Threads and processors by the manifest of `timesink capture`, which asks the running program; a trace does not show
them. Idle stretches of 0.1 ms and more for which the host is to blame are expected to take less time by half the share
of threads that are too many: not all of it runs on several threads.

## What to do
Set `OMP_NUM_THREADS` (and `MKL_NUM_THREADS`) to the processors of the process over its ranks, or call
`torch.set_num_threads`; count the DataLoader's workers in: `torch.set_num_threads(1)` in each is right.

## When it misleads
Host work that runs on one thread does not get faster. A manifest says what was set as recording began; a program may
change it later.
"""

from __future__ import annotations

import polars as pl

from timesink.diagnosis.rule import Limit, Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Undecided, Verdict
from timesink.fixes import table as fixes
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.model.trace import Trace
from timesink.rules.idle._family import idle_rule, idle_verdict, place_of, waits
from timesink.units import NS_PER_MS
from timesink.whatif.change import Target

_LONG_NS = 0.1 * NS_PER_MS  # operators that run on several threads take longer: others are dispatch
_HOW = "idle stretches of 0.1 ms and more blamed on the host, over the steady steps"


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit, where there are more threads than processors."""
    counts = [trace.settings.get(name, "") for name in ("threads", "cpus")]
    if not all(text.isdigit() and int(text) for text in counts):
        return Undecided(
            "no manifest says how many threads the program runs", "timesink capture torch -- python train.py"
        )
    ranks = trace.settings.get("ranks_here", "1")
    threads, cpus = int(counts[0]) * (int(ranks) if ranks.isdigit() else 1), int(counts[1])
    crowding = Evidence(
        "threads for each processor",
        Quantity(threads / cpus, "ratio"),
        f"{threads} threads of operators on {cpus} processors, by the capture's manifest",
        limit=Quantity(limits["thread_ratio"], "ratio"),
    )
    if not crowding.is_over:
        return found_or_clear([crowding])

    def finding(blamed: BlamedTime, evidence: Evidence) -> Finding:
        return Finding(
            message=f"operators run on {threads} threads, and the process may use {cpus} processors; "
            f"{waits(trace, blamed)} for host work of 0.1 ms and more at a time",
            bottleneck=Bottleneck.THREADS_OVERSUBSCRIBED,
            where=place_of(blamed),
            evidence=(evidence, crowding),
            advice=f"Set OMP_NUM_THREADS (or torch.set_num_threads) so that no more than {cpus} threads run.",
            verify="Capture again with fewer threads: the host's operators, and the step, take less time.",
            claim=Claim({blamed.device: blamed.intervals}),
            change=fixes.FEWER_THREADS.change(Target("windows", windows=blamed.host), (1.0 + cpus / threads) / 2),
            fix=fixes.FEWER_THREADS,
        )

    long = pl.col("end_ns") - pl.col("start_ns") >= _LONG_NS
    waiting = blamed_time(trace, HOST_CAUSES, wanted=long)
    return idle_verdict(waiting, limits["idle_ratio"], "idle time in long host work", _HOW, finding)


RULE = idle_rule(
    "HAB107",
    check,
    limits={
        "thread_ratio": Limit.ratio(
            1.5,
            "a few more threads than processors cost little, and are some libraries' default",
            "PyTorch's default is one for each core; two for each are hyper-threads",
        ),
        "idle_ratio": Limit.ratio(
            0.03,
            "below this, faster host work gains less than three steps in a hundred",
            "as for the preparation of input",
        ),
    },
    references=("https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html",),
)
