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
def normalised(x, weight, y, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + columns).to(tl.float32)
    centred = v - tl.sum(v, axis=0) / n
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + 1e-5)
    tl.store(y + row * n + columns, centred * scale * tl.load(weight + columns))


@triton.jit
def layer_norm_wide_fault(x, weight, y, n, BLOCK: tl.constexpr):
    normalised(x, weight, y, n, BLOCK)


@triton.jit
def layer_norm_wide_fix(x, weight, y, n, BLOCK: tl.constexpr):
    normalised(x, weight, y, n, BLOCK)


def layer_norm_wide():
    """A layer norm in fp32, or in bf16."""
    x, weight = torch.randn(32768, 4096, device="cuda"), torch.randn(4096, device="cuda")
    wide, narrow = (x, torch.empty_like(x)), (x.bfloat16(), torch.empty_like(x, dtype=torch.bfloat16))

    def run(fixed):
        given, found = narrow if fixed else wide
        (layer_norm_wide_fix if fixed else layer_norm_wide_fault)[(32768,)](
            given, weight, found, 4096, BLOCK=4096, num_warps=8
        )
        return found

    return run


@triton.jit
def norm_in_four_warps_fault(x, weight, y, n, BLOCK: tl.constexpr):
    normalised(x, weight, y, n, BLOCK)


@triton.jit
def norm_in_four_warps_fix(x, weight, y, n, BLOCK: tl.constexpr):
    normalised(x, weight, y, n, BLOCK)


def norm_in_four_warps():
    """A layer norm of long rows in the registers of four warps, or of sixteen."""
    x, weight = torch.randn(4096, 32768, device="cuda"), torch.randn(32768, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        if fixed:
            norm_in_four_warps_fix[(4096,)](x, weight, y, 32768, BLOCK=32768, num_warps=16)
        else:
            norm_in_four_warps_fault[(4096,)](x, weight, y, 32768, BLOCK=32768, num_warps=4)
        return y

    return run


@triton.jit
def softmax_of_columns_fault(x, y, rows, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) * width + tl.program_id(0)
    v = tl.load(x + at)
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + at, v / tl.sum(v, axis=0))


@triton.jit
def softmax_of_columns_fix(x, y, rows, width, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * 32 + tl.arange(0, 32)
    most, total = tl.full([32], -1e30, tl.float32), tl.zeros([32], tl.float32)
    for first in range(0, rows, BLOCK):
        v = tl.load(x + (first + tl.arange(0, BLOCK))[:, None] * width + columns[None, :])
        now = tl.maximum(most, tl.max(v, axis=0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(v - now[None, :]), axis=0)
        most = now
    for first in range(0, rows, BLOCK):
        at = (first + tl.arange(0, BLOCK))[:, None] * width + columns[None, :]
        tl.store(y + at, tl.exp(tl.load(x + at) - most[None, :]) / total[None, :])


def softmax_of_columns():
    """A softmax along the columns: a program to one column, or to 32."""
    x = torch.randn(4096, 8192, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        if fixed:
            softmax_of_columns_fix[(256,)](x, y, 4096, 8192, BLOCK=128, num_warps=8)
        else:
            softmax_of_columns_fault[(8192,)](x, y, 4096, 8192, BLOCK=4096, num_warps=8)
        return y

    return run


@triton.jit
def gradient_of_row(x, g, n, target, most, total, BLOCK: tl.constexpr):
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=-1e30).to(tl.float32)
        tl.store(g + at, tl.exp(v - most) / total - tl.where(at == target, 1.0, 0.0), mask=at < n)


@triton.jit
def cross_entropy_passes_fault(logits, targets, gradient, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = logits + row * n
    most, total = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(x + at, mask=at < n, other=-1e30).to(tl.float32))
    largest = tl.max(most, axis=0)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x + at, mask=at < n, other=-1e30).to(tl.float32) - largest)
    gradient_of_row(x, gradient + row * n, n, tl.load(targets + row), largest, tl.sum(total, axis=0), BLOCK)


@triton.jit
def cross_entropy_passes_fix(logits, targets, gradient, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = logits + row * n
    most, total = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=-1e30).to(tl.float32)
        now = tl.maximum(most, v)
        total = total * tl.exp(most - now) + tl.exp(v - now)
        most = now
    largest = tl.max(most, axis=0)
    total *= tl.exp(most - largest)
    gradient_of_row(x, gradient + row * n, n, tl.load(targets + row), largest, tl.sum(total, axis=0), BLOCK)


