"""The pairs of this set written in Triton; `torch_pair.py` runs them."""

# ruff: noqa: N803, PLR0917 - names and arguments as Triton's authors write them
from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


@triton.jit
def gelu_in_doubles_fault(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float64)
    tl.store(y + at, (0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))).to(y.dtype.element_ty))


@triton.jit
def gelu_in_doubles_fix(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    tl.store(y + at, (0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))).to(y.dtype.element_ty))


def gelu_in_doubles():
    """GELU by the error function: in fp64, as a constant of NumPy's made it, or in fp32."""
    x = torch.randn(1 << 25, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def run(fixed):
        (gelu_in_doubles_fix if fixed else gelu_in_doubles_fault)[(1 << 15,)](x, y, BLOCK=1024, num_warps=4)
        return y

    return run


@triton.jit
def noise_by_word_fault(y, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.randn(seed, at).to(y.dtype.element_ty))


@triton.jit
def noise_by_word_fix(y, seed, BLOCK: tl.constexpr):
    own = tl.arange(0, BLOCK // 4)
    four = tl.randn4x(seed, tl.program_id(0) * (BLOCK // 4) + own)
    for k in tl.static_range(4):
        at = tl.program_id(0) * BLOCK + k * (BLOCK // 4) + own
        tl.store(y + at, four[k].to(y.dtype.element_ty))


def noise_by_word():
    """Normal noise: four words are drawn for each value, and one kept, or all four. The two draw other noise."""
    y = torch.empty(1 << 26, device="cuda", dtype=torch.bfloat16)

    def run(fixed):
        (noise_by_word_fix if fixed else noise_by_word_fault)[(1 << 15,)](y, 7, BLOCK=2048, num_warps=4)
        return y

    return run


@triton.jit
def tokens_per_expert_fault(chosen, counts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(chosen + at), 1)


@triton.jit
def tokens_per_expert_fix(chosen, counts, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    experts = tl.load(chosen + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    for expert in tl.static_range(EXPERTS):
        tl.atomic_add(counts + expert, tl.sum((experts == expert).to(tl.int32), axis=0))


def tokens_per_expert():
    """How many tokens each of eight experts has: one added for each token, or for 4,096."""
    chosen = torch.randint(0, 8, (1 << 24,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(8, device="cuda", dtype=torch.int32)

    def run(fixed):
        counts.zero_()
        if fixed:
            tokens_per_expert_fix[(1 << 12,)](chosen, counts, EXPERTS=8, BLOCK=4096, num_warps=8)
        else:
            tokens_per_expert_fault[(1 << 14,)](chosen, counts, BLOCK=1024, num_warps=4)
        return counts

    return run


@triton.jit
def states_by_exponentials_fault(x, dt, y, channels, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.float32)
    h0, h1, h2, h3, h4, h5, h6, h7 = zero, zero, zero, zero, zero, zero, zero, zero
    for step in range(STEPS):
        at = step * channels + own
        d = tl.load(dt + at).to(tl.float32)
        u = d * tl.load(x + at).to(tl.float32)
        h0 = h0 * tl.exp2(-1.0 * d) + u
        h1 = h1 * tl.exp2(-2.0 * d) + u
        h2 = h2 * tl.exp2(-3.0 * d) + u
        h3 = h3 * tl.exp2(-4.0 * d) + u
        h4 = h4 * tl.exp2(-5.0 * d) + u
        h5 = h5 * tl.exp2(-6.0 * d) + u
        h6 = h6 * tl.exp2(-7.0 * d) + u
        h7 = h7 * tl.exp2(-8.0 * d) + u
        tl.store(y + at, (h0 + h1 + h2 + h3 + h4 + h5 + h6 + h7).to(y.dtype.element_ty))


@triton.jit
def states_by_exponentials_fix(x, dt, y, channels, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.float32)
    h0, h1, h2, h3, h4, h5, h6, h7 = zero, zero, zero, zero, zero, zero, zero, zero
    for step in range(STEPS):
        at = step * channels + own
        d = tl.load(dt + at).to(tl.float32)
        u = d * tl.load(x + at).to(tl.float32)
        e1 = tl.exp2(-d)
        e2 = e1 * e1
        e4 = e2 * e2
        h0 = h0 * e1 + u
        h1 = h1 * e2 + u
        h2 = h2 * (e1 * e2) + u
        h3 = h3 * e4 + u
        h4 = h4 * (e1 * e4) + u
        h5 = h5 * (e2 * e4) + u
        h6 = h6 * (e1 * e2 * e4) + u
        h7 = h7 * (e4 * e4) + u
        tl.store(y + at, (h0 + h1 + h2 + h3 + h4 + h5 + h6 + h7).to(y.dtype.element_ty))


def states_by_exponentials():
    """A scan of a state-space model, eight states a channel: the decay of each an exponential, or by products."""
    channels, steps = 132 * 16 * 128, 96
    x, y = (torch.randn(steps, channels, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    dt = torch.rand(steps, channels, device="cuda").to(torch.bfloat16)

    def run(fixed):
        kernel = states_by_exponentials_fix if fixed else states_by_exponentials_fault
        kernel[(channels // 128,)](x, dt, y, channels, STEPS=steps, BLOCK=128, num_warps=4)
        return y

    return run


@triton.jit
def tile_of_product(
    a, b, c, first, last, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, IS_ADDED: tl.constexpr
):
    tiles = N // BN
    rows = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + rows[:, None] * K + (first + depth)[None, :]
    b_at = b + columns[None, :] * K + (first + depth)[:, None]
    total = tl.zeros([BM, BN], tl.float32)
    for _ in range(first, last, BK):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += BK
        b_at += BK
    c_at = c + rows[:, None] * N + columns[None, :]
    if IS_ADDED:
        tl.atomic_add(c_at, total)
    else:
        tl.store(c_at, total.to(c.dtype.element_ty))


@triton.jit
def product_of_144_tiles_fault(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, 0, K, N, K, BM, BN, BK, False)


@triton.jit
def product_of_144_tiles_fix(a, b, c, N, K, part, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first = tl.program_id(1) * part
    tile_of_product(a, b, c, first, first + part, N, K, BM, BN, BK, True)


def product_of_144_tiles():
    """A product of 144 tiles over a long depth, one tile to an SM: two waves, or each depth in four parts."""
    a, b = (torch.randn(rows, 16384, device="cuda", dtype=torch.float16) for rows in (1536, 3072))
    c = torch.zeros(1536, 3072, device="cuda")
    tiles = {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8, "num_stages": 4}

    def run(fixed):
        if fixed:
            c.zero_()
            product_of_144_tiles_fix[(144, 4)](a, b, c, 3072, 16384, 4096, **tiles)
        else:
            product_of_144_tiles_fault[(144,)](a, b, c, 3072, 16384, **tiles)
        return c

    return run


@triton.jit
def product_in_bf16_fault(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, 0, K, N, K, BM, BN, BK, False)


@triton.jit
def product_in_bf16_fix(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, 0, K, N, K, BM, BN, BK, False)


def product_in_bf16():
    """A large product in bf16, or in FP8."""
    wide = [torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    narrow = [one.to(torch.float8_e4m3fn) for one in wide]
    c = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def run(fixed):
        if fixed:
            product_in_bf16_fix[(2048,)](*narrow, c, 8192, 4096, BM=128, BN=256, BK=128, num_warps=8, num_stages=3)
        else:
            product_in_bf16_fault[(2048,)](*wide, c, 8192, 4096, BM=128, BN=256, BK=64, num_warps=8, num_stages=3)
        return c

    return run


@triton.jit
def bag_summed(chosen, table, y, BAG: tl.constexpr, D: tl.constexpr):
    bag, column = tl.program_id(0), tl.arange(0, D)
    rows = tl.load(chosen + bag * BAG + tl.arange(0, BAG))
    values = tl.load(table + rows[:, None] * D + column[None, :]).to(tl.float32)
    tl.store(y + bag * D + column, tl.sum(values, axis=0))


@triton.jit
def bags_of_embeddings_fault(chosen, table, y, BAG: tl.constexpr, D: tl.constexpr):
    bag_summed(chosen, table, y, BAG, D)


@triton.jit
def bags_of_embeddings_fix(chosen, table, y, BAG: tl.constexpr, D: tl.constexpr):
    bag_summed(chosen, table, y, BAG, D)


def bags_of_embeddings():
    """64 rows of a table that fits L2 are summed for each bag: rows of fp32, or of bf16."""
    table = torch.randn(65536, 64, device="cuda")
    tables = {False: table, True: table.to(torch.bfloat16)}
    chosen = torch.randint(0, 65536, (1 << 17, 64), device="cuda", dtype=torch.int32)
    y = torch.empty(1 << 17, 64, device="cuda")

    def run(fixed):
        kernel = bags_of_embeddings_fix if fixed else bags_of_embeddings_fault
        kernel[(1 << 17,)](chosen, tables[fixed], y, BAG=64, D=64, num_warps=4)
        return y

    return run


@triton.jit
def one_of_eight_planes_fault(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at * 8) * 0.5)


@triton.jit
def one_of_eight_planes_fix(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 0.5)


def one_of_eight_planes():
    """One of eight values of each place is read: the eight lie together, or plane by plane."""
    together = torch.randn(1 << 24, 8, device="cuda")
    apart = together.t().contiguous()
    y = torch.empty(1 << 24, device="cuda")

    def run(fixed):
        if fixed:
            one_of_eight_planes_fix[(1 << 14,)](apart, y, BLOCK=1024, num_warps=4)
        else:
            one_of_eight_planes_fault[(1 << 14,)](together, y, BLOCK=1024, num_warps=4)
        return y

    return run


@triton.jit
def columns_summed(x, y, TILES: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    total = tl.zeros([D], tl.float32)
    for tile in range(TILES):
        total += tl.sum(x.load([(tl.program_id(0) * TILES + tile) * ROWS, 0]).to(tl.float32), axis=0)
    tl.store(y + tl.program_id(0) * D + tl.arange(0, D), total)


@triton.jit
def sums_by_descriptors_fault(x, y, TILES: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    columns_summed(x, y, TILES, ROWS, D)


@triton.jit
def sums_by_descriptors_fix(x, y, TILES: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    columns_summed(x, y, TILES, ROWS, D)


def sums_by_descriptors():
    """Sums of columns over tiles that TMA brings, by as many programs as an SM holds: of fp32, or of bf16."""
    programs, tiles = 132 * 32, 8
    x = torch.randn(programs * tiles * 32, 128, device="cuda")
    y = torch.empty(programs, 128, device="cuda")
    given = {False: x, True: x.to(torch.bfloat16)}
    given = {fixed: TensorDescriptor.from_tensor(one, [32, 128]) for fixed, one in given.items()}

    def run(fixed):
        kernel = sums_by_descriptors_fix if fixed else sums_by_descriptors_fault
        kernel[(programs,)](given[fixed], y, TILES=tiles, ROWS=32, D=128, num_warps=4)
        return y

    return run


@triton.jit
def row_normed(x, weight, y, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    v = tl.load(x + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + 1e-5)
    tl.store(y + at, (v * scale * tl.load(weight + columns)).to(y.dtype.element_ty))


@triton.jit
def token_by_token_fault(x, weight, y, n, BLOCK: tl.constexpr):
    row_normed(x, weight, y, n, BLOCK)


@triton.jit
def token_by_token_fix(x, weight, y, n, BLOCK: tl.constexpr):
    row_normed(x, weight, y, n, BLOCK)


def token_by_token():
    """An RMS norm of 16 tokens: a launch to each, or one. ONE_LAUNCH=1, for the profiler: the first alone."""
    x, weight = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16), torch.randn(4096, device="cuda")
    y = torch.empty_like(x)
    launches = 1 if os.environ.get("ONE_LAUNCH") else 16

    def run(fixed):
        if fixed:
            token_by_token_fix[(16,)](x, weight, y, 4096, BLOCK=4096, num_warps=4)
        else:
            for row in range(launches):
                token_by_token_fault[(1,)](x[row], weight, y[row], 4096, BLOCK=4096, num_warps=4)
        return y

    return run


if __name__ == "__main__":
    main(
        gelu_in_doubles,
        noise_by_word,
        tokens_per_expert,
        states_by_exponentials,
        product_of_144_tiles,
        bags_of_embeddings,
        product_in_bf16,
        one_of_eight_planes,
        sums_by_descriptors,
        token_by_token,
        queued_cycles=400_000,
    )
