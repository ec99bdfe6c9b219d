"""Datasheet peaks of GPUs by product name: dense rates, DRAM bandwidth, caches. What is unknown is None, not guessed.

A profile's own counters give better peaks (they see export cuts and lowered clocks); this table is the fallback, and
its `source` is printed with every figure taken from it. Tensor rates are *dense*: vendors like to quote twice that,
with structured sparsity. Where sources disagree the higher figure is given: a time bound made from it still holds.

What one execution of a tensor-core instruction computes, by its opcode as the profiler prints it.

Sources: the shapes of ``mma``, ``wgmma`` and ``tcgen05.mma`` in NVIDIA's PTX ISA, and M. A. Raihan, N. Goli, T. Aamodt,
"Modeling Deep Learning Accelerator Enabled GPUs" (ISPASS 2019) for Volta's steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from timesink.knowledge.pattern import Pattern
from timesink.model.record import dataclass, field
from timesink.startup import regex

# What every NVIDIA GPU of today has in common, by the CUDA programming guide and the guide of Nsight Compute.
LANES: Final = 32  # threads of a warp
BITS_OF_BYTE: Final = 8
SECTOR_BYTES: Final = 32  # what caches and memory move at least
LINE_BYTES: Final = 128  # of a cache: four sectors
SECTORS_OF_PASS: Final = 4  # one pass through the L1 data pipe serves a line
DRAM_ACCESS_SECTORS: Final = 2  # HBM moves 64 bytes at a time: a lone sector brings another along
ISSUES_OF_CYCLE: Final = 4  # warp instructions a multiprocessor issues at most: one of each of its four schedulers
RESIDENT_THREADS: Final = 2048  # of a multiprocessor, on compute capability 8.0 and 9.0
ALIGNED_BYTES: Final = 16  # what one instruction loads at most: operands aligned to it need no more of them
HOPPER: Final = (9, 0)  # its warp-group products take aligned operands only
# Cycles of a load from L1, L2 and DRAM with nothing else on the way. On an H100 (benchmarks/kernels) chases through L2
# wait 259 (far_away), through DRAM 612 to 730 (page_list, list_walk, page_table, automaton).
LOAD_CYCLES: Final = (35, 270, 700)
FIRST_WITH_TF32: Final = 8  # compute capability, major


class Precision(StrEnum):
    """A numeric format together with the unit that computes it."""

    FP64 = "fp64"
    FP64_TENSOR = "fp64_tensor"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peaks of one product at its boost clock. `flops` counts a fused multiply-add as two operations.

    `flops` holds only formats whose dense rate is published; fp16 and bf16 mean tensor cores with fp32 accumulation.
    `l2_bytes` is the whole cache. `note` says where sources disagree or what a figure leaves out. Where devices are
    known to say another DRAM bandwidth than their datasheet, the datasheet's is `specified_dram_bytes_per_s`.
    `measured` is what a device said of itself, by "dram" (bytes per second) or format (operations per second): memory
    clock times bus, and operations a cycle at its highest clock.
    """

    product: str
    compute_capability: tuple[int, int] | None
    sm_count: int
    dram_bytes_per_s: float
    l2_bytes: int
    flops: Mapping[Precision, float] = field(default_factory=dict)
    source: str = ""
    note: str = ""
    specified_dram_bytes_per_s: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)

    def flops_of(self, precision: Precision) -> float | None:
        """Operations per second of that format, or None where no dense figure is known."""
        return self.flops.get(precision)

    def ridge(self, precision: Precision) -> float | None:
        """Operations per DRAM byte above which that format is compute-bound."""
        rate = self.flops_of(precision)
        return None if rate is None else rate / self.dram_bytes_per_s


def peaks(product_name: str) -> GpuPeaks | None:
    """The peaks of the GPU that calls itself `product_name` ("NVIDIA H100 80GB HBM3"), or None where it is not known.

    A name is taken only where it leaves no doubt: "NVIDIA A100" alone is None, as the 40 and 80 GB boards differ.
    """
    words = re.sub(r"[\s_-]+", " ", product_name).strip()
    for pattern, entry in ENTRIES:
        if pattern.search(words):
            return entry
    return None


_GRAPHICS_CHIPS: Final = ((8, 6), (8, 9), (12, 0))


