"""What parts of the names of metrics say: what is counted, of which part of the GPU, in what unit.

Some read how a limit on a number of a table is written: ``mean(kernels.mean_ns[name~gemm, device=0]) <= 1.05x``.
"""

from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
# By part of the GPU the names of its counters; the first that matches decides.
RESOURCES: Final = {
    "hidden": Pattern(
        "internal_activity", "a unit that NVIDIA does not name",
        "breakdown:sm__internal_activity", "sm__pipe_alu",
    ),
    "dram": Pattern(
        "^(gpu__)?(dram|fbpa)_|sectors_fill_device", "GPU memory",
        ("gpu__dram_throughput", "lts__t_sectors_fill_device"), "lts__t_sectors",
    ),
    "l2": Pattern(
        "^(lts|ltc)__|^l1tex__m_", "the L2 cache",
        ("lts__t_sectors", "l1tex__m_xbar2l1tex"), "l1tex__t_bytes",
    ),
    "tensor": Pattern(
        "^sm__pipe_(tensor|tc)|pipe_tensor|pipe_tc|mem_tensor", "tensor cores",
        "sm__pipe_tensor_op_hmma_cycles_active", "sm__pipe_alu",
    ),
    "fp64": Pattern("pipe_fp64", "the fp64 pipe", "sm__inst_executed_pipe_fp64", "sm__inst_executed_pipe_fp16"),
    "fma": Pattern(
        "pipe_(fma|fmaheavy|fmalite|fp16)", "the pipes of multiply-adds",
        "sm__inst_executed_pipe_fmaheavy", "sm__inst_executed_pipe_alu",
    ),
    "alu": Pattern(
        "pipe_alu", "the pipe of integers and logic",
        "sm__inst_executed_pipe_alu", "sm__inst_executed_pipe_fma",
    ),
    "xu": Pattern(
        "pipe_xu", "the pipe of transcendental functions",
        "sm__inst_executed_pipe_xu", "sm__inst_executed_pipe_alu",
    ),
    "control": Pattern("pipe_(uniform|cbu)", "branches and uniform work", "sm__inst_executed_pipe_cbu", "sm__pipe_alu"),
    "issue": Pattern(
        "^sm__(inst_executed|issue_active|inst_issued)$", "the schedulers",
        "sm__inst_executed", "sm__inst_executed_pipe_alu",
    ),
    "l1": Pattern(
        "^(l1tex|idc)__|pipe_(lsu|tex|adu|ipa|tma)|^sm__mio", "the L1 cache and what feeds it",
        ("l1tex__data_pipe", "sm__inst_executed_pipe_lsu"), "lts__t_sectors",
    ),
}
STALL_COUNTED: Final = Pattern(
    r"^smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$", "warps that wait for one reason, counted",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "smsp__pcsamp_warps_issue_stalled_barrier",
)
STALL_SAMPLED: Final = Pattern(
    r"^smsp__pcsamp_warps_issue_stalled_(\w+)$", "warps that wait for one reason, sampled",
    "smsp__pcsamp_warps_issue_stalled_barrier", "smsp__pcsamp_interval",
)
TENSOR_OPERATIONS: Final = Pattern(
    r"^sm__ops_path_tensor_(?:op_([a-z]+)_)?src_([a-z]+\d+)\w*?(?:_sparsity_(off|on))?\.sum$",
    "tensor operations of one kind of operands",
    "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum", "sm__pipe_tensor_op_hmma_cycles_active.sum",
)
# Counters that Nsight Systems samples, by what a person calls them. Of each it records other roll-ups too; those of
# NVLink are parts, to be added up.
SAMPLED: Final = {
    "SMs active": Pattern(
        r"^SMs Active \[Throughput %\]$|^sm__cycles_active\.avg\.pct_of_peak_sustained_elapsed$",
        "cycles in which an SM has a warp, on average (nsys --gpu-metrics-devices, Kineto)",
        ("SMs Active [Throughput %]", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"),
        "SMs Active [Cycles Active]",
    ),
    "tensor cores active": Pattern(
        r"^Tensor Active( / FP16 Active)? \[Throughput %\]$"
        r"|^sm__(inst_executed_)?pipe_tensor\w*\.avg\.pct_of_peak_sustained_elapsed$",
        "cycles in which tensor cores work (nsys --gpu-metrics-devices, Kineto)",
        ("Tensor Active [Throughput %]", "Tensor Active / FP16 Active [Throughput %]",
         "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"), "Tensor Active [Avg]",
    ),
    "DRAM read": Pattern(
        r"^DRAM Read( Bandwidth)? \[Throughput %\]$"
        r"|^dram__(bytes_read\.sum|read_throughput\.avg)\.pct_of_peak_sustained_elapsed$",
        "reads, of the peak of the GPU's memory (nsys --gpu-metrics-devices, Kineto)",
        ("DRAM Read Bandwidth [Throughput %]", "dram__read_throughput.avg.pct_of_peak_sustained_elapsed"),
        "DRAM Write Bandwidth [Throughput %]",
    ),
    "DRAM written": Pattern(
        r"^DRAM Write( Bandwidth)? \[Throughput %\]$"
        r"|^dram__(bytes_write\.sum|write_throughput\.avg)\.pct_of_peak_sustained_elapsed$",
        "writes, of the peak of the GPU's memory (nsys --gpu-metrics-devices, Kineto)",
        ("DRAM Write Bandwidth [Throughput %]", "dram__write_throughput.avg.pct_of_peak_sustained_elapsed"),
        "DRAM Read Bandwidth [Throughput %]",
    ),
    "PCIe received": Pattern(
        r"^PCIe (RX|Read) Throughput \[Throughput %\]$",
        "what the GPU receives over PCIe, of its peak (nsys --gpu-metrics-devices)",
        "PCIe RX Throughput [Throughput %]", "PCIe TX Throughput [Throughput %]",
    ),
    "PCIe sent": Pattern(
        r"^PCIe (TX|Write) Throughput \[Throughput %\]$",
        "what the GPU sends over PCIe, of its peak (nsys --gpu-metrics-devices)",
        "PCIe TX Throughput [Throughput %]", "PCIe RX Throughput [Throughput %]",
    ),
    "NVLink received": Pattern(
        r"^NVLink RX (Bandwidth|\w+ (User|Protocol) Data) \[Throughput %\]$",
        "what the GPU receives over NVLink, of its peak, or a part of it (nsys --gpu-metrics-devices)",
        ("NVLink RX Bandwidth [Throughput %]", "NVLink RX Requests User Data [Throughput %]"),
        "NVLink TX Bandwidth [Throughput %]",
    ),
    "NVLink sent": Pattern(
        r"^NVLink TX (Bandwidth|\w+ (User|Protocol) Data) \[Throughput %\]$",
        "what the GPU sends over NVLink, of its peak, or a part of it (nsys --gpu-metrics-devices)",
        ("NVLink TX Bandwidth [Throughput %]", "NVLink TX Requests User Data [Throughput %]"),
        "NVLink RX Bandwidth [Throughput %]",
    ),
}
CLOCK: Final = Pattern(
    r"^(GPC|SM) Clock Frequency \[MHz\]$",
    "the clock of the SMs, in Hz whatever the name says (nsys --gpu-metrics-devices)",
    "GPC Clock Frequency [MHz]", "SYS Clock Frequency [MHz]",
)
LIMIT: Final = Pattern(
    r"^(?P<number>.+?)\s*(?P<sign><=|>=|==|\+-|±|<|>)\s*(?P<amount>[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
    r"(?P<unit>[^\s\d<>=]*)$",
    "a number of a table, and what it keeps to",
    ("dram_pct >= 0.95x", "mean(steps.period_ns) <= 3 ms", "kernels.time_ratio[name=a] +- 2 points"),
    ("dram_pct", "dram_pct = 3", ">= 0.95x", "dram_pct >= 3 ms each"),
)
NUMBER: Final = Pattern(
    r"^(?:(?P<table>[a-z][a-z0-9_]*)\.)?(?P<column>\w[\w.]*)\s*(?:\[(?P<filters>.*)\])?$",
    "a column of a table, and filters of its rows",
    ("dram_pct", "kernels.mean_ns[name~gemm]", "kernels.dram__bytes.sum"),
    ("mean(kernels.mean_ns)", "kernels.mean_ns[name~gemm", ""),
)
FILTER: Final = Pattern(
    r'\s*(\w+)\s*(!~|!=|=|~)\s*(?:"([^"]*)"|([^,"\[\]]+?))\s*(?:,|$)', "one filter of rows: column, sign, text",
    ("name~gemm", "device=0,", 'name!~"[12]$, x"'), ("name", "name~", "name~[12]", 'name="open'),
)
NCU_METRIC: Final = Pattern(
    r"(?:^|: )[a-z0-9]+__\w+(?:\.[a-z]\w*)*$", "a metric of Nsight Compute, after its kernel or alone",
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "gemm: gpu__time_duration.sum"),
    ("tokens/s", "graph breaks"),
)
MORE_IS_BETTER: Final = Pattern(
    r"(?i)pct_of_peak|throughput|per_s(?:ec|econd)?(?:$|[_. ])|/s(?:$|\W)|hit_rate|hit\.pct|warps_active"
    r"|(?:^|_)fps(?:$|_)|flops?(?:$|_)|occupancy|utili[sz]ation|speed_?up|efficiency|bandwidth|overlap_?score"
    r"|(?:^|_)(?:sm|sms|dram|l1|l2|memory|tensor|attained|busy)_(?:pct|ratio)$",
    "metrics of which more is better",
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes.sum.per_second", "fps", "tokens_per_s",
     "tokens/s", "sm_pct", "achieved_occupancy_pct", "bf16_tflop_per_s"),
    ("gpu__time_duration.sum", "ms_per_step", "idle_pct"),
)
LESS_IS_BETTER: Final = Pattern(
    r"(?i)(?:^|[\W_])(?:time|latency|duration|elapsed|ns|us|ms|s|seconds|bytes|[kmgt]i?b|memory|sectors|instructions|inst"
    r"|registers|launch(?:es)?|kernels|breaks?|recompil\w*|compil\w*|stall\w*|idle|exposed|wait\w*|sync\w*|copies|miss(?:es)?"
    r"|spill\w*|conflicts?|allocations?|loss|errors?|cycles|grid|block|shared)(?:$|[\W_])",
    "metrics of which less is better",
    ("gpu__time_duration.sum", "graph breaks", "launches per step", "peak memory", "idle_pct", "p99_ms"),
    ("fps", "score"),
)
SUBMETRICS: Final = Pattern(
    r"^(per_second|per_cycle_(active|elapsed|in_frame|in_region)"
    r"|peak_(sustained|burst)(_(active|elapsed|frame|region))?(\.per_second)?"
    r"|pct_of_peak_(sustained|burst)_(active|elapsed|frame|region))$",
    "what of a counter is asked for, after its roll-up",
    ("per_second", "peak_sustained_active.per_second", "pct_of_peak_sustained_elapsed"), ("per_minute", "pct"),
)
SAMPLED_IN: Final = Pattern(
    r"^(pmsampling:)?(\w+\.Triage\w+\.)?",
    "how reports write counters sampled along the kernel: the unit that samples, and the set that asked for it",
    ("pmsampling:dram__bytes.sum", "TriageA.TriageCompute.sm__cycles_active.avg"), (),
)
STALL: Final = Pattern(
    r"^smsp__warps_issue_stalled_(\w+?)_per_warp_active$", "a reason why warps wait, as a share of those that do",
    "smsp__warps_issue_stalled_barrier_per_warp_active", "smsp__warps_issue_stalled_barrier",
)
# What a metric counts, by its unit.
COUNTED: Final = {
    "bytes": Pattern(
        r"bytes(_|$|\.)", "a counter of bytes, by the last word of its base name",
        ("dram__bytes", "lts__t_bytes_op_read"), "kbytesx",
    ),
    "sector": Pattern(r"sectors?(_|$|\.)", "of sectors of 32 bytes", "lts__t_sectors", "sectored"),
    "request": Pattern(r"requests?(_|$|\.)", "of requests", "l1tex__t_requests_pipe_lsu", "requested"),
    "warp": Pattern(r"warps?(_|$|\.)", "of warps", "sm__warps_active", "warped"),
    "cycle": Pattern(r"cycles(_|$|\.)", "of cycles", "sm__cycles_active", "cycle_active"),
    "inst": Pattern(
        r"inst(_|$|\.)|inst_executed", "of instructions",
        ("sm__inst_executed_pipe_alu", "smsp__inst_issued"), "instance",
    ),
}
UNITLESS: Final = Pattern(
    r"\.ratio$|\.max_rate$|^breakdown:|^device__|^pmsampling:", "a counter whose value has no unit",
    ("smsp__average_warp_latency.ratio", "device__attribute_chip"), "sm__cycles_active.avg",
)
PERCENT: Final = Pattern(
    r"\.pct(\.|_|$)|_pct$|_pct_|\.pct_of_peak", "a counter whose value is a percentage",
    ("lts__t_sector_hit_rate.pct", "sm__throughput.avg.pct_of_peak_sustained_elapsed"), "sm__pctx",
)
NOUN: Final = Pattern(
    "^([KkMGTP]?)(bytes?|hz|Hz)$", "a printed unit of bytes or of a clock, with its prefix",
    ("Gbyte", "Mbytes", "Ghz"), ("second", "bytess"),
)
