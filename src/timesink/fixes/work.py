"""What need not be done, or not so: layouts, sizes, small calls, work that is done again, settings left on."""

from collections.abc import Iterator
from typing import Final

from timesink.fixes import Effort, Fix, Offer, Verb
from timesink.fixes.replays import (
    align_products,
    batch_calls_beside,
    drop_extra_work,
    keep_layout,
    keep_layout_beside,
    merge_loops,
    overlap_streams,
    spread_grids,
)
from timesink.measures.kernels.conversions import layout_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.model.trace import Trace
from timesink.whatif import Selection
from timesink.whatif.changes.host import ScaleHost


def serial_streams(trace: Trace) -> Iterator[Selection]:
    """Kernels of streams that take turns."""
    return (streams.kernels for streams in serialized_streams(trace))


CHANNELS_LAST: Final = Fix(
    "channels_last",
    "keep one memory layout (channels_last for convolutions)",
    elsewhere="keep one memory layout",
    effort=Effort.LINES,
    answers=("layout_conversion",),
    verb=Verb("keep-layout", "", "copies and conversions that only change a layout"),
    find=layout_kernels,
    change=keep_layout,
    beside=keep_layout_beside,
    offer=Offer.ALWAYS,
    switch=True,
)
PADDING: Final = Fix(
    "padding",
    "pad sizes to multiples of 8",
    effort=Effort.LINES,
    answers=("shape_alignment",),
    costs="the padding's share of work and memory",
    verb=Verb("align-products", "", "products of operands padded to 16 bytes"),
    find=misaligned_products,
    change=align_products,
    offer=Offer.ALWAYS,
)
NO_RECOMPUTATION: Final = Fix(
    "no_recomputation",
    "store activations rather than compute them twice",
    effort=Effort.FLAG,
    answers=("activations_recomputed",),
    costs="the memory of the activations",
    memory="again",
    change=drop_extra_work,
    switch=True,
    edit=True,
)
STREAMS: Final = Fix(
    "streams",
    "run independent work on several streams",
    effort=Effort.LINES,
    answers=("stream_serialization", "one_stream"),
    verb=Verb("overlap-streams", "", "streams that take turns at once"),
    find=serial_streams,
    change=overlap_streams,
)
BATCH_SMALL_CALLS: Final = Fix(
    "batch_small_calls",
    "make one batched call of many small ones",
    effort=Effort.REWRITE,
    answers=("small_grids",),
    costs="right only where no call needs what another computes, which a capture does not show",
    verb=Verb("spread-grids", "", "kernels with too few blocks over all multiprocessors"),
    find=small_grids,
    change=spread_grids,
    beside=batch_calls_beside,
    offer=Offer.ALWAYS,
)
DROP_DEBUGGING: Final = Fix(
    "drop_debugging",
    "switch debugging off (anomaly mode, CUDA_LAUNCH_BLOCKING)",
    elsewhere="switch debugging off (CUDA_LAUNCH_BLOCKING)",
    effort=Effort.FLAG,
    answers=("debugging_left_on", "launches_blocking"),
    change=drop_extra_work,
    same_kernels=True,
    switch=True,
    edit=True,
)
LIST_OPERATIONS: Final = Fix(
    "list_operations",
    "use operations on lists of tensors (torch._foreach_*) in place of a loop",
    effort=Effort.LINES,
    answers=("parameters_one_by_one",),
    costs="memory of the results, where not in place",
    change=merge_loops,
    of_pytorch=True,
    edit=True,
)
BUILD_ONCE: Final = Fix(
    "build_once",
    "build masks and positions once and hand them to the layers",
    effort=Effort.LINES,
    answers=("constants_rebuilt",),
    costs="the memory of what is kept",
    memory="unknown",
    change=drop_extra_work,
    edit=True,
)
EVALUATE_RARELY: Final = Fix(
    "evaluate_rarely",
    "evaluate every N steps",
    effort=Effort.LINES,
    answers=("forward_repeated",),
    change=drop_extra_work,
    edit=True,
)
FEWER_THREADS: Final = Fix(
    "fewer_threads",
    "run no more threads than there are processors (OMP_NUM_THREADS)",
    effort=Effort.FLAG,
    answers=("threads_oversubscribed",),
    change=ScaleHost,
    switch=True,
)
OWN_GPU: Final = Fix(
    "own_gpu",
    "give the program a GPU of its own",
    effort=Effort.FLAG,
    answers=("device_shared",),
)
