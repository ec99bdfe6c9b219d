"""Matmuls of which a few rows are used, and gradients that nothing resets, in variants."""

import pytest
from tests.tables import trace_of

from timesink.measures.habits.unused_gradients import unused_gradients
from timesink.measures.habits.unused_work import partly_used
from timesink.model.trace import Trace

LINEAR = "aten::linear", "[[16, 512, 1024], [65536, 1024], []]", '["half", "half", ""]', '["", "", ""]'
MATMUL = "aten::matmul", "[[16, 512, 1024], [1024, 65536]]", '["half", "half"]', '["", ""]'
ADDMM = "aten::addmm", "[[65536], [512, 1024], [1024, 65536]]", '["half", "half", "half"]', '["", "", ""]'
SHAPE, FLAT = "[16, 512, 65536]", "[512, 65536]"


def select(at: int, index: int, shape: str = SHAPE) -> tuple[str, ...]:
    return "aten::select", f"[{shape}, [], []]", '["half", "Scalar", "Scalar"]', f'["", "{at}", "{index}"]'


def slice_(at: int, first: int, last: int, shape: str = SHAPE) -> tuple[str, ...]:
    scalars = f'["", "{at}", "{first}", "{last}", "1"]'
    return "aten::slice", f"[{shape}, [], [], [], []]", '["half", "", "", "", ""]', scalars


def other(name: str, shape: str = SHAPE) -> tuple[str, ...]:
    return f"aten::{name}", f"[{shape}, {shape}]", '["half", "half"]', '["", ""]'


def program(*operators: tuple[str, ...]) -> Trace:
    """Ten steps of these operators, the first of which runs for 900 us on the device."""
    rows = "".join(
        f"| o | `{name}` | {shapes} | {types} | {scalars} | {5 + 10 * at} | {12 + 10 * at} | 10 | 1000 |\n"
        for at, (name, shapes, types, scalars) in enumerate(operators)
    )
    return trace_of(f"""
| device_ops | name | correlation | start_us | end_us | times | every_us |
|---|---|---|---|---|---|---|
| k | gemm | 1 | 30 | 930 | 10 | 1000 |

| api_calls | name | correlation | start_us | end_us | times | every_us |
|---|---|---|---|---|---|---|
| c | cudaLaunchKernel | 1 | 8 | 10 | 10 | 1000 |

| host_ops | name | input_shapes | input_dtypes | concrete_inputs | start_us | end_us | times | every_us |
|---|---|---|---|---|---|---|---|---|
{rows}""")


@pytest.mark.parametrize(
    ("operators", "of", "kept"),
    [
        ([LINEAR, select(1, -1)], 512, 1),
        ([LINEAR, slice_(0, 0, 9223372036854775807), select(1, -1), other("exp", "[16, 65536]")], 512, 1),
        ([MATMUL, slice_(1, 0, 4)], 512, 4),
        ([MATMUL, slice_(1, -2, 9223372036854775807)], 512, 2),
        ([ADDMM, slice_(0, 0, 8, FLAT)], 512, 8),
        ([LINEAR, select(0, 3)], 16, 1),
    ],
)
def test_a_matmul_is_cut_to_a_few_of_its_rows(operators: list[tuple[str, ...]], of: int, kept: int) -> None:
    (found,) = partly_used(program(*operators))
    assert (found.kind, found.of, found.kept, found.operator) == ("rows", of, kept, operators[0][0])
    assert found.remains[1] == pytest.approx(max(kept / of, found.remains[2]))


@pytest.mark.parametrize(
    "operators",
    [
        [LINEAR, select(1, -1), other("add")],  # a residual reads all of it
        [LINEAR, select(1, -1), *[other("exp", "[4]")] * 40, other("add")],  # late
        [LINEAR, slice_(1, 0, 300)],
        [LINEAR, slice_(2, 0, 8)],  # columns: another matrix
        [LINEAR, slice_(1, 1, 512), select(1, 0)],
        [LINEAR, other("log_softmax"), select(1, -1)],
        [("aten::bmm", "[[16, 512, 64], [16, 64, 512]]", '["half", "half"]', '["", ""]'), select(1, 0)],
    ],
)
def test_a_matmul_that_is_read_whole_is_not(operators: list[tuple[str, ...]]) -> None:
    assert partly_used(program(*operators)) == ()


