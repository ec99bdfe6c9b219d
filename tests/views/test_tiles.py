"""Laws of what a served timeline answers: nothing is left out, nothing covers a gap that a pixel shows."""

from collections import Counter
from importlib.resources import as_file, files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import trace_of

from timesink.measures.timeline import device_timeline
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.views import timeline as lanes
from timesink.views.figures import Runs, Timeline
from timesink.views.timeline import tiles, timeline_of, whole_timeline
from timesink.views.timeline.runs import binned, fitted, laid_out, single

EVENTS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 300)), min_size=1, max_size=80)


@given(EVENTS, st.integers(1, 700))
@settings(derandomize=True, deadline=None)
def test_bins_hold_every_event_and_cover_no_gap_as_long_as_one(events: list[tuple[int, int]], width: int) -> None:
    start = np.array([begin for begin, _ in events], np.int64)
    for row in laid_out(single(start, start + np.array([length for _, length in events], np.int64))):
        coarse = binned(row, width, 0)
        assert coarse.count.sum() == row.count.sum()
        assert coarse.busy_ns.sum() == row.busy_ns.sum()
        assert (coarse.start_ns[1:] >= coarse.end_ns[:-1]).all()
        covered = np.searchsorted(coarse.start_ns, row.start_ns[1:], "right") == np.searchsorted(
            coarse.start_ns, row.start_ns[:-1], "right"
        )
        assert ((row.start_ns[1:] - row.end_ns[:-1])[covered] <= width).all()
        assert ((coarse.end_ns - coarse.start_ns)[coarse.count > row.count.max()] < 2 * width).all()


@pytest.fixture(scope="module")
def trace() -> Trace:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        return read(path, cache=False)


@pytest.fixture(scope="module")
def whole(trace: Trace) -> Timeline:
    timeline = whole_timeline(trace)
    assert timeline is not None
    return timeline


def names_in(timeline: Timeline) -> Counter[int]:
    """How many events of each name there are, also in runs of several."""
    found: Counter[int] = Counter()
    for lane in timeline.lanes:
        for row in lane.rows:
            for name, count in zip(row.name.tolist(), row.count.tolist(), strict=True):
                found.update(dict(timeline.mixes[-2 - name]) if name < -1 else {name: count})
    return found


def test_joined_boxes_know_every_name(whole: Timeline) -> None:
    small = fitted(whole, 2000)
    assert sum(row.start_ns.size for lane in small.lanes for row in lane.rows) <= 2000
    assert names_in(small) == names_in(whole)


def test_a_tile_is_the_rows_at_a_pixel(whole: Timeline) -> None:
    served = tiles.Tiles(whole)
    places = [(at, depth) for at, lane in enumerate(whole.lanes) for depth in range(len(lane.rows))]
    every = served.tile([*places, (99, 0), (0, 99), (-1, 0)], 0, served.length_ns, 0)
    assert every.is_whole
    assert [place for place, _ in every.rows] == places
    assert sum(row.start_ns.size for _, row in every.rows) == sum(len(r.start_ns) for x in whole.lanes for r in x.rows)
    coarse = served.tile(places, 0, served.length_ns, served.length_ns / 1000)
    assert not coarse.is_whole
    assert max(row.start_ns.size for _, row in coarse.rows) <= tiles._FEW
    part: Runs
    for (at, depth), part in served.tile(places, 40_000_000, 41_000_000, 0).rows:
        row = whole.lanes[at].rows[depth]
        touching = (row.end_ns - whole.start_ns > 40_000_000) & (row.start_ns - whole.start_ns < 41_000_000)
        assert part.start_ns.tolist() == row.start_ns[touching].tolist()


def test_an_answer_stays_small_however_much_is_asked_for(whole: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_RUNS", 5000)
    monkeypatch.setattr(tiles, "_FEW", 16)
    served = tiles.Tiles(whole)
    answer = served.tile([(at, 0) for at in range(len(whole.lanes))], -(1 << 60), 1 << 60, 0)
    assert 1000 < sum(row.start_ns.size for _, row in answer.rows) <= 5000


def test_a_budget_is_that_of_the_device_timeline(trace: Trace, whole: Timeline) -> None:
    line = device_timeline(trace)[0, 0]
    served = tiles.Tiles(whole)
    first, last = line.span_start_ns - whole.start_ns, line.span_end_ns - whole.start_ns
    times = served.budget(0, 0, first, last)["times"]
    assert times == {
        "compute": line.compute_ns, "communication": 0, "copy": line.exposed_copy_ns, "idle": line.idle_ns,
    }  # fmt: skip
    assert sum(ns for _, ns, _ in served.budget(0, 0, first, last)["causes"]) == line.idle_ns


def test_a_name_is_counted_and_a_kernel_leads_to_its_launch_and_operator(whole: Timeline) -> None:
    served = tiles.Tiles(whole)
    found = served.search("NVJET")
    assert found["events"] == len(found["hits"]) > 100
    assert found["hits"] == sorted(found["hits"], key=lambda hit: hit["start"])
    assert served.search("  ")["hits"] == []
    kernel = found["hits"][3]
    around = served.around((kernel["lane"], kernel["depth"]), kernel["start"])
    inside = [whole.texts[event["name"]] for event in around["inside"]]
    assert "aunch" in whole.texts[around["cause"]["name"]]
    assert inside[0].startswith("aten::")
    call = around["cause"]
    effects = served.around((call["lane"], call["depth"]), call["start"])["effects"]
    assert kernel in effects
    assert served.around((kernel["lane"], kernel["depth"]), 1)["cause"] is None


def test_more_ranks_than_a_screen_holds_have_a_strip_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\n".join(f"| k | gemm | {rank} | {rank} | {rank + 40} |" for rank in range(40))
    trace = trace_of(f"| device_ops | name | rank | start_us | end_us |\n{rows}")
    timeline = timeline_of(trace)
    assert timeline is not None
    ranks = timeline.lanes[0]
    assert (ranks.kind, ranks.label, len(ranks.rows)) == ("ranks", "all 40 ranks", 40)
    assert {lane.rank for lane in timeline.lanes[1:]} == set(range(16))
    assert "16 are drawn in full" in timeline.notes[0]
    busy = [int(row.busy_ns.sum()) for row in ranks.rows]
    assert busy == pytest.approx([40_000] * 40, abs=40)
    monkeypatch.setattr(lanes, "MOST_STRIPS", 8)
    folded = timeline_of(trace)
    assert folded is not None
    assert [folded.texts[int(row.name[0])] for row in folded.lanes[0].rows][:2] == ["ranks 0 to 4", "ranks 5 to 9"]
    assert "the mean of 5 in each" in folded.notes[0]
    assert int(folded.lanes[0].rows[0].busy_ns.sum()) == pytest.approx(40_000, abs=40)
    small = fitted(timeline, 400)
    assert 40 <= sum(row.start_ns.size for row in small.lanes[0].rows) <= 440
