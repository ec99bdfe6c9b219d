"""The pairs of this set written in Triton; `torch_pair.py` runs them."""

# ruff: noqa: N803, PLR0917 - names and arguments as Triton's authors write them
from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


@triton.jit
def gradients_of_norm(x, dy, weight, dx, rows, n, columns):
    at = rows[:, None] * n + columns[None, :]
    v = tl.load(x + at).to(tl.float32)
    given = tl.load(dy + at).to(tl.float32)
    centred = v - tl.sum(v, axis=1)[:, None] / n
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / n + 1e-5)[:, None]
    normal, weighed = centred * scale, given * tl.load(weight + columns)[None, :]
    mean, along = tl.sum(weighed, axis=1)[:, None] / n, tl.sum(weighed * normal, axis=1)[:, None] / n
    tl.store(dx + at, ((weighed - mean - normal * along) * scale).to(dx.dtype.element_ty))
    return tl.sum(given * normal, axis=0), tl.sum(given, axis=0)


@triton.jit
def norm_weight_gradient_fault(x, dy, weight, dx, dw, db, n, EACH: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    columns, rows = tl.arange(0, N), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    of_weight, of_bias = gradients_of_norm(x, dy, weight, dx, rows, n, columns)
    tl.atomic_add(dw + columns, of_weight)
    tl.atomic_add(db + columns, of_bias)


@triton.jit
def norm_weight_gradient_fix(x, dy, weight, dx, dw, db, n, EACH: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    columns, of_weight, of_bias = tl.arange(0, N), tl.zeros([N], tl.float32), tl.zeros([N], tl.float32)
    for first in range(tl.program_id(0) * EACH, (tl.program_id(0) + 1) * EACH, ROWS):
        rows = first + tl.arange(0, ROWS)
        more_of_weight, more_of_bias = gradients_of_norm(x, dy, weight, dx, rows, n, columns)
        of_weight += more_of_weight
        of_bias += more_of_bias
    tl.atomic_add(dw + columns, of_weight)
    tl.atomic_add(db + columns, of_bias)


def norm_weight_gradient():
    """The backward pass of a layer norm: the weight's gradient is added for each row, or for 128."""
    x, dy = (torch.randn(262144, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight, dx = torch.randn(256, device="cuda"), torch.empty_like(x)
    dw, db = torch.zeros(256, device="cuda"), torch.zeros(256, device="cuda")

    def run(fixed):
        dw.zero_(), db.zero_()
        if fixed:
            norm_weight_gradient_fix[(2048,)](x, dy, weight, dx, dw, db, 256, EACH=128, ROWS=8, N=256, num_warps=4)
        else:
            norm_weight_gradient_fault[(262144,)](x, dy, weight, dx, dw, db, 256, EACH=1, ROWS=1, N=256, num_warps=1)
        return dw

    return run


@triton.jit
def group_norm_passes_fault(x, y, n, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * n
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        total += tl.load(x + group + first + tl.arange(0, BLOCK))
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        centred = tl.load(x + group + first + tl.arange(0, BLOCK)) - mean
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n + 1e-5)
    for first in range(0, n, BLOCK):
        at = group + first + tl.arange(0, BLOCK)
        tl.store(y + at, (tl.load(x + at) - mean) * scale)


@triton.jit
def group_norm_passes_fix(x, y, n, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * n
    total, squares = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        v = tl.load(x + group + first + tl.arange(0, BLOCK))
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / n
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n - mean * mean + 1e-5)
    for first in range(0, n, BLOCK):
        at = group + first + tl.arange(0, BLOCK)
        tl.store(y + at, (tl.load(x + at) - mean) * scale)


def group_norm_passes():
    """A group norm of large groups in three passes over them, or in two."""
    x = torch.randn(1024, 131072, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        (group_norm_passes_fix if fixed else group_norm_passes_fault)[(1024,)](x, y, 131072, BLOCK=4096, num_warps=8)
        return y

    return run


@triton.jit
def softmax_at_temperatures_fault(x, y, n, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    v -= tl.max(v, axis=0)
    found = tl.zeros([BLOCK], tl.float32)
    for k in range(1, TIMES + 1):
        power = tl.exp(v * (0.05 * k))
        found += power * (1.0 / tl.sum(power, axis=0))
    tl.store(y + at, found.to(y.dtype.element_ty))


@triton.jit
def softmax_at_temperatures_fix(x, y, n, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    once = tl.exp((v - tl.max(v, axis=0)) * 0.05)
    found, power = tl.zeros([BLOCK], tl.float32), once
    for _ in range(TIMES):
        found += power * (1.0 / tl.sum(power, axis=0))
        power *= once
    tl.store(y + at, found.to(y.dtype.element_ty))


def softmax_at_temperatures():
    """A mixture of softmaxes at 24 temperatures: an exponential to each, or one and its powers."""
    x = torch.randn(32768, 2048, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)

    def run(fixed):
        kernel = softmax_at_temperatures_fix if fixed else softmax_at_temperatures_fault
        kernel[(32768,)](x, y, 2048, TIMES=24, BLOCK=2048, num_warps=4)
        return y

    return run


@triton.jit
def largest_and_total(x, first, last, BLOCK: tl.constexpr):
    most, total = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(first, last, BLOCK):
        v = tl.load(x + start + tl.arange(0, BLOCK))
        now = tl.maximum(most, v)
        total = total * tl.exp(most - now) + tl.exp(v - now)
        most = now
    largest = tl.max(most, axis=0)
    return largest, tl.sum(total * tl.exp(most - largest), axis=0)


@triton.jit
def softmax_of_few_rows_fault(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    largest, total = largest_and_total(x + row, 0, n, BLOCK)
    for first in range(0, n, BLOCK):
        at = row + first + tl.arange(0, BLOCK)
        tl.store(y + at, tl.exp(tl.load(x + at) - largest) / total)


@triton.jit
def softmax_parts(x, parts, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    each = n // PARTS
    largest, total = largest_and_total(x + row * n, part * each, (part + 1) * each, BLOCK)
    tl.store(parts + (row * PARTS + part) * 2, largest)
    tl.store(parts + (row * PARTS + part) * 2 + 1, total)


@triton.jit
def softmax_of_few_rows_fix(x, y, parts, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, of_row = tl.program_id(0), tl.program_id(0) * PARTS * 2 + tl.arange(0, PARTS) * 2
    most = tl.load(parts + of_row)
    largest = tl.max(most, axis=0)
    total = tl.sum(tl.load(parts + of_row + 1) * tl.exp(most - largest), axis=0)
    first = row * n + tl.program_id(1) * (n // PARTS)
    for start in range(0, n // PARTS, BLOCK):
        at = first + start + tl.arange(0, BLOCK)
        tl.store(y + at, tl.exp(tl.load(x + at) - largest) / total)


def softmax_of_few_rows():
    """A softmax of 16 rows of a million values: a program to a row, or to a 128th of it."""
    x = torch.randn(16, 1 << 20, device="cuda")
    y, parts = torch.empty_like(x), torch.empty(16, 128, 2, device="cuda")

    def run(fixed):
        if fixed:
            softmax_parts[(16, 128)](x, parts, 1 << 20, PARTS=128, BLOCK=2048, num_warps=8)
            softmax_of_few_rows_fix[(16, 128)](x, y, parts, 1 << 20, PARTS=128, BLOCK=2048, num_warps=8)
        else:
            softmax_of_few_rows_fault[(16,)](x, y, 1 << 20, BLOCK=2048, num_warps=8)
        return y

    return run


@triton.jit
def product(
    a,
    b,
    c,
    M,
    N,
    K,
    first,
    last,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ADDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = first + tl.arange(0, BK)
    at_a, at_b = a + rows[:, None] * K + depth[None, :], b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(first, last, BK):
        total = tl.dot(tl.load(at_a), tl.load(at_b), total, input_precision=PRECISION)
        at_a += BK
        at_b += BK * N
    if ADDS:
        tl.atomic_add(c + rows[:, None] * N + columns[None, :], total)
    else:
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def matmul_tall_tiles_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False, "tf32")


@triton.jit
def matmul_tall_tiles_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False, "tf32")


def matmul_tall_tiles():
    """A product in tiles of 256 x 16, or of 128 x 128."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def run(fixed):
        if fixed:
            matmul_tall_tiles_fix[(32, 32)](a, b, c, 4096, 4096, 4096, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
        else:
            matmul_tall_tiles_fault[(16, 256)](
                a, b, c, 4096, 4096, 4096, BM=256, BN=16, BK=64, num_warps=4, num_stages=3
            )
        return c

    return run


@triton.jit
def matmul_ieee_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False, "ieee")


@triton.jit
def matmul_ieee_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False, "tf32")


def matmul_ieee():
    """An fp32 product with input_precision="ieee", or in TF32."""
    a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    c = torch.empty_like(a)

    def run(fixed):
        kernel = matmul_ieee_fix if fixed else matmul_ieee_fault
        kernel[(32, 32)](a, b, c, 2048, 2048, 2048, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
        return c

    return run


@triton.jit
def product_over_tokens(x, dy, c, M, N, first, last, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for token in range(first, last, BK):
        tokens = token + tl.arange(0, BK)
        a = tl.load(x + tokens[:, None] * M + rows[None, :])
        total = tl.dot(tl.trans(a), tl.load(dy + tokens[:, None] * N + columns[None, :]), total)
    return c + rows[:, None] * N + columns[None, :], total


@triton.jit
def gradient_of_weights_fault(x, dy, c, M, N, tokens, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    at, total = product_over_tokens(x, dy, c, M, N, 0, tokens, BM, BN, BK)
    tl.store(at, total)


@triton.jit
def gradient_of_weights_fix(
    x, dy, c, M, N, tokens, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    first = tl.program_id(2) * (tokens // PARTS)
    at, total = product_over_tokens(x, dy, c, M, N, first, first + tokens // PARTS, BM, BN, BK)
    tl.atomic_add(at, total)


def gradient_of_weights():
    """The gradient of 512 x 256 weights over 131,072 tokens: in eight programs, or 256."""
    x = torch.randn(131072, 512, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(131072, 256, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(512, 256, device="cuda")

    def run(fixed):
        if fixed:
            c.zero_()
            gradient_of_weights_fix[(4, 2, 32)](
                x, dy, c, 512, 256, 131072, PARTS=32, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
            )
        else:
            gradient_of_weights_fault[(4, 2)](
                x, dy, c, 512, 256, 131072, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
            )
        return c

    return run


@triton.jit
def split_k_too_far_fault(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first = tl.program_id(2) * (K // PARTS)
    product(a, b, c, M, N, K, first, first + K // PARTS, BM, BN, BK, True, "tf32")


@triton.jit
def split_k_too_far_fix(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first = tl.program_id(2) * (K // PARTS)
    product(a, b, c, M, N, K, first, first + K // PARTS, BM, BN, BK, True, "tf32")


def split_k_too_far():
    """A product over a depth of 8,192 in 128 parts, or in two."""
    a, b = (
        torch.randn(2048, 8192, device="cuda", dtype=torch.float16),
        torch.randn(8192, 2048, device="cuda", dtype=torch.float16),
    )
    c = torch.empty(2048, 2048, device="cuda")

    def run(fixed):
        c.zero_()
        kernel, parts = (split_k_too_far_fix, 2) if fixed else (split_k_too_far_fault, 128)
        kernel[(16, 16, parts)](
            a, b, c, 2048, 2048, 8192, PARTS=parts, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
        )
        return c

    return run


@triton.jit
def attended(q, k, v, out, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * keys * D
    rows, within = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + within[None, :])
    most, total, found = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    for first in range(0, keys, BN):
        at = head + (first + tl.arange(0, BN))[:, None] * D + within[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + at))) * 0.1275
        now = tl.maximum(most, tl.max(scores, axis=1))
        p, kept = tl.exp2(scores - now[:, None]), tl.exp2(most - now)
        total = total * kept + tl.sum(p, axis=1)
        found = tl.dot(p.to(v.dtype.element_ty), tl.load(v + at), found * kept[:, None])
        most = now
    tl.store(out + head + rows[:, None] * D + within[None, :], (found / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def attention_one_stage_fault(q, k, v, out, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    attended(q, k, v, out, keys, D, BM, BN)


@triton.jit
def attention_one_stage_fix(q, k, v, out, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    attended(q, k, v, out, keys, D, BM, BN)


def attention_one_stage():
    """Attention that waits for each 32 keys, or has two tiles of 64 on the way."""
    q, k, v = (torch.randn(64, 4096, 128, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)

    def run(fixed):
        if fixed:
            attention_one_stage_fix[(32, 64)](q, k, v, out, 4096, D=128, BM=128, BN=64, num_warps=8, num_stages=3)
        else:
            attention_one_stage_fault[(32, 64)](q, k, v, out, 4096, D=128, BM=128, BN=32, num_warps=8, num_stages=1)
        return out

    return run


@triton.jit
def tokens_permuted_fault(x, to, y, n, TOKENS: tl.constexpr, WIDTH: tl.constexpr):
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    places = tl.load(to + tokens)
    for column in range(n):
        tl.store(y + places * n + column, tl.load(x + tokens * n + column))


@triton.jit
def tokens_permuted_fix(x, to, y, n, TOKENS: tl.constexpr, WIDTH: tl.constexpr):
    tokens, columns = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, WIDTH)
    places = tl.load(to + tokens)
    tl.store(y + places[:, None] * n + columns[None, :], tl.load(x + tokens[:, None] * n + columns[None, :]))


def tokens_permuted():
    """Tokens are scattered to the places of their experts: a token to a lane, or to a row of lanes."""
    x = torch.randn(524288, 256, device="cuda", dtype=torch.bfloat16)
    to, y = torch.randperm(524288, device="cuda", dtype=torch.int32), torch.empty_like(x)

    def run(fixed):
        if fixed:
            tokens_permuted_fix[(32768,)](x, to, y, 256, TOKENS=16, WIDTH=256, num_warps=4)
        else:
            tokens_permuted_fault[(4096,)](x, to, y, 256, TOKENS=128, WIDTH=256, num_warps=4)
        return y

    return run


@triton.jit
def unpacked(packed, scales, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both, scale = tl.load(packed + at), tl.load(scales + at // 64)
    weights = tl.join((both & 15).to(tl.float32) - 8.0, ((both >> 4) & 15).to(tl.float32) - 8.0)
    found = tl.reshape(weights * scale[:, None], [2 * BLOCK])
    tl.store(out + tl.program_id(0) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK), found.to(out.dtype.element_ty))


@triton.jit
def weights_unpacked_fault(packed, scales, out, BLOCK: tl.constexpr):
    unpacked(packed, scales, out, BLOCK)


@triton.jit
def weights_unpacked_fix(packed, scales, out, BLOCK: tl.constexpr):
    unpacked(packed, scales, out, BLOCK)


def weights_unpacked():
    """Weights of four bits are unpacked to fp32, or to fp16."""
    packed = torch.randint(255, (1 << 26,), device="cuda", dtype=torch.uint8)
    scales = torch.rand(1 << 20, device="cuda")
    wide, narrow = (torch.empty(1 << 27, device="cuda", dtype=kind) for kind in (torch.float32, torch.float16))

    def run(fixed):
        kernel, out = (weights_unpacked_fix, narrow) if fixed else (weights_unpacked_fault, wide)
        kernel[(1 << 15,)](packed, scales, out, BLOCK=2048, num_warps=4)
        return out

    return run


@triton.jit
def turned(x, y, height, width, BR: tl.constexpr, BC: tl.constexpr):
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    v = tl.load(x + rows[:, None] * width + columns[None, :])
    tl.store(y + columns[:, None] * height + rows[None, :], tl.trans(v))


@triton.jit
def transpose_of_two_rows_fault(x, y, height, width, BR: tl.constexpr, BC: tl.constexpr):
    turned(x, y, height, width, BR, BC)


@triton.jit
def transpose_of_two_rows_fix(x, y, height, width, BR: tl.constexpr, BC: tl.constexpr):
    turned(x, y, height, width, BR, BC)


def transpose_of_two_rows():
    """A transpose in tiles of 2 x 1024, or of 64 x 64."""
    x = torch.randn(8192, 8192, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        if fixed:
            transpose_of_two_rows_fix[(128, 128)](x, y, 8192, 8192, BR=64, BC=64, num_warps=4)
        else:
            transpose_of_two_rows_fault[(4096, 8)](x, y, 8192, 8192, BR=2, BC=1024, num_warps=4)
        return y

    return run


@triton.jit
def one_program_per_value_fault(x, y, steps):
    v = tl.load(x + tl.program_id(0))
    for _ in range(steps):
        v = 2.9 * v * (1.0 - v)
    tl.store(y + tl.program_id(0), v)


@triton.jit
def one_program_per_value_fix(x, y, steps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    for _ in range(steps):
        v = 2.9 * v * (1.0 - v)
    tl.store(y + at, v)


def one_program_per_value():
    """The logistic map of 270,336 values: a program to each, or to 256."""
    x = torch.rand(132 * 2048, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        if fixed:
            one_program_per_value_fix[(132 * 8,)](x, y, 512, BLOCK=256, num_warps=4)
        else:
            one_program_per_value_fault[(132 * 2048,)](x, y, 512, num_warps=1)
        return y

    return run


@triton.jit
def masked(dy, mask, dx, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dx + at, (tl.load(dy + at) * tl.load(mask + at).to(tl.float32) * 2.0).to(dx.dtype.element_ty))


@triton.jit
def mask_in_words_fault(dy, mask, dx, BLOCK: tl.constexpr):
    masked(dy, mask, dx, BLOCK)


@triton.jit
def mask_in_words_fix(dy, mask, dx, BLOCK: tl.constexpr):
    masked(dy, mask, dx, BLOCK)


def mask_in_words():
    """The backward pass of dropout with its mask kept in fp32, or in bytes."""
    dy = torch.randn(1 << 27, device="cuda", dtype=torch.bfloat16)
    mask, dx = torch.randint(2, (1 << 27,), device="cuda", dtype=torch.uint8), torch.empty_like(dy)
    words = mask.float()

    def run(fixed):
        kernel, kept = (mask_in_words_fix, mask) if fixed else (mask_in_words_fault, words)
        kernel[(1 << 16,)](dy, kept, dx, BLOCK=2048, num_warps=4)
        return dx

    return run


if __name__ == "__main__":
    main(
        norm_weight_gradient,
        group_norm_passes,
        softmax_at_temperatures,
        softmax_of_few_rows,
        matmul_tall_tiles,
        matmul_ieee,
        gradient_of_weights,
        split_k_too_far,
        attention_one_stage,
        tokens_permuted,
        weights_unpacked,
        transpose_of_two_rows,
        one_program_per_value,
        mask_in_words,
        queued_cycles=400_000,
    )
