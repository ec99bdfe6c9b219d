"""What is said of captures, of invented rows, whose kernels or devices are easily taken for others."""

from pathlib import Path

import pytest
from tests.gate.prices import unlike_what_if
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.fixes import Fix
from timesink.fixes.compute import BF16, BF16_WEIGHTS, FP16, TF32
from timesink.measures.habits.repeated_kernels import parameter_loops
from timesink.readers import read

CASES = Path(__file__).parents[1] / "data" / "cases"


@pytest.mark.parametrize("name", ["02_v100_fp32.json.gz", "03_t4_bf16.json.gz"])
def test_a_gpu_whose_tensor_cores_take_fp16_alone_is_offered_that_and_nothing_else(name: str) -> None:
    trace = read(CASES / name)
    (advice,) = (finding.advice for _, finding in diagnose(trace).findings)
    assert "fp16" in advice and "bf16" not in advice and "TF32" not in advice
    offered = {fix.name: sum(change.rows.size for change in fix.replay(trace)) for fix in (TF32, BF16, FP16)}
    assert offered == {"tf32": 0, "bf16": 0, "fp16": 5 * (20 if "v100" in name else 4)}


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        pytest.param("01_t4_fp16_named_s1688.json.gz", set(), id="fp16 matmuls whose names begin as those of TF32"),
        pytest.param("02_v100_fp32.json.gz", {"precision"}, id="fp32 matmuls on Volta"),
        pytest.param("03_t4_bf16.json.gz", {"precision"}, id="bf16 matmuls on Turing"),
        pytest.param("11_reductions_read_one_by_one.json.gz", {"host-sync"}, id="sums that are read one by one"),
        pytest.param("half_warp_blocks.sqlite", {"unused-lanes"}, id="16 threads a block"),
        pytest.param("gemm_nopermute.sqlite", set(), id="a matmul with an argument NoPermute"),
    ],
)
def test_findings_are_those_that_the_rows_bear_out(name: str, findings: set[str]) -> None:
    assert {card.name for card, _ in diagnose(read(CASES / name)).findings} == findings


@pytest.mark.parametrize(("kernel", "expected"), [("FillFunctor<float>", 24), ("CUDAFunctor_add<float>", 0)])
def test_gradients_zeroed_one_by_one_are_a_loop_though_all_have_one_size(kernel: str, expected: int) -> None:
    """Fills read nothing; additions of one size may be a chain."""
    name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{kernel}>"
    ops = [f"| k | `{name}` | {20 * at + 9} | {20 * at + 11} | 1 | {at} |" for at in range(24)]
    calls = [f"| c | cudaLaunchKernel | {20 * at} | {20 * at + 6} | {at} |" for at in range(24)]
    tables = (
        "| device_ops | name | start_us | end_us | grid_x | correlation |",
        *ops,
        "",
        "| api_calls | name | start_us | end_us | correlation |",
        *calls,
    )
    assert sum(loop.rows.size for loop in parameter_loops(trace_of("\n".join(tables)))) == expected


SGEMM, BF16_GEMM = "volta_sgemm_128x64_nn", "turing_bf16_s1688gemm_bf16_128x64_nn"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl<float>>"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>"
MIXES = {"matmuls": (SGEMM,), "matmuls and kernels around": (SGEMM, GELU, SGEMM), "vectors": (SGEMM, GEMV, GELU)}


@pytest.mark.slow
@pytest.mark.parametrize("kernels", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize(
    ("gpu", "capability", "fix"),
    [
        ("Tesla V100-PCIE-32GB", "7 | 0", FP16), ("NVIDIA TITAN V", "7 | 0", FP16), ("Tesla T4", "7 | 5", FP16),
        ("Quadro RTX 8000", "7 | 5", FP16), ("NVIDIA GeForce RTX 4090", "8 | 9", BF16_WEIGHTS),
        ("NVIDIA GeForce RTX 3080", "8 | 6", BF16_WEIGHTS), ("AMD Instinct MI250X", "9 | 0", BF16_WEIGHTS),
        ("NVIDIA A100-SXM4-40GB", "8 | 0", TF32),
    ],
)  # fmt: skip
def test_a_narrower_type_has_one_price_on_every_gpu(
    gpu: str, capability: str, fix: Fix, kernels: tuple[str, ...]
) -> None:
    """The finding is of the kernels that its fix changes: products, and what streams between them."""
    rows = "\n".join(f"| k | `{name}` | {1000 * at} | {1000 * at + 990} |" for at, name in enumerate(kernels * 8))
    trace = trace_of(f"""
| devices | device | name | compute_major | compute_minor |
| gpu | 0 | {gpu} | {capability} |

| device_ops | name | start_us | end_us |
{rows}
""")
    (finding,) = [finding for card, finding in diagnose(trace).findings if card.name == "precision"]
    assert finding.fix is fix
    assert list(unlike_what_if(trace, finding)) == []
    assert ("around them" in finding.message) is (GELU in kernels and fix is not TF32)


@pytest.mark.parametrize("fp32", [1, 5])
def test_products_of_two_types_are_one_finding_named_by_most_of_them(fp32: int) -> None:
    names = [SGEMM] * fp32 + [BF16_GEMM] * 3
    rows = "\n".join(f"| k | `{name}` | {1000 * at} | {1000 * at + 990} |" for at, name in enumerate(names))
    trace = trace_of(f"""
| devices | device | name     | compute_major | compute_minor |
| gpu     |      0 | Tesla T4 |             7 |             5 |

| device_ops | name | start_us | end_us |
{rows}
""")
    (finding,) = [finding for card, finding in diagnose(trace).findings if card.name == "precision"]
    assert finding.message.startswith("fp32 matmuls" if fp32 > 3 else "bf16 matmuls, which this GPU emulates,")
    assert list(unlike_what_if(trace, finding)) == []
