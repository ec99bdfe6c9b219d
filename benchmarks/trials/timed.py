"""The time from one backward pass of a script to the next, without timesink: the truth of a change in its source.

`timed.py [--seconds 6] PYTHON SCRIPT ARGS` runs the script in this process (the interpreter is read over, so that
it can stand before a command), waits until passes come evenly, counts for so long, prints a line of JSON and ends.
"""

import itertools
import json
import os
import runpy
import statistics
import sys
import time
from pathlib import Path

import torch

FIRST, EVEN = 20, 8
"""Passes that are waited for, and how many of the last must lie within thrice their median."""

seconds = 6.0
words = sys.argv[1:]
if words[0] == "--seconds":
    seconds, words = float(words[1]), words[2:]
if "python" in Path(words[0]).name:
    words = words[1:]
passes: list[float] = []
since: list[float] = []
plain = torch.autograd.backward


def backward(*given: object, **named: object) -> None:
    """PyTorch's own, its end noted."""
    plain(*given, **named)  # type: ignore[arg-type]
    passes.append(time.perf_counter())
    if not since and len(passes) >= FIRST:
        gaps = [b - a for a, b in zip(passes[-EVEN - 1 :], passes[-EVEN:], strict=False)]
        if max(gaps) < 3 * statistics.median(gaps):
            torch.cuda.synchronize()
            since.append(time.perf_counter())
            passes.clear()
    elif since and time.perf_counter() - since[0] > seconds:
        torch.cuda.synchronize()
        ends = [since[0], *passes]
        gaps = sorted(b - a for a, b in itertools.pairwise(ends))
        kept = gaps[: max(1, int(0.98 * len(gaps)))]
        line = {"mean_ms": 1e3 * (time.perf_counter() - since[0]) / len(passes), "most_ms": 1e3 * sum(kept) / len(kept)}
        print(
            "\nTIMED " + json.dumps({**line, "median_ms": 1e3 * statistics.median(gaps), "passes": len(passes)}),
            flush=True,
        )
        os._exit(0)


torch.autograd.backward = backward
sys.argv = words
sys.path[0] = str(Path(words[0]).resolve().parent)
runpy.run_path(words[0], run_name="__main__")
