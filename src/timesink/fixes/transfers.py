"""What moves data and waits for it: loaders, copies, exchanges, reads of results, memory."""

from typing import Final

from timesink.fixes import BenchForm, Fix, Offer, everything
from timesink.fixes.replays import waits_that_may_go
from timesink.measures.idle.input_pipeline import input_pipeline, loading_windows
from timesink.model.trace import Trace
from timesink.recipes import Effort, Words, gradients, loading, parallel, reads, training
from timesink.whatif import Target
from timesink.whatif.changes.host import FeedLoader, KeepMemory, MergeUnits, RemoveSyncs
from timesink.whatif.changes.transfers import DropExchanges, PinCopies


def loader(trace: Trace) -> tuple[Target, ...]:
    """The host time in which batches are loaded, as far as anything shows that."""
    windows = {
        key: part for rank in input_pipeline(trace).by_rank for key, part in loading_windows(trace, rank).items()
    }
    return (Target("windows", windows=windows),) if windows else ()


LOADER_WORKERS: Final = Fix(
    loading.LOADER_WORKERS,
    elsewhere="load batches in other processes",
    answers=("input_pipeline",),
    find=loader,
    change=FeedLoader,
    same_kernels=True,
    bench=BenchForm(call="fetch"),
)
PIN_MEMORY: Final = Fix(
    loading.PIN_MEMORY,
    elsewhere="copy from pinned memory, asynchronously",
    answers=("pageable_copies",),
    find=everything,
    change=PinCopies,
    offer=Offer.UNASKED,
    same_kernels=True,
    bench=BenchForm(figure="fixes.pinned_time"),
)
PREFETCH: Final = Fix(
    Words(
        "prefetch",
        "copy the next batch on a stream of its own while this one computes",
        Effort.LINES,
        "the memory of one more batch",
    ),
    elsewhere="copy what the next step needs on a stream of its own while this one computes",
    answers=("copies_exposed/prefetch",),
    memory="sent",
    same_kernels=True,
)
COPY_BEHIND: Final = Fix(
    Words(
        "copy_behind",
        "copy to the CPU with non_blocking=True into pinned memory on a stream of its own; read it a step later",
        Effort.LINES,
        "values that the CPU has a step later, and what holds them until then",
    ),
    elsewhere="copy to the CPU on a stream of its own into pinned memory; read it a step later",
    answers=("copies_exposed/copy_behind",),
    same_kernels=True,
)
PREFETCH_PAGES: Final = Fix(
    Words("prefetch_pages", "move unified memory before it is touched: cudaMemPrefetchAsync", Effort.LINES),
    answers=("copies_exposed/prefetch_pages",),
    same_kernels=True,
)
KEEP_ON_DEVICE: Final = Fix(
    Words(
        "keep_on_device",
        "keep data on the GPU from one kernel to the next, not copied to the CPU and back",
        Effort.LINES,
        "right only where the CPU hands the data on as it is, which a capture does not show",
    ),
    answers=("copies_exposed/keep_on_device",),
    same_kernels=True,
)
NO_SYNC: Final = Fix(
    gradients.NO_SYNC,
    elsewhere="exchange gradients once a step",
    answers=("exchange_repeated",),
    change=DropExchanges.of,
    same_kernels=True,
)
BUCKETS: Final = Fix(
    parallel.BUCKETS,
    elsewhere="exchange in larger units",
    answers=("communication_small", "units_small"),
    memory="unknown",
    change=MergeUnits.of,
    same_kernels=True,
)
REMOVE_SYNC: Final = Fix(
    reads.REMOVE_SYNC,
    answers=("host_sync", "collective_awaited", "launch_bound/remove_sync"),
    find=waits_that_may_go,
    change=RemoveSyncs,
    offer=Offer.ALWAYS,
    same_kernels=True,
)
KEEP_MEMORY: Final = Fix(
    training.KEEP_MEMORY,
    answers=("allocator",),
    change=KeepMemory,
    same_kernels=True,
)
ONE_PROCESS_PER_GPU: Final = Fix(
    Words(
        "one_process_per_gpu",
        "use DistributedDataParallel, one process per GPU",
        Effort.LINES,
        "gradients that are exchanged in each step, not in its price",
    ),
    answers=("launch_bound/one_process_per_gpu", "communication_exposed/one_process_per_gpu"),
    of_pytorch=True,
)
