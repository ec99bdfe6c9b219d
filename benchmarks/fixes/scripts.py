"""Programs as their users write them, each with one planted fault of the suites that an edit can mend.

`<<faulty>>` or `<<faulty|||mended>>` in a text is what the fault says and what a person writes in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VARIANT: Final = re.compile(r"<<(.*?)(?:\|\|\|(.*?))?>>", re.DOTALL)


def _variant(text: str, mended: bool) -> str:
    return _VARIANT.sub(lambda found: (found[2] or "") if mended else found[1], text)


@dataclass(frozen=True)
class Script:
    """A program with one fault. `fix` are the rows of the table of fixes that mend it, one of them or together."""

    name: str
    fix: str
    text: str

    def program(self, mended: bool = False) -> str:
        """The program with its fault, or as a person would mend it."""
        return _variant(self.text, mended)


_HEAD: Final = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
large = device == "cuda"
"""
_ROWS: Final = """import zlib

import numpy as np
from torch.utils.data import DataLoader, Dataset

SIDE = 128 if large else 16


class Pictures(Dataset):
    def __init__(self):
        noise = np.random.default_rng(0)
        self.rows = [zlib.compress(noise.integers(0, 8, (3, SIDE, SIDE), dtype=np.uint8).tobytes()) for _ in range(64)]

    def __len__(self):
        return LENGTH

    def __getitem__(self, at):
        picture = np.frombuffer(zlib.decompress(self.rows[at % 64]), dtype=np.uint8).reshape(3, SIDE, SIDE)
        return torch.from_numpy((picture / 255 - 0.5).astype(np.float32)), at % 10


model = nn.Sequential(
    nn.Conv2d(3, 64, 7, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(128, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
"""
_EPOCHS: Final = """
for epoch in range(1000):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
_LOADED: Final = (
    _HEAD + _ROWS.replace("LENGTH", "64000") + "loader = DataLoader(Pictures(), batch_size=32LOADING)\n" + _EPOCHS
)
_TEXTS: Final = (
    _HEAD
    + """import json

from torch.utils.data import DataLoader

WORDS = 4000
words = [[(at * 7 + i * i) % WORDS for i in range(512)] for at in range(64)]
rows = [json.dumps({"words": row, "label": at % 4}) for at, row in enumerate(words)] * 400


def collate(batch):
    parsed = [json.loads(row) for row in batch]
    words = torch.tensor([one["words"] for one in parsed])
    return words, torch.tensor([one["label"] for one in parsed])


model = nn.Sequential(nn.EmbeddingBag(WORDS, 256), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(rows, batch_size=64, collate_fn=collate<<|||, num_workers=8, persistent_workers=True>>)
"""
    + _EPOCHS
)
_DENSE: Final = (
    _HEAD
    + """WIDTH, DEPTH, ROWS = (WIDTH_DEPTH_ROWS) if large else (32, 4, 8)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(x)))


IMPORTS
MODEL
model = Net().to(device)
optimizer = OPTIMIZER
data = [torch.randn(ROWS, WIDTH, device=device) for _ in range(4)]
SETUP
for step in range(100000):
    x = data[step % 4]
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean()
    loss.backward()
BEFORE    optimizer.step()
AFTER"""
)
_NET: Final = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
_ADAMW: Final = "torch.optim.AdamW(model.parameters(), lr=1e-5, fused=large)"
_QUICK: Final = 'torch.set_float32_matmul_precision("high")'
_IN_BF16: Final = "with torch.autocast(device, dtype=torch.bfloat16):"
_BLOCK: Final = "        x = block(x, mask)\n"
_CALL: Final = "    loss = (model(x) - 1).square().mean()\n"


def _dense(sizes: str, optimizer: str = _ADAMW, **parts: str) -> str:
    """The dense program with other parts. They are lines of the loop, in which they are indented."""
    text = _DENSE.replace("WIDTH_DEPTH_ROWS", sizes).replace("OPTIMIZER", optimizer)
    for place in ("IMPORTS", "MODEL", "SETUP", "BEFORE", "AFTER"):
        said = parts.get(place.lower(), {"MODEL": _NET, "IMPORTS": _QUICK}.get(place, ""))
        text = text.replace(place, said)
    return text


_MASKED: Final = (
    _HEAD
    + """torch.set_float32_matmul_precision("high")
