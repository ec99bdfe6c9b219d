"""Gaps cut into stretches, worked by hand with every part other than empty."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timesink._native import cut as native_cut
from timesink._native import overlapping
from timesink.knowledge.assumptions import idle as assumed
from timesink.measures.idle import pieces
from timesink.measures.idle.causes import CAUSE_CODE, Segments
from timesink.model.arrays import found_at
from timesink.model.tables import API_CALLS
from timesink.records import field_names

US = 1_000
NAMES = {code: name for name, code in CAUSE_CODE.items()}


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def us(*values: int) -> np.ndarray:
    return array(*values) * US


TENTHS = np.arange(60)
CALLS = Segments(TENTHS * 0, TENTHS * 10 * US, (TENTHS + 1) * 10 * US, TENTHS, TENTHS * 0, TENTHS * 0)
"""Calls of timeline 0 whose row at a time is the time's tenth."""

ACTIVITY: Any = SimpleNamespace(
    timeline_of=array(0, 1),
    all=SimpleNamespace(
        timeline=array(0, 0, 0), start_ns=us(110, 130, 260), end_ns=us(120, 150, 290),
        cause=array(CAUSE_CODE["sync"], CAUSE_CODE["cuda_call"], CAUSE_CODE["sync"]), thread=array(5, 6, 7),
    ),
    by_table={API_CALLS: CALLS},
)  # fmt: skip


def work(op_class: tuple[int, ...] = (0, 0, 0, 1), **changed: Any) -> Any:
    """Ops 0 and 3 were there before; op 1 ends the gap [100, 190) and op 2 the gap [250, 400).

    Op 1 is launched at 160 by a call that returns at 170; op 2, launched at 300 with a return at 330, waits for op 3,
    which ends at 350. A call from 40 on waited for op 0 and returned at 105.
    """
    found: dict[str, Any] = {
        "ops": SimpleNamespace(
            call=array(0, 1, 2, 0), block=array(0, 1, 2, 3), device=array(0, 0, 0, 1), op_class=np.array(op_class),
            places_of=lambda rows: rows - 10,
        ),
        "calls": SimpleNamespace(
            start_ns=us(10, 160, 300, 40), end_ns=us(20, 170, 330, 105), thread=array(0, 0, 0, 0),
            row=array(20, 21, 22, 23),
        ),
        "blocks": SimpleNamespace(start_ns=us(30, 190, 400, 250), end_ns=us(100, 250, 500, 350), op=array(0, 1, 2, 3)),
        "releases": SimpleNamespace(call=array(3), block=array(0)),
        "events": SimpleNamespace(source=array(0, 3), sink=array(2, 2)),
        "costs": SimpleNamespace(latency_late_ns=lambda op: np.full(op.size, 4 * US), gap_late_ns=7 * US),
    }  # fmt: skip
    for key, value in changed.items():
        part, _, name = key.partition("__")
        found[part] = SimpleNamespace(**{**vars(found[part]), name: value})
    return SimpleNamespace(**found)


MIGRATES = np.zeros(4, np.bool_)
FRAME = pl.DataFrame({"start_ns": us(100, 250), "end_ns": us(190, 400), "op": array(11, 12)})


