"""Matrix products and attention of known shape: `record.py ncu|truth OUT`.

`shapes.json` in OUT says of each case what was multiplied; an NVTX range of its name is around its launches. Sizes
are multiples of every tile, and no mask is given, so that the operations of the shape are those the kernels execute.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from contextlib import suppress
from pathlib import Path

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALLER = int(os.environ.get("SMALLER", "1"))  # divides every size, to try the programs without a GPU


def product(kind, m, n, k):
    """A product (M, K) x (K, N), and its operations, 2 M N K."""
    m, n, k = (max(size // SMALLER, 1) for size in (m, n, k))
    wide = {"tf32": torch.float32, "fp32": torch.float32, "fp64": torch.float64, "fp16": torch.float16}
    a = torch.randn(m, k, device=DEVICE).to(wide.get(kind, torch.bfloat16))
    b = torch.randn(n, k, device=DEVICE).to(wide.get(kind, torch.bfloat16)).t()

    def run():
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        return a @ b

    if kind == "int8":
        a, b = (torch.randint(-9, 9, size, device=DEVICE, dtype=torch.int8) for size in ((m, k), (n, k)))

        def run():
            return torch._int_mm(a, b.t())

    if kind == "fp8":
        a, b = a.to(torch.float8_e4m3fn), b.t().to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=DEVICE)

        def run():
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    shape = {"operator": "product", "precision": kind, "m": m, "n": n, "k": k, "flops": 2 * m * n * k}
    return run, shape


def attention(direction, batch, heads, rows, width):
    """Flash attention without mask, bf16: two products of `rows` x `rows` x `width` per head, five backward."""
    batch, heads, rows = (max(size // SMALLER, 1) for size in (batch, heads, rows))
    q, k, v, gradient = (torch.randn(batch, heads, rows, width, device=DEVICE, dtype=torch.bfloat16) for _ in range(4))
    aten = torch.ops.aten

    def forward():
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, return_debug_mask=False)

    found = forward()

    def backward():
        out, lse, starts_q, starts_k, most_q, most_k, seed, offset = found[:8]
        return aten._scaled_dot_product_flash_attention_backward(
            gradient, q, k, v, out, lse, starts_q, starts_k, most_q, most_k, 0.0, False, seed, offset
        )

    products = 2 if direction == "forward" else 5
    shape = {
        "operator": f"attention {direction}", "precision": "bf16", "batch": batch, "heads": heads, "rows": rows,
        "width": width, "flops": products * 2 * batch * heads * rows * rows * width,
    }  # fmt: skip
    return (forward if direction == "forward" else backward), shape


CASES = {
    "gemm_bf16": (product, "bf16", 4096, 4096, 4096),
    "gemm_fp16": (product, "fp16", 2048, 8192, 4096),
    "gemm_tf32": (product, "tf32", 4096, 2048, 4096),
    "gemm_fp32": (product, "fp32", 2048, 2048, 2048),
    "gemm_fp64": (product, "fp64", 2048, 2048, 1024),
    "gemm_fp8": (product, "fp8", 4096, 4096, 4096),
    "gemm_int8": (product, "int8", 4096, 4096, 4096),
    "gemv_bf16": (product, "bf16", 1, 8192, 8192),
    "decode_bf16": (product, "bf16", 4, 14336, 4096),
    "attention_forward_64": (attention, "forward", 4, 16, 2048, 64),
    "attention_forward_128": (attention, "forward", 2, 16, 2048, 128),
    "attention_backward_64": (attention, "backward", 4, 16, 2048, 64),
    "attention_backward_128": (attention, "backward", 2, 16, 2048, 128),
}


def median_us(run, rounds=21):
    """The median time of one call between CUDA events, in us."""
    times = []
    for _ in range(rounds):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended) * 1e3)
    return statistics.median(times)


def made():
    """The cases this machine can run, each run three times already."""
    torch.manual_seed(0)
    ready = {}
    for name, (make, *arguments) in CASES.items():
        try:
            run, shape = make(*arguments)
            for _ in range(3):
                run()
            ready[name] = run, shape
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            print(f"{name} cannot run here: {str(error).splitlines()[0]}")
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return ready


def main():
    verb, out = sys.argv[1], Path(sys.argv[2])
    ready = made()
    shapes = {name: shape for name, (_, shape) in ready.items()}
    if verb == "truth":
        for name, (run, shape) in ready.items():
            shape["unprofiled_us"] = round(median_us(run), 2)
            print(f"{name}: {shape['flops'] / shape['unprofiled_us'] / 1e6:.1f} TFLOP/s")
        shapes["gpu"] = torch.cuda.get_device_name()
        (out / "shapes.json").write_text(json.dumps(shapes, indent=1) + "\n")
        return
    with suppress(AttributeError, RuntimeError):
        torch.cuda.cudart().cudaProfilerStart()
    for name, (run, _) in ready.items():
        if DEVICE == "cuda":
            torch.cuda.nvtx.range_push(name)
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
    with suppress(AttributeError, RuntimeError):
        torch.cuda.cudart().cudaProfilerStop()
    print(json.dumps(shapes))


if __name__ == "__main__":
    main()
