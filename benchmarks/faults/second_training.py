"""Second set: an optimizer, a recurrence and a loss for which a fused or narrower form does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, head_training, place, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.second_models import two_views
from torch import Tensor, nn

RATE, DECAY, FIRST, SECOND = 1e-4, 0.01, 0.9, 0.99


class Lion(torch.optim.Optimizer):
    """The Lion optimizer: each weight moves by the sign of its averaged gradient; `update` does one step of all."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], update: Callable[[list[Tensor], list[Tensor], list[Tensor]], None]
    ) -> None:
        super().__init__(parameters, {})
        self.weights = [weight for group in self.param_groups for weight in group["params"]]
        self.averages = [torch.zeros_like(weight) for weight in self.weights]
        self.update = update

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.update(self.weights, [weight.grad for weight in self.weights if weight.grad is not None], self.averages)


def lion_in_turn(weights: list[Tensor], gradients: list[Tensor], averages: list[Tensor]) -> None:
    for weight, gradient, average in zip(weights, gradients, averages, strict=True):
        weight.mul_(1 - RATE * DECAY)
        direction = average.clone().mul_(FIRST).add(gradient, alpha=1 - FIRST).sign_()
        weight.add_(direction, alpha=-RATE)
        average.mul_(SECOND).add_(gradient, alpha=1 - SECOND)


def lion_together(weights: list[Tensor], gradients: list[Tensor], averages: list[Tensor]) -> None:
    torch._foreach_mul_(weights, 1 - RATE * DECAY)
    direction = torch._foreach_lerp(averages, gradients, 1 - FIRST)
    torch._foreach_sign_(direction)
    torch._foreach_add_(weights, direction, alpha=-RATE)
    torch._foreach_lerp_(averages, gradients, 1 - SECOND)


def lion_weight_by_weight(severity: str, machine: Machine) -> Program:
    """A Lion optimizer updates weight by weight; fixed, all at once with torch._foreach.

    Harmless: only a small head is trained.
    """
    width, tokens, layers = {"high": (1024, 8192, 24), "low": (1024, 16384, 16), "harmless": (4096, 8192, 8)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    frozen = severity == "harmless"
    classes = 16 if frozen else width

    def step_with(turn: Callable[[list[Tensor], list[Tensor], list[Tensor]], None]) -> Step:
        trunk = place(machine, lambda: Mlp(width, layers))
        head = place(machine, lambda: nn.Linear(width, classes, bias=False))
        trained = [*head.parameters()] if frozen else [*trunk.parameters(), *head.parameters()]
        train = head_training(machine, trunk, head, Lion(trained, turn), frozen)
        batch, target = machine.random(tokens, width), machine.random(tokens, classes, seed=1)
        return lambda: train(batch, target).float()

    return Program(step_with(lion_in_turn), step_with(lion_together), tolerance=2e-2)


def lstm_cell_by_cell(severity: str, machine: Machine) -> Program:
    """nn.LSTMCell is called for every time step in Python; fixed, nn.LSTM runs over the sequence in cuDNN."""
    hidden, batch, length, layers = {
        "high": (1024, 128, 128, 4), "low": (1024, 128, 48, 3), "harmless": (1024, 128, 4, 10)
    }[severity]  # fmt: skip
    hidden, batch, length = machine.size(hidden), machine.size(batch), machine.size(length)
    width, tokens = machine.size(4096), machine.size(8192)
    lstm = place(machine, lambda: nn.LSTM(hidden, hidden)).eval()
    cell = place(machine, lambda: nn.LSTMCell(hidden, hidden))
    with torch.no_grad():
        for name, weight in cell.named_parameters():
            weight.copy_(getattr(lstm, f"{name}_l0"))
    words = machine.random(length, batch, hidden)

    def in_turn() -> Tensor:
        state = (torch.zeros_like(words[0]), torch.zeros_like(words[0]))
        for word in words:
            state = cell(word, state)
        return state[0]

    def at_once() -> Tensor:
        outputs: Tensor = lstm(words)[0]
        return outputs[-1]

    def step_with(recur: Callable[[], Tensor]) -> Step:
        trunk = place(machine, lambda: Mlp(width, layers))
        frames = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            seen = frames
            for layer in trunk.layers:
                seen = layer(seen).relu_()
            return seen[0].float().mean() + recur().float().square().mean()

        return step

    return Program(step_with(in_turn), step_with(at_once), tolerance=5e-2)


TEMPERATURE = 0.1


def similarities_in_fp32(severity: str, machine: Machine) -> Program:
    """A contrastive loss multiplies its bf16 features in fp32; fixed, in bf16.

    Harmless: 256 pairs are compared, not all.
    """
    width, pairs, features, layers, compared = {
        "high": (2048, 4096, 1024, 8, 4096),
        "low": (2048, 4096, 256, 16, 4096),
        "harmless": (4096, 4096, 256, 6, 256),
    }[severity]
    width, pairs, compared = machine.size(width), machine.size(pairs), machine.size(compared)
    features = machine.size(features)

    def step_with(dtype: torch.dtype) -> Step:
        model = place(machine, lambda: nn.Sequential(Mlp(width, layers), nn.Linear(width, features, bias=False)))
        optimizer = adamw(model.parameters(), lr=1e-4)
        views = two_views(machine, pairs, width)
        target = torch.arange(compared, device=machine.device)

        def step() -> Tensor:
            with machine.phase("forward"):
                normal = F.normalize(model(views), dim=-1).to(dtype)
                first, second = normal[:compared], normal[pairs : pairs + compared]
                loss = F.cross_entropy(first @ second.t() / TEMPERATURE, target)
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(torch.float32), step_with(torch.bfloat16), tolerance=5e-2)
