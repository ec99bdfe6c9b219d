"""Datasheet peaks of GPUs by product name (`gpus.txt`): dense rates, DRAM bandwidth, caches. What is unknown is None,
not guessed.

A profile's own counters give better peaks (they see export cuts and lowered clocks); this table is the fallback, and
its `source` is printed with every figure taken from it. Tensor rates are *dense*: vendors like to quote twice that,
with structured sparsity. Where sources disagree the higher figure is given: a time bound made from it still holds.

`tensor_instruction` says what one execution of a tensor-core instruction computes, by its opcode as the profiler prints
it. Sources: the shapes of ``mma``, ``wgmma`` and ``tcgen05.mma`` in NVIDIA's PTX ISA, and M. A. Raihan, N. Goli, T.
Aamodt, "Modeling Deep Learning Accelerator Enabled GPUs" (ISPASS 2019) for Volta's steps.
"""

import math
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from timesink.knowledge import Pattern
from timesink.knowledge.tables import TableRow, read_rows
from timesink.knowledge.vendors import NVIDIA, vendor_of_product
from timesink.records import Record, field
from timesink.startup import regex

# What every NVIDIA GPU of today has in common, by the CUDA programming guide and the guide of Nsight Compute.
LANES: Final = 32  # threads of a warp
BITS_OF_BYTE: Final = 8
FASTEST_DRAM: Final = {  # bytes per second of the fastest memory sold with a chip, by compute capability
    (7, 0): 1134e9, (7, 5): 672e9, (8, 0): 2039e9, (8, 6): 1008e9, (8, 9): 1008e9, (9, 0): 4900e9, (10, 0): 8000e9,
    (12, 0): 1792e9,
}  # fmt: skip
SECTOR_BYTES: Final = 32  # what caches and memory move at least
LINE_BYTES: Final = 128  # of a cache: four sectors
SECTORS_OF_PASS: Final = 4  # one pass through the L1 data pipe serves a line
DRAM_ACCESS_SECTORS: Final = 2  # HBM moves 64 bytes at a time: a lone sector brings another along
ISSUES_OF_CYCLE: Final = 4  # warp instructions a multiprocessor issues at most: one of each of its four schedulers
RESIDENT_THREADS: Final = 2048  # of a multiprocessor, on compute capability 8.0 and 9.0
# Of others (CUDA C++ Programming Guide, Compute Capabilities); of what is not here not known.
THREADS_HELD: Final = {
    (7, 0): RESIDENT_THREADS, (7, 5): 1024, (8, 0): RESIDENT_THREADS, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536,
    (9, 0): RESIDENT_THREADS, (10, 0): RESIDENT_THREADS, (12, 0): 1536,
}  # fmt: skip
ALIGNED_BYTES: Final = 16  # what one instruction loads at most: operands aligned to it need no more of them
HOPPER: Final = (9, 0)  # its warp-group products take aligned operands only
# Cycles of a load from L1, L2 and DRAM with nothing else on the way. On an H100 (benchmarks/kernels) chases through L2
# wait 259 (far_away), through DRAM 612 to 730 (page_list, list_walk, page_table, automaton).
LOAD_CYCLES: Final = (35, 270, 700)


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


class GpuPeaks(Record):
    """Peaks of one product at its boost clock. `flops` counts a fused multiply-add as two operations.

    `flops` holds only formats whose dense rate is published; fp16 and bf16 mean tensor cores with fp32 accumulation.
    `l2_bytes` is the whole cache. `note` says where sources disagree or what a figure leaves out. Where devices are
    known to say another DRAM bandwidth than their datasheet, the datasheet's is `specified_dram_bytes_per_s`.
    `measured` is what a device said of itself, by "dram" (bytes per second) or format (operations per second): memory
    clock times bus, and operations a cycle at its highest clock. `nvlink_bytes_per_s` is that of one direction, None
    where the board may have none.
    """

    product: str
    compute_capability: tuple[int, int] | None
    sm_count: int
    dram_bytes_per_s: float
    l2_bytes: int
    flops: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    note: str = ""
    specified_dram_bytes_per_s: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    nvlink_bytes_per_s: float | None = None

    def ridge(self, precision: Precision) -> float | None:
        """Operations per DRAM byte above which that format is compute-bound."""
        rate = self.flops.get(precision)
        return None if rate is None else rate / self.dram_bytes_per_s