def cut(of: Any = None, frame: pl.DataFrame = FRAME) -> list[tuple[int, str, int, int]]:
    found = pieces.GapCutter.of(of or work(), ACTIVITY, MIGRATES).cut(frame)
    rows = [
        (int(gap), NAMES[int(cause)], int(start) // US, int(end) // US)
        for gap, cause, start, end in zip(found.gap, found.cause, found.start_ns, found.end_ns, strict=True)
    ]
    return sorted(rows, key=lambda row: (row[0], row[2]))


WHOLE = [
    (0, "sync", 100, 105), (0, "unrecorded_code", 105, 110), (0, "sync", 110, 120), (0, "unrecorded_code", 120, 130),
    (0, "cuda_call", 130, 150), (0, "unrecorded_code", 150, 160), (0, "launch_latency", 160, 164),
    (0, "cuda_call", 164, 170), (0, "unexplained", 170, 190),
    (1, "unrecorded_code", 250, 260), (1, "sync", 260, 290), (1, "unrecorded_code", 290, 300),
    (1, "launch_latency", 300, 304),
    (1, "cuda_call", 304, 330), (1, "dependency_communication", 330, 350), (1, "unexplained", 350, 400),
]  # fmt: skip


def test_every_stretch_by_hand() -> None:
    assert cut() == WHOLE
    total = {gap: sum(end - start for number, _, start, end in WHOLE if number == gap) for gap in (0, 1)}
    assert total == {0: 90, 1: 150}


def test_what_each_stretch_is_blamed_on() -> None:
    found = pieces.GapCutter.of(work(), ACTIVITY, MIGRATES).cut(FRAME)
    rows = {
        (int(gap), NAMES[int(cause)], int(start) // US): (*map(int, blamed), int(asked) // US)
        for gap, cause, start, *blamed, asked in zip(
            found.gap, found.cause, found.start_ns, found.timeline, found.thread, found.call_row, found.sync_row,
            found.asked_ns, strict=True,
        )
    }  # fmt: skip
    assert rows[0, "sync", 100] == (0, 0, 23, 23, 40)
    assert rows[0, "launch_latency", 160] == (0, 0, 21, 23, 160)
    assert rows[0, "unexplained", 170] == (0, -1, -1, 23, 170)
    assert rows[1, "unrecorded_code", 250] == (0, 0, -1, -1, 250)
    assert rows[1, "sync", 260] == (0, 7, 26, -1, 260)
    assert rows[1, "cuda_call", 304] == (0, 0, 22, -1, 300)
    assert rows[1, "dependency_communication", 330] == (0, -1, -1, -1, 330)


@pytest.mark.parametrize(
    ("begins", "returns", "until"),
    [(40, 105, 105), (90, 105, 105), (60, 112, 112), (110, 120, None), (100, 105, None), (40, 165, None),
     (40, 160, 160)],
)  # fmt: skip
def test_until_when_a_gap_lies_in_the_call_that_drained_the_device(
    begins: int, returns: int, until: int | None
) -> None:
    """The wait for op 0, over at 100."""
    of = work(calls__start_ns=us(10, 160, 300, begins), calls__end_ns=us(20, 170, 330, returns))
    found = [row for row in cut(of) if row[:2] == (0, "sync") and row[2] == 100]
    assert found == ([] if until is None else [(0, "sync", 100, until)])


@pytest.mark.parametrize(("ended", "drains"), [(100, True), (80, True), (79, False), (101, False)])
def test_a_wait_drains_a_gap_that_begins_up_to_20_us_later(ended: int, drains: bool) -> None:
    of = work(blocks__end_ns=us(ended, 250, 500, 350))
    assert ((0, "sync") in [row[:2] for row in cut(of) if row[2] == 100]) is drains


def test_of_several_waits_the_last_one_on_the_same_device_and_timeline_counts() -> None:
    more = {"releases__call": array(3, 0), "releases__block": array(0, 3)}
    assert cut(work(**more)) == WHOLE  # the other was for another device
    of = work(releases__call=array(3, 3), releases__block=array(0, 3), ops__device=array(0, 0, 0, 0),
              blocks__end_ns=us(90, 250, 500, 100), calls__start_ns=us(10, 160, 300, 95))  # fmt: skip
    assert cut(of)[0] == (0, "sync", 100, 105)
    earlier = work(releases__call=array(0, 3), releases__block=array(3, 0), ops__device=array(0, 0, 0, 0),
                   calls__start_ns=us(60, 160, 300, 40), calls__end_ns=us(92, 170, 330, 105),
                   blocks__end_ns=us(100, 250, 500, 90), events__source=array(), events__sink=array())  # fmt: skip
    assert cut(earlier)[0] == (0, "sync", 100, 105)  # by the call that was released at 90 it would have none
    other = work(calls__thread=array(0, 0, 0, 1))
    assert cut(other)[0] == (0, "unrecorded_code", 100, 110)
    alone = work(releases__block=array(3))  # nobody waited for this gap's device
    assert cut(alone, FRAME[:1])[0] == (0, "unrecorded_code", 100, 110)


def test_what_the_host_did_in_two_gaps_that_no_wait_began() -> None:
    idle = work(releases__call=array(), releases__block=array())
    assert cut(idle) == [
        (0, "unrecorded_code", 100, 110), *WHOLE[2:],
    ]  # fmt: skip
    assert cut(frame=FRAME.clear()) == []


@example([(4, 0)], {4})
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=6),
    st.sets(st.integers(0, 30), max_size=8),
)
def test_pieces_cut_at_instants_lie_between_two_of_them(spans: list[tuple[int, int]], edges: set[int]) -> None:
    """Each stretch from its start over the instants within it to its end, with all else as it was."""
    columns = [np.arange(len(spans), dtype=np.int64) + 100 * number for number in range(9)]
    columns[1] = array(*(start for start, _ in spans))
    columns[2] = array(*(start + length for start, length in spans))
    row, found = pieces.Pieces(*columns).cut_at(array(*sorted(edges)))
    right = []
    for number, (start, length) in enumerate(spans):
        marks = [start, *(edge for edge in sorted(edges) if start < edge < start + length), start + length]
        right += [(number, *bounds) for bounds in pairwise(marks)]
    assert list(zip(row.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == right
    for name, before in zip(field_names(found), columns, strict=True):
        if name not in ("start_ns", "end_ns"):
            assert getattr(found, name).tolist() == before[row].tolist()


@pytest.mark.parametrize(
    ("calls", "begun"),
    [((0, 0, -1, 3), [100, 400]), ((1, 1, 0, 0), [100, 250]), ((-1, 0, 1, 1), [200, 250]), ((-1, -1, -1, -1), []),
     ((2, 1, 0, -1), [100, 200, 250])],
)  # fmt: skip
def test_of_the_gaps_that_one_call_drained_the_first_says_when(
    calls: tuple[int, ...], begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"start_ns": us(100, 200, 250, 400), "end_ns": us(190, 220, 390, 450), "op": [11, 12, 11, 12]})
    monkeypatch.setattr(pieces, "_drains", lambda *_: (array(*calls), us(150, 210, 300, 410)))
    assert (pieces.GapCutter.of(work(), ACTIVITY, MIGRATES).drained_at(frame) // US).tolist() == begun


def test_ops_of_a_graph_or_without_a_launch_have_no_host_part() -> None:
    graph = work(blocks__start_ns=us(30, 150, 400, 250))
    assert [row for row in cut(graph) if row[0] == 0] == [(0, "graph_gap", 100, 190)]
    unlaunched = work(ops__call=array(0, -1, 2, 0))
    assert [row for row in cut(unlaunched) if row[0] == 0] == [(0, "unexplained", 100, 190)]
    assert cut(unlaunched, FRAME[:1].with_columns(start_ns=pl.lit(0, pl.Int64))) == [(0, "unexplained", 0, 190)]


@pytest.mark.parametrize(("end", "cause"), [(177, "kernel_gap"), (178, "unexplained")])
def test_what_is_left_is_ordinary_up_to_a_late_gap(end: int, cause: str) -> None:
    frame = FRAME.with_columns(end_ns=pl.Series(us(end, 400)))
    of = work(blocks__start_ns=us(30, end, 400, 250))
    assert [row for row in cut(of, frame) if row[0] == 0][-1] == (0, cause, 170, end)


def test_the_longest_ordinary_gap_stays_within_what_is_known_of_gpus() -> None:
    least, most = assumed.GAP_LEAST_US.ns, assumed.GAP_MOST_US.ns
    assert [pieces.ordinary_gap_ns(late) for late in (0, least + 1, most - 1, most + 9)] == [
        least,
        least + 1,
        most - 1,
        most,
    ]


@pytest.mark.parametrize(("op_class", "cause"), [(0, "compute"), (1, "communication"), (2, "copy")])
def test_a_dependency_is_named_by_what_was_waited_for(op_class: int, cause: str) -> None:
    assert (1, f"dependency_{cause}", 330, 350) in cut(work((0, 0, 0, op_class)))
    nothing = work(events__source=array(), events__sink=array())
    assert (1, "unexplained", 330, 400) in cut(nothing)


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (3, 0, 1, 2)])
def test_the_first_call_of_all_counts_as_any_other(order: tuple[int, ...]) -> None:
    """The launch of op 1, or the wait, is call number 0."""
    plain = work()
    number = np.argsort(order)
    calls = {f"calls__{name}": values[list(order)] for name, values in vars(plain.calls).items()}
    assert cut(work(**calls, ops__call=number[plain.ops.call], releases__call=number[plain.releases.call])) == WHOLE


