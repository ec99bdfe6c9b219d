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
    r'(?m)^"?ID"?,"?Process ID"?,"?Process Name"?', "the header of a CSV page of kernels",
    ('"ID","Process ID","Process Name","Host Name"', "ID,Process ID,Process Name"), '"ID","Name"', "ncu --csv",
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
    r'"traceEvents"\s*:\s*\[|^\s*\[',
    "where the list of events begins",
    ('"traceEvents": [', " ["),
    '"events": [',
)
BETWEEN_EVENTS: Final = Pattern(r"^[\s,]*$", "what stands between two events", (", ", ""), "}")
RANK_IN_BRACKETS: Final = Pattern(
    r"\s*[\[(<]([^\])>]*\d[^\])>]*)[\])>]",
    "a rank in brackets before the process",
    ("[TP01-DP00] 4242", "(rank 1) python"),
    "python [main]",
)
RANK_NAMED: Final = Pattern(
    r"(?i)(?<![a-z])rank[\W_]{0,3}(\d+)",
    "a rank by its number",
    ("rank1/4242", "Rank 1: 4242"),
    "frank1",
)
LAST_NUMBER: Final = Pattern(r"(\d+)\D*$", "the number that a text ends in", ("python 4242", "4242 (main)"), "python")
DIGITS: Final = Pattern(r"(\d+)", "a number", "rank12", "rank")
