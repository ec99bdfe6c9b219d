"""Eager islands: kernels between compiled graphs, and no others."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.measures.compile.graphs import eager_islands
from timesink.model.trace import Trace

STEPS = 4


def steps_of(order: str) -> Trace:
    """Steps of one launch after another: `g` in a compiled graph, `e` eagerly."""
    ranges, calls, ops = [], [], []
    for step in range(STEPS):
        at = step * 1000
        ranges.append(f"| s | ProfilerStep#{step} | {at} | {at + 990} |")
        for place, kind in enumerate(order):
            begin, number = at + 10 * place + 5, step * 100 + place + 1
            if kind == "g":
                ranges.append(f"| g | ## Call CompiledFxGraph f{place} ## | {begin} | {begin + 9} |")
            calls.append(f"| l | cudaLaunchKernel | {number} | {begin + 1} | {begin + 3} |")
            ops.append(f"| k | gemm | {number} | {begin + 4} | {begin + 12} |")
    heads = ("ranges | name", "api_calls | name | correlation", "device_ops | name | correlation")
    tables = (
        "\n".join([f"| {head} | start_us | end_us |", *rows])
        for head, rows in zip(heads, (ranges, calls, ops), strict=True)
    )
    return trace_of("\n\n".join(tables))


@pytest.mark.parametrize(("order", "per_step"), [("gegeg", 2), ("ggg", 0), ("eggee", 0), ("eegeeege", 3)])
def test_only_what_stands_between_graphs_is_an_island(order: str, per_step: int) -> None:
    (found,) = eager_islands(steps_of(order))
    assert found.per_step == per_step
    assert found.share == pytest.approx(per_step / len(order))


@pytest.mark.parametrize("order", ["eee", "egee"])
def test_one_graph_or_none_has_no_between(order: str) -> None:
    assert eager_islands(steps_of(order)) == ()