def plain_of_tf32(product_name: str, capability: tuple[int, int] | None) -> float | None:
    """The peak rate of fp32 over that of TF32: of the product where it is known, else of its chip, else None.

    Chips for graphics compute TF32 at twice the rate of fp32, and as GeForce at the same rate: datasheets of RTX 3060
    (12.7 and 12.7 TFLOP/s), RTX 3090 (35.6, 35.6) and RTX 4090, of A10 (31.2, 62.5), RTX A6000 (38.7, 77.4) and L40S.
    """
    known = peaks(product_name)
    plain, tensor = (known.flops_of(each) if known else None for each in (Precision.FP32, Precision.TF32))
    if plain is not None and tensor is not None:
        return plain / tensor
    chip = known.compute_capability if known else capability
    if chip not in _GRAPHICS_CHIPS:
        return None
    return 1.0 if "geforce" in product_name.lower() else 0.5


# GB/s of NVLink in one direction, of GPUs that are sold on boards with it only; half of what datasheets quote.
_NVLINK: Final = {
    "V100 SXM2": 150, "A100 SXM4 40GB": 300, "A100 SXM4 80GB": 300, "H800": 200, "H100 SXM5": 450, "H200 SXM": 450,
    "B200": 900, "GB200 (one GPU)": 900,
}  # fmt: skip


def nvlink_bytes_per_s(product_name: str) -> float | None:
    """What the NVLink of the GPU that calls itself so carries in one direction, or None where it may have none."""
    known = peaks(product_name)
    rate = _NVLINK.get(known.product) if known else None
    return rate * 1e9 if rate else None


def candidates(words: str) -> tuple[GpuPeaks, ...]:
    """The GPUs that these words may mean: the one that calls itself so, else those whose product begins with them."""
    found = peaks(words)
    if found is not None:
        return (found,)
    begun = re.sub(r"[\s_-]+", " ", words).strip().casefold().removeprefix("nvidia ")
    return tuple(entry for _, entry in ENTRIES if begun and entry.product.casefold().startswith(begun))


_ORDER = tuple(Precision)
_VOLTA = (
    "NVIDIA Tesla V100 datasheet (2018); fp32, fp64 and DRAM equal counters of a V100-SXM2-32GB report at maximum clock"
)
_TURING = "NVIDIA T4 datasheet (2019)"
_A100 = "NVIDIA A100 datasheet (2021); fp32, fp64 and DRAM equal counters of A100 reports at maximum clock"
_H100 = "NVIDIA H100 datasheet (2023), dense"
_REPORT = "counters of an Nsight Compute report at maximum clock"
_BLACKWELL = "NVIDIA Blackwell datasheet (2024), dense"
_ADA = "NVIDIA Ada datasheets (2023), dense"
_CDNA = "AMD Instinct data sheets (2022, 2023), dense matrix rates"
_GB200_NOTE = "sources disagree by up to 10 % (fp64 37-40, fp32 75-80 TFLOP/s, DRAM 7.7-8.0 TB/s); the higher stands"
_SXM_NOTE = "tensor rates assume 1.83 GHz, fp32 and fp64 1.98 GHz"


def _rates(*tera: float | None) -> dict[Precision, float]:
    """TFLOP/s in the order of `Precision`; None leaves a format out."""
    return {kind: rate * 1e12 for kind, rate in zip(_ORDER, tera, strict=False) if rate is not None}


_Shape = tuple[tuple[int, int], int, float, float]  # compute capability, SMs, DRAM GB/s, L2 MiB


# DRAM GB/s of the datasheet, where devices say another.
_SPECIFIED_DRAM = {"B200": 8000, "H100 SXM5": 3350}


# What devices said of themselves in reports of Nsight Compute (B200: through CUDA): DRAM GB/s, fp64 and fp32 TFLOP/s.
_SAID: dict[str, tuple[float, ...]] = {
    "V100 SXM2": (898, 7.8, 15.7),
    "A100 SXM4 40GB": (1555, 9.7, 19.5),
    "A100 PCIe 80GB": (1935, 9.7, 19.5),
    "A10G": (600, 0.5, 35.0),
    "RTX A4500": (640, 0.4, 23.7),
    "H100 PCIe": (2039, 25.6, 51.2),
    "H100 SXM5": (3352, 33.5, 66.9),
    "H800": (3352, 1.0, 66.9),
    "H200 SXM": (4814, 33.5, 66.9),
    "GH200 96GB HBM3": (4023, 33.5, 66.9),
    "B200": (7672,),
}


