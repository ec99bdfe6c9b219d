"""Where profiles name people, machines, folders and commands: what `timesink redact` takes out."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

ABSOLUTE_PATH: Final = Pattern(
    r"(?<![\w.)/])(?:/[\w.@+~-]+){2,}/?|\b[A-Za-z]:\\(?:[\w.@+~ -]+\\)*", "a folder or file by its whole path",
    ("/home/ann/x/train.py", "C:\\Users\\ann\\"), ("train.py", "a/b", "aten::add/backward"),
)  # fmt: skip
HOME: Final = Pattern(
    r"(?:/home|/Users|\\Users)[/\\]([\w.-]+)", "the home of a user, whose name follows",
    ("/home/ann/train.py", "C:\\Users\\ann"), ("/homes", "/opt/Users.txt"),
)  # fmt: skip
FOLDER_IN_REPORT: Final = Pattern(
    r"(?<![\w.)/])/(?:home|root|Users|tmp|opt|usr|mnt|data|workspace|work|scratch|srv|var|proj|projects|gpfs|lustre|nfs"
    r"|storage|content)(?:/[\w.@+~-]+)*/(?=[\w.@+~-])",
    "the folder of a file, within bytes that are no text", "/scratch/ann/train.py", ("/gemm/x", "lib/home/x"), "ncu",
)  # fmt: skip
JSON_STRING: Final = Pattern(r'"(?:[^"\\]|\\.)*"', "a text with its quotes", ('{"a": 1}', r'"a\"b"'), "{1: 2}", "JSON")
PRIVATE_JSON_VALUE: Final = Pattern(
    r'("(?i:host_?name|host|user(?:_?name)?|username|trace_?name|cwd|working_?dir(?:ectory)?|environ(?:ment)?|'
    r'command(?:_?line)?|argv?s?|cmd|program|bus_?id|uuid|serial)"\s*:\s*)"(?:[^"\\]|\\.)*"',
    "a text whose key says that it names the machine, a person or a command",
    ('"hostName": "node7"', '"cmd" : "python t.py"'), ('"name": "gemm"', '"host": 3'), "Kineto; manifests",
)  # fmt: skip
ENVIRONMENT: Final = Pattern(
    r"(?:(?:^|\s)[A-Za-z_]\w*=\S*(?=\s|$).*?){4}", "four variables and more are the environment of a process",
    "HOME=/root PATH=/bin LANG=C TERM=x", "lr=0.1 beta=0.9", "nsys",
)  # fmt: skip
NSYS_TABLES: Final = Pattern(
    r"TARGET_INFO_(NIC|NETWORK|PROCESS|EXEC|DISK|CGROUP|CONTAINER)\w*|ANALYSIS_FILE|ANALYSIS_DETAILS|PROCESS_ENV\w*"
    r"|ProcessStreams|FILE_(ACCESS|SYSTEM)\w*|NETWORK_\w+|NIC_\w+|PROFILER_CONFIG\w*",
    "tables no diagnosis needs, of what the program printed, others' processes, disks, networks and folders",
    ("ProcessStreams", "TARGET_INFO_NIC_INFO", "FILE_ACCESS_EVENTS"), ("TARGET_INFO_GPU", "CUPTI_ACTIVITY_KIND_KERNEL"),
    "nsys export",
)  # fmt: skip
_EXPORT_SETTINGS: Final = Pattern(
    r"EXPORT_(PRODUCT|SCHEMA)_\w+|EXPORT_PARAM_TIME_(NORMALIZE|SHIFT)", "settings that say how to read other tables",
    ("EXPORT_SCHEMA_VERSION", "EXPORT_PARAM_TIME_SHIFT"), "EXPORT_HOST_NAME", "nsys export",
)  # fmt: skip
NSYS_SETTINGS_KEPT: Final = {
    "META_DATA_CAPTURE": Pattern(
        r"CAPTURE_EVENT_TYPE|(\w+:)?CUDA_GRAPH\w*(:\w+)?|(\w+:)?COLLECT_\w+", "what nsys was asked to record",
        ("CAPTURE_EVENT_TYPE", "COLLECT_NVTX", "CUDA_OPTIONS:CUDA_GRAPH_TRACE"), "COMMAND_LINE", "nsys export",
    ),
    "META_DATA_EXPORT": _EXPORT_SETTINGS,
    "EXPORT_META_DATA": _EXPORT_SETTINGS,
    "TARGET_INFO_SYSTEM_ENV": Pattern(
        r"(?i)(gpu|nvidia|cuda)?_?(driver|cuda)_?\w*version\w*|GpuDriver\w*|CudaVersion\w*", "versions of drivers",
        ("NvidiaDriverVersion", "CudaDriverVersion"), ("Hostname", "CpuName"), "nsys export",
    ),
}  # fmt: skip
"""Of tables of settings, the settings that say how to read the rest."""
NSYS_PEOPLE: Final = Pattern(
    r"(?i)(\w+:)?(EXPORT_)?(HOST|USER|USER_NAME|HOST_?NAME|DEVICE_DISPLAY_NAME|NODE_?NAME)", "they name people",
    ("Hostname", "EXPORT_USER_NAME"), "CPU", "nsys export",
)  # fmt: skip
NSYS_SERIALS: Final = Pattern(
    r"(?i)busLocation|uuid|luid|ctxswDevPath|ctrlDevPath|utcTime|localTime|hostname|vmId|serial\w*",
    "columns that tell one machine or moment from all others", ("uuid", "serialNumber"), ("smCount", "name"),
    "nsys export",
)  # fmt: skip
NSYS_TEXT_COLUMNS: Final = Pattern(
    r"nameId|endNameId|textId|jsonTextId|\w+Name|module|symbol|srcFile|description|CpuInstruction",
    "columns that refer to strings, for exports whose declarations do not say so", ("nameId", "shortName"),
    ("start", "correlationId"), "nsys export",
)  # fmt: skip