def test_an_op_after_all_that_waited_has_no_dependency() -> None:
    of = work(events__source=array(3), events__sink=array(1))
    assert [row for row in cut(of) if row[0] == 0][-1:] == [(0, "dependency_communication", 170, 190)]
    assert cut(of)[-1] == (1, "unexplained", 330, 400)
    both = cut(work(events__source=array(3, 3), events__sink=array(1, 2)))
    assert (both[8], both[-2]) == ((0, "dependency_communication", 170, 190), WHOLE[-2])


@pytest.mark.parametrize(
    ("segments", "windows", "first"),
    [
        (([0, 1], [1000, 900], [1100, 1200]), ([0, 1, 0, 1], [1050, 950, 100, 100], [5000, 1000, 5001, 5001]),
         [0, 1, 0, 1]),
        (([0, 1], [10, 5], [9000, 9001]), ([0, 1], [20, 6], [30, 7]), [0, 1]),
        (([0, 1], [10, 5], [9000, 9001]), ([1, 0], [6, 8999], [7, 20_000]), [1, 0]),
        (([0, 1], [0, 0], [1000, 10]), ([1], [5], [8]), [1]),
        (([0, 1], [-100, -100], [10, -90]), ([1], [-95], [-92]), [1]),
        (([0, 1, 1], [0, 0, 900], [1000, 10, 905]), ([0], [985], [990]), [0]),
        (([0, 1], [900, 900], [1000, 901]), ([0, 1], [950, 0], [960, 950]), [0, 1]),
    ],
)  # fmt: skip
def test_windows_and_segments_may_reach_past_each_other(segments: Any, windows: Any, first: list[int]) -> None:
    found, last = overlapping(*(array(*column) for column in (*segments, *windows)))
    assert (found.tolist(), (last - found).tolist()) == (first, [1] * len(first))


