"""The device itself: memory given back at every step, streams in lockstep, kernels too small for the chip."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step, nothing
from torch import Tensor


def cache_emptied(severity: str, machine: Machine) -> Program:
    """torch.cuda.empty_cache() after every step gives the memory back; fixed, the cache is left alone."""
    width, tokens, layers = {"high": (2048, 8192, 8), "low": (4096, 8192, 6), "harmless": (8192, 16384, 1)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(empty: Callable[[], None]) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        plain = training(machine, model, adamw(model.parameters()))
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            loss = plain(batch, target).float()
            empty()
            return loss

        return step

    return Program(step_with(torch.cuda.empty_cache if machine.cuda else nothing), step_with(nothing))


class CudaRuntime:
    """cudaMalloc and cudaFree of the CUDA runtime that torch has loaded, as a library beside torch calls them."""

    def __init__(self) -> None:
        loaded = {
            line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart.so" in line
        }
        self.library = ctypes.CDLL(min(loaded))

    def allocate(self, size_bytes: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        if error := self.library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size_bytes)):
            raise MemoryError(f"cudaMalloc of {size_bytes} bytes failed with error {error}")
        return pointer

    def free(self, pointer: ctypes.c_void_p) -> None:
        self.library.cudaFree(pointer)


def workspace_per_call(severity: str, machine: Machine) -> Program:
    """A library takes its workspace with cudaMalloc and frees it in every layer; fixed, it takes it once."""
    width, tokens, layers, megabytes, every = {
        "high": (2048, 8192, 8, 128, 1), "low": (4096, 8192, 6, 32, 2), "harmless": (8192, 16384, 2, 1, 2)
    }[severity]  # fmt: skip
    width, tokens = machine.size(width), machine.size(tokens)
    runtime = CudaRuntime() if machine.cuda else None
    kept = runtime.allocate(megabytes << 20) if runtime else None

    def step_with(per_call: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for number, layer in enumerate(model.layers, start=1):
                taken = runtime.allocate(megabytes << 20) if runtime and per_call and number % every == 0 else None
                hidden = F.relu(layer(hidden))
                if runtime and taken:
                    runtime.free(taken)
            return hidden.float().mean()

        return step

    def close() -> None:
        if runtime and kept:
            runtime.free(kept)

    return Program(step_with(per_call=True), step_with(per_call=False), close=close)


def streams_in_lockstep(severity: str, machine: Machine) -> Program:
    """Two independent towers on two streams wait for each other after every layer; fixed, they meet at the end.

    A row of the softmax occupies one multiprocessor. Harmless: rows enough to fill the device alone.
    """
    rows, length, layers = {"high": (40, 262144, 10), "low": (100, 131072, 10), "harmless": (4096, 32768, 4)}[severity]
    rows, length = machine.size(rows), machine.size(length, 64)
    streams = (machine.stream(), machine.stream())

    def step_with(lockstep: bool) -> Step:
        inputs = [machine.random(rows, length, dtype=torch.float32, seed=number) for number in range(2)]

        @torch.no_grad()
        def step() -> Tensor:
            for stream in streams:
                machine.join(stream, None)
            hidden = list(inputs)
            for _ in range(layers):
                for number, stream in enumerate(streams):
                    with machine.on(stream):
                        if lockstep:
                            machine.join(stream, streams[1 - number])
                        hidden[number] = hidden[number].softmax(-1)
            for stream in streams:
                machine.join(None, stream)
            return hidden[0].amax() + hidden[1].amax()

        return step

    return Program(step_with(lockstep=True), step_with(lockstep=False))


def few_rows_scanned(severity: str, machine: Machine) -> Program:
    """A running sum along eight very long rows occupies eight multiprocessors; fixed, the rows are cut in pieces."""
    rows, length, tokens = {"high": (8, 1 << 20, 4096), "low": (8, 1 << 18, 8192), "harmless": (8, 1 << 11, 8192)}[
        severity
    ]
    length, tokens, width = machine.size(length, 64), machine.size(tokens), machine.size(4096)
    pieces = max(1, length // 2048)

    def whole(values: Tensor) -> Tensor:
        return values.cumsum(-1)

    def in_pieces(values: Tensor) -> Tensor:
        parts = values.view(rows, pieces, -1).cumsum(-1)
        before = parts[..., -1].cumsum(-1) - parts[..., -1]
        return (parts + before[..., None]).view(rows, length)

    def step_with(scan: Callable[[Tensor], Tensor]) -> Step:
        values = machine.random(rows, length, dtype=torch.float32).abs()
        model = place(machine, lambda: Mlp(width, 4))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            return model(batch).float().mean() + scan(values)[:, -1].mean() / length

        return step

    return Program(step_with(whole), step_with(in_pieces))


def profiled_with_stacks(severity: str, machine: Machine) -> Program:
    """Nothing is wrong: the capture records stacks and memory, whose cost makes a GPU-bound loop look host-bound."""
    width, tokens, layers = {"high": (1024, 4096, 12), "low": (2048, 4096, 10), "harmless": (4096, 8192, 4)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    model = place(machine, lambda: Mlp(width, layers))
    batch = machine.random(tokens, width)

    @torch.no_grad()
    def step() -> Tensor:
        return model(batch).float().mean()

    return Program(step, step)
