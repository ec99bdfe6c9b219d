"""Exchanges that nothing hides: in line, too large, over a slow way; and one that is hidden and costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fourth.loops import Narrow
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, accumulating, adamw, place, training
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import layers, replicated, sequences, sharded
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

RATE = 1e-4


def trained(machine: Machine, model: nn.Module, width: int, tokens: int) -> Step:
    """A training step on the rank's own batch."""
    plain = training(machine, model, adamw(model.parameters(), lr=RATE))
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
    return lambda: plain(batch, target).float()


def exchanged_after_backward(_: str, machine: Machine) -> Program:
    """All gradients are averaged in one exchange after the backward pass; fixed, DDP's buckets during it."""
    width, tokens = machine.size(8192), machine.size(2048)

    def in_one() -> Step:
        model = place(machine, lambda: Mlp(width, 4))
        optimizer = adamw(model.parameters(), lr=RATE)
        batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
        weights = [*model.parameters()]
        flat = torch.zeros(sum(one.numel() for one in weights), dtype=weights[0].dtype, device=machine.device)
        for one, part in zip(weights, flat.split([one.numel() for one in weights]), strict=True):
            one.grad = part.view_as(one)

        def step() -> Tensor:
            flat.zero_()
            loss = F.mse_loss(model(batch), target)
            loss.backward()
            dist.all_reduce(flat)
            flat.div_(machine.ranks)
            optimizer.step()
            return loss.detach().float()

        return step

    overlapped = trained(machine, replicated(place(machine, lambda: Mlp(width, 4))), width, tokens)
    return Program(in_one(), overlapped, tolerance=2e-2)


