"""Numbers of a program that make a step longer: micro-batches in one pass, a Trainer's evaluations. All are offered."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipes.repairing import proposed

SIZES = {
    "arguments of a Trainer": (
        'TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=8)',
        'TrainingArguments("out", per_device_train_batch_size=32, gradient_accumulation_steps=1)',
    ),
    "defaults": (
        "def train(steps=9, batch_size=4, gradient_accumulate_every=4): ...",
        "def train(steps=9, batch_size=16, gradient_accumulate_every=1): ...",
    ),
    "words alone": ("def train(*, accum_iter=2, batch_size=3): ...", "def train(*, accum_iter=1, batch_size=6): ..."),
    "names of a file": ("BATCH_SIZE = 4\nGRAD_ACCUM = 2", "BATCH_SIZE = 8\nGRAD_ACCUM = 1"),
    "fields": (
        "class Config:\n    micro_batch_size: int = 2\n    accumulation_steps: int = 4",
        "class Config:\n    micro_batch_size: int = 8\n    accumulation_steps: int = 1",
    ),
    "a dict": ("c = {'batch_size': 12, 'grad_accum_steps': 5}", "c = {'batch_size': 60, 'grad_accum_steps': 1}"),
    "options": (
        "p.add_argument('-b', '--batch-size', type=int, default=2)\np.add_argument('--accum-steps', default=3)",
        "p.add_argument('-b', '--batch-size', type=int, default=6)\np.add_argument('--accum-steps', default=1)",
    ),
}  # fmt: skip
LEFT = [
    "batch_size = 4",
    "gradient_accumulation_steps = 4",
    "batch_size, accum_steps = 4, 1",
    "batch_size = 4\naccum_steps = 1",
    "batch_size = 4\naccum_steps = 8 * world",
    "batch_size = 4\naccum_steps = 8\nbatch_size = 2",
    "batch_size = 4\ndef train(accum_steps=8): ...",
    "f(batch_size=4)\ng(accum_steps=8)",
    "f(batch_size=4, micro_batch_size=2, accum_steps=2)",
]
TRAINER = 'TrainingArguments("out", {})'
FILTERED = "logging_nan_inf_filter=False"
RARER = {
    'eval_strategy="steps", eval_steps=80, save_strategy="steps", save_steps=80, bf16=True': (
        'eval_strategy="epoch", eval_steps=80, save_strategy="epoch", save_steps=80, bf16=True'
    ),
    'evaluation_strategy="steps", eval_steps=50': 'evaluation_strategy="epoch", eval_steps=50',
    'eval_strategy="steps", eval_steps=50, save_steps=100, max_steps=4000': (
        'eval_strategy="steps", eval_steps=5000, save_steps=10000, max_steps=4000'
    ),
    'eval_strategy="steps", eval_steps=51, max_steps=4000': 'eval_strategy="steps", eval_steps=510, max_steps=4000',
    'eval_strategy="steps", eval_steps=501': None,
    'eval_strategy="steps", eval_steps=5': None,
    'eval_strategy="steps", eval_steps=every': None,
    'eval_strategy="steps"': None,
    'eval_strategy="epoch", eval_steps=80': None,
    "eval_strategy=how, eval_steps=80": None,
}  # fmt: skip


def offered(folder: Path, text: str, fix: str) -> list[str]:
    found = [(source, one) for source, one in proposed(folder, text) if one.fix == fix]
    assert all(one.unproven for _, one in found)
    return [source.edited(one.replacements) for source, one in found]


@pytest.mark.parametrize("name", SIZES)
def test_micro_batches_are_taken_in_one_pass(name: str, tmp_path: Path) -> None:
    before, after = SIZES[name]
    assert offered(tmp_path, before + "\n", "one_pass") == [after + "\n"]
    assert not offered(tmp_path, after + "\n", "one_pass")


@pytest.mark.parametrize("text", LEFT)
def test_numbers_of_two_places_are_left(text: str, tmp_path: Path) -> None:
    assert not offered(tmp_path, text + "\n", "one_pass")


@pytest.mark.parametrize("given", RARER)
def test_a_trainer_evaluates_rarely(given: str, tmp_path: Path) -> None:
    text, then = TRAINER.format(given), RARER[given]
    found = offered(tmp_path, text, "evaluate_rarely")
    assert found == ([TRAINER.format(then)] if then else [])
    assert not found or not offered(tmp_path, found[0], "evaluate_rarely")


def test_a_trainer_need_not_look_for_losses_that_are_no_numbers(tmp_path: Path) -> None:
    (text,) = offered(tmp_path, TRAINER.format("bf16=True"), "remove_sync")
    assert text == TRAINER.format(f"bf16=True, {FILTERED}") and not offered(tmp_path, text, "remove_sync")
    assert not offered(tmp_path, TRAINER.format("bf16=True, **more"), "remove_sync")


TRAINING = """import torch
torch.manual_seed(0)
def train(steps=5, batch_size=4, accum_steps=4):
    data, aims = torch.randn(64, 3), torch.randn(64, 1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    at = 0
    for step in range(steps):
        for _ in range(accum_steps):
            rows = [(at + i) % 64 for i in range(batch_size)]
            at += batch_size
            loss = torch.nn.functional.mse_loss(model(data[rows]), aims[rows])
            (loss / accum_steps).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*model.parameters()]
weights = train()
"""


def test_one_pass_trains_the_same_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (text,) = offered(tmp_path, TRAINING, "one_pass")
    held: list[dict[str, Any]] = [{}, {}]
    for one, names in zip((TRAINING, text), held, strict=True):
        exec(compile(one, "train.py", "exec"), names)
    torch.testing.assert_close(*(names["weights"] for names in held))
