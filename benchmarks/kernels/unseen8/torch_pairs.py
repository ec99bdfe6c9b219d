"""The pairs of this set written in Triton; `torch_pair.py` runs them."""

# ruff: noqa: N803, PLR0917 - names and arguments as Triton's authors write them
from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


@triton.jit
def added_and_normed(x, residual, weight, summed, out, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    v = tl.load(x + at).to(tl.float32) + tl.load(residual + at).to(tl.float32)
    tl.store(summed + at, v.to(summed.dtype.element_ty))
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + 1e-5)
    tl.store(out + at, (v * scale * tl.load(weight + columns).to(tl.float32)).to(out.dtype.element_ty))


@triton.jit
def residual_norm_in_fp32_fault(x, residual, weight, summed, out, n, BLOCK: tl.constexpr):
    added_and_normed(x, residual, weight, summed, out, n, BLOCK)


@triton.jit
def residual_norm_in_fp32_fix(x, residual, weight, summed, out, n, BLOCK: tl.constexpr):
    added_and_normed(x, residual, weight, summed, out, n, BLOCK)


def residual_norm_in_fp32():
    """A residual added and an RMS norm: the stream and the result in fp32, or in bf16."""
    x, residual = (torch.randn(32768, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight, wide = torch.randn(2048, device="cuda"), residual.float()
    kept = {fixed: [torch.empty_like(kind) for _ in range(2)] for fixed, kind in ((False, wide), (True, x))}

    def run(fixed):
        kernel, read = (residual_norm_in_fp32_fix, residual) if fixed else (residual_norm_in_fp32_fault, wide)
        kernel[(32768,)](x, read, weight, *kept[fixed], 2048, BLOCK=2048, num_warps=4)
        return kept[fixed][1]

    return run


@triton.jit
def norm_of_channels_fault(x, weight, y, places, CHANNELS: tl.constexpr):
    channels = tl.arange(0, CHANNELS)
    at = tl.program_id(1) * CHANNELS * places + channels * places + tl.program_id(0)
    v = tl.load(x + at)
    centred = v - tl.sum(v, axis=0) / CHANNELS
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / CHANNELS + 1e-5)
    tl.store(y + at, centred * scale * tl.load(weight + channels))


@triton.jit
def norm_of_channels_fix(x, weight, y, places, CHANNELS: tl.constexpr, PLACES: tl.constexpr):
    channels, own = tl.arange(0, CHANNELS), tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    at = tl.program_id(1) * CHANNELS * places + channels[:, None] * places + own[None, :]
    v = tl.load(x + at)
    centred = v - tl.sum(v, axis=0)[None, :] / CHANNELS
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / CHANNELS + 1e-5)
    tl.store(y + at, centred * scale[None, :] * tl.load(weight + channels)[:, None])


