"""The ledger of a product in FP8: which kernels make its operands, and from how many rows on it wins."""

import json
import lzma
from itertools import pairwise
from math import hypot, inf, sqrt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import trace_of

from timesink.measures.kernels.quantised import QuantisedProduct, quantised_products
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace
from timesink.views.classify import rows_text

ABS = "vectorized_elementwise_kernel<4, at::native::abs_kernel_cuda(at::TensorIteratorBase&)>"
MAX = "reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>>>"
MUL = "vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, MulFunctor<float>>>"
CAST = "vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>"
DIV = "vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float, float, DivFunctor<float>>>"
GELU = "vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>"
PRODUCT = "nvjet_qqtst_128x256_128x4_2x1_v_bz_coopA_TNN"
BF16 = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN"

M, K, N = 8192, 4096, 14336
ACTIVATION = [(GELU, 50, M * K), (ABS, 40, M * K), (MAX, 30, M * K), (MUL, 60, M * K), (CAST, 50, M * K), (DIV, 2, 1)]
WEIGHTS = [(ABS, 70, N * K), (MAX, 52, N * K), (MUL, 105, N * K), (CAST, 88, N * K), (DIV, 2, 1)]
MULTIPLIED = [(PRODUCT, 800, 0)]


def trace_with(*kernels: tuple[str, int, int], recorded: bool = True, gpu: str = "NVIDIA H100 80GB HBM3") -> Trace:
    """Three times these kernels on one stream: name, us, elements of what they read (0 for the product)."""
    ops, hosts, calls, now = [], [], [], 0
    for number, (name, length, elements) in enumerate([*kernels] * 3):
        shapes = f"[[{elements}]]" if elements else f"[[{M},{K}],[{K},{N}],[],[]]"
        operator = "aten::copy_" if elements else "aten::mm" if name == BF16 else "aten::_scaled_mm"
        ops.append(f"| k | `{name}` | {now} | {now + length} | 7 | {number} |")
        calls.append(f"| c | cudaLaunchKernel | {number} | {-1000 + number * 3 + 1} | {-1000 + number * 3 + 2} |")
        hosts.append(f"| h | {operator} | {-1000 + number * 3} | {-1000 + number * 3 + 3} | `{shapes}` |")
        now += length + 1
    tables = [
        ("| device_ops | name | start_us | end_us | stream | correlation |", ops),
        ("| api_calls | name | correlation | start_us | end_us |", calls),
        ("| devices | device | name |", [f"| gpu | 0 | {gpu} |"]),
    ]
    if recorded:
        tables.append(("| host_ops | name | start_us | end_us | input_shapes |", hosts))
    return trace_of("\n\n".join("\n".join((head, *rows)) for head, rows in tables))


def only(trace: Trace) -> QuantisedProduct:
    (found,) = quantised_products(trace)
    return found


def test_every_kernel_from_the_amax_to_the_cast_makes_an_operand_and_what_comes_before_does_not() -> None:
    found = only(trace_with(*ACTIVATION, *WEIGHTS, *MULTIPLIED))
    assert (found.rows, found.inner, found.columns, found.calls) == (M, K, N, 3)
    assert found.activation_ns == 182_000 and found.weights_ns == 317_000
    assert (found.amax_ns, found.cast_ns, found.scale_ns) == (192_000, 138_000, 169_000)
    assert found.whole_ns == 1_299_000


@pytest.mark.parametrize("first", [ACTIVATION, WEIGHTS], ids=["activation first", "weights first"])
def test_shapes_say_whose_chain_it_is_in_either_order(first: list[tuple[str, int, int]]) -> None:
    second = WEIGHTS if first is ACTIVATION else ACTIVATION
    found = only(trace_with(*first, *second, *MULTIPLIED))
    assert found.activation_ns == 182_000 and found.weights_ns == 317_000


def test_without_shapes_the_first_chain_is_the_activations_and_one_alone_too() -> None:
    found = only(trace_with(*ACTIVATION, *WEIGHTS, *MULTIPLIED, recorded=False))
    assert found.activation_ns == 182_000 and found.weights_ns == 317_000
    assert found.wide_ns is None and found.break_even_rows() is None
    alone = only(trace_with(*ACTIVATION, *MULTIPLIED, recorded=False))
    assert alone.activation_ns == 182_000 and alone.weights_ns == 0


def test_weights_that_were_made_before_cost_nothing_and_few_rows_have_to_pay_for_five_kernels() -> None:
    """Between two kernels lies 1 us, and one that does next to nothing takes 1 at most."""
    found = only(trace_with(*ACTIVATION, *MULTIPLIED))
    assert found.weights_ns == 0 and found.wide_ns is not None
    saved = found.wide_ns / 1e3 - 800 - (182 - 5 * 1)
    of_arithmetic = replace(found, reads_ns=0.0, wide_reads_ns=0.0)
    assert of_arithmetic.break_even_rows() == pytest.approx(5 * (1 + 1) * M / saved)
    assert replace(found, kernels=(0, 0), activation_ns=0).break_even_rows() == 0.0
    assert rows_text(0.0) == "always" and rows_text(inf) == "never" and rows_text(1234.4) == "1,234 rows"


def test_the_break_even_is_where_both_take_the_same_time() -> None:
    """In 16 bits the product takes 1,500 us, so a row saves (1500 - 800 - 177) / 8192 us: of the five kernels that make
    the activation 1 us each does not depend on rows. Before each of the ten kernels lies 1 us."""
    trace = trace_with(*ACTIVATION, *WEIGHTS, *MULTIPLIED, (BF16, 1500, 0))
    found = next(one for one in quantised_products(trace) if one.math == "fp8")
    assert found.wide_ns == 1_500_000
    rows = replace(found, reads_ns=0.0, wide_reads_ns=0.0).break_even_rows()
    assert rows is not None
    assert rows == pytest.approx((317 + 5 + 5 * (1 + 1)) / ((1500 - 800 - 177) / M))
    share, always = rows / M, 317_000 + 5_000 + 10_000
    assert share * (found.product_ns + found.activation_ns - 5_000) + always == pytest.approx(share * 1_500_000)


