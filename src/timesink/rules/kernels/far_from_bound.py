"""An operator takes far longer than what its shapes need.

## What it detects
Operators with recorded shapes whose kernels reach less than half of the attainable bound, where no known pattern
(casts, layouts, alignment, precision, small grids, ...) explains it. Fused attention is left out: there is no other
kernel to be had for it, and its mask is not recorded.

## Why it matters
The bound says how long the operations or the bytes must take on this GPU. What is above it is the kernel's own, and a
kernel profiler can say why.

## How it is measured
Operations and bytes from shapes, over attainable rates (80 % of the tensor cores' dense peak, 93 % of DRAM bandwidth),
or 2 us per kernel. Expected is a kernel at 70 % of the bound.

## What to do
Profile the named kernel with Nsight Compute; try another implementation of the operator (a fused one, another backend,
`torch.compile`), or another layout of its operands.

## When it misleads
Bytes count each tensor once: an operator that must read data twice has a higher bound. Reads that hit in the L2 cache
look better than DRAM allows. An operator whose work is not known has no bound and is not seen.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Found, NotApplicable, Quantity, Undecided, Verdict
from timesink.measures.kernels.attainable import FarOperator, far_operators
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS, GPU_METRICS, HOST_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.kernels._family import LINE_READS, KernelPattern, kernel_verdict
from timesink.units import share_text
from timesink.whatif.changes.kernels import ShortenKernels, reach_bound

_BOTTLENECKS = {
    "memory": Bottleneck.MEMORY_BOUND_KERNEL,
    "compute": Bottleneck.COMPUTE_BOUND_KERNEL,
    "latency": Bottleneck.LATENCY_BOUND_KERNEL,
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per operator and shape that is far from its bound."""
    if not trace[HOST_OPS].height:
        return NotApplicable("no operator is recorded")
    operators = far_operators(trace)
    if not operators:
        return Undecided("no operator's shapes, or not this GPU's peaks, are known", RULE.capture)
    far = [operator for operator in operators if operator.attained_ratio < limits["attained_ratio"]]
    verdicts = [_verdict(trace, operator, limits) for operator in far]
    findings = [finding for verdict in verdicts if isinstance(verdict, Found) for finding in verdict.findings]
    return found_or_clear(findings or [_attained(operator, limits) for operator in operators[:SHOWN_ROWS]])


def _verdict(trace: Trace, operator: FarOperator, limits: Limits) -> Verdict:
    pattern = KernelPattern(
        bottleneck=_BOTTLENECKS[operator.limiter],
        subject=f"kernels of {operator.name}",
        how="the operator at 70 % of its attainable bound; over the steady steps",
        advice="Profile the named kernel with Nsight Compute; try a fused operator, another backend or torch.compile.",
        verify="Capture again: the operator reaches a larger share of its bound.",
    )

    def reached(_: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        words = f"at {share_text(operator.attained_ratio)} of the {operator.limiter} bound of its shapes"
        return words, (_attained(operator, limits),)

    return kernel_verdict(trace, pattern, [reach_bound(operator.kernels)], limits["saved_ratio"], reached)


def _attained(operator: FarOperator, limits: Limits) -> Evidence:
    limit = Quantity(limits["attained_ratio"], "ratio")
    how = f"{operator.limiter} bound of its shapes over the time of its kernels"
    label = f"share of the attainable bound that {operator.name} reaches"
    return Evidence(label, Quantity(operator.attained_ratio, "ratio"), how, limit=limit)


RULE = Rule(
    "KRN109",
    check,
    needs=(DEVICE_OPS, HOST_OPS),
    reads=(*BLAME_READS, *LINE_READS, API_CALLS, DEVICES, EVENT_WAITS, GPU_METRICS),
    limits={
        "attained_ratio": Limit.ratio(
            0.5,
            "well-written kernels of everyday shapes reach seven tenths; half leaves room for odd shapes",
            "benchmarks/faults on an H200: products 0.9 to 1.1, attention 0.7, elementwise 0.9 to 1.0",
        ),
        "saved_ratio": Limit.ratio(
            0.05, "writing or finding another kernel is work: it should win one step in twenty", HEALTHY
        ),
    },
    references=("https://docs.nvidia.com/nsight-compute/ProfilingGuide/#roofline-charts",),
    capture="torch.profiler with record_shapes=True, on a GPU that timesink knows",
)
