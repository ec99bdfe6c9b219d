"""Work that no operator names is joined by its place, and what was added or moved takes no one's place."""

from benchmarks.pairs.blind import all_blind
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import trace_of

from timesink.knowledge.kernel_names import work_of
from timesink.measures.steps.work import OrderedKernel
from timesink.model.trace import Trace
from timesink.render.gate import explained, page
from timesink.verify.by_place import in_place_of, places
from timesink.verify.compare import compare_captures
from timesink.verify.outcomes import ChangeKind


def vectorized(function: str, type_: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{function}<{type_}>, char*>"


PRODUCT = {
    "float": "sm80_xmma_gemm_f32f32_f32f32_tn_n_tilesize128x128x8",
    "c10::BFloat16": "nvjet_tst_128x192_h",
}
NAMES = {
    type_: [product, *(vectorized(f"{function}Functor", type_) for function in ("Mul", "Sqrt", "Gelu"))]
    for type_, product in PRODUCT.items()
}


def order(numbers: list[int], type_: str) -> list[OrderedKernel]:
    return [OrderedKernel(NAMES[type_][number], f"{1 + number},1,1,128,1,1", "") for number in numbers]


def test_a_kernel_of_another_type_or_library_does_the_same_and_another_function_does_not() -> None:
    assert [work_of(name) for name in NAMES["float"]] == [work_of(name) for name in NAMES["c10::BFloat16"]]
    assert len({work_of(name) for name in NAMES["float"]}) == 4


@given(st.lists(st.integers(0, 3), max_size=30))
def test_every_kernel_that_was_renamed_keeps_its_place(numbers: list[int]) -> None:
    before, after = order(numbers, "float"), order(numbers, "c10::BFloat16")
    assert list(in_place_of(before, after)) == list(zip(before, after, strict=True))
    assert places(before, before) == ({}, {})
    old, new = places(before, after)
    assert {old[one] for one in before} == {new[one] for one in after}
    assert all(old[one] == new[other] for one, other in zip(before, after, strict=True))


@given(st.lists(st.integers(0, 3), max_size=15), st.lists(st.integers(0, 3), max_size=15))
def test_pairs_stand_in_order_and_do_the_same_work(numbers: list[int], others: list[int]) -> None:
    before, after = order(numbers, "float"), order(others, "c10::BFloat16")
    pairs = list(in_place_of(before, after))
    assert all(work_of(old.kernel) == work_of(new.kernel) for old, new in pairs)
    for side, kernels in enumerate((before, after)):
        left = iter(kernels)
        assert all(pair[side] in left for pair in pairs)  # a subsequence
    old, new = places(before, after)
    for number in set(old.values()):
        launches = [
            sum(placed.get(one) == number for one in kernels) for placed, kernels in ((old, before), (new, after))
        ]
        assert launches[0] == launches[1] > 0


def recorded(*kernels: tuple[str, int]) -> Trace:
    """Two marked steps of kernels without operators: the name and how long each takes, in us."""
    ops, ranges, now = [], [], 0
    for step in range(3):
        begun = now
        for name, length in kernels:
            ops.append(f"| k{now} | {name} | {now} | {now + length} |")
            now += length + 1
        ranges.append(f"| r{step} | step {step} | {begun} | {now} |")
    return trace_of("\n\n".join([
        "\n".join(["| device_ops | name | start_us | end_us |", *ops]),
        "\n".join(["| ranges | name | start_us | end_us |", *ranges]),
    ]))  # fmt: skip


def test_kernels_in_each_others_place_are_other_kernels_and_are_said_to_be_joined_by_place() -> None:
    product, narrow = PRODUCT["float"], PRODUCT["c10::BFloat16"]
    sides = recorded((narrow, 50), ("fmha_a", 20), (narrow, 50)), recorded((product, 90), ("fmha_a", 20), (product, 90))
    result = compare_captures(sides)
    assert [one.kind for one in result.changes] == [ChangeKind.OTHER_KERNELS]
    assert result.joined_ratio == 1.0
    assert result.placed_ratio is not None
    assert 0.8 < result.placed_ratio < 1.0
    assert (
        "% of compute is joined by its place in the step, since no operator is recorded" in page(result).sheets[0].note
    )


def test_a_kernel_that_was_added_takes_no_place_and_is_said_to_be_of_one_side() -> None:
    product, added = PRODUCT["float"], PRODUCT["c10::BFloat16"]
    result = compare_captures(
        (recorded((product, 90), ("fmha_a", 20)), recorded((product, 90), ("fmha_a", 20), (added, 90)))
    )
    assert result.placed_ratio == 0.0
    assert result.alone_ratio is not None
    assert result.alone_ratio > 0.25
    assert "% of compute is work of one side only" in explained.changes(result).note


def test_of_real_pairs_without_their_operators_next_to_nothing_is_joined_to_other_work() -> None:
    found = {
        one.name: one for one in all_blind("tune", ("precision_up", "codes_matched_by_differences", "batch_grown"))
    }
    assert found["precision_up"].joined_ratio > 0.95
    assert found["precision_up"].placed_ratio > 0.95
    assert all(one.wrong_ratio < 0.01 for one in found.values())