def norm_of_channels():
    """A layer norm over the channels of images kept plane by plane: a place to a program, or 32."""
    x, weight = torch.randn(64, 128, 4096, device="cuda"), torch.randn(128, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        if fixed:
            norm_of_channels_fix[(128, 64)](x, weight, y, 4096, CHANNELS=128, PLACES=32, num_warps=4)
        else:
            norm_of_channels_fault[(4096, 64)](x, weight, y, 4096, CHANNELS=128, num_warps=4)
        return y

    return run


@triton.jit
def sparsemax_by_bisection_fault(x, y, n, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    high = tl.max(v, axis=0)
    low = high - 1.0
    for _ in range(TURNS):
        middle = (low + high) * 0.5
        is_over = tl.sum(tl.maximum(v - middle, 0.0), axis=0) > 1.0
        low = tl.where(is_over, middle, low)
        high = tl.where(is_over, high, middle)
    tl.store(y + at, tl.maximum(v - low, 0.0).to(y.dtype.element_ty))


@triton.jit
def sparsemax_by_bisection_fix(x, y, n, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    low = tl.max(v, axis=0) - 1.0
    for _ in range(TURNS):
        is_kept = v > low
        low = (tl.sum(tl.where(is_kept, v, 0.0), axis=0) - 1.0) / tl.sum(is_kept.to(tl.float32), axis=0)
    tl.store(y + at, tl.maximum(v - low, 0.0).to(y.dtype.element_ty))


def sparsemax_by_bisection():
    """Sparsemax of rows: 40 halvings of where it begins, or six steps of Newton's."""
    x = torch.randn(16384, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def run(fixed):
        kernel, turns = (sparsemax_by_bisection_fix, 6) if fixed else (sparsemax_by_bisection_fault, 40)
        kernel[(16384,)](x, y, 8192, TURNS=turns, BLOCK=8192, num_warps=8)
        return y

    return run


@triton.jit
def nearest_centroids_fault(x, centroids, best, points, count, D: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    own = tl.program_id(0) * BP + tl.arange(0, BP)
    least, at = tl.full([BP], 1e30, tl.float32), tl.zeros([BP], tl.int32)
    for first in range(0, count, BC):
        others, distance = first + tl.arange(0, BC), tl.zeros([BP, BC], tl.float32)
        for d in range(D):
            apart = tl.load(x + d * points + own)[:, None] - tl.load(centroids + d * count + others)[None, :]
            distance += apart * apart
        near, place = tl.min(distance, axis=1), tl.argmin(distance, axis=1)
        at = tl.where(near < least, first + place, at)
        least = tl.minimum(near, least)
    tl.store(best + own, at)


@triton.jit
def nearest_centroids_fix(
    x, centroids, lengths, best, points, count, D: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    own, depth = tl.program_id(0) * BP + tl.arange(0, BP), tl.arange(0, D)
    mine = tl.trans(tl.load(x + depth[:, None] * points + own[None, :]))
    least, at = tl.full([BP], 1e30, tl.float32), tl.zeros([BP], tl.int32)
    for first in range(0, count, BC):
        others = first + tl.arange(0, BC)
        along = tl.dot(mine, tl.load(centroids + depth[:, None] * count + others[None, :]))
        distance = tl.load(lengths + others)[None, :] - 2.0 * along
        near, place = tl.min(distance, axis=1), tl.argmin(distance, axis=1)
        at = tl.where(near < least, first + place, at)
        least = tl.minimum(near, least)
    tl.store(best + own, at)


def nearest_centroids():
    """The nearest of 1,024 centroids for each point: squares of differences, or a product in TF32."""
    x, centroids = (torch.randint(-4, 5, (64, many), device="cuda").float() for many in (262144, 1024))
    lengths, best = (centroids * centroids).sum(0), torch.empty(262144, device="cuda", dtype=torch.int32)

    def run(fixed):
        if fixed:
            nearest_centroids_fix[(2048,)](x, centroids, lengths, best, 262144, 1024, D=64, BP=128, BC=64, num_warps=4)
        else:
            nearest_centroids_fault[(2048,)](x, centroids, best, 262144, 1024, D=64, BP=128, BC=64, num_warps=8)
        return best

    return run


@triton.jit
def tile_of_product(
    a, b, c, row, column, M, N, K, first, last, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ADDS: tl.constexpr
):
    rows, columns, depth = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), first + tl.arange(0, BK)
    at_a, at_b = a + rows[:, None] * K + depth[None, :], b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(first, last, BK):
        total = tl.dot(tl.load(at_a), tl.load(at_b), total)
        at_a += BK
        at_b += BK * N
    at = c + rows[:, None] * N + columns[None, :]
    if ADDS:
        tl.atomic_add(at, total)
    else:
        tl.store(at, total.to(c.dtype.element_ty))


@triton.jit
def matmul_tiles_too_wide_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, tl.program_id(0), tl.program_id(1), M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def matmul_tiles_too_wide_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, tl.program_id(0), tl.program_id(1), M, N, K, 0, K, BM, BN, BK, False)


def matmul_tiles_too_wide():
    """A product in tiles of 256 x 256 by four warps, or of 128 x 256 by eight."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def run(fixed):
        if fixed:
            matmul_tiles_too_wide_fix[(32, 16)](
                a, b, c, 4096, 4096, 4096, BM=128, BN=256, BK=64, num_warps=8, num_stages=3
            )
        else:
            matmul_tiles_too_wide_fault[(16, 16)](
                a, b, c, 4096, 4096, 4096, BM=256, BN=256, BK=64, num_warps=4, num_stages=2
            )
        return c

    return run


@triton.jit
def all_tiles(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    down = M // BM
    for tile in range(tl.program_id(0), down * (N // BN), tl.num_programs(0)):
        tile_of_product(a, b, c, tile % down, tile // down, M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def matmul_for_forty_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    all_tiles(a, b, c, M, N, K, BM, BN, BK)


@triton.jit
def matmul_for_forty_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    all_tiles(a, b, c, M, N, K, BM, BN, BK)


def matmul_for_forty():
    """A persistent product whose number of SMs, 40, was written down on another GPU, or is asked for."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c, here = torch.empty_like(a), torch.cuda.get_device_properties(0).multi_processor_count

    def run(fixed):
        kernel, programs = (matmul_for_forty_fix, here) if fixed else (matmul_for_forty_fault, 40)
        kernel[(programs,)](a, b, c, 4096, 4096, 4096, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
        return c

    return run


@triton.jit
def product_by_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for depth in range(0, K, BK):
        total = tl.dot(a.load([row, depth]), b.load([depth, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def matmul_by_descriptors_fault(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product_by_descriptors(a, b, c, K, BM, BN, BK)


@triton.jit
def matmul_by_descriptors_fix(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product_by_descriptors(a, b, c, K, BM, BN, BK)


def matmul_by_descriptors():
    """A product whose tiles come by TMA: each is waited for, or three are on the way."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    given = [TensorDescriptor.from_tensor(*one) for one in ((a, [128, 32]), (b, [32, 256]), (c, [128, 256]))]

    def run(fixed):
        kernel, stages = (matmul_by_descriptors_fix, 4) if fixed else (matmul_by_descriptors_fault, 1)
        kernel[(32, 16)](*given, 4096, BM=128, BN=256, BK=32, num_warps=8, num_stages=stages)
        return c

    return run


@triton.jit
def skinny_product_fault(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a, b, c, 0, tl.program_id(0), M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def skinny_product_fix(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first = tl.program_id(1) * (K // PARTS)
    tile_of_product(a, b, c, 0, tl.program_id(0), M, N, K, first, first + K // PARTS, BM, BN, BK, True)


def skinny_product():
    """16 rows by weights of 28,672 x 1,024: in eight programs, or each depth in 32 parts."""
    a, b = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((16, 28672), (28672, 1024)))
    c = torch.empty(16, 1024, device="cuda")

    def run(fixed):
        if fixed:
            c.zero_()
            skinny_product_fix[(8, 32)](
                a, b, c, 16, 1024, 28672, PARTS=32, BM=16, BN=128, BK=64, num_warps=4, num_stages=4
            )
        else:
            skinny_product_fault[(8,)](
                a, b, c, 16, 1024, 28672, PARTS=1, BM=16, BN=128, BK=64, num_warps=4, num_stages=4
            )
        return c

    return run


@triton.jit
def sum_of_parts(parts, bias, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(bias + at % 4096).to(tl.float32)
    for part in range(PARTS):
        total += tl.load(parts + part * n + at).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty))


@triton.jit
def partials_in_fp32_fault(parts, bias, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    sum_of_parts(parts, bias, out, n, PARTS, BLOCK)


@triton.jit
def partials_in_fp32_fix(parts, bias, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    sum_of_parts(parts, bias, out, n, PARTS, BLOCK)


def partials_in_fp32():
    """What a split-k product ends with: 16 partial results in fp32 are summed, or in bf16."""
    wide, bias = torch.randn(16, 4096 * 4096, device="cuda"), torch.randn(4096, device="cuda")
    narrow, out = wide.bfloat16(), torch.empty(4096 * 4096, device="cuda", dtype=torch.bfloat16)

    def run(fixed):
        kernel, parts = (partials_in_fp32_fix, narrow) if fixed else (partials_in_fp32_fault, wide)
        kernel[(16384,)](parts, bias, out, 4096 * 4096, PARTS=16, BLOCK=1024, num_warps=4)
        return out

    return run


@triton.jit
def attended_causally(q, k, v, out, keys, last, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head, rows, within = tl.program_id(1) * keys * D, tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + within[None, :])
    most, total, found = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    for first in range(0, last, BN):
        columns = first + tl.arange(0, BN)
        at = head + columns[:, None] * D + within[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + at))) * 0.1803
        scores = tl.where(columns[None, :] <= rows[:, None], scores, -1e30)
        now = tl.maximum(most, tl.max(scores, axis=1))
        p, kept = tl.exp2(scores - now[:, None]), tl.exp2(most - now)
        total = total * kept + tl.sum(p, axis=1)
        found = tl.dot(p.to(v.dtype.element_ty), tl.load(v + at), found * kept[:, None])
        most = now
    tl.store(out + head + rows[:, None] * D + within[None, :], (found / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def causal_by_mask_fault(q, k, v, out, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    attended_causally(q, k, v, out, keys, keys, D, BM, BN)


@triton.jit
def causal_by_mask_fix(q, k, v, out, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    attended_causally(q, k, v, out, keys, (tl.program_id(0) + 1) * BM, D, BM, BN)


def causal_by_mask():
    """Causal attention that works out every key and masks half of them, or ends at the diagonal."""
    q, k, v = (torch.randn(96, 4096, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)

    def run(fixed):
        kernel = causal_by_mask_fix if fixed else causal_by_mask_fault
        kernel[(32, 96)](q, k, v, out, 4096, D=64, BM=128, BN=64, num_warps=4, num_stages=3)
        return out

    return run


@triton.jit
def type_embedding_gradient_fault(dy, types, dw, D: tl.constexpr, EACH: tl.constexpr):
    columns = tl.arange(0, D)
    for token in range(tl.program_id(0) * EACH, (tl.program_id(0) + 1) * EACH):
        row = tl.load(types + token)
        tl.atomic_add(dw + row * D + columns, tl.load(dy + token * D + columns).to(tl.float32), sem="relaxed")


@triton.jit
def type_embedding_gradient_fix(dy, types, dw, D: tl.constexpr, EACH: tl.constexpr):
    columns, of_first, of_all = tl.arange(0, D), tl.zeros([D], tl.float32), tl.zeros([D], tl.float32)
    for first in range(tl.program_id(0) * EACH, (tl.program_id(0) + 1) * EACH, 16):
        tokens = first + tl.arange(0, 16)
        given = tl.load(dy + tokens[:, None] * D + columns[None, :]).to(tl.float32)
        of_all += tl.sum(given, axis=0)
        of_first += tl.sum(tl.where(tl.load(types + tokens)[:, None] == 0, given, 0.0), axis=0)
    tl.atomic_add(dw + columns, of_first, sem="relaxed")
    tl.atomic_add(dw + D + columns, of_all - of_first, sem="relaxed")


def type_embedding_gradient():
    """The gradient of an embedding of two types of tokens: added for each token, or for 256."""
    dy = torch.randint(-3, 4, (524288, 256), device="cuda").bfloat16()
    types, dw = torch.randint(2, (524288,), device="cuda", dtype=torch.int32), torch.empty(2, 256, device="cuda")

    def run(fixed):
        dw.zero_()
        if fixed:
            type_embedding_gradient_fix[(2048,)](dy, types, dw, D=256, EACH=256, num_warps=4)
        else:
            type_embedding_gradient_fault[(32768,)](dy, types, dw, D=256, EACH=16, num_warps=2)
        return dw

    return run


@triton.jit
def summed_over_time(x, y, carried, columns, first, last, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for time in range(first, last, SPAN):
        at = (time + tl.arange(0, SPAN))[:, None] * columns + own[None, :]
        v = tl.load(x + at)
        tl.store(y + at, carried[None, :] + tl.cumsum(v, axis=0))
        carried += tl.sum(v, axis=0)


@triton.jit
def cumsum_over_time_fault(x, y, times, columns, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    summed_over_time(x, y, tl.zeros([BLOCK], tl.float32), columns, 0, times, SPAN, BLOCK)


@triton.jit
def totals_over_time(x, totals, times, columns, PARTS: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    own, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.float32)
    first = tl.program_id(1) * (times // PARTS)
    for time in range(first, first + times // PARTS, SPAN):
        total += tl.sum(tl.load(x + (time + tl.arange(0, SPAN))[:, None] * columns + own[None, :]), axis=0)
    tl.store(totals + tl.program_id(1) * columns + own, total)


@triton.jit
def cumsum_over_time_fix(x, totals, y, times, columns, PARTS: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    own, parts = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PARTS)[:, None]
    before = tl.load(totals + parts * columns + own[None, :], mask=parts < tl.program_id(1), other=0.0)
    first = tl.program_id(1) * (times // PARTS)
    summed_over_time(x, y, tl.sum(before, axis=0), columns, first, first + times // PARTS, SPAN, BLOCK)


def cumsum_over_time():
    """Running sums of 1,024 columns over 65,536 steps: a program to 64 columns, or to a 64th of their time."""
    x = torch.randint(-3, 4, (65536, 1024), device="cuda").float()
    y, totals = torch.empty_like(x), torch.empty(64, 1024, device="cuda")

    def run(fixed):
        if fixed:
            totals_over_time[(16, 64)](x, totals, 65536, 1024, PARTS=64, SPAN=32, BLOCK=64, num_warps=4)
            cumsum_over_time_fix[(16, 64)](x, totals, y, 65536, 1024, PARTS=64, SPAN=32, BLOCK=64, num_warps=4)
        else:
            cumsum_over_time_fault[(16,)](x, y, 65536, 1024, SPAN=32, BLOCK=64, num_warps=4)
        return y

    return run


@triton.jit
def adam_step(p, g, m, v, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slope = tl.load(g + at).to(tl.float32)
    mean = tl.load(m + at).to(tl.float32) * 0.9 + slope * 0.1
    square = tl.load(v + at).to(tl.float32) * 0.95 + slope * slope * 0.05
    tl.store(m + at, mean.to(m.dtype.element_ty))
    tl.store(v + at, square.to(v.dtype.element_ty))
    tl.store(p + at, tl.load(p + at) - 1e-4 * mean / (tl.sqrt(square) + 1e-8))


@triton.jit
def adam_states_wide_fault(p, g, m, v, BLOCK: tl.constexpr):
    adam_step(p, g, m, v, BLOCK)


@triton.jit
def adam_states_wide_fix(p, g, m, v, BLOCK: tl.constexpr):
    adam_step(p, g, m, v, BLOCK)


def adam_states_wide():
    """A step of Adam with its moments in fp32, or in bf16."""
    p, g = torch.randn(1 << 26, device="cuda"), torch.randn(1 << 26, device="cuda", dtype=torch.bfloat16)
    moments = {fixed: [torch.zeros_like(kind) for _ in range(2)] for fixed, kind in ((False, p), (True, g))}

    def run(fixed):
        (adam_states_wide_fix if fixed else adam_states_wide_fault)[(65536,)](
            p, g, *moments[fixed], BLOCK=1024, num_warps=4
        )
        return p

    return run


if __name__ == "__main__":
    main(
        residual_norm_in_fp32,
        norm_of_channels,
        sparsemax_by_bisection,
        nearest_centroids,
        matmul_tiles_too_wide,
        matmul_for_forty,
        matmul_by_descriptors,
        skinny_product,
        partials_in_fp32,
        causal_by_mask,
        type_embedding_gradient,
        cumsum_over_time,
        adam_states_wide,
        queued_cycles=400_000,
    )
