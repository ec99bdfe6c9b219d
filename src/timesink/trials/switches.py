"""The switches: each changes one thing of a running program, and undoes it. They have the names of the table of fixes.

A switch is tried between two steps. Where it does not apply to the program it raises `Refusal` with the reason. Its
class says how far results may move: not at all, as other batches of the same data do, by rounding, or by the precision
that it lowers.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from timesink.trials.program import RunningProgram

Undo = Callable[[], object]
Drift = Literal["exact", "other batches", "rounding", "lower precision"]


class Refusal(Exception):
    """Why a change does not apply to this program."""


@dataclass(frozen=True, slots=True)
class Switch:
    """`turn_on` changes the program and returns what undoes it. `warm_up` steps are not timed after it is first on.

    `make` says what to type to make it permanent.
    """

    name: str
    turn_on: Callable[[RunningProgram], Undo]
    drift: Drift
    make: str
    warm_up: int = 2


def _set(thing: Any, **values: Any) -> Undo:
    """Set attributes; the result puts back what they were."""
    before = {name: getattr(thing, name) for name in values}

    def put(chosen: dict[str, Any]) -> None:
        for name, value in chosen.items():
            setattr(thing, name, value)

    put(values)
    return partial(put, before)


def _all(*undos: Undo) -> Undo:
    return lambda: [undo() for undo in reversed(undos)] and None


def _root(program: RunningProgram) -> Any:
    if program.root is None:
        raise Refusal("no root module was found: nothing called a torch.nn.Module")
    return program.root


def _on_gpu(program: RunningProgram) -> Any:
    import torch

    root = _root(program)
    if not any(p.device.type == "cuda" for p in root.parameters()):
        raise Refusal("the model is not on a GPU")
    return torch


def _capability(torch: Any) -> tuple[int, int]:
    found: tuple[int, int] = torch.cuda.get_device_capability()
    return found


def _floats(root: Any) -> set[Any]:
    return {p.dtype for p in root.parameters() if p.dtype.is_floating_point}


def _allow_tf32(program: RunningProgram) -> Undo:
    torch = _on_gpu(program)
    if _capability(torch) < (8, 0):
        raise Refusal(f"{torch.cuda.get_device_name()} has no TF32")
    if torch.float32 not in _floats(_root(program)):
        raise Refusal("the model has no float32 parameters")
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if matmul.allow_tf32 and cudnn.allow_tf32:
        raise Refusal("TF32 is allowed already")
    return _all(_set(matmul, allow_tf32=True), _set(cudnn, allow_tf32=True))


def _autocast(program: RunningProgram) -> Undo:
    """Around the root module's calls; results are cast back to what the program expects."""
    import torch

    root = _root(program)
    if torch.float32 not in _floats(root):
        raise Refusal(f"the model is in {', '.join(sorted(str(kind) for kind in _floats(root)))}, not in float32")
    device = next(root.parameters()).device.type
    if torch.is_autocast_enabled(device):
        raise Refusal("autocast is on already")
    kind = torch.bfloat16 if device == "cpu" or _capability(torch) >= (8, 0) else torch.float16
    if kind is torch.float16 and program.step_optimizer is not None:
        raise Refusal("this GPU has no bf16, and fp16 training needs a loss scaler in the program")

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled(device):
                raise Refusal("the program runs autocast itself")
            with torch.autocast(device, dtype=kind):
                result = call(module, *args, **kwargs)
            return _as_float32(torch, result)

        return called

    program.around["bf16"] = wrap
    return lambda: program.around.pop("bf16", None)


def _as_float32(torch: Any, result: Any) -> Any:
    from torch.utils._pytree import tree_map

    def widen(value: Any) -> Any:
        is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if is_half else value

    return tree_map(widen, result)


_IMPLEMENTED: Final = ("Adam", "AdamW", "SGD")


def _optimizer_flag(flag: Literal["fused", "foreach"], program: RunningProgram) -> Undo:
    """`fused=True` or `foreach=True` in every group; Adam's step counts move to where that kernel wants them."""
    if not program.optimizers:
        raise Refusal("the program has no optimizer")
    groups = [(optimizer, group) for optimizer in program.optimizers for group in optimizer.param_groups]
    for optimizer, group in groups:
        if type(optimizer).__name__ not in _IMPLEMENTED or not type(optimizer).__module__.startswith("torch.optim"):
            raise Refusal(f"{type(optimizer).__name__} has no {flag} form")
        if flag == "fused" and any(not p.is_cuda or not p.is_floating_point() for p in group["params"]):
            raise Refusal("a parameter is not a floating-point tensor on a GPU")
        if group.get("fused"):
            raise Refusal("the optimizer is fused already")
        if group.get("capturable") or group.get("differentiable"):
            raise Refusal("the optimizer is capturable or differentiable")
        if flag == "foreach" and group.get("foreach") is not False and all(p.is_cuda for p in group["params"]):
            raise Refusal("the optimizer works on lists already, which is the default on a GPU")
    other = {"fused": "foreach", "foreach": "fused"}[flag]
    before = [(group, group.get(flag), group.get(other)) for _, group in groups]
    for optimizer, group in groups:
        group[flag], group[other] = True, None
        if flag == "fused":
            _place_counts(optimizer, on_device=True)

    def undo() -> None:
        for group, own, others in before:
            group[flag], group[other] = own, others
        if flag == "fused":
            for optimizer in program.optimizers:
                _place_counts(optimizer, on_device=False)

    return undo


