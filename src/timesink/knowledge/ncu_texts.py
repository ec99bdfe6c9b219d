"""How Nsight Compute writes its pages: numbers of a locale, lines of kernels and metrics, and what its rules say."""

from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
DECIMAL_POINT: Final = Pattern(
    r"\d\.\d{1,2}$|\d\.\d{4,}$|,\d{3}\.\d", "can only be a number with a decimal point (ncu)",
    ("12.5", "1,234.5"), "1.234",
)
DECIMAL_COMMA: Final = Pattern(
    r"\d,\d{1,2}$|\d,\d{4,}$|\.\d{3},\d", "can only be a number with a decimal comma (ncu)",
    ("12,5", "1.234,5"), "1,234",
)
GROUPED_DIGITS: Final = Pattern(
    r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d{3})", "a space or an apostrophe between thousands (ncu)",
    "1 234,5", "12 (1; 2)",
)
PAGE_HEADER: Final = Pattern(
    '(?m)^(?:"?ID"?,)?"?Process ID"?,"?Process Name"?', "the header of a CSV page of kernels (ncu --csv)",
    ('"ID","Process ID","Process Name","Host Name"', "ID,Process ID,Process Name", '"Process ID","Process Name"'),
    '"ID","Name"',
)
PROCESS_LINE: Final = Pattern(
    r"^\s*\[(\d+)\] .*@\S*\s*$", "the process whose kernels a text page shows next (ncu)",
    "[3308] train.py@127.0.0.1", "==PROF== Connected to process 3308",
)
KERNEL_LINE: Final = Pattern(
    r"^(?=.*, (?:Context \d+, Stream|Device \d+, CC) )\s*(?P<name>\S.*?)"
    r"(?: (?P<grid>\([\d, ]+\))x(?P<block>\([\d, ]+\)))?(?:, \d{4}-\S+ [\d:]+)?"
    r"(?:, Context (?P<context>\d+), Stream (?P<stream>\d+))?(?:, Device (?P<device>\d+), CC (?P<cc>[\d.]+))?"
    r"(?:, Invocations (?P<count>\d+))?\s*$",
    "a kernel of a text page, of 2019 with a date instead of its grid (ncu)",
    ("  add(int *) (4, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0",
     "  add(int *) (4, 1, 1)x(256, 1, 1), Device 0, CC 9.0, Invocations 3",
     "  add, 2020-May-05 12:00:00, Context 1, Stream 7"), "    Duration      us      2.31",
)
RULE_LINE: Final = Pattern(
    r"^\s*(INF|OPT|WRN|ERR)\s+(\S.*)$", "a message of ncu's own rules in a text page (ncu)",
    "    OPT   Est. Local Speedup: 99.71%", "    Section: Occupancy",
)
SPEEDUP_LINE: Final = Pattern(
    r"Est\.( Local)? Speedup: ([\d.,]+)%", "what a rule of ncu hopes to gain (ncu)",
    "Est. Local Speedup: 99.71%", "Speed Of Light",
)
QUOTED_LINE: Final = Pattern(
    r"^ {0,3}(?://+|[#>]+|\d+:)(?= |$)",
    "what stands before a line of a text page that is quoted: in a comment, a mail, a numbered listing (ncu)",
    ("//   add(int *), 2020-Oct-28 10:36:31, Context 1, Stream 7", "> Section: Occupancy",
     "18:     Memory Throughput                 %        26.47"),
    ("==PROF== Connected to process 7", "    18: indented"),
)
TEXT_TABLE: Final = Pattern(
    r"Metric Name +Metric Unit +(?:Metric Value|Minimum)|, Context \d+, Stream \d+",
    "the head of a table in a text page, or of a launch where tables have none, as before 2022 (ncu)",
    ("Metric Name             Metric Unit Metric Value", "add(int *), 2020-Oct-28 10:36:31, Context 1, Stream 7",
     "Metric Name Metric Unit Minimum Maximum"), '"Metric Name","Metric Unit"',
)
NAMED_METRIC: Final = Pattern(
    r"\((\w+__[\w.]+)\)$", "a metric's name after its label (ncu --print-metric-name label-name)",
    "DRAM Frequency (dram__cycles_elapsed.avg)", "DRAM Frequency",
)
OTHER_PAGE: Final = Pattern(
    r'(?m)^(?P<source>(?:"?#"?,)?"?Address"?,"?Source"?)'
    r'|^"?(?:Display Driver Version|device__attribute_\w+|Nsight Compute (?:Target|Version))"?,',
    "a line of the source or the session page (ncu --csv)",
    ('"#","Address","Source"', '"Display Driver Version","580.1"'), '"ID","Process ID"',
)
WITH_INSTANCES: Final = Pattern(
    r"(?s)^(\S+) [({].*[)}]$", "a value, then its instances (ncu --csv --print-metric-instances)",
    "12.5 (1; 2; 3)", "12.5",
)
RULE_MARKUP: Final = Pattern(
    r"@(\w+):([^@:]*):([^@]*)@", "a reference inside a rule's message (ncu)",
    "see @url:the guide:https://docs.nvidia.com@", "a@b",
)
CACHE_CONTROL: Final = Pattern(
    r"--cache-control[ =](\w+)", "what was done to caches before each pass (ncu)",
    "ncu --cache-control none -o x", "--cache",
)
# What ncu's rules say in words, on reports and details pages.
EXCESS_SECTORS: Final = Pattern(
    r"uncoalesced global accesses resulting in a total of (\S+) excessive sectors \(\d+% of the total (\S+) ",
    "sectors beyond need, and all of them (UncoalescedGlobalAccess)",
    "This kernel has uncoalesced global accesses resulting in a total of 946176 excessive sectors (88% of the total 1081344 sectors).",  # noqa: E501
    "uncoalesced shared accesses",
)
EXCESS_PASSES: Final = Pattern(
    r"uncoalesced shared accesses resulting in a total of (\S+) excessive wavefronts \(\d+% of the total (\S+) ",
    "passes of shared memory beyond need, and all of them (UncoalescedSharedAccess)",
    "uncoalesced shared accesses resulting in a total of 262144 excessive wavefronts (1% of the total 25766822 wavefronts)",  # noqa: E501
    "uncoalesced global accesses",
)
USED_BYTES: Final = Pattern(
    r"pattern for (?P<space>global|local) (?P<op>loads|stores) (?:from|to) (?:L1TEX|L2|DRAM) .{0,60}only "
    r"(?P<bytes>[\d.]+) of the 32",
    "bytes used of each sector (MemoryCacheAccessPattern)",
    "The memory access pattern for global loads from L1TEX might not be optimal. On average, only 4.0 of the 32 bytes",
    "The memory access pattern for shared loads might not be optimal.",
)
CONFLICTS: Final = Pattern(
    r"pattern for shared (?:loads|stores) .{0,160}results in (\S+) bank conflicts",
    "conflicts of loads or stores (SharedMemoryConflicts)",
    "The memory access pattern for shared loads might not be optimal and causes on average a 16.0 - way bank conflict across all 4325376 shared load requests.This results in 64880640 bank conflicts, which represent 93.75%",  # noqa: E501
    "uncoalesced shared accesses",
)
STALLED: Final = Pattern(
    r"each warp of this \w+ spends ([\d.]+) cycles being stalled",
    "cycles of a warp between two instructions (CPIStall)",
    "On average, each warp of this workload spends 54.9 cycles being stalled waiting for",
    "Check the Warp Stall Sampling",
)
# What a warp is stalled for, by how the rule says it.
STALL_WORDS: Final = {
    "long_scoreboard": Pattern(
        "dependency on a L1TEX", "a load",
        "scoreboard dependency on a L1TEX (local", "on a MIO",
    ),
    "short_scoreboard": Pattern(
        "dependency on an? MIO", "shared memory or a special function",
        "dependency on a MIO (memory", "on a L1TEX",
    ),
    "mio_throttle": Pattern(
        "waiting for the MIO .{0,40}queue", "a full queue",
        "waiting for the MIO (memory input/output) instruction queue", "dependency on a MIO",
    ),
    "lg_throttle": Pattern(
        "queue for local and global", "a full queue",
        "the L1 instruction queue for local and global (LG)", "MIO queue",
    ),
    "tex_throttle": Pattern(
        "queue for texture", "a full queue",
        "the L1 instruction queue for texture operations", "queue for local",
    ),
    "math_pipe_throttle": Pattern(
        "execution pipe to be", "a full pipe",
        "the execution pipe to be available", "a pipe",
    ),
    "barrier": Pattern(
        "at a CTA barrier", "other warps",
        "waiting for sibling warps at a CTA barrier", "on a memory barrier",
    ),
    "wait": Pattern("fixed latency", "the instruction before", "on a fixed latency execution dependency", "a latency"),
    "no_instruction": Pattern(
        "instruction cache miss", "the code",
        "waiting on an instruction cache miss", "constant cache miss",
    ),
    "drain": Pattern("after EXIT", "stores at the end", "stalled after EXIT waiting for", "at EXIT"),
    "not_selected": Pattern(
        "micro scheduler to select", "another warp was chosen",
        "waiting for the micro scheduler to select the warp", "chosen",
    ),
    "membar": Pattern("on a memory barrier", "a fence", "waiting on a memory barrier", "at a CTA barrier"),
    "imc_miss": Pattern(
        "immediate constant", "constants",
        "waiting for an immediate constant cache (IMC) miss", "cache",
    ),
    "branch_resolving": Pattern("branch target", "a branch", "waiting for a branch target to be computed", "branches"),
    "dispatch_stall": Pattern("dispatch stall", "the dispatcher", "waiting on a dispatch stall", "a stall"),
    "sleeping": Pattern("sleeping|sleep interval", "its own pause", "while being in the sleeping state", "a pause"),
}
FP_ROOFS: Final = Pattern(
    r"achieved (?P<fp32>\d+)% of this device's FP32 peak performance and (?P<fp64>\d+)% of its FP64",
    "shares of two roofs (SOLFPRoofline)",
    "The workload achieved 22% of this device's FP32 peak performance and 0% of its FP64 peak",
    "The workload achieved its peak",
)
HOT_SLICES: Final = Pattern(
    "L2 Slices have a much higher", "some slices of L2 work longer than others (WorkloadImbalance)",
    "One or more L2 Slices have a much higher number of active cycles", "L2 Slices have a much lower number",
)
BUSIEST_PIPE: Final = Pattern(
    r"(?P<pipe>\w+) is the highest-utilized pipeline \((?P<percent>[\d.]+)%\)"
    r"(?:.{0,330}dominated by its (?P<part>\w+))?",
    "the busiest arithmetic pipe, and of several in one which (HighPipeUtilization)",
    ("FMA is the highest-utilized pipeline (74.3%) based on", "Shared is the highest-utilized pipeline (9.5%)"),
    "All compute pipelines are under-utilized.",
)
