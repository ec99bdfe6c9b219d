"""Language models of Hugging Face's library, and what training loops around them do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaModel

RATE = 1e-5


def bert(machine: Machine, attention: str) -> BertForMaskedLM:
    """A masked language model without dropout, in bf16."""
    width = machine.size(1024, 64)
    config = BertConfig(
        vocab_size=machine.size(30528, 128), hidden_size=width, num_hidden_layers=machine.size(6, 2),
        num_attention_heads=machine.size(16, 2), intermediate_size=4 * width, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation=attention,
    )  # fmt: skip
    return place(machine, lambda: BertForMaskedLM(config))


def tokens(machine: Machine, batch: int, length: int, seed: int = 0) -> Tensor:
    """Numbers of words [batch, length] on the device."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(machine.size(30528, 128), (batch, length), generator=drawn).to(machine.device)


def masked_training(machine: Machine, model: nn.Module, batch: int, length: int) -> Step:
    """A step of masked language modelling on one resident batch."""
    words, optimizer = tokens(machine, batch, length), adamw(model.parameters(), lr=RATE)
    return lambda: update(machine, model(input_ids=words, labels=words).loss, optimizer).float()


def attention_of_the_library(_: str, machine: Machine) -> Program:
    """BERT is loaded with attn_implementation="eager"; fixed, "sdpa"."""
    batch, length = machine.size(16, 2), machine.size(512, 16)
    eager, fused = (masked_training(machine, bert(machine, kind), batch, length) for kind in ("eager", "sdpa"))
    return Program(eager, fused, tolerance=5e-2)


def llama(machine: Machine) -> LlamaModel:
    width = machine.size(2048, 64)
    config = LlamaConfig(
        vocab_size=machine.size(30528, 128), hidden_size=width, num_hidden_layers=machine.size(6, 2),
        num_attention_heads=machine.size(16, 2), num_key_value_heads=machine.size(16, 2),
        intermediate_size=machine.size(4096, 128), attn_implementation="sdpa",
    )  # fmt: skip
    return place(machine, lambda: LlamaModel(config)).eval()


def prompts_read_eagerly(_: str, machine: Machine) -> Program:
    """Norms, rotations and gates of a Llama run kernel by kernel over a long prompt; fixed, torch.compile."""
    words = tokens(machine, machine.size(8, 2), machine.size(2048, 16))
    model = llama(machine)

    def reading(run: Callable[..., object]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden: Tensor = run(input_ids=words, use_cache=False).last_hidden_state  # type: ignore[attr-defined]
            return hidden[:, -1].float().square().mean()

        return step

    return Program(reading(model), reading(torch.compile(model) if machine.cuda else model), tolerance=5e-2)


def losses_kept_as_numbers(_: str, machine: Machine) -> Program:
    """Eight micro-batches a step, the loss of each kept by .item(); fixed, on the device until the step's end."""
    model = place(
        machine, lambda: nn.Sequential(*(nn.Linear(machine.size(1024), machine.size(1024)) for _ in range(12)))
    )
    optimizer = adamw(model.parameters(), lr=RATE)
    width, rows = machine.size(1024), machine.size(1024)
    parts = [machine.random(rows, width, seed=seed) for seed in range(8)]

    def training(kept: Callable[[Tensor], object]) -> Step:
        def step() -> Tensor:
            losses = []
            for part in parts:
                loss = F.mse_loss(model(part), part) / len(parts)
                loss.backward()
                losses.append(kept(loss.detach()))
            optimizer.step()
            optimizer.zero_grad()
            return torch.as_tensor(losses, device=machine.device).sum() if kept is Tensor.item else sum(losses)

        return step

    return Program(training(Tensor.item), training(lambda loss: loss.float()), tolerance=5e-2)


def outputs_checked_for_nan(_: str, machine: Machine) -> Program:
    """A hook asks after every layer whether its output holds a NaN; fixed, it is taken away."""
    width, rows, count = machine.size(1024), machine.size(4096), machine.size(24, 2)

    def training(watched: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(count))))
        optimizer = adamw(model.parameters(), lr=RATE)
        batch = machine.random(rows, width)

        def check(_: nn.Module, __: object, output: Tensor) -> None:
            if torch.isnan(output).any():
                raise FloatingPointError("NaN in the output")

        for layer in model if watched else ():
            layer.register_forward_hook(check)
        return lambda: update(machine, F.mse_loss(model(batch), batch), optimizer).float()

    return Program(training(True), training(False), tolerance=5e-2)


