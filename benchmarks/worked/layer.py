"""One transformer layer, batch 1, 2048 tokens, hidden 4096, MLP 11008, fp16: one flag per change.

    python -m benchmarks.worked.layer [--fused] [--streams | --one-gemm] [--lt] [--transposed] [--graph] [--steps N]

Every run first compares its output with the same layer in fp32 and ends where they differ by more than half a percent.
Each call is waited for before the next one begins, as a server that answers one request does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.worked.fused_kernels import fused_add_rms_norm, fused_rms_norm, fused_silu_times, rms_norm
from benchmarks.worked.loop import Place, agreement, answer_each, train
from torch import Tensor

TOLERANCE = 5e-3
WARM_UP, CHECK_STEP = 3, 10


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the layer."""

    tokens: int
    hidden: int
    inner: int
    heads: int

    @classmethod
    def of(cls, place: Place) -> Shape:
        return cls(place.size(2048, 32), place.size(4096, 64), place.size(11008, 176), place.size(32, 4))


@dataclass(frozen=True, slots=True)
class Weights:
    """Matrices as [out, in]."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor

    @classmethod
    def random(cls, shape: Shape, place: Place) -> Weights:
        drawn = torch.Generator(place.device).manual_seed(0)
        dtype = torch.float32 if place.dry else torch.float16

        def matrix(rows: int, columns: int) -> Tensor:
            wide = torch.randn(rows, columns, generator=drawn, device=place.device)
            return (wide * columns**-0.5).to(dtype)

        h, f = shape.hidden, shape.inner
        ones = torch.ones(h, device=place.device, dtype=dtype)
        return cls(ones, matrix(3 * h, h), matrix(h, h), ones, matrix(f, h), matrix(f, h), matrix(h, f))

    def wide(self) -> Weights:
        return Weights(*(getattr(self, name).float() for name in self.__slots__))


def attention(qkv: Tensor, heads: int) -> Tensor:
    tokens, width = qkv.shape[0], qkv.shape[1] // 3
    query, key, value = qkv.view(1, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
    attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return attended.transpose(1, 2).reshape(tokens, width)


def plain(hidden: Tensor, weights: Weights, heads: int) -> Tensor:
    """The layer as model code writes it."""
    qkv = F.linear(rms_norm(hidden, weights.norm1), weights.qkv)
    hidden = hidden + F.linear(attention(qkv, heads), weights.out)
    normed = rms_norm(hidden, weights.norm2)
    gate, up = F.linear(normed, weights.gate), F.linear(normed, weights.up)
    return hidden + F.linear(F.silu(gate) * up, weights.down)


def layer(given: argparse.Namespace, weights: Weights, heads: int) -> Callable[[Tensor], Tensor]:
    """The layer with the changes that were asked for."""
    ready = {name: ordered(given, getattr(weights, name)) for name in ("qkv", "out", "gate", "up", "down")}
    both = ordered(given, torch.cat([weights.gate, weights.up])) if given.one_gemm else None
    inner = weights.gate.shape[0]
    side = torch.cuda.Stream() if given.streams and weights.gate.is_cuda else None

    def gate_and_up(normed: Tensor) -> tuple[Tensor, Tensor]:
        if both is not None:
            joined = F.linear(normed, both)
            return joined[:, :inner], joined[:, inner:]
        if side is None:
            return F.linear(normed, ready["gate"]), F.linear(normed, ready["up"])
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            up = F.linear(normed, ready["up"])
        gate = F.linear(normed, ready["gate"])
        main.wait_stream(side)
        up.record_stream(main)
        return gate, up

    def run(hidden: Tensor) -> Tensor:
        normed = fused_rms_norm(hidden, weights.norm1) if given.fused else rms_norm(hidden, weights.norm1)
        update = F.linear(attention(F.linear(normed, ready["qkv"]), heads), ready["out"])
        if given.fused:
            hidden, normed = fused_add_rms_norm(hidden, update, weights.norm2)
        else:
            hidden = hidden + update
            normed = rms_norm(hidden, weights.norm2)
        gate, up = gate_and_up(normed)
        activated = fused_silu_times(gate, up) if given.fused else F.silu(gate) * up
        return hidden + F.linear(activated, ready["down"])

    return run


def ordered(given: argparse.Namespace, matrix: Tensor) -> Tensor:
    """The same matrix; --transposed: stored as [in, out], so that the product reads it along its rows."""
    return matrix.t().contiguous().t() if given.transposed else matrix


def graphed(run: Callable[[Tensor], Tensor], hidden: Tensor) -> Callable[[], Tensor]:
    """The layer's launches recorded once; a replay launches all of them."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(WARM_UP):
            run(hidden)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run(hidden)

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def first_of(output: Tensor) -> Tensor:
    """One number of the output, which the run hands over as its check."""
    return output[0, 0].float()


@torch.inference_mode()
def main() -> None:
    given = parsed()
    place = Place.of(given.dry)
    shape = Shape.of(place)
    weights = Weights.random(shape, place)
    hidden = torch.randn(shape.tokens, shape.hidden, generator=torch.Generator().manual_seed(1))
    hidden = hidden.to(place.device, weights.qkv.dtype)
    expected = plain(hidden.float(), weights.wide(), shape.heads)
    if given.lt and not place.dry:
        torch.backends.cuda.preferred_blas_library("cublaslt")
    run = layer(given, weights, shape.heads)
    step = graphed(run, hidden) if given.graph and not given.compile and not place.dry else lambda: run(hidden)
    if given.compile:
        backend, mode = ("aot_eager", None) if place.dry else ("inductor", "reduce-overhead" if given.graph else None)
        step = partial(torch.compile(run, backend=backend, mode=mode), hidden)
    error = float((step().float() - expected).norm() / expected.norm())
    check = agreement(error, TOLERANCE, "output against fp32")
    del expected
    if given.ahead:
        train(lambda: first_of(step()), given.steps, place, CHECK_STEP)
    else:
        answer_each(step, given.steps, place, check)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fused", action="store_true", help="norms and SiLU times up in one Triton kernel each")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--streams", action="store_true", help="gate and up on two streams")
    ways.add_argument("--one-gemm", action="store_true", help="gate and up as one product")
    parser.add_argument("--lt", action="store_true", help="products by cuBLASLt")
    parser.add_argument("--transposed", action="store_true", help="matrices stored as [in, out]")
    parser.add_argument("--graph", action="store_true", help="the layer as one CUDA graph; compiled, by the compiler")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the layer as it is written")
    parser.add_argument("--ahead", action="store_true", help="a request is launched while the one before is computed")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does it run?")
    return parser.parse_args()


if __name__ == "__main__":
    main()
