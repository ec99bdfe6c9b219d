"""What the PyTorch pairs of a set share: `python torch_pairs.py time OUT.json | capture PAIR | capture every`.

A pair is a function that prepares its tensors and returns one that runs the fault (False) or the fix (True) and returns
its result.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch

WARM, RUNS = 5, 41


def timed_us(run, fixed, queued_cycles=0):
    """One call between CUDA events, in us; behind a kernel of so many cycles, without the host's part."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if queued_cycles:
        torch.cuda._sleep(queued_cycles)
    began.record()
    run(fixed)
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) * 1e3


def times(run, queued_cycles=0):
    """Fault and fix alternating, as the CUDA pairs are timed."""
    us = {False: [], True: []}
    for turn in range(WARM + RUNS):
        for fixed, kept in us.items():
            found = timed_us(run, fixed, queued_cycles)
            if turn >= WARM:
                kept.append(found)
    told = {"runs": RUNS}
    for fixed, name in ((False, "fault"), (True, "fix")):
        tenths = statistics.quantiles(us[fixed], n=10)
        parts = {"": statistics.median(us[fixed]), "_p10": tenths[0], "_p90": tenths[-1]}
        told |= {f"{name}{part}_us": round(value, 3) for part, value in parts.items()}
    return told


def timed(name, run, queued_cycles):
    """Says how far the results lie apart, and times both."""
    fault = run(False).float().clone()
    print(f"{name:24} differs by {((fault - run(True).float()).norm() / fault.norm()).item():.1e} of its norm")
    return times(run, queued_cycles)


def captured(run):
    """Runs the fault once before it is watched, and once watched."""
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def main(*pairs, queued_cycles=0):
    """Times every pair, or captures one or every one."""
    torch.manual_seed(0)
    verb, target = sys.argv[1:]
    named = {one.__name__: one for one in pairs}
    told = {}
    for name, make in named.items() if target == "every" or verb == "time" else [(target, named[target])]:
        try:
            told[name] = timed(name, make(), queued_cycles) if verb == "time" else captured(make())
        except Exception as failed:  # noqa: BLE001 - one that cannot run here leaves the others to run
            print(f"{name:24} FAILED: {str(failed)[:200]}")
    if verb == "time":
        Path(target).write_text(json.dumps(told, indent=1) + "\n")
