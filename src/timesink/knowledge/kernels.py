"""What a kernel's name says: family, arithmetic type, tile. What a device operation is for says `op_class`.

It needs no Polars, since what verifies a program shows kernels' names where there is none.

Names are conventions of the libraries that launch the kernels, read from public traces (cuBLAS nvjet and xmma, cuDNN,
CUTLASS, FlashAttention, Triton as TorchInductor names it, NCCL and RCCL, ATen, Tensile, MIOpen, CUB). A name that no
pattern knows is `OTHER`; nothing is inferred from silence.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern, Patterns, collectives
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

_FILE: Final = Patterns(__file__)
_FAMILIES = (
    (KernelFamily.COMMUNICATION, regex(collectives.COMMUNICATION)),
    *(
        (KernelFamily(kind.split()[0]), regex(pattern, re.IGNORECASE))
        for kind, pattern in _FILE.kind("FAMILY_PATTERNS").items()
    ),
)


def _in_turn(kind: str) -> tuple[tuple[str, Pattern], ...]:
    """Patterns of a kind, which are tried in turn, with the first word of each key."""
    return tuple((key.split()[0], pattern) for key, pattern in _FILE.kind(kind).items())


_FROM_NAME: Final = _in_turn("PRODUCT_TYPES")
"""What libraries write into the names of their products, the narrowest first: `fp16_s1688gemm` has operands of fp16,
and `s1688gemm` without a type of 32 bits, which go through tensor cores as TF32."""
_NARROW, _TILES, _FUSED = map(_in_turn, ("NARROW_TYPES", "TILES", "FUSED"))

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
        tile=next(((int(m[1]), int(m[2])) for _, p in _TILES if (m := p.search(name))), None),
        fused=next((tool for tool, pattern in _FUSED if pattern.search(name)), None),
    )


def _math(symbol: Symbol, family: KernelFamily) -> str | None:
    """The type of the operands: as the library writes it, else as the arguments of the function are typed.

    A 16-bit type is there for operands alone, whatever the library's name says that they are summed in
    (`implicit_convolve_sgemm<__half>`). A float or double may be what a product is summed in: such an argument counts
    where it is the function's own.
    """
    path = symbol.path
    if nvjet := _FILE.NVJET.search(path):
        return _NVJET_LETTER.get(nvjet[1])
    if tensile := _FILE.TENSILE.search(path):
        return "tf32" if tensile[2] else _TENSILE_LETTER.get(tensile[1])
    if llm := _FILE.TRTLLM.search(path):
        path = llm[1]
    types = ", ".join(symbol.types)
    if family in PRODUCTS and (named := _first(_FROM_NAME, path)):
        return named if named != "fp32" else _first(_NARROW, types) or named
    sized = family in (*PRODUCTS, KernelFamily.LAYOUT)  # or a library means bytes by it
    if narrow := _first(_NARROW, types if sized else f"{path} {types}"):
        return narrow
    if symbol.applies:
        wide = next(iter(_FILE.WIDE.findall(types)), None)
    else:
        wide = next((text for text in symbol.types if _FILE.WIDE.fullmatch(text)), None)
    if wide is None or "splitk" in path.lower():  # sums what others multiplied
        return None
    return "fp64" if wide == "double" else "fp32"


def _first(patterns: tuple[tuple[str, Pattern], ...], text: str) -> str | None:
    return next((kind for kind, pattern in patterns if pattern.search(text)), None)