@pytest.mark.parametrize(
    ("op_class", "beside"),
    [
        ((2, 0, 0, 2), [True, True, False, True]),
        ((0, 2, 0, 0), [False, True, True, False]),
        ((0, 0, 0, 2), [False, False, False, True]),
    ],
)
def test_a_gap_is_beside_a_copy_that_ends_it_or_ended_before_it(op_class: tuple[int, ...], beside: list[bool]) -> None:
    gaps: Any = SimpleNamespace(op=array(0, 1, 2, 3))
    assert pieces._beside_copy(gaps, work(op_class)).tolist() == beside


def test_the_source_that_ended_last_counts() -> None:
    of = work(events__source=array(1, 2, 2, 5), events__sink=array(4, 4, 7, 7), blocks__end_ns=us(0, 20, 30, 0, 0, 65))
    sink, source = pieces._last_sources(of)
    assert (sink.tolist(), source.tolist()) == ([4, 7], [2, 5])


def test_segments_that_overlap_windows_by_hand() -> None:
    segments = (array(0, 0, 1, 1), array(10, 50, 0, 30), array(20, 80, 10, 40))
    windows = (array(0, 1, 0, 0, 1, 0), array(15, 15, 20, 80, 35, 0), array(60, 20, 50, 90, 100, 10))
    first, last = overlapping(*segments, *windows)
    assert (first.tolist(), (last - first).tolist()) == ([0, 3, 1, 2, 3, 0], [2, 0, 0, 0, 1, 0])
    later = tuple(part if n % 3 == 0 else part + 10**12 for n, part in enumerate((*segments, *windows)))
    assert [part.tolist() for part in overlapping(*later)] == [first.tolist(), last.tolist()]
    none = (array(), array(), array())
    assert [part.tolist() for part in overlapping(*none, *windows)] == [[0] * 6, [0] * 6]
    assert [part.tolist() for part in overlapping(*segments, *none)] == [[], []]
    one = (array(0), array(10), array(10))
    assert [part.tolist() for part in overlapping(*one, *one)] == [[1], [1]]


LENGTHS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=12)


