"""The operations that a profiled kernel's tensor cores did, by format and path, and how that is known.

Three ways, the first that the report allows:

1. counters of operations (`sm__ops_path_tensor_*`), which full sets on Hopper hold;
2. how often each opcode ran (`sass__inst_executed_per_opcode_with_modifier_all`) times the shape it names, which
   detailed and full sets hold on every chip; not for Blackwell's products in tensor memory: those name no shape;
3. the cycles the tensor pipe was busy times its peak, in the format that the kernel's name says. Kernels that do no
   product use the pipe for a few percent of their time and are left out. Some instructions keep it busy below its
   peak rate, so that this is an upper bound (a third too high for tf32 by `wmma` on Hopper).

The first two count what was executed: padding of tiles and masked parts that a tile covers are in it.
"""

from collections.abc import Iterator
from enum import StrEnum

from timesink.knowledge.gpus import PER_OPCODE, Precision, TensorInstruction, tensor_instruction, tensor_rate
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.knowledge.metric_names.patterns import TENSOR_OPERATIONS
from timesink.measures.counters import KernelCounters
from timesink.records import Record

_WGMMA = ("hgmma", "qgmma", "igmma", "bgmma", "gmma")
_WORDS = {"fp64": Precision.FP64_TENSOR, "u8": Precision.INT8, "s8": Precision.INT8}
_NAMED = {one.value: one for one in Precision} | {"fp64": Precision.FP64_TENSOR}  # what a kernel's name may say
del _NAMED["fp32"]
_PRODUCTS = (KernelFamily.GEMM, KernelFamily.GEMV, KernelFamily.ATTENTION, KernelFamily.CONVOLUTION)
_LEAST_OF_PRODUCT = 0.01  # of the pipe: a product by one row, bound by its weights' bytes, takes 2 %
_OTHER_USE = 0.05  # of the pipe: constants are moved through it too; 3.5 % in copies of bf16 on an H100


class Counted(StrEnum):
    """How the operations of a roof were got."""

    COUNTERS = "counted"
    OPCODES = "opcodes x shape"
    CYCLES = "pipe cycles x peak, at most"


class TensorWork(Record):
    """Operations of one format on one path. `per_cycle` is the dense peak of the whole GPU as the report states it,
    None where it does not; `flops` is None where only `busy`, the share of the time the pipe was busy, is known."""

    precision: Precision | None
    path: str
    flops: float | None
    per_cycle: float | None
    how: Counted
    busy: float | None = None


def tensor_work(kernel: KernelCounters) -> tuple[TensorWork, ...]:
    """What its tensor cores did; empty where they did nothing, or where that was not recorded."""
    opcodes = _by_opcode(kernel)
    counted = tuple(_counted(kernel, opcodes))
    if counted:
        return counted
    if opcodes is None or any(one.flops is None for one, _ in opcodes):
        return tuple(_from_cycles(kernel, opcodes or []))
    totals: dict[tuple[Precision | None, str], float] = {}
    for one, count in opcodes:
        key = one.precision, one.path
        totals[key] = totals.get(key, 0.0) + count * (one.flops or 0.0)
    return tuple(
        TensorWork(precision, path, flops, _stated(kernel, precision, path), Counted.OPCODES)
        for (precision, path), flops in sorted(totals.items(), key=str)
    )


def pipe_busy(kernel: KernelCounters) -> float | None:
    """Share of the time that the tensor pipe was busy. Other instructions use it too: a few percent are no product."""
    active = kernel.get("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")
    busy = kernel.share("sm__pipe_tensor_cycles_active")
    return busy if busy is not None or active is None else active / 100


def _by_opcode(kernel: KernelCounters) -> list[tuple[TensorInstruction, float]] | None:
    """Each tensor instruction with its executions by warps; None where opcodes were not recorded."""
    text = kernel.texts.get(PER_OPCODE)
    if text is None:
        return None
    found = []
    for part in text.split("; "):
        opcode, _, count = part.rpartition(": ")
        one = tensor_instruction(opcode)
        if one is not None and count.isdigit():
            found.append((one, float(count)))
    return found


