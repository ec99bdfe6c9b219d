"""The model on every rank (DDP), or in shards (FSDP2): late ranks, small buckets, a slow link, no prefetch."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.program import Program, Step
from benchmarks.faults.seventh.transformer import WIDTH, lasting, sequences, trained, transformer
from benchmarks.faults.third_models import replicated, sharded
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 2


def replica(machine: Machine, before: Callable[[], None] | None = None) -> Step:
    batch = sequences(machine, BATCH, seed=machine.rank)
    return trained(machine, replicated(transformer(machine)), batch, before)


def shards(machine: Machine, before: Callable[[], None] | None = None, eager: bool = True) -> Step:
    """FSDP2 layer by layer; without `eager`, a layer's weights are gathered when it needs them."""
    model = transformer(machine)
    sharded(model, model)
    if not eager:
        model._set_unshard_async_op(True)
    return trained(machine, model, sequences(machine, BATCH, seed=machine.rank), before)


def replicated_on_four(_: str, machine: Machine) -> Program:
    """DDP as it comes, with AdamW."""
    step = replica(machine)
    return Program(step, step, tolerance=2e-2)


def sharded_on_four(_: str, machine: Machine) -> Program:
    """FSDP2 layer by layer as it comes, with AdamW."""
    step = shards(machine)
    return Program(step, step, tolerance=2e-2)


def tokens_packed_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 2 of DDP packs documents in Python before every step, longer than its GPU works; fixed, nobody does."""
    documents = [number * 7919 % 900 + 1 for number in range(machine.size(100_000, 100))]

    def pack() -> list[int]:
        rooms, room = [], 0
        for length in documents:
            if room + length > 2048:
                rooms.append(room)
                room = 0
            room += length
        return rooms

    mine = lasting(machine, pack, 0.06) if machine.rank == 2 else None
    return Program(replica(machine, mine), replica(machine), tolerance=2e-2)


def records_parsed_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 3 of FSDP2 parses records of JSON before every step, longer than its GPU works; fixed, nobody does."""
    text = json.dumps([{"id": number, "text": "a record of a data set"} for number in range(machine.size(20_000, 10))])
    mine = lasting(machine, lambda: json.loads(text), 0.06) if machine.rank == 3 else None
    return Program(shards(machine, mine), shards(machine), tolerance=2e-2)


def load_beside_one_rank(_: str, machine: Machine) -> Program:
    """Products on another stream of rank 1 slow all of its kernels, as a lower clock would; fixed, there are none."""
    side, one = machine.stream(), machine.random(machine.size(4096), machine.size(4096), seed=3)

    def load() -> None:
        machine.join(side, None)
        with machine.on(side):
            for _ in range(machine.size(80, 1)):
                torch.mm(one, one)

    mine = load if machine.rank == 1 else None
    return Program(replica(machine, mine), replica(machine), tolerance=2e-2)


def more_sequences_on_one_rank(_: str, machine: Machine) -> Program:
    """Rank 1 gets eight sequences where the others get four; fixed, five each."""
    every = sequences(machine, 20, 1024, seed=5)
    share = machine.ranks / every.numel()

    def step_with(counts: list[int]) -> Step:
        begin = sum(counts[: machine.rank])
        mine = every[begin : begin + counts[machine.rank]].contiguous()
        return trained(machine, replicated(transformer(machine)), mine, share=share)

    return Program(step_with([4, 8, 4, 4]), step_with([5, 5, 5, 5]), tolerance=2e-2)


def averaged_through_memory(_: str, machine: Machine) -> Program:
    """DDP, and NCCL may not copy from GPU to GPU; fixed, it may (see `suite`)."""
    step = replica(machine)
    return Program(step, step, tolerance=2e-2)


def buckets_of_a_parameter(_: str, machine: Machine) -> Program:
    """DDP of 24 layers a third as wide sends each gradient by itself; fixed, in buckets as they come."""
    width, batch = WIDTH // 3, sequences(machine, 4, 1024, WIDTH // 3, seed=machine.rank)

    def step_with(megabytes: float) -> Step:
        model: nn.Module = transformer(machine, width, 24)
        spread = DistributedDataParallel(model, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
        return trained(machine, spread, batch)

    return Program(step_with(0.001), step_with(25), tolerance=2e-2)


def gathered_when_needed(_: str, machine: Machine) -> Program:
    """FSDP2 gathers each layer's weights on the stream that computes, and prefetches none; fixed, as it comes."""
    return Program(shards(machine, eager=False), shards(machine), tolerance=2e-2)