def _place_counts(optimizer: Any, *, on_device: bool) -> None:
    """Adam counts steps per parameter: on the device for the fused kernel, on the host for the others."""
    for parameter, state in optimizer.state.items():
        count = state.get("step")
        if hasattr(count, "to"):
            state["step"] = count.float().to(parameter.device if on_device else "cpu")


def _compile(mode: str | None, program: RunningProgram) -> Undo:
    import torch

    root = _root(program)
    if hasattr(root, "_orig_mod") or hasattr(root, "_torchdynamo_orig_callable"):
        raise Refusal("the model is compiled already")
    return _set_forward(root, program.prepare((id(root), mode), lambda: torch.compile(root.forward, mode=mode)))


def _set_forward(module: Any, forward: Any) -> Undo:
    had_own = "forward" in module.__dict__
    before = module.forward
    module.forward = forward

    def undo() -> None:
        if had_own:
            module.forward = before
        else:
            with suppress(AttributeError):
                del module.forward

    return undo


def _compile_blocks(program: RunningProgram) -> Undo:
    """Each of the blocks that the model repeats, by itself: compiled once, called many times."""
    import torch

    root = _root(program)
    lists = [module for module in root.modules() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))]
    repeated = max(lists, key=lambda blocks: len(blocks) * (len({type(block) for block in blocks}) == 1), default=())
    if len(repeated) < 2 or len({type(block) for block in repeated}) != 1:
        raise Refusal("the model repeats no block")
    compiled = program.prepare(id(repeated), lambda: [torch.compile(block.forward) for block in repeated])
    return _all(*map(_set_forward, repeated, compiled))


def _channels_last(program: RunningProgram) -> Undo:
    import torch

    root = _root(program)
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    weights = [module.weight for module in root.modules() if isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d))]
    if not weights:
        raise Refusal("the model has no convolution over two or three dimensions")
    ranks = {weight.dim() for weight in weights}
    if len(ranks) > 1:
        raise Refusal("the model has convolutions over two and over three dimensions")
    rank = ranks.pop()
    if all(weight.is_contiguous(memory_format=kinds[rank]) and not weight.is_contiguous() for weight in weights):
        raise Refusal("the model is in channels-last already")

    def lay_out(kind: Any) -> None:
        for parameter in root.parameters():
            if parameter.dim() == rank:
                parameter.data = parameter.data.contiguous(memory_format=kind)

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        from torch.utils._pytree import tree_map

        def convert(value: Any) -> Any:
            is_picture = isinstance(value, torch.Tensor) and value.dim() == rank and value.is_floating_point()
            return value.contiguous(memory_format=kinds[rank]) if is_picture else value

        return lambda module, *args, **kwargs: call(module, *tree_map(convert, args), **tree_map(convert, kwargs))

    lay_out(kinds[rank])
    program.around["channels_last"] = wrap

    def undo() -> None:
        program.around.pop("channels_last", None)
        lay_out(torch.contiguous_format)

    return undo


def _no_recomputation(program: RunningProgram) -> Undo:
    if not program.uses_checkpoints:
        raise Refusal("no activation is recomputed: torch.utils.checkpoint is not called")
    return _set(program, skips_checkpoints=True)


_MOST_WORKERS: Final = 8


LOADER_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "loader_workers": {
        "num_workers": max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1)),
        "persistent_workers": True,
        "prefetch_factor": 2,
    },
    "pin_memory": {"pin_memory": True},
}


def _load_otherwise(name: str, program: RunningProgram) -> Undo:
    """Batches come from another loader of the same data."""
    from torch.utils.data import IterableDataset

    loaders = [batches.loader for batches in program.iterators]
    if not loaders:
        raise Refusal("no DataLoader is iterated")
    if any(isinstance(loader.dataset, IterableDataset) for loader in loaders):
        raise Refusal("the data set is a stream, of which no second loader can be made")
    if name == "loader_workers":
        if any(loader.num_workers for loader in loaders):
            raise Refusal("batches are loaded in worker processes already")
        _can_be_sent(loaders[0])
    elif all(loader.pin_memory for loader in loaders):
        raise Refusal("batches are pinned already")
    options = {**program.loader_options, **LOADER_OPTIONS[name]}
    return _set(
        program,
        loader_options=options,
        copies_without_waiting=program.copies_without_waiting or "pin_memory" in options,
    )


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