def cross_entropy_passes():
    """The gradient of a cross entropy over a large vocabulary in three passes over the logits, or in two."""
    logits = torch.randn(2048, 128256, device="cuda", dtype=torch.bfloat16)
    targets, gradient = torch.randint(128256, (2048,), device="cuda"), torch.empty_like(logits)

    def run(fixed):
        kernel = cross_entropy_passes_fix if fixed else cross_entropy_passes_fault
        kernel[(2048,)](logits, targets, gradient, 128256, BLOCK=4096, num_warps=8)
        return gradient

    return run


@triton.jit
def product(a, b, c, M, N, K, first, last, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ADDS: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = first + tl.arange(0, BK)
    at_a, at_b = a + rows[:, None] * K + depth[None, :], b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(first, last, BK):
        total = tl.dot(tl.load(at_a), tl.load(at_b), total)
        at_a += BK
        at_b += BK * N
    if ADDS:
        tl.atomic_add(c + rows[:, None] * N + columns[None, :], total)
    else:
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def matmul_small_tiles_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def matmul_small_tiles_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False)


def matmul_small_tiles():
    """A product in tiles of 32 x 32, or of 128 x 128."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def run(fixed):
        if fixed:
            matmul_small_tiles_fix[(32, 32)](
                a, b, c, 4096, 4096, 4096, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
            )
        else:
            matmul_small_tiles_fault[(128, 128)](
                a, b, c, 4096, 4096, 4096, BM=32, BN=32, BK=32, num_warps=4, num_stages=3
            )
        return c

    return run


@triton.jit
def matmul_one_stage_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def matmul_one_stage_fix(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False)


def matmul_one_stage():
    """A product that waits for each tile, or has four on the way."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def run(fixed):
        if fixed:
            matmul_one_stage_fix[(32, 16)](a, b, c, 4096, 4096, 4096, BM=128, BN=256, BK=32, num_warps=8, num_stages=4)
        else:
            matmul_one_stage_fault[(32, 16)](
                a, b, c, 4096, 4096, 4096, BM=128, BN=256, BK=32, num_warps=8, num_stages=1
            )
        return c

    return run


