"""Layers, sequences and experts that ranks share: tensor, context and expert parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn

RATE = 1e-4


class Summed(torch.autograd.Function):
    """The sum over the ranks, in the type `kind`; its gradient as it comes."""

    @staticmethod
    def forward(_: Any, part: Tensor, kind: torch.dtype) -> Tensor:  # type: ignore[override]  # torch's signature
        whole = part.to(kind, copy=True)
        dist.all_reduce(whole)
        return whole.to(part.dtype)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # torch's signature
        return gradient, None


class Copied(torch.autograd.Function):
    """The same for each rank; the sum over the ranks of its gradient, in the type `kind`."""

    @staticmethod
    def forward(context: Any, whole: Tensor, kind: torch.dtype) -> Tensor:  # type: ignore[override]  # torch's
        context.kind = kind
        return whole.view_as(whole)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # torch's
        summed = gradient.to(context.kind, copy=True)
        dist.all_reduce(summed)
        return summed.to(gradient.dtype), None


class Joined(torch.autograd.Function):
    """The ranks' columns side by side; each takes back its own part of the gradient."""

    @staticmethod
    def forward(_: Any, part: Tensor) -> Tensor:  # type: ignore[override]  # torch's signature
        parts = torch.empty(dist.get_world_size(), *part.shape, dtype=part.dtype, device=part.device)
        dist.all_gather_into_tensor(parts.view(-1, part.shape[1]), part.contiguous())
        return torch.cat(parts.unbind(), dim=1)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]  # torch's signature
        return gradient.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


def shard(machine: Machine, rows: int, columns: int, seed: int, along: int) -> nn.Parameter:
    """This rank's part of a weight, cut along one dimension."""
    whole = machine.random(rows, columns, seed=seed) * (2 / columns) ** 0.5
    return nn.Parameter(whole.chunk(machine.ranks, dim=along)[machine.rank].clone())