def _pin_memory(program: RunningProgram) -> Undo:
    _on_gpu(program)
    return _load_otherwise("pin_memory", program)


def _benchmark_convolutions(program: RunningProgram) -> Undo:
    torch = _on_gpu(program)
    if not any(isinstance(m, torch.nn.modules.conv._ConvNd) for m in _root(program).modules()):
        raise Refusal("the model has no convolution")
    if torch.backends.cudnn.benchmark:
        raise Refusal("cuDNN tries its algorithms already")
    return _set(torch.backends.cudnn, benchmark=True)


def _set_to_none(program: RunningProgram) -> Undo:
    if not program.zeroes_gradients:
        raise Refusal("gradients are set to None already, or never zeroed by an optimizer")
    return _set(program, sets_to_none=True)


def _no_anomaly_mode(program: RunningProgram) -> Undo:
    import torch

    if not torch.is_anomaly_enabled():
        raise Refusal("anomaly mode is off")
    torch.autograd.set_detect_anomaly(False)
    return lambda: torch.autograd.set_detect_anomaly(True)


def _freeze_garbage(_: RunningProgram) -> Undo:
    if not gc.isenabled():
        raise Refusal("Python's collector is off already")
    gc.collect()
    gc.freeze()
    gc.disable()

    def undo() -> None:
        gc.enable()
        gc.unfreeze()

    return undo


def _flash_attention(program: RunningProgram) -> Undo:
    """Models of Hugging Face's libraries name their attention in `config`."""
    root = _root(program)
    inner = next((m for m in root.modules() if hasattr(m, "set_attn_implementation")), None)
    if inner is None:
        raise Refusal("the model's library has no switch for its attention")
    before = getattr(inner.config, "_attn_implementation", None)
    if before != "eager":
        raise Refusal(f"attention is {before!r} already")
    inner.set_attn_implementation("sdpa")
    return lambda: inner.set_attn_implementation(before)


SWITCHES: Final = {
    switch.name: switch
    for switch in (
        Switch(
            "loader_workers",
            partial(_load_otherwise, "loader_workers"),
            "exact",
            "num_workers=… and persistent_workers=True to the DataLoader",
            6,
        ),
        Switch(
            "bf16", _autocast, "lower precision", 'with torch.autocast("cuda", torch.bfloat16): around the model', 3
        ),
        Switch("tf32", _allow_tf32, "lower precision", 'torch.set_float32_matmul_precision("high")'),
        Switch("channels_last", _channels_last, "rounding", "model.to(memory_format=torch.channels_last)", 4),
        Switch("fused_attention", _flash_attention, "rounding", 'attn_implementation="sdpa" to the model'),
        Switch("fused_optimizer", partial(_optimizer_flag, "fused"), "rounding", "fused=True to the optimizer"),
        Switch("no_recomputation", _no_recomputation, "exact", "no torch.utils.checkpoint"),
        Switch("drop_debugging", _no_anomaly_mode, "exact", "no torch.autograd.set_detect_anomaly"),
        Switch("compile", partial(_compile, None), "rounding", "torch.compile(model)", 4),
        Switch("pin_memory", _pin_memory, "exact", "pin_memory=True to the DataLoader, non_blocking=True to copies", 4),
        Switch("foreach", partial(_optimizer_flag, "foreach"), "rounding", "foreach=True to the optimizer"),
        Switch("set_to_none", _set_to_none, "exact", "set_to_none=True to zero_grad"),
        Switch(
            "benchmark_convolutions", _benchmark_convolutions, "rounding", "torch.backends.cudnn.benchmark = True", 4
        ),
        Switch("frozen_garbage", _freeze_garbage, "exact", "gc.freeze() and gc.disable() before the loop"),
        Switch("compile_graph", partial(_compile, "reduce-overhead"), "rounding", 'mode="reduce-overhead"', 6),
        Switch("compile_blocks", _compile_blocks, "rounding", "torch.compile each repeated block", 4),
    )
}
"""In the order in which they are tried: what wins most where it applies, and takes least to try, comes first."""

_ONE_OF: Final = (("fused_optimizer", "foreach"), ("compile", "compile_graph", "compile_blocks"))
EXCLUDED_BY: Final = {name: frozenset(group) - {name} for group in _ONE_OF for name in group}
"""For each switch those that cannot be on beside it."""
