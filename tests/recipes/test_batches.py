"""Rows of a data set taken at once are the batches that the loader stacked; what is no row is left alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from timesink.recipes.table import proposals

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

START = """import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(53, 3)).astype(np.float32), rng.integers(0, 9, 53)
"""
ROWS = """
class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        '''One row.'''
{body}
"""
LOADED = """
loader = {loader}
batches = [batch for _ in range(2) for batch in loader]
drawn = torch.rand(1).item()
"""
DEFAULT = "DataLoader(Rows(x, y), batch_size=8, shuffle=True)"
PAIR = "return self.x[at], self.y[at]"
TAKEN = {
    "a pair": (PAIR, DEFAULT),
    "names": ("a, b = self.x[at], self.y[at]\nreturn a, b", "DataLoader(Rows(x, y), 8, True, drop_last=True)"),
    "a dict": ("return {'x': self.x[at], 'y': self.y[at]}", DEFAULT),
    "one row": ("return self.x[at]", "DataLoader(Rows(x, y), batch_size=7)"),
    "tensors": ("return torch.tensor(self.x[at], dtype=torch.float64), self.y[at].astype(np.float32)", DEFAULT),
    "of tensors": (PAIR, "DataLoader(Rows(torch.from_numpy(x), torch.from_numpy(y)), batch_size=8, shuffle=True)"),
    "casts": ("a = torch.from_numpy(self.x[at])\nb = a.double()\nreturn [b, self.y[at]]", DEFAULT),
    "numbers of many types": (
        PAIR,
        "DataLoader(Rows(y.astype(np.uint8), y > 4), batch_size=8, shuffle=True)",
    ),
    "doubles": (PAIR, "DataLoader(Rows(x.astype(np.float64), x[:, 0].astype(np.float64)), batch_size=8)"),
    "halves": (PAIR, "DataLoader(Rows(x.astype(np.float16), x[:, 0].astype(np.float16)), batch_size=8)"),
    "a sampler": (PAIR, "DataLoader(Rows(x, y), batch_size=8, sampler=torch.utils.data.RandomSampler(x))"),
    "workers": (PAIR, "DataLoader(Rows(x, y), batch_size=8, shuffle=True, num_workers=2)"),
    "a data set of PyTorch": (
        PAIR,
        "DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=8, shuffle=True)",
    ),
    "a generator": (
        PAIR,
        "DataLoader(\n    Rows(x, y),\n    batch_size=8,\n    shuffle=True,\n    generator=torch.Generator(),  # so\n)",
    ),
}  # fmt: skip
LEFT = {
    "drawn": ("return self.x[at] + rng.normal(), self.y[at]", DEFAULT),
    "a part of a row": ("return self.x[at, :2], self.y[at]", DEFAULT),
    "a neighbour": ("return self.x[at], self.y[at - 1]", DEFAULT),
    "the place": ("return self.x[at], at", DEFAULT),
    "a constant": ("return self.x[at], 1", DEFAULT),
    "changed": ("row = self.x[at]\nrow[0] = 0\nreturn row", DEFAULT),
    "a sum of a row": ("return self.x[at].sum(), self.y[at]", DEFAULT),
    "a product of rows": ("return self.x[at] * self.y[at]", DEFAULT),
    "another function": ("return load(self.x[at]), self.y[at]", DEFAULT),
    "if asked": ("if at:\n    return self.x[at]\nreturn self.y[at]", DEFAULT),
    "a place that is set": ("at = self.x[at]\nreturn at", DEFAULT),
    "a cast to what is asked for": ("return self.x[at].astype(kind_of(at))", DEFAULT),
    "its own batches": (PAIR + "\n\n    def __getitems__(self, many):\n        return many", DEFAULT),
    "its own stacking": (PAIR, "DataLoader(Rows(x, y), batch_size=8, collate_fn=list)"),
    "batches of a sampler": (PAIR, "DataLoader(Rows(x, y), batch_sampler=[[1, 2], [3]])"),
    "one at a time": (PAIR, "DataLoader(Rows(x, y))"),
    "no batches": (PAIR, "DataLoader(Rows(x, y), batch_size=None)"),
    "words of elsewhere": (PAIR, "DataLoader(Rows(x, y), batch_size=8, **{})"),
    "a data set of elsewhere": (PAIR, "DataLoader(load(x, y), batch_size=8)"),
    "one or the other": (PAIR, "DataLoader(Rows(x, y) if len(x) else [1], batch_size=8)"),
}  # fmt: skip


def script(body: str, loader: str) -> str:
    indented = "\n".join(f"        {row}" if row else "" for row in body.splitlines())
    return START + ROWS.format(body=indented.replace("            def", "    def")) + LOADED.format(loader=loader)


def edited(folder: Path, text: str) -> str | None:
    (folder / "train.py").write_text(text)
    line = next(at for at, row in enumerate(text.splitlines(), 1) if row.startswith("loader ="))
    found = [*proposals([folder / "train.py"], ["batched_rows"], {"loader": f"{folder / 'train.py'}:{line}"})]
    assert all(not one.unproven for _, one in found) and len(found) <= 1
    return next((source.edited(one.replacements) for source, one in found), None)


def loaded(text: str) -> Any:
    held: dict[str, Any] = {"__name__": "train"}
    exec(compile(text, "train.py", "exec"), held)
    return held["batches"], held["drawn"]


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    else:
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)


@pytest.mark.parametrize("name", TAKEN)
def test_rows_taken_at_once_are_the_same_batches(name: str, tmp_path: Path) -> None:
    """In the same order, of the same types, with as many numbers drawn; a second look finds nothing more."""
    text = script(*TAKEN[name])
    new = edited(tmp_path, text)
    assert new is not None and edited(tmp_path, new) is None
    (before, drawn), (after, then) = loaded(text), loaded(new)
    same(before, after)
    assert drawn == then


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_row_is_left(name: str, tmp_path: Path) -> None:
    assert edited(tmp_path, script(*LEFT[name])) is None


def test_a_loader_of_another_library_is_left(tmp_path: Path) -> None:
    text = script(*TAKEN["a pair"])
    other = text.replace("import DataLoader, Dataset, TensorDataset", "import Dataset, TensorDataset")
    assert edited(tmp_path, "from torch_geometric.loader import DataLoader\n" + other) is None


TRAINED = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", {given})
trainer = Trainer(model, args)
trainer.train()
"""


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("bf16=True", "bf16=True, dataloader_num_workers=1, dataloader_persistent_workers=True"),
        ("dataloader_num_workers=0", "dataloader_num_workers=1, dataloader_persistent_workers=True"),
        ("dataloader_num_workers=12", None),
        ("dataloader_num_workers=count", None),
        ("**words", None),
    ],
)
def test_a_trainer_is_told_how_many_workers(given: str, then: str | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(TRAINED.format(given=given))
    found = [*proposals([file], ["loader_workers"], {"loader": f"{file}:4"})]
    texts = [re.sub(r"(num_workers=)\d+", r"\g<1>1", source.edited(one.replacements)) for source, one in found]
    assert texts == ([TRAINED.format(given=then)] if then else [])


@pytest.mark.parametrize("given", ["num_workers=count", "num_workers=64", "num_workers=0 if quick else 4"])
def test_workers_are_not_kept_where_there_may_be_none(given: str, tmp_path: Path) -> None:
    """`persistent_workers` beside no worker ends the program."""
    assert edited_workers(tmp_path, given) == []


def test_workers_that_are_none_become_some(tmp_path: Path) -> None:
    (text,) = edited_workers(tmp_path, "num_workers=0")
    assert "num_workers=0" not in text and "persistent_workers=True" in text


def edited_workers(folder: Path, given: str) -> list[str]:
    file = folder / "train.py"
    file.write_text(f"loader = DataLoader(rows, batch_size=4, {given})\n")
    found = proposals([file], ["loader_workers"], {"loader": f"{file}:1"})
    return [source.edited(one.replacements) for source, one in found]
