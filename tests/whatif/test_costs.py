"""The compiled passes over costs against the same in NumPy, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink import _native
from timesink.model.arrays import Float64Array, Int64Array
from timesink.whatif.network import DISABLED, EdgeKind, Edges, Network

WEIGHTS = st.lists(st.one_of(st.integers(-5, 10**7), st.just(DISABLED)), min_size=1, max_size=12)


@given(WEIGHTS, st.data())
def test_a_share_of_what_weighs_goes_and_halves_are_rounded_to_even(weights: list[int], data: st.DataObject) -> None:
    edges = np.array(data.draw(st.lists(st.sampled_from(range(len(weights))), unique=True)), np.int64)
    share = np.array([data.draw(st.floats(-3.0, 1.0)) for _ in edges], np.float64)
    weight = np.array(weights, np.int64)
    wanted = weight.copy()
    kept = np.rint(weight[edges] * (1.0 - share)).astype(np.int64)
    wanted[edges] = np.where(weight[edges] > 0, kept, weight[edges])
    _native.shorten(weight, edges, share)
    assert weight.tolist() == wanted.tolist()


def saved_slowly(
    begin: Int64Array, end: Int64Array, start: Int64Array, stop: Int64Array, share: Float64Array
) -> tuple[Int64Array, Float64Array]:
    """As the compiled pass, by searches."""
    bounds = np.stack((start, stop), axis=1).ravel()
    sums = np.stack((np.zeros(share.size), (stop - start) * share), axis=1).ravel().cumsum()
    slope = np.diff(sums, append=sums[-1:]) / np.maximum(np.diff(bounds, append=bounds[-1:]), 1)
    last = [np.searchsorted(bounds, time, side="right") - 1 for time in (end, begin)]
    since = [np.where(at >= 0, time - bounds[at], 0) for at, time in zip(last, (end, begin), strict=True)]
    after, before = (
        slope[at] * ago + sums[at] for at, ago in zip((np.maximum(at, 0) for at in last), since, strict=True)
    )
    touched = np.flatnonzero(after != before)
    return touched, np.minimum((after - before)[touched] / (end - begin)[touched], 1.0)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=16), st.data())
def test_what_shares_of_intervals_save_of_edges_is_that_of_numpy_to_the_bit(
    steps: list[int], data: st.DataObject
) -> None:
    times = np.cumsum(np.array(steps[: len(steps) // 2 * 2], np.int64))
    start, stop = times[::2], times[1::2]
    share = np.array([data.draw(st.floats(-3.0, 1.0)) for _ in start], np.float64)
    pairs = st.tuples(st.integers(0, 400), st.integers(1, 300))  # in any order
    begin, length = np.array(data.draw(st.lists(pairs, min_size=1, max_size=9)), np.int64).T
    wanted = saved_slowly(begin, begin + length, start, stop, share)
    found = _native.savings(np.arange(begin.size), begin, begin + length, start, stop, share)
    assert [part.tolist() for part in found] == [part.tolist() for part in wanted]


@given(WEIGHTS, st.data())
def test_networks_demand_the_same_where_each_edge_does(weights: list[int], data: st.DataObject) -> None:
    weight = np.array(weights, np.int64)
    more = np.array([data.draw(st.integers(0, 3)) for _ in weights], np.int64)
    moved = np.where((weight == DISABLED) | (more == 0), 0, data.draw(st.integers(0, 1)))  # told from weight to excess
    assert _native.same_demands(weight, more, weight + moved, more - moved)
    other = weight.copy()
    other[data.draw(st.integers(0, weight.size - 1))] += 1
    assert not _native.same_demands(weight, more, other, more)
    assert not _native.same_demands(weight, more, weight[1:], more[1:])
    assert _native.same_demands(weight, np.where(weight == DISABLED, 7, more), weight, more)


@given(WEIGHTS, st.data())
def test_weights_passed_are_the_sums_of_those_above_zero(weights: list[int], data: st.DataObject) -> None:
    weight, place = np.array(weights, np.int64), st.integers(0, len(weights))
    begun, over = (np.array([data.draw(place) for _ in range(4)], np.int64) for _ in range(2))
    edges = np.arange(len(weights))[::-1].copy()
    sums = np.append(0, np.maximum(weight[edges], 0).cumsum())
    assert _native.passed(weight, edges, begun, over).tolist() == (sums[over] - sums[begun]).tolist()


EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), WEIGHTS.map(lambda many: many[0])), max_size=12)
TIMES = st.lists(st.integers(0, 30), min_size=5, max_size=5)


@given(EDGES, TIMES, TIMES)
def test_costs_that_explain_times_are_those_of_numpy(
    drawn: list[tuple[int, int, int]], observed: list[int], wanted: list[int]
) -> None:
    src, dst, weight_ns = np.array(drawn, np.int64).reshape(-1, 3).T
    network = Network.build(np.array(observed), Edges.of(EdgeKind.HOST, src, dst, weight_ns))
    time_ns, edges = np.array(wanted, np.int64), network.edges
    weight = np.minimum(edges.weight_ns, time_ns[edges.dst] - time_ns[edges.src])
    arrival, unexplained = time_ns[edges.src] + weight, np.zeros(len(edges), np.int64)
    for node in np.unique(edges.dst):
        into = np.flatnonzero(edges.dst == node)
        unexplained[into[arrival[into].argmax()]] = time_ns[node] - arrival[into].max()
    found = network.explain(edges.weight_ns, time_ns).edges
    assert (found.weight_ns.tolist(), found.unexplained_ns.tolist()) == (weight.tolist(), unexplained.tolist())


@pytest.mark.parametrize("edge", [-1, 3])
def test_arrays_that_contradict_one_another_are_refused(edge: int) -> None:
    three, one, half = np.ones(3, np.int64), np.ones(1, np.int64), np.full(1, 0.5)
    away = np.array([edge], np.int64)
    with pytest.raises(ValueError, match="no such place"):
        _native.shorten(three, away, half)
    with pytest.raises(ValueError, match="one value per edge"):
        _native.shorten(three, one, np.ones(2))
    with pytest.raises(ValueError, match="two bounds"):
        _native.savings(one, one, one, one, one, np.ones(2))
    with pytest.raises(ValueError, match="two bounds"):
        _native.savings(one, one, one, three, one, half)
    with pytest.raises(ValueError, match="two bounds"):
        _native.savings(one, one, one, one[:0], one[:0], half[:0])
    with pytest.raises(ValueError, match="differ in length"):
        _native.savings(one, one, three, one, one, half)
    with pytest.raises(ValueError, match="differ in length"):
        _native.same_demands(one, three, one, one)
    with pytest.raises(ValueError, match="no such place"):
        _native.explain(one - 1, np.array([0, 1]), away, one, one)
    with pytest.raises(ValueError, match="no such place"):
        _native.explain(one - 1, np.array([0, 2]), one - 1, one, one)
    with pytest.raises(ValueError, match="no such place"):
        _native.explain(away, np.array([0, 1]), one - 1, one, one)
    with pytest.raises(ValueError, match="differ in length"):
        _native.explain(one - 1, np.array([0]), one - 1, one, one)
    with pytest.raises(ValueError, match="no such place"):
        _native.passed(three, away, one, one)
    with pytest.raises(ValueError, match="no such place"):
        _native.passed(three, one, away, one)
    with pytest.raises(ValueError, match="differ in length"):
        _native.passed(three, one, one, np.ones(2, np.int64))
    with pytest.raises(TypeError):  # a copy would be shortened, and the edges not
        _native.shorten(np.ones(6, np.int64)[::2], one, half)


REPLAY = {
    "order": [0, 1], "first": [0, 0, 1], "src": [0], "weight_ns": [5], "unexplained_ns": [1], "own_time_ns": [3, 9]
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("order", [0, 2]), ("order", [-1, 1]), ("order", [0]), ("first", [0, 2, 1]), ("first", [0, 0, 2]),
        ("first", [1, 0, 1]), ("first", [0, -1, 1]), ("src", [2]), ("src", [-1]), ("weight_ns", []),
        ("unexplained_ns", []), ("own_time_ns", [3]),
    ],
)  # fmt: skip
def test_a_replay_reads_nothing_outside_its_arrays(part: str, wrong: list[int]) -> None:
    asked = {name: np.array(values, np.int64) for name, values in REPLAY.items()}
    assert [found.tolist() for found in _native.replay(**asked)] == [[3, 9], [-1, 0]]
    with pytest.raises(ValueError, match=r"replay needs|offsets|schedule|no such|does not exist"):
        _native.replay(**{**asked, part: np.array(wrong, np.int64)})
