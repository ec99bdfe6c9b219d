"""Alike layers, and models called side by side, by hand."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest
from tests.tables import trace_of

from timesink.measures.habits.repeated_calls import _passes, layers, repeated_calls
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.shapes import product_sizes
from timesink.model.trace import Trace

GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>"
SMALL = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>"
NAMES = {
    "G": GEMM,
    "g": SMALL,
    "r": "void vectorized_elementwise_kernel<4, relu>",
    "a": "void vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
    "n": "void vectorized_layer_norm_kernel<float>",
    "e": "void indexSelectLargeIndex<float>",
    "m": "void vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)>",
    "s": "void softmax_warp_forward<float, float, float, 9, false, false>",
    "b": "void embedding_backward_feature_kernel<float, float, long>",
}
FLOATS = '["float","float"]'


def program(
    step: str,
    shapes: Sequence[str] = (),
    steps: int = 3,
    small_us: int = 10,
    operators: Mapping[str, tuple[str, str, str]] = MappingProxyType({}),
) -> Trace:
    """Steps of kernels of 10 us, one letter each, `g` of `small_us`, launched 20 us ahead, `b` and what is just before
    it by a thread of its own; `shapes` are those of a step's products, `operators` what other letters belong to."""
    ops, calls, host, ranges = [], [], [], []
    for at, letter in enumerate(step * steps):
        begin = 100 * (at // len(step)) + 10 * at
        ops.append(
            f"| k | kernel | `{NAMES[letter]}` | {begin + 20} | "
            f"{begin + 20 + (small_us if letter == 'g' else 10)} | {at + 1} |"
        )
        thread = 1 + (letter == "b" or (step * steps)[at + 1 : at + 2] == "b")
        calls.append(f"| c | cudaLaunchKernel | {begin} | {begin + 2} | {at + 1} | {thread} |")
        if letter in operators:
            name, text, types = operators[letter]
            host.append(f"| h | {name} | {begin - 2} | {begin + 4} | `{text}` | `{types}` | {thread} |")
        if letter in "Gg" and shapes:
            text = shapes[len(host) % len(shapes)]
            host.append(f"| h | aten::mm | {begin - 2} | {begin + 4} | `{text}` | `{FLOATS}` | 1 |")
        if at % len(step) == 0:
            ranges.append(f"| s | ProfilerStep#{at // len(step)} | {begin - 5} | {begin + 10 * len(step) + 90} |")
    tables = [
        ["| device_ops | kind | name | start_us | end_us | correlation |", *ops],
        ["| api_calls | name | start_us | end_us | correlation | thread |", *calls],
        ["| ranges | name | start_us | end_us |", *ranges],
    ]
    if host:
        tables.append(["| host_ops | name | start_us | end_us | input_shapes | input_dtypes | thread |", *host])
    return trace_of("\n\n".join("\n".join(table) for table in tables))


def starts(step: str) -> list[int]:
    """Places within a step where a layer starts."""
    found = [np.mod(one.rows, len(step)) for one in layers(program(step))]
    return sorted({int(place) for places in found for place in places})


def test_layers_start_where_a_sequence_with_two_products_comes_again() -> None:
    layer = "GrGan"
    assert starts("e" + 3 * layer + "s") == [1, 6, 11]
    assert starts("e" + layer + "s") == []  # one alone is no row
    assert starts("e" + 3 * "Grran" + "s") == []  # a product and what follows it


def test_calls_of_a_model_in_a_row_are_made_of_its_layers() -> None:
    model = "e" + 2 * "GrGan" + "s"
    assert starts(2 * model) == [1, 6, 13, 18]


def test_a_model_without_alike_layers_is_a_region_of_each_forward_pass() -> None:
    """Three passes, of which the second has no product, and what follows the last backward pass."""
    order = "eGGbb" + "eb" + "GebGe"
    backward = np.array([letter == "b" for letter in order])
    products = np.array([letter == "G" for letter in order])[~backward]
    assert _passes(backward, products).tolist() == [1, 4]  # of e GG, e and G e, and the G after them
    assert _passes(np.zeros(2, np.bool_), np.ones(2, np.bool_)).tolist() == []  # nobody trains


def test_sizes_of_products() -> None:
    trace = program("GrG", ["[[64,128],[128,32]]", "[[64,32],[32,16]]"])
    products = kernel_facts(trace).frame.filter(kernel_facts(trace).frame["family"] == "gemm")
    kinds, reads, makes = product_sizes(trace, products)
    assert kinds[0] != kinds[1]
    assert kinds.tolist() == [*kinds[:2].tolist()] * 3
    assert (reads.tolist(), makes.tolist()) == ([64 * 128, 64 * 32] * 3, [64 * 32, 64 * 16] * 3)
    unknown = program("GrG")
    _, reads, makes = product_sizes(unknown, kernel_facts(unknown).frame[[0, 2]])
    assert (reads.tolist(), makes.tolist()) == ([-1, -1], [-1, -1])


NARROWS = ["[[64,128],[128,32]]", "[[64,32],[32,16]]"]


@pytest.mark.parametrize(
    ("shapes", "experts", "rows"),
    [(NARROWS, 4, 9), (["[[64,128],[128,32]]", "[[64,32],[32,128]]"], 4, 0), ([], 4, 0), (NARROWS, 2, 0)],
)
def test_models_on_one_input_are_one_call_if_none_can_read_what_another_made(
    shapes: list[str], experts: int, rows: int
) -> None:
    """Of four alike the three after the first; as wide at the end as at the start they may be layers, and two or ones
    without shapes are not known to be any."""
    step = "e" + experts * "Grg" + "s"
    found = sum(one.rows.size for one in repeated_calls(program(step, shapes)))
    assert found == 3 * rows


@pytest.mark.parametrize(("small_us", "rows"), [(7, 9), (9, 0), (10, 0)])
def test_without_shapes_pairs_whose_first_product_takes_longer_stand_side_by_side(small_us: int, rows: int) -> None:
    """Of two products, the second of which reads what the first made, the first does more by as much as is read more
    than made: 10 us to 7 are no layers, 10 to 9 may be."""
    found = sum(one.rows.size for one in repeated_calls(program("e" + 4 * "Grg" + "s", small_us=small_us)))
    assert found == 3 * rows


@pytest.mark.parametrize(("updates", "own"), [("aam", 8 * 3), ("aas", 0)])
def test_adams_updates_of_one_tensor_after_another_are_known_by_their_last_pass(updates: str, own: int) -> None:
    """Four of two steps are eight; the passes before the first are as many as between two. A softmax is no pass."""
    facts = kernel_facts(program("Ga" + 4 * updates, steps=2)).frame
    assert facts["optimizer"].sum() == own


EMBEDDED = "aten::embedding", "[[900,16],[64],[],[],[]]", '["float","long int","Scalar","Scalar","Scalar"]'
GATHERED = "aten::gather", "[[900,16],[],[64,16],[]]", '["float","Scalar","long int","Scalar"]'
OF_BAGS = "aten::_embedding_bag", "[[900,16],[64]]", '["float","int"]'


@pytest.mark.parametrize(
    "looks_up", [EMBEDDED, GATHERED, OF_BAGS, ("aten::index_select", "[[900,16],[],[64]]", GATHERED[2][:-10] + "]")]
)
@pytest.mark.parametrize("tables", [3, 7])
def test_lookups_in_tables_of_which_no_result_can_be_one_are_one_call(
    looks_up: tuple[str, str, str], tables: int
) -> None:
    found = sum(one.rows.size for one in repeated_calls(program(tables * "e" + "rGsr", operators={"e": looks_up})))
    assert found == 3 * (tables - 1)


@pytest.mark.parametrize(
    "other",
    [
        ("aten::embedding", "[[64,16],[64]]", '["float","long int"]'),  # what one makes, the next may read
        ("aten::gather", "[[16,64],[],[64,16],[]]", GATHERED[2]),  # in another shape, too
        ("aten::embedding", "[[900,16],[64]]", '["long int","long int"]'),  # of whole numbers that are numbers again
        ("aten::index_select", "[[900,16],[],[64]]", '["float","Scalar","float"]'),
        ("aten::take", "[[900,16],[64]]", '["float","long int"]'),
    ],
)
def test_lookups_that_may_read_each_other_are_several_calls(other: tuple[str, str, str]) -> None:
    assert not repeated_calls(program("eeeee" + "rGsr", operators={"e": other}))


def test_with_tables_their_gradients_and_the_passes_over_each_become_one() -> None:
    """Of five tables: lookups; a fill and a sum for each gradient; two passes of an update, but none over others."""
    own = {"e": EMBEDDED, "b": ("aten::embedding_dense_backward", "[[64,16],[64]]", '["float","long int"]')}
    own |= {"m": ("aten::addcdiv_", "[[900,16],[900,16],[900,16],[]]", '["float","float","float","Scalar"]')}
    own |= {"a": ("aten::add_", "[[900,16],[]]", '["float","Scalar"]')}
    step = 5 * "e" + "rGs" + 5 * "nb" + "s"
    alone = sum(one.rows.size for one in repeated_calls(program(step, operators=own)))
    assert alone == 3 * (4 + 8)
    assert sum(one.rows.size for one in repeated_calls(program(step + 5 * "am", operators=own))) == alone + 3 * 8
    others = own | {"a": ("aten::add_", "[[16,16],[]]", '["float","Scalar"]')}
    assert sum(one.rows.size for one in repeated_calls(program(step + 5 * "am", operators=others))) == alone
    assert sum(one.rows.size for one in repeated_calls(program(step + 9 * "am", operators=own))) == alone