def exchanged_in_fp32(_: str, machine: Machine) -> Program:
    """DDP exchanges the gradients of fp32 weights as they are; fixed, rounded to bf16 on their way."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    width, tokens = machine.size(8192), machine.size(2048)
    batch = machine.random(tokens, width, seed=machine.rank, dtype=torch.float32)
    target = machine.random(tokens, width, seed=9, dtype=torch.float32)

    def step_with(rounded: bool) -> Step:
        model = DistributedDataParallel(place(machine, lambda: Mlp(width, 3), torch.float32))
        if rounded and machine.cuda:
            model.register_comm_hook(None, bf16_compress_hook)
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            with torch.autocast(machine.device.type, torch.bfloat16):
                loss = F.mse_loss(model(batch).float(), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    return Program(step_with(rounded=False), step_with(rounded=True), tolerance=2e-2)


def one_channel(machine: Machine) -> dist.ProcessGroup | None:
    """The ranks as a group whose exchanges get one channel of the link."""
    if not machine.cuda:
        return dist.new_group()
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas = options.config.max_ctas = 1
    return dist.new_group(backend="nccl", pg_options=options)


def exchanged_on_one_channel(_: str, machine: Machine) -> Program:
    """NCCL may use one channel of the link; fixed, as many as it likes."""
    width, tokens = machine.size(4096), machine.size(4096)

    def step_over(group: dist.ProcessGroup | None) -> Step:
        model = place(machine, lambda: Mlp(width, 6))
        return trained(
            machine, DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True), width, tokens
        )

    return Program(step_over(one_channel(machine)), step_over(None), tolerance=2e-2)


def sharded_through_host(_: str, machine: Machine) -> Program:
    """Weights are sharded (FSDP2) and NCCL may not copy from GPU to GPU; fixed, it may (see `suite`)."""
    width, batch, length = machine.size(2048, 32), machine.size(8, 2), machine.size(1024)
    model = place(machine, lambda: layers(width, 16, 4))
    sharded(model, model)
    plain = training(machine, model, adamw(model.parameters(), lr=RATE))
    inputs = sequences(machine, batch, length, width)
    target = machine.random(*inputs.shape, seed=9)

    def step() -> Tensor:
        return plain(inputs, target).float()

    return Program(step, step, tolerance=2e-2)


def averaged_through_host(_: str, machine: Machine) -> Program:
    """DDP of wide products, and NCCL may not copy from GPU to GPU; fixed, it may (see `suite`)."""
    width, tokens = machine.size(8192), machine.size(4096)
    step = trained(machine, replicated(place(machine, lambda: Mlp(width, 3))), width, tokens)
    return Program(step, step, tolerance=2e-2)


def sharded_per_microbatch(_: str, machine: Machine) -> Program:
    """FSDP2 reduces gradients after each of four micro-batches; fixed, after the last."""
    width, length, count, parts = machine.size(4096, 32), machine.size(1024), machine.size(3, 2), 4
    inputs = [machine.random(1, length, width, seed=10 * machine.rank + part) for part in range(parts)]
    target = machine.random(1, length, width, seed=9)

    def step_with(every: bool) -> Step:
        model = place(machine, lambda: layers(width, 32, count))
        sharded(model, model)

        def exchange(part: int) -> AbstractContextManager[None]:
            model.set_requires_gradient_sync(every or part == parts - 1)
            return nullcontext()

        return accumulating(machine, model, inputs, target, RATE, exchange)

    return Program(step_with(every=True), step_with(every=False), tolerance=2e-2)


def exchanged_behind_late_host(_: str, machine: Machine) -> Program:
    """Behind a late host gradients are exchanged after each micro-batch; fixed, after the last, which wins little."""
    width, tokens, count, parts = machine.size(512), machine.size(512), machine.size(24, 2), 4
    inputs = [machine.random(tokens, width, seed=10 * machine.rank + part) for part in range(parts)]
    target = machine.random(tokens, width, seed=9)

    def step_with(every: bool) -> Step:
        model = replicated(place(machine, lambda: Narrow(width, count)))
        keeps = lambda part: nullcontext() if every or part == parts - 1 else model.no_sync()  # noqa: E731
        return accumulating(machine, model, inputs, target, RATE, keeps)

    return Program(step_with(every=True), step_with(every=False), tolerance=2e-2)


def gathered_in_line(_: str, machine: Machine) -> Program:
    """Each layer's weights are gathered when it needs them; fixed, the next layer's while this one works."""
    width, tokens, count = machine.size(8192), machine.size(2048), machine.size(8, 2)
    shards = [machine.random(width // machine.ranks, width, seed=machine.rank + 2 * one) / 90 for one in range(count)]
    batch = machine.random(tokens, width, seed=machine.rank)
    rooms = [torch.empty(width, width, dtype=batch.dtype, device=machine.device) for _ in range(2)]

    def gather(number: int, later: bool) -> dist.Work | None:
        return dist.all_gather_into_tensor(rooms[number % 2], shards[number], async_op=later)

    @torch.no_grad()
    def in_line() -> Tensor:
        hidden = batch
        for number in range(count):
            gather(number, later=False)
            hidden = F.relu(F.linear(hidden, rooms[number % 2]))
        return hidden.float().mean()

    @torch.no_grad()
    def ahead() -> Tensor:
        hidden, coming = batch, gather(0, later=True)
        for number in range(count):
            if coming:
                coming.wait()
            coming = gather(number + 1, later=True) if number + 1 < count else None
            hidden = F.relu(F.linear(hidden, rooms[number % 2]))
        return hidden.float().mean()

    return Program(in_line, ahead, tolerance=2e-2)


def turn_taken(machine: Machine) -> Callable[[], None]:
    """Ranks other than the first wait on the host, without the GPU, until the first has come as often as they."""
    store, come = dist.distributed_c10d._get_default_store(), [0]

    def wait() -> None:
        come[0] += 1
        if machine.rank == 0:
            store.set(f"turn {come[0]}", "come")
        else:
            store.wait([f"turn {come[0]}"])

    return wait


def one_process_for_two_gpus(_: str, machine: Machine) -> Program:
    """nn.DataParallel copies the weights to the second GPU in every step; fixed, DDP keeps a replica on each."""
    width, tokens = machine.size(8192), machine.size(4096)
    both = [machine.random(tokens // 2, width, seed=rank) for rank in range(2)]
    target = machine.random(tokens // 2, width, seed=9)
    wait = turn_taken(machine)
    nothing = torch.zeros((), device=machine.device)

    def together() -> Step:
        model = place(machine, lambda: Mlp(width, 3))
        spread = DataParallel(model, device_ids=[0, 1]) if machine.cuda else model
        plain = training(machine, spread, adamw(model.parameters(), lr=RATE))
        batch, targets = torch.cat(both), torch.cat([target, target])

        def step() -> Tensor:
            loss = 2 * plain(batch, targets).float()
            wait()
            return loss

        return step

    def idle() -> Tensor:
        wait()
        return nothing

    alone = together() if machine.rank == 0 else idle
    apart = trained(machine, replicated(place(machine, lambda: Mlp(width, 3))), width, tokens // 2)
    return Program(alone, apart, tolerance=3e-2)
