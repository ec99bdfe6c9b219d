"""What need not be done, or not so: layouts, sizes, small calls, work that is done again, settings left on."""

from collections.abc import Iterator
from typing import Final

from timesink.fixes import BenchForm, Fix, Offer
from timesink.fixes.replays import (
    align_products,
    batch_calls_beside,
    batch_units,
    drop_extra_work,
    keep_a_part,
    keep_layout,
    keep_layout_beside,
    merge_loops,
    overlap_streams,
    record_nothing,
    spread_grids,
)
from timesink.knowledge.kernels import PRODUCTS
from timesink.measures.kernels.conversions import layout_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.model.trace import Trace
from timesink.recipes import Effort, Words, forwards, gradients, lists, model, partly, pieces, reads, training
from timesink.whatif import Selection
from timesink.whatif.changes.host import ScaleHost


def serial_streams(trace: Trace) -> Iterator[Selection]:
    """Kernels of streams that take turns."""
    return (streams.kernels for streams in serialized_streams(trace))


CHANNELS_LAST: Final = Fix(
    model.CHANNELS_LAST,
    elsewhere="keep one memory layout",
    answers=("layout_conversion",),
    find=layout_kernels,
    change=keep_layout,
    beside=keep_layout_beside,
    offer=Offer.ALWAYS,
    bench=BenchForm("channels_last", ("convolution", "norm", "pooling")),
)
PADDING: Final = Fix(
    Words("padding", "pad sizes to multiples of 8", Effort.LINES, "the padding's share of work and memory"),
    answers=("shape_alignment",),
    find=misaligned_products,
    change=align_products,
    offer=Offer.ALWAYS,
    bench=BenchForm("padded", PRODUCTS),
)
NO_RECOMPUTATION: Final = Fix(
    model.NO_RECOMPUTATION,
    answers=("activations_recomputed",),
    memory="again",
    change=drop_extra_work,
)
STREAMS: Final = Fix(
    Words("overlap_streams", "run independent work on several streams", Effort.LINES),
    answers=("stream_serialization", "one_stream"),
    find=serial_streams,
    change=overlap_streams,
)
BATCH_SMALL_CALLS: Final = Fix(
    Words(
        "batch_small_calls",
        "make one batched call of many small ones",
        Effort.REWRITE,
        "right only where no call needs what another computes, which a capture does not show",
    ),
    answers=("small_grids",),
    find=small_grids,
    change=spread_grids,
    beside=batch_calls_beside,
    offer=Offer.ALWAYS,
)
DROP_DEBUGGING: Final = Fix(
    training.DROP_DEBUGGING,
    elsewhere="switch debugging off (CUDA_LAUNCH_BLOCKING)",
    answers=("debugging_left_on", "launches_blocking"),
    change=drop_extra_work,
    same_kernels=True,
)
LIST_OPERATIONS: Final = Fix(
    lists.LIST_OPERATIONS,
    answers=("parameters_one_by_one",),
    change=merge_loops,
    of_pytorch=True,
)
BATCH_UNITS: Final = Fix(
    pieces.BATCH_UNITS,
    answers=("one_at_a_time",),
    memory="unknown",
    change=batch_units,
)
BUILD_ONCE: Final = Fix(
    forwards.BUILD_ONCE,
    answers=("constants_rebuilt",),
    memory="unknown",
    change=drop_extra_work,
)
EVALUATE_RARELY: Final = Fix(
    reads.EVALUATE_RARELY,
    answers=("forward_repeated",),
    change=drop_extra_work,
)
FEWER_THREADS: Final = Fix(
    training.FEWER_THREADS,
    answers=("threads_oversubscribed",),
    change=ScaleHost,
)
USE_A_PART: Final = Fix(partly.USE_A_PART, elsewhere="compute only the part that is used", change=keep_a_part)
NO_RECORDING: Final = Fix(
    Words("no_recording", "run inference under torch.inference_mode()", Effort.LINES),
    answers=("work_unused/no_recording",),
    change=record_nothing,
    of_pytorch=True,
)
NO_GRADIENTS: Final = Fix(
    gradients.NO_GRADIENTS,
    answers=("work_unused/no_gradients",),
    change=drop_extra_work,
    of_pytorch=True,
)
OWN_GPU: Final = Fix(
    Words("own_gpu", "give the program a GPU of its own", Effort.FLAG),
    answers=("device_shared",),
)
