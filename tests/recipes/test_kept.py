"""Data that is copied piece by piece lies on the GPU: the same numbers, as long as nothing changes it."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipes.repairing import proposed, repaired

torch = pytest.importorskip("torch")

TRAIN = """import numpy as np
import torch
torch.manual_seed(0)
rng, device = np.random.default_rng(0), torch.device("cpu")
{data}
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(6):
    at = int(rng.integers(0, 5))
{body}
    loss = model(x).pow(2).mean()
    losses.append(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ARRAY = "data = rng.normal(size=(9, 4, 3))"
KEPT = {
    "one picture": (ARRAY, "x = torch.Tensor(data[at]).to(device)"),
    "in two lines": (ARRAY, "x = data[at]\nx = torch.Tensor(x).to(device)"),
    "with others between": (ARRAY, "x = data[at]\ny = at + 1\nx = torch.tensor(x, dtype=torch.float32, device=device)"),
    "a slice": (ARRAY, "x = torch.from_numpy(data[at:at + 3]).float().to(device)"),
    "numbers of rows": (ARRAY, "x = torch.from_numpy(data[rng.permutation(9)[:4]]).to(device, torch.float32)"),
    "of a tensor": ("data = torch.randn(9, 4, 3)", "x = data[at].to(device)"),
    "of bytes": (
        "data = rng.integers(0, 256, (9, 4, 3), dtype=np.uint8)",
        "x = torch.from_numpy(data[at]).to(device).float() / 255.0 - 0.5",
    ),
    "one that is written to": (ARRAY, "x = torch.Tensor(data[at]).to(device)\nx.mul_(2)\nx[0] = 0"),
    "now and then": (ARRAY, "if step % 2:\n    x = torch.Tensor(data[at]).to(device)\nelse:\n    x = torch.ones(2, 3)"),
    "of a list of arrays": (
        "data = [rng.normal(size=(4, 3)).astype(np.float32) for _ in range(9)]",
        "x = torch.tensor(data[at]).to(device)",
    ),
}  # fmt: skip
LEFT = {
    "kept on the CPU": (ARRAY, "x = torch.Tensor(data[at])"),
    "changed in the loop": (ARRAY, "data[at] += 1\nx = torch.Tensor(data[at]).to(device)"),
    "made in the loop": ("", "data = rng.normal(size=(9, 4, 3))\nx = torch.Tensor(data[at]).to(device)"),
    "sorted": ("data = torch.randn(9, 4, 3)", "x = data[at].sort(0)[0].to(device)"),
    "turned": ("data = torch.randn(9, 3, 4)", "x = data[at].t().to(device)"),
    "one of a mapped file": (
        ARRAY + "\nnp.save('/tmp/data.npy', data)\ndata = np.memmap('/tmp/data.npy', mode='r')",
        "x = torch.Tensor(data[at]).to(device)",
    ),
    "looked at in between": (ARRAY, "x = data[at]\nshown = x.mean()\nx = torch.Tensor(x).to(device)"),
    "of a list": ("data = [torch.randn(4, 3) for _ in range(9)]", "x = data[at].to(device)"),
    "of a dict": ("data = {'x': torch.randn(4, 3)}", "x = data['x'].to(device)"),
    "a part of a part": (ARRAY, "x = torch.Tensor(data[at][:2]).to(device)"),
}  # fmt: skip


def script(data: str, body: str) -> str:
    return TRAIN.format(data=data, body="\n".join(f"    {row}" for row in body.splitlines()))


def computed(text: str) -> list[float]:
    held: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), held)
    return [float(loss) for loss in held["losses"]]


@pytest.mark.parametrize("name", KEPT)
def test_the_data_is_copied_once_and_the_losses_stay(tmp_path: Path, name: str) -> None:
    text = script(*KEPT[name])
    new, made = repaired(tmp_path, text)
    assert "data_on_gpu" in made and "data_on_gpu = None" not in text
    assert computed(new) == computed(text)


@pytest.mark.parametrize("name", LEFT)
def test_what_may_be_another_in_each_step_is_left(tmp_path: Path, name: str) -> None:
    assert "data_on_gpu" not in {one.fix for _, one in proposed(tmp_path, script(*LEFT[name]))}


def test_data_that_something_else_has_is_only_offered(tmp_path: Path) -> None:
    text = script(f"{ARRAY}\nshown = [data]", "x = torch.Tensor(data[at]).to(device)\nshown[0][0] = 1")
    (found,) = [one for _, one in proposed(tmp_path, text) if one.fix == "data_on_gpu"]
    assert found.unproven == "data is handed on, where it may be changed in the loop"


def test_it_is_copied_anew_where_an_outer_loop_makes_it_anew(tmp_path: Path) -> None:
    text = script(ARRAY, "x = torch.Tensor(data[at]).to(device)")
    head, loop = text.split("for step")
    loop = "for step" + loop
    outer = (
        head + "for epoch in range(2):\n    data = data * 2\n" + "".join(f"    {row}\n" for row in loop.splitlines())
    )
    new, made = repaired(tmp_path, outer)
    assert made == {"data_on_gpu"} and "    data = data * 2\n    data_on_gpu = None\n    for" in new
    assert computed(new) == computed(outer)
