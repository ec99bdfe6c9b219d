"""Collectives: kernels of every library that communicate, and what each kind of call moves and waits for."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
COMMUNICATION: Final = Pattern(
    "(?i)nccl|rccl|hccl|msccl|oneccl|nvshmem|deep_ep::|deepep|(?:^|[^a-z])(?:ucc_|uct_|ucp_|ucx_)"
    "|(?:^|[_: ])ep::(?:internode|intranode|layout|cuda)|mori::moe::Ep(?:Dispatch|Combine)"
    "|moeA2A(?:Prepare)?(?:Dispatch|Combine)|userbuffers_|cross_device_(reduce|store)|lamport|quick_?reduce"
    "|(?:^|[^kp])all_?reduce|all_?gather|reduce_?scatter|all_to_?all|allto_?all",
    "a kernel that communicates (NCCL, RCCL, oneCCL, HCCL, MSCCL, NVSHMEM, DeepEP, UCCL, pplx, Mori, UCC, UCX, "
    "TransformerEngine, serving engines)",
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "rcclGenericKernel",
     "hcclAicpuKernel", "mscclKernel_Sum_float_Simple", "nvshmemi_transfer_rma_threadgroup",
     "deep_ep::intranode::dispatch<8, 768>", "dpsk::ep::internode_ll::combine", "void acme::ep::cuda::layout<256>",
     "cross_device_reduce_1stage<float, 8>", "ucc_tl_cuda_reduce", "uct_cuda_ipc_put",
     "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>",
     "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>", "tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel",
     "pplx::all_to_all::internode::dispatchKernel<64>", "uccl::ep::internode_ll::dispatch", "kuserbuffers_pushrecv<4>"),
    ("cub::warpAllReduce", "blockAllReduceSum", "gather_kernel", "success_kernel", "hipMemcpy",
     "moe_permute_dispatch_kernel", "_moe_combine_triton"),
)
NCCL_KERNEL: Final = Pattern(
    "^(?:void )?(?:nccl|rccl|oneccl)(?:Dev|Sym)?Kernel", "a kernel of a collective that PyTorch describes",
    ("ncclDevKernel_AllGather_RING_LL", "ncclKernel_SendRecv", "void ncclSymKernel_AllReduce"),
    "cross_device_reduce_1stage",
)
UP_TO_KIND: Final = Pattern(
    "^.*?Kernel_?", "what a kernel's name says before the kind",
    "ncclDevKernel_AllReduce", "allreduce",
)
EXPERT_EXCHANGE: Final = Pattern(
    r"(?:^|[_:])ep::\w+::(dispatch|combine)\b|mori::moe::Ep(?:Dispatch|Combine)|moeA2A(?:Dispatch|Combine)",
    "tokens go to the GPUs of their experts, or come back: an all-to-all (DeepEP, UCCL, Mori, TensorRT-LLM)",
    ("deep_ep::intranode::dispatch<8, 768>", "dpsk::ep::internode::combine<false>",
     "mori::moe::EpCombineInterNodeKernel", "moeA2ADispatchKernel"),
    ("dpsk::ep::internode::cached_notify<false>", "moeA2APrepareDispatchKernel"),
)
EXPERT_NOTICE: Final = Pattern(
    r"(?:^|[_:])ep::\w+::(cached_)?notify(_dispatch|_combine)?\b",
    "every GPU waits until all say what they send or that they are there (DeepEP, UCCL)",
    ("deep_ep::intranode::notify_dispatch<8>", "dpsk::ep::internode::cached_notify<false>"),
    "deep_ep::intranode::dispatch<8, 768>",
)
# fmt: on


# Longer words first: "allreduce" holds "reduce", "sendrecv" holds "send".
COLLECTIVE_WORDS: Final = (
    "reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "sendrecv", "barrier",
    "scatter", "gather", "reduce", "send", "recv",
)  # fmt: skip
_CUSTOM_ALL_REDUCE: Final = ("crossdevicereduce", "lamport", "quickreduce", "multimem")

# Every rank needs every rank's data: nobody leaves before the last has come. Others are one-sided.
ALL_TO_ALL: Final = "alltoall"  # ranks may send each other different amounts
BARRIERS: Final = frozenset({"allreduce", "allgather", "reducescatter", ALL_TO_ALL, "barrier"})
ALIKE_ENDS: Final = BARRIERS - {ALL_TO_ALL}
"""Each rank moves as much as every other: they are over together, but for the last piece on its way."""
POINT_TO_POINT: Final = frozenset({"send", "recv"})
# An exchange that NCCL runs as sends and receives: every rank takes part, but the name does not prove it.
EXCHANGE: Final = "sendrecv"

# Bus bandwidth = algorithm bandwidth x this (nccl-tests, PERFORMANCE.md), n the number of ranks.
BUS_FACTORS: Final[Mapping[str, Callable[[int], float]]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "send": lambda n: 1.0,
    "recv": lambda n: 1.0,
}


def letters(name: str) -> str:
    """The name in small letters, without anything else."""
    return "".join(letter for letter in name.lower() if "a" <= letter <= "z")


def after_kernel(name: str) -> str:
    """What follows the word Kernel, where libraries write the kind."""
    return re.sub(UP_TO_KIND, "", name)


def kind_of_kernel(name: str) -> str:
    """The collective that a communication kernel runs, by its name; `unknown` where the name does not say."""
    head = name.replace("(anonymous namespace)::", "").split("(", maxsplit=1)[0].removeprefix("void ")
    compact = letters(after_kernel(head)) or letters(head)
    if re.search(EXPERT_EXCHANGE, head):
        return ALL_TO_ALL
    if re.search(EXPERT_NOTICE, head):
        return "barrier"
    if any(word in compact for word in _CUSTOM_ALL_REDUCE):
        return "allreduce"
    return next((word for word in COLLECTIVE_WORDS if word in compact), "unknown")


def message_bytes(kind: str, in_bytes: int | None, out_bytes: int | None) -> int | None:
    """The S of nccl-tests: the whole array, which all-gather puts out and reduce-scatter takes in."""
    return out_bytes if kind in ("allgather", "recv") else in_bytes
