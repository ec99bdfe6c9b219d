from __future__ import annotations

import polars as pl
import pytest
from tests.tables import trace_of

from timesink.knowledge.collectives import kind_of_kernel
from timesink.knowledge.op_class import communicates, op_class
from timesink.model.tables import DEVICE_OPS

COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
    "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 4>",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true>",
    "multimem_all_reduce_kernel<c10::BFloat16, 16>",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "nvshmemi_transfer_rma_p",
    "mscclKernel_Sum_half_LL_false",
)
NO_COLLECTIVES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "hipMemcpyAsync",
    "void softmax_warp_forward<warpAllReduce<MaxOp>>",
    "void at::native::index_put_with_sort_kernel",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs",
    "moe_dispatch_kernel",
)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_communicate(name: str) -> None:
    assert communicates(pl.Series([name], dtype=pl.Categorical())).to_list() == [True]


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, true>(c10::BFloat16**)",
        "(anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16>(float**, unsigned long)",
        "void sglang::(anonymous namespace)::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)",
        "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_a_namespace_without_a_name_hides_no_kind(name: str) -> None:
    assert kind_of_kernel(name) == "allreduce"


@pytest.mark.parametrize("name", NO_COLLECTIVES)
def test_other_kernels_do_not(name: str) -> None:
    assert communicates(pl.Series([name], dtype=pl.Categorical())).to_list() == [False]


def test_only_kernels_communicate_and_only_copies_copy() -> None:
    ops = trace_of("""
        | device_ops  | kind   | name                | copy_kind | start_ns | end_ns |
        | kernel      | kernel | gemm                |           |        0 |      1 |
        | collective  | kernel | ncclDevKernel_X     |           |        1 |      2 |
        | to a peer   | copy   | Memcpy PtoP nccl    | p2p       |        2 |      3 |
        | memset      | set    | Memset              |           |        3 |      4 |
        | whole graph | graph  | nccl graph          |           |        4 |      5 |
        """)[DEVICE_OPS]
    assert op_class(ops).to_list() == ["compute", "communication", "copy", "compute", "compute"]
