"""The switches: each changes one thing of a running program, and undoes it. They have the names of the table of fixes.

A switch is tried between two steps. Where it does not apply to the program it raises `Refusal` with the reason. Its
class says how far results may move: not at all, as other batches of the same data do, by rounding, or by the precision
that it lowers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from timesink.edits.table import Drift
from timesink.trials import model_switches as model
from timesink.trials import training_switches as training
from timesink.trials.program import RunningProgram
from timesink.trials.switching import Undo


@dataclass(frozen=True, slots=True)
class Switch:
    """`turn_on` changes the program and returns what undoes it. `where` is what of the program is edited to keep it.

    `warm_up` steps are not timed after it is first on, and `settle` steps whenever it is on again. `cost_s`: about what
    it takes to try it.
    """

    name: str
    turn_on: Callable[[RunningProgram], Undo]
    drift: Drift
    where: Literal["model", "optimizer", "loader", ""] = ""
    warm_up: int = 2
    settle: int = 1
    cost_s: float = 3.0


_WORKERS: Final = (18, 18, 6.0)
"""So many steps use up what workers had ready while they were not asked."""
_parallel: Final = training.set_parallel_option
SWITCHES: Final = {
    switch.name: switch
    for switch in (
        Switch("loader_workers", training.load_in_workers, "other batches", "loader", *_WORKERS),
        Switch("bf16", partial(model.autocast_model, "bf16"), "lower precision", "model", 3),
        Switch("fp16", partial(model.autocast_model, "fp16"), "lower precision", "model", 3),
        Switch("tf32", model.allow_tf32, "lower precision"),
        Switch("channels_last", model.lay_channels_last, "rounding", "model", 4),
        Switch("fused_attention", model.fuse_attention, "rounding", "model"),
        Switch("fused_optimizer", partial(training.set_optimizer_flag, "fused"), "rounding", "optimizer"),
        Switch("no_recomputation", model.skip_recomputation, "exact", "model"),
        Switch("drop_debugging", training.drop_anomaly_mode, "exact"),
        Switch("compile", partial(model.compile_model, None), "rounding", "model", 4, 3, 20.0),
        Switch("pin_memory", training.pin_batches, "exact", "loader", 4, 4),
        Switch("foreach", partial(training.set_optimizer_flag, "foreach"), "rounding", "optimizer"),
        Switch("set_to_none", training.zero_to_none, "exact"),
        Switch("benchmark_convolutions", model.benchmark_convolutions, "rounding", "", 4),
        Switch("frozen_garbage", training.freeze_garbage, "exact"),
        Switch("fewer_threads", training.run_fewer_threads, "rounding"),
        Switch("expandable_segments", training.expand_segments, "exact", "", 6),
        Switch("buckets", partial(_parallel, "bucket_cap_mb", 100.0), "rounding", "model", 4),
        Switch("bucket_views", partial(_parallel, "gradient_as_bucket_view", True), "exact", "model", 4),
        Switch("static_graph", partial(_parallel, "static_graph", True), "exact", "model", 4),
        Switch("local_buffers", training.keep_buffers_local, "rounding", "model"),
        Switch("compile_graph", partial(model.compile_model, "reduce-overhead"), "rounding", "model", 6, 4, 25.0),
        Switch("compile_blocks", model.compile_blocks, "rounding", "model", 4, 3, 15.0),
    )
}
"""In the order in which they are tried: what wins most where it applies, and takes least to try, comes first."""

_ONE_OF: Final = (("fused_optimizer", "foreach"), ("compile", "compile_graph", "compile_blocks"))
EXCLUDED_BY: Final = {name: frozenset(group) - {name} for group in _ONE_OF for name in group}
"""For each switch those that cannot be on beside it."""
