"""What one execution of a tensor-core instruction computes, by its opcode as the profiler prints it.

Sources: the shapes of ``mma``, ``wgmma`` and ``tcgen05.mma`` in NVIDIA's PTX ISA, and M. A. Raihan, N. Goli, T. Aamodt,
"Modeling Deep Learning Accelerator Enabled GPUs" (ISPASS 2019) for Volta's steps.
"""

from __future__ import annotations

from typing import Final

from timesink.knowledge.gpus import Precision
from timesink.knowledge.pattern import Pattern
from timesink.model.record import dataclass
from timesink.startup import regex

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
