"""Operations and bytes of operators, by hand."""

import json

import pytest

from timesink.knowledge.operators import OperatorWork
from timesink.knowledge.operators import WorkKind as K
from timesink.knowledge.work import recorded_work

BF16, FP32 = "c10::BFloat16", "float"


def work(name: str, shapes: list[object], dtypes: list[str], **more: list[object]) -> OperatorWork | None:
    text = {key: json.dumps(value) for key, value in more.items()}
    return recorded_work(name, json.dumps(shapes), json.dumps(dtypes), text.get("strides"), text.get("concrete"))


def test_a_product_costs_two_operations_for_each_multiply_add() -> None:
    assert work("aten::mm", [[4096, 1024], [1024, 512]], [BF16, BF16]) == OperatorWork(
        K.MATMUL, 2 * 4096 * 1024 * 512, 2 * (4096 * 1024 + 1024 * 512 + 4096 * 512), "bf16"
    )


def test_a_bias_adds_its_elements_and_one_addition_for_each_result() -> None:
    assert work(
        "aten::addmm", [[512], [64, 128], [128, 512], [], []], [BF16, BF16, BF16, "Scalar", "Scalar"]
    ) == OperatorWork(K.MATMUL, 2 * 64 * 128 * 512 + 64 * 512, 2 * (64 * 128 + 128 * 512 + 64 * 512 + 512), "bf16")


def test_batches_multiply_and_linear_reads_its_weight_transposed() -> None:
    assert work("aten::bmm", [[8, 16, 32], [8, 32, 64]], [FP32, FP32]) == OperatorWork(
        K.MATMUL, 2 * 8 * 16 * 32 * 64, 4 * 8 * (16 * 32 + 32 * 64 + 16 * 64), "fp32"
    )
    linear = work("aten::linear", [[2, 16, 32], [64, 32], []], [FP32, FP32, ""])
    assert linear is not None
    assert linear.flops == 2 * 2 * 16 * 32 * 64


def test_causal_attention_counts_the_pairs_below_the_diagonal() -> None:
    shape, concrete = [2, 4, 8, 16], ["", "", "", "", "", "", "8", "8", "True", "0.", "True", "False", ""]
    types = [BF16, BF16, BF16, "", "", "", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar", ""]
    causal = work("aten::_cudnn_attention_forward", [shape] * 3 + [[]] * 10, types, concrete=concrete)
    assert causal is not None
    assert causal.flops == 2 * 4 * (8 * 9 / 2) * (2 * 16 + 2 * 16)
    assert causal.bytes == 4 * (2 * 4 * 8 * 16) * 2


def test_grouped_heads_read_keys_and_values_once() -> None:
    types = [BF16, BF16, BF16] + [""] * 10
    shapes = [[1, 8, 32, 64], [1, 8, 4, 64], [1, 8, 4, 64], *([[]] * 10)]
    grouped = work("aten::_flash_attention_forward", shapes, types, concrete=[""] * 8 + ["False"])
    assert grouped is not None
    assert grouped.flops == 4 * 32 * 8 * 8 * 64
    assert grouped.bytes == 2 * (2 * 8 * 32 * 64 + 2 * 8 * 4 * 64)


def test_a_convolution_multiplies_its_filter_for_each_output_element() -> None:
    concrete = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
    types = [FP32, FP32, "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
    shapes = [[4, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]
    found = work("aten::convolution", shapes, types, concrete=concrete)
    assert found is not None
    assert found.flops == 2 * (4 * 64 * 112 * 112) * (3 * 7 * 7)


def test_a_broadcast_operand_is_stored_and_read_once() -> None:
    assert work("aten::mul", [[4, 8], [4, 8]], [FP32, FP32], strides=[[8, 1], [1, 0]]) == OperatorWork(
        K.POINTWISE, 32, 4 * (32 + 4 + 32), "fp32"
    )


def test_a_cast_reads_one_type_and_writes_the_other() -> None:
    assert work("aten::copy_", [[4, 8], [4, 8], []], [FP32, BF16, "Scalar"]) == OperatorWork(
        K.COPY, 0, 32 * 2 + 32 * 4, "bf16"
    )


def test_an_embedding_moves_the_rows_it_picks() -> None:
    assert work("aten::embedding", [[1000, 64], [10], [], [], []], [FP32, "long int", "", "", ""]) == OperatorWork(
        K.INDEX, 0, 2 * 10 * 64 * 4 + 10 * 8, "fp32"
    )


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("aten::mm", [[2, 3], [4, 5]], [FP32, FP32]),
        ("aten::mm", [[2, 3]], [FP32]),
        ("aten::add", [[2, 3], [5]], [FP32, FP32]),
        ("aten::an_operator_of_tomorrow", [[2]], [FP32]),
        ("aten::mm", "not a list", [FP32]),
        ("aten::mm", [[-2, 3], [3, 4]], [FP32, FP32]),
        ("aten::mul", [["x"]], [FP32]),
    ],
)
def test_what_is_not_understood_has_no_figure(name: str, shapes: list[object], dtypes: list[str]) -> None:
    assert work(name, shapes, dtypes) is None


@pytest.mark.parametrize("concrete", ["null", "5", '{"a": 1}', "[" * 2_000])
def test_scalars_that_are_no_list_leave_an_operator_without_a_figure(concrete: str) -> None:
    assert recorded_work("aten::relu", "[[8]]", '["float"]', None, concrete) is None


def test_a_tensor_given_as_out_is_written_and_not_read() -> None:
    """add(self, other, alpha, out): 8 elements twice in, once out; with a scalar as other, once in."""
    twice = work("aten::add", [[8], [8], [], [8]], [FP32, FP32, "Scalar", FP32])
    assert twice == OperatorWork(K.POINTWISE, 8, 4 * (8 + 8 + 8), "fp32")
    once = work("aten::mul", [[8], [], [8]], [FP32, "Scalar", BF16])
    assert once == OperatorWork(K.POINTWISE, 8, 4 * 8 + 2 * 8, "fp32")
    assert work("aten::relu", [[8], [8]], [FP32, FP32]) == OperatorWork(K.POINTWISE, 8, 4 * (8 + 8), "fp32")


def test_three_inputs_are_read_and_a_fourth_tensor_is_out() -> None:
    types = [FP32, FP32, FP32, "Scalar"]
    assert work("aten::addcmul", [[8], [8], [8], []], types) == OperatorWork(K.POINTWISE, 8, 4 * (3 * 8 + 8), "fp32")
    out = work("aten::addcmul", [[8], [8], [8], [], [8]], [*types, FP32])
    assert out == OperatorWork(K.POINTWISE, 8, 4 * (3 * 8 + 8), "fp32")
