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