@lru_cache(256)
def peaks(product_name: str) -> GpuPeaks | None:
    """The peaks of the GPU that calls itself `product_name` ("NVIDIA H100 80GB HBM3"), or None where it is not known.

    A name is taken only where it leaves no doubt: "NVIDIA A100" alone is None, as the 40 and 80 GB boards differ.
    """
    words = re.sub(r"[\s_-]+", " ", product_name).strip()
    for pattern, entry in ENTRIES:
        if pattern.search(words):
            return entry
    return None


# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
_CORES: Final = (
    ("", Pattern(
        r"GTX|\bMX\d{3}|\bT(?:4|5|6|10|12|20)00\b|\bT550|\bMI(?:6|8|25|50|60)\b|RX [56]\d{3}|\bW6\d{3}",
        "GPUs without tensor or matrix cores",
        ("NVIDIA GeForce GTX 1660", "NVIDIA T1000", "AMD Instinct MI50", "AMD Radeon RX 6800"), "NVIDIA T4",
    )),
    ("fp16", Pattern(
        r"\bTITAN V\b|\bG?V100\b", "GPUs whose tensor or matrix cores compute these types alone",
        ("Tesla V100-SXM2-16GB", "NVIDIA TITAN V"), "TITAN X",
    )),
    ("fp16 int8", Pattern(
        r"\bRTX 20[5-8]0\b|\bQuadro RTX\b|\bTITAN RTX\b|\bT4G?\b", "Turing",
        ("Tesla T4", "NVIDIA GeForce RTX 2080 Ti"), "RTX 3080",
    )),
    ("fp16 bf16 int8", Pattern(
        r"\bMI100\b|\bgfx908|RX 7\d{3}|\bW7\d{3}|\bgfx11|\bArc.*\bA\d{3}|\bGPU Flex\b",
        "CDNA 1, RDNA 3, Intel's Alchemist",
        ("AMD Instinct MI100", "AMD Radeon RX 7900 XTX", "Intel(R) Arc(TM) A770 Graphics"), "MI250",
    )),
    ("fp16 bf16 int8 fp64", Pattern(r"\bMI2[15]0X?\b|\bgfx90a", "CDNA 2", "AMD Instinct MI250X", "MI300X")),
    ("fp16 bf16 tf32 fp8 int8 fp64", Pattern(
        r"\bMI3[02]\d[AX]?\b|\bgfx94", "CDNA 3",
        ("AMD Instinct MI300X", "AMD Instinct MI325X"), "MI355X",
    )),
    ("fp16 bf16 fp8 fp4 int8 fp64", Pattern(r"\bMI35\d|\bgfx950", "CDNA 4", "AMD Instinct MI355X", "MI300X")),
    ("fp16 bf16 fp8 int8", Pattern(r"RX 9\d{3}|AI PRO R9|\bgfx12", "RDNA 4", "AMD Radeon RX 9070 XT", "RX 7900")),
    ("fp16 bf16 tf32 int8", Pattern(
        r"\bGPU Max\b|\bArc.*\bB\d{3}", "Intel's Ponte Vecchio and Battlemage",
        ("Intel(R) Data Center GPU Max 1550", "Intel(R) Arc(TM) B580 Graphics"), "Arc A770",
    )),
)
_PRODUCT: Final = Pattern(
    r"^(?P<unit>UTC)?(?P<kind>[A-Z])(?P<group>G)?MMA(?:\.(?P<rest>.+))?$",
    "a matmul on tensor cores: of a warp (HMMA), a warp group (HGMMA), or tensor memory (UTCHMMA)",
    ("HMMA.16816.F32.BF16", "HGMMA.64x128x16.F32.BF16", "IMMA.16832.S8.S8.SAT", "DMMA.884", "UTCHMMA"),
    ("FFMA", "UTMALDG.3D", "HMUL2.BF16_V2", "DEPBAR.LE"),
)
_BY_X: Final = Pattern(
    r"(\d{1,5})x(\d{1,5})x(\d{1,5})", "the shape of a matmul, written with signs between its sizes",
    "64x128x16", "16816",
)
# fmt: on
_UNITS_OF_CHIP: Final = {
    (7, 0): "fp16",
    (7, 2): "fp16 int8",
    (7, 5): "fp16 int8",
    (8, 0): "fp16 bf16 tf32 int8 fp64",
    (8, 6): "fp16 bf16 tf32 int8",
    (8, 7): "fp16 bf16 tf32 int8",
    (8, 9): "fp16 bf16 tf32 fp8 int8",
    (9, 0): "fp16 bf16 tf32 fp8 int8 fp64",
}  # fmt: skip


