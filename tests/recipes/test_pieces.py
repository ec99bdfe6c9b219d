"""What runs once for each piece, batched: offered with code that computes the same; what is not of pieces is left."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipes.repairing import proposed, repaired

torch = pytest.importorskip("torch")

START = """import torch
from torch import nn
torch.manual_seed(0)
layer, pool = nn.Linear(3, 4), nn.AvgPool2d(2)
x, y, images = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 2, 4, 4)
q, k, w = torch.randn(2, 5, 4, 3), torch.randn(2, 5, 4, 3), torch.randn(5, 3, 2)
def dot(a, b):
    return (a * b).sum()
def scaled(a, by=1.0):
    return a * by
"""
PIECES = {
    "a row at a time": "out = torch.stack([layer(row) for row in x])",
    "rows by number": "out = torch.stack([layer(x[i]) for i in range(len(x))])",
    "rows of two": "out = torch.stack([dot(a, b) for a, b in zip(x, y)])",
    "rows of two by number": "out = torch.stack([dot(x[i], y[i]) for i in range(x.shape[0])])",
    "the first rows": "n = 4\nout = torch.stack([layer(x[i]) for i in range(n)])",
    "heads": "out = torch.stack([q[:, h] @ k[:, h].transpose(-1, -2) for h in range(q.shape[1])], dim=1)",
    "experts": "out = torch.stack([q[:, e] @ w[e] for e in range(5)], 1)",
    "a sum of each": "out = torch.stack([(x[i] ** 2).sum() + y[i, 0] for i in range(6)])",
    "a part of each": "out = torch.stack([q[0, h, :, 1:] + k[1, h, 2:3, 0] for h in range(5)])",
    "one picture at a time": "out = torch.cat([pool(images[i:i + 1]) for i in range(len(images))])",
    "chunks": "n = 4\nout = torch.cat([layer(x[i:i+n]) for i in range(0, x.shape[0], n)], 0)",
    "chunks with words": "out = torch.cat([scaled(part, by=2.0) for part in x.split(4)], dim=0)",
    "chunks with words of elsewhere": "more = {'by': 3.0}\nout = torch.cat([scaled(p, **more) for p in x.split(4)])",
    "chunks of a number": "out = torch.cat([layer(part) for part in torch.chunk(x, 3)])",
    "a list": "parts = []\nfor row in x:\n    parts.append(layer(row))\nout = torch.stack(parts)",
    "a list of a name": (
        "parts = list()\nfor i in range(len(x)):\n    one = layer(x[i])\n    parts.append(one)\n"
        "z = 3\nout = torch.stack(parts) + z"
    ),
    "a list of chunks": (
        "n = 2\nparts = []\nfor i in range(0, len(x), n):\n    parts.append(layer(x[i : i + n]))\n"
        "out = torch.cat(parts)"
    ),
    "of a module": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(w)\n"
        "    def forward(self, q):\n        parts = []\n        for e in range(self.w.shape[0]):\n"
        "            parts.append(q[:, e] @ self.w[e])\n        return torch.stack(parts, dim=1)\nout = Net()(q)"
    ),
}  # fmt: skip
DATA = """import numpy as np
import torch
torch.manual_seed(0)
data, rows, n = torch.arange(90) ** 2, np.arange(90, dtype=np.uint16) ** 2, 8
ix = torch.randint(len(data) - n, (5,))
"""
WINDOWS = {
    "of a tensor": "out = torch.stack([data[i:i+n] for i in ix])",
    "a token on": "out = torch.stack([data[i + 1 : i + 1 + n] for i in ix])",
    "a token on, otherwise": "out = torch.stack([data[i + 1 : i + n + 1] for i in ix], dim=0)",
    "of a product": "out = torch.stack([data[i : i + 2 * n] for i in ix])",
    "of an array": "out = torch.stack([torch.from_numpy((rows[i:i+n]).astype(np.int64)) for i in ix])",
    "of an array, drawn on a device": (
        "at = torch.randint(80, (5,), device=data.device)\n"
        "out = torch.stack([torch.from_numpy(rows[i:i+n].astype(np.int64)) for i in at])"
    ),
    "of another type": "out = torch.stack([data[i:i+n].float() for i in ix]) * 2",
    "of a list": "many = []\nfor i in ix:\n    many.append(data[n + i : n + i + n])\nout = torch.stack(many)",
    "of a function": (
        "def batch(split):\n    starts = torch.randint(high=70, size=(3,), device='cpu')\n"
        "    return torch.stack([split[i:i+n] for i in starts])\nout = batch(data)"
    ),
}  # fmt: skip
NO_WINDOWS = {
    "of a list of numbers": "ix = [1, 2]\nout = torch.stack([data[i:i+n] for i in ix])",
    "of two rows of numbers": "at = torch.randint(9, (2, 3))\nout = torch.stack([data[i[0]:i[0]+n] for i in at])",
    "of drawn rows": "at = torch.randint(9, (2, 3))\nout = torch.stack([data[i:i+n] for i in at])",
    "from the start on": "out = torch.stack([data[: i + n][:n] for i in ix])",
    "of every second": "out = torch.stack([data[i : i + n : 2] for i in ix])",
    "side by side": "out = torch.stack([data[i:i+n] for i in ix], dim=1)",
    "of a length that differs": "out = torch.stack([data[i : i + n - 0 * i] for i in ix])",
    "of what is computed": "out = torch.stack([data[i:i+n] * i for i in ix])",
    "of an array that is added to": "out = torch.stack([torch.from_numpy(rows[i:i+n] + 1) for i in ix])",
}  # fmt: skip
LEFT = {
    "the number itself": "out = torch.stack([x[i] * i for i in range(6)])",
    "a neighbour": "out = torch.stack([x[i] - x[i - 1] for i in range(6)])",
    "some of them": "out = torch.stack([layer(row) for row in x if row[0] > 0])",
    "pairs of all": "out = torch.stack([dot(a, b) for a in x for b in y])",
    "from the second on": "out = torch.stack([layer(x[i]) for i in range(1, 6)])",
    "chunks that overlap": "out = torch.cat([layer(x[i:i+3]) for i in range(0, x.shape[0], 2)])",
    "chunks of some": "out = torch.cat([layer(x[i:i+2]) for i in range(0, 4, 2)])",
    "chunks side by side": "out = torch.cat([layer(part) for part in x.split(2)], dim=1)",
    "columns": "out = torch.cat([scaled(part) for part in x.split(1, 1)])",
    "a chunk and its number": "out = torch.cat([scaled(x[i:i+2], by=i) for i in range(0, x.shape[0], 2)])",
    "a running value": (
        "state, parts = torch.zeros(4), []\nfor row in x:\n    state = state + layer(row)\n    parts.append(state)\n"
        "out = torch.stack(parts)"
    ),
    "a list that is looked at": (
        "parts = []\nfor row in x:\n    parts.append(layer(row))\nlast = parts[-1]\nout = torch.stack(parts)"
    ),
    "a list begun with more": "parts = [x[0]]\nfor row in x:\n    parts.append(row * 2)\nout = torch.stack(parts)",
    "a name read later": (
        "parts = []\nfor row in x:\n    one = layer(row)\n    parts.append(one)\nlast = one\nout = torch.stack(parts)"
    ),
    "what is changed in between": (
        "parts = []\nfor row in x:\n    parts.append(layer(row))\nx.zero_()\nout = torch.stack(parts)"
    ),
    "numpy's": "import numpy as np\nout = torch.tensor(np.stack([row.numpy() for row in x]))",
    "several modules": "out = torch.stack([one(x) for one in [layer, layer]])",
    "several modules of a name": "many = [layer, layer]\nout = torch.stack([one(x) for one in many])",
    "several modules by number": "many = [layer, layer]\nout = torch.stack([many[i](x) for i in range(2)])",
    "windows": "ix = torch.arange(4)\nout = torch.stack([x[0][i:i + 2] for i in ix])",
    "ranges": "a, b = torch.zeros(4), torch.ones(4)\nout = torch.stack([torch.arange(i, j) for i, j in zip(a, b)])",
    "sizes": "ix = torch.ones(4).long()\nout = torch.stack([torch.zeros(3).repeat(i) for i in ix])",
    "what is drawn": "parts = [layer(row) for row in x]\nout = torch.stack(parts)",
}  # fmt: skip


def computed(text: str) -> Any:
    held: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), held)
    return held["out"]


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_computed_at_once_and_only_offered(tmp_path: Path, name: str) -> None:
    text = START + PIECES[name] + "\n"
    ((source, found),) = [pair for pair in proposed(tmp_path, text) if pair[1].fix == "batch_units"]
    assert found.unproven
    new = source.edited(found.replacements)
    assert ("for " in PIECES[name]) > ("for " in new.removeprefix(START))
    torch.testing.assert_close(computed(new), computed(text))
    assert not proposed(tmp_path, new)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_piece_is_left(tmp_path: Path, name: str) -> None:
    assert not [one for _, one in proposed(tmp_path, START + LEFT[name] + "\n") if one.fix == "batch_units"]


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_taken_by_one_index(tmp_path: Path, name: str) -> None:
    text = DATA + WINDOWS[name] + "\n"
    new, made = repaired(tmp_path, text)
    assert made == {"batch_units"} and "for " not in new
    before, after = computed(text), computed(new)
    assert torch.equal(before, after) and before.dtype is after.dtype and before.stride() == after.stride()


@pytest.mark.parametrize("name", NO_WINDOWS)
def test_other_windows_are_left(tmp_path: Path, name: str) -> None:
    assert repaired(tmp_path, DATA + NO_WINDOWS[name] + "\n")[1] == set()