def _said(product: str) -> dict[str, float]:
    sizes = {"dram": 1e9, Precision.FP64.value: 1e12, Precision.FP32.value: 1e12}
    said = zip(sizes.items(), _SAID.get(product, ()), strict=False)
    return {name: figure * size for (name, size), figure in said}


def _nvidia(
    pattern: str, product: str, shape: _Shape, flops: Mapping[Precision, float], source: str, note: str = ""
) -> tuple[re.Pattern[str], GpuPeaks]:
    capability, sms, dram_gb, l2_mib = shape
    specified = _SPECIFIED_DRAM[product] * 1e9 if product in _SPECIFIED_DRAM else None
    entry = GpuPeaks(
        product, capability, sms, dram_gb * 1e9, int(l2_mib * 2**20), flops, source, note, specified, _said(product)
    )
    return regex(pattern, re.IGNORECASE), entry


def _amd(
    pattern: str, product: str, units: int, dram_gb: float, l2_mb: float, flops: Mapping[Precision, float]
) -> tuple[re.Pattern[str], GpuPeaks]:
    note = "sm_count counts compute units; l2_bytes is the L2, not the Infinity Cache"
    entry = GpuPeaks(product, None, units, dram_gb * 1e9, int(l2_mb * 2**20), flops, _CDNA, note)
    return regex(pattern, re.IGNORECASE), entry


_HOPPER = _rates(33.5, 66.9, 66.9, 494.7, 989.4, 989.4, 1978.9, None, 1978.9)
_HOPPER_PCIE = _rates(25.6, 51.2, 51.2, 378, 756, 756, 1513, None, 1513)
_AMPERE = _rates(9.7, 19.5, 19.5, 156, 312, 312, None, None, 624)

