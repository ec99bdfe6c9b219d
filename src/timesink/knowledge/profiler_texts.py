"""How profilers write what is no name of a program: copies, versions, numbers of a locale, what was lost."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

COPY_DIRECTION: Final = Pattern(
    r"(?:Memcpy )?([HDAP])to([HDAP])\b|Copy(Host|Device)To(Host|Device)",
    "from where to where a copy goes; A is an array in device memory, P a peer",
    ("Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice"), "Memset (Device)", "CUPTI; ROCm",
)  # fmt: skip
COPY_MEMORY: Final = Pattern(
    r"\((\w+)[\w ]*(?: -> (\w+)[\w ]*)?\)", "the kinds of memory a copy reads and writes",
    "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD", "CUPTI",
)  # fmt: skip
DECIMAL_POINT: Final = Pattern(
    r"\d\.\d{1,2}$|\d\.\d{4,}$|,\d{3}\.\d", "can only be a number with a decimal point", ("12.5", "1,234.5"), "1.234",
    "ncu",
)  # fmt: skip
DECIMAL_COMMA: Final = Pattern(
    r"\d,\d{1,2}$|\d,\d{4,}$|\.\d{3},\d", "can only be a number with a decimal comma", ("12,5", "1.234,5"), "1,234",
    "ncu",
)  # fmt: skip
GROUPED_DIGITS: Final = Pattern(
    r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d{3})", "a space or an apostrophe between thousands", "1 234,5", "12 (1; 2)",
    "ncu",
)  # fmt: skip
PAGE_HEADER: Final = Pattern(
    r'(?m)^(?:"?ID"?,)?"?Process ID"?,"?Process Name"?', "the header of a CSV page of kernels",
    ('"ID","Process ID","Process Name","Host Name"', "ID,Process ID,Process Name", '"Process ID","Process Name"'),
    '"ID","Name"', "ncu --csv",
)  # fmt: skip
PROCESS_LINE: Final = Pattern(
    r"^\s*\[(\d+)\] .*@\S*\s*$", "the process whose kernels a text page shows next", "[3308] train.py@127.0.0.1",
    "==PROF== Connected to process 3308", "ncu",
)  # fmt: skip
KERNEL_LINE: Final = Pattern(
    r"^(?=.*, (?:Context \d+, Stream|Device \d+, CC) )\s*(?P<name>\S.*?)"
    r"(?: (?P<grid>\([\d, ]+\))x(?P<block>\([\d, ]+\)))?(?:, \d{4}-\S+ [\d:]+)?"
    r"(?:, Context (?P<context>\d+), Stream (?P<stream>\d+))?(?:, Device (?P<device>\d+), CC (?P<cc>[\d.]+))?"
    r"(?:, Invocations (?P<count>\d+))?\s*$", "a kernel of a text page, of 2019 with a date instead of its grid",
    ("  add(int *) (4, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0",
     "  add(int *) (4, 1, 1)x(256, 1, 1), Device 0, CC 9.0, Invocations 3",
     "  add, 2020-May-05 12:00:00, Context 1, Stream 7"), "    Duration      us      2.31", "ncu",
)  # fmt: skip
RULE_LINE: Final = Pattern(
    r"^\s*(INF|OPT|WRN|ERR)\s+(\S.*)$", "a message of ncu's own rules in a text page",
    "    OPT   Est. Local Speedup: 99.71%", "    Section: Occupancy", "ncu",
)  # fmt: skip
SPEEDUP_LINE: Final = Pattern(
    r"Est\.( Local)? Speedup: ([\d.,]+)%", "what a rule of ncu hopes to gain", "Est. Local Speedup: 99.71%",
    "Speed Of Light", "ncu",
)  # fmt: skip
TEXT_TABLE: Final = Pattern(
    r"Metric Name +Metric Unit +(?:Metric Value|Minimum)", "the head of a table in a text page",
    ("Metric Name             Metric Unit Metric Value", "Metric Name Metric Unit Minimum Maximum"),
    '"Metric Name","Metric Unit"', "ncu",
)  # fmt: skip
NAMED_METRIC: Final = Pattern(
    r"\((\w+__[\w.]+)\)$", "a metric's name after its label", "DRAM Frequency (dram__cycles_elapsed.avg)",
    "DRAM Frequency", "ncu --print-metric-name label-name",
)  # fmt: skip
OTHER_PAGE: Final = Pattern(
    r'(?m)^(?P<source>(?:"?#"?,)?"?Address"?,"?Source"?)|^"?(?:Display Driver Version|device__attribute_\w+|'
    r'Nsight Compute (?:Target|Version))"?,', "a line of the source or the session page",
    ('"#","Address","Source"', '"Display Driver Version","580.1"'), '"ID","Process ID"', "ncu --csv",
)  # fmt: skip
WITH_INSTANCES: Final = Pattern(
    r"(?s)^(\S+) [({].*[)}]$", "a value, then its instances", "12.5 (1; 2; 3)", "12.5",
    "ncu --csv --print-metric-instances",
)  # fmt: skip
RULE_MARKUP: Final = Pattern(
    r"@(\w+):([^@:]*):([^@]*)@", "a reference inside a rule's message", "see @url:the guide:https://docs.nvidia.com@",
    "a@b", "ncu",
)  # fmt: skip
CACHE_CONTROL: Final = Pattern(
    r"--cache-control[ =](\w+)", "what was done to caches before each pass", "ncu --cache-control none -o x",
    "--cache", "ncu",
)  # fmt: skip
EVENT_TABLE: Final = Pattern(
    r"^(?!ENUM_|TARGET_INFO_|META_)[A-Za-z0-9_]*(?:_EVENTS?|_API|_METRICS?|_WORKLOAD|_TRACE|_JIT)$",
    "a table of events; descriptions of the machine and enumerations are none", ("NVTX_EVENTS", "SYSCALL_TRACE"),
    ("ENUM_CUDA_MEMCPY_OPER", "TARGET_INFO_GPU_METRICS"), "nsys export",
)  # fmt: skip
KINETO_COUNTER: Final = Pattern(
    r'"ph": ?"C",\s*"cat": ?"[^"]{0,60}",\s*"name": ?"(?P<name>[\w.]{1,200})",\s*"pid": ?"GPU (?P<device>\d{1,4}) '
    r'Counters",\s*"tid": ?-?\d{1,20},\s*"ts": ?(?P<ts>-?\d{1,18}(?:\.\d{1,9})?),\s*"args": ?\{\s*"": ?'
    r'(?P<value>-?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?)\s*\}',
    "a sample of a hardware counter", '"ph": "C", "cat": "hardware_counters", "name": "sm__cycles_active.avg", '
    '"pid": "GPU 0 Counters", "tid": 0, "ts": 12.5, "args": {"": 71.5}',
    '"ph": "C", "cat": "gpu_memory", "name": "Total", "pid": 0, "tid": 0, "ts": 1, "args": {"bytes": 5}', "Kineto",
)  # fmt: skip
API_VERSION: Final = Pattern(
    r"_v\d{4,5}$", "the version of a runtime call", "cudaMalloc_v3020", ("cuMemAlloc_v2", "cudaMalloc"), "nsys"
)
LOST_EVENTS: Final = Pattern(
    r"(?i)not all .{1,60} events might have been collected|dropped|\blost\b|overflow|incomplete|buffer.{0,40}\bfull\b"
    r"|exceed|truncat|missing events",
    "a message that events are missing", ("Not all CUDA events might have been collected.", "2 buffers were dropped"),
    "Number of CUDA events collected: 12.", "nsys",
)  # fmt: skip
MPI_RANK: Final = Pattern(
    r"MPI Rank (\d{1,6})", "the name of a rank's main thread", "MPI Rank 3", "MPI", "nsys --trace=mpi"
)
RANK_VARIABLE: Final = Pattern(
    r"(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID)=\"?(\d{1,6})\"?", "launchers tell a process its rank",
    ("RANK=3", 'SLURM_PROCID="12"'), "WORLD_SIZE=8", "torchrun, Open MPI, MPICH, Slurm",
)  # fmt: skip
RANK_IN_FILE_NAME: Final = Pattern(
    r"(?i)(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", "a file name that states the rank",
    ("trace_rank3.json", "worker-12.json"), "trace.json",
)  # fmt: skip
STAGE_BOUNDARY: Final = Pattern(
    r"^t([A-Za-z]\w*?)([01])$", "a column with the begin or end of a stage", ("tLoad0", "tLoad1"), "step",
    "logs of pipelines",
)  # fmt: skip
STAGE_RUN: Final = 2
"""So many items are timed one after another, where a log times some: a period begins where the item before ended."""
KINETO_EVENTS: Final = {
    "CUDA API calls": Pattern(
        r'"cat": ?"cuda_(?:runtime|driver)"', "category of a call", '"cat": "cuda_runtime"', '"cat": "kernel"', "Kineto"
    ),
    "kernels": Pattern(
        r'"cat": ?"kernel"', "the category of a kernel", '"cat":"kernel"', '"cat": "gpu_memcpy"', "Kineto"
    ),
    "operators": Pattern(
        r'"cat": ?"cpu_op"', "the category of an operator", '"cat": "cpu_op"', '"cat": "ac2g"', "Kineto"
    ),
    "launches of CUDA graphs": Pattern(
        r'"name": ?"(?:cuda|hip)GraphLaunch', "a call that launches a graph", '"name": "cudaGraphLaunch"',
        '"name": "cudaGraphInstantiate"', "Kineto",
    ),
}  # fmt: skip
"""How events are spelled, for counts without parsing."""
KINETO_STEP: Final = Pattern(
    r'"ProfilerStep#(\d+)"', "the range of a step", '"name": "ProfilerStep#3"', '"ProfilerStep"', "torch.profiler"
)
MEMORY_TIMELINE_HEAD: Final = Pattern(
    r"^\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]",
    "the first row: time, action, bytes, category", "[[-1, 1, 512, 0], [", ("[[1, 9, 512, 0]", "[1, 1, 512, 0]"),
    "export_memory_timeline, .raw.json",
)  # fmt: skip
MEMORY_TIMELINE_ROWS: Final = Pattern(
    r"[\s\d,\[\]-]*", "rows of whole numbers", "[[-1, 1, 512, 0]]", (), "export_memory_timeline, .raw.json"
)
TOOL_CHATTER: Final = Pattern(
    r"\[\d+/\d+\]|Generat|==PROF==|Collecting data|Capture range|.*\.(nsys-rep|qdstrm)$",
    "what the tool says in the end, after the program's own last words",
    ("[1/8] [====50%", "Generating '/tmp/x.qdstrm'", "==PROF== Disconnected"), "RuntimeError: no", "nsys, ncu",
)  # fmt: skip
TOOL_OPTION: Final = Pattern(
    r"(?<![\w-])(--?[a-zA-Z][\w-]*)", "an option in a help text", ("  -t, --trace=", "--set arg"), "pre-2024 tools",
    "nsys, ncu",
)  # fmt: skip
EMITTED_OPERATOR: Final = Pattern(
    r"^(.*?), (?:seq|op_id) = \d+", "an operator as an NVTX range: its name stands first",
    ("aten::mm, seq = 12, op_id = 7", "aten::empty, op_id = 3, sizes = [[], []]"), "forward, step 3",
    "torch.autograd.profiler.emit_nvtx",
)  # fmt: skip
EMITTED_SEQUENCE: Final = Pattern(
    r", seq = (\d+)", "its sequence number", "MmBackward0, seq = 12, op_id = 7", "aten::empty, op_id = 3",
    "torch.autograd.profiler.emit_nvtx",
)  # fmt: skip
EMITTED_SHAPES: Final = Pattern(
    r", sizes = (\[.*?\])(?:, input_op_ids|$)", "the sizes of its inputs",
    "aten::mm, op_id = 7, sizes = [[64, 512], [512, 8]], input_op_ids = [(0,-1), (0,-1)]", "aten::mm, op_id = 7",
    "torch.autograd.profiler.emit_nvtx",
)  # fmt: skip


# Files of several ranks in one, as servers and scripts merge them: where an event names its process, and its rank.
PROCESS_OF_EVENT: Final = Pattern(
    r'"pid"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)',
    "the process of an event in JSON, a number or words",
    ('"pid": 4242', '"pid": "[TP01-DP00] 4242"'),
    '"tid": 4242',
)
EVENTS_BEGIN: Final = Pattern(
    r'"traceEvents"\s*:\s*\[|^\s*\[', "where the list of events begins", ('"traceEvents": [', " ["), '"events": ['
)
BETWEEN_EVENTS: Final = Pattern(r"^[\s,]*$", "what stands between two events", (", ", ""), "}")
RANK_IN_BRACKETS: Final = Pattern(
    r"\s*[\[(<]([^\])>]*\d[^\])>]*)[\])>]",
    "a rank in brackets before the process",
    ("[TP01-DP00] 4242", "(rank 1) python"),
    "python [main]",
)
RANK_NAMED: Final = Pattern(
    r"(?i)(?<![a-z])rank[\W_]{0,3}(\d+)", "a rank by its number", ("rank1/4242", "Rank 1: 4242"), "frank1"
)
LAST_NUMBER: Final = Pattern(r"(\d+)\D*$", "the number that a text ends in", ("python 4242", "4242 (main)"), "python")
DIGITS: Final = Pattern(r"(\d+)", "a number", "rank12", "rank")


# What ncu's rules say in words, on reports and details pages.
EXCESS_SECTORS: Final = Pattern(
    r"uncoalesced global accesses resulting in a total of (\S+) excessive sectors \(\d+% of the total (\S+) ",
    "sectors beyond need, and all of them",
    "This kernel has uncoalesced global accesses resulting in a total of 946176 excessive sectors (88% of the total "
    "1081344 sectors).", "uncoalesced shared accesses", "UncoalescedGlobalAccess",
)  # fmt: skip
EXCESS_PASSES: Final = Pattern(
    r"uncoalesced shared accesses resulting in a total of (\S+) excessive wavefronts \(\d+% of the total "
    r"(\S+) ",
    "passes of shared memory beyond need, and all of them",
    "uncoalesced shared accesses resulting in a total of 262144 excessive wavefronts (1% of the total 25766822 "
    "wavefronts)",
    "uncoalesced global accesses", "UncoalescedSharedAccess",
)  # fmt: skip
USED_BYTES: Final = Pattern(
    r"pattern for (?P<space>global|local) (?P<op>loads|stores) (?:from|to) (?:L1TEX|L2|DRAM) .{0,60}only "
    r"(?P<bytes>[\d.]+) of the 32",
    "bytes used of each sector",
    "The memory access pattern for global loads from L1TEX might not be optimal. On average, only 4.0 of the 32 bytes",
    "The memory access pattern for shared loads might not be optimal.", "MemoryCacheAccessPattern",
)  # fmt: skip
CONFLICTS: Final = Pattern(
    r"pattern for shared (?:loads|stores) .{0,160}results in (\S+) bank conflicts", "conflicts of loads or stores",
    "The memory access pattern for shared loads might not be optimal and causes on average a 16.0 - way bank conflict "
    "across all 4325376 shared load requests.This results in 64880640 bank conflicts, which represent 93.75%",
    "uncoalesced shared accesses", "SharedMemoryConflicts",
)  # fmt: skip
STALLED: Final = Pattern(
    r"each warp of this \w+ spends ([\d.]+) cycles being stalled", "cycles of a warp between two instructions",
    "On average, each warp of this workload spends 54.9 cycles being stalled waiting for",
    "Check the Warp Stall Sampling", "CPIStall",
)  # fmt: skip
STALL_WORDS: Final = {
    "long_scoreboard": Pattern(
        r"dependency on a L1TEX", "a load", "scoreboard dependency on a L1TEX (local", "on a MIO"
    ),
    "short_scoreboard": Pattern(
        r"dependency on an? MIO", "shared memory or a special function", "dependency on a MIO (memory", "on a L1TEX"
    ),
    "mio_throttle": Pattern(
        r"waiting for the MIO .{0,40}queue", "a full queue",
        "waiting for the MIO (memory input/output) instruction queue",
        "dependency on a MIO",
    ),
    "lg_throttle": Pattern(
        r"queue for local and global", "a full queue", "the L1 instruction queue for local and global (LG)", "MIO queue"
    ),
    "tex_throttle": Pattern(
        r"queue for texture", "a full queue", "the L1 instruction queue for texture operations", "queue for local"
    ),
    "math_pipe_throttle": Pattern(
        r"execution pipe to be", "a full pipe", "the execution pipe to be available", "a pipe"
    ),
    "barrier": Pattern(
        r"at a CTA barrier", "other warps", "waiting for sibling warps at a CTA barrier", "on a memory barrier"
    ),
    "wait": Pattern(r"fixed latency", "the instruction before", "on a fixed latency execution dependency", "a latency"),
    "no_instruction": Pattern(
        r"instruction cache miss", "the code", "waiting on an instruction cache miss", "constant cache miss"
    ),
    "drain": Pattern(r"after EXIT", "stores at the end", "stalled after EXIT waiting for", "at EXIT"),
    "not_selected": Pattern(
        r"micro scheduler to select", "another warp was chosen",
        "waiting for the micro scheduler to select the warp", "chosen",
    ),
    "membar": Pattern(r"on a memory barrier", "a fence", "waiting on a memory barrier", "at a CTA barrier"),
    "imc_miss": Pattern(
        r"immediate constant", "constants", "waiting for an immediate constant cache (IMC) miss", "cache"
    ),
    "branch_resolving": Pattern(r"branch target", "a branch", "waiting for a branch target to be computed", "branches"),
    "dispatch_stall": Pattern(r"dispatch stall", "the dispatcher", "waiting on a dispatch stall", "a stall"),
    "sleeping": Pattern(r"sleeping|sleep interval", "its own pause", "while being in the sleeping state", "a pause"),
}  # fmt: skip
"""What a warp is stalled for, by how the rule says it."""
HOT_SLICES: Final = Pattern(
    r"L2 Slices have a much higher", "some slices of L2 work longer than others",
    "One or more L2 Slices have a much higher number of active cycles", "L2 Slices have a much lower number",
    "WorkloadImbalance",
)  # fmt: skip
BUSIEST_PIPE: Final = Pattern(
    r"(?P<pipe>\w+) is the highest-utilized pipeline \((?P<percent>[\d.]+)%\)"
    r"(?:.{0,330}dominated by its (?P<part>\w+))?",
    "the busiest arithmetic pipe, and of several in one which",
    ("FMA is the highest-utilized pipeline (74.3%) based on", "Shared is the highest-utilized pipeline (9.5%)"),
    "All compute pipelines are under-utilized.", "HighPipeUtilization",
)  # fmt: skip
RULED_COLUMN: Final = Pattern(
    r"-{3,}", "a column of a table, in the line below its head", ("-----  ---------", "----------"), "--", "text pages"
)
