"""Reading through a window gives what cutting the whole trace gives, whatever the format.

Ranks and launched GPU work are chosen where a file is read, from Python as on the command line.

Every file that is read has its digest, and a reading that is interrupted ends it.

What a filter, a full buffer or an older version leaves out: any part of a file may be missing, and it is read or
refused with a way out.
"""

import csv
import io
import json
import sqlite3
from contextlib import closing
from itertools import combinations, pairwise
from pathlib import Path
from threading import Event

import polars as pl
import pytest
from tests.profiles import ABSENT, PROFILES

from fuzz import seeds
from timesink.errors import UnreadableTrace, UsageError
from timesink.measures.steps.per_step import step_budgets
from timesink.model.tables import API_CALLS, DEVICE_OPS, SOURCES
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers import ReadLimits, WindowReader, file, read, reader_of
from timesink.readers.kineto import READERS

HERE = Path(__file__).parents[1]
DATA = HERE / "data"
LIMITS = ReadLimits()


def same(read: Trace, cut: Trace) -> None:
    assert set(read.tables) == set(cut.tables)
    for table in cut:
        left, right = (t[table].with_columns(pl.col(pl.Categorical).cast(pl.String)) for t in (read, cut))
        assert left.equals(right), f"{table}: {left.height} rows read, {right.height} cut"
    assert read.cut_to == cut.cut_to


def obeys_the_law(path: Path, parts: int) -> None:
    """Stretches of the file, read through a window and cut from the whole."""
    reader = reader_of(path)
    assert isinstance(reader, WindowReader)
    whole = reader.read(path, LIMITS)
    opened = reader.open(path, LIMITS)
    assert opened.extent_ns == whole.extent_ns
    if whole.extent_ns is None:
        return
    first, last = whole.extent_ns
    cuts = [first + (last - first) * at // parts for at in range(parts + 1)]
    spans = [*pairwise(cuts), (first, last + 1), (cuts[2], cuts[2] + 1), (cuts[3], last + 1)]
    for start, end in spans:
        window = Window(start, end, first, last)
        same(opened.within(window), whole.within(window))


DEMO = HERE.parent / "src" / "timesink" / "cli" / "demo"
OURS = [DATA / "nsys" / "gpt_before_5_steps.sqlite", DEMO / "gpt_after.json.xz"]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_steps_of_a_window_are_timed_as_in_the_whole_trace(path: Path) -> None:
    whole = read(path, cache=False)
    first, last = whole.extent_ns or (0, 0)
    said = {row["start_ns"]: row for row in step_budgets(whole).drop("step").iter_rows(named=True)}
    seen = set()
    for at in range(6):
        cut = whole.between(first + (last - first) * at // 10, first + (last - first) * (at + 4) // 10)
        for row in step_budgets(cut).drop("step").iter_rows(named=True):
            assert row == said.get(row["start_ns"], row)
            seen.add(row["start_ns"])
    assert len(seen & said.keys()) > len(said) // 2


THEIRS = sorted(
    path
    for pattern in ("own/nsys/*.sqlite", "public/nsys/*.sqlite", "own/kineto/*.gz", "public/kineto/*.json*")
    for path in PROFILES.glob(pattern)
) or [pytest.param(Path(), marks=pytest.mark.skip(ABSENT))]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_window_read_is_the_window_cut(path: Path) -> None:
    obeys_the_law(path, parts=5)


@pytest.mark.slow
@pytest.mark.parametrize("path", THEIRS, ids=lambda path: path.name)
def test_a_window_read_of_what_others_recorded_is_the_window_cut(path: Path) -> None:
    obeys_the_law(path, parts=3)


def _file(folder: Path, rank: int) -> Path:
    """A trace with one call that launches a kernel, and a kernel without its launch."""
    events = [
        _event("cuda_runtime", "cudaLaunchKernel", 10, tid=1, correlation=5),
        _event("kernel", "launched", 20, tid=7, correlation=5, device=0, stream=7),
        _event("kernel", "running before", 0, tid=7, correlation=4, device=0, stream=7),
    ]
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}))
    return path


def _event(category: str, name: str, start_us: int, *, tid: int, **args: int) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start_us, "dur": 5, "args": args}


def test_only_the_ranks_asked_for_are_kept(tmp_path: Path) -> None:
    files = [_file(tmp_path, 0), _file(tmp_path, 1)]
    trace = read(files, ranks=[1], cache=False)
    assert trace.rank_numbers == (1,)
    assert {rank for frame in trace.tables.values() for rank in frame["rank"].unique()} == {1}
    with pytest.raises(UsageError, match="no rank 2, 3; choose from 0, 1"):
        read(files, ranks=[1, 3, 2], cache=False)


def test_work_without_its_launch_is_left_out_and_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, 0)
    whole, linked = read(path, cache=False), read(path, linked_only=True, cache=False)
    assert whole[DEVICE_OPS].height == 2
    assert linked[DEVICE_OPS]["name"].to_list() == ["launched"]
    assert linked[API_CALLS].equals(whole[API_CALLS])
    assert [(note.count, note.table) for note in linked.notes[len(whole.notes) :]] == [(1, "device_ops")]


EVENT = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}]}'


def test_every_file_has_its_digest_unless_nothing_is_to_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(EVENT)
    assert read(path)[SOURCES]["sha256"].to_list() == [file.digest_of(path)]
    assert read(path, cache=False)[SOURCES]["sha256"].to_list() == [None]


def test_a_reading_that_is_interrupted_ends_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, digests = tmp_path / "trace.json", list[Event]()
    path.write_text(EVENT)

    def endless(path: Path, stopped: Event) -> str:
        digests.append(stopped)
        assert stopped.wait(60)
        return ""

    def interrupted(path: Path, limits: ReadLimits) -> Trace:
        raise KeyboardInterrupt

    monkeypatch.setattr(file, "digest_of", endless)
    monkeypatch.setattr(READERS[0], "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.read_with_digest(READERS[0], path, ReadLimits())
    assert [stopped.is_set() for stopped in digests] == [True]


EVENTS = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "NVTX_EVENTS", "PROFILER_OVERHEAD", "ThreadNames")


def survives(path: Path) -> None:
    try:
        read(path, cache=False)
    except UnreadableTrace as error:
        assert error.remedy


@pytest.mark.parametrize("kept", [(one,) for one in EVENTS] + list(combinations(EVENTS[:5], 2)), ids="+".join)
def test_an_export_with_some_of_its_tables(kept: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(seeds.nsys_sqlite()[0])
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        gone = [name for name in tables if name.endswith(EVENTS) and not name.endswith(kept)]
        assert len(gone) == len(EVENTS) - len(kept)
        for name in gone:
            db.execute(f'DROP TABLE "{name}"')
        db.commit()
    survives(path)


@pytest.mark.parametrize("page", [0, 1], ids=["raw", "details"])
def test_a_page_without_any_one_of_its_columns(page: int, tmp_path: Path) -> None:
    text = "\n".join(line for line in seeds.ncu_csv()[page].decode().splitlines() if line.startswith('"'))
    rows = list(csv.reader(io.StringIO(text)))
    for left_out in range(len(rows[0])):
        written = io.StringIO()
        csv.writer(written, quoting=csv.QUOTE_ALL).writerows([*row[:left_out], *row[left_out + 1 :]] for row in rows)
        path = tmp_path / f"{left_out}.csv"
        path.write_text(written.getvalue())
        survives(path)
