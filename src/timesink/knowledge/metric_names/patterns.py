"""Metrics of Nsight Compute by what they count: a unit's time, the reason of a stall, the kind of tensor work."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

INTERNAL: Final = Pattern(
    r"internal_activity", "a unit that NVIDIA does not name", "breakdown:sm__internal_activity", "sm__pipe_alu"
)
DRAM: Final = Pattern(
    r"^(gpu__)?(dram|fbpa)_|sectors_fill_device", "device memory",
    ("gpu__dram_throughput", "lts__t_sectors_fill_device"), "lts__t_sectors",
)  # fmt: skip
L2: Final = Pattern(
    r"^(lts|ltc)__|^l1tex__m_", "the L2 cache", ("lts__t_sectors", "l1tex__m_xbar2l1tex"), "l1tex__t_bytes"
)
TENSOR: Final = Pattern(
    r"^sm__pipe_(tensor|tc)|pipe_tensor|pipe_tc|mem_tensor", "tensor cores", "sm__pipe_tensor_op_hmma_cycles_active",
    "sm__pipe_alu",
)  # fmt: skip
FP64: Final = Pattern(r"pipe_fp64", "the fp64 pipe", "sm__inst_executed_pipe_fp64", "sm__inst_executed_pipe_fp16")
FMA: Final = Pattern(
    r"pipe_(fma|fmaheavy|fmalite|fp16)", "the pipes of multiply-adds", "sm__inst_executed_pipe_fmaheavy",
    "sm__inst_executed_pipe_alu",
)  # fmt: skip
ALU: Final = Pattern(
    r"pipe_alu", "the pipe of integers and logic", "sm__inst_executed_pipe_alu", "sm__inst_executed_pipe_fma"
)
XU: Final = Pattern(
    r"pipe_xu", "the pipe of transcendental functions", "sm__inst_executed_pipe_xu", "sm__inst_executed_pipe_alu"
)
CONTROL: Final = Pattern(
    r"pipe_(uniform|cbu)", "branches and uniform work", "sm__inst_executed_pipe_cbu", "sm__pipe_alu"
)
ISSUE: Final = Pattern(
    r"^sm__(inst_executed|issue_active|inst_issued)$", "the schedulers", "sm__inst_executed",
    "sm__inst_executed_pipe_alu",
)  # fmt: skip
L1: Final = Pattern(
    r"^(l1tex|idc)__|pipe_(lsu|tex|adu|ipa|tma)|^sm__mio", "the L1 cache and what feeds it",
    ("l1tex__data_pipe", "sm__inst_executed_pipe_lsu"), "lts__t_sectors",
)  # fmt: skip
STALL_COUNTED: Final = Pattern(
    r"^smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$", "warps that wait for one reason, counted",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "smsp__pcsamp_warps_issue_stalled_barrier",
)  # fmt: skip
STALL_SAMPLED: Final = Pattern(
    r"^smsp__pcsamp_warps_issue_stalled_(\w+)$", "warps that wait for one reason, sampled",
    "smsp__pcsamp_warps_issue_stalled_barrier", "smsp__pcsamp_interval",
)  # fmt: skip
TENSOR_OPERATIONS: Final = Pattern(
    r"^sm__ops_path_tensor_(?:op_([a-z]+)_)?src_([a-z]+\d+)\w*?(?:_sparsity_(off|on))?\.sum$",
    "tensor operations of one kind of operands", "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum",
    "sm__pipe_tensor_op_hmma_cycles_active.sum",
)  # fmt: skip

# Counters that Nsight Systems samples, by what a person calls them. Of each it records other roll-ups too.
SAMPLED: Final = {
    "SMs active": Pattern(
        r"^SMs Active \[Throughput %\]$", "cycles in which a multiprocessor has a warp, on average",
        "SMs Active [Throughput %]", "SMs Active [Cycles Active]", "nsys --gpu-metrics-devices",
    ),
    "tensor cores active": Pattern(
        r"^Tensor Active( / FP16 Active)? \[Throughput %\]$", "cycles in which tensor cores work",
        ("Tensor Active [Throughput %]", "Tensor Active / FP16 Active [Throughput %]"), "Tensor Active [Avg]",
        "nsys --gpu-metrics-devices",
    ),
    "DRAM read": Pattern(
        r"^DRAM Read( Bandwidth)? \[Throughput %\]$", "reads, of the peak of the device's memory",
        "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]", "nsys --gpu-metrics-devices",
    ),
    "DRAM written": Pattern(
        r"^DRAM Write( Bandwidth)? \[Throughput %\]$", "writes, of the peak of the device's memory",
        "DRAM Write Bandwidth [Throughput %]", "DRAM Read Bandwidth [Throughput %]", "nsys --gpu-metrics-devices",
    ),
    "PCIe received": Pattern(
        r"^PCIe (RX|Read) Throughput \[Throughput %\]$", "what the device receives over PCIe, of its peak",
        "PCIe RX Throughput [Throughput %]", "PCIe TX Throughput [Throughput %]", "nsys --gpu-metrics-devices",
    ),
    "PCIe sent": Pattern(
        r"^PCIe (TX|Write) Throughput \[Throughput %\]$", "what the device sends over PCIe, of its peak",
        "PCIe TX Throughput [Throughput %]", "PCIe RX Throughput [Throughput %]", "nsys --gpu-metrics-devices",
    ),
    "NVLink received": Pattern(
        r"^NVLink RX (Bandwidth|.*User Data.*) \[Throughput %\]$", "what the device receives over NVLink, of its peak",
        ("NVLink RX Bandwidth [Throughput %]", "NVLink RX Requests User Data [Throughput %]"),
        "NVLink TX Bandwidth [Throughput %]", "nsys --gpu-metrics-devices",
    ),
    "NVLink sent": Pattern(
        r"^NVLink TX (Bandwidth|.*User Data.*) \[Throughput %\]$", "what the device sends over NVLink, of its peak",
        ("NVLink TX Bandwidth [Throughput %]", "NVLink TX Requests User Data [Throughput %]"),
        "NVLink RX Bandwidth [Throughput %]", "nsys --gpu-metrics-devices",
    ),
}  # fmt: skip
CLOCK: Final = Pattern(
    r"^(GPC|SM) Clock Frequency \[MHz\]$", "the clock of the multiprocessors, in Hz whatever the name says",
    "GPC Clock Frequency [MHz]", "SYS Clock Frequency [MHz]", "nsys --gpu-metrics-devices",
)  # fmt: skip
