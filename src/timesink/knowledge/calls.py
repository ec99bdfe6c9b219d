"""What calls make the host do: of CUDA to wait, pay for memory, order streams, launch; of the operating system to read
and write, sleep, wait for another thread.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final

import polars as pl

from timesink.knowledge import Pattern
from timesink.model.arrays import Int8Array
from timesink.model.names import mapped

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
# nsys appends a version (`_v3020`) or a stream mode (`_ptsz`) to names, so patterns are anchored at the front only.
DEVICE_SYNC: Final = Pattern(
    "^(?:(?:cuda|hip)DeviceSynchronize|(?:cu|hip)CtxSynchronize|cudaThreadSynchronize)", "waits for all work of a GPU",
    ("cudaDeviceSynchronize_v3020", "cuCtxSynchronize"), "cudaStreamSynchronize",
)
STREAM_SYNC: Final = Pattern(
    "^(?:(?:cuda|cu|hip)StreamSynchronize|(?:ur|pi)QueueFinish|zeCommand(?:Queue|List)(?:Host)?Synchronize"
    "|clFinish)",
    "waits for a stream",
    ("cudaStreamSynchronize_ptsz", "urQueueFinish", "zeCommandListHostSynchronize"), "cudaStreamWaitEvent",
)
EVENT_SYNC: Final = Pattern(
    "^(?:(?:cuda|cu|hip)EventSynchronize|(?:ur|pi)Events?Wait$|ze(?:Event|Fence)HostSynchronize|clWaitForEvents)",
    "waits for an event",
    ("hipEventSynchronize", "urEventWait"), ("cudaEventQuery", "urEnqueueEventsWait"),
)
POLLS: Final = Pattern(
    "^(?:cuda|cu|hip)(?:Stream|Event)Query", "asks whether work is done, and goes on at once",
    ("cuStreamQuery", "hipEventQuery"), "cudaStreamSynchronize",
)
EVENT_QUERY: Final = Pattern(
    "^(?:cuda|cu|hip)EventQuery", "asks for an event, without waiting",
    "cudaEventQuery", "cudaEventSynchronize",
)
CAPTURE_MODE: Final = Pattern(
    "^(?:cuda|cu|hip)ThreadExchangeStreamCaptureMode", "sees to it that what a thread asks disturbs no capture",
    ("cudaThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"), "cudaStreamIsCapturing",
)
STREAM_WAIT: Final = Pattern(
    "^(?:cuda|cu|hip)StreamWaitEvent", "makes a stream wait, not the CPU",
    "cudaStreamWaitEvent", "cudaStreamSynchronize",
)
CAPTURE_BEGIN: Final = Pattern(
    "^(?:cuda|cu|hip)StreamBeginCapture", "from here on work is recorded into a graph and does not run",
    ("cudaStreamBeginCapture", "hipStreamBeginCapture", "cuStreamBeginCapture_v2_ptsz"), "cudaStreamIsCapturing",
)
CAPTURE_END: Final = Pattern(
    "^(?:cuda|cu|hip)StreamEndCapture", "the graph is complete",
    ("hipStreamEndCapture", "cudaStreamEndCapture_ptsz"), "cudaGraphLaunch",
)
GRAPH_INSTANTIATION: Final = Pattern(
    "^(?:cuda|cu|hip)GraphInstantiate", "makes a CUDA graph ready to be launched",
    ("cudaGraphInstantiate", "cuGraphInstantiateWithParams", "hipGraphInstantiate"), "cudaGraphLaunch",
)
MAKES_GRAPH_READY: Final = Pattern(
    "GraphInstantiate|GraphExec", "makes a CUDA graph ready, or changes one that is",
    ("cudaGraphInstantiate", "cudaGraphExecUpdate", "cuGraphExecKernelNodeSetParams"), "cudaGraphLaunch",
)
EVENT_RECORD: Final = Pattern(
    "^(?:cuda|cu|hip)EventRecord", "records an event",
    "cudaEventRecordWithFlags", "cudaEventQuery",
)
COPY: Final = Pattern(
    r"^(?:(?:cuda|hip)Memcpy\w*Async|cuMemcpy\w*Async|(?:ur|pi)Enqueue(?:USM)?Memcpy|zeCommandListAppendMemoryCopy)",
    "issues a copy",
    ("cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2", "urEnqueueUSMMemcpy"), ("cudaMemcpy", "hipMemcpyWithStream"),
)
COPY_BLOCKING: Final = Pattern(
    "^(?:(?:cuda|hip)Memcpy|cuMemcpy)", "copies and waits, unless it is asynchronous",
    ("cudaMemcpy_v3020", "cudaMemcpyFromSymbol", "hipMemcpyWithStream"), "cudaMemset",
)
ALLOCATION: Final = Pattern(
    r"^(?:(?:cuda|hip)(?:Malloc|Host(?:Alloc|Malloc|Register))|cuMem(?:Alloc|HostAlloc|HostRegister|Create|Map)"
    r"|(?:ur|pi)(?:ext)?USM\w*Alloc|zeMemAlloc)",
    "takes memory from the driver",
    ("cudaMalloc", "cuMemCreate", "cudaHostAlloc", "urUSMDeviceAlloc"),
    ("cudaFree", "cuLibraryLoadData", "cuModuleLoadData"),
)
FREE: Final = Pattern(
    "^(?:(?:cuda|hip)(?:Free|HostUnregister|HostFree)|cuMem(?:Free|HostUnregister|Unmap|Release)"
    "|(?:ur|pi)(?:ext)?USMFree|zeMemFree)",
    "gives memory back to the driver",
    ("cudaFree", "cuMemUnmap", "cudaFreeHost"), ("cudaMalloc", "cuModuleUnload"),
)
DEVICE_MEMORY: Final = Pattern(
    r"^cuda(?:Malloc|Free)(?:_v\d+)?$", "takes GPU memory or gives it back at once",
    ("cudaMalloc", "cudaFree_v3020"), ("cudaMallocHost", "hipFree", "cudaFreeAsync"),
)
LOADS_MODULE: Final = Pattern(
    "^(?:cu|hip)ModuleLoad",
    "loads kernels that were just compiled; libraries load theirs by cuLibraryLoadData (Triton, torch.compile, XLA, "
    "NVRTC)",
    ("cuModuleLoadData", "cuModuleLoad", "hipModuleLoadDataEx"), ("cuModuleGetLoadingMode", "cuLibraryLoadData"),
)
LOADS_LIBRARY: Final = Pattern(
    "^(?:cu|cuda|hip)LibraryLoad", "loads a library of kernels, as a program does once, before the first of them runs",
    ("cuLibraryLoadData", "cudaLibraryLoadFromFile", "hipLibraryLoadData"), ("cuLibraryGetModule", "cuModuleLoadData"),
)
STREAM_ORDERED: Final = Pattern(
    "^(?:cuda|cu|hip)(?:Malloc|MemAlloc|Free|MemFree)(?:FromPool)?Async", "takes or gives memory in a stream's order",
    ("cudaMallocAsync", "cuMemFreeAsync"), "cudaMalloc",
)
PREFETCHES_PAGES: Final = Pattern(
    "^(?:cuda|cu|hip)MemPrefetch", "moves pages of managed memory before they are touched",
    ("cudaMemPrefetchAsync", "cuMemPrefetchAsync_v2", "hipMemPrefetchAsync"), "cudaMemcpyAsync",
)
LAUNCH: Final = Pattern(
    "^(cuda|hip|cu)(Launch(Kernel|Cooperative|Grid|Device|ByPtr|_|$)|ModuleLaunch|ExtLaunch|ExtModuleLaunch"
    "|Graph(s)?Launch)"
    "|^(ur|pi)Enqueue(KernelLaunch|Graph)|^zeCommandListAppendLaunch|^clEnqueueNDRange|^acl(rtLaunch|mdlExecute)",
    "launches kernels",
    ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "urEnqueueKernelLaunch", "aclrtLaunchKernel"),
    ("cudaMemcpyAsync", "zeCommandListAppendMemoryCopy", "cudaLaunchHostFunc_v10000"),
)
HOST_FUNCTION: Final = Pattern(
    "^(?:cuda|cu|hip)(?:LaunchHostFunc|StreamAddCallback)", "runs a function of the CPU in a stream's order",
    ("cudaLaunchHostFunc_v10000", "cuStreamAddCallback"), "cudaLaunchKernel",
)
KERNEL_LAUNCH: Final = Pattern(
    "^(?:cuda|cu|hip)LaunchKernel", "launches one kernel",
    ("cudaLaunchKernelExC_v11060", "cuLaunchKernel"), "cudaGraphLaunch",
)
GRAPH_LAUNCH: Final = Pattern(
    "^(cuda|cu|hip)GraphLaunch", "launches a CUDA graph",
    "cudaGraphLaunch_v10000", "cudaLaunchKernel",
)
MAKES_CONTEXT: Final = Pattern(
    r"^(cuInit|cuDevicePrimaryCtxRetain|cuCtxCreate|hipInit|hipCtxCreate|(cuda|hip)(SetDevice|InitDevice))(_v\d+)?$",
    "begins the program's use of a GPU, for which the driver makes a context",
    ("cuInit", "cuCtxCreate_v4", "cudaSetDevice"), ("cudaGetDevice", "cuCtxGetCurrent"),
)
SETTING_UP: Final = Pattern(
    r"^(cuda|hip)(Malloc(Host|Managed|Pitch|3D)?|HostMalloc|HostAlloc|HostRegister|Free|FreeHost|HostFree)(_v\d+)?$"
    r"|^cu(MemAlloc|MemHostAlloc|MemCreate|ModuleLoad|LibraryLoad|CtxCreate)|^hip(Module|Library)Load"
    r"|^cudaLibraryLoad|^cudaGraphInstantiate|^cudaStreamBeginCapture",
    "belongs to the first steps: memory, modules, graphs",
    ("cudaMalloc", "cuModuleLoadData", "cudaGraphInstantiate"), ("cudaMallocAsync", "cudaGraphLaunch"),
)
READS_OR_WRITES: Final = Pattern(
    "^_*(p?(read|write)v?(64)?|open(at)?(64)?|close|[fl]?x?stat(64|at)?|lseek(64)?|f(data)?sync|sync"
    "|sync_file_range|f(open|close|read|write|puts|gets|flush|printf|scanf)(64)?|send(to|msg|file)?(64)?"
    "|recv(from|msg)?|connect|accept4?|p?poll|p?select|epoll_p?wait|rename|unlink|ftruncate(64)?|flock|fcntl(64)?)$",
    "moves data to or from a file, a pipe or a socket, or waits until that can be done",
    ("write", "open64", "fsync", "pwrite64", "poll", "fstat64", "sendmsg"),
    ("pthread_cond_wait", "mmap", "writer", "futex"),
)
SLEEPS: Final = Pattern(
    r"^_*(u?sleep|(clock_)?nanosleep|wait(pid|id|[34])?|system|pause|sigwait\w*)$",
    "sleeps, or waits for another process",
    ("usleep", "clock_nanosleep", "waitpid", "system"), ("sem_wait", "poll"),
)
WAITS_FOR_THREAD: Final = Pattern(
    r"^_*(pthread_(cond_(timed|clock)?wait|mutex_(timed)?lock|rwlock_\w*lock|join|barrier_wait)|sem_(timed)?wait"
    r"|futex)$",
    "waits for another thread of the process",
    ("pthread_cond_wait", "sem_wait", "pthread_join"), ("pthread_cond_signal", "pthread_create", "write"),
)
WAITS: Final = Pattern(
    f"^_*(p?poll|p?select|epoll_p?wait2?|recv(from|msg)?|accept4?)$|{SLEEPS}|{WAITS_FOR_THREAD}",
    "waits for a request, another thread or process, or a timer",
    ("epoll_wait", "recv", "poll", "accept4", "usleep", "pthread_cond_wait", "sem_wait"), ("read", "write", "fsync"),
)
FILE_STATE: Final = Pattern(
    "^_*[fl]?x?stat(64|at)?$", "asks for the state of a file, as Python does of each source file of a stack it stores",
    ("stat64", "__xstat"), ("statfs", "read"),
)
# fmt: on


class CallKind(IntEnum):
    """OTHER costs the host its own duration and nothing else; so does a launch. cudaEventQuery is OTHER: it polls."""

    OTHER = 0
    DEVICE_SYNC = 1
    STREAM_SYNC = 2
    EVENT_SYNC = 3
    COPY = 4
    COPY_BLOCKING = 5
    FREE = 6
    ALLOCATE = 7
    STREAM_WAIT = 8
    EVENT_RECORD = 9


SYNCHRONISES: Final = (CallKind.DEVICE_SYNC, CallKind.STREAM_SYNC, CallKind.EVENT_SYNC)
"""Those that do nothing but wait."""
WAITS_FOR_DEVICE: Final = (*SYNCHRONISES, CallKind.COPY_BLOCKING)
"""Those that come back when work of the device is done."""
OF_MEMORY: Final = (CallKind.ALLOCATE, CallKind.FREE)
"""Those that take memory from the driver or give it back: some wait for the device, which is not what they are for."""
_PATTERNS: Final = (
    (CallKind.DEVICE_SYNC, DEVICE_SYNC),
    (CallKind.STREAM_SYNC, STREAM_SYNC),
    (CallKind.EVENT_SYNC, EVENT_SYNC),
    (CallKind.COPY, COPY),
    (CallKind.COPY_BLOCKING, COPY_BLOCKING),
    (CallKind.ALLOCATE, ALLOCATION),
    (CallKind.FREE, FREE),
    (CallKind.STREAM_WAIT, STREAM_WAIT),
    (CallKind.EVENT_RECORD, EVENT_RECORD),
)
# What CUPTI calls each call that synchronises, by the call's own name.
SYNC_KINDS: Final = (
    (STREAM_WAIT, "stream_wait_event"),
    (STREAM_SYNC, "stream"),
    (EVENT_SYNC, "event"),
    (EVENT_QUERY, "event"),
    (DEVICE_SYNC, "device"),
)


def call_kinds(names: pl.Series) -> Int8Array:
    """The `CallKind` of each name of `api_calls`."""
    kinds = mapped(names, lambda distinct: _kinds_of(tuple(distinct)), pl.Int8)
    return (kinds.fill_null(0) if kinds.null_count() else kinds).to_numpy()


@lru_cache(maxsize=16)  # several measures ask for the same calls, and all ranks of a job make them
def _kinds_of(names: tuple[str, ...]) -> pl.Series:
    name = pl.col("name")
    kind = pl.lit(int(CallKind.OTHER), pl.Int8)
    for wanted, pattern in reversed(_PATTERNS):
        kind = pl.when(name.str.contains(pattern)).then(pl.lit(int(wanted), pl.Int8)).otherwise(kind)
    kind = pl.when(name.str.contains(STREAM_ORDERED)).then(pl.lit(int(CallKind.OTHER), pl.Int8)).otherwise(kind)
    return pl.DataFrame({"name": names}, schema={"name": pl.String}).select(kind.alias("kind")).to_series()
