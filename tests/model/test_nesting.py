import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import frame, nested

from timesink._native import enclose, nest, totals
from timesink.model.intervals import Intervals
from timesink.model.nesting import Nesting, key_slices
from timesink.model.tables import HOST_OPS

NAMES = ("aten::mm", "aten::add", "aten::to")


def host_ops(rows: list[dict[str, object]]) -> pl.DataFrame:
    return frame(HOST_OPS, [{name: value for name, value in row.items() if name != "depth"} for row in rows])


def op(start: int, end: int, name: str = "f", thread: int = 1) -> dict[str, object]:
    return {"rank": 0, "process": 1, "thread": thread, "name": name, "start_ns": start, "end_ns": end}


threads = st.tuples(nested(NAMES, 1), nested(NAMES, 2)).map(lambda both: both[0] + both[1])


def test_parents_depths_and_self_times() -> None:
    nest = Nesting.of(host_ops([op(0, 100), op(10, 40), op(10, 20), op(50, 60), op(0, 5, thread=2)]))
    rows = list(zip(nest.start_ns, nest.end_ns, nest.depth, nest.self_ns, strict=True))
    assert rows == [(0, 100, 0, 60), (10, 20, 2, 10), (10, 40, 1, 20), (50, 60, 1, 10), (0, 5, 0, 5)]
    assert nest.parent.tolist() == [-1, 2, 0, 0, -1]


def test_the_innermost_interval_holds_its_start_but_not_its_end() -> None:
    nest = Nesting.of(host_ops([op(0, 100), op(10, 40)]))
    assert nest.innermost((0, 1, 1), [-1, 0, 10, 39, 40, 99, 100]).tolist() == [-1, 0, 1, 1, 0, 0, -1]
    assert nest.innermost((0, 1, 2), [5]).tolist() == [-1]


def test_nothing_nests_in_an_empty_table() -> None:
    nest = Nesting.of(HOST_OPS.empty())
    assert nest.innermost((0, 1, 1), [5]).tolist() == [-1]
    assert nest.inclusive(np.empty(0, np.int64)).size == 0


@given(threads)
def test_self_times_sum_to_the_outermost_durations(rows: list[dict[str, object]]) -> None:
    nest = Nesting.of(host_ops(rows))
    lengths = nest.end_ns - nest.start_ns
    assert nest.self_ns.sum() == lengths[nest.parent < 0].sum()
    assert (nest.inclusive(nest.self_ns) == lengths).all()


@given(threads, st.integers(0, 120))
def test_innermost_is_the_shortest_interval_that_holds_the_instant(rows: list[dict[str, object]], when: int) -> None:
    table = host_ops(rows)
    found = int(Nesting.of(table).innermost((0, 1, 1), [when])[0])
    holding = table.filter((pl.col("thread") == 1) & (pl.col("start_ns") <= when) & (pl.col("end_ns") > when))
    if found < 0:
        assert holding.height == 0
    else:
        lengths = holding["end_ns"] - holding["start_ns"]
        assert table["end_ns"][found] - table["start_ns"][found] == lengths.min()


@given(threads)
def test_inclusive_sums_are_those_of_walking_every_chain_of_parents(rows: list[dict[str, object]]) -> None:
    nest = Nesting.of(host_ops(rows))
    expected = [0] * len(rows)
    for row in range(len(rows)):
        above = row
        while above >= 0:
            expected[above] += row + 1
            above = int(nest.parent[above])
    assert nest.inclusive(np.arange(1, len(rows) + 1)).tolist() == expected


@given(threads)
def test_outermost_of_name_looks_through_other_names(rows: list[dict[str, object]]) -> None:
    table = host_ops(rows)
    nest, names = Nesting.of(table), table["name"].cast(pl.String).to_list()
    codes = table["name"].to_physical().cast(pl.Int64).to_numpy()
    for row, outermost in enumerate(nest.outermost_of_name(codes)):
        above, seen = int(nest.parent[row]), []
        while above >= 0:
            seen.append(names[above])
            above = int(nest.parent[above])
        assert outermost == (names[row] not in seen)


@given(threads, st.data())
def test_values_come_from_the_outermost_or_the_innermost_interval_that_has_one(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    nest = Nesting.of(host_ops(rows))
    own = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=len(rows), max_size=len(rows))), np.int64)
    outermost, innermost = nest.outermost(own).tolist(), nest.innermost_value(own).tolist()
    for row in range(len(rows)):
        above, seen = row, []
        while above >= 0:
            seen += [int(own[above])] if own[above] >= 0 else []
            above = int(nest.parent[above])
        assert outermost[row] == (seen[-1] if seen else -1)
        assert innermost[row] == (seen[0] if seen else -1)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_any_rows_in_order_nest_as_they_do_with_the_longest_first(rows: list[tuple[int, int, int]]) -> None:
    """Rows may cross; of those that start together the later one in the table is the longer."""
    rows = sorted((thread, start, start + length) for thread, start, length in rows)
    thread, start, end = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    first = np.array(sorted({[row[0] for row in rows].index(row[0]) for row in rows}), np.int64)
    order, parent, depth, self_ns = nest(first, start, end)
    longest_first = sorted(range(len(rows)), key=lambda row: (thread[row], start[row], -row))
    assert order.tolist() == longest_first
    expected = enclose(thread[order], start[order], end[order])
    assert [int(order[at]) if at >= 0 else -1 for at in expected[0]] == parent[order].tolist()
    assert (expected[1] == depth[order]).all()
    assert (expected[2] == self_ns[order]).all()


triples = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(0, 20)), max_size=20)


@given(triples)
def test_a_union_per_group_is_the_union_of_each_group(rows: list[tuple[int, int, int]]) -> None:
    group, start, length = (
        (np.array(column, np.int64) for column in zip(*rows, strict=True)) if rows else [np.empty(0, np.int64)] * 3
    )
    expected = [Intervals.union_of(start[group == g], (start + length)[group == g]).total_ns for g in range(4)]
    assert totals(group, np.arange(group.size), group, start, start + length, 4)[-1].tolist() == expected


def test_a_union_per_group_survives_times_too_long_to_shift() -> None:
    group, start = np.array([0, 1, 2, 2], np.int64), np.array([0, 0, 0, 2**61], np.int64)
    assert totals(group, np.arange(4), group, start, start + 5, 3)[-1].tolist() == [5, 5, 10]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=30))
def test_key_slices_are_the_groups_of_a_sorted_table(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows)
    frame = pl.DataFrame(rows, schema=["rank", "process", "thread"], orient="row")
    expected = {key: (rows.index(key), rows.index(key) + rows.count(key)) for key in rows}
    found = {key: (first, last) for key, first, last in key_slices(frame, frame.columns)}
    assert found == expected
    assert list(found) == sorted(expected)
