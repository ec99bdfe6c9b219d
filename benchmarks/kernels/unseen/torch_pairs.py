"""The pairs that PyTorch calls by themselves: `torch_pairs.py time OUT.json | capture PAIR`.

Each is a function that runs the fault (False) or the fix (True) and returns its result.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch

WARM, RUNS = 5, 41


def wide_output():
    """Products over a K of 64: the output is written in fp32, or in bf16."""
    a, b = (torch.randn(8192, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda fixed: a @ b.t() if fixed else torch.mm(a, b.t(), out_dtype=torch.float32)


def _fp32(multiply):
    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return multiply()

    return run


def fp32_product():
    """A product of a layer in fp32, or in TF32."""
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 2048, device="cuda")
    return _fp32(lambda: a @ b)


def fp32_batch():
    """Products of the heads of an attention in fp32, or in TF32."""
    q, k = (torch.randn(32, 1024, 128, device="cuda") for _ in range(2))
    return _fp32(lambda: torch.bmm(q, k.transpose(1, 2)))


def wide_vector_product():
    """A matrix of 512 MB in fp32 times a vector, or the same in bf16."""
    weights, x = torch.randn(16384, 8192, device="cuda"), torch.randn(8192, device="cuda")
    narrow = weights.bfloat16(), x.bfloat16()
    return lambda fixed: torch.mv(*narrow) if fixed else torch.mv(weights, x)


PAIRS = {one.__name__: one for one in (wide_output, fp32_product, fp32_batch, wide_vector_product)}


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


def main():
    torch.manual_seed(0)
    verb, target = sys.argv[1:]
    if verb == "time":
        told = {}
        for name, make in PAIRS.items():
            run = make()
            fault, fix = run(False).float(), run(True).float()
            print(f"{name:24} differs by {((fault - fix).norm() / fault.norm()).item():.1e} of its norm")
            told[name] = times(run)
        Path(target).write_text(json.dumps(told, indent=1) + "\n")
        return
    run = PAIRS[target]()
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    run(False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