@lru_cache(256)
def matrix_types(product_name: str, capability: tuple[int, int] | None) -> frozenset[str] | None:
    """The types that the GPU's tensor or matrix cores compute; empty where it has none, None where that is not known.

    Of NVIDIA's by compute capability (CUDA C programming guide, arithmetic of tensor cores; Turing's GTX 16 and small T
    boards have none), of others' by product, whose capability means something else (CDNA and RDNA instruction set
    guides: XF32 is MI300's alone, WMMA came with RX 7000; Intel's oneAPI optimization guide: XMX).
    """
    words = re.sub(r"[\s_-]+", " ", product_name).strip()
    for types, pattern in _CORES:
        if pattern.search(words):
            return frozenset(types.split())
    known = peaks(words)
    capability = capability or (known.compute_capability if known else None)
    if capability is None or (words and vendor_of_product(words) is not NVIDIA):
        return None
    if capability[0] < 7:
        return frozenset()
    since_blackwell = "fp16 bf16 tf32 fp8 fp4 int8" if capability[0] > 9 else ""
    types = _UNITS_OF_CHIP.get(capability, since_blackwell)
    return frozenset(types.split()) or None


def lanes_of(product_name: str) -> int:
    """Threads of a warp: 64 of a wavefront on AMD's CDNA (ROCm programming guide), else 32."""
    return 2 * LANES if re.search(r"\bMI\d{2,3}", product_name) else LANES


_GRAPHICS_CHIPS: Final = ((8, 6), (8, 9), (12, 0))


@lru_cache(256)
def plain_of(kind: str, product_name: str, capability: tuple[int, int] | None) -> float | None:
    """The peak rate of fp32 over that of TF32, bf16 or fp16: of the product where it is known, else of its chip, else
    None.

    Chips for graphics compute TF32 at twice the rate of fp32, and as GeForce at the same rate: datasheets of RTX 3060
    (12.7 and 12.7 TFLOP/s), RTX 3090 (35.6, 35.6) and RTX 4090, of A10 (31.2, 62.5), RTX A6000 (38.7, 77.4) and L40S.
    """
    known = peaks(product_name)
    plain, tensor = (known.flops.get(each) if known else None for each in (Precision.FP32, Precision(kind)))
    if plain is not None and tensor is not None:
        return plain / tensor
    chip = known.compute_capability if known else capability
    if chip not in _GRAPHICS_CHIPS:
        return None
    tf32 = 1.0 if "geforce" in product_name.lower() else 0.5
    return tf32 if kind == "tf32" else tf32 / 2


@lru_cache(256)
def plain_per_double(product_name: str, capability: tuple[int, int] | None) -> float | None:
    """The peak rate of fp32 over that of fp64: of the product where it is known, else a power of two where all products
    of its chip agree on it; else None."""
    known = peaks(product_name)
    alike = [known] if known else [entry for _, entry in ENTRIES if entry.compute_capability == capability]
    rates = [entry.flops for entry in alike if Precision.FP32 in entry.flops and Precision.FP64 in entry.flops]
    ratios = {2.0 ** round(math.log2(rate[Precision.FP32] / rate[Precision.FP64])) for rate in rates}
    return ratios.pop() if len(ratios) == 1 else None


def nvlink_bytes_per_s(product_name: str) -> float | None:
    """What the NVLink of the GPU that calls itself so carries in one direction, or None where it may have none."""
    known = peaks(product_name)
    return known.nvlink_bytes_per_s if known else None