@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 7, st.integers(-1, 2), st.booleans()), max_size=9),
    st.tuples(LENGTHS, LENGTHS),
    st.tuples(LENGTHS, LENGTHS),
)
def test_the_compiled_cut_says_of_each_instant_what_one_look_at_it_says(
    gaps: list[Any], did: tuple[Any, Any], calls: tuple[Any, Any]
) -> None:
    """Gaps by what lies before them, the lengths of their parts, their timeline and whether a wait drained them."""
    before, *lengths = (np.array([gap[part] for gap in gaps], np.int64) for part in range(7))
    drained, line = np.array([gap[8] for gap in gaps], bool), np.array([gap[7] for gap in gaps], np.int64)
    lengths[0] = np.where(drained, lengths[0], 0)
    ends = np.cumsum([before, *lengths], axis=0) + np.cumsum(np.append(0, before + sum(lengths))[:-1])
    number = np.arange(line.size, dtype=np.int64)
    waited = np.where(drained, number + 300, -1)
    blamed = [number + 100, number + 200, number + 500, number + 400, waited, number + 600, number + 14, number + 15]
    first, second = ([apart(line, spans) for line, spans in enumerate(table)] for table in (did, calls))
    segments, named = ([np.concatenate(columns) for columns in zip(*table, strict=True)] for table in (first, second))
    place = np.arange(segments[0].size, dtype=np.int64)
    found = native_cut(
        [*ends, line, *blamed], [*segments, place + 700, place + 800], [*named, np.arange(named[0].size)], [1, 2, 3, 4]
    )
    seen = []
    for at in number:
        marks = [*ends[:, at]]
        for time in range(marks[0], marks[-1]):
            part = int(np.searchsorted(marks[1:], time, side="right"))
            inside = holder(segments, line[at], time) if part == 1 else -1
            start = marks[part]
            if part == 1:
                edges = (segments[1] if inside >= 0 else segments[2])[segments[0] == line[at]]
                start = max(edge for edge in [start, *edges] if edge <= time)
            call = holder(named, line[at], start)
            told = [
                (1, blamed[3][at], waited[at], blamed[5][at]),
                (2, blamed[0][at], -1, start) if inside < 0 else (inside + 800, inside + 700, call, start),
                (3, blamed[0][at], blamed[1][at], blamed[2][at]), (4, blamed[0][at], blamed[1][at], blamed[2][at]),
                (at + 14, -1, -1, start), (at + 15, -1, -1, start),
            ][part]  # fmt: skip
            row = (at, start, *told[:1], line[at], *told[1:3], waited[at], told[3])
            if not seen or seen[-1][0] != row:
                seen.append((row, time, time))
            seen[-1] = (row, seen[-1][1], time)
    rows = [(gap, start, last + 1, *others) for (gap, _, *others), start, last in seen]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [tuple(map(int, row)) for row in rows]


def apart(line: int, spans: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """Disjoint segments of one timeline, of distances and lengths, in which none is empty."""
    times = np.cumsum([part for distance, length in spans for part in (distance, length + 1)], dtype=np.int64)
    return np.full(len(spans), line), times[::2], times[1::2]


def holder(segments: list[np.ndarray], line: int, time: int) -> int:
    """The one segment of the line that holds the moment, -1 for none."""
    held = np.flatnonzero((segments[0] == line) & (segments[1] <= time) & (time < segments[2]))
    return int(held[0]) if held.size else -1


@pytest.mark.parametrize("wrong", [((0, 0), 1), ((1, 2), 1), ((2, 3), 1), ((0, 15), 16), ((3, 0), 0)])
def test_the_compiled_cut_refuses_columns_that_do_not_belong_together(wrong: Any) -> None:
    (group, column), size = wrong
    one = [[array(0)] * 16, [array(0)] * 5, [array(0)] * 4, [1, 2, 3, 4]]
    assert [part.tolist() for part in native_cut(*one)] == [[]] * 9
    if group == 3:
        one[3] = [1, 2, 3]
    else:
        one[group] = [*one[group]]
        one[group][column] = array(*range(size + 1))
    with pytest.raises(ValueError, match=r"differ in length|four causes"):
        native_cut(*one)
    with pytest.raises(ValueError, match="another number of columns"):
        native_cut(one[0][:15], one[1], one[2], one[3])


def test_values_at_places_that_may_be_none() -> None:
    assert found_at(array(5, 6), array(1, -1, 0)).tolist() == [6, -1, 5]
    assert found_at(array(), array(-1, -1)).tolist() == [-1, -1]
