"""One training step of GPT-2 124M, 8 sequences of 1024 tokens: one flag per change.

    python -m benchmarks.worked.gpt2 [--tf32] [--bf16] [--compile] [--flash] [--pad] [--fused] [--steps N]

Every run first compares the gradient of its first step with that of the plain fp32 model; the loss of step 10 is handed
over as a check. The batch is one and the same, drawn at random, so the loss falls as the model learns it by heart.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.worked.loop import Place, agreement, train
from torch import Tensor, nn

VOCABULARY, PADDED = 50257, 50304
GRADIENT_TOLERANCE = 5e-2
CHECK_STEP = 10


class Block(nn.Module):
    """Norm, attention, norm, MLP. `flash`: attention in one kernel instead of products and a softmax."""

    def __init__(self, width: int, heads: int, flash: bool) -> None:
        super().__init__()
        self.heads, self.flash = heads, flash
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, barred: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.qkv(self.norm1(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.flash:
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = (query @ key.transpose(-2, -1)) * (width // self.heads) ** -0.5
            attended = F.softmax(scores.masked_fill(barred[:length, :length], float("-inf")), dim=-1) @ value
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden)), approximate="tanh"))


class Gpt2(nn.Module):
    """The model and its loss. `rows` of the token table may exceed the vocabulary; their logits are not looked at."""

    def __init__(self, place: Place, flash: bool, padded: bool) -> None:
        super().__init__()
        width, heads, layers = place.size(768, 64), place.size(12, 4), place.size(12, 2)
        self.vocabulary = place.size(VOCABULARY, 257)
        rows = place.size(PADDED, 320) if padded else self.vocabulary
        self.length = place.size(1024, 32)
        self.tokens, self.places = nn.Embedding(rows, width), nn.Embedding(self.length, width)
        self.blocks = nn.ModuleList(Block(width, heads, flash) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("barred", torch.ones(self.length, self.length, dtype=torch.bool).triu(1), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, self.barred)
        return self.loss(hidden, targets)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = F.linear(self.norm(hidden), self.tokens.weight)[..., : self.vocabulary]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def compile_parts(self, backend: str) -> None:
        """Every block, which are one compilation as they are alike, and the loss."""
        for block in self.blocks:
            block.compile(backend=backend)
        self.loss = torch.compile(self.loss, backend=backend)


def load(model: Gpt2, state: dict[str, Tensor]) -> None:
    """The same weights in every run; rows that were added are zero."""
    rows = model.tokens.weight.shape[0] - state["tokens.weight"].shape[0]
    model.load_state_dict({**state, "tokens.weight": F.pad(state["tokens.weight"], (0, 0, 0, rows))})


def gradients(model: nn.Module, vocabulary: int) -> list[Tensor]:
    """Of every parameter; of the token table without the rows that were added."""
    return [p.grad[:vocabulary] if name == "tokens.weight" else p.grad for name, p in model.named_parameters()]


def relative_error(found: list[Tensor], expected: list[Tensor]) -> float:
    """Norm of the difference over the norm, all parameters together."""
    pairs = zip(found, expected, strict=True)
    apart = torch.stack([(a.double() - b.double()).square().sum() for a, b in pairs]).sum()
    return float((apart / torch.stack([b.double().square().sum() for b in expected]).sum()).sqrt())


def training_step(
    loss_of: Callable[[], Tensor], optimizer: torch.optim.Optimizer, autocast: Callable[[], AbstractContextManager]
) -> Callable[[], Tensor]:
    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main() -> None:
    given = parsed()
    place = Place.of(given.dry)
    torch.manual_seed(0)
    with torch.device(place.device):
        plain = Gpt2(place, flash=False, padded=False)
        drawn = torch.randint(plain.vocabulary, (place.size(8, 2), plain.length + 1))
        model = Gpt2(place, given.flash, given.pad)
    tokens, targets = drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
    load(model, plain.state_dict())
    plain(tokens, targets).backward()
    expected = gradients(plain, plain.vocabulary)

    torch.set_float32_matmul_precision("high" if given.tf32 else "highest")
    if given.compile:
        model.compile_parts("aot_eager" if place.dry else "inductor")

    def autocast() -> AbstractContextManager:
        return torch.autocast(place.device, torch.bfloat16) if given.bf16 else nullcontext()

    with autocast():
        loss = model(tokens, targets)
    loss.backward()
    error = relative_error(gradients(model, plain.vocabulary), expected)
    agreement(error, GRADIENT_TOLERANCE, "gradient against fp32")
    model.zero_grad(set_to_none=True)
    del plain, expected, loss

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True if given.fused else None)
    train(training_step(lambda: model(tokens, targets), optimizer, autocast), given.steps, place, CHECK_STEP)
    place.wait()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tf32", action="store_true", help="products of fp32 matrices in TF32")
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    parser.add_argument("--compile", action="store_true", help="torch.compile of every block and of the loss")
    parser.add_argument("--flash", action="store_true", help="attention in one kernel")
    parser.add_argument("--pad", action="store_true", help="a token table of 50,304 rows instead of 50,257")
    parser.add_argument("--fused", action="store_true", help="AdamW in one pass")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does it run?")
    return parser.parse_args()


if __name__ == "__main__":
    main()