SORT = "aten::sort", "[[4, 100000], [], []]", '["float", "Scalar", "Scalar"]', '["", "-1", "True"]'
BEST = "aten::slice", "[[4, 100000], [], [], [], []]", '["float", "", "", "", ""]', '["", "1", "0", "100", "1"]'


def over(name: str, axes: str) -> tuple[str, ...]:
    scalars = f'["", "{axes}", "False", ""]'
    return f"aten::{name}", "[[4, 100000], [], [], []]", '["float", "ScalarList", "Scalar", ""]', scalars


@pytest.mark.parametrize(
    ("operators", "is_cut"),
    [
        ([SORT, BEST, over("mean", "[]")], True),
        ([SORT, over("sum", "[-1]"), BEST], True),
        ([SORT, BEST, over("amax", "[-1]")], True),
        ([SORT, BEST, over("mean", "[0]")], False),  # of the first, the second, ... of each row
        ([SORT, BEST, over("cumsum", "-1")], False),
        ([SORT, BEST, over("argmax", "[]")], False),
        ([SORT, over("mean", "[]")], False),
    ],
)
def test_sums_need_no_order(operators: list[tuple[str, ...]], is_cut: bool) -> None:
    found = partly_used(program(*operators))
    assert [(one.kind, one.kept) for one in found] == ([("sorted", 100)] if is_cut else [])


NODE, KEEP = "autograd::engine::evaluate_function: MmBackward0", "torch::autograd::AccumulateGrad"


def trained(*steps: str) -> Trace:
    """Backward passes of nodes, each 10 us apart and with a kernel: `n` keeps nothing, `w` writes one gradient, `a`
    adds one; a forward operator of another thread stands before each pass."""
    ops, kernels, calls = [], [], []
    for number, step in enumerate(steps):
        begin = 1000 * (number + 1)
        ops.append(f"| f | aten::mm | 1 | {begin} | {begin + 5} | {number} |")
        for place, what in enumerate(step):
            at = begin + 10 * (place + 1)
            ops.append(f"| n | `{NODE}` | 2 | {at} | {at + 4} | |")
            if what != "n":
                ops.append(f"| e | `autograd::engine::evaluate_function: {KEEP}` | 2 | {at + 5} | {at + 9} | |")
                ops.append(f"| k | `{KEEP}` | 2 | {at + 6} | {at + 9} | |")
            if what == "a":
                ops.append(f"| a | aten::add_ | 2 | {at + 7} | {at + 8} | |")
            correlation = 100 * number + place + 1
            kernels.append(f"| k | gemm | {correlation} | {at + 3} | {at + 12} |")
            calls.append(f"| c | cudaLaunchKernel | 2 | {correlation} | {at + 1} | {at + 2} |")
    lines = "\n".join
    return trace_of(f"""
| device_ops | name | correlation | start_us | end_us |
|---|---|---|---|---|
{lines(kernels)}

| api_calls | name | thread | correlation | start_us | end_us |
|---|---|---|---|---|---|
{lines(calls)}

| host_ops | name | thread | start_us | end_us | sequence_number |
|---|---|---|---|---|---|
{lines(ops)}
""")


@pytest.mark.parametrize(
    ("steps", "vain"),
    [
        (["nwnwnana"] * 3, [4, 5, 6, 7]),  # a teacher behind its student
        (["nanawnw"] * 3, [0, 1, 2, 3]),  # and before
        (["wa"] * 2, [1]),
        (["wnaw"] * 3, [1, 2]),  # a frozen part that records
        (["wwna", "wana"] * 2, [2, 3]),
        (["wwna", "aaaa"] * 2, [2, 3]),  # of two micro-batches the first tells
    ],
)
def test_nodes_that_lead_to_gradients_which_nothing_resets(steps: list[str], vain: list[int]) -> None:
    (work,) = unused_gradients(trained(*steps))
    first = [int(row) for row in work.rows if row < len(steps[0])]
    assert first == vain


@pytest.mark.parametrize(
    "steps",
    [
        ["nwnw"] * 3,
        ["nwnw", "nana"] * 3,  # micro-batches
        ["nwnw", "nanw"] * 3,  # two losses of one trunk
        ["nana"] * 3,  # gradients are set to zero, not dropped
        ["nwna"],  # once
        ["nnnn"] * 3,
    ],
)
def test_gradients_that_are_used(steps: list[str]) -> None:
    assert unused_gradients(trained(*steps)) == ()
