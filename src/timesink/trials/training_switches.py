"""Switches of what is around the model: optimizer, loaders, Python's process, the exchange of gradients."""

import gc
import os
from functools import partial
from typing import Any, Final, Literal

from timesink.edits.arguments import LOADER_OPTIONS
from timesink.trials.program import RunningProgram
from timesink.trials.switching import Refusal, Undo, modules_of, set_attributes, torch_on_gpu, undo_all

_IMPLEMENTED: Final = ("Adam", "AdamW", "SGD")


def set_optimizer_flag(flag: Literal["fused", "foreach"], program: RunningProgram) -> Undo:
    """`fused=True` or `foreach=True` in every group; Adam's step counts move to where that kernel wants them."""
    if not program.optimizers:
        raise Refusal("the program has no optimizer")
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


def load_otherwise(name: str, program: RunningProgram) -> Undo:
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
    return set_attributes(
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


def load_in_workers(program: RunningProgram) -> Undo:
    """Batches are prepared in other processes."""
    return load_otherwise("loader_workers", program)


def pin_batches(program: RunningProgram) -> Undo:
    """Batches come in pinned memory and are copied without waiting."""
    torch_on_gpu(program)
    return load_otherwise("pin_memory", program)


def zero_to_none(program: RunningProgram) -> Undo:
    """Gradients are dropped, not filled with zeros."""
    if not program.zeroes_gradients:
        raise Refusal("gradients are set to None already, or never zeroed by an optimizer")
    return set_attributes(program, sets_to_none=True)


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


def _parallel(program: RunningProgram) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    found = next((module for module in modules_of(program) if isinstance(module, DistributedDataParallel)), None)
    if found is None:
        raise Refusal("the model is not in DistributedDataParallel")
    return found


def set_parallel_option(option: str, value: object, program: RunningProgram) -> Undo:
    """DistributedDataParallel made anew in place with one option changed: its reducer is fixed when it is made."""
    parallel = _parallel(program)
    options = {
        "bucket_cap_mb": parallel.bucket_bytes_cap / 2**20,
        "gradient_as_bucket_view": parallel.gradient_as_bucket_view,
        "static_graph": parallel.static_graph,
    }
    if options[option] == value:
        raise Refusal(f"{option}={value} is set already")
    if getattr(parallel, "_comm_hooks", None):
        raise Refusal("DistributedDataParallel has a communication hook, which would be lost")

    def remake(chosen: dict[str, object]) -> None:
        parallel.reducer._remove_autograd_hooks()
        type(parallel).__init__(
            parallel,
            parallel.module,
            device_ids=parallel.device_ids,
            output_device=parallel.output_device,
            dim=parallel.dim,
            broadcast_buffers=parallel.broadcast_buffers,
            process_group=parallel.process_group,
            find_unused_parameters=parallel.find_unused_parameters,
            init_sync=False,
            **chosen,
        )

    remake({**options, option: value})
    return partial(remake, options)


def keep_buffers_local(program: RunningProgram) -> Undo:
    """Running statistics are not sent to the other ranks."""
    parallel = _parallel(program)
    if not parallel.broadcast_buffers or not any(True for _ in parallel.module.buffers()):
        raise Refusal("no buffers are broadcast")
    return set_attributes(parallel, broadcast_buffers=False)