def _counted(kernel: KernelCounters, opcodes: list[tuple[TensorInstruction, float]] | None) -> Iterator[TensorWork]:
    """From counters of operations: by instruction where there are such, else the totals of a format.

    The peaks of totals are sparse rates, and a total does not say its path: the opcodes do.
    """
    by_op, totals = _operations(kernel)
    for (path, precision), (flops, per_cycle) in sorted(by_op.items()):
        yield TensorWork(precision, path, flops, per_cycle, Counted.COUNTERS)
    named = {precision for _, precision in by_op}
    for precision, flops in sorted(totals.items()):
        if precision not in named:
            paths = {one.path for one, _ in opcodes or [] if one.precision is precision}
            path = paths.pop() if len(paths) == 1 else _likely_path(kernel, precision)
            yield TensorWork(precision, path, flops, None, Counted.COUNTERS)


_ByPath = dict[tuple[str, Precision], tuple[float, float | None]]


def _operations(kernel: KernelCounters) -> tuple[_ByPath, dict[Precision, float]]:
    """Operations and dense peak per cycle by (path, format), and totals by format."""
    by_op: _ByPath = {}
    totals: dict[Precision, float] = {}
    for name, value in sorted(kernel.values.items()):
        match = TENSOR_OPERATIONS.match(name) if value and name.startswith("sm__ops_path_tensor_") else None
        precision = _precision(match.group(2)) if match else None
        if match is None or precision is None:
            continue
        op, _, sparsity = match.groups()
        if op is None:
            totals[precision] = max(value, totals.get(precision, 0.0))
        elif sparsity != "on":
            key = ("wgmma" if op in _WGMMA else "mma", precision)
            if value > by_op.get(key, (0.0, None))[0]:
                by_op[key] = value, kernel.get(f"{name}.peak_sustained")
    return by_op, totals


def _precision(word: str) -> Precision | None:
    return _WORDS.get(word) or (Precision(word) if word in {one.value for one in Precision} else None)


def _stated(kernel: KernelCounters, precision: Precision | None, path: str) -> float | None:
    """The dense peak per cycle of the whole GPU that the report states for that format and path."""
    ops = _WGMMA if path == "wgmma" else ("hmma", "imma")
    for name, value in kernel.values.items():
        if name.startswith("sm__ops_path_tensor_op_") and name.endswith(".sum.peak_sustained"):
            match = TENSOR_OPERATIONS.match(name.removesuffix(".peak_sustained"))
            if match and match[1] in ops and match[3] != "on" and _precision(match[2]) is precision:
                return value
    return None


def _likely_path(kernel: KernelCounters, precision: Precision) -> str:
    """The path that the pipes' counters show, of those by which this chip has a rate for the format."""
    group = kernel.first(
        "sm__inst_executed_pipe_tensor_op_gmma.sum.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed",
        "smsp__sass_inst_executed_op_shared_gmma.sum",
    )
    paths = ("wgmma", "mma", "tcgen05") if group else ("mma", "tcgen05", "wgmma")
    rated = [path for path in paths if tensor_rate(kernel.compute_capability, precision, path)]
    return rated[0] if rated else paths[0]


def _from_cycles(kernel: KernelCounters, opcodes: list[tuple[TensorInstruction, float]]) -> Iterator[TensorWork]:
    """From the cycles of the pipe, in the one format that the opcodes show, else the one that the name shows."""
    busy, decoded = pipe_busy(kernel), decode(kernel.name)
    least = _LEAST_OF_PRODUCT if decoded.family in _PRODUCTS else _OTHER_USE
    if busy is None or (not opcodes and busy < least):
        return
    shown = {one.precision for one, _ in opcodes}
    named = _NAMED.get(decoded.math or "")
    precision = shown.pop() if len(shown) == 1 else None
    precision = precision or named
    paths = {one.path for one, _ in opcodes}
    path = _likely_path(kernel, precision) if precision else "tensor"
    path = paths.pop() if len(paths) == 1 else path
    yield TensorWork(precision, path, None, None, Counted.CYCLES, busy)