WIDTH, HEADS, DEPTH, LONGEST = (512, 8, 8, 1024) if large else (32, 2, 2, 64)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.joint, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x<<|||, mask>>):
        batch, length, _ = x.shape
<<        later = torch.ones(length, length, device=x.device, dtype=torch.bool).triu(1)
        mask = torch.zeros(length, length, device=x.device).masked_fill(later, float("-inf"))
>>        q, k, v = self.joint(self.norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


model = nn.ModuleList(Block() for _ in range(DEPTH)).to(device)
head = nn.Linear(WIDTH, 1).to(device)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-5, fused=large)
data = [torch.randn(1, LONGEST, WIDTH, device=device) for _ in range(4)]
<<|||later = torch.ones(LONGEST, LONGEST, device=device, dtype=torch.bool).triu(1)
mask = torch.zeros(LONGEST, LONGEST, device=device).masked_fill(later, float("-inf"))
>>
for step in range(100000):
    x = data[step % 4]
    optimizer.zero_grad()
    for block in model:
        x = block(x<<|||, mask>>)
    loss = (head(x) - 1).square().mean()
    loss.backward()
    optimizer.step()
"""
)
_RECOMPUTED: Final = _NET.replace("x = layer(x)", "x = <<checkpoint(layer, x, use_reentrant=False)|||layer(x)>>")
_MICRO: Final = (
    _HEAD
    + """torch.set_float32_matmul_precision("high")
WIDTH, DEPTH, ROWS = (1024, 6, 4096) if large else (32, 3, 8)
model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH))).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=large)
data = [torch.randn(ROWS, WIDTH, device=device) for _ in range(8)]
for step in range(100000):
    for number, x in enumerate(data):
        loss = (model(x) - 1).square().mean() / 8
        loss.backward()
<<        print(f"micro-batch {number}: loss {loss.item():.4f}")
|||        if step % 50 == 0:
            print(f"micro-batch {number}: loss {loss.item():.4f}")
>>    optimizer.step()
    optimizer.zero_grad()
"""
)
_PAGEABLE: Final = (
    _HEAD
    + '''from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, DEPTH = (224, 128, 8) if large else (24, 8, 2)


class Batches(Dataset):
    """Whole batches that were prepared before."""

    def __init__(self):
        self.made = [torch.randn(BATCH, 3, SIDE, SIDE) for _ in range(4)]

    def __len__(self):
        return 40000

    def __getitem__(self, at):
        return self.made[at % 4], torch.arange(BATCH) % 10


model = nn.Sequential(
    nn.Conv2d(3, 64, 7, stride=2), nn.ReLU(), *(nn.Conv2d(64, 64, 3) for _ in range(DEPTH)), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(64, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Batches(), batch_size=None<<|||, pin_memory=True>>)
for epoch in range(1000):
    for x, y in loader:
        x = x.to(device<<|||, non_blocking=True>>)
        y = y.to(device<<|||, non_blocking=True>>)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
'''
)
_CLIPPED: Final = """<<    total = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(scale)
|||    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
>>"""
_AVERAGED: Final = """<<    with torch.no_grad():
        for mean, p in zip(averaged.parameters(), model.parameters()):
            mean.mul_(0.999).add_(p, alpha=0.001)
|||    with torch.no_grad():
        torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 0.001)
>>"""
_LION: Final = """class Lion(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-5})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
<<            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                update = mean.mul(0.9).add_(p.grad, alpha=0.1).sign_()
                p.mul_(1 - group["lr"] * 0.1).add_(update, alpha=-group["lr"])
                mean.lerp_(p.grad, 0.01)
|||            params = group["params"]
            means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in params]
            grads = [p.grad for p in params]
            update = torch._foreach_mul(means, 0.9)
            torch._foreach_add_(update, grads, alpha=0.1)
            torch._foreach_sign_(update)
            torch._foreach_mul_(params, 1 - group["lr"] * 0.1)
            torch._foreach_add_(params, update, alpha=-group["lr"])
            torch._foreach_lerp_(means, grads, 0.01)
>>

