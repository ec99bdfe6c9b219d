"""How batches are loaded: in more processes, into pinned memory, copied without waiting."""

import ast
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from timesink.recipes import Effort, Recipe, Switch, Undo
from timesink.recipes.arguments import add_arguments, give_arguments
from timesink.recipes.program import RunningProgram
from timesink.recipes.source import Proposal, Source, calls_in, name_of
from timesink.recipes.switching import Refusal, set_attributes, torch_on_gpu
from timesink.recipes.walking import walk

_MOST_WORKERS: Final = 8
_WORKERS: Final[Mapping[str, Any]] = {
    "num_workers": max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1)),
    "persistent_workers": True,
}
_FEW: Final = "the training waits for batches, and few processes load them"
_PINNED: Final[Mapping[str, Any]] = {"pin_memory": True}
_USES_UP: Final = 18
"""So many steps use up what workers had ready while they were not asked."""


def load_otherwise(options: Mapping[str, Any], program: RunningProgram) -> Undo:
    """Batches come from another loader of the same data."""
    from torch.utils.data import IterableDataset

    loaders = [batches.loader for batches in program.iterators]
    if not loaders:
        raise Refusal("no DataLoader is iterated")
    if any(isinstance(loader.dataset, IterableDataset) for loader in loaders):
        raise Refusal("the data set is a stream, of which no second loader can be made")
    if any(batches.made_on_gpu for batches in program.iterators):
        raise Refusal("batches are made on the GPU: they cannot be pinned, nor made in forked workers")
    if "num_workers" in options:
        if any(loader.num_workers for loader in loaders):
            raise Refusal("batches are loaded in worker processes already")
        _can_be_sent(loaders[0])
    elif all(loader.pin_memory for loader in loaders):
        raise Refusal("batches are pinned already")
    return set_attributes(program, loader_options={**program.loader_options, **options})


def _can_be_sent(loader: Any) -> None:
    """Workers that are not forked get the data set pickled."""
    import multiprocessing
    import pickle

    method = loader.multiprocessing_context or multiprocessing.get_start_method()
    if str(method) == "fork":
        return
    try:
        pickle.dumps((loader.dataset, loader.collate_fn))
    except Exception as error:
        raise Refusal(f"the data set cannot be sent to a worker process: {error}") from error


def pin_batches(program: RunningProgram) -> Undo:
    """Batches come in pinned memory and are copied without waiting."""
    torch_on_gpu(program)
    return load_otherwise(_PINNED, program)


def find_waiting_copies(source: Source, line: int) -> Iterator[Proposal]:
    """Copies of a loader's batch to the GPU that wait, where the loader pins its memory."""
    pins = any(word.arg == "pin_memory" and getattr(word.value, "value", None) is True
               for call in calls_in(source.tree) for word in call.keywords)  # fmt: skip
    for loop in source.step_loops() if pins else ():
        names = {node.id for node in walk(loop.target, ast.Name)} if isinstance(loop, ast.For) else ()
        copies = [
            call for call in calls_in(loop)
            if name_of(call.func) in ("to", "cuda") and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name) and call.func.value.id in names
            and not any(word.arg == "non_blocking" for word in call.keywords) and "cpu" not in source.said(call)
        ]  # fmt: skip
        if copies:
            texts = [(call, source.said(call).removesuffix(")")) for call in copies]
            made = [
                source.replace(call, f"{t}{'' if t.endswith('(') else ', '}non_blocking=True)") for call, t in texts
            ]
            reason = "the loop waits for each batch to be copied to the GPU; from pinned memory it need not"
            yield Proposal(copies[0].lineno, reason, tuple(made))


def find_trainers(source: Source, line: int) -> Iterator[Proposal]:
    """The arguments of a trainer that makes its loaders itself."""
    words = {f"dataloader_{name}": value for name, value in _WORKERS.items()}
    for call in calls_in(source.tree):
        if name_of(call.func).endswith("TrainingArguments"):
            yield from give_arguments(words, _FEW, source, call)


LOADER_WORKERS: Final = Recipe(
    "loader_workers",
    "load batches in more worker processes (num_workers)",
    Effort.FLAG,
    "cores of the CPU, and batches held in its memory",
    drift="other batches",
    where="loader",
    switch=Switch(partial(load_otherwise, _WORKERS), _USES_UP, _USES_UP, 6.0, loader=_WORKERS),
    edits=(partial(add_arguments, _WORKERS, _FEW), find_trainers),
)
PIN_MEMORY: Final = Recipe(
    "pin_memory",
    "copy from pinned memory with non_blocking=True",
    Effort.FLAG,
    "host memory that cannot be paged out",
    drift="exact",
    where="loader",
    switch=Switch(pin_batches, 4, 4, loader=_PINNED),
    edits=(partial(add_arguments, _PINNED, "batches lie in memory that can be paged out, so that their copies wait"),),
)
WAITING_COPIES: Final = Recipe(
    "waiting_copies",
    "copy batches from pinned memory with non_blocking=True",
    Effort.LINES,
    drift="exact",
    on_gpu=True,
    edits=(find_waiting_copies,),
)
