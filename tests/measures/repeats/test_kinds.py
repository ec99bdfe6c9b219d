"""What a row of units goes along, told by the shapes that its operators were given."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.tables import trace_of

from timesink.measures.repeats.kinds import Kind
from timesink.measures.repeats.units import repeated_units

UNITS, STEPS = 12, 3
Op = tuple[Any, ...]  # name, shapes, numbers


def kind_of(before: list[Op], unit: Callable[[int], list[Op]], behind: list[Op]) -> str:
    """The kind of the row in three steps of one thread, each operator of which launches a kernel."""
    rows, kernels, calls, at = list[str](), list[str](), list[str](), 0
    for _ in range(STEPS):
        for name, shapes, *given in [*before, *(one for number in range(UNITS) for one in unit(number)), *behind]:
            scalars = json.dumps(["", *map(str, given)])
            rows.append(f"| o | `aten::{name}` | {json.dumps(shapes)} | `{scalars}` | 1 | {at} | {at + 20} |")
            calls.append(f"| c | cudaLaunchKernel | 1 | {at + 5} | {at + 8} | {at + 1} |")
            kernels.append(f"| k | `{name}` | {at + 10} | {at + 14} | {at + 1} |")
            at += 25
        at += 100
    whole, lines = at // STEPS, "\n".join
    trace = trace_of(f"""
| host_ops | name | input_shapes | concrete_inputs | thread | start_us | end_us |
|---|---|---|---|---|---|---|
{lines(rows)}

| api_calls | name | thread | start_us | end_us | correlation |
|---|---|---|---|---|---|
{lines(calls)}

| device_ops | name | start_us | end_us | correlation |
|---|---|---|---|---|
{lines(kernels)}

| ranges | name | thread | start_us | end_us | times | every_us |
|---|---|---|---|---|---|---|
| s | ProfilerStep#{{n}} | 1 | 0 | {whole} | {STEPS} | {whole} |
""")
    found = repeated_units(trace)
    return next((one.kind for one in found if one.times == UNITS), "")


ENDS: list[Op] = [("stack", [[], []], 0), ("mse_loss", [[UNITS, 64], [UNITS, 64]]), ("exp", [[5]]), ("log", [[6]])]
ROWS = [3 + number % 5 for number in range(UNITS)]
ALL = sum(ROWS)
UNBOUND: list[Op] = [("unbind", [[UNITS, 8, 64]], 0)]


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        (
            [("split_with_sizes", [[ALL, 64], []], 0)],
            lambda at: [("sigmoid", [[ROWS[at], 64]]), ("sum", [[ROWS[at], 64], []], 0), ("div", [[64], []])],
        ),
        (
            UNBOUND,
            lambda _: [("log", [[8, 64]]), ("mean", [[8, 64]]), ("sub", [[8, 64], [1, 64]]), ("std", [[8, 64]]),
                       ("div", [[8, 64], [1, 64]]), ("sum", [[8, 64]])],
        ),
        (
            [("unbind", [[UNITS, 100]], 0)],
            lambda _: [("slice", [[100]], 0, 0, -1), ("pad", [[99]]), ("mul", [[100], []]), ("sub", [[100], [100]])],
        ),
        (
            UNBOUND,
            lambda _: [("view", [[8, 64]]), ("mul", [[512], [512]]), ("unflatten", [[512]]), ("abs", [[4, 128]])],
        ),
        ([], lambda at: [("select", [[UNITS, 8, 64]], 0, at), ("t", [[8, 64]]), ("tanh", [[64, 8]])]),
    ],
)  # fmt: skip
def test_units_of_samples_need_nothing_of_each_other(before: list[Op], unit: Callable[[int], list[Op]]) -> None:
    assert kind_of(before, unit, ENDS) == Kind.ONE_AT_A_TIME


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        (
            [("unbind", [[UNITS, 16, 32]], 0)],
            lambda _: [("matmul", [[16, 32], [32, 64]]), ("matmul", [[16, 64], [64, 64]]),
                       ("add", [[16, 64], [16, 64]]), ("tanh", [[16, 64]])],
        ),
        (UNBOUND, lambda _: [("mul", [[9, 64], []]), ("add", [[9, 64], [8, 64]]), ("exp", [[9, 64]])]),
        (
            UNBOUND,
            lambda _: [("view", [[4, 128]]), ("mul", [[512], []]), ("unflatten", [[512]]),
                       ("add", [[4, 128], [8, 64]]), ("relu", [[4, 128]])],
        ),
    ],
)  # fmt: skip
def test_units_that_read_what_the_one_before_left_may_depend(before: list[Op], unit: Callable[[int], list[Op]]) -> None:
    assert kind_of(before, unit, ENDS) == Kind.MAY_DEPEND


def test_a_row_without_a_split_or_a_join_is_untold() -> None:
    assert kind_of([], lambda _: [("exp", [[8, 64]]), ("sum", [[8, 64]])], ENDS[1:]) == Kind.UNTOLD