@triton.jit
def deep_product_fault(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    product(a, b, c, M, N, K, 0, K, BM, BN, BK, False)


@triton.jit
def deep_product_fix(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    part = K // PARTS
    first = tl.program_id(2) * part
    product(a, b, c, M, N, K, first, first + part, BM, BN, BK, True)


def deep_product():
    """A product of few results over a great depth: whole, or in 64 parts."""
    a = torch.randn(256, 131072, device="cuda", dtype=torch.float16)
    b = torch.randn(131072, 256, device="cuda", dtype=torch.float16)
    c = torch.empty(256, 256, device="cuda")

    def run(fixed):
        if fixed:
            c.zero_()
            deep_product_fix[(2, 2, 64)](
                a, b, c, 256, 256, 131072, PARTS=64, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
            )
        else:
            deep_product_fault[(2, 2)](a, b, c, 256, 256, 131072, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
        return c

    return run


@triton.jit
def attended(q, k, v, first, last, D: tl.constexpr, BLOCK: tl.constexpr):
    within = tl.arange(0, D)
    query = tl.load(q + within).to(tl.float32)
    most, total, found = -1e30, 0.0, tl.zeros([D], tl.float32)
    for key in range(first, last, BLOCK):
        at = (key + tl.arange(0, BLOCK))[:, None] * D + within[None, :]
        scores = tl.sum(tl.load(k + at).to(tl.float32) * query[None, :], axis=1) * 0.0884
        now = tl.maximum(most, tl.max(scores, axis=0))
        p, kept = tl.exp(scores - now), tl.exp(most - now)
        total = total * kept + tl.sum(p, axis=0)
        found = found * kept + tl.sum(p[:, None] * tl.load(v + at).to(tl.float32), axis=0)
        most = now
    return most, total, found


@triton.jit
def decode_attention_fault(q, k, v, out, keys, D: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(0)
    _, total, found = attended(q + head * D, k + head * keys * D, v + head * keys * D, 0, keys, D, BLOCK)
    tl.store(out + head * D + tl.arange(0, D), found / total)


@triton.jit
def decode_attention_fix(q, k, v, parts, keys, PARTS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    head, part = tl.program_id(0), tl.program_id(1)
    first = part * (keys // PARTS)
    most, total, found = attended(
        q + head * D, k + head * keys * D, v + head * keys * D, first, first + keys // PARTS, D, BLOCK
    )
    to = parts + (head * PARTS + part) * (D + 2)
    tl.store(to + tl.arange(0, D), found)
    tl.store(to + D, most)
    tl.store(to + D + 1, total)


@triton.jit
def decode_attention_joined(parts, out, PARTS: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    of_part = parts + (head * PARTS + tl.arange(0, PARTS)) * (D + 2)
    most = tl.load(of_part + D)
    scale = tl.exp(most - tl.max(most, axis=0))
    found = tl.load(of_part[:, None] + tl.arange(0, D)[None, :]) * scale[:, None]
    tl.store(out + head * D + tl.arange(0, D), tl.sum(found, axis=0) / tl.sum(tl.load(of_part + D + 1) * scale, axis=0))


def decode_attention():
    """One query against many keys: a program to each head, or 64."""
    q = torch.randn(8, 128, device="cuda", dtype=torch.float16)
    k, v = (torch.randn(8, 65536, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    parts, out = torch.empty(8, 64, 130, device="cuda"), torch.empty(8, 128, device="cuda")

    def run(fixed):
        if fixed:
            decode_attention_fix[(8, 64)](q, k, v, parts, 65536, PARTS=64, D=128, BLOCK=64, num_warps=4)
            decode_attention_joined[(8,)](parts, out, PARTS=64, D=128)
        else:
            decode_attention_fault[(8,)](q, k, v, out, 65536, D=128, BLOCK=64, num_warps=4)
        return out

    return run


@triton.jit
def histogram_by_atomics_fault(x, bins, BLOCK: tl.constexpr):
    tl.atomic_add(bins + tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 1)


@triton.jit
def histogram_by_atomics_fix(x, bins, BLOCK: tl.constexpr):
    found = tl.histogram(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 64)
    tl.atomic_add(bins + tl.arange(0, 64), found)


def histogram_by_atomics():
    """Values counted in 64 bins one by one, or those of a program together."""
    x = torch.randint(64, (1 << 24,), device="cuda", dtype=torch.int32)
    bins = torch.empty(64, device="cuda", dtype=torch.int32)

    def run(fixed):
        bins.zero_()
        (histogram_by_atomics_fix if fixed else histogram_by_atomics_fault)[(4096,)](x, bins, BLOCK=4096, num_warps=4)
        return bins

    return run


@triton.jit
def pooled(tokens, first, last, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    columns, total = tl.arange(0, WIDTH), tl.zeros([WIDTH], tl.float32)
    for row in range(first, last, ROWS):
        rows = (row + tl.arange(0, ROWS)).to(tl.int64)
        v = tl.load(tokens + rows[:, None] * WIDTH + columns[None, :], mask=rows[:, None] < last, other=0.0)
        total += tl.sum(v.to(tl.float32), axis=0)
    return total


@triton.jit
def ragged_pooling_fault(tokens, starts, out, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    sequence = tl.program_id(0)
    first, last = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    tl.store(out + sequence * WIDTH + tl.arange(0, WIDTH), pooled(tokens, first, last, WIDTH, ROWS))


@triton.jit
def ragged_pooling_fix(tokens, pieces, out, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    piece = pieces + tl.program_id(0) * 3
    sequence, first, last = tl.load(piece), tl.load(piece + 1), tl.load(piece + 2)
    tl.atomic_add(out + sequence * WIDTH + tl.arange(0, WIDTH), pooled(tokens, first, last, WIDTH, ROWS))


def ragged_pooling():
    """Sums over sequences, one of them long: a program to a sequence, or to 256 tokens."""
    lengths = [300] * 512 + [204800] + [300] * 511
    starts = torch.tensor([0, *lengths]).cumsum(0)
    spans = [(i, starts[i].item(), starts[i + 1].item()) for i in range(1024)]
    pieces = [(i, at, min(at + 256, last)) for i, first, last in spans for at in range(first, last, 256)]
    starts, table = starts.int().cuda(), torch.tensor(pieces, dtype=torch.int32).cuda()
    tokens = torch.randn(sum(lengths), 512, device="cuda", dtype=torch.float16)
    out = torch.empty(1024, 512, device="cuda")

    def run(fixed):
        if fixed:
            out.zero_()
            ragged_pooling_fix[(len(pieces),)](tokens, table, out, WIDTH=512, ROWS=16, num_warps=4)
        else:
            ragged_pooling_fault[(1024,)](tokens, starts, out, WIDTH=512, ROWS=16, num_warps=4)
        return out

    return run


@triton.jit
def running_totals_fault(x, y, steps, width, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(steps):
        total += tl.load(x + at)
        tl.store(y + at, total)
        at += width


@triton.jit
def running_totals_fix(x, y, steps, width, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, steps, AT_ONCE):
        at = (first + tl.arange(0, AT_ONCE)).to(tl.int64)[:, None] * width + columns[None, :]
        v = tl.load(x + at)
        tl.store(y + at, tl.cumsum(v, axis=0) + total[None, :])
        total += tl.sum(v, axis=0)


def running_totals():
    """A running sum over 2,048 steps: a step to a turn, or 64."""
    x = torch.rand(2048, 132 * 512, device="cuda")
    y = torch.empty_like(x)

    def run(fixed):
        kernel = running_totals_fix if fixed else running_totals_fault
        kernel[(132 * 4,)](x, y, 2048, 132 * 512, BLOCK=128, AT_ONCE=64, num_warps=4)
        return y

    return run


@triton.jit
def top_by_rounds_fault(x, out, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * n + tl.arange(0, BLOCK))
    for rank in range(K):
        most = tl.max(v, axis=0)
        tl.store(out + row * K + rank, most)
        v = tl.where(v == most, -float("inf"), v)


@triton.jit
def top_by_rounds_fix(x, out, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * n + tl.arange(0, BLOCK))
    tl.store(out + row * K + tl.arange(0, K), tl.topk(v, K))


def top_by_rounds():
    """The 128 largest of each row: round by round, or by a partial sort."""
    x, out = torch.rand(4096, 4096, device="cuda"), torch.empty(4096, 128, device="cuda")

    def run(fixed):
        (top_by_rounds_fix if fixed else top_by_rounds_fault)[(4096,)](x, out, 4096, K=128, BLOCK=4096, num_warps=4)
        return out

    return run


@triton.jit
def quantised_transposed_fault(x, y, rows, width, scale, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * width + columns).to(tl.float32) * scale
    tl.store(y + columns * rows + row, v.to(tl.float8e4nv))


@triton.jit
def quantised_transposed_fix(x, y, rows, width, scale, BLOCK: tl.constexpr):
    down = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + down[:, None] * width + columns[None, :]).to(tl.float32) * scale
    tl.store(y + columns[:, None] * rows + down[None, :], tl.trans(v.to(tl.float8e4nv)))


def quantised_transposed():
    """A matrix in FP8, stored transposed: row by row, or tile by tile."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(8192, 8192, device="cuda", dtype=torch.float8_e4m3fn)

    def run(fixed):
        if fixed:
            quantised_transposed_fix[(128, 128)](x, y, 8192, 8192, 16.0, BLOCK=64, num_warps=4)
        else:
            quantised_transposed_fault[(8192, 8)](x, y, 8192, 8192, 16.0, BLOCK=1024, num_warps=4)
        return y

    return run


@triton.jit
def dropout_by_word_fault(x, y, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, at // 4)
    word = tl.where(at % 4 == 0, a, tl.where(at % 4 == 1, b, tl.where(at % 4 == 2, c, d)))
    tl.store(y + at, tl.where(word & 1 == 0, tl.load(x + at) * 2, 0.0))


@triton.jit
def dropout_by_word_fix(x, y, seed, BLOCK: tl.constexpr):
    a, b, c, d = tl.randint4x(seed, tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4))
    word = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK])
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.where(word & 1 == 0, tl.load(x + at) * 2, 0.0))


def dropout_by_word():
    """Dropout with four random words made for each value, or for four."""
    x = torch.randn(1 << 26, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)

    def run(fixed):
        (dropout_by_word_fix if fixed else dropout_by_word_fault)[(1 << 16,)](x, y, 7, BLOCK=1024, num_warps=4)
        return y

    return run


if __name__ == "__main__":
    main(
        layer_norm_wide,
        norm_in_four_warps,
        softmax_of_columns,
        cross_entropy_passes,
        matmul_small_tiles,
        matmul_one_stage,
        deep_product,
        decode_attention,
        histogram_by_atomics,
        ragged_pooling,
        running_totals,
        top_by_rounds,
        quantised_transposed,
        dropout_by_word,
        queued_cycles=400_000,
    )
