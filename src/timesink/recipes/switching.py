"""What every switch is made of: the refusal, what undoes a change, and what of the program it looks at."""

from collections.abc import Callable
from functools import partial
from typing import Any

from timesink.recipes import Undo
from timesink.recipes.program import RunningProgram


class Refusal(Exception):
    """Why a change does not apply to this program."""


def set_attributes(thing: Any, **values: Any) -> Undo:
    """Set attributes; the result puts back what they were."""
    before = {name: getattr(thing, name) for name in values}

    def put(chosen: dict[str, Any]) -> None:
        for name, value in chosen.items():
            setattr(thing, name, value)

    put(values)
    return partial(put, before)


def undo_all(*undos: Undo) -> Undo:
    """One that undoes all, the last first."""
    return lambda: [undo() for undo in reversed(undos)] and None


def roots_of(program: RunningProgram) -> list[Any]:
    """The outermost modules, or a refusal where there are none."""
    if not program.roots:
        raise Refusal("no model was found: the program calls no torch.nn.Module that has parameters")
    return program.roots


def modules_of(program: RunningProgram) -> list[Any]:
    """All modules of the roots."""
    return [module for root in roots_of(program) for module in root.modules()]


def lasting_modules(program: RunningProgram) -> list[Any]:
    """The same for what is made of them once, or a refusal where the program makes them anew."""
    if program.renews_model:
        raise Refusal("the program makes its model anew as it goes, and what is made of one of them goes with it")
    return modules_of(program)


def parameters_of(program: RunningProgram) -> list[Any]:
    """All parameters of the roots; where no module is called, those that optimizers step."""
    if not program.roots and program.optimizers:
        return [one for optimizer in program.optimizers for group in optimizer.param_groups for one in group["params"]]
    return [parameter for root in roots_of(program) for parameter in root.parameters()]


def torch_on_gpu(program: RunningProgram) -> Any:
    """The module `torch`, or a refusal where the model is not on a GPU."""
    import torch

    if not any(p.device.type == "cuda" for p in parameters_of(program)):
        raise Refusal("the model is not on a GPU")
    return torch


def convert_tensors(convert: Callable[[Any], Any], value: Any) -> Any:
    """The value with each of its tensors converted; one tensor, the common case, without a walk."""
    import torch

    if isinstance(value, torch.Tensor):
        return convert(value)
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, convert, value)