# Patterns of product names. The first that matches decides, so a narrower one comes before a wider one.
ENTRIES: tuple[tuple[re.Pattern[str], GpuPeaks], ...] = (
    _nvidia(r"\bV100 SXM", "V100 SXM2", ((7, 0), 80, 900, 6), _rates(7.8, None, 15.7, None, 125), _VOLTA),
    _nvidia(r"\bT4$", "T4", ((7, 5), 40, 320, 4), _rates(0.25, None, 8.1, None, 65, None, None, None, 130), _TURING),
    _nvidia(r"\bA100 SXM4? ?40GB", "A100 SXM4 40GB", ((8, 0), 108, 1555, 40), _AMPERE, _A100),
    _nvidia(r"\bA100 SXM4? ?80GB", "A100 SXM4 80GB", ((8, 0), 108, 2039, 40), _AMPERE, _A100),
    _nvidia(r"\bA100 (PCIe 80GB|80GB PCIe)", "A100 PCIe 80GB", ((8, 0), 108, 1935, 40), _AMPERE, _A100),
    _nvidia(r"\bA100 (PCIe 40GB|40GB PCIe)", "A100 PCIe 40GB", ((8, 0), 108, 1555, 40), _AMPERE, _A100),
    _nvidia(r"\bA10G\b", "A10G", ((8, 6), 80, 600, 6), _rates(0.55, None, 35.0), _REPORT, "tensor rates not published"),
    _nvidia(r"\bRTX A4500\b", "RTX A4500", ((8, 6), 56, 640, 6), _rates(0.37, None, 23.7), _REPORT, "tensor left out"),
    _nvidia(r"\bH100 PCIe", "H100 PCIe", ((9, 0), 114, 2039, 50), _HOPPER_PCIE, _H100),
    _nvidia(r"\bH100 (80GB HBM3|SXM)", "H100 SXM5", ((9, 0), 132, 3352, 50), _HOPPER, _H100, _SXM_NOTE),
    _nvidia(
        r"\bH800$|\bH800 SXM",
        "H800",
        ((9, 0), 132, 3352, 50),
        _rates(1.0, None, 66.9, 494.7, 989.4, 989.4, 1978.9, None, 1978.9),
        f"{_H100}; fp64 from {_REPORT}",
        "export variant: fp64 cut to 2 operations per SM and clock",
    ),
    _nvidia(
        r"\bH200( SXM|$| 141GB)", "H200 SXM", ((9, 0), 132, 4800, 50), _HOPPER, "NVIDIA H200 datasheet (2024), dense"
    ),
    _nvidia(r"\bGH200 480GB|\bGH200 96GB", "GH200 96GB HBM3", ((9, 0), 132, 4023, 60), _HOPPER, f"{_H100}; {_REPORT}"),
    _nvidia(
        r"\bGB200\b",
        "GB200 (one GPU)",
        ((10, 0), 152, 8000, 126),
        _rates(45, 45, 90, 1250, 2500, 2500, 5000, 10000, 5000),
        _BLACKWELL,
        _GB200_NOTE,
    ),
    _nvidia(
        r"\bB200\b",
        "B200",
        ((10, 0), 148, 7672, 126),
        _rates(40, 40, 80, 1100, 2250, 2250, 4500, 9000, 4500),
        f"{_BLACKWELL}; DRAM asked of a device: bus of 7,680 bits at 3,996 MHz (github.com/pytorch/ao/pull/4002)",
        "sources disagree by up to 8 % (fp64 37-40, fp32 75-80 TFLOP/s); the higher stands",
    ),
    _nvidia(r"\bL40S\b", "L40S", ((8, 9), 142, 864, 96), _rates(1.4, None, 91.6, 183, 362, 362, 733, None, 733), _ADA),
    _nvidia(r"\bL4$", "L4", ((8, 9), 58, 300, 48), _rates(0.47, None, 30.3, 60, 121, 121, 242, None, 242), _ADA),
    _nvidia(
        r"\bRTX 4090$",
        "GeForce RTX 4090",
        ((8, 9), 128, 1008, 72),
        _rates(1.3, None, 82.6, 82.6, 165.2, 165.2, 330.3, None, 660.6),
        _ADA,
        "fp16 and fp8 with fp32 accumulation; fp16 accumulation doubles them",
    ),
    _nvidia(
        r"\bRTX 5090$",
        "GeForce RTX 5090",
        ((12, 0), 170, 1792, 96),
        _rates(1.6, None, 104.8, 104.8, 209.5, 209.5, 419, 1676, 838),
        "NVIDIA RTX Blackwell whitepaper (2025), dense",
        "fp16 and fp8 with fp32 accumulation",
    ),
    _amd(
        r"\bMI300X\b",
        "Instinct MI300X",
        304,
        5300,
        32,
        _rates(81.7, 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, None, 2614.9),
    ),
    _amd(r"\bMI210\b", "Instinct MI210", 104, 1638, 8, _rates(22.6, 45.3, 22.6, None, 181, 181, None, None, 181)),
)


