"""How profilers write what is no name of a program: copies, versions, ranks, what was lost. Of ncu: `ncu_texts`."""

from typing import Final

from timesink.knowledge import Pattern

STAGE_RUN: Final = 2
"""So many items are timed one after another, where a log times some: a period begins where the item before ended."""
# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
NAMED_ERROR: Final = Pattern(
    r"^(?:\[rank\d+\]: *)?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::|$)",
    "the line that names the error which ended a program (Python, torchrun)",
    ("ValueError: lost", "torch.OutOfMemoryError: CUDA out of memory", "[rank3]: KeyError: 'x'", "KeyboardInterrupt"),
    ("Errors were ignored", "  File x.py, line 3", "raise ValueError(x)"),
)
COPY_DIRECTION: Final = Pattern(
    r"(?:Memcpy )?([HDAP])to([HDAP])\b|Copy(Host|Device)To(Host|Device)",
    "from where to where a copy goes; A is an array in device memory, P a peer (CUPTI; ROCm)",
    ("Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice"), "Memset (Device)",
)
COPY_MEMORY: Final = Pattern(
    r"\((\w+)[\w ]*(?: -> (\w+)[\w ]*)?\)", "the kinds of memory a copy reads and writes (CUPTI)",
    "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD",
)
EVENT_TABLE: Final = Pattern(
    "^(?!ENUM_|TARGET_INFO_|META_)[A-Za-z0-9_]*(?:_EVENTS?|_API|_METRICS?|_WORKLOAD|_TRACE|_JIT)$",
    "a table of events; descriptions of the machine and enumerations are none (nsys export)",
    ("NVTX_EVENTS", "SYSCALL_TRACE"), ("ENUM_CUDA_MEMCPY_OPER", "TARGET_INFO_GPU_METRICS"),
)
KINETO_COUNTER: Final = Pattern(
    r'"ph": ?"C",\s*"cat": ?"[^"]{0,60}",\s*"name": ?"(?P<name>[\w.]{1,200})",\s*"pid": ?"GPU '
    r'(?P<device>\d{1,4}) Counters",\s*"tid": ?-?\d{1,20},\s*"ts": ?'
    r'(?P<ts>-?\d{1,18}(?:\.\d{1,9})?),\s*"args": ?\{\s*"": ?'
    r"(?P<value>-?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?)\s*\}",
    "a sample of a hardware counter (Kineto)",
    '"ph": "C", "cat": "hardware_counters", "name": "sm__cycles_active.avg", "pid": "GPU 0 Counters", "tid": 0, "ts": 12.5, "args": {"": 71.5}',  # noqa: E501
    '"ph": "C", "cat": "gpu_memory", "name": "Total", "pid": 0, "tid": 0, "ts": 1, "args": {"bytes": 5}',
)
API_VERSION: Final = Pattern(
    r"_v\d{4,5}$", "the version of a runtime call (nsys)",
    "cudaMalloc_v3020", ("cuMemAlloc_v2", "cudaMalloc"),
)
LOST_GPU_EVENTS: Final = Pattern(
    "(?i)not all (?:cuda|hip|gpu) events might have been collected", "a message that work of the GPU is missing (nsys)",
    "Not all CUDA events might have been collected.", "Not all NVTX events might have been collected.",
)
LOST_EVENTS: Final = Pattern(
    r"(?i)not all .{1,60} events might have been collected|dropped|\blost\b|overflow|incomplete"
    r"|buffer.{0,40}\bfull\b|exceed|truncat|missing events",
    "a message that events are missing (nsys)",
    ("Not all CUDA events might have been collected.", "2 buffers were dropped"),
    "Number of CUDA events collected: 12.",
)
MPI_RANK: Final = Pattern(
    r"MPI Rank (\d{1,6})", "the name of a rank's main thread (nsys --trace=mpi)",
    "MPI Rank 3", "MPI",
)
RANK_VARIABLE: Final = Pattern(
    r'(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID)=\"?(\d{1,6})\"?',
    "launchers tell a process its rank (torchrun, Open MPI, MPICH, Slurm)",
    ("RANK=3", 'SLURM_PROCID="12"'), "WORLD_SIZE=8",
)
RANK_IN_FILE_NAME: Final = Pattern(
    r"(?i)(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", "a file name that states the rank",
    ("trace_rank3.json", "worker-12.json"), "trace.json",
)
NODE_IN_FILE_NAME: Final = Pattern(
    r"(?i)(?:node|host)[-_. ]?(\d{1,6})(?!\d)", "a file name that states the node whose ranks the file holds",
    ("train_node1.sqlite", "host-12.nsys-rep"), "nodes.sqlite",
)
STAGE_BOUNDARY: Final = Pattern(
    r"^t([A-Za-z]\w*?)([01])$", "a column with the begin or end of a stage (logs of pipelines)",
    ("tLoad0", "tLoad1"), "step",
)
# How events are spelled, for counts without parsing.
KINETO_EVENTS: Final = {
    "CUDA API calls": Pattern(
        '"cat": ?"cuda_(?:runtime|driver)"', "category of a call (Kineto)",
        '"cat": "cuda_runtime"', '"cat": "kernel"',
    ),
    "kernels": Pattern(
        '"cat": ?"kernel"', "the category of a kernel (Kineto)",
        '"cat":"kernel"', '"cat": "gpu_memcpy"',
    ),
    "operators": Pattern(
        '"cat": ?"cpu_op"', "the category of an operator (Kineto)",
        '"cat": "cpu_op"', '"cat": "ac2g"',
    ),
    "launches of CUDA graphs": Pattern(
        '"name": ?"(?:cuda|hip)GraphLaunch', "a call that launches a graph (Kineto)",
        '"name": "cudaGraphLaunch"', '"name": "cudaGraphInstantiate"',
    ),
}
KINETO_STEP: Final = Pattern(
    r'"ProfilerStep#(\d+)"', "the range of a step (torch.profiler)",
    '"name": "ProfilerStep#3"', '"ProfilerStep"',
)
MEMORY_TIMELINE_HEAD: Final = Pattern(
    r"^\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]",
    "the first row: time, action, bytes, category (export_memory_timeline, .raw.json)",
    "[[-1, 1, 512, 0], [", ("[[1, 9, 512, 0]", "[1, 1, 512, 0]"),
)
MEMORY_TIMELINE_ROWS: Final = Pattern(
    r"[\s\d,\[\]-]*", "rows of whole numbers (export_memory_timeline, .raw.json)",
    "[[-1, 1, 512, 0]]", (),
)
TOOL_CHATTER: Final = Pattern(
    r"\[\d+/\d+\]|Generat|==PROF==|Collecting data|Capture range|.*\.(nsys-rep|qdstrm)$",
    "what the tool says in the end, after the program's own last words (nsys, ncu)",
    ("[1/8] [====50%", "Generating '/tmp/x.qdstrm'", "==PROF== Disconnected"), "RuntimeError: no",
)
TOOL_OPTION: Final = Pattern(
    r"(?<![\w-])(--?[a-zA-Z][\w-]*)", "an option in a help text (nsys, ncu)",
    ("  -t, --trace=", "--set arg"), "pre-2024 tools",
)
EMITTED_OPERATOR: Final = Pattern(
    r"^(.*?), (?:seq|op_id) = \d+",
    "an operator as an NVTX range: its name stands first (torch.autograd.profiler.emit_nvtx)",
    ("aten::mm, seq = 12, op_id = 7", "aten::empty, op_id = 3, sizes = [[], []]"), "forward, step 3",
)
EMITTED_SEQUENCE: Final = Pattern(
    r", seq = (\d+)", "its sequence number (torch.autograd.profiler.emit_nvtx)",
    "MmBackward0, seq = 12, op_id = 7", "aten::empty, op_id = 3",
)
EMITTED_SHAPES: Final = Pattern(
    r", sizes = (\[.*?\])(?:, input_op_ids|$)", "the sizes of its inputs (torch.autograd.profiler.emit_nvtx)",
    "aten::mm, op_id = 7, sizes = [[64, 512], [512, 8]], input_op_ids = [(0,-1), (0,-1)]", "aten::mm, op_id = 7",
)
# Files of several ranks in one, as servers and scripts merge them: where an event names its process, and its rank.
PROCESS_OF_EVENT: Final = Pattern(
    r'"pid"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)', "the process of an event in JSON, a number or words",
    ('"pid": 4242', '"pid": "[TP01-DP00] 4242"'), '"tid": 4242',
)
EVENTS_BEGIN: Final = Pattern(
    r'"traceEvents"\s*:\s*\[|^\s*\[', "where the list of events begins",
    ('"traceEvents": [', " ["), '"events": [',
)
BETWEEN_EVENTS: Final = Pattern(r"^[\s,]*$", "what stands between two events", (", ", ""), "}")
RANK_IN_BRACKETS: Final = Pattern(
    r"\s*[\[(<]([^\])>]*\d[^\])>]*)[\])>]", "a rank in brackets before the process",
    ("[TP01-DP00] 4242", "(rank 1) python"), "python [main]",
)
RANK_NAMED: Final = Pattern(
    r"(?i)(?<![a-z])rank[\W_]{0,3}(\d+)", "a rank by its number",
    ("rank1/4242", "Rank 1: 4242"), "frank1",
)
LAST_NUMBER: Final = Pattern(r"(\d+)\D*$", "the number that a text ends in", ("python 4242", "4242 (main)"), "python")
DIGITS: Final = Pattern(r"(\d+)", "a number", "rank12", "rank")
RULED_COLUMN: Final = Pattern(
    "-{3,}", "a column of a table, in the line below its head (text pages)",
    ("-----  ---------", "----------"), "--",
)
ANALYSIS: Final = Pattern(
    r"(?m)^ *\*\* .* \((?P<rule>cuda_(?:memcpy|memset|api)_a?sync|gpu_gaps|gpu_time_util|\w+_mem_ops)(?::.*)?\):?\s*$",
    "the head of a rule of `nsys analyze`",
    (" ** CUDA Async Memcpy with Pageable Memory (cuda_memcpy_async):", " ** GPU Gaps (gpu_gaps):"),
    " ** CUDA API Summary (cuda_api_sum):",
)
ANALYSED: Final = Pattern(
    r"(?m)^Processing \[(?P<report>[^\]\n]+)\] with \[", "the export that `nsys analyze` looked at",
    "Processing [report1.sqlite] with [/opt/nsight/rules/gpu_gaps.py]...", "Processing events",
)
PROGRESS: Final = Pattern(
    r"(?m)^Generating '.*\.qdstrm'|^\[\d+/\d+\] (?:\[[=\d]|Executing ')",
    "how far nsys is, which it prints before tables",
    ("Generating '/tmp/nsys-report-1.qdstrm'", "[3/8] Executing 'nvtx_sum' stats report", "[1/8] [==20%  ] a.nsys-rep"),
    ("[1/8] compiling", "Generating report"),
)
SUMS_TABLE: Final = Pattern(
    r'(?m)^[\s{|]*"?(?:Time ?\(%\)"?(?:[ ,|]+|:.*\n\s*)"?Total Time'
    r'|Total \((?:[KMG]i?)?B\)"?(?:[ ,|]+|:.*\n\s*)"?(?:Count|Operations)'
    r'|(?:NVTX )?Range"?(?:[ ,|]+|:.*\n\s*)"?Style|Start \(ns\)"?(?:[ ,|]+|:.*\n\s*)"?(?:Duration|End) \(ns\)'
    r'|PID"?(?:[ ,|]+|:.*\n\s*)"?TID)',
    "the first columns of a table, as CSV, JSON, in a frame or over rules (nsys stats)",
    ("Time (%),Total Time (ns),Instances,Avg (ns),Name",
     " Time(%)  Total Time (ns)  Num Calls    Average   Minimum  Maximum   StdDev           Name",
     "| Time (%) | Total Time (ns) | Instances |", "Total (MB),Count,Avg (MB)", "Start (ns),Duration (ns),CorrId"),
    "Time (%) of the step",
)
SUMS_COLUMN: Final = Pattern(
    r"^([A-Z]\w*(?: [A-Z]\w*)*) ?(?:\((%|[num]?s|[KMG]?i?B)\))?$",
    "a column of a table of sums: what it is and its unit (nsys stats)",
    ("Total Time (ns)", "Time(%)", "Name"), "nvjet_sm90_tst",
)
CUDA_CALL: Final = Pattern(
    "^(?:cu|cuda|hip)[A-Z]", "a call into the CUDA or HIP runtime or driver, by its name (nsys stats)",
    ("cudaLaunchKernel", "cuLaunchKernelEx"), "pthread_cond_wait",
)
_NOTHING, _WINDOW = "nothing to type", "nothing to type for steps; --whole records all, --delay and --duration a time"
_SUMS = "timesink show, ranges and calls of it: the tables, once captured"
SPELLED_HERE: Final = {
    "nsys": {
        "-t": "--trace", "-s": "--cpu-samples", "--sample": "--cpu-samples", "--stats": _SUMS, "--export": _NOTHING,
        "-c": _WINDOW, "--capture-range": _WINDOW, "--capture-range-end": _WINDOW, "-y": "--delay", "-d": "--duration",
        "--gpu-metrics-device": "--gpu-metrics", "--gpu-metrics-devices": "--gpu-metrics",
        "--cuda-memory-usage": "--memory", "--cuda-graph-trace": f"{_NOTHING}: node",
        "--python-sampling": "--cpu-samples", "--python-backtrace": "--cpu-samples", "--pytorch": "--auto-ranges",
    },
    "ncu": {
        "--target-processes": f"{_NOTHING}: always all", "-k": "--kernels", "--kernel-name": "--kernels",
        "-s": "--launch-skip", "-c": "--launch-count", "--export": "--output", "--replay-mode": "--replay",
        "--clock-control": "--clocks", "--csv": "timesink kernels CAPTURE -f csv, once captured",
        "--page": "timesink kernels CAPTURE, once captured", "--import-source": _NOTHING,
    },
    "torch": {
        "--wait": "--settle", "--warmup": "--warm-up", "--active": "--steps", "--record-shapes": _NOTHING,
        "--with-stack": "--stacks", "--profile-memory": "--memory",
    },
}
"""Of each profiler its own options, of torch.profiler its arguments, and what `timesink capture` has for them."""
