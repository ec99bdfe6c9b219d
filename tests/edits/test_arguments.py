"""Flags: one argument or line more, where the program makes what is changed; else none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from timesink.edits.table import proposals

SCRIPT = """import torch
from torch import nn

model = nn.Linear(3, 3)
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,  # tuned
)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x),
                                       y)
    loss.backward()
"""
PLACES = {"model": 11, "optimizer": 5, "loader": 9}


def patched(folder: Path, script: str, *names: str) -> tuple[str, list[str]]:
    """The script with all proven edits, and those that were made."""
    file = folder / "train.py"
    file.write_text(script)
    places = {what: f"{file}:{line}" for what, line in PLACES.items()}
    found = [(source, one) for source, one in proposals([file], names, places) if not one.unproven]
    parts = [part for _, one in found for part in one.replacements]
    return (found[0][0].edited(parts) if found else script), [one.fix for _, one in found]


def test_all_that_is_an_argument_or_a_line_is_written(tmp_path: Path) -> None:
    text, made = patched(tmp_path, SCRIPT, "tf32", "bf16", "fused_optimizer", "loader_workers", "pin_memory", "compile")
    ast.parse(text)
    assert sorted(made) == ["bf16", "fused_optimizer", "loader_workers", "pin_memory", "tf32"]
    assert text.splitlines()[1] == 'torch.set_float32_matmul_precision("high")'
    assert "lr=1e-3, fused=True,  # tuned" in text
    assert "shuffle=True" in text and ", num_workers=" in text and ", pin_memory=True" in text
    assert '    with torch.autocast("cuda", dtype=torch.bfloat16):\n        loss = nn.functional' in text


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (SCRIPT.replace("lr=1e-3,", "lr=1e-3, fused=False,"), "fused_optimizer"),  # somebody decided otherwise
        (SCRIPT.replace("lr=1e-3,", "**options,"), "fused_optimizer"),
        (SCRIPT.replace("import torch\n", "import torch as th\n", 1), "tf32"),
        (SCRIPT.replace("y)", '"""a\nb""")'), "bf16"),
        ("this is no Python\n", "tf32"),
    ],
)
def test_what_cannot_be_written_safely_is_left(tmp_path: Path, script: str, name: str) -> None:
    assert patched(tmp_path, script, name) == (script, [])
    assert not list(proposals([tmp_path / "train.py"], [name], {}))