# Dense tensor operations per SM and clock, by capability, path and `Precision` (a fused multiply-add counts as two).
# Hopper's mma.sync reaches two thirds of wgmma. Sources: `sm__ops_path_tensor_*.sum.peak_sustained` of A100 and H100
# reports; V100, T4 and B200 follow from their datasheet rates.
_TENSOR_RATES: dict[tuple[int, int], dict[str, dict[str, float]]] = {
    (7, 0): {"mma": {"fp16": 1024}},
    (7, 5): {"mma": {"fp16": 1024, "int8": 2048}},
    (8, 0): {"mma": {"fp64_tensor": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096}},
    (9, 0): {
        "mma": {"fp64_tensor": 256, "tf32": 4096 / 3, "fp16": 8192 / 3, "bf16": 8192 / 3, "int8": 16384 / 3},
        "wgmma": {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    },
    (10, 0): {"tcgen05": {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768, "int8": 16384}},
}


def tensor_rate(capability: tuple[int, int] | None, precision: Precision, path: str) -> float | None:
    """Dense tensor operations per SM and clock on that chip by ``mma`` or ``wgmma``; None where not known."""
    if capability is None:
        return None
    return _TENSOR_RATES.get(capability, {}).get(path, {}).get(precision)


def tensor_rates(capability: tuple[int, int] | None, precision: Precision) -> list[tuple[str, float]]:
    """The paths by which that chip computes the format, each with its rate as in `tensor_rate`, the fastest first."""
    paths = _TENSOR_RATES.get(capability, {}) if capability is not None else {}
    rates = [(path, formats[precision]) for path, formats in paths.items() if precision in formats]
    return sorted(rates, key=lambda item: -item[1])


# The counter with one value per opcode and modifiers: `HGMMA.64x128x16.F32.BF16`.
PER_OPCODE: Final = "sass__inst_executed_per_opcode_with_modifier_all"

PRODUCT: Final = Pattern(
    r"^(?P<unit>UTC)?(?P<kind>[A-Z])(?P<group>G)?MMA(?:\.(?P<rest>.+))?$",
    "a product on tensor cores: of a warp (HMMA), a warp group (HGMMA), or tensor memory (UTCHMMA)",
    ("HMMA.16816.F32.BF16", "HGMMA.64x128x16.F32.BF16", "IMMA.16832.S8.S8.SAT", "DMMA.884", "UTCHMMA"),
    ("FFMA", "UTMALDG.3D", "HMUL2.BF16_V2", "DEPBAR.LE"),
)
_PRODUCT: Final = regex(PRODUCT)
_BY_X: Final = regex(r"(\d+)x(\d+)x(\d+)")
# M, N and K are written without a sign between them.
_RUN_TOGETHER: Final = {
    "884": (8, 8, 4),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
    "16864": (16, 8, 64),
}
_HALVES: Final = {"TF32": Precision.TF32, "BF16": Precision.BF16}
# Of the other letters the format, and the operands that an opcode with a shape must name for it (int4 is an IMMA too).
_FORMATS: Final = {
    "Q": (Precision.FP8, ("E4M3", "E5M2")),
    "I": (Precision.INT8, ("S8", "U8")),
    "D": (Precision.FP64_TENSOR, ()),
}
_WARPS_OF_GROUP: Final = 4
_VOLTA_STEPS: Final = {"F32": 4, "F16": 2}  # instructions that together do four products of 8 x 8 x 4


@dataclass(frozen=True, slots=True)
class TensorInstruction:
    """`precision` is that of its operands, `path` the unit's way (mma, wgmma, tcgen05), `flops` the operations of one
    execution by one warp; None where the opcode does not say."""

    precision: Precision | None
    path: str
    flops: float | None


def tensor_instruction(opcode: str) -> TensorInstruction | None:
    """What that opcode computes; None where it is none of tensor cores. With ``SP`` half of the products are stored
    zeros: only the others count, as they do in dense peaks."""
    match = _PRODUCT.match(opcode)
    if match is None:
        return None
    words = (match["rest"] or "").split(".")
    path = "tcgen05" if match["unit"] else "wgmma" if match["group"] else "mma"
    shape = next((shape for word in words if (shape := _shape(word))), None)
    precision = _precision(match["kind"], words, is_shaped=shape is not None)
    if shape is None or match["unit"] or precision is None:
        return TensorInstruction(precision, path, None)
    flops = 2.0 * shape[0] * shape[1] * shape[2] / (2 if "SP" in words else 1)
    if path == "wgmma":
        flops /= _WARPS_OF_GROUP  # each warp of the group counts its own
    elif match["kind"] == "H" and words[0] == "884":
        flops *= 4 / _VOLTA_STEPS.get(words[1] if len(words) > 1 else "", 4)
    return TensorInstruction(precision, path, flops)


def _shape(word: str) -> tuple[int, int, int] | None:
    if found := _BY_X.fullmatch(word):
        return int(found[1]), int(found[2]), int(found[3])
    return _RUN_TOGETHER.get(word)


def _precision(kind: str, words: list[str], *, is_shaped: bool) -> Precision | None:
    """The operands' format: the letter of the opcode, then its modifiers. fp16 is what a shape without others means."""
    if kind == "H":
        named = next((_HALVES[word] for word in words if word in _HALVES), None)
        return named or (Precision.FP16 if is_shaped else None)
    if kind not in _FORMATS:
        return None
    precision, operands = _FORMATS[kind]
    is_it = not operands or not is_shaped or any(word.startswith(operands) for word in words)
    return precision if is_it else None
