"""What a program's loader must be for a switch to put another before it, and what its workers must not do."""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from timesink.recipes.loading import load_otherwise  # noqa: E402
from timesink.recipes.program import Batches, RunningProgram  # noqa: E402
from timesink.recipes.switching import Refusal  # noqa: E402


def on(kind: str) -> Any:
    return SimpleNamespace(device=SimpleNamespace(type=kind))


def iterated(*batches: Any) -> SimpleNamespace:
    """A program that has got the first of these batches from its loader."""
    program = SimpleNamespace(loader_options={}, iterators=[])
    loader = SimpleNamespace(
        dataset=[1], num_workers=0, pin_memory=False, multiprocessing_context="fork", collate_fn=list
    )
    program.iterators.append(Batches(program, loader, lambda _: iter(batches)))  # type: ignore[arg-type]
    next(program.iterators[0])
    return program


@pytest.mark.parametrize("options", [{"pin_memory": True}, {"num_workers": 4}], ids=str)
@pytest.mark.parametrize(
    "batch", [on("cuda"), [on("cpu"), on("cuda")], {"x": (on("cpu"), {"y": on("cuda")})}, (1, "a", [on("cuda")])]
)
def test_batches_made_on_the_gpu_are_left_alone(batch: Any, options: dict[str, Any]) -> None:
    """Pinned they are an error, and forked workers cannot make them: both ended the program."""
    with pytest.raises(Refusal, match="made on the GPU"):
        load_otherwise(options, iterated(batch))  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [on("cpu"), [on("cpu"), 3, None], {"x": on("cpu")}, "text"])
def test_other_batches_come_from_another_loader(batch: Any) -> None:
    program = iterated(batch)
    load_otherwise({"num_workers": 4}, program)  # type: ignore[arg-type]
    assert program.loader_options == {"num_workers": 4}


class _Unaskable:
    """A tensor of a worker: to ask whether it is pinned asks CUDA, which ends a forked process."""

    device = SimpleNamespace(type="cpu")

    def __init__(self) -> None:
        self.asked = False

    def is_pinned(self) -> bool:
        self.asked = True
        return True


def _copied_with() -> Iterator[tuple[Any, dict[str, Any]]]:
    program = SimpleNamespace(loader_options={"pin_memory": True})
    yield RunningProgram._unwaited(program, lambda tensor, **given: given), {"non_blocking": True}  # type: ignore[arg-type]


def test_a_forked_worker_never_asks_whether_a_tensor_is_pinned() -> None:
    copied, without_waiting = next(_copied_with())
    assert copied(_Unaskable()) == without_waiting
    child = os.fork()
    if not child:
        tensor = _Unaskable()
        os._exit(int(copied(tensor) != {} or tensor.asked))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
