"""Faults as pieces of a training program, each beside its hand-made repair, and the programs that are made of them.

A piece stands at places of one small program: before the loop, in the step, after it, at the end. So a program with
several faults is the sum of its pieces, and the program that a person would make of it the sum of their repairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PLACES: Final = ("imports", "setup", "begin", "loss", "after", "end")
TEMPLATE: Final = """import copy
import torch
from torch import nn
{imports}
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH = (512, 32) if device == "cuda" else (64, 12)
model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(DEPTH))).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
batches = [torch.randn(64, WIDTH, device=device) for _ in range(8)]
losses = []
{setup}
for number, x in enumerate(batches * STEPS):
{begin}
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean(){loss}
    loss.backward()
    optimizer.step()
{after}
{end}
"""


@dataclass(frozen=True)
class Piece:
    """A fault, and its repair: lines, each behind the place where it stands. `fix` is the row of the table of fixes.

    `naive`, of a trap, is what a pattern that does not look closely would put for the text of `naive_of`.
    """

    name: str
    fix: str
    faulty: str
    mended: str = ""
    naive_of: str = ""
    naive: str = ""


def program(pieces: Iterable[Piece], mended: bool = False, steps: int = 1000) -> str:
    """The program with all these faults, or with all of their repairs."""
    parts: dict[str, list[str]] = {place: [] for place in PLACES}
    for piece in pieces:
        for line in (piece.mended if mended else piece.faulty).strip("\n").splitlines():
            place, _, text = line.partition("| ")
            parts[place.strip()].append(text if place.strip() not in ("begin", "after") else f"    {text}")
    loss = "".join(f" + {text}" for text in parts.pop("loss"))
    texts = {place: "\n".join(lines) for place, lines in parts.items()}
    return TEMPLATE.format(loss=loss, **texts).replace("STEPS", str(steps))


_PADDED: Final = """
setup | LONGEST, FEATURES = (4096, 1024) if device == "cuda" else (512, 64)
setup | lengths = torch.randint(8, 32, (64,)).tolist()
setup | samples = [torch.ones(length) for length in lengths]
setup | embed = nn.Linear(1, FEATURES).to(device)
setup | optimizer.add_param_group({"params": embed.parameters()})
setup | def collate(rows):
setup |     padded = torch.zeros((len(rows), SIZE))
setup |     for at, row in enumerate(rows):
setup |         padded[at, : len(row)] = row
setup |     return padded, padded != 0
setup | loader = torch.utils.data.DataLoader(samples, batch_size=16, collate_fn=collate)
setup | collated = iter(list(loader) * 5000)
begin | tokens, mask = (part.to(device) for part in next(collated))
"""
_POOLED: Final = "loss | (embed(tokens[..., None]) * mask[..., None]).sum(1).square().mean() * 1e-6"
FAULTS: Final = (
    Piece(
        "mask_in_loop",
        "build_once",
        """
begin | causal = torch.triu(torch.ones(768, 768), 1).to(device)
loss  | causal[0, 1]
""",
        """
setup | causal = torch.triu(torch.ones(768, 768), 1).to(device)
loss  | causal[0, 1]
""",
    ),
    Piece(
        "teacher_records",
        "no_gradients",
        """
setup | teacher = copy.deepcopy(model)
setup | teacher.eval()
begin | target = teacher(x)
loss  | (model(x) - target).square().mean()
""",
        """
setup | teacher = copy.deepcopy(model)
setup | teacher.eval()
begin | with torch.no_grad():
begin |     target = teacher(x)
loss  | (model(x) - target).square().mean()
""",
    ),
    Piece(
        "average_one_by_one",
        "list_operations",
        """
setup | averaged = copy.deepcopy(model)
after | with torch.no_grad():
after |     for mean, p in zip(averaged.parameters(), model.parameters()):
after |         mean.mul_(0.99).add_(p, alpha=0.01)
""",
        """
setup | averaged = copy.deepcopy(model)
after | with torch.no_grad():
after |     torch._foreach_mul_(list(averaged.parameters()), 0.99)
after |     torch._foreach_add_(list(averaged.parameters()), list(model.parameters()), alpha=0.01)
""",
    ),
    Piece(
        "scaled_one_by_one",
        "list_operations",
        """
begin | for p in model.parameters():
begin |     if p.grad is not None:
begin |         p.grad.mul_(0.5)
""",
        """
begin | graded = [p.grad for p in model.parameters() if p.grad is not None]
begin | if graded:
begin |     torch._foreach_mul_(graded, 0.5)
""",
    ),
    Piece(
        "evaluated_each_step",
        "evaluate_rarely",
        """
setup | def evaluate(net):
setup |     with torch.no_grad():
setup |         return sum(net(x).mean() for x in batches)
after | score = evaluate(model)
after | print("score", score)
""",
        """
setup | def evaluate(net):
setup |     with torch.no_grad():
setup |         return sum(net(x).mean() for x in batches)
after | if number % 50 == 0:
after |     score = evaluate(model)
after |     print("score", score)
""",
    ),
    Piece(
        "norms_each_step",
        "remove_sync",
        """
after | norm = sum(p.grad.norm().item() for p in model.parameters())
after | print(f"loss {loss.item():.3f}, norm {norm:.3f}")
""",
        """
after | if number % 50 == 0:
after |     norm = sum(p.grad.norm().item() for p in model.parameters())
after |     print(f"loss {loss.item():.3f}, norm {norm:.3f}")
""",
    ),
    Piece("anomaly_mode", "drop_debugging", "setup | torch.autograd.set_detect_anomaly(True)"),
    Piece(
        "padded_to_longest",
        "pad_to_batch",
        _PADDED.replace("SIZE", "LONGEST") + _POOLED,
        _PADDED.replace("SIZE", "max(map(len, rows))") + _POOLED,
    ),
    Piece(
        "sorted_for_the_best",
        "use_a_part",
        """
