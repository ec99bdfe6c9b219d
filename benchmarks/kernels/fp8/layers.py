"""Linear layers in bf16 and FP8, timed and traced on a GPU: `layers.py OUT` leaves times.json and a trace of each."""

# ruff: noqa: N803 - constants as Triton's authors write them

from __future__ import annotations

import json
import statistics
import sys
from functools import partial
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile, schedule

LAYERS = ((4096, 4096, 8192), (4096, 14336, 8192), (8192, 1024, 16384))  # inner, columns, rows of its trace
ROWS = (32, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768)
MODES = ("dynamic", "weights", "fused", "fused_weights")
MOST = 448.0
TURNS = 11


def quantised(x):
    """In FP8 by its largest value, with its scale: what a first version of a layer writes out."""
    most = x.abs().max().float().clamp(min=1e-12)
    return (x * (MOST / most)).clamp(-MOST, MOST).to(torch.float8_e4m3fn), most / MOST


@triton.jit
def amax_of(x, out, n, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    most = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        at = (tl.program_id(0) * TURNS + turn) * BLOCK + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.abs(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)))
    tl.atomic_max(out, tl.max(most, axis=0))


@triton.jit
def quantize_by_amax(x, amax, y, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    most = tl.maximum(tl.load(amax), 1e-12)
    value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) * (448.0 / most)
    tl.store(y + at, value.to(tl.float8e4nv), mask=at < n)
    if tl.program_id(0) == 0:
        tl.store(scale, most / 448.0)


def fused(x):
    """The same in two passes."""
    n, amax, scale = x.numel(), torch.zeros((), device="cuda"), torch.empty((), device="cuda")
    y = torch.empty(x.shape, device="cuda", dtype=torch.float8_e4m3fn)
    amax_of[(triton.cdiv(n, 8192),)](x, amax, n, BLOCK=2048, TURNS=4, num_warps=4)
    quantize_by_amax[(triton.cdiv(n, 2048),)](x, amax, y, scale, n, BLOCK=2048, num_warps=4)
    return y, scale


def layer(mode, x, w, kept):
    """``bf16``, ``dynamic`` (both operands are made each time, by PyTorch) or ``fused`` (in two passes each);
    ``weights`` and ``fused_weights`` keep the weights."""
    if mode == "bf16":
        return torch.nn.functional.linear(x, w)
    of = fused if mode.startswith("fused") else quantised
    (a, scale_a), (b, scale_b) = of(x), kept if mode.endswith("weights") else of(w)
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)


def median_us(run):
    """Of calls behind a kernel that waits, so that the host is no part of it."""
    found = []
    for turn in range(TURNS + 3):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)
        began.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        found += [began.elapsed_time(ended) * 1e3] * (turn >= 3)
    return round(statistics.median(found), 2)


def operands(rows, inner, columns):
    """Activation, weights, and the weights in FP8."""
    w = torch.randn(columns, inner, device="cuda", dtype=torch.bfloat16)
    return torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16), w, quantised(w)


def main(out):
    torch.manual_seed(0)
    told = []
    for number, (inner, columns, traced) in enumerate(LAYERS):
        for mode in MODES:
            given, name = operands(traced, inner, columns), str(out / f"layer{number}_{mode}.json")
            with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                record_shapes=True,
                schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
            ) as profiler:
                for _ in range(6):
                    for _ in range(4):
                        layer(mode, *given)
                    torch.cuda.synchronize()
                    profiler.step()
            profiler.export_chrome_trace(name)
        for rows in ROWS:
            given = operands(rows, inner, columns)
            times = {f"{mode}_us": median_us(partial(layer, mode, *given)) for mode in ("bf16", *MODES)}
            told.append({"tokens": rows, "k": inner, "n": columns, **times})
    (out / "times.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
