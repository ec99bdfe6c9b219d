"""The host asks the device for a value, or waits for it, where nothing needs the answer yet."""

from __future__ import annotations

import io
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from torch import Tensor

SHAPES = {"high": (2048, 4096, 12, 1), "low": (4096, 4096, 6, 1), "harmless": (4096, 8192, 6, 6)}
"""Width, tokens, layers, and how many layers lie between two waits."""


def watched_training(severity: str, machine: Machine, watch: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """A training step that lets `watch` look at the hidden state of each `every`-th layer: (hidden, total) -> total."""
    width, tokens, layers, every = SHAPES[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    model = place(machine, lambda: Mlp(width, layers))
    optimizer = adamw(model.parameters())
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        with machine.phase("forward"):
            hidden, total = batch, torch.zeros((), device=machine.device)
            for number, layer in enumerate(model.layers, start=1):
                hidden = F.relu(layer(hidden))
                if number % every == 0:
                    total = watch(hidden.detach(), total)
            loss = F.mse_loss(hidden, target)
        return update(machine, loss, optimizer).float() + total

    return step


def item_per_layer(severity: str, machine: Machine) -> Program:
    """Activation statistics are read with .item() after every layer; fixed, they are summed on the device."""

    def read(hidden: Tensor, total: Tensor) -> Tensor:
        return total + hidden.mean().item()

    def keep(hidden: Tensor, total: Tensor) -> Tensor:
        return total + hidden.mean()

    return Program(watched_training(severity, machine, read), watched_training(severity, machine, keep))


def synchronize_per_layer(severity: str, machine: Machine) -> Program:
    """Timers left in the model call torch.cuda.synchronize() after every layer; fixed, they are gone."""

    def wait(hidden: Tensor, total: Tensor) -> Tensor:
        machine.synchronize()
        return total

    def go_on(hidden: Tensor, total: Tensor) -> Tensor:
        return total

    return Program(watched_training(severity, machine, wait), watched_training(severity, machine, go_on))


def boolean_mask(severity: str, machine: Machine) -> Program:
    """Rows are picked with a boolean mask, whose count the host must know; fixed, the others are zeroed in place."""
    width, tokens, layers, every = SHAPES[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    chosen = machine.random(tokens, seed=2) > 1.0

    def step_with(select: Callable[[Tensor], Tensor]) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden, total = batch, torch.zeros((), device=machine.device)
            for number, layer in enumerate(model.layers, start=1):
                hidden = F.relu(layer(hidden))
                if number % every == 0:
                    total = total + select(hidden)
            return total

        return step

    def masked(hidden: Tensor) -> Tensor:
        return hidden[chosen].sum(dtype=torch.float32)

    def zeroed(hidden: Tensor) -> Tensor:
        return torch.mv(hidden.t(), chosen.to(hidden.dtype)).sum(dtype=torch.float32)

    return Program(step_with(masked), step_with(zeroed), tolerance=2e-2)


def tensor_from_list(severity: str, machine: Machine) -> Program:
    """A small table is made from a Python list in every layer, each a blocking copy; fixed, it is made once."""
    rows = machine.size(32)
    values = [1.0 + number % 3 for number in range(rows)]
    made = torch.tensor(values, device=machine.device)

    def weighted(hidden: Tensor, table: Tensor) -> Tensor:
        return torch.dot(hidden[:rows].sum(-1, dtype=torch.float32), table)

    def anew(hidden: Tensor, total: Tensor) -> Tensor:
        return total + weighted(hidden, torch.tensor(values, device=machine.device))

    def kept(hidden: Tensor, total: Tensor) -> Tensor:
        return total + weighted(hidden, made)

    return Program(watched_training(severity, machine, anew), watched_training(severity, machine, kept))


def printed_loss(severity: str, machine: Machine) -> Program:
    """The loss of every microbatch is formatted into the log as it is made; fixed, it stays on the device."""
    width, tokens, layers, microbatches = {
        "high": (2048, 2048, 4, 6), "low": (2048, 4096, 4, 4), "harmless": (4096, 8192, 4, 1)
    }[severity]  # fmt: skip
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(at_once: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        optimizer = adamw(model.parameters())
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)
        log = io.StringIO()

        def step() -> Tensor:
            losses = []
            for number in range(microbatches):
                with machine.phase("forward"):
                    loss = F.mse_loss(model(batch), target)
                losses.append(loss.detach())
                if at_once:
                    log.write(f"microbatch {number}: loss {loss:.4f}\n")
                with machine.phase("backward"):
                    loss.backward()
            with machine.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            return torch.stack(losses).float().sum()

        return step

    return Program(step_with(at_once=True), step_with(at_once=False))


def norm_per_parameter(severity: str, machine: Machine) -> Program:
    """Gradients are clipped by a norm read to the host parameter by parameter; fixed, the device computes it."""
    width, tokens, layers = {"high": (2048, 4096, 16), "low": (4096, 4096, 8), "harmless": (8192, 8192, 1)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(clip: Callable[[list[Tensor]], None]) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        optimizer = adamw(model.parameters())
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            with machine.phase("forward"):
                loss = F.mse_loss(model(batch), target)
            with machine.phase("backward"):
                loss.backward()
            with machine.phase("optimizer"):
                clip([p.grad for p in model.parameters() if p.grad is not None])
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            return loss.detach().float()

        return step

    def read(gradients: list[Tensor]) -> None:
        squares = sum(gradient.norm().item() ** 2 for gradient in gradients)
        torch._foreach_mul_(gradients, min(1.0, 0.1 / (squares**0.5 + 1e-6)))

    def on_device(gradients: list[Tensor]) -> None:
        norm = torch.stack(torch._foreach_norm(gradients)).float().norm()
        torch._foreach_mul_(gradients, (0.1 / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype))

    return Program(step_with(read), step_with(on_device), tolerance=2e-2)


def end_check_per_token(severity: str, machine: Machine) -> Program:
    """A decode loop of replayed graphs asks after every token whether all are done; fixed, it asks once in sixteen."""
    width, batch, layers = {"high": (2048, 32, 4), "low": (4096, 64, 4), "harmless": (8192, 512, 8)}[severity]
    width, batch = machine.size(width), machine.size(batch)
    tokens = 16 if severity != "harmless" else 4

    def step_with(each: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        state = machine.random(batch, width)
        done = torch.zeros((), dtype=torch.int32, device=machine.device)

        @torch.no_grad()
        def token() -> Tensor:
            state.copy_(F.normalize(model(state).float(), dim=-1))
            done.copy_((state.abs().amax() > 2.0).to(torch.int32))
            return done

        with torch.no_grad():
            decode = machine.graphed(token)

        def step() -> Tensor:
            for _ in range(tokens):
                finished = decode()
                if each and finished.item():
                    break
            if not each and finished.item():
                return done.float()
            return state.float().sum()

        return step

    return Program(step_with(each=True), step_with(each=False), tolerance=2e-2)


def final_loss_read(severity: str, machine: Machine) -> Program:
    """The loss is read once per step, and the device waits for the next; fixed, it stays on the device."""
    width, tokens, layers = {"high": (2048, 4096, 3), "low": (2048, 8192, 4), "harmless": (4096, 16384, 4)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(read: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        plain = training(machine, model, adamw(model.parameters()))
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)
        total = torch.zeros((), device=machine.device)
        running = [0.0]

        def step() -> Tensor:
            loss = plain(batch, target)
            if read:
                running[0] += loss.item()
            else:
                total.add_(loss)
            return loss.float()

        return step

    return Program(step_with(read=True), step_with(read=False))