"""
_EACH: Final = "torch.optim.{}(model.parameters(), lr=1e-5<<, foreach=False|||, {}>>)"
SCRIPTS: Final = (
    Script("loader_in_main", "loader_workers",
           _LOADED.replace("LOADING", "<<|||, num_workers=8, persistent_workers=True>>")),
    Script("too_few_workers", "loader_workers",
           _LOADED.replace("LOADING", ", num_workers=<<1|||8>>, persistent_workers=True")),
    Script("workers_started_anew", "loader_workers",
           _LOADED.replace("64000", "256").replace("LOADING", ", num_workers=4<<|||, persistent_workers=True>>")),
    Script("decoded_while_collated", "loader_workers", _TEXTS),
    Script("pageable_batch", "pin_memory,waiting_copies", _PAGEABLE),
    Script("printed_loss", "remove_sync", _MICRO),
    Script("final_loss_read", "remove_sync", _dense("1024, 4, 1024", setup="running = 0.0",
           after="    running += loss<<.item()|||.detach()>>\n")),
    Script("masks_rebuilt", "build_once", _MASKED),
    Script("weights_averaged_one_by_one", "list_operations", _dense(
           "512, 24, 256", setup="import copy\n\naveraged = copy.deepcopy(model)", after=_AVERAGED)),
    Script("gradients_clipped_one_by_one", "list_operations", _dense("512, 24, 256", before=_CLIPPED)),
    Script("lion_weight_by_weight", "list_operations",
           _dense("512, 24, 256", "Lion(model.parameters())", model=_LION + _NET)),
    Script("evaluated_every_step", "evaluate_rarely", _dense(
           "1024, 8, 2048", setup="held_out = torch.randn(ROWS, WIDTH, device=device)\n\n\ndef evaluate():\n"
           "    with torch.no_grad():\n        return (model(held_out) - 1).square().mean()\n",
           after="<<    score = evaluate()\n    print(f'held out {score:.4f}')\n"
           "|||    if step % 50 == 0:\n        score = evaluate()\n        print(f'held out {score:.4f}')\n>>")),
    Script("anomalies_detected", "drop_debugging",
           _dense("512, 24, 256", setup="<<torch.autograd.set_detect_anomaly(True)>>")),
    Script("layers_recomputed", "no_recomputation", _dense("1024, 12, 4096", model=_RECOMPUTED,
           imports=f"from torch.utils.checkpoint import checkpoint\n\n{_QUICK}")),
    Script("adamw_one_by_one", "fused_optimizer,foreach", _dense("512, 24, 256", _EACH.format("AdamW", "fused=large"))),
    Script("sgd_one_by_one", "fused_optimizer,foreach",
           _dense("512, 24, 256", _EACH.format("SGD", "foreach=True").replace("1e-5", "1e-5, momentum=0.9"))),
    Script("adam_of_many_small_weights", "fused_optimizer,foreach",
           _dense("128, 96, 256", _EACH.format("Adam", "fused=large"))),
    Script("tf32_off", "tf32", _dense("2048, 4, 2048", imports=f"<<|||{_QUICK}>>")),
    Script("fp32_training", "bf16", _dense("2048, 4, 4096").replace(
           _CALL, f"<<{_CALL}|||    {_IN_BF16}\n    {_CALL}>>")),
    Script("trained_without_autocast", "bf16", _variant(_MASKED, True).replace("(1, LONGEST", "(8, LONGEST").replace(
           _BLOCK, f"<<{_BLOCK}|||        {_IN_BF16}\n    {_BLOCK}>>")),
    Script("collected_each_step", "frozen_garbage", _dense(
           "1024, 4, 1024", setup="import gc\n\nrecords = [{\"text\": [at]} for at in range(200_000)]",
           after="<<    gc.collect()\n>>")),
    Script("cache_emptied", "keep_memory", _dense("1024, 8, 4096", after="<<    torch.cuda.empty_cache()\n>>")),
    Script("synchronize_per_layer", "remove_sync", _dense("512, 24, 256", model=_NET.replace(
           "x = layer(x)\n", "x = layer(x)\n<<            if large:\n                torch.cuda.synchronize()\n>>"))),
)  # fmt: skip
"""The last but one needs a GPU."""
