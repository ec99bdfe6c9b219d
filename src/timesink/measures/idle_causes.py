"""What an idle device may be waiting for, and which host activity speaks for which cause."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.input_pipeline import LOADING_NAME
from timesink.model.names import mapped
from timesink.whatif.calls import CallKind, call_kinds

Codes = npt.NDArray[np.int64]

# In order of priority: of two that enclose an instant, the first named speaks for it, down to `logging`. Below that,
# the innermost activity speaks for itself.
NAMES: Final = (
    "profiler", "sync", "allocator", "copy_staging", "loader", "compile", "checkpoint", "garbage_collection",
    "optimizer", "logging", "dispatch", "cuda_call", "python", "untraced",
    "launch_latency", "dependency_communication", "dependency_copy", "dependency_compute", "kernel_gap", "graph_gap",
    "unexplained",
)  # fmt: skip
IdleCause: Final = pl.Enum(list(NAMES))
HOST_CAUSES: Final = NAMES[1:14]
CODE: Final = {name: code for code, name in enumerate(NAMES)}
SPEAKS_FOR_ITSELF: Final = CODE["dispatch"]

_BY_NAME: Final = (
    ("garbage_collection", r"(?i)Python GC|garbage.?collect|^gc[._:]|(^|[.\s/])gc\.py|<built-in method collect of"),
    ("loader", LOADING_NAME),
    ("compile", r"(?i)dynamo_timed|\bautotun|compile_fx|_compile_inner|inductor_compile|triton.*compile"
     r"|async_compile|TorchDynamo Start|entire_frame_compile|backend_compile|cudagraph.*(record|warmup)"),
    ("checkpoint", r"(?i)torch/serialization\.py|save_checkpoint|checkpoint.*sav|state_dict.*sav|torch\.save"),
    ("optimizer", r"(?i)^Optimizer\.(step|zero_grad)#|torch/optim/|(^|[^a-z])optim(izer)?([^a-z]|$|_step)|zero_grad"),
    ("logging", r"(?i)tensorboard|SummaryWriter|wandb|(^|/)logging/__init__\.py|<built-in function print>"
     r"|(^|[^a-z])log(ging|ger)?[_ .:-]?(step|loss|metrics?)|tqdm"),
)  # fmt: skip
# A range that a program put around an operator of the framework (emit_nvtx) is that operator.
_OPERATOR_RANGE: Final = r"^(aten|autograd|torch|prims|c10d)::"


def call_causes(names: pl.Series, stages: npt.NDArray[np.bool_]) -> Codes:
    """The cause each CUDA call speaks for; `stages` marks copies from or to pageable memory."""
    kinds = call_kinds(names)
    codes = np.full(kinds.size, CODE["cuda_call"], np.int64)
    codes[np.isin(kinds, [CallKind.DEVICE_SYNC, CallKind.STREAM_SYNC, CallKind.EVENT_SYNC])] = CODE["sync"]
    codes[np.isin(kinds, [CallKind.ALLOCATE, CallKind.FREE])] = CODE["allocator"]
    codes[stages | (kinds == CallKind.COPY_BLOCKING)] = CODE["copy_staging"]
    return codes


def name_causes(names: pl.Series, otherwise: str) -> Codes:
    """The cause that the name of an operator, a range or a frame speaks for, or `otherwise`."""

    def classify(distinct: pl.Series) -> pl.Series:
        name = pl.col("name")
        plain = (
            pl.when(name.str.contains(_OPERATOR_RANGE))
            .then(pl.lit(CODE["dispatch"]))
            .otherwise(pl.lit(CODE[otherwise]))
        )
        answer = plain
        for cause, pattern in reversed(_BY_NAME):
            answer = pl.when(name.str.contains(pattern)).then(pl.lit(CODE[cause])).otherwise(answer)
        return distinct.rename("name").to_frame().select(answer.cast(pl.Int64).alias("code")).to_series()

    return mapped(names, classify, pl.Int64).fill_null(CODE[otherwise]).to_numpy()
