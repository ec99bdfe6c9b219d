"""What one tensor instruction computes, against hand counts of PTX shapes."""

from __future__ import annotations

import pytest

from timesink.knowledge.gpus import Precision, TensorInstruction, tensor_instruction


@pytest.mark.parametrize(
    ("opcode", "wanted"),
    [
        ("HMMA.16816.F32.BF16", (Precision.BF16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.16816.F16", (Precision.FP16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.1688.F32.TF32", (Precision.TF32, "mma", 2 * 16 * 8 * 8)),
        ("HMMA.SP.16832.F32.BF16", (Precision.BF16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.884.F32.F32.STEP0", (Precision.FP16, "mma", 8192 / 16)),  # 16 of them make a product of 16 x 16 x 16
        ("HMMA.884.F16.F16.STEP1", (Precision.FP16, "mma", 8192 / 8)),
        ("IMMA.16832.S8.S8.SAT", (Precision.INT8, "mma", 2 * 16 * 8 * 32)),
        ("IMMA.16864.S4.S4", (None, "mma", None)),
        ("DMMA.884", (Precision.FP64_TENSOR, "mma", 2 * 8 * 8 * 4)),
        ("DMMA.8x8x4", (Precision.FP64_TENSOR, "mma", 2 * 8 * 8 * 4)),
        ("HGMMA.64x128x16.F32.BF16", (Precision.BF16, "wgmma", 2 * 64 * 128 * 16 / 4)),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", (Precision.FP8, "wgmma", 2 * 64 * 256 * 32 / 4)),
        ("IGMMA.64x64x32.S8.S8", (Precision.INT8, "wgmma", 2 * 64 * 64 * 32 / 4)),
        ("UTCHMMA.2CTA", (None, "tcgen05", None)),
        ("UTCQMMA", (Precision.FP8, "tcgen05", None)),
    ],
)
def test_operations_of_one_instruction(opcode: str, wanted: tuple[Precision | None, str, float | None]) -> None:
    assert tensor_instruction(opcode) == TensorInstruction(*wanted)


@pytest.mark.parametrize("opcode", ["FFMA", "UTMALDG.3D", "IMAD.MOV.U32", "HFMA2.MMA", "WARPGROUP.ARRIVE", ""])
def test_other_instructions_are_none(opcode: str) -> None:
    assert tensor_instruction(opcode) is None
