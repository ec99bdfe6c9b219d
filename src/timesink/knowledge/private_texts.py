"""How `timesink capture --redact` knows people, machines, folders and secrets in a profile.

A text is kept word by word: words of `redaction/words.txt` are those that software says, all others are somebody's.
`kept_texts` lists the keys, tables and columns that stay.
"""

import re
from collections.abc import Iterable
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
_KEY: Final = Pattern(
    "(?s)-----BEGIN [A-Z ]{3,30}-----.*?(?:-----END [A-Z ]{3,30}-----|$)", "a key in PEM",
    "-----BEGIN RSA PRIVATE KEY-----MII-----END RSA PRIVATE KEY-----", "-----BEGIN",
)
_TOKEN: Final = Pattern(
    r"(?<![A-Za-z0-9])(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|pk-|rk_|xox[a-z]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-"
    r"|dckr_pat_|SG\.|wandb_|nvapi-|eyJ)[A-Za-z0-9_.\-]{8,}",
    "a token, by how its issuer begins it",
    ("hf_abcdefghijkl", "xoxb-1234-abcdefgh", "eyJhbGciOiJI.eyJzdWIi.c2ln"), ("hf_hub", "task-one-two-three"),
)
_UUID: Final = Pattern(
    "(?i)(?<![0-9a-z])(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-z])", "a UUID",
    "GPU-5c9a5380-d76d-414b-3975-82bcaebbab73", "8-4-4-4-12",
)
# What is private by its shape, wherever it stands, in the order in which it is looked for. The group that matches names
# the kind of placeholder.
PRIVATE_SHAPES: Final = (
    _KEY,
    _TOKEN,
    Pattern(
        r"(?i)(?<![a-z])(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|credentials?|bearer"
        r"|authorization|basic)(?:\s*[=:]\s*(?:bearer\s+|basic\s+)?|\s+(?=\S*\d))"
        r'(?!(?:secret|name|address|folder)\d)(?P<value>\"[^\"]*\"|' r"'[^']*'|\S+)",
        "what follows a word for a secret",
        ("password: hunter", "Authorization: Bearer abc", "API_KEY='x y'"), ("secret garden", "the password is asked"),
    ),
    Pattern(
        r'(?:(?<![\w.+-])[\w.+-]{1,64}(?::[^\s/@\"' r"']{1,100})?@)?(?<![\w.])(?:[\w+-]{1,20}:)?"
        r'(?:[a-z][a-z0-9+.-]{1,15})://[^\s\"' r"'<>@]*(?:@[^\s" r'\"' r"'<>]*)?",
        "an address with its protocol",
        ("https://user:pw@a.example/x", "ssh://ann@box", "file:///srv/x", "tcp://10.0.0.1:29500"),
        ("aten::add", "a//b"),
    ),
    Pattern(
        r"[\w.+-]{2,64}@(?!\d{1,3}\b)[A-Za-z0-9][\w.-]*(?::[\w./-]+)?", "an e-mail address, or a user on a machine",
        ("ann@example.com", "git@github.com:ann/x.git", "ann@box"), ("a @ b", "matmul@2"),
    ),
    _UUID,
    Pattern(
        r"(?<![\w.])(?!127\.0\.0\.1(?!\d)|0\.0\.0\.0(?!\d))(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}"
        r"(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]*\.\d|\d)(?::\d{2,5})?",
        "an IPv4 address, with its port",
        ("10.1.2.3", "tcp 192.168.0.7:29500"), ("2025.3.1.0", "127.0.0.1", "1.2.3"),
    ),
    Pattern(
        r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,7}(?![\w:])(?<=[0-9a-f]{2})"
        r"|(?<![\w:])(?=[a-f:]*\d)(?=[0-9a-f:]{9})(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}:?){1,6}(?![\w:])",
        "an IPv6 or a MAC address",
        ("fe80:0:1::12ab", "02:42:ac:11:00:02", "fd00::1:2f"), ("c10::BFloat16", "at::native"),
    ),
    Pattern(
        r"(?i)(?<![0-9a-z])(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![0-9a-z])", "a PCI address",
        ("0000:3b:00.0", "3b:00.0"), "12:30",
    ),
    Pattern(
        r"(?<!\d)(?:19|20)\d\d-[01]\d-[0-3]\d(?:[T_ ][0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
        r"(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)",
        "a date",
        ("2026-11-20T10:44:07", "2026-11-20"), "2026.1.1",
    ),
    Pattern(
        r"(?i)(?<![\w.-])(?:[a-z0-9][a-z0-9-]{0,62}\.)+"
        r"(?:com|org|net|edu|gov|io|ai|de|uk|fr|ch|eu|cn|jp|in|us|internal|intranet|local|lan|corp|cluster|cloud|hpc"
        r"|example|home)(?![\w.(-])",
        "a machine by its domain",
        ("gpu7.example.com", "box-1.cluster.local"), ("torch.cuda", "model.h"),
    ),
    Pattern(
        r"(?i)(?<![a-z0-9])(?:node|host|server|login|compute|worker-node|gpu-node|machine)[-_]?\d{2,}(?![a-z0-9])",
        "a machine by its number",
        ("node07", "gpu-node-12"), ("node 7", "node"),
    ),
    Pattern(
        r"(?i)(?<![0-9a-z.])(?=[0-9a-f]*\d)(?!0x)[0-9a-f]{16,}(?![0-9a-z])", "a digest or a key",
        "0123456789abcdef0123", "0x7f03be8de000",
    ),
    Pattern(r"(?<![\w.])\d{9,}(?![\w.]*\d)", "a serial number", "1654722012345", ("12345", "1.123456789012")),
    Pattern(
        r"(?i)(?<![0-9a-z])(?:[0-9a-f]{2}([-:_. ]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![0-9a-z])"
        r"|(?<![0-9a-z.])(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?![0-9a-z.])",
        "a MAC address in any spelling",
        ("BD-08-16-aa-bb-01", "::02:42:ac:11:00:02", "0242.ac11.0002"), "12-34",
    ),
)
# Numbers that stand for somebody or something of somebody's, in free text; kernels' names may hold such.
IDENTIFYING_NUMBERS: Final = (
    Pattern(
        r"(?i)(?<![0-9a-z])(?=[a-f]*\d)(?=\d*[a-f])(?!0x)[0-9a-f]{7,}(?![0-9a-z])", "a digest, short as of a commit",
        ("a1b2c3d", "12ab345"), ("1234567", "deadbee", "0x7f03be8"),
    ),
    Pattern(r"(?<![\w.-])\d{3}[- ]\d{2}[- ]\d{4}(?![\w-])", "a social security number", "078-05-1120", "1-2-3"),
    Pattern(
        r"(?<![\w.])(?:\+\d{1,3}|\(\d{2,5}\)|0\d{1,4}(?=[ ./-]))(?:[ ./-]?\(?\d{1,5}\)?){2,6}(?![\w])"
        r"|(?<![\w.-])(?:\d{3}[ .-])?\d{3}[.-]\d{4}(?![\w.-])",
        "a phone number",
        ("+1 (555) 010-4477", "+49-30-901820", "030 901820 11", "555-0104"), ("(128, 1, 1)", "1.5", "2025.3.1"),
    ),
    Pattern(
        r"(?<![\w.])\d{4}(?:[ -]\d{4}){2,4}(?!\w)"
        r"|(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        "the number of a card or an account",
        ("4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"), "1024",
    ),
    Pattern(
        r"(?<!\d)(?:[0-3]?\d([/.-])[0-3]?\d\1(?:19|20)\d\d|(?:19|20)\d\d([/.])[01]?\d\2[0-3]?\d)(?![\d.])", "a date",
        ("11/20/2026", "20.11.2026", "2026/11/20"), ("2026.1.1.0", "1/2"),
    ),
    Pattern(
        r"(?i)(?<![a-z])(?:job|jobs|slurm|pbs|lsf|task|run|phone|tel|fax|ssn|serial|account|acct|employee|badge"
        r"|ticket|case|order|invoice|customer|patient|passport|tenant|uid|gid|imei|vin|asset|po|pin)"
        r"(?:[\s_-]?(?:array|id|no|nr|num|number))?[\s:=#._-]{1,3}(?P<value>\d{4,})(?![\w]*\.\d)",
        "the number of a job, an account or a person",
        ("job 44712", "SLURM_JOB_ID=4471", "serial: 0042", "ticket #1234"), ("job 7", "step 44712"),
    ),
    Pattern(
        r"(?i)(?<![\w.,-])\d{6,}(?![\w.])(?!\s?(?:[kmgt]?i?(?:b|bytes?)|[nmu]?s(?:ec(?:ond)?s?)?|[kmg]?hz|%"
        r"|[kmgt]?flops?|elements?|items?|events?|rows?|cycles?|instructions?|threads?|blocks?|tokens?|samples?"
        r"|kernels?)\b)",
        "a long number that nothing says to be an amount",
        ("1654722", "seen 471120 ."), ("1654722 bytes", "12345", "0.1234567"),
    ),
)
# Shapes that a redacted file cannot hold by chance; redaction fails where it does.
CERTAIN_SHAPES: Final = (
    _KEY,
    _TOKEN,
    Pattern(
        r"[A-Za-z0-9._+-]{3,40}@[A-Za-z0-9-]{3,40}\.(?!(?:py|cu|cuh|cpp|so|json|sh|txt|log)\b)[a-z]{2,6}"
        r"(?![A-Za-z0-9_.(<-])",
        "an e-mail address",
        "ann@example.com", ("a@b", "python@train.py"),
    ),
    _UUID,
    Pattern(
        r"(?<![\w.])(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}(?![\w.])",
        "a private IPv4 address",
        "10.1.2.3", "1.2.3.4",
    ),
    Pattern(
        r"(?<![\w.])/(?:home|Users|fsx|root|users)/[A-Za-z][\w.-]{2,}/", "a folder of a user",
        "/home/ann/x", "/homes",
    ),
)
RANDOM_TEXT: Final = Pattern(
    "[A-Za-z0-9+/=]{16,}", "letters and digits in a row, which may be random",
    "dGhpcyBpcyBhIHNlY3JldA", "short",
)
CHANGES_OF_KIND: Final = Pattern(
    "(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])", "where another kind of character begins",
    "a1", "ab",
)
SIZES: Final = Pattern(
    r"(?<!\d)\d{1,4}(?:x\d{1,4})+(?![\dA-Za-z])",
    "a size in several dimensions, as of a kernel's tile (cuBLAS, cuDNN, CUTLASS)",
    ("tilesize64x64x64", "warpgroupsize1x1x1", "128x128"), ("0x1f", "a1x2b3"),
)
ABSOLUTE_PATH: Final = Pattern(
    r"(?:(?<![\w.)/>])|(?<=-[ILWB]))(?:~[\w.-]*|\.\.)?(?:/[\w.@+~%=-]+){2,}/?"
    r"|(?<![\w.)/>])~[\w.-]+(?:/[\w.@+~%=-]+)*/?|(?<![\w.)/>])/(?:home|users?|u|Users)/?"
    r"|\b[A-Za-z]:\\(?:[\w.@+~ -]+\\)*[\w.@+~-]*",
    "a folder or file by its whole path",
    ("/home/ann/x/train.py", "C:\\Users\\ann\\", "~ann/x", "../../a/b"), ("train.py", "a/b", "aten::add/backward"),
)
LIBRARY_PATH: Final = Pattern(
    r"(?:.*/)?(?P<kept>(?:(?:python3\.\d{1,2}/)?(?:site|dist)-packages|python3\.\d{1,2}|timesink/capture)/.*)",
    "a file of a library, and what is kept of its path",
    ("/home/ann/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
     "/home/ann/src/timesink/capture/agent.py"), "/home/ann/train.py",
)
WORD: Final = Pattern(
    r"(?<![\w.])\d{1,8}\.\d+(?:[eE][-+]?\d+)?(?![\w.])|0x[0-9a-fA-F]+(?!\w)|\w+", "a number or a word",
    ("12.5", "train_step", "0x7f03"), "->",
)
PIECE: Final = Pattern(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", "a part of a word",
    ("AddBackward0", "train_step"), "->",
)
SYMBOL: Final = Pattern(
    r"(?s)^(?!.*[A-Za-z]-[A-Za-z])[\w:<>(),*&\s\[\]{}#~'.+!=|$/?;^-]*$",
    "how compilers write the name of a kernel or function",
    ("void at::native::f<128, 4>(int)", "ampere_sgemm_64x64_nt", "nvjet_sm90_tst_256x128"),
    ("ann-smith@box", 'say "x"'),
)
LIBRARY_SYMBOL: Final = Pattern(
    r"^(?:void |bool |int |auto |long |const )*(?:\(anonymous namespace\)::)?"
    r"(?:at|torch|c10|c10d|std|aten|cudnn|cutlass|cub|thrust|cublas|nccl|pybind11|caffe2|triton|autograd|__gnu_cxx"
    r"|prims|inductor|cuda|nvfuser|flash|cute|cask\w*)::[\w:<>(),*&\s\[\]{}#~'.=|-]*$",
    "a function of a library that everybody has",
    ("at::detail::empty_cuda(c10::ArrayRef<long>)", "aten::add_"), "acme::model",
)
IN_BRACKETS: Final = Pattern(
    r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", "the innermost brackets of a symbol",
    ("<int>", "(long, int)", "[clone .kd]"), "a::b",
)
CALL: Final = Pattern(
    r"^(?:cuda|cu|hip|nccl|cudnn|cublas|cufft|nv)[A-Z]\w{2,60}$", "a call of CUDA, ROCm or their libraries",
    ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaMalloc_v3020"), ("launch", "customer"),
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
OPCODE: Final = Pattern(
    r"^[A-Z][A-Z0-9_]{1,14}(?:\.[A-Z0-9_]{1,10}){0,6}$", "an instruction of a GPU",
    ("FFMA", "LDG.E.128"), "ann",
)
PLACEHOLDER: Final = Pattern(
    r"^(?:name|secret|address|folder)\d{1,9}$", "what stands for something that was taken out",
    "name12", "name",
)
PRINTABLE: Final = Pattern(r"[\x20-\x7e]{20,}", "a text among other bytes", "/home/ann-smith/train.py", "short")
PRIVATE_KEY: Final = Pattern(
    "(?i)token(?!s)|secret|passw|pass(?:phrase|code)|pgpass|credential|authori[sz]ation"
    "|(?:api|access|licen[cs]e)[_-]?key|key[_-]?id$|cookie|^host$|host_?name|^user(?:[_-]?(?:name|id))?$|^uid$"
    "|^author|created[_-]?by$|^licen[cs]e$|^ip(?:v[46])?(?:[_-]?addr(?:ess)?)?$|^login|logname|args[_-]list$|mail"
    "|_addr|^addr_|home|^[cp]wd$|working_?dir|environ|^cmd|command|^argv?s?$|serial|uuid|bus_?id|account|acct|owner"
    "|metadata$|^tw_|^mast_|job_?(?:id|name|nr|no|number|array)|^job$|slurm|phone|^tel$|^fax$|ssn|social|passport"
    "|birth|iban|card_?n|badge|employee|ticket|customer|patient|tenant|subscription|(?:^|_)mac$"
    "|(?:^|_)sha(?:1|256)?$|(?:^|_)commit(?:_?(?:id|sha|hash))?$|revision|webhook|^dsn$|(?:^|[_-])ur[il]$"
    "|connection_?string|private|signature|session_?id|^pin$|imei|asset",
    "a key whose text names a person, a machine, a command or a secret",
    ("hostName", "HF_TOKEN", "cmd", "user_metadata", "x-api-key", "userId", "PWD", "ipAddress"),
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
NAMING: Final = Pattern(
    r"(?:(?<![\w.])/(?:home|users|Users|u|fsx|scratch|nfs|nvme\d*|data|work|cluster/work|global/homes/\w|net/home"
    r"|srv/home|export/home)/|\\{1,2}Users\\{1,2}|(?<![\w])~)(?P<home>[A-Za-z][\w.-]{2,31})(?![\w-])"
    r"|(?<![A-Za-z])(?:USER|LOGNAME|USERNAME|SLURM_JOB_USER|HOSTNAME|HOST|SLURMD_NODENAME|MASTER_ADDR|SSH_CLIENT"
    r"|tw_user)[=:]\s*(?P<variable>[A-Za-z0-9][\w.-]{2,63})"
    r'|\"(?:USER|LOGNAME|HOSTNAME|SLURM_JOB_USER|MASTER_ADDR'
    r'|(?i:host_?name|user_?name|user|host|login|owner|account))\"\s*:\s*\"(?P<keyed>[^\"\\]{3,64})\"'
    r"|(?<![\w.])(?P<user>[A-Za-z][\w.-]{2,31})@(?P<host>[A-Za-z][\w.-]{2,63})",
    "a text that tells the name of a user or a machine",
    ("/home/ann/train.py", "C:\\Users\\ann", "USER=ann", '"hostName": "node7"', "ann@box"),
    ("/homes", "/opt/Users.txt", "user space"),
)
ENVIRONMENT: Final = Pattern(
    r"(?s)(?:(?:^|\s)[A-Za-z_]\w*=\S*(?=\s|$).*?){4}",
    "four variables and more are the environment of a process (nsys)",
    "HOME=/root PATH=/bin LANG=C TERM=x", "lr=0.1 beta=0.9",
)
SETTING: Final = Pattern(
    r'^(?P<head>\s*(?:- |export )?[\"' r"']?(?P<key>[A-Za-z_][\w.-]*)[" r'\"' r"']?\s*[:=]\s*)(?P<value>.*)$",
    "a line of YAML, TOML or an environment file",
    ("password: x", "- name: y", "export KEY=1", 'host = "a"'), ("[section]", "- item"),
)
DRAWING: Final = Pattern(
    "^[MLHVCSQTAZmlhvcsqtazretnslcu0-9 (),.e+-]*$", "a path or a place in SVG",
    ("M0,5L10 3Z", "0 0 1000 44", "translate(3 4)"), "ann@x",
)
COLOUR: Final = Pattern(r"#[0-9a-f]{3,8}\b", "a colour of a style", "#2f74c0", "#section")
PAGE_POLICY: Final = Pattern(
    "default-src 'none'; [a-z0-9A-Z '+/=;:-]*|light dark|no-referrer|width=device-width, initial-scale=1",
    "what a page may load, by digests",
    "default-src 'none'; script-src 'sha256-abc='", "ann",
)
MARKED_NUMBER: Final = Pattern(
    r'"\\u0000([^"]*)"', "a number that waits to be written in its own digits",
    '"\\u000012.50"', '"12.50"',
)
LITERAL: Final = Pattern(r'"(?:[^"\\]|\\.)*"', "a string of JSON or of a script", ('"a"', '"a\\"b"'), "'a'")
SCALAR: Final = Pattern(
    rf"{LITERAL}|(?<=[:,\[])\s*-?\d[\d.eE+-]*", "a string or a number of JSON",
    ('"a"', '{"a": 12.5}'), "12 null",
)
DIGEST_OF_PAYLOAD: Final = Pattern(
    '"has_payload": "[0-9a-f]{1,32}"', "the digest of what follows a record of a structured log",
    '"has_payload": "8d59"', '"has_payload": "no"',
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
NSYS_PEOPLE: Final = Pattern(
    r"(?i)(\w+:)?(EXPORT_)?(HOST|USER|USER_NAME|HOST_?NAME|DEVICE_DISPLAY_NAME|NODE_?NAME)",
    "they name people (nsys export)",
    ("Hostname", "EXPORT_USER_NAME"), "CPU",
)
LOG_LINE: Final = Pattern(
    r"^(?P<head>(?:\[(?:default|rank)?\d{0,6}\]:)*[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ )"
    r"(?P<where>[^\]\s]+:\d+)\] ?(?P<rest>.*)$",
    "how glog begins a line",
    "[rank0]:V0912 14:05:01.123456 1234 torch/_dynamo/output_graph.py:10] [0/0] x",
    "Traceback (most recent call last):",
)
BESIDE_A_SYMBOL: Final = frozenset((
    "void", "bool", "int", "auto", "long", "const", "unsigned", "float", "double", "noexcept", "&", "*", "&&", "const&",
))
"""Words that stand beside the name of a function, outside of its brackets."""
_NAMING_SIGNS: Final = """
/home/ /users/ /Users/ Users\\ /u/ /fsx/ /scratch/ /nfs/ /nvme /data/ /work/ /cluster/work/ /global/homes/
/net/home/ /srv/home/ /export/home/ ~ @ USER LOGNAME HOST NODENAME MASTER_ADDR SSH_CLIENT tw_user ost_name
ostname ostName ser_name sername serName "user" "host" "login" "owner" "account"
"""
NAMING_SIGNS: Final = tuple(_NAMING_SIGNS.split())
"""One of these stands where `NAMING` matches."""
LONG_WORD: Final = Pattern(r"\S{2000,}", "what nobody writes as one word", "x" * 2000, "x" * 1999)
TERMINAL_STYLE: Final = Pattern("\x1b\\[[0-9;]{0,20}m", "a colour of a terminal", "\x1b[31m", "[31m")
COMMON_METRIC: Final = Pattern(
    r"\x08[\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])"
    r"|\x08[\x80-\xff][\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])",
    "the bytes of a metric that is a number and nothing else (ncu)",
    "\x08\x01\x12\x02\x28\x07", "\x08\x01\x12\x03\x0a\x01a",
)
# fmt: on
ESCAPED_SLASH: Final = "\\/"
"""As some writers of JSON spell it."""


def whole_words(names: Iterable[str]) -> str:
    """The pattern of these names where no letter or digit stands beside them; the longest first."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])"
