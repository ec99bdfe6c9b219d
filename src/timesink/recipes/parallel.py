"""How DistributedDataParallel exchanges gradients and buffers."""

from functools import partial
from typing import Any, Final

from timesink.recipes import Effort, Recipe, Switch, Undo
from timesink.recipes.program import RunningProgram
from timesink.recipes.switching import Refusal, modules_of, set_attributes


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


BUCKETS: Final = Recipe(
    "buckets",
    "exchange in larger units (bucket_cap_mb, coarser wrapping)",
    Effort.FLAG,
    "the memory of larger buckets",
    drift="rounding",
    where="model",
    switch=Switch(partial(set_parallel_option, "bucket_cap_mb", 100.0), 4),
)
BUCKET_VIEWS: Final = Recipe(
    "bucket_views",
    "let gradients be views of buckets: gradient_as_bucket_view=True",
    Effort.FLAG,
    drift="exact",
    where="model",
    switch=Switch(partial(set_parallel_option, "gradient_as_bucket_view", True), 4),
)
STATIC_GRAPH: Final = Recipe(
    "static_graph",
    "say that every step is alike: static_graph=True",
    Effort.FLAG,
    "wrong gradients where steps differ",
    drift="exact",
    where="model",
    switch=Switch(partial(set_parallel_option, "static_graph", True), 4),
)
LOCAL_BUFFERS: Final = Recipe(
    "local_buffers",
    "broadcast no buffers: broadcast_buffers=False",
    Effort.FLAG,
    "running statistics of each rank's own",
    drift="rounding",
    where="model",
    switch=Switch(keep_buffers_local),
)
