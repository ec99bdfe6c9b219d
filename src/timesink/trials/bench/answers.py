"""Answers questions, in order, until the time is up: QUESTIONS.json ANSWERS.json SECONDS.

This package imports PyTorch, and of timesink nothing else: it runs in a child process of any Python that has PyTorch.
What it knows is written after each question.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from timesink.trials.bench import host, operators, products, several
from timesink.trials.bench.timing import is_sticky, on_gpu

KINDS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "operator": operators.of_operator,
    "attention": several.of_attention,
    "optimizer": several.of_optimizer,
    "list": several.of_list,
    "machine": lambda _: host.machine(),
    "products": lambda _: products.products(),
    "regions": lambda _: host.regions(),
}


def main() -> None:
    """Answer what is asked, in order, until the time is up; a question that breaks the GPU is the last."""
    questions, target, seconds = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), float(sys.argv[3])
    until = time.monotonic() + seconds
    answers: dict[str, dict[str, Any]] = {}
    if not on_gpu():
        torch.set_num_threads(1)  # several wait for each other where others use the CPU, too

    def write(now: str) -> None:
        part = target.with_suffix(".part")
        part.write_text(json.dumps({"answers": answers, "now": now}))
        part.replace(target)

    for question in questions:
        if time.monotonic() > until:
            break
        write(question["id"])
        try:
            answers[question["id"]] = KINDS[question["kind"]](question)
        except Exception as error:  # noqa: BLE001 - whatever an operator does not take is the answer
            answers[question["id"]] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            if is_sticky(error):
                write("")
                raise SystemExit(3) from None
        if on_gpu():
            torch.cuda.empty_cache()
    write("")
