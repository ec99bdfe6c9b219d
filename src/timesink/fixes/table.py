"""The table of fixes: each row is one change that people make, in the order in which a plan lists and replays them.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a row;
to let one answer the findings of one more rule, add the rule's name to its `answers`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from timesink.fixes import replays
from timesink.fixes.fix import Effort, Fix, Offer, Verb, take_direction, take_streams, take_workers
from timesink.knowledge.assumptions import fixes
from timesink.measures.compile.graphs import broken_graphs
from timesink.measures.kernels.attainable import short_products
from timesink.measures.kernels.conversions import cast_kernels, layout_kernels
from timesink.measures.kernels.fusion import optimizer_kernels, pointwise_chains, unfused_attention
from timesink.measures.kernels.one_stream import one_stream_runs
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids, unused_lanes
from timesink.whatif.change import EVERYTHING
from timesink.whatif.changes.host import (
    LOADER,
    CaptureGraph,
    DropCompiler,
    FeedLoader,
    KeepMemory,
    MergeUnits,
    RemoveSyncs,
    ScaleHost,
)
from timesink.whatif.changes.kernels import FuseOptimizer, shorten
from timesink.whatif.changes.transfers import COLLECTIVES, DropExchanges, OverlapCollectives, PinCopies

TF32: Final = Fix(
    "tf32",
    'allow TF32: torch.set_float32_matmul_precision("high")',
    Effort.FLAG,
    answers=("precision/tf32",),
    costs="10 bits of mantissa in products",
    verb=Verb("precision tf32", "[kernel:REGEX]", "FP32 matrix products in TF32"),
    find=lambda trace: wide_kernels(trace)["fp32"],
    aim=lambda trace, target: map(replays.to_tf32, replays.named_kernels("fp32", trace, target)),
    change=replays.to_tf32,
    offer=Offer.ALWAYS,
    switch=True,
    edit=True,
)
BF16: Final = Fix(
    "bf16",
    "run in bf16 under torch.autocast",
    Effort.LINES,
    answers=("precision/bf16_weights", "precision/tf32"),
    subsumes=("tf32",),
    costs="casts, which are in its price, and 8 bits of mantissa",
    verb=Verb(
        "precision bf16",
        "[kernel:REGEX]",
        "FP32 matrix products, and kernels around them, in bf16",
    ),
    find=lambda trace: four_byte_kernels(trace)["bf16"],
    aim=lambda trace, target: map(replays.autocast, replays.named_to_cast("fp32", trace, target)),
    change=replays.autocast,
    beside=partial(replays.to_16_bits_beside, kind="bf16"),
    minds=("compile", "compile_graph", "padding", "drop_debugging"),
    offer=Offer.ALWAYS,
    does_more=True,
    switch=True,
    edit=True,
)
BF16_WEIGHTS: Final = Fix(
    "bf16_weights",
    "keep the model in bf16, where it trains with an optimizer that holds fp32 copies",
    Effort.LINES,
    answers=("precision/bf16_weights",),
    excludes=("bf16",),
    subsumes=("tf32",),
    costs="8 bits of mantissa, and where it trains the memory of fp32 copies",
    memory="unknown",
    change=replays.to_bf16,
)
FP16: Final = Fix(
    "fp16",
    "run in fp16 under torch.autocast, with a GradScaler in training",
    Effort.LINES,
    answers=("precision/fp16",),
    excludes=("bf16", "bf16_weights"),
    costs="casts, which are in its price, and 5 bits of exponent: gradients are scaled",
    verb=Verb("precision fp16", "[kernel:REGEX]", "FP32 matrix products, and kernels around them, in fp16"),
    find=lambda trace: four_byte_kernels(trace)["fp16"],
    aim=lambda trace, target: map(replays.autocast, replays.named_to_cast("fp16", trace, target)),
    change=replays.autocast,
    beside=partial(replays.to_16_bits_beside, kind="fp16"),
    minds=("compile", "compile_graph", "padding", "drop_debugging"),
    does_more=True,
    switch=True,
)
COMPILE: Final = Fix(
    "compile",
    "torch.compile the model",
    Effort.LINES,
    answers=("pointwise_unfused", "tiny_kernels", "launch_bound/cuda_graph", "eager_islands"),
    subsumes=("padding",),
    costs="seconds to minutes at the first step and at each new shape: not in its price",
    beside=replays.compile_model,
    offer=Offer.ALWAYS,
    does_more=True,
    of_launches=True,
    switch=True,
)
COMPILE_GRAPH: Final = Fix(
    "compile_graph",
    'torch.compile with mode="reduce-overhead"',
    Effort.LINES,
    answers=("launch_bound/cuda_graph", "tiny_kernels"),
    after=("remove_sync", "keep_memory"),
    subsumes=("compile", "cuda_graph", "padding"),
    costs="the memory of a graph's own pool, and shapes that stay the same",
    memory="working",  # its pool holds a step's tensors beside those of eager steps
    beside=replays.compile_to_graph,
    offer=Offer.ALWAYS,
    does_more=True,
    of_launches=True,
    switch=True,
)
CUDA_GRAPH: Final = Fix(
    "cuda_graph",
    "capture the step in a CUDA graph",
    Effort.LINES,
    answers=("launch_bound/cuda_graph",),
    after=("remove_sync", "keep_memory"),
    excludes=("compile",),
    costs="the memory of a graph's own pool, and shapes that stay the same",
    memory="working",
    verb=Verb("capture-graph", "[range:REGEX]", "CPU time between waits as graph launches"),
    find=lambda _: (EVERYTHING,),
    change=CaptureGraph,
    beside=replays.capture_beside,
    offer=Offer.ALWAYS,
    of_launches=True,
    same_kernels=True,
)
FUSED_ATTENTION: Final = Fix(
    "fused_attention",
    "call scaled_dot_product_attention",
    Effort.LINES,
    answers=("attention_unfused",),
    verb=Verb("fuse-attention", "", "attention as one fused kernel"),
    find=unfused_attention,
    change=replays.fuse_attention,
    beside=replays.fuse_attention_beside,
    minds=("bf16", "bf16_weights", "fp16"),
    offer=Offer.ALWAYS,
    switch=True,
)
FUSED_OPTIMIZER: Final = Fix(
    "fused_optimizer",
    "pass fused=True to the optimizer",
    Effort.FLAG,
    answers=("optimizer_unfused",),
    subsumes=("foreach",),
    verb=Verb("fuse-optimizer", "[range:REGEX]", "one fused optimizer step"),
    find=lambda trace: (kernels.unfused for kernels in optimizer_kernels(trace)),
    aim=lambda trace, target: (
        FuseOptimizer.of(part, target) for part in replays.named_kernels("unfused", trace, target)
    ),
    change=FuseOptimizer.of,
    offer=Offer.ALWAYS,
    switch=True,
    edit=True,
)
FOREACH: Final = Fix(
    "foreach",
    "pass foreach=True to the optimizer",
    Effort.FLAG,
    answers=("optimizer_unfused",),
    costs="a copy of the gradients' size while it runs",
    memory="unknown",
    find=lambda trace: (kernels.unfused for kernels in optimizer_kernels(trace) if kernels.one_by_one),
    change=FuseOptimizer.over_lists,
    offer=Offer.ALWAYS,
    does_more=True,
    switch=True,
    edit=True,
)
LOADER_WORKERS: Final = Fix(
    "loader_workers",
    "load batches in worker processes (num_workers)",
    Effort.FLAG,
    answers=("input_pipeline",),
    costs="cores of the CPU, and batches held in its memory",
    verb=Verb("feed-loader", "[range:REGEX] [workers=N]", "batches that come from workers", options=take_workers),
    find=lambda _: (LOADER,),
    change=FeedLoader,
    same_kernels=True,
    switch=True,
    edit=True,
)
PIN_MEMORY: Final = Fix(
    "pin_memory",
    "copy from pinned memory with non_blocking=True",
    Effort.FLAG,
    answers=("pageable_copies",),
    costs="host memory that cannot be paged out",
    verb=Verb(
        "pin-copies",
        "[d2h] [TARGET]",
        "pageable copies to the GPU (or CPU) by pinned memory, overlapped",
        options=take_direction,
    ),
    find=lambda _: (EVERYTHING,),
    change=PinCopies,
    offer=Offer.UNASKED,  # the profiler may hide what waits
    same_kernels=True,
    switch=True,
    edit=True,
)
PREFETCH: Final = Fix(
    "prefetch",
    "copy the next batch on a stream of its own while this one computes",
    Effort.LINES,
    answers=("copies_exposed/prefetch",),
    costs="the memory of one more batch",
    memory="sent",
    same_kernels=True,
)
PREFETCH_PAGES: Final = Fix(
    "prefetch_pages",
    "move unified memory before it is touched: cudaMemPrefetchAsync",
    Effort.LINES,
    answers=("copies_exposed/prefetch_pages",),
    same_kernels=True,
)
KEEP_ON_DEVICE: Final = Fix(
    "keep_on_device",
    "keep data on the GPU from one kernel to the next, not copied to the CPU and back",
    Effort.LINES,
    answers=("copies_exposed/keep_on_device",),
    costs="right only where the CPU hands the data on as it is, which a capture does not show",
    same_kernels=True,
)
NO_SYNC: Final = Fix(
    "no_sync",
    "exchange gradients once a step: no_sync() in the other micro-batches",
    Effort.LINES,
    answers=("exchange_repeated",),
    change=DropExchanges.of,
    same_kernels=True,
    edit=True,
)
BUCKETS: Final = Fix(
    "buckets",
    "exchange in larger units (bucket_cap_mb, coarser wrapping)",
    Effort.FLAG,
    answers=("communication_small", "units_small"),
    costs="the memory of larger buckets",
    memory="unknown",
    change=MergeUnits.of,
    same_kernels=True,
    switch=True,
)
REMOVE_SYNC: Final = Fix(
    "remove_sync",
    "keep values on the GPU; read them every N steps",
    Effort.LINES,
    answers=("host_sync", "collective_awaited"),
    verb=Verb("remove-sync", "[op:REGEX | range: | call:]", "waits that go"),
    find=replays.waits_that_may_go,
    change=RemoveSyncs,
    offer=Offer.ALWAYS,
    same_kernels=True,
    edit=True,
)
KEEP_MEMORY: Final = Fix(
    "keep_memory",
    "take memory once and reuse it in every step",
    Effort.LINES,
    answers=("allocator",),
    change=KeepMemory,
    same_kernels=True,
)
ONE_PROCESS_PER_GPU: Final = Fix(
    "one_process_per_gpu",
    "use DistributedDataParallel, one process per GPU",
    Effort.LINES,
    answers=("launch_bound/one_process_per_gpu",),
    costs="gradients that are exchanged in each step, not in its price",
)
CHANNELS_LAST: Final = Fix(
    "channels_last",
    "keep one memory layout (channels_last for convolutions)",
    Effort.LINES,
    answers=("layout_conversion",),
    verb=Verb("keep-layout", "", "copies and conversions that only change a layout"),
    find=layout_kernels,
    change=replays.keep_layout,
    beside=replays.keep_layout_beside,
    offer=Offer.ALWAYS,
    switch=True,
)
PADDING: Final = Fix(
    "padding",
    "pad sizes to multiples of 8",
    Effort.LINES,
    answers=("shape_alignment",),
    costs="the padding's share of work and memory",
    verb=Verb("align-products", "", "products of operands padded to 16 bytes"),
    find=misaligned_products,
    change=replays.align_products,
    offer=Offer.ALWAYS,
)
NO_RECOMPUTATION: Final = Fix(
    "no_recomputation",
    "store activations rather than compute them twice",
    Effort.FLAG,
    answers=("activations_recomputed",),
    costs="the memory of the activations",
    memory="again",
    change=replays.drop_extra_work,
    switch=True,
    edit=True,
)
STREAMS: Final = Fix(
    "streams",
    "run independent work on several streams",
    Effort.LINES,
    answers=("stream_serialization", "one_stream"),
    verb=Verb("overlap-streams", "", "streams that take turns at once"),
    find=lambda trace: (streams.serial for streams in serialized_streams(trace)),
    change=replays.overlap_streams,
)
BATCH_SMALL_CALLS: Final = Fix(
    "batch_small_calls",
    "make one batched call of many small ones",
    Effort.REWRITE,
    answers=("small_grids",),
    costs="right only where no call needs what another computes, which a capture does not show",
    verb=Verb("spread-grids", "", "kernels with too few blocks over all multiprocessors"),
    find=small_grids,
    change=replays.spread_grids,
    beside=replays.batch_calls_beside,
    offer=Offer.ALWAYS,
)
DROP_DEBUGGING: Final = Fix(
    "drop_debugging",
    "switch debugging off (anomaly mode, CUDA_LAUNCH_BLOCKING)",
    Effort.FLAG,
    answers=("debugging_left_on", "launches_blocking"),
    change=replays.drop_extra_work,
    same_kernels=True,
    switch=True,
    edit=True,
)
LIST_OPERATIONS: Final = Fix(
    "list_operations",
    "use operations on lists of tensors (torch._foreach_*) in place of a loop",
    Effort.LINES,
    answers=("parameters_one_by_one",),
    costs="memory of the results, where not in place",
    change=replays.merge_loops,
    edit=True,
)
BUILD_ONCE: Final = Fix(
    "build_once",
    "build masks and positions once and hand them to the layers",
    Effort.LINES,
    answers=("constants_rebuilt",),
    costs="the memory of what is kept",
    memory="unknown",
    change=replays.drop_extra_work,
    edit=True,
)
EVALUATE_RARELY: Final = Fix(
    "evaluate_rarely",
    "evaluate every N steps",
    Effort.LINES,
    answers=("forward_repeated",),
    change=replays.drop_extra_work,
    edit=True,
)
FEWER_THREADS: Final = Fix(
    "fewer_threads",
    "run no more threads than there are processors (OMP_NUM_THREADS)",
    Effort.FLAG,
    answers=("threads_oversubscribed",),
    change=ScaleHost,
    switch=True,
)
OWN_GPU: Final = Fix("own_gpu", "give the program a GPU of its own", Effort.FLAG, answers=("device_shared",))

# What to type depends on the finding, and its advice says it.
FUSE_POINTWISE: Final = Fix(
    "fuse_pointwise",
    verb=Verb("fuse-pointwise", "[kernel:REGEX]", "runs of pointwise kernels as one"),
    find=pointwise_chains,
    aim=lambda trace, target: map(replays.fuse_pointwise, replays.named_runs(trace, target)),
    change=replays.fuse_pointwise,
)
TUNE_PRODUCTS: Final = Fix(
    "tune_products",
    verb=Verb("tune-products", "", "matrix products below what is attainable, with other tiles"),
    find=short_products,
    change=replays.half_the_way,
    none=lambda trace, target: "no product is known to be below what it can attain; capture shapes to tell",
)
FUSE_TINY_KERNELS: Final = Fix("fuse_tiny_kernels", change=replays.merge_tiny)
FP32: Final = Fix(
    "fp32",
    verb=Verb("precision fp32", "", "kernels in FP64 in FP32"),
    find=lambda trace: wide_kernels(trace)["fp64"],
    change=partial(shorten, floored=True, fp64=fixes.FP64_AS_FP32),
)
DROP_CASTS: Final = Fix(
    "drop_casts",
    verb=Verb("drop-casts", "", "casts between floating types that nobody needs"),
    find=cast_kernels,
    change=partial(shorten, needless=fixes.CASTS_NEEDLESS, summed=fixes.CASTS_SUMMED, loss=fixes.LOSS_NARROWED),
)
INDEPENDENT_STREAMS: Final = Fix(
    "independent_streams",
    verb=Verb(
        "streams",
        "[kernel:REGEX] N, or range:, op:, frame:",
        "small kernels of one stream on N streams",
        options=take_streams,
    ),
    find=one_stream_runs,
    aim=replays.on_streams_of,
    change=replays.on_streams,
    none=replays.no_streams,
)
JOIN_GRAPHS: Final = Fix(
    "join_graphs",
    verb=Verb("join-graphs", "", "compiled pieces as one graph"),
    find=broken_graphs,
    change=lambda pieces: replays.join_graphs(pieces.kernels, pieces.entries, pieces.beyond),
)
OVERLAP_COLLECTIVES: Final = Fix(
    "overlap_collectives",
    verb=Verb("overlap", "[collective:REGEX]", "collectives beside computation"),
    find=lambda _: (COLLECTIVES,),
    change=OverlapCollectives,
)
FILL_WARPS: Final = Fix("fill_warps", find=unused_lanes, change=replays.fill_warps)
FILL_DEVICE: Final = Fix("fill_device", change=replays.spread_grids)
FULL_CLOCK: Final = Fix("full_clock", change=replays.half_the_way)
REACH_BOUND: Final = Fix("reach_bound", change=replays.reach_bound)
CACHE_IN_PLACE: Final = Fix("cache_in_place", change=replays.drop_work)
NO_RECOMPILATION: Final = Fix("no_recompilation", change=DropCompiler)
LESS_HOST_WORK: Final = Fix("less_host_work", change=lambda host: ScaleHost(host, 0.0))
PREPARE_NEXT_STEP: Final = Fix("prepare_next_step")

COMPILE_BLOCKS: Final = Fix(
    "compile_blocks",
    "torch.compile each repeated block by itself",
    Effort.LINES,
    excludes=("compile", "compile_graph"),
    costs="seconds to minutes at the first step and at each new shape: not in its price",
    switch=True,
)
TRIED: Final = tuple(
    Fix(
        name,
        what_to_type,
        Effort.FLAG,
        costs=costs,
        switch=True,
        edit=name in ("benchmark_convolutions", "set_to_none"),
    )
    for name, what_to_type, costs in (
        ("benchmark_convolutions", "let cuDNN try its algorithms: torch.backends.cudnn.benchmark = True", ""),
        ("set_to_none", "zero gradients with set_to_none=True", "gradients that are None"),
        ("frozen_garbage", "collect no garbage in the loop: gc.freeze(), gc.disable()", "memory of cycles"),
        ("bucket_views", "let gradients be views of buckets: gradient_as_bucket_view=True", ""),
        ("static_graph", "say that every step is alike: static_graph=True", "wrong gradients where steps differ"),
        ("local_buffers", "broadcast no buffers: broadcast_buffers=False", "running statistics of each rank's own"),
        ("expandable_segments", "let memory grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", ""),
    )
)
"""No trace tells what these win: they are tried, not foretold."""
WRITTEN: Final = tuple(
    Fix(name, what_to_type, Effort.LINES, costs=costs, edit=True)
    for name, what_to_type, costs in (
        ("no_gradients", "call a model that nobody trains under torch.no_grad()", ""),
        ("pad_to_batch", "pad batches to their longest sequence", "shapes that change from step to step"),
        ("waiting_copies", "copy batches from pinned memory with non_blocking=True", ""),
    )
)
"""No rule finds these and no switch makes them: they are written into the program by `timesink fix`."""

FIXES: Final = (*(row for row in tuple(globals().values()) if isinstance(row, Fix)), *TRIED, *WRITTEN)
"""All rows."""
BY_NAME: Final = {fix.name: fix for fix in FIXES}