def test_weights_of_half_the_bytes_win_at_any_number_of_rows_where_reading_them_takes_longer_than_the_kernels() -> None:
    """4096 x 14336 weights take 36 us to read from an H100's memory in 16 bits, and half of that in 8."""
    found = only(trace_with(*ACTIVATION, *MULTIPLIED))
    assert found.wide_reads_ns == 2 * found.reads_ns == pytest.approx(36_000, rel=0.2)
    assert found.reads_ns > 5 * (found.gap_ns + found.least_ns) and found.break_even_rows() == 0.0
    slow = replace(found, activation_ns=5e6)
    assert slow.break_even_rows() is None  # few rows win, many lose
    assert replace(slow, gap_ns=20_000.0).break_even_rows() == inf


@given(
    product=st.floats(1e4, 1e6),
    times=st.floats(1.3, 2),
    reads=st.floats(0, 1e5),
    making=st.floats(0, 1e6),
    gap=st.floats(0, 1e4),
)
def test_more_rows_than_the_break_even_win_and_fewer_lose(
    product: float, times: float, reads: float, making: float, gap: float
) -> None:
    planted = replace(
        only(trace_with(*ACTIVATION, *MULTIPLIED)), product_ns=product, wide_ns=times * product, activation_ns=making,
        reads_ns=reads, wide_reads_ns=times * reads, gap_ns=gap, least_ns=gap,
    )  # fmt: skip

    def wins(rows: float) -> bool:
        share, read = rows / M, min(reads, product)
        saved = (times - 1) * hypot(read, share * sqrt(product**2 - read**2))
        return saved > 10 * gap + share * max(0.0, making - 5 * gap)

    rows = planted.break_even_rows()
    if rows is None:
        assert wins(1) and not wins(1e9)
    elif rows == inf:
        assert not any(wins(2.0**power) for power in range(25))
    else:
        assert wins(1.1 * max(rows, 1)) and (rows == 0 or not wins(0.9 * rows))


def test_it_never_wins_where_making_the_activation_takes_more_than_the_product_saves() -> None:
    slow = [(name, 10 * length, elements) for name, length, elements in ACTIVATION]
    found = replace(only(trace_with(*slow, *MULTIPLIED)), gap_ns=10_000.0)
    assert found.break_even_rows() == inf and found.break_even_rows(keeps_weights=True) == inf
    fused = found.break_even_rows(keeps_weights=True, fuses=True)
    assert fused is not None and 0 < fused < M


def test_a_product_of_four_bits_takes_less_twice_over() -> None:
    """In FP8 1.75 times less than in 16 bits, and in FP4 as much less again, where the peaks of the GPU allow it."""
    cast = [("void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>", 60, M * K)]
    narrow = "nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT"
    found = only(trace_with(*cast, (narrow, 400, 0), gpu="NVIDIA B200"))
    assert (found.math, found.activation_ns, found.cast_ns) == ("fp4", 60_000, 60_000)
    assert found.wide_ns == pytest.approx(1.75**2 * 400_000) and found.wide_reads_ns == 4 * found.reads_ns
    assert found.break_even_rows() == 0.0


def test_products_of_sixteen_bits_have_no_ledger() -> None:
    assert quantised_products(trace_with((GELU, 50, M * K), (BF16, 1500, 0))) == ()


FP8 = Path(__file__).parents[3] / "benchmarks" / "kernels" / "fp8"
LAYERS = (("dynamic", False), ("weights", True), ("fused", False), ("fused_weights", True))


def measured_rows(inner: int, columns: int, mode: str) -> float:
    """From how many rows on a layer was faster than in bf16, between two sizes that were measured; infinite where it
    was not at the largest, 0 where it was at all."""
    times = json.loads((FP8 / "times.json").read_text("utf-8"))
    own = [row for row in times if (row["k"], row["n"]) == (inner, columns)]
    lost = [row[f"{mode}_us"] - row["bf16_us"] for row in own]
    found = 0.0 if lost[-1] < 0 else inf
    for (before, after), (more, less) in zip(pairwise(row["tokens"] for row in own), pairwise(lost), strict=True):
        if more > 0 >= less and lost[-1] < 0:
            found = float(before + (after - before) * more / (more - less))
    return found


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize(("mode", "keeps"), LAYERS)
def test_a_trace_of_a_layer_says_how_much_it_wins_and_from_how_many_rows_on(
    layer: int, mode: str, keeps: bool, tmp_path: Path
) -> None:
    """Three layers on an H200, traced at one size each, timed without a profiler at 14 (`benchmarks/kernels/fp8`)."""
    path = tmp_path / "trace.json"
    path.write_bytes(lzma.decompress((FP8 / f"layer{layer}_{mode}.json.xz").read_bytes()))
    found = only(read(path, cache=False))
    rows = json.loads((FP8 / "times.json").read_text("utf-8"))
    sizes = (found.rows, found.inner, found.columns)
    (truth,) = (row for row in rows if (row["tokens"], row["k"], row["n"]) == sizes)
    assert found.speedup == pytest.approx(truth["bf16_us"] / truth[f"{mode}_us"], rel=0.1)
    wins, measured = found.break_even_rows(keeps_weights=keeps), measured_rows(found.inner, found.columns, mode)
    assert wins == measured or (wins is not None and max(wins, measured) <= 1.2 * min(wins, measured))