def masks_sent_each_step(_: str, machine: Machine) -> Program:
    """A mask of floats comes from ordinary memory every step; fixed, lengths are sent and it is made on the GPU."""
    batch, heads, length, width = machine.size(32, 2), machine.size(16, 2), machine.size(512, 16), machine.size(64)
    query, key, value = (machine.random(batch, heads, length, width, seed=seed) for seed in range(3))
    lengths = torch.tensor([length - 7 * (row % 8) for row in range(batch)]).clamp(min=1)
    seen = torch.arange(length)[None, :] < lengths[:, None]
    hidden = torch.zeros(batch, 1, length, length).masked_fill(~seen[:, None, None, :], -1e4)
    places = torch.arange(length, device=machine.device)
    small = machine.pinned(lengths)

    def attending(mask: Callable[[], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            given, found = mask().to(query.dtype), query
            for _ in range(6):
                found = F.scaled_dot_product_attention(found, key, value, attn_mask=given)
            return found.float().square().mean()

        return step

    def made() -> Tensor:
        there = small.to(machine.device, non_blocking=True)
        within = places[None, :] < there[:, None]
        return torch.where(within, 0.0, -1e4)[:, None, None, :].expand(batch, 1, length, length)

    return Program(attending(lambda: hidden.to(machine.device)), attending(made), tolerance=2e-2)


def pairs_of_words_counted(_: str, machine: Machine) -> Program:
    """Pairs of words are counted in Python at every step for a metric; fixed, once for the resident batch."""
    width, rows = machine.size(2048), machine.size(8192)
    model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))))
    optimizer = adamw(model.parameters(), lr=RATE)
    batch = machine.random(rows, width)
    drawn = random.Random(0)
    sentences = [[drawn.randrange(5000) for _ in range(machine.size(512, 8))] for _ in range(64)]

    def count() -> float:
        seen: Counter[tuple[int, int]] = Counter()
        for words in sentences:
            for pair in pairwise(words):
                seen[pair] += 1
        return len(seen) / 1e6

    known = count()

    def training(metric: Callable[[], float]) -> Step:
        return lambda: update(machine, F.mse_loss(model(batch), batch), optimizer).float() + metric()

    return Program(training(count), training(lambda: known), tolerance=5e-2)


def states_scanned_in_python(_: str, machine: Machine) -> Program:
    """A recurrence goes over time in a Python loop of small kernels; fixed, the pass is one CUDA graph."""
    batch, length, width = machine.size(64, 2), machine.size(96, 8), machine.size(1024)
    inputs, decay = machine.random(length, batch, width), machine.random(width).float().sigmoid().to(torch.bfloat16)
    weight = machine.random(width, width) * 0.02

    @torch.no_grad()
    def scan() -> Tensor:
        state = torch.zeros_like(inputs[0])
        for part in inputs:
            state = torch.tanh(state * decay + part @ weight)
        return state.float().square().mean()

    return Program(scan, machine.graphed(scan), tolerance=2e-2)


def scan_as_a_graph(_: str, machine: Machine) -> Program:
    """Nothing is planted: a recurrence of wide products as one CUDA graph."""
    rows, width = machine.size(4096), machine.size(4096)
    start, weight = machine.random(rows, width), machine.random(width, width) * 0.01

    @torch.no_grad()
    def scan() -> Tensor:
        state = start
        for _ in range(12):
            state = state @ weight
        return state[:64].float().square().mean()

    step = machine.graphed(scan)
    return Program(step, step)