setup | scores = torch.randn(64, 100_000 if device == "cuda" else 8_000, device=device)
begin | weighted = scores * x[:, :1]
loss  | weighted.sort(dim=1, descending=True)[0][:, :16].mean() * 1e-6
loss  | torch.sort(scores)[0][..., :8].mean() * 1e-6
""",
        """
setup | scores = torch.randn(64, 100_000 if device == "cuda" else 8_000, device=device)
begin | weighted = scores * x[:, :1]
loss  | weighted.topk(16, dim=1).values.mean() * 1e-6
loss  | torch.topk(scores, 8, largest=False).values.mean() * 1e-6
""",
    ),
    Piece(
        "summed_each_step",
        "remove_sync",
        """
setup | total = 0.0
after | total += loss.item()
after | losses.append(loss.item())
end   | print(total / 8)
""",
        """
setup | total = torch.zeros((), device=device)
after | total += loss.detach()
after | losses.append(loss.detach())
end   | total, losses = float(total), torch.stack(losses).tolist()
end   | print(total / 8)
""",
    ),
)
"""The last one costs nothing on a CPU, where a value is there as soon as it is computed."""
TRAPS: Final = (
    Piece(
        "read_controls_loop",
        "remove_sync",
        """
after | value = loss.item()
after | if value > 0.9:
after |     optimizer.param_groups[0]["lr"] *= 0.9
""",
        naive_of="    value = loss.item()",
        naive="    value = loss.item() if number % 50 == 0 else 0.0",
    ),
    Piece(
        "mask_of_batch",
        "build_once",
        """
setup | x = batches[0]
begin | keep = torch.ones(len(x), 1, device=device) * (x[:, :1] > 0)
loss  | (model(x) * keep).mean()
""",
        naive_of="for number, x",
        naive="keep = torch.ones(len(x), 1, device=device) * (x[:, :1] > 0)\nfor number, x",
    ),
    Piece(
        "teacher_trained",
        "no_gradients",
        """
setup | teacher = copy.deepcopy(model)
setup | teacher.train()
setup | optimizer.add_param_group({"params": teacher.parameters()})
begin | target = teacher(x)
loss  | (model(x) + target - 2).square().mean()
""",
        naive_of="    target = teacher(x)",
        naive="    with torch.no_grad():\n        target = teacher(x)",
    ),
    Piece(
        "shared_storage",
        "list_operations",
        """
setup | table = torch.arange(36.0, device=device).reshape(9, 4)
after | for row, above in zip(table[1:], table[:-1]):
after |     row.add_(above).mul_(0.5)
loss  | table.sum() * 1e-9
""",
        naive_of="    for row, above in zip(table[1:], table[:-1]):\n        row.add_(above).mul_(0.5)",
        naive="    torch._foreach_add_(list(table[1:]), list(table[:-1]))\n"
        "    torch._foreach_mul_(list(table[1:]), 0.5)",
    ),
    Piece(
        "memory_needed",
        "no_recomputation",
        """
imports | from torch.utils.checkpoint import checkpoint
imports | def layer(x):
imports |     if torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
imports |         raise MemoryError("the activations do not fit")
imports |     return x
loss    | checkpoint(layer, x.requires_grad_(), use_reentrant=True).sum() * 0
""",
        naive_of="checkpoint(layer, x.requires_grad_(), use_reentrant=True)",
        naive="layer(x.requires_grad_())",
    ),
    Piece(
        "sorted_along_rows",
        "use_a_part",
        """
setup | scores = torch.randn(64, 256, device=device)
begin | best, places = scores.sort(dim=1)[0][:16], scores.sort(dim=1, descending=True)[1][:, :16]
loss  | (best.mean() + places.float().mean()) * 1e-6
""",
        naive_of="scores.sort(dim=1)[0][:16]",
        naive="scores.topk(16, dim=1, largest=False).values",
    ),
    Piece(
        "padding_needed",
        "pad_to_batch",
        _PADDED.replace("SIZE", "LONGEST") + "begin | blocks = tokens.view(16, LONGEST)\nloss | blocks.mean() * 0",
        naive_of="len(rows), LONGEST",
        naive="len(rows), max(map(len, rows))",
    ),
)
"""What looks like a fault and is none."""
_BY_NAME: Final = {piece.name: piece for piece in FAULTS}
_SEVERAL: Final = (
    ("mask_in_loop", "summed_each_step", "average_one_by_one"),
    ("teacher_records", "norms_each_step", "scaled_one_by_one"),
    ("evaluated_each_step", "mask_in_loop", "anomaly_mode"),
    ("padded_to_longest", "summed_each_step", "average_one_by_one", "mask_in_loop"),
    ("anomaly_mode", "teacher_records", "summed_each_step"),
    ("scaled_one_by_one", "average_one_by_one", "norms_each_step"),
    ("evaluated_each_step", "teacher_records", "summed_each_step", "average_one_by_one"),
    ("padded_to_longest", "norms_each_step", "anomaly_mode"),
    ("mask_in_loop", "scaled_one_by_one", "evaluated_each_step", "summed_each_step"),
    ("teacher_records", "padded_to_longest", "average_one_by_one", "norms_each_step"),
)
SEVERAL: Final = {f"several_{at}": tuple(_BY_NAME[name] for name in names) for at, names in enumerate(_SEVERAL)}
SET_ASIDE: Final = frozenset(list(SEVERAL)[5:])
"""Programs with several faults. Half of them are set aside: no edit is changed for what they show."""
