"""How `timesink capture --redact` tells what may stay of a text: small numbers, words of `redaction/words.txt`, files.

`kept_texts` lists the keys, tables and columns that stay.
"""

import re
from collections.abc import Iterable
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
CHUNK: Final = Pattern(
    "(?a)\u27e6\\d{1,9}\u27e7|[\u27e6\u27e7]|[^\\s\"'`,;()\\[\\]{}<>|=\u27e6\u27e7]+",
    "a placeholder, one of its marks, or what stands between spaces, brackets and quotes",
    ("train.py", "aten::add", "\u27e612\u27e7"), "()",
)
SPELLED: Final = Pattern(
    r"[^\x00-\x7f\u27e6\u27e7]|\\|%[0-9A-Fa-f]{2}|&#|@|://"
    r"|(?<![0-9A-Za-z_])(?:[0-9A-Fa-f]{1,4}[:-]{1,2}){2,}[0-9A-Fa-f]{1,4}(?![0-9A-Za-z_])"
    r"|(?<![0-9A-Za-z_])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![0-9A-Za-z_])"
    r"|(?<![0-9.])\d{1,3}(?:\.\d{1,3}){3}(?![0-9.])",
    "other than plain letters, or an address",
    ("\\u006a", "%4A", "ann@box", "https://x", "02:42:ac:11:00:02", "fe80::1:2"), ("a/b", "12 %", "c10::cuda"),
)
BYTES: Final = Pattern(
    r"(?i)(?<![0-9a-z])(?:0?x)?[0-9a-f]{2}(?:[^0-9a-z\n]{1,4}(?:0?x)?[0-9a-f]{2}){3,}(?![0-9a-z])",
    "bytes in a row, in hexadecimal where there is a letter",
    ("=6B=61=7A=6F", "6b 61 7a 6f", "0x6b, 0x61, 0x7a, 0x6f", "{6b}{61}{7a}{6f}"),
    ("be an ad of", "6b 61 7a", "f16 f32 f16 f32"),
)
ADDRESS: Final = Pattern(
    r"(?<![\w.])(?=[\w:]{0,40}\w:\w)(?:[0-9A-Fa-f]{1,4}:{1,2}){1,8}[0-9A-Fa-f]{1,4}(?!\w)"
    r"|(?<![0-9.])\d{1,3}(?:\.\d{1,3}){3}(?![0-9.])",
    "an address of the internet in a kernel's name: C++ has two colons, and no dots between numbers",
    ("f<fe80::1:2>", "fe80::1:2: f", "fused_10.1.2.3_0"), ("at::native::f", "c10::add::dec", "foo.constprop.0"),
)
HEXADECIMAL: Final = Pattern(
    r"(?i)(?:^|_|[g-z])(?!\d{0,5}(?:b?f\d{1,2})+(?![0-9a-f]))(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,}(?:_|$)",
    "letters and digits that spell a digest and no types",
    ("ad5ff67", "kernel_a1fc9e7_0", "git9c2417ab", "rev1a2b3c4"),
    ("f16f16", "bf16f32", "s1688bf16", "add2d", "decoded", "123456", "softmax1"),
)
ABSOLUTE_PATH: Final = Pattern(
    r"^(?:-[ILWB])?(?:/|~|\.\./|[A-Za-z]:)(?=.*[A-Za-z])[^:]*(?:/|$)",
    "a folder or file by its whole path",
    ("/home/ann/x/train.py", "~ann/x", "../../a/b"), ("train.py", "a/b", "aten::add/backward"),
)
WORD: Final = Pattern(r"(?a)\u27e6\d+\u27e7|\w+", "a placeholder or a word", ("train_step", "\u27e612\u27e7"), "->")
NUMBERS: Final = Pattern(
    "(?a)\u27e6\\d+\u27e7|ProfilerStep#\\d{1,7}(?!\\w)|(?<!\\w)[+(]{0,2}\\d+(?:[ ().,:/+-]{1,3}\\d+)*(?!\\w)",
    "a placeholder, or numbers in a row",
    ("078-05-1120", "4111 1111 1111 1111", "12.5"), "conv2d",
)
SMALL: Final = Pattern(
    r"^(?=(?:\D*\d){1,6}\D*$)\D*\d{1,4}(?:\D+\d{1,4})*$|^\d{1,3}(?:,\d{3}){1,3}(?:\.\d{1,4})?$|^ProfilerStep",
    "few digits, or an amount in groups", ("12.5", "1/2/3", "1,234,567.5"),
    ("90417", "078-05-1120", "4111 1111"),
)
LIST_OF_NUMBERS: Final = Pattern(
    r"^-?\d{1,10}(?:, ?-?\d{1,10}){0,9}$", "sizes, as of a tensor or a block", ("128, 1, 1", "4096"), "4111 1111",
)
LIST_OF_SMALL: Final = Pattern(r"^\d{1,4}(?:, \d{1,4}){2,}$", "arguments of a template", "128, 5, 5, 3", "1, 2")
DIGITS: Final = Pattern(r"\d+", "digits in a row", "128", "x")
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
    r"^(?:(?:CUB|THRUST|ROCPRIM)_\d{6}(?:_SM)?(?:_\d{3,4}){0,20}_NS|\d{1,6}(?:u?l{1,2}|[uf]))$",
    "a version's namespace, or a number with its type", ("CUB_200600_500_520_NS", "2048l", "4ul"), "CUB_NS",
)
PLACE: Final = Pattern(
    r"^\d{1,5}$|^\d{1,2}\.\d$", "the number of a launch or a stream, or a compute capability",
    ("7", "12345", "9.0"), ("232007", "4.95"),
)
BLOCK: Final = Pattern(
    r"^\(?\d{1,10}(?:, ?\d{1,5}){2}\)?$", "a grid or a block, as Nsight Compute prints it",
    "(128, 1, 1)", ("128", "232007"),
)
GROUP: Final = Pattern("[0-9A-Za-z]+", "letters and digits in a row", ("9C73", "a"), "-")
CODED: Final = Pattern(
    r"(?i)^(?!(?:b?f|tf|fp|u?int)\d+$)(?=[0-9]*[a-z])(?=[a-z]*[0-9])[0-9a-z]{4,}$",
    "letters and digits mixed, that are no type", ("9C73", "MS0L", "a1b2"), ("bf16", "int64", "H20", "1024", "name"),
)
GLUED: Final = Pattern(
    r"(?<=[a-z]{2})(?<!Policy)\d{4,}", "more digits behind letters than software writes", "name7964",
    ("step_1200", "cudaMalloc_v3020"),
)
CELL: Final = Pattern(
    r"^-?(?:\d{1,3}(?:,\d{3}){0,5}|\d{0,12})(?:\.\d{1,6})?(?:e[+-]?\d{1,3})?%?$",
    "a number as Nsight Compute prints it",
    ("1,024.50", "98.7", "3.2e+09"), ("4111 1111", "078-05-1120", "4111111111111111"),
)
LIST_OF_WORDS: Final = Pattern(
    "(?<!\\w)[A-Za-z]{2,16}(?: [A-Za-z]{2,16}){7,}(?!\\w)", "words in a row, without a stop",
    "add address action area army array asset balance", "the GPU waits",
)
_BINDING_WORDS = """
the a an of to in is are was were be by for with than and or not no from on at as it its this that these which if
when while because can cannot may must has have had does do did only more less but into per between
"""
BINDING_WORDS: Final = frozenset(_BINDING_WORDS.split())
"""Words that bind the others of a sentence."""
_SUFFIXES = """
py cu cpp cuh h so json log txt
"""
SUFFIXES: Final = frozenset(_SUFFIXES.split())
"""Of files."""
SIZES: Final = Pattern(
    r"(?<!\d)\d{1,4}(?:x\d{1,4})+(?![\dA-Za-z])",
    "a size in several dimensions, as of a kernel's tile (cuBLAS, cuDNN, CUTLASS)",
    ("tilesize64x64x64", "warpgroupsize1x1x1", "128x128"), ("0x1f", "a1x2b3"),
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
    r"(?as)^(?!.*[A-Za-z]-[A-Za-z])[\w:<>(),*&\s\[\]{}#~'.+!=|$/?;^-]*$",
    "how compilers write the name of a kernel or function",
    ("void at::native::f<128, 4>(int)", "ampere_sgemm_64x64_nt", "nvjet_sm90_tst_256x128"),
    ("ann-smith@box", 'say "x"'),
)
METRIC: Final = Pattern(
    r"^(?:(?:(?:breakdown|group|pmsampling):)?"
    r"(?:device|sm|smsp|l1tex|lts|launch|nvlink|dram|dramc|gpu|profiler|sass|derived|gpc|numa|pcie|idc|lrc|fbpa|gcc"
    r"|mcc|gr|memory(?:_[a-z0-9]+)*|c2clink|nvlrx|nvltx|inst_executed|thread_inst_executed(?:_true)?|tpc|regs|source"
    r"|hub|ctc|cbu|ltc|pm|idle|vidmem|syslts|sys|fe|crop|zrop|raster|pda|vpc|mpc|pes|tga|swx|vaf)__[A-Za-z0-9_]+"
    r"(?:\.[a-z0-9_]+)*,?)+$",
    "metrics of Nsight Compute, by name",
    ("sm__cycles_elapsed.avg", "breakdown:gpu__time.avg,sm__cycles.sum"), ("forward", "__init__"),
)
PRIVATE_KEY: Final = Pattern(
    "(?i)tokeni|licen[cs]e[_-]?key|key[_-]?id$|^host$|host_?name|^user(?:[_-]?(?:name|id))?$|^uid$"
    "|^author|created[_-]?by$|^licen[cs]e$|^ip(?:v[46])?(?:[_-]?addr(?:ess)?)?$|^login|logname|args[_-]list$|mail"
    "|_addr|^addr_|home|^[cp]wd$|working_?dir|environ|^cmd|command|^argv?s?$|serial|uuid|bus_?id|account|acct|owner"
    "|metadata$|^tw_|^mast_|job_?(?:id|name|nr|no|number|array)|^job$|slurm|phone|^tel$|^fax$|ssn|social|passport"
    "|birth|iban|card_?n|badge|employee|ticket|customer|patient|tenant|subscription|(?:^|_)mac$"
    "|(?:^|_)sha(?:1|256)?$|(?:^|_)commit(?:_?(?:id|sha|hash))?$|revision|(?:^|[_-])ur[il]$"
    "|private|session_?id|^pin$|imei|asset",
    "a key whose text names a person, a machine or a command; of secrets `untrusted.masking` knows the keys",
    ("hostName", "cmd", "user_metadata", "userId", "PWD", "ipAddress"),
    ("tokens", "name", "addr", "committed", "job_count", "pass", "key", "address"),
)
OWNERS_KEY: Final = Pattern(
    r"(?i)(?:^|[\W_]|(?<=[a-z]))(?:node|machine|box|server|cluster|rack|site|zone|project|team|session|card|address"
    r"|org(?:ani[sz]ation)?|company|department|lab|workspace|repo(?:sitory)?|branch|experiment|person|people|student"
    r"|client)s?(?:[_-]?(?:id|name|no|number|label|tag|title)s?)?$",
    "a key whose text, of software's words or not, names what belongs to somebody; its numbers count",
    ("node", "teamName", "cluster_id", "Project"), ("nodes_total", "name", "Process Group Name"),
)
SHORT_NUMBER: Final = Pattern(
    r"^(?:\d{0,5}|0x[0-9a-fA-F]+)$", "a count, or a place in memory",
    ("3", "0x7f03"), "softmax",
)
QUANTITY_KEY: Final = Pattern(
    r"(?i)(?:^|[_ ]|(?<=[a-z]))(?:ns|us|ms|secs?|seconds|nanoseconds|bytes|[kmgt]i?b|sizes?|counts?|total|totals"
    r"|values?|low|high|min|max|mean|median|p\d\d|sum|starts?|ends?|begin|dur|durations?|times?|timestamps?|ts|addr"
    r"|address|ptr|pointers?|offsets?|from|to|periods?|cycles|[kmg]?hz|[kmgt]?flops?|ops|elements|numel|length"
    r"|memory|mem|capacity|limits?|widths?|heights?|lines?|seq|sequence|steps?|versions?|per_?sm|per_?block|rate"
    r"|bandwidth|dims?|strides?|shapes?|nelems|allocated|reserved|index|frames?|pool_id)$",
    "a key whose number is an amount, a time or a place in memory",
    ("start_ns", "totalGlobalMem", "total_size", "time_us"), ("job", "n", "phone"),
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
COLOUR: Final = Pattern(
    r"#[0-9a-f]{3,8}\b|\brgba?\([\d., ]{5,24}\)|(?<=-heat:)\d{1,3},\d{1,3},\d{1,3}|@media(?=[ (])",
    "a colour of a style, or for which screen it is",
    ("#2f74c0", "rgba(214,120,20,.22)", "--heat:26,95,168", "@media print"), ("#section", "10,95,168"),
)
PAGE_POLICY: Final = Pattern(
    "default-src 'none'; [a-z0-9A-Z '+/=;:-]*|light dark|no-referrer|width=device-width, initial-scale=1",
    "what a page may load, by digests",
    "default-src 'none'; script-src 'sha256-abc='", "ann",
)
MARKED_NUMBER: Final = Pattern(
    r'"\\u0000([^"]*)"', "a number that waits to be written in its own digits",
    '"\\u000012.50"', '"12.50"',
)
EXPORT_SETTINGS: Final = Pattern(
    r"EXPORT_(PRODUCT|SCHEMA)_\w+|EXPORT_PARAM_TIME_(NORMALIZE|SHIFT)",
    "settings that say how to read other tables (nsys export)",
    ("EXPORT_SCHEMA_VERSION", "EXPORT_PARAM_TIME_SHIFT"), "EXPORT_HOST_NAME",
)
CAPTURE_SETTINGS: Final = Pattern(
    r"CAPTURE_EVENT_TYPE|(\w+:)?CUDA_GRAPH\w*(:\w+)?|(\w+:)?COLLECT_\w+", "what nsys was asked to record (nsys export)",
    ("CAPTURE_EVENT_TYPE", "COLLECT_NVTX", "CUDA_OPTIONS:CUDA_GRAPH_TRACE"), "COMMAND_LINE",
)
DRIVER_VERSIONS: Final = Pattern(
    r"(?i)(gpu|nvidia|cuda)?_?(driver|cuda)_?\w*version\w*|GpuDriver\w*|CudaVersion\w*|NvDriverVersion",
    "versions of drivers (nsys export)",
    ("NvidiaDriverVersion", "CudaDriverVersion"), ("Hostname", "CpuName"),
)
LOG_LINE: Final = Pattern(
    r"^(?P<head>(?:\[(?:default|rank)?\d{0,6}\]:)*[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ )"
    r"(?P<where>[^\]\s]+:\d+)\] ?(?P<rest>.*)$",
    "how glog begins a line",
    "[rank0]:V0912 14:05:01.123456 1234 torch/_dynamo/output_graph.py:10] [0/0] x",
    "Traceback (most recent call last):",
)
TERMINAL_STYLE: Final = Pattern("\x1b\\[[0-9;]{0,20}m", "a colour of a terminal", "\x1b[31m", "[31m")
COMMON_METRIC: Final = Pattern(
    r"\x08[\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])"
    r"|\x08[\x80-\xff][\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])",
    "the bytes of a metric that is a number and nothing else (ncu)",
    "\x08\x01\x12\x02\x28\x07", "\x08\x01\x12\x03\x0a\x01a",
)
# fmt: on


def whole_words(names: Iterable[str]) -> str:
    """The pattern of these names where no letter or digit stands beside them; the longest first."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])"
