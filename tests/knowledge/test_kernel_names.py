"""Kernel names seen in real traces, and what they say."""

from pathlib import Path

import pytest

from timesink.knowledge.kernels import KernelFamily as F
from timesink.knowledge.kernels import decode

TABLE = Path(__file__).with_name("kernel_names.txt").read_text(encoding="utf-8").splitlines()
SPELLINGS = [line.split(" ", 2) for line in TABLE if not line.startswith("#")]


@pytest.mark.parametrize(("family", "math", "name"), SPELLINGS)
def test_a_real_name_says_its_family_and_the_type_of_its_operands(family: str, math: str, name: str) -> None:
    decoded = decode(name)
    assert (decoded.family.value, decoded.math or "-") == (family, math)


def test_the_table_has_every_library() -> None:
    assert len(SPELLINGS) >= 120


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", (192, 208)),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4", (32, 32)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align2>", (128, 64)),
        ("ampere_sgemm_128x64_nn", (128, 64)),
    ],
)
def test_tiles_are_read_from_gemm_names(name: str, tile: tuple[int, int]) -> None:
    assert decode(name).tile == tile


@pytest.mark.parametrize("name", ["hipMemcpyDtoH", "Memcpy PtoP", "triton_poi_fused_reduce_1", "cutlass_gemm"])
def test_copies_and_computation_are_not_communication(name: str) -> None:
    assert decode(name).family is not F.COMMUNICATION
