"""Changes of what is around the model: the optimizer, settings left on, Python's process, the allocator."""

import ast
import gc
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal

from timesink.recipes import Effort, Recipe, Switch, Undo
from timesink.recipes.arguments import add_arguments, drop_in_loop, drop_statement
from timesink.recipes.program import RunningProgram
from timesink.recipes.source import Proposal, Source, calls_in, name_of
from timesink.recipes.switching import Refusal, set_attributes, torch_on_gpu, undo_all
from timesink.recipes.walking import walk

_WATCHED: Final = "anomaly mode records where each operation was called, and looks for NaN after each"
_IMPLEMENTED: Final = ("Adam", "AdamW", "SGD")


def set_optimizer_flag(flag: Literal["fused", "foreach"], program: RunningProgram) -> Undo:
    """`fused=True` or `foreach=True` in every group; Adam's step counts move to where that kernel wants them."""
    if not program.optimizers:
        raise Refusal("the program has no optimizer")
    if program.renews_optimizers:
        raise Refusal("the program makes optimizers anew as it goes, each without the flag")
    if len(program.optimizers) > 8 and all(len(one.param_groups[0]["params"]) == 1 for one in program.optimizers):
        raise Refusal("each parameter has an optimizer of its own, which steps in a hook")
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


def zero_to_none(program: RunningProgram) -> Undo:
    """Gradients are dropped, not filled with zeros."""
    if not program.zeroes_gradients:
        raise Refusal("gradients are set to None already, or never zeroed by an optimizer")
    return set_attributes(program, sets_to_none=True)


def find_zeros(source: Source, line: int) -> Iterator[Proposal]:
    """`zero_grad(set_to_none=False)`, where nobody looks at a gradient between that call and the next backward pass."""
    for call in calls_in(source.tree):
        given = [word for word in call.keywords if word.arg == "set_to_none"]
        if name_of(call.func) != "zero_grad" or not given or getattr(given[0].value, "value", None) is not False:
            continue
        reads = any(node.attr == "grad" for node in walk(source.tree, ast.Attribute))
        why = "the program reads .grad, which would be None" if reads else ""
        reason = "gradients are filled with zeros in each step, and added to; set to none they are written"
        yield Proposal(call.lineno, reason, (source.replace(given[0].value, "True"),), why)


def drop_anomaly_mode(program: RunningProgram) -> Undo:
    """Backward passes are no longer watched for NaN."""
    import torch

    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        raise Refusal("CUDA_LAUNCH_BLOCKING is read when CUDA starts: unset it, then try again")
    if not program.watches_anomalies:
        raise Refusal("anomaly mode is off")
    was_on, undo = torch.is_anomaly_enabled(), set_attributes(program, ignores_anomalies=True)
    torch.set_anomaly_enabled(False)
    return undo_all(undo, partial(torch.set_anomaly_enabled, was_on))


def find_anomaly_mode(source: Source, line: int) -> Iterator[Proposal]:
    """`torch.autograd.set_detect_anomaly(True)`, a statement of its own or what a `with` begins."""
    for call in calls_in(source.tree):
        name, first = name_of(call.func), getattr(call.args[0], "value", False) if call.args else None
        if (name, first) not in (("set_detect_anomaly", True), ("detect_anomaly", None)):
            continue
        if isinstance(source.parents[call], ast.withitem):
            off = source.replace(call, f"{source.said(call.func).replace(name, 'set_detect_anomaly')}(False)")
            yield Proposal(call.lineno, _WATCHED, (off,))
        else:
            yield from drop_statement(source, call, _WATCHED)


def freeze_garbage(_: RunningProgram) -> Undo:
    """What Python holds now is never looked at again, and nothing is collected."""
    if not gc.isenabled():
        raise Refusal("Python's collector is off already")
    gc.collect()
    gc.freeze()
    gc.disable()

    def undo() -> None:
        gc.enable()
        gc.unfreeze()

    return undo


def run_fewer_threads(_: RunningProgram) -> Undo:
    """One thread for operators on the CPU, where the program's ranks have more than there are processors."""
    import torch

    before, ranks = torch.get_num_threads(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    fair = max(1, len(os.sched_getaffinity(0)) // ranks)
    if before <= fair:
        raise Refusal(f"{before} threads for operators on the CPU are no more than its share of the processors, {fair}")
    torch.set_num_threads(fair)
    return partial(torch.set_num_threads, before)


def expand_segments(program: RunningProgram) -> Undo:
    """New memory comes as pages added to a segment."""
    torch = torch_on_gpu(program)
    if not torch.cuda.memory_stats().get("num_alloc_retries", 0):
        raise Refusal("PyTorch's allocator never had to give memory back to get more")
    change = torch.cuda.memory._set_allocator_settings
    change("expandable_segments:True")
    return partial(change, "expandable_segments:False")


FUSED_OPTIMIZER: Final = Recipe(
    "fused_optimizer",
    "pass fused=True to the optimizer",
    Effort.FLAG,
    drift="rounding",
    where="optimizer",
    switch=Switch(partial(set_optimizer_flag, "fused")),
    edits=(partial(add_arguments, {"fused": True}, "the optimizer launches several kernels where one does"),),
)
FOREACH: Final = Recipe(
    "foreach",
    "pass foreach=True to the optimizer",
    Effort.FLAG,
    "a copy of the gradients' size while it runs",
    drift="rounding",
    where="optimizer",
    excludes=("fused_optimizer",),
    switch=Switch(partial(set_optimizer_flag, "foreach")),
    edits=(partial(add_arguments, {"foreach": True}, "the optimizer goes through parameters one by one"),),
)
SET_TO_NONE: Final = Recipe(
    "set_to_none",
    "zero gradients with set_to_none=True",
    Effort.FLAG,
    "gradients that are None",
    drift="exact",
    switch=Switch(zero_to_none),
    edits=(find_zeros,),
)
DROP_DEBUGGING: Final = Recipe(
    "drop_debugging",
    "switch debugging off (anomaly mode, CUDA_LAUNCH_BLOCKING)",
    Effort.FLAG,
    drift="exact",
    switch=Switch(drop_anomaly_mode),
    edits=(find_anomaly_mode,),
)
KEEP_MEMORY: Final = Recipe(
    "keep_memory",
    "take memory once and reuse it in every step",
    Effort.LINES,
    drift="exact",
    edits=(
        partial(
            drop_in_loop,
            "torch.cuda.empty_cache()",
            "the loop gives the GPU's free memory back in each step, and takes it anew",
        ),
    ),
)
FROZEN_GARBAGE: Final = Recipe(
    "frozen_garbage",
    "collect no garbage in the loop: gc.freeze(), gc.disable()",
    Effort.FLAG,
    "memory of cycles",
    drift="exact",
    switch=Switch(freeze_garbage),
    edits=(
        partial(
            drop_in_loop,
            "gc.collect()",
            "the loop looks through all objects for garbage in each step, which Python does when it must",
        ),
    ),
)
FEWER_THREADS: Final = Recipe(
    "fewer_threads",
    "run no more threads than there are processors (OMP_NUM_THREADS)",
    Effort.FLAG,
    drift="rounding",
    switch=Switch(run_fewer_threads),
)
EXPANDABLE_SEGMENTS: Final = Recipe(
    "expandable_segments",
    "let memory grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    Effort.FLAG,
    drift="exact",
    switch=Switch(expand_segments, 6),
)
