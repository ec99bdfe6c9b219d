"""How `timesink capture --redact` tells what may stay of a text: small numbers, words of `redaction/words.txt`, files.

`kept_texts` lists the keys, tables and columns that stay.
"""

from typing import Final

from timesink.knowledge import Pattern, logs

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
CHUNK: Final = Pattern(
    "(?a)\u27e6-?\\d+\u27e7|[^\\s\"'`,;()\\[\\]{}<>|=\u27e6\u27e7]+",
    "a placeholder, or what stands between spaces, brackets and quotes",
    ("train.py", "aten::add", "\u27e612\u27e7"), "()",
)
ABSOLUTE_PATH: Final = Pattern(
    r"^(?:-[ILWB])?(?:/|~|\.\./|[A-Za-z]:)(?=.*[A-Za-z])[^:]*(?:/|$)",
    "a folder or file by its whole path",
    ("/home/ann/x/train.py", "~ann/x", "../../a/b"), ("train.py", "a/b", "aten::add/backward"),
)
WORD: Final = Pattern(r"(?a)\u27e6-?\d+\u27e7|\w+", "a placeholder or a word", ("train_step", "\u27e612\u27e7"), "->")
LENGTH: Final = Pattern(
    r"(?<![0-9STA])(?<!L[a-z])(?<!L[a-z]n)(?<!DF)[1-9]\d{0,2}(?=[A-Za-z]|__|_G)",
    "how long the next identifier is, in a mangled name",
    ("6native", "29vectorized", "14__hip"), ("Li4E", "S0_", "T0_", "E1_", "DF16b"),
)
MANGLED_CODES: Final = Pattern(
    r"^(?!.*[A-DF-Z]{6})(?!.*[a-z]{10})(?!.*\d{9})[NSTEKPROVIJXDUAMGZLFCQWHB0-9_vbcahstijlmxynofdegzwk]*$",
    "types and places of a mangled name",
    ("EENK", "iiill", "ILi4ENS0_", "EEEEviT0_T1_"), ("pvru", "JSMITH", "Li123456789E"),
)
UNNAMED: Final = Pattern(
    r"^_GLOBAL__N__[0-9a-f]{8}_\d{1,3}_(?P<file>\w+)_cu_[0-9a-f]{8}(?:_\d{1,9})?$",
    "an unnamed namespace of a file (nvcc)",
    "_GLOBAL__N__4bcb2a9b_21_DistributionNormal_cu_0c5b6e84", "_GLOBAL__N__ann",
)
OF_COMPILERS: Final = Pattern(
    r"^(?:(?:CUB|THRUST|ROCPRIM)_\d{6}(?:_SM)?(?:_\d{3,4}){0,20}_NS|__\d|\d{1,6}(?:u?l{1,2}|[uf]))$",
    "a version's namespace, or a number with its type", ("CUB_200600_500_520_NS", "2048l", "4ul"), "CUB_NS",
)
NUMBERS: Final = Pattern(
    "(?a)\u27e6-?\\d+\u27e7|ProfilerStep#\\d{1,7}(?!\\w|[^\\w\\s]\\d)|(?<!\\w)\\d+(?:[^\\w\\n\u27e6\u27e7]{1,4}\\d+)*(?!\\w)",
    "a placeholder, or numbers in a row, whatever stands between them",
    ("078-05-1120", "4111 1111 1111 1111", "12|5", "&#74;&#11"), "conv2d",
)
AMOUNT: Final = Pattern(
    r"^(?:(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,7})(?:\.\d{1,4})? ?"
    r"(?:[num]?s|[KMGT]?i?B(?:/s)?|[kMG]?[Hh]z|%|[GT]FLOPS?|steps?|events?|cycles|threads|kernels|launches)"
    r"|\d{1,13}(?:\.\d)? (?:(?:excessive )?(?:sectors|wavefronts)|(?:non-)?fused|instructions|bytes))(?!\w)",
    "one number as a program prints it, and what it is of; of what ncu's sentences count more digits",
    ("12.5 ms", "1,234,567.5ns", "50%", "15679488 excessive wavefronts"), ("4111 1111", "1745813274 step"),
)
LIST_OF_NUMBERS: Final = Pattern(
    r"^\d{1,4}(?:, ?\d{1,4}){0,9}$", "numbers of a template", ("128, 1, 1", "4096"), ("4111 1111", "12345"),
)
SHAPE: Final = Pattern(
    r"(?a)^(?:[\[(]?-?\d{1,10}(?:, -?\d{1,10}){1,7}[\])]?|\[?-?\d{0,5}\]?)$", "the sizes of a tensor or a launch",
    ("[8, 512, 32000]", "32000", "(128, 1, 1)", "-1"), ("398,259,791", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "8, x", "483824"),
)
LIST_OF_WORDS: Final = Pattern(
    r"(?<!\w)(?:(?!(?:the|an?|of|to|in|is|are|was|were|be|by|for|with|than|and|or|not?|from|on|at|as|it|its|this"
    r"|that|if|when|while|can|has|have|had|do|does|more|less|but|into|per|between)\b)[A-Za-z]{2,16} ){7,}"
    r"[A-Za-z]{2,16}(?!\w)",
    "words in a row without one that binds them: no sentence has as many, a wallet has twelve",
    "add address action area army array asset balance", "the GPU waits",
)
CELL: Final = Pattern(
    r"(?a)^-?(?:\d{1,3}(?:,\d{3}){0,5}|\d{0,12})(?:\.\d{1,17})?(?:e[+-]?\d{1,3})?%?$",
    "a number as Nsight Compute prints it",
    ("1,024.50", "98.7", "3.2e+09"), ("4111 1111", "078-05-1120", "4111111111111111"),
)
SUFFIXES: Final = ("py", "cu", "cpp", "cuh", "h", "so", "json", "log", "txt")  # of files
SIZES: Final = Pattern(
    r"(?<!\d)\d{1,4}(?:x\d{1,4})+(?![\dA-Za-fh-z]|g(?!emm))",
    "a size in several dimensions, as of a kernel's tile (cuBLAS, cuDNN, CUTLASS)",
    ("tilesize64x64x64", "warpgroupsize1x1x1", "128x128", "s64x128x16gemm"), ("0x1f", "a1x2b3"),
)
LIBRARY_PATH: Final = Pattern(
    r"(?:.*/)?(?P<kept>(?:(?:python3\.\d{1,2}/)?(?:site|dist)-packages|python3\.\d{1,2}|timesink/capture)/.*)",
    "a file of a library, and what is kept of its path",
    ("/home/ann/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
     "/home/ann/src/timesink/capture/agent.py"), "/home/ann/train.py",
)
PIECE: Final = Pattern(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", "a part of a word",
    ("AddBackward0", "train_step"), "->",
)
SYMBOL: Final = Pattern(
    r"(?as)^(?=.*[A-Za-z])(?!.*[A-Za-z]-[A-Za-z])[\w:<>(),*&\s\[\]{}#~'.+!=|$/?;^\u27e6\u27e7-]*$",
    "how compilers write the name of a kernel or function",
    ("void at::native::f<128, 4>(int)", "ampere_sgemm_64x64_nt", "nvjet_sm90_tst_256x128"),
    ("ann-smith@box", 'say "x"'),
)
ENVIRONMENT: Final = Pattern(
    r"(?s)(?:(?:^|\s)[A-Za-z_]\w*=\S*(?=\s|$).*?){4}",
    "four variables and more are the environment of a process (nsys)",
    "HOME=/root PATH=/bin LANG=C TERM=x", "lr=0.1 beta=0.9",
)
SETTING: Final = Pattern(
    r'^(?P<head>\s*(?:- |export )?[\"' r"']?(?P<key>[A-Za-z_][\w.-]*)[" r'\"'
    r"']?\s*(?:=|:(?=\s|$))\s*)(?P<value>.*)$",
    "a line of YAML, TOML or an environment file",
    ("password: x", "- name: y", "export KEY=1", 'host = "a"'), ("[section]", "- item", "- fe80::1:2"),
)
DRAWING: Final = Pattern(
    r"^(?!.*\d{7})(?:M[MLHVCSQTAZmlhvcsqtaz0-9 ,.e+-]*|0 0 [0-9. ]{1,20}|(?:-?[0-9.]{1,9},-?[0-9.]{1,9}(?: |$))+"
    r"|(?:translate|scale|rotate)\(-?[0-9.]{1,7}(?:[, ]+-?[0-9.]{1,7}){0,2}\))$",
    "a path, a window, corners or a move in SVG",
    ("M0,5L10 3Z", "0 0 1000 44", "1.5,2 3,-4", "translate(3 4)"), ("ann@x", "4111 1111 1111 1111", "a58ec27"),
)
PAGE_POLICY: Final = Pattern(
    "default-src 'none'; [a-z0-9A-Z '+/=;:-]*|light dark|no-referrer|width=device-width, initial-scale=1",
    "what a page may load, by digests",
    "default-src 'none'; script-src 'sha256-abc='", "ann",
)
LOG_LINE: Final = logs.LINE
TERMINAL_STYLE: Final = Pattern("\x1b\\[[0-9;]{0,20}m", "a colour of a terminal", "\x1b[31m", "[31m")
SETTINGS: Final = Pattern(
    r"^(?:EXPORT_(?:PRODUCT|SCHEMA)_\w+|EXPORT_PARAM_TIME_(?:NORMALIZE|SHIFT)|CAPTURE_EVENT_TYPE"
    r"|(?:\w+:)?(?:CUDA_GRAPH\w*(?::\w+)?|COLLECT_\w+)|(?:Nv|Cuda)DriverVersion)\Z",
    "settings that say how to read the rest: the schema, what was asked for, versions of drivers (nsys export)",
    ("EXPORT_SCHEMA_VERSION", "COLLECT_NVTX", "CUDA_OPTIONS:CUDA_GRAPH_TRACE", "NvDriverVersion"),
    ("EXPORT_HOST_NAME", "COMMAND_LINE", "Hostname"),
)
LETTER: Final = Pattern("^[A-Za-z]$", "a mark of one letter, such as the phase of an event", ("X", "f"), "Xi")
PROCESS: Final = Pattern(r"(?a)^\d{1,13}$", "the number of a process or a thread", ("7", "140322"), ("1.5", "²"))
FORMS: Final = {
    "shape": SHAPE, "figure": CELL, "drawing": DRAWING, "policy": PAGE_POLICY, "letter": LETTER, "process": PROCESS,
}
"""Places that take a text of one form as it is, any other word by word."""
# fmt: on
