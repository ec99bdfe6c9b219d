"""What to type depends on the finding, whose advice says it; and what is tried, but foretold from no trace."""

from typing import Final

from timesink.fixes import Effort, Fix, Verb, aimed, of, take_streams
from timesink.fixes.replays import (
    drop_work,
    fill_warps,
    fuse_pointwise,
    half_the_way,
    join_graphs,
    merge_tiny,
    named_runs,
    no_streams,
    on_streams,
    on_streams_of,
    reach_bound,
    spread_grids,
)
from timesink.knowledge.assumptions import fixes
from timesink.measures.compile import BrokenGraphs, broken_graphs
from timesink.measures.kernels.attainable import short_products
from timesink.measures.kernels.conversions import cast_kernels
from timesink.measures.kernels.fusion import pointwise_chains
from timesink.measures.kernels.one_stream import one_stream_runs
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.small_grids import unused_lanes
from timesink.model.trace import Trace
from timesink.whatif import Selection, Target
from timesink.whatif.changes.host import DropCompiler, ScaleHost
from timesink.whatif.changes.kernels import ShortenKernels, shorten
from timesink.whatif.changes.transfers import COLLECTIVES, OverlapCollectives


def collectives(_: Trace) -> tuple[Target, ...]:
    """All exchanges."""
    return (COLLECTIVES,)


def narrow_fp64(found: Selection) -> ShortenKernels:
    """Kernels in FP64 in FP32."""
    return shorten(found, floored=True, fp64=fixes.FP64_AS_FP32, products=fixes.FP64_PRODUCTS_AS_FP32)


def drop_casts(found: Selection) -> ShortenKernels:
    """Casts, and what stays of each kind."""
    return shorten(found, needless=fixes.CASTS_NEEDLESS, summed=fixes.CASTS_SUMMED, loss=fixes.LOSS_NARROWED)


def join_pieces(pieces: BrokenGraphs) -> ShortenKernels:
    """Compiled pieces as one graph."""
    return join_graphs(pieces.kernels, pieces.entries, pieces.beyond)


def drop_host(target: Target) -> ScaleHost:
    """None of the host's time that a target names."""
    return ScaleHost(target, 0.0)


def no_products(_: Trace, __: Target | None) -> str:
    """Why no product is changed."""
    return "no product is known to be below what it can attain; capture shapes to tell"


FUSE_POINTWISE: Final = Fix(
    "fuse_pointwise",
    verb=Verb("fuse-pointwise", "[kernel:REGEX]", "runs of pointwise kernels as one"),
    find=pointwise_chains,
    aim=aimed(named_runs, fuse_pointwise),
    change=fuse_pointwise,
)
TUNE_PRODUCTS: Final = Fix(
    "tune_products",
    verb=Verb("tune-products", "", "matrix products below what is attainable, with other tiles"),
    find=short_products,
    change=half_the_way,
    none=no_products,
)
FUSE_TINY_KERNELS: Final = Fix("fuse_tiny_kernels", change=merge_tiny)
FP32: Final = Fix(
    "fp32",
    verb=Verb("precision fp32", "", "kernels in FP64 in FP32"),
    find=of(wide_kernels, "fp64"),
    change=narrow_fp64,
)
DROP_CASTS: Final = Fix(
    "drop_casts",
    verb=Verb("drop-casts", "", "casts between floating types that nobody needs"),
    find=cast_kernels,
    change=drop_casts,
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
    aim=on_streams_of,
    change=on_streams,
    none=no_streams,
)
JOIN_GRAPHS: Final = Fix(
    "join_graphs",
    verb=Verb("join-graphs", "", "compiled pieces as one graph"),
    find=broken_graphs,
    change=join_pieces,
)
OVERLAP_COLLECTIVES: Final = Fix(
    "overlap_collectives",
    verb=Verb("overlap", "[collective:REGEX]", "collectives beside computation"),
    find=collectives,
    change=OverlapCollectives,
)
FILL_WARPS: Final = Fix("fill_warps", find=unused_lanes, change=fill_warps)
FILL_DEVICE: Final = Fix("fill_device", change=spread_grids)
FULL_CLOCK: Final = Fix("full_clock", change=half_the_way)
REACH_BOUND: Final = Fix("reach_bound", change=reach_bound)
CACHE_IN_PLACE: Final = Fix("cache_in_place", change=drop_work)
NO_RECOMPILATION: Final = Fix("no_recompilation", change=DropCompiler)
LESS_HOST_WORK: Final = Fix("less_host_work", change=drop_host)
PREPARE_NEXT_STEP: Final = Fix("prepare_next_step")
COMPILE_BLOCKS: Final = Fix(
    "compile_blocks",
    "torch.compile each repeated block by itself",
    effort=Effort.LINES,
    excludes=("compile", "compile_graph"),
    costs="seconds to minutes at the first step and at each new shape: not in its price",
    of_pytorch=True,
    switch=True,
)
BENCHMARK_CONVOLUTIONS: Final = Fix(
    "benchmark_convolutions",
    "let cuDNN try its algorithms: torch.backends.cudnn.benchmark = True",
    effort=Effort.FLAG,
    of_pytorch=True,
    switch=True,
    edit=True,
)
SET_TO_NONE: Final = Fix(
    "set_to_none",
    "zero gradients with set_to_none=True",
    effort=Effort.FLAG,
    costs="gradients that are None",
    of_pytorch=True,
    switch=True,
    edit=True,
)
FROZEN_GARBAGE: Final = Fix(
    "frozen_garbage",
    "collect no garbage in the loop: gc.freeze(), gc.disable()",
    effort=Effort.FLAG,
    costs="memory of cycles",
    of_pytorch=True,
    switch=True,
    edit=True,
)
BUCKET_VIEWS: Final = Fix(
    "bucket_views",
    "let gradients be views of buckets: gradient_as_bucket_view=True",
    effort=Effort.FLAG,
    of_pytorch=True,
    switch=True,
)
STATIC_GRAPH: Final = Fix(
    "static_graph",
    "say that every step is alike: static_graph=True",
    effort=Effort.FLAG,
    costs="wrong gradients where steps differ",
    of_pytorch=True,
    switch=True,
)
LOCAL_BUFFERS: Final = Fix(
    "local_buffers",
    "broadcast no buffers: broadcast_buffers=False",
    effort=Effort.FLAG,
    costs="running statistics of each rank's own",
    of_pytorch=True,
    switch=True,
)
EXPANDABLE_SEGMENTS: Final = Fix(
    "expandable_segments",
    "let memory grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    effort=Effort.FLAG,
    of_pytorch=True,
    switch=True,
)
NO_GRADIENTS: Final = Fix(
    "no_gradients",
    "call a model that nobody trains under torch.no_grad()",
    effort=Effort.LINES,
    of_pytorch=True,
    edit=True,
)
PAD_TO_BATCH: Final = Fix(
    "pad_to_batch",
    "pad batches to their longest sequence",
    effort=Effort.LINES,
    costs="shapes that change from step to step",
    edit=True,
)
WAITING_COPIES: Final = Fix(
    "waiting_copies",
    "copy batches from pinned memory with non_blocking=True",
    effort=Effort.LINES,
    of_pytorch=True,
    edit=True,
)
