"""What a recording of a call on a GPU shows of both sides: six cheats are pointed at, three honest changes are not."""

import json
from pathlib import Path

import pytest
from benchmarks.adversary import compare_work

from timesink.model.trace import Trace
from timesink.readers import read

SGEMM, ADD = "ampere_sgemm_128x64_nn", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel"
FP16 = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn"
BF16 = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
FUSED = "triton_poi_fused_add_gelu_0"
ROWS, PART, LARGEST = [[512, 64], [64, 64]], [[384, 64], [64, 64]], 512 * 64
PLAIN = (SGEMM, ADD)


def call(folder: Path, kernels: tuple[str, ...], shapes: list[list[int]] | None = ROWS) -> Trace:
    """One call: an operator for each kernel, or a product on the CPU where `shapes` are given and no kernel is."""
    events = []
    for at, kernel in enumerate(kernels):
        ids = {"External id": at + 1, "correlation": at + 1}
        for cat, name, args in (
            ("cpu_op", "aten::mm", {"Input Dims": shapes, "Input type": ["float", "float"], **ids}),
            ("cuda_runtime", "cudaLaunchKernel", ids),
            ("kernel", kernel, {"stream": 7, "device": 0, **ids}),
        ):
            on_gpu = cat == "kernel"
            place = {"pid": 0 if on_gpu else 9, "tid": 7 if on_gpu else 9, "ts": 10.0 * at + 5 * on_gpu, "dur": 4.0}
            events.append({"ph": "X", "cat": cat, "name": name, "args": args, **place})
    if shapes and not kernels:
        dims = {"Input Dims": shapes, "Input type": ["float", "float"]}
        place = {"pid": 9, "tid": 9, "ts": 1, "dur": 4}
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": dims, **place})
    path = folder / "call.json"
    path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "traceEvents": events}))
    return read(path, cache=False)


CHEATS = {
    "tf32": ((TF32, ADD), ROWS, "it computes in tf32"),
    "half": ((FP16, ADD), ROWS, "it computes in fp16"),
    "bfloat16": ((BF16, ADD), ROWS, "it computes in bf16"),
    "skips rows": ((FUSED,), PART, "no operator reads more than 24,576 of an input's 32,768 elements"),
    "on the CPU": ((), ROWS, "it runs no kernel on the GPU, and 2 kernels before"),
}
HONEST = {"fused": (SGEMM, FUSED), "one kernel": (FUSED,), "in pieces": (SGEMM, SGEMM, ADD)}


@pytest.mark.parametrize("cheat", CHEATS)
def test_kernels_that_do_less_are_pointed_at(cheat: str, tmp_path: Path) -> None:
    kernels, shapes, wanted = CHEATS[cheat]
    told = compare_work(call(tmp_path, PLAIN), call(tmp_path, kernels, shapes), LARGEST)
    assert told[0].startswith(f"look at the changed side: {wanted}")


@pytest.mark.parametrize("change", HONEST)
def test_other_kernels_of_the_same_work_are_counted(change: str, tmp_path: Path) -> None:
    told = compare_work(call(tmp_path, PLAIN), call(tmp_path, HONEST[change]), LARGEST)
    assert len(told) == 1
    assert told[0].startswith("kernels of a call: ")


def test_the_same_kernels_are_no_change(tmp_path: Path) -> None:
    told = compare_work(call(tmp_path, PLAIN), call(tmp_path, PLAIN), LARGEST)
    assert told == ["both sides run the same 2 kernels: PyTorch saw no change"]
