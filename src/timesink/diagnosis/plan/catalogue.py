"""The changes that people make, each declared once: what it is, what it takes, and which findings it repairs.

To let a change repair the findings of one more rule, add the rule's name to its `rules`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from timesink.model.record import dataclass


class Effort(StrEnum):
    """What a change takes of whoever makes it."""

    FLAG = "a flag"
    LINES = "a few lines"
    REWRITE = "a rewrite"
    UNKNOWN = "see the advice"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change to a program. `rules` are those whose findings it repairs; with `labels` only findings that propose a
    change so named.

    `subsumes` are changes that it makes as well, `excludes` those that cannot stand beside it, `needs` those that must
    be made before. `touches` says what of the program it changes, `costs` what it takes for it: of that, `priced` says
    whether it is in the price.
    """

    id: str
    words: str
    effort: Effort
    rules: tuple[str, ...]
    touches: str = ""
    labels: tuple[str, ...] = ()
    subsumes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    costs: str = ""


CHANGES: Final = (
    PlannedChange(
        "tf32", 'allow TF32: torch.set_float32_matmul_precision("high")', Effort.FLAG, ("precision",),
        "fp32 products", labels=("precision tf32",), costs="10 bits of mantissa in products",
    ),
    PlannedChange(
        "bf16", "run in bf16 under torch.autocast", Effort.LINES, ("precision",),
        "products and the kernels around them", labels=("precision bf16", "precision tf32"), subsumes=("tf32",),
        costs="casts, which are in its price, and 8 bits of mantissa",
    ),
    PlannedChange(
        "compile", "torch.compile the model", Effort.LINES,
        ("pointwise_unfused", "tiny_kernels", "launch_bound", "eager_islands"),
        "eager kernels between products, and their launches", subsumes=("padding",),
        costs="seconds to minutes at the first step and at each new shape: not in its price",
    ),
    PlannedChange(
        "compile_graph", 'torch.compile with mode="reduce-overhead"', Effort.LINES,
        ("launch_bound", "tiny_kernels"), "all launches of the model", subsumes=("compile", "cuda_graph", "padding"),
        costs="the memory of a graph's own pool, and shapes that stay the same",
    ),
    PlannedChange(
        "cuda_graph", "capture the step in a CUDA graph", Effort.LINES, ("launch_bound",), "all launches of the step",
        excludes=("compile",), costs="the memory of a graph's own pool, and shapes that stay the same",
    ),
    PlannedChange(
        "fused_attention", "call scaled_dot_product_attention", Effort.LINES, ("attention_unfused",),
        "attention's products and softmax",
    ),
    PlannedChange(
        "fused_optimizer", "pass fused=True to the optimizer", Effort.FLAG, ("optimizer_unfused",),
        "the optimizer's kernels and launches", subsumes=("foreach",),
    ),
    PlannedChange(
        "foreach", "pass foreach=True to the optimizer", Effort.FLAG, ("optimizer_unfused",),
        "launches for one parameter each", costs="a copy of the gradients' size while it runs",
    ),
    PlannedChange(
        "loader_workers", "load batches in worker processes (num_workers)", Effort.FLAG, ("input_pipeline",),
        "loading of batches", costs="cores of the host, and batches held in its memory",
    ),
    PlannedChange(
        "pin_memory", "copy from pinned memory with non_blocking=True", Effort.FLAG, ("pageable_copies",),
        "copies between host and device", costs="memory of the host that cannot be paged out",
    ),
    PlannedChange(
        "prefetch", "copy the next batch on a stream of its own while this one computes", Effort.LINES,
        ("copies_exposed",), "copies that nothing overlaps", costs="the memory of one more batch",
    ),
    PlannedChange(
        "no_sync", "exchange gradients once a step: no_sync() in the other micro-batches", Effort.LINES,
        ("exchange_repeated",), "all-reduces of micro-batches",
    ),
    PlannedChange(
        "buckets", "exchange in larger units (bucket_cap_mb, coarser wrapping)", Effort.FLAG,
        ("communication_small", "units_small"), "number and size of collectives", costs="the memory of larger buckets",
    ),
    PlannedChange(
        "remove_sync", "keep values on the device; read them every so many steps", Effort.LINES,
        ("host_sync", "collective_awaited"), "waits of the host for the device",
    ),
    PlannedChange(
        "channels_last", "keep one memory layout (channels_last for convolutions)", Effort.LINES,
        ("layout_conversion",), "kernels that only change a layout",
    ),
    PlannedChange(
        "padding", "pad sizes to multiples of 8", Effort.LINES, ("shape_alignment",),
        "products of misaligned operands", costs="the padding's share of work and memory",
    ),
    PlannedChange(
        "no_recomputation", "store activations rather than compute them twice", Effort.FLAG,
        ("activations_recomputed",),
        "forward passes run again in backward", costs="the memory of the activations",
    ),
    PlannedChange(
        "streams", "run independent work on several streams", Effort.LINES, ("stream_serialization", "one_stream"),
        "kernels that fill a part of the device",
    ),
    PlannedChange(
        "batch_small_calls", "make one batched call of many small ones", Effort.REWRITE, ("small_grids",),
        "kernels with fewer blocks than multiprocessors, and calls of a model in a row",
        costs="right only where no call needs what another computes, which a capture does not show",
    ),
    PlannedChange(
        "drop_debugging", "switch debugging off (anomaly mode, CUDA_LAUNCH_BLOCKING)", Effort.FLAG,
        ("debugging_left_on", "launches_blocking"), "checks and waits that debugging adds",
    ),
    PlannedChange(
        "list_operations", "use operations on lists of tensors (torch._foreach_*) in place of a loop", Effort.LINES,
        ("parameters_one_by_one",), "launches for one tensor each", costs="memory of the results, where not in place",
    ),
    PlannedChange(
        "build_once", "build masks and positions once and hand them to the layers", Effort.LINES,
        ("constants_rebuilt",), "masks and ranges built in every layer", costs="the memory of what is kept",
    ),
    PlannedChange(
        "evaluate_rarely", "evaluate every so many steps", Effort.LINES, ("forward_repeated",),
        "forward passes that no backward pass follows",
    ),
    PlannedChange(
        "fewer_threads", "run no more threads than there are processors (OMP_NUM_THREADS)", Effort.FLAG,
        ("threads_oversubscribed",), "operators of the host",
    ),
    PlannedChange(
        "own_gpu", "give the program a GPU of its own", Effort.FLAG, ("device_shared",), "turns with other processes",
    ),
)  # fmt: skip
"""Without `larger_batch`: what it wins is per item, and a step of it is another step (`plan.batch`)."""

BY_ID: Final = {change.id: change for change in CHANGES}