def trained(machine: Machine, weights: list[nn.Parameter], network: Callable[[Tensor], Tensor], tokens: int) -> Step:
    """A training step on a batch that all ranks share."""
    optimizer = torch.optim.SGD(weights, lr=RATE, foreach=True)
    width = weights[0].shape[1]
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=9)

    def step() -> Tensor:
        loss = F.mse_loss(network(batch), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().float()

    return step


def pairs(machine: Machine, width: int, inner: int, count: int, kind: torch.dtype, tokens: int) -> Step:
    """Pairs of products, the first cut by columns and the second by rows: one sum a pair, of type `kind`."""
    first = [shard(machine, inner, width, 2 * number + 1, along=0) for number in range(count)]
    second = [shard(machine, width, inner, 2 * number + 2, along=1) for number in range(count)]

    def network(hidden: Tensor) -> Tensor:
        for up, down in zip(first, second, strict=True):
            inside = F.relu(F.linear(Copied.apply(hidden, kind), up))
            hidden = F.relu(Summed.apply(F.linear(inside, down), kind))
        return hidden

    return trained(machine, [*first, *second], network, tokens)


def columns_joined_per_product(_: str, machine: Machine) -> Program:
    """Each product is cut by columns and joined at once; fixed, in pairs of columns and rows, with one sum a pair."""
    width, tokens, count = machine.size(4096), machine.size(16384), machine.size(4, 2)

    def joined() -> Step:
        first = [shard(machine, width, width, 2 * number + 1, along=0) for number in range(count)]
        second = [shard(machine, width, width, 2 * number + 2, along=0) for number in range(count)]

        def network(hidden: Tensor) -> Tensor:
            for weights in zip(first, second, strict=True):
                for weight in weights:
                    part = F.linear(Copied.apply(hidden, torch.bfloat16), weight)
                    hidden = F.relu(Joined.apply(part))
            return hidden

        return trained(machine, [*first, *second], network, tokens)

    return Program(joined(), pairs(machine, width, width, count, torch.bfloat16, tokens), tolerance=3e-2)


def activations_summed_in_fp32(_: str, machine: Machine) -> Program:
    """Tensor parallel sums its activations in fp32; fixed, in bf16, as they are."""
    width, tokens, count = machine.size(4096), machine.size(16384), machine.size(4, 2)

    def step_in(kind: torch.dtype) -> Step:
        return pairs(machine, width, width, count, kind, tokens)

    return Program(step_in(torch.float32), step_in(torch.bfloat16), tolerance=3e-2)


def attended(machine: Machine, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to one block of keys, and the logarithm of its normaliser."""
    if machine.cuda:
        found = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    return found[0], found[1]


def merged(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Attention to two blocks as attention to both."""
    share = torch.sigmoid(one[1] - other[1])[..., None].to(one[0].dtype)
    return torch.lerp(other[0], one[0], share)


def blocks_fetched_in_line(_: str, machine: Machine) -> Program:
    """Context parallel fetches the other rank's keys, then attends; fixed, it attends to its own meanwhile."""
    batch, heads, length, dim = machine.size(8, 2), machine.size(16, 2), machine.size(2048), machine.size(128, 8)
    width, count, other = heads * dim, machine.size(6, 2), 1 - machine.rank
    weights = [machine.random(3 * width, width, seed=1 + number) / width**0.5 for number in range(count)]
    inputs = machine.random(batch, length, width, seed=20 + machine.rank)

    def fetch(mine: Tensor) -> tuple[Tensor, list[dist.Work]]:
        theirs = torch.empty_like(mine)
        both = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]
        return theirs, dist.batch_isend_irecv(both)

    def step_with(in_line: bool) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = inputs
            for weight in weights:
                parts = F.linear(hidden, weight).view(batch, length, 3, heads, dim).permute(2, 0, 3, 1, 4)
                query, own = parts[0], parts[1:].contiguous()
                theirs, coming = fetch(own)
                if in_line:
                    for work in coming:
                        work.wait()
                here = attended(machine, query, *own.unbind())
                if not in_line:
                    for work in coming:
                        work.wait()
                both = merged(here, attended(machine, query, *theirs.unbind()))
                hidden = hidden + both.transpose(1, 2).reshape(batch, length, width)
            return hidden.float().square().mean()

        return step

    return Program(step_with(in_line=True), step_with(in_line=False), tolerance=3e-2)


def swap(rows: Tensor, later: bool = False) -> tuple[Tensor, dist.Work | None]:
    """Rows by destination as rows by source."""
    got = torch.empty_like(rows)
    return got, dist.all_to_all_single(got, rows, async_op=later)


def experts_awaited(_: str, machine: Machine) -> Program:
    """Tokens go to their experts and back while nothing else is done; fixed, the shared expert works meanwhile."""
    width, tokens, count = machine.size(4096), machine.size(8192), machine.size(6, 2)
    shared = [machine.random(width, width, seed=number) / width**0.5 for number in range(count)]
    own = [machine.random(width, width, seed=40 + 2 * number + machine.rank) / width**0.5 for number in range(count)]
    inputs = machine.random(tokens, width, seed=80 + machine.rank)

    def step_with(awaited: bool) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = inputs
            for beside, expert in zip(shared, own, strict=True):
                routed, coming = swap(hidden, later=not awaited)
                first = None if awaited else F.relu(F.linear(hidden, beside))
                if coming:
                    coming.wait()
                back, _ = swap(F.relu(F.linear(routed, expert)))
                hidden = back + (F.relu(F.linear(hidden, beside)) if first is None else first)
            return hidden.float().square().mean()

        return step

    return Program(step_with(awaited=True), step_with(awaited=False), tolerance=2e-2)


def experts_exchanged_one_by_one(_: str, machine: Machine) -> Program:
    """The tokens of each of 32 experts are exchanged by themselves; fixed, those of all at once."""
    width, rows, experts, count = machine.size(1024), machine.size(256), machine.size(32, 4), machine.size(3, 1)
    own = machine.random(experts, width, width, seed=machine.rank) / width**0.5
    inputs = machine.random(machine.ranks * experts * rows, width, seed=80 + machine.rank)

    def by_expert(hidden: Tensor) -> Tensor:
        """[expert, destination or source, row, width], of rows by destination and expert; and the other way round."""
        return hidden.view(machine.ranks, experts, rows, width).transpose(0, 1).contiguous()

    def one_by_one(hidden: Tensor) -> Tensor:
        return torch.stack([swap(tokens)[0] for tokens in by_expert(hidden)]).view(experts, -1, width)

    def at_once(hidden: Tensor) -> Tensor:
        return by_expert(swap(hidden)[0]).view(experts, -1, width)

    def step_with(exchange: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = inputs
            for _ in range(count):
                found = F.relu(torch.bmm(exchange(hidden), own))
                found = found.view(experts, machine.ranks, rows, width).transpose(0, 1).reshape_as(hidden)
                hidden = hidden + swap(found)[0]
            return hidden.float().square().mean()

        return step

    return Program(step_with(one_by_one), step_with(at_once), tolerance=2e-2)
