"""Programs of several ranks, each the same work done twice: with one planted fault, and with its fix.

A control has no fix. Every step returns a small tensor, its receipt: after equally many steps fault and fix owe equal
receipts, up to the rounding of another order of sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from benchmarks.ranks.pipeline import pipelined
from benchmarks.ranks.serving import served
from benchmarks.ranks.world import World
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Step = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Program:
    """`fix` is None for a control."""

    fault: Step
    fix: Step | None = None
    tolerance: float = 2e-2


def ddp_step(world: World, model: nn.Module, batch: Tensor, before: Callable[[], None] | None = None) -> Step:
    """One training step: forward, backward, an SGD update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step() -> Tensor:
        if before is not None:
            before()
        optimizer.zero_grad(set_to_none=True)
        with world.phase("forward"):
            loss = model(batch).float().square().mean()
        with world.phase("backward"):
            loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _ddp(world: World, layers: int, width: int, bucket_mb: float = 25) -> nn.Module:
    module = world.stack(layers, width)
    return DistributedDataParallel(module, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)


def _batch(world: World, tokens: int, width: int) -> Tensor:
    return world.random(world.pick(tokens), world.pick(width), seed=10 + world.rank)


def straggler_host(world: World) -> Program:
    """The last rank prepares its batch for 4 ms on the host in every step."""

    def late() -> None:
        if world.last:
            with world.phase("prepare_batch"):
                time.sleep(0.004)

    def make(before: Callable[[], None] | None) -> Step:
        return ddp_step(world, _ddp(world, 8, world.pick(4096)), _batch(world, 4096, 4096), before)

    return Program(make(late), make(None))


def straggler_device(world: World) -> Program:
    """The last rank's GPU does extra matrix products in every forward pass."""
    extra = world.random(world.pick(4096), world.pick(4096), seed=3)

    def slow() -> None:
        if world.last:
            with world.phase("extra_work"):
                for _ in range(10):
                    torch.mm(extra, extra)

    def make(before: Callable[[], None] | None) -> Step:
        return ddp_step(world, _ddp(world, 8, world.pick(4096)), _batch(world, 4096, 4096), before)

    return Program(make(slow), make(None))


def no_overlap(world: World) -> Program:
    """All gradients go in one all-reduce after the backward pass; the fix lets DDP send buckets during it."""
    width, layers = world.pick(4096), 8
    plain = world.stack(layers, width)
    batch = _batch(world, 2048, 4096)
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3, foreach=True)

    def fault() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with world.phase("forward"):
            loss = plain(batch).float().square().mean()
        with world.phase("backward"):
            loss.backward()
        with world.phase("exchange"):
            grads = [p.grad for p in plain.parameters()]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            dist.all_reduce(flat)
            flat /= world.size
            for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
                grad.copy_(part.view_as(grad))
        optimizer.step()
        return loss.detach()

    return Program(fault, ddp_step(world, _ddp(world, layers, width), batch))


def tiny_buckets(world: World) -> Program:
    """DDP sends a bucket for every small layer; the fix collects 25 MB."""
    width = world.pick(1024)
    batch = _batch(world, 4096, 1024)
    return Program(
        ddp_step(world, _ddp(world, 48, width, bucket_mb=0.05), batch),
        ddp_step(world, _ddp(world, 48, width), batch),
    )


def synchronised_exchange(world: World) -> Program:
    """The host waits for the device after each layer's all-reduce; the fix starts all of them and waits at the end."""
    width, layers = world.pick(2048), 16
    batch = _batch(world, 4096, 2048)

    def make(wait: bool) -> Step:
        model = world.stack(layers, width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = model(batch).float().square().mean()
            loss.backward()
            works = []
            for parameter in model.parameters():
                work = dist.all_reduce(parameter.grad, async_op=True)
                if wait:
                    work.wait()
                    world.synchronize()
                works.append(work)
            for work in works:
                work.wait()
            optimizer.step()
            return loss.detach()

        return step

    return Program(make(True), make(False))


def redundant_exchange(world: World) -> Program:
    """Gradients are exchanged after each of four micro-batches; the fix exchanges them after the last."""
    width, layers = world.pick(4096), 8
    parts = [world.random(world.pick(1024), width, seed=20 + 4 * world.rank + at) for at in range(4)]

    def make(every: bool) -> Step:
        model = _ddp(world, layers, width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def backward(part: Tensor) -> Tensor:
            loss = model(part).float().square().mean() / len(parts)
            loss.backward()
            return loss.detach()

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            total = torch.zeros((), device=world.device)
            for at, part in enumerate(parts):
                if every or at == len(parts) - 1:
                    total += backward(part)
                else:
                    with model.no_sync():
                        total += backward(part)
            optimizer.step()
            return total

        return step

    return Program(make(True), make(False))


def healthy_ddp(world: World) -> Program:
    """DDP with 25 MB buckets and enough work to hide them."""
    return Program(ddp_step(world, _ddp(world, 8, world.pick(4096)), _batch(world, 8192, 4096)))


def healthy_fsdp(world: World) -> Program:
    """FSDP2 with one group a layer and its usual prefetching."""
    from torch.distributed.fsdp import fully_shard

    width = world.pick(4096)
    model = world.stack(8, width)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return Program(ddp_step(world, model, _batch(world, 16384, 4096)))


def gathered_tensors(world: World) -> Program:
    """Tensor parallelism: each layer's output is gathered at once; the fix gathers a chunk while the next computes."""
    width, layers, chunks = world.pick(4096), 6, 4
    share = width // world.size
    weights = [world.random(width, share, seed=40 + at + 100 * world.rank) / width**0.5 for at in range(layers)]
    batch = world.random(world.pick(8192), width, seed=7)

    def gathered(part: Tensor, async_op: bool) -> tuple[Tensor, dist.Work | None]:
        whole = torch.empty(world.size * part.shape[0], part.shape[1], device=part.device, dtype=part.dtype)
        work = dist.all_gather_into_tensor(whole, part, async_op=async_op)
        return whole, work

    def joined(whole: Tensor) -> Tensor:
        return torch.cat(whole.chunk(world.size), dim=1)

    def fault() -> Tensor:
        x = batch
        for weight in weights:
            x = joined(gathered((x @ weight).relu_(), False)[0])
        return x.float().mean()

    def fix() -> Tensor:
        x = list(batch.chunk(chunks))
        for weight in weights:
            sent = [gathered((part @ weight).relu_(), True) for part in x]
            x = []
            for whole, work in sent:
                work.wait()
                x.append(joined(whole))
        return torch.cat(x).float().mean()

    return Program(fault, fix)


def pipeline(world: World) -> Program:
    """One micro-batch leaves all stages but one idle; the fix cuts the batch into eight."""
    return Program(pipelined(world, 1), pipelined(world, 8))


def serving(world: World) -> Program:
    """A stage starts an item when the one before has left the last stage; the fix keeps every stage busy."""
    return Program(served(world, True), served(world, False))


BUILDERS: dict[str, Callable[[World], Program]] = {
    build.__name__: build
    for build in (
        straggler_host, straggler_device, no_overlap, tiny_buckets, pipeline, serving, healthy_ddp, healthy_fsdp,
        gathered_tensors, synchronised_exchange, redundant_exchange,
    )
}  # fmt: skip