def candidates(words: str) -> tuple[GpuPeaks, ...]:
    """The GPUs that these words may mean: the one that calls itself so, else those whose product begins with them."""
    found = peaks(words)
    if found is not None:
        return (found,)
    begun = re.sub(r"[\s_-]+", " ", words).strip().casefold().removeprefix("nvidia ")
    return tuple(entry for _, entry in ENTRIES if begun and entry.product.casefold().startswith(begun))


_COLUMNS: Final = (
    "product", "driver's name", "chip", "SMs", "DRAM GB/s", "of datasheet", "L2 MiB", *Precision, "NVLink GB/s",
    "says DRAM", "says fp64", "says fp32", "source", "note",
)  # fmt: skip


def read_peaks(table: Path) -> Iterator[tuple[re.Pattern[str], GpuPeaks]]:
    """The GPUs of a table such as `gpus.txt`, each with the pattern of its driver's name; ``-`` is not known or not so.

    Rates are TFLOP/s, rates of memory and NVLink (in one direction, of boards that are sold with it only: half of what
    datasheets quote) GB/s. Of AMD's, multiprocessors are compute units, and L2 is not the Infinity Cache.
    """
    for row in read_rows(table, _COLUMNS):
        major, _, minor = row.text("chip", r"\d+\.\d+", may_lack=True).partition(".")
        said = {"dram": _scaled(row, "says DRAM", 1e9)}
        said |= {name: _scaled(row, f"says {name}", 1e12) for name in ("fp64", "fp32")}
        rates = {kind: _scaled(row, kind, 1e12) for kind in Precision}
        yield (
            _names(row),
            GpuPeaks(
                product=row.text("product"),
                compute_capability=(int(major), int(minor)) if minor else None,
                sm_count=int(row.number("SMs")),
                dram_bytes_per_s=1e9 * row.number("DRAM GB/s"),
                l2_bytes=int(row.number("L2 MiB") * 2**20),
                flops={kind: rate for kind, rate in rates.items() if rate is not None},
                source=row.text("source"),
                note=row.text("note", may_lack=True),
                specified_dram_bytes_per_s=_scaled(row, "of datasheet", 1e9),
                measured={name: rate for name, rate in said.items() if rate is not None},
                nvlink_bytes_per_s=_scaled(row, "NVLink GB/s", 1e9),
            ),
        )


def _names(row: TableRow) -> re.Pattern[str]:
    names = row.text("driver's name")
    try:
        re.compile(names)
    except re.error as error:
        raise row.damaged(f"{names!r} is no driver's name: {error}", "write a regular expression") from None
    return regex(names, re.IGNORECASE)


def _scaled(row: TableRow, column: str, unit: float) -> float | None:
    figure = row.figure(column)
    return None if figure is None else unit * figure


ENTRIES: Final = tuple(read_peaks(Path(__file__).with_suffix(".txt")))
"""Patterns of the names that drivers give, with their GPU. The first that matches decides, so a narrower one comes
before a wider one."""


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

# M, N and K are written without a sign between them.
_SHAPES: Final = ("8x8x4", "16x8x4", "16x8x8", "16x8x16", "16x8x32", "8x8x16", "8x8x32", "16x8x64")
_RUN_TOGETHER: Final = {shape.replace("x", ""): shape for shape in _SHAPES}
_HALVES: Final = {"TF32": Precision.TF32, "BF16": Precision.BF16}
# Of the other letters the format, and the operands that an opcode with a shape must name for it (int4 is an IMMA too).
_FORMATS: Final = {
    "Q": (Precision.FP8, ("E4M3", "E5M2")),
    "I": (Precision.INT8, ("S8", "U8")),
    "D": (Precision.FP64_TENSOR, ()),
}
_WARPS_OF_GROUP: Final = 4
_VOLTA_STEPS: Final = {"F32": 4, "F16": 2}  # instructions that together do four products of 8 x 8 x 4


class TensorInstruction(Record):
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
    found = _BY_X.fullmatch(_RUN_TOGETHER.get(word, word))
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


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
