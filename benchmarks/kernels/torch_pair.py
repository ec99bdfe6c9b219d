"""What the PyTorch pairs of a set share: `python torch_pairs.py time OUT.json | capture PAIR`.

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


def timed_us(run, fixed):
    """One call between CUDA events, in us."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    run(fixed)
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) * 1e3


def times(run):
    """Fault and fix alternating, as the CUDA pairs are timed."""
    us = {False: [], True: []}
    for turn in range(WARM + RUNS):
        for fixed, kept in us.items():
            found = timed_us(run, fixed)
            if turn >= WARM:
                kept.append(found)
    told = {"runs": RUNS}
    for fixed, name in ((False, "fault"), (True, "fix")):
        tenths = statistics.quantiles(us[fixed], n=10)
        parts = {"": statistics.median(us[fixed]), "_p10": tenths[0], "_p90": tenths[-1]}
        told |= {f"{name}{part}_us": round(value, 3) for part, value in parts.items()}
    return told


def main(*pairs):
    """Times every pair, or captures one."""
    torch.manual_seed(0)
    verb, target = sys.argv[1:]
    named = {one.__name__: one for one in pairs}
    if verb == "time":
        told = {}
        for name, make in named.items():
            run = make()
            fault, fix = run(False).float(), run(True).float()
            print(f"{name:24} differs by {((fault - fix).norm() / fault.norm()).item():.1e} of its norm")
            told[name] = times(run)
        Path(target).write_text(json.dumps(told, indent=1) + "\n")
        return
    run = named[target]()
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
