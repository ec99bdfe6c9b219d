"""What to type depends on the finding, whose advice says it; and what is tried, but foretold from no trace."""

from typing import Final

from timesink.fixes import Fix, aimed, of
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
from timesink.recipes import Words
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
    return "no matmul is known to be below what it can attain; capture shapes to tell"


FUSE_POINTWISE: Final = Fix(
    Words("fuse_pointwise"),
    find=pointwise_chains,
    aim=aimed(named_runs, fuse_pointwise),
    change=fuse_pointwise,
)
TUNE_PRODUCTS: Final = Fix(
    Words("tune_matmuls"),
    find=short_products,
    change=half_the_way,
    none=no_products,
)
FUSE_TINY_KERNELS: Final = Fix(Words("fuse_tiny_kernels"), change=merge_tiny)
FP32: Final = Fix(
    Words("fp32"),
    find=of(wide_kernels, "fp64"),
    change=narrow_fp64,
)
DROP_CASTS: Final = Fix(
    Words("drop_casts"),
    find=cast_kernels,
    change=drop_casts,
)
INDEPENDENT_STREAMS: Final = Fix(
    Words("streams"),
    find=one_stream_runs,
    aim=on_streams_of,
    change=on_streams,
    none=no_streams,
)
JOIN_GRAPHS: Final = Fix(
    Words("join_graphs"),
    find=broken_graphs,
    change=join_pieces,
)
OVERLAP_COLLECTIVES: Final = Fix(
    Words("overlap_collectives"),
    find=collectives,
    change=OverlapCollectives,
)
FILL_WARPS: Final = Fix(Words("fill_warps"), find=unused_lanes, change=fill_warps)
FILL_DEVICE: Final = Fix(Words("fill_device"), change=spread_grids)
FULL_CLOCK: Final = Fix(Words("full_clock"), change=half_the_way)
REACH_BOUND: Final = Fix(Words("reach_bound"), change=reach_bound)
CACHE_IN_PLACE: Final = Fix(Words("cache_in_place"), change=drop_work)
NO_RECOMPILATION: Final = Fix(Words("no_recompilation"), change=DropCompiler)
LESS_HOST_WORK: Final = Fix(Words("less_host_work"), change=drop_host)
PREPARE_NEXT_STEP: Final = Fix(Words("prepare_next_step"))
