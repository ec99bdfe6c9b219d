"""Windows of files, by name: what is refused, what is said, what several files share."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.readers.kineto_texts import events

from timesink.errors import UsageError
from timesink.model.span import Span
from timesink.model.tables import HOST_OPS, SOURCES
from timesink.model.trace import Trace
from timesink.readers import read


def op(start_us: float, name: str = "a") -> str:
    times = f'"ts":{start_us},"dur":1'
    return f'{{"ph":"X","cat":"cpu_op","name":"{name}","pid":7,"tid":8,{times},"args":{{}}}}'


def starts(trace: Trace) -> list[int]:
    return trace[HOST_OPS]["start_ns"].to_list()


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """Ten operators, one each 10 us, the first at 100 us."""
    path = tmp_path / "trace.json"
    path.write_text(events(*(op(100 + 10 * at) for at in range(10))))
    return path


def test_a_window_counts_from_the_first_event(ten: Path) -> None:
    trace = read(ten, window="20us:40us")
    assert starts(trace) == [120_000, 130_000]
    assert (
        trace.notes[0].message == "only the window 20.0 us to 40.0 us of 91.0 us was read, counted from the first event"
    )
    assert starts(read(ten, window=Span(80_000))) == [180_000, 190_000]
    assert starts(read(ten, window=":15us")) == [100_000, 110_000]


def test_a_format_without_a_timeline_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("V0101 00:00:00.000000 1 torch/_dynamo/guards.py:1] [0/0] [__guards] GUARDS:\n")
    with pytest.raises(UsageError, match=r"log\.txt cannot be read through a window") as refused:
        read(path, window="1s:2s")
    assert "PyTorch profiler traces and Nsight Systems" in refused.value.remedy


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [], "schemaVersion": 1}')
    with pytest.raises(UsageError, match="holds nothing that has a time"):
        read(path, window="1s:2s")


def test_ranks_are_cut_at_one_moment_of_their_clock(tmp_path: Path) -> None:
    for rank, first in ((0, 100), (1, 105)):
        text = events(*(op(first + 10 * at) for at in range(10)), distributedInfo={"rank": rank})
        (tmp_path / f"rank{rank}.json").write_text(text)
    trace = read([tmp_path], window="20us:40us")
    assert trace[HOST_OPS].select("rank", "start_ns").rows() == [(0, 120_000), (0, 130_000), (1, 125_000), (1, 135_000)]
    assert [note.message for note in trace.notes if "only the window" in note.message] == [
        "only the window 20.0 us to 40.0 us of 96.0 us was read, counted from the first event"
    ]


def test_a_rank_on_another_clock_is_named(tmp_path: Path) -> None:
    for rank, first in ((0, 100), (1, 5_000_000)):
        (tmp_path / f"rank{rank}.json").write_text(events(op(first), op(first + 50), distributedInfo={"rank": rank}))
    with pytest.raises(UsageError, match=r"rank1\.json has nothing in the window") as refused:
        read([tmp_path], window="20us:40us")
    assert "one by one" in refused.value.remedy


def test_what_lies_beside_a_trace_and_has_no_timeline_is_read_whole(ten: Path, tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("V0101 00:00:00.000000 1 torch/_dynamo/guards.py:1] [0/0] [__guards] GUARDS:\n")
    trace = read([ten, log], window="20us:40us")
    assert len(starts(trace)) == 2 and trace[SOURCES]["format"].to_list() == ["kineto_json", "torch_logs"]
    assert "read whole, not the window: compile.log" in [note.message for note in trace.notes]


def test_a_window_of_a_damaged_trace_is_that_of_its_readable_part(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(events(*(op(100 + 10 * at) for at in range(10)))[:-60])
    assert starts(read(path, window="20us:40us")) == [120_000, 130_000]


def test_texts_outside_of_a_window_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    shaped = [
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 10 * at, "dur": 1} for at in range(50)
    ]
    for at, event in enumerate(shaped):
        event["args"] = {"Input Dims": [[at]]}
    path.write_text(json.dumps({"traceEvents": shaped}))
    kept = read(path, window="20us:40us")[HOST_OPS]["input_shapes"]
    assert kept.cast(pl.String).to_list() == ["[[2]]", "[[3]]"]
