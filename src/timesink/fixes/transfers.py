"""What moves data and waits for it: loaders, copies, exchanges, reads of results, memory."""

from typing import Final

from timesink.fixes import Effort, Fix, Offer, Verb, everything, take_direction, take_workers
from timesink.fixes.replays import waits_that_may_go
from timesink.model.trace import Trace
from timesink.whatif import Target
from timesink.whatif.changes.host import LOADER, FeedLoader, KeepMemory, MergeUnits, RemoveSyncs
from timesink.whatif.changes.transfers import DropExchanges, PinCopies


def loader(_: Trace) -> tuple[Target, ...]:
    """Whatever loads batches."""
    return (LOADER,)


LOADER_WORKERS: Final = Fix(
    "loader_workers",
    "load batches in more worker processes (num_workers)",
    elsewhere="load batches in other processes",
    effort=Effort.FLAG,
    answers=("input_pipeline",),
    costs="cores of the CPU, and batches held in its memory",
    verb=Verb("feed-loader", "[range:REGEX] [workers=N]", "batches that come from workers", options=take_workers),
    find=loader,
    change=FeedLoader,
    same_kernels=True,
    switch=True,
    edit=True,
)
PIN_MEMORY: Final = Fix(
    "pin_memory",
    "copy from pinned memory with non_blocking=True",
    elsewhere="copy from pinned memory, asynchronously",
    effort=Effort.FLAG,
    answers=("pageable_copies",),
    costs="host memory that cannot be paged out",
    verb=Verb(
        "pin-copies",
        "[d2h] [TARGET]",
        "pageable copies to the GPU (or CPU) by pinned memory, overlapped",
        options=take_direction,
    ),
    find=everything,
    change=PinCopies,
    offer=Offer.UNASKED,
    same_kernels=True,
    switch=True,
    edit=True,
)
PREFETCH: Final = Fix(
    "prefetch",
    "copy the next batch on a stream of its own while this one computes",
    elsewhere="copy what the next step needs on a stream of its own while this one computes",
    effort=Effort.LINES,
    answers=("copies_exposed/prefetch",),
    costs="the memory of one more batch",
    memory="sent",
    same_kernels=True,
)
COPY_BEHIND: Final = Fix(
    "copy_behind",
    "copy to the CPU with non_blocking=True into pinned memory on a stream of its own; read it a step later",
    elsewhere="copy to the CPU on a stream of its own into pinned memory; read it a step later",
    effort=Effort.LINES,
    answers=("copies_exposed/copy_behind",),
    costs="values that the CPU has a step later, and what holds them until then",
    same_kernels=True,
)
PREFETCH_PAGES: Final = Fix(
    "prefetch_pages",
    "move unified memory before it is touched: cudaMemPrefetchAsync",
    effort=Effort.LINES,
    answers=("copies_exposed/prefetch_pages",),
    same_kernels=True,
)
KEEP_ON_DEVICE: Final = Fix(
    "keep_on_device",
    "keep data on the GPU from one kernel to the next, not copied to the CPU and back",
    effort=Effort.LINES,
    answers=("copies_exposed/keep_on_device",),
    costs="right only where the CPU hands the data on as it is, which a capture does not show",
    same_kernels=True,
)
NO_SYNC: Final = Fix(
    "no_sync",
    "exchange gradients once a step: no_sync() in the other micro-batches",
    elsewhere="exchange gradients once a step",
    effort=Effort.LINES,
    answers=("exchange_repeated",),
    change=DropExchanges.of,
    same_kernels=True,
    edit=True,
)
BUCKETS: Final = Fix(
    "buckets",
    "exchange in larger units (bucket_cap_mb, coarser wrapping)",
    elsewhere="exchange in larger units",
    effort=Effort.FLAG,
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
    effort=Effort.LINES,
    answers=("host_sync", "collective_awaited"),
    verb=Verb("remove-sync", "[op:REGEX | range: | call:]", "waits that go"),
    find=waits_that_may_go,
    change=RemoveSyncs,
    offer=Offer.ALWAYS,
    same_kernels=True,
    edit=True,
)
KEEP_MEMORY: Final = Fix(
    "keep_memory",
    "take memory once and reuse it in every step",
    effort=Effort.LINES,
    answers=("allocator",),
    change=KeepMemory,
    same_kernels=True,
    edit=True,
)
ONE_PROCESS_PER_GPU: Final = Fix(
    "one_process_per_gpu",
    "use DistributedDataParallel, one process per GPU",
    effort=Effort.LINES,
    answers=("launch_bound/one_process_per_gpu", "communication_exposed/one_process_per_gpu"),
    costs="gradients that are exchanged in each step, not in its price",
    of_pytorch=True,
)
