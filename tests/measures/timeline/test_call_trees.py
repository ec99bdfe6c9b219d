"""Laws of call trees: their roots hold all the time there is, and nobody has less than those below."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.measures.idle.blame import idle_blame
from timesink.measures.timeline.attribution import attribution, host_nesting, operator_times
from timesink.measures.timeline.call_trees import (
    NO_OPERATOR,
    CallTree,
    device_tree,
    host_step_count,
    host_tree,
    idle_tree,
    module_tree,
    step_count,
    step_device_tree,
    step_host_tree,
    step_idle_tree,
    tree_change,
)
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.views.timeline.flames import own_ns, path, seen

BY_HAND = """
| device_ops | name | stream | start_us | end_us | correlation |
| a          | gemm | 7      | 40       | 50     | 1           |
| b          | gemm | 7      | 50       | 65     | 2           |
| c          | relu | 7      | 65       | 70     | 3           |
| unknown    | relu | 7      | 70       | 72     |             |

| api_calls | name             | start_us | end_us | correlation |
| launch a  | cudaLaunchKernel | 12       | 13     | 1           |
| launch b  | cudaLaunchKernel | 22       | 23     | 2           |
| launch c  | cudaLaunchKernel | 30       | 31     | 3           |

| host_ops | name     | start_us | end_us |
| first    | aten::mm | 11       | 15     |
| second   | aten::mm | 21       | 25     |

| ranges | name            | start_us | end_us |
| step   | ProfilerStep#3  | 10       | 35     |
"""


def times(tree: CallTree) -> dict[str, int]:
    return {" › ".join(path(tree, at)): int(tree.total_ns[at]) for at in range(len(tree))}


def holds(tree: CallTree, whole_ns: int) -> None:
    assert tree.total_ns[tree.parent < 0].sum() == whole_ns
    assert (tree.parent < np.arange(len(tree))).all()
    assert (own_ns(tree) >= 0).all()
    assert len({(int(above), name) for above, name in zip(tree.parent, tree.names, strict=True)}) == len(tree)


@given(traces())
def test_the_map_of_areas_has_what_operators_launched_themselves(trace: Trace) -> None:
    tree, found = module_tree(trace), attribution(trace)
    holds(tree, found.total_ns)
    leaves = np.setdiff1d(np.arange(len(tree)), tree.parent)
    sums: dict[str, int] = {}
    for above, ns in zip(tree.parent[leaves].tolist(), tree.total_ns[leaves].tolist(), strict=True):
        sums[tree.names[above]] = sums.get(tree.names[above], 0) + ns
    known = (
        operator_times(trace).group_by("name").agg(pl.col("self_device_ns").sum()).filter(pl.col("self_device_ns") > 0)
    )
    assert sums.pop(NO_OPERATOR, 0) == found.unattributed_ns
    assert sums == dict(known.rows())


@pytest.mark.slow
@given(traces(), traces())
def test_a_change_holds_both_trees_and_its_roots_differ_by_as_much(one: Trace, other: Trace) -> None:
    gpu, host = (step_count(one), step_count(other)), (host_step_count(one), host_step_count(other))
    for measure, counts in ((step_device_tree, gpu), (step_idle_tree, gpu), (step_host_tree, host)):
        before, after = measure(one), measure(other)
        both = tree_change(before, after, counts)
        roots = both.parent < 0
        for tree, count, side in ((before, counts[0], both.before_ns), (after, counts[1], both.after_ns)):
            assert side[roots].sum() == pytest.approx(tree.total_ns[tree.parent < 0].sum() / max(count, 1))
            below = np.zeros(len(both) + 1)
            np.add.at(below, both.parent, side)
            assert (side - below[:-1] > -1e-6).all()
        assert len({(int(above), name) for above, name in zip(both.parent, both.names, strict=True)}) == len(both)
        assert (both.parent < np.arange(len(both))).all()


def test_a_change_by_hand() -> None:
    before, after = (
        device_tree(trace_of(text)) for text in (BY_HAND, BY_HAND.replace("relu | 7      | 65", "gelu | 7      | 65"))
    )
    both = tree_change(before, after, (1, 2))
    found = {
        name: (both.before_ns[at], both.after_ns[at]) for at, name in enumerate(both.names) if both.parent[at] == 0
    }
    assert found == {"aten::mm": (25_000, 12_500), "relu": (5_000, 0), "gelu": (0, 2_500)}


@given(traces(min_ops=1))
def test_every_tree_holds_all_time_of_its_kind(trace: Trace) -> None:
    ops, idle = trace[DEVICE_OPS], idle_blame(trace).frame
    holds(device_tree(trace), int((ops["end_ns"] - ops["start_ns"]).sum()))
    holds(idle_tree(trace), int((idle["end_ns"] - idle["start_ns"]).sum()))
    tree = host_tree(trace)
    holds(tree, int(tree.total_ns[tree.parent < 0].sum()))
    assert tree.total_ns[tree.parent < 0].sum() >= host_nesting(trace).self_ns.sum()  # ranges may hold more


def test_what_cannot_be_seen_is_left_out_and_the_rest_keeps_its_time() -> None:
    tree = CallTree(("a", "b", "c", "d"), np.array([-1, 0, 0, 2]), np.array([10_000, 9_000, 4, 4]))
    kept = seen(tree)
    assert times(kept) == {"a": 10_000, "a › b": 9_000}
    assert own_ns(kept).tolist() == [1_000, 9_000]


@pytest.mark.parametrize("measure", [device_tree, idle_tree, host_tree])
def test_an_empty_trace_has_no_paths(measure: object) -> None:
    assert len(measure(trace_of("| device_ops | name | start_us | end_us |"))) == 0  # type: ignore[operator]
