"""Three programs with nested steps: `nested.py KIND [--with tf32,fused_optimizer] [--seconds 8] [--dry]`.

`rollouts`: walks through a world in Python, then eight updates. `tasks`: five steps of a copy on four tasks, then
one of the model. `critics`: five steps of a critic to one of the painter, and pictures scored every twentieth. The
program's period is the outer turn. With `--seconds` it then prints the mean of whole outer periods by wall
time: the truth that a trial is held against.
"""

import argparse
import copy
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("rollouts", "tasks", "critics"))
parser.add_argument("--with", dest="changes", default="", type=lambda text: frozenset(text.split(",")))
parser.add_argument("--seconds", type=float, default=0.0)
parser.add_argument("--dry", action="store_true")
given = parser.parse_args()
device, width = ("cpu", 64) if given.dry else ("cuda", 2048)
torch.manual_seed(0)
if "tf32" in given.changes:
    torch.set_float32_matmul_precision("high")
fused = {"fused": True} if "fused_optimizer" in given.changes else {}


def autocast() -> torch.autocast | nullcontext[None]:
    """Around forward passes."""
    return torch.autocast(device, torch.bfloat16) if "bf16" in given.changes else nullcontext()


def layers(ins: int, out: int, deep: int = 3) -> nn.Sequential:
    """A plain network."""
    inner = [part for _ in range(deep) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(nn.Linear(ins, width), nn.GELU(), *inner, nn.Linear(width, out)).to(device)


def rollouts() -> Callable[[], None]:
    """Forty-eight steps of 128 worlds, each of which is moved in Python; eight updates on what was seen."""
    policy = layers(16, 4)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, **fused)
    places = [torch.randn(16) for _ in range(128)]

    def period() -> None:
        seen, done = [], []
        for _ in range(48):
            state = torch.stack(places)
            with torch.no_grad(), autocast():
                action = policy(state.to(device)).argmax(1).tolist()
            for world, turn in enumerate(action):
                places[world] = 0.95 * places[world].roll(turn) + 0.01
            seen.append(state)
            done.append(torch.tensor(action))
        states, actions = torch.cat(seen).to(device), torch.cat(done).to(device)
        for _ in range(8):
            with autocast():
                loss = functional.cross_entropy(policy(states), actions)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return period


def tasks() -> Callable[[], None]:
    """A copy of the model learns each of four tasks in five steps; the model moves to where the copies came."""
    model = layers(32, 32)
    outer = torch.optim.Adam(model.parameters(), lr=1e-3, **fused)

    def period() -> None:
        outer.zero_grad()
        for task in range(4):
            learner = copy.deepcopy(model)
            inner = torch.optim.Adam(learner.parameters(), lr=1e-4, **fused)
            x = torch.randn(1024, 32, device=device)
            for _ in range(5):
                with autocast():
                    loss = functional.mse_loss(learner(x), x.roll(task, 1))
                inner.zero_grad()
                loss.backward()
                inner.step()
            for ours, theirs in zip(model.parameters(), learner.parameters(), strict=True):
                moved = (ours - theirs).detach()
                ours.grad = moved if ours.grad is None else ours.grad + moved
        outer.step()

    return period


def critics() -> Callable[[], None]:
    """Five steps of the critic, one of the painter; after twenty such turns pictures are scored in Python."""
    painter, critic = layers(64, 256), layers(256, 1)
    paints = torch.optim.Adam(painter.parameters(), lr=1e-4, **fused)
    judges = torch.optim.Adam(critic.parameters(), lr=1e-4, **fused)
    real = torch.randn(2048, 256, device=device)

    def period() -> None:
        for _ in range(20):
            for _ in range(5):
                noise = torch.randn(2048, 64, device=device)
                with autocast():
                    loss = critic(painter(noise).detach()).mean() - critic(real).mean()
                judges.zero_grad()
                loss.backward()
                judges.step()
            with autocast():
                loss = -critic(painter(torch.randn(2048, 64, device=device))).mean()
            paints.zero_grad()
            loss.backward()
            paints.step()
        with torch.no_grad():
            drawn = painter(torch.randn(1000, 64, device=device)).cpu()
        sum(float(row.abs().max()) > 1.0 for row in drawn)

    return period


period = {"rollouts": rollouts, "tasks": tasks, "critics": critics}[given.kind]()
if not given.seconds:
    while True:
        period()
for _ in range(3):
    period()
if not given.dry:
    torch.cuda.synchronize()
began, turns = time.perf_counter(), 0
while time.perf_counter() - began < given.seconds:
    period()
    turns += 1
if not given.dry:
    torch.cuda.synchronize()
took = 1e3 * (time.perf_counter() - began) / turns
print(f"{given.kind} {','.join(sorted(given.changes)) or 'as it is'}: {took:.3f} ms")
