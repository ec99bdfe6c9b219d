"""What was switched on for an afternoon and stayed on, and what the machine was told or shared with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, Mlp, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn


def launches_blocking(_: str, machine: Machine) -> Program:
    """CUDA_LAUNCH_BLOCKING=1 (the environment); fixed, launches return at once."""
    width, tokens = machine.size(1024), machine.size(1024)
    model = place(machine, lambda: Mlp(width, 10))
    plain = training(machine, model, adamw(model.parameters()))
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        return plain(batch, target).float()

    return Program(step, step, tolerance=2e-2)


def anomalies_detected(_: str, machine: Machine) -> Program:
    """torch.autograd.set_detect_anomaly(True) stayed on; fixed, it is off."""
    width, length, batch = machine.size(1024, 64), machine.size(512), machine.size(8, 2)

    def step_with(detecting: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(Block(width, machine.size(16, 4)) for _ in range(2))))
        optimizer = adamw(model.parameters())
        batch_in, target = machine.random(batch, length, width), machine.random(batch, length, width, seed=1)

        def step() -> Tensor:
            torch.autograd.set_detect_anomaly(detecting)
            with machine.phase("forward"):
                loss = F.mse_loss(model(batch_in), target)
            return update(machine, loss, optimizer).float()

        return step

    def close() -> None:
        torch.autograd.set_detect_anomaly(False)

    return Program(step_with(detecting=True), step_with(detecting=False), tolerance=2e-2, close=close)


class Messages(nn.Module):
    """Layers of a graph network: what each edge carries is added up at the node it leads to."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer in self.layers:
            carried = F.relu(layer(nodes)).index_select(0, source)
            nodes = torch.zeros_like(nodes).index_add(0, target, carried)
        return nodes


def deterministic_left_on(_: str, machine: Machine) -> Program:
    """torch.use_deterministic_algorithms(True) stayed on in a graph network; fixed, it is off."""
    count, edges, width = machine.size(20_000), machine.size(200_000, 32), machine.size(256)

    def step_with(deterministic: bool) -> Step:
        model = place(machine, lambda: Messages(width, 3), torch.float32)
        optimizer = adamw(model.parameters())
        nodes, wanted = (machine.random(count, width, dtype=torch.float32, seed=seed) for seed in (0, 1))
        generator = torch.Generator(machine.device).manual_seed(2)
        source, target = (torch.randint(count, (edges,), generator=generator, device=machine.device) for _ in range(2))

        def step() -> Tensor:
            torch.use_deterministic_algorithms(deterministic, warn_only=True)
            with machine.phase("forward"):
                loss = F.mse_loss(model(nodes, source, target), wanted)
            return update(machine, loss, optimizer)

        return step

    def close() -> None:
        torch.use_deterministic_algorithms(False)

    return Program(step_with(deterministic=True), step_with(deterministic=False), tolerance=2e-2, close=close)


def threads_oversubscribed(_: str, machine: Machine) -> Program:
    """Host operators run on eight threads for each core there is; fixed, on one for each core."""
    cores = len(os.sched_getaffinity(0))
    width, tokens = machine.size(1024), machine.size(2048)

    def step_with(threads: int) -> Step:
        model = place(machine, lambda: Mlp(width, 4))
        plain = training(machine, model, adamw(model.parameters()))
        torch.manual_seed(0)
        raw, target = torch.rand(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            torch.set_num_threads(threads)
            with machine.phase("data"):
                batch = raw.sub(0.5).div(0.25).clamp(-2, 2).tanh().to(torch.bfloat16).to(machine.device)
            return plain(batch, target).float()

        return step

    return Program(step_with(8 * cores), step_with(cores), tolerance=2e-2, close=lambda: torch.set_num_threads(4))


NEIGHBOUR = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
fault = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
fault = fault or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
fault = fault or cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 31))
print("ready" if not fault else fault, flush=True)
while not fault:
    for _ in range(20):
        fault = fault or cuda.cuMemsetD32Async(memory, 0, ctypes.c_size_t(1 << 29), None)
    fault = fault or cuda.cuCtxSynchronize()
"""
WATCHERS = ("NSYS", "NVTX", "CUDA_INJECTION", "LD_PRELOAD", "QUADD")


def neighbour(machine: Machine) -> tuple[Callable[[bool], None], Callable[[], None]]:
    """Another process that keeps the device busy, unseen by the profiler: a switch for it, and its end."""
    program = NEIGHBOUR if machine.cuda else "import time; print('ready', flush=True); time.sleep(60)"
    around = {name: value for name, value in os.environ.items() if not name.startswith(WATCHERS)}
    child = subprocess.Popen([sys.executable, "-c", program], env=around, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError("the other process has no device")
    works = True

    def switch(on: bool) -> None:
        nonlocal works
        if on != works:
            child.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
            works = on

    def close() -> None:
        switch(on=True)
        child.terminate()
        child.wait()

    return switch, close


def device_shared(_: str, machine: Machine) -> Program:
    """Another process works on the same GPU; fixed, it does not."""
    width, tokens = machine.size(2048), machine.size(8192)
    switch, close = neighbour(machine)
    model = place(machine, lambda: Mlp(width, 6))
    plain = training(machine, model, adamw(model.parameters()))
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step_with(shared: bool) -> Step:
        def step() -> Tensor:
            switch(shared)
            return plain(batch, target).float()

        return step

    return Program(step_with(shared=True), step_with(shared=False), tolerance=5e-1, close=close)
