"""What a kernel's name says: family, arithmetic type, tile. What a device operation is for says `op_class`.

It needs no Polars, since what verifies a program shows kernels' names where there is none.

Names are conventions of the libraries that launch the kernels, read from public traces (cuBLAS nvjet and xmma, cuDNN,
CUTLASS, FlashAttention, Triton as TorchInductor names it, NCCL and RCCL, ATen, Tensile, MIOpen, CUB). A name that no
pattern knows is `OTHER`; nothing is inferred from silence.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from timesink.knowledge import Patterns, collectives
from timesink.knowledge.kernel_symbols import Symbol, symbol_of
from timesink.records import Record
from timesink.startup import regex


class KernelFamily(StrEnum):
    """What kind of work a kernel does, as far as its name tells."""

    GEMM = "gemm"
    GEMV = "gemv"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    LAYOUT = "layout"
    COPY = "copy"
    FILL = "fill"
    POINTWISE = "pointwise"
    FOREACH = "foreach"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    NORM = "norm"
    INDEX = "index"
    CONCAT = "concat"
    SORT_SCAN = "sort_scan"
    RANDOM = "random"
    LOSS = "loss"
    POOLING = "pooling"
    COMMUNICATION = "communication"
    DELAY = "delay"
    OTHER = "other"


class KernelName(Record):
    """`math` is the arithmetic path (fp32 means plain CUDA-core multiply-adds); `tile` is rows x columns as written;
    `fused` names the compiler that generated the kernel, where one did."""

    family: KernelFamily
    math: str | None = None
    tile: tuple[int, int] | None = None
    fused: str | None = None


_NVJET_LETTER = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "d": "fp64", "i": "int8", "o": "fp4"}
_TENSILE_LETTER = {
    "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "fp32", "Z": "fp64", "X": "tf32", "F8": "fp8", "B8": "fp8",
    "I8": "int8", "4xi8": "int8",
}  # fmt: skip

_FAMILY_PATTERNS: Final = Patterns(__file__).kind("FAMILY_PATTERNS")
_FAMILIES = (
    (KernelFamily.COMMUNICATION, regex(collectives.COMMUNICATION)),
    *((KernelFamily(kind.split()[0]), regex(pattern, re.IGNORECASE)) for kind, pattern in _FAMILY_PATTERNS.items()),
)

_FUSED = (("inductor", regex(r"^triton_(?:poi|red|per|tem)_fused|^triton_mm")), ("nvfuser", regex(r"nvfuser_")))

_FROM_NAME: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fp4", regex(r"e2m1|nvfp4|xf4_", re.IGNORECASE)),
    ("fp8", regex(r"e4m3|e5m2|fp8|f8f8|float8", re.IGNORECASE)),
    ("tf32", regex(r"tf32", re.IGNORECASE)),
    ("bf16", regex(r"bf16|bfloat16", re.IGNORECASE)),
    ("fp16", regex(r"(?<![a-z])h(?:884|1688|16816|gemm)|fp16|(?<!wgmma_)f16|half(?![a-z])|s884", re.IGNORECASE)),
    ("int8", regex(r"imma|int8|s8s8|i8i8|i8816|i16832", re.IGNORECASE)),
    ("fp64", regex(r"(?<![a-z])[dz]gemm|fp64|f64|d884|dmma|(?<!_float_)double", re.IGNORECASE)),
    ("tf32", regex(r"^(?!.*(?:turing|_75_)).*s1688(?:gemm|fprop|dgrad|wgrad)", re.IGNORECASE)),
    (
        "fp32",
        regex(
            r"(?<![a-z])s(?:gemm|cudnn)|fp32|f32f32|ffma|(?<![a-z])g?cgemm|simt|_float_|_f32(?![a-z\d])", re.IGNORECASE
        ),
    ),
)
"""What libraries write into the names of their products, the narrowest first: `fp16_s1688gemm` has operands of fp16,
and `s1688gemm` without a type of 32 bits, which go through tensor cores as TF32."""
_NARROW: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fp4", regex(r"e2m1|nvfp4", re.IGNORECASE)),
    ("fp8", regex(r"e4m3|e5m2|fp8|float8", re.IGNORECASE)),
    ("tf32", regex(r"tf32|tfloat32", re.IGNORECASE)),
    ("bf16", regex(r"bf16|bfloat|bhalf_t|DF16b", re.IGNORECASE)),
    ("fp16", regex(r"half(?![a-z])|float16|(?<!b)fp?16", re.IGNORECASE)),
)
_WIDE = regex(r"(?<![\w:])(?:float[24]?|double)(?!\w)")

_TILES = (
    regex(r"nvjet_(?:sm\d+_)?[a-z]{3,6}_(\d{1,5})x(\d{1,5})_"),
    regex(r"tilesize(\d{1,5})x(\d{1,5})x\d+"),
    regex(r"_MT(\d{1,5})x(\d{1,5})x\d+"),
    regex(r"gemm(?:_[a-z]\w*?)?_(\d{1,5})x(\d{1,5})(?:_|$)"),
)
_NVJET = regex(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_(?!tf32)")
_TENSILE = regex(r"Cijk_\w+?_B\w{3}_(4xi8|[FB]8|I8|[SDCZHBX](?![a-z]))[A-Z\d]*_(MX_)?")
_TRTLLM = regex(r"^(?:bmm|gemm)_(?:Mx)?[A-Z][a-z\d]+_(?:Mx)?([A-Z][a-z]*\d+(?:m\d)?)")

_LONGEST = 16384  # the longest name seen in a capture has a third of that


PRODUCTS = (KernelFamily.GEMM, KernelFamily.CONVOLUTION, KernelFamily.ATTENTION)
"""Families whose libraries write types into their names, and which tensor cores compute."""


@lru_cache(maxsize=65536)
def decode(name: str) -> KernelName:
    """What the name says. Demangled, mangled and short names are all accepted; templates are read as text.

    Of a longer name than compilers write, the beginning is read.
    """
    name = name[:_LONGEST]
    symbol = symbol_of(name)
    operation, family = symbol, KernelFamily.OTHER
    for operation in symbol.operations():
        read = " ".join((operation.path, *operation.types)) if operation.applies else operation.path
        family = next((family for family, pattern in _FAMILIES if pattern.search(read)), KernelFamily.OTHER)
        if family is not KernelFamily.OTHER:
            break
    return KernelName(
        family=family,
        math=None if family is KernelFamily.COMMUNICATION else _math(operation, family),
        tile=next(((int(m[1]), int(m[2])) for p in _TILES if (m := p.search(name))), None),
        fused=next((tool for tool, pattern in _FUSED if pattern.search(name)), None),
    )


def _math(symbol: Symbol, family: KernelFamily) -> str | None:
    """The type of the operands: as the library writes it, else as the arguments of the function are typed.

    A 16-bit type is there for operands alone, whatever the library's name says that they are summed in
    (`implicit_convolve_sgemm<__half>`). A float or double may be what a product is summed in: such an argument counts
    where it is the function's own.
    """
    path = symbol.path
    if nvjet := _NVJET.search(path):
        return _NVJET_LETTER.get(nvjet[1])
    if tensile := _TENSILE.search(path):
        return "tf32" if tensile[2] else _TENSILE_LETTER.get(tensile[1])
    if llm := _TRTLLM.search(path):
        path = llm[1]
    types = ", ".join(symbol.types)
    if family in PRODUCTS and (named := _first(_FROM_NAME, path)):
        return named if named != "fp32" else _first(_NARROW, types) or named
    sized = family in (*PRODUCTS, KernelFamily.LAYOUT)  # or a library means bytes by it
    if narrow := _first(_NARROW, types if sized else f"{path} {types}"):
        return narrow
    if symbol.applies:
        wide = next(iter(_WIDE.findall(types)), None)
    else:
        wide = next((text for text in symbol.types if _WIDE.fullmatch(text)), None)
    if wide is None or "splitk" in path.lower():  # sums what others multiplied
        return None
    return "fp64" if wide == "double" else "fp32"


def _first(patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((kind for kind, pattern in patterns if pattern.search(text)), None)
