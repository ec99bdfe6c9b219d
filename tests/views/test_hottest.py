"""Which kernels a replay of so many launches looks at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import trace_of

from timesink.measures.kernels import kernel_targets
from timesink.model.trace import Trace
from timesink.views.kernels import hottest

# (name, us of a launch, launches per step, shapes) as in a step of a small BERT.
BERT = [
    ("void multi_tensor_apply_kernel<Adam>", 54, 20, 6),
    ("void vectorized_elementwise_kernel<8, Copy>", 4, 172, 8),
    ("void unrolled_elementwise_kernel<Add>", 5, 114, 7),
    ("nvjet_sm90_tst_64x32_NTT", 11, 24, 1),
    ("nvjet_sm90_tst_128x128_NNT", 8, 30, 1),
    ("flash_bprop", 20, 6, 1),
    ("nll_loss", 1, 1, 1),
]


def steps_of(kernels: list[tuple[str, int, int, int]], steps: int = 3) -> Trace:
    """A trace of steps that launch these one after the other."""
    length = sum(us * count for _, us, count, _ in kernels)
    ops, at = [], 0
    for _ in range(steps):
        for name, us, count, shapes in kernels:
            for number in range(count):
                grid = " | ".join((str(number % shapes + 1), "1", "1", "128", "1", "1"))
                ops.append(f"| k | {name} | {at} | {at + us} | 7 | {grid} |")
                at += us
    marks = [f"| s | ProfilerStep#{step} | {step * length} | {(step + 1) * length} |" for step in range(steps)]
    sizes = " | ".join(f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz")
    head = f"| device_ops | name | start_us | end_us | stream | {sizes} |"
    return trace_of("\n".join((head, *ops, "", "| ranges | name | start_us | end_us |", *marks)))


def test_products_are_looked_at_before_shapes_of_small_kernels() -> None:
    """The three functions with most time of a BERT are an optimizer's and two of small kernels, 30 % of it each."""
    chosen, share = hottest(steps_of(BERT), 30)
    functions = [target.function for target in chosen]
    assert {"nvjet_sm90_tst_64x32_NTT", "nvjet_sm90_tst_128x128_NNT", "multi_tensor_apply_kernel"} <= set(functions)
    assert sum(target.grids for target in chosen) <= 30 and share > 0.9
    assert "nll_loss" not in functions  # it takes nothing
    few, part = hottest(steps_of(BERT), 3)
    assert "vectorized_elementwise_kernel" not in [target.function for target in few] and 0.1 < part < share


kernels = st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(1, 9))


@given(st.lists(kernels, min_size=1, max_size=6), st.integers(1, 40))
def test_no_more_launches_than_asked_for_and_no_better_pick_is_passed_over(
    drawn: list[tuple[int, int, int]], most: int
) -> None:
    named = [(f"kernel_{'abcdef'[at]}", us, count, min(shapes, count)) for at, (us, count, shapes) in enumerate(drawn)]
    trace = steps_of(named)
    chosen, share = hottest(trace, most)
    targets = kernel_targets(trace)
    took = {name: us * count for name, us, count, _ in named}
    assert sum(target.grids for target in chosen) <= most and set(chosen) <= set(targets)
    assert share == pytest.approx(sum(took[target.function] for target in chosen) / sum(took.values()))
    left = most - sum(target.grids for target in chosen)
    assert share >= 0.9 or all(target.grids > left for target in targets if target not in chosen)
