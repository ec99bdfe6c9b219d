"""The cache gives what reading gives, or it gives nothing."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from timesink.model.tables import HOST_OPS, SOURCES
from timesink.model.trace import Trace
from timesink.readers import ReadLimits, cache, read
from timesink.readers.kineto import READERS

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "a é", "pid": 7, "tid": 8, "ts": 1.5, "dur": 2, "args": {"Input Dims": [[1]]}},
    {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 2,
        "dur": 2,
        "args": {"stream": 7, "device": 0},
    },
    {"ph": "X", "cat": "what", "name": "k", "pid": 0, "tid": 7, "ts": 2, "dur": 2},
]


class Counting:
    """The Kineto reader, counting how often it is asked."""

    format, version = "counting", 1

    def __init__(self) -> None:
        self.times = 0

    def recognises(self, path: Path, head: bytes) -> bool:
        return True

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        self.times += 1
        return READERS[0].read(path, limits)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH_BYTES", 0)
    return Counting()


def through(reader: Counting, file: Path) -> Trace:
    return cache.read_through(reader, file, ReadLimits())


def trace_file(tmp_path: Path, name: str = "trace.json", **members: Any) -> Path:
    file = tmp_path / name
    file.write_text(json.dumps({"traceEvents": EVENTS, **members}))
    return file


def assert_same(one: Trace, other: Trace) -> None:
    assert list(one) == list(other)
    assert one.notes == other.notes
    for table in one:
        assert_frame_equal(one[table], other[table])


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").iterdir())


def test_the_second_look_reads_nothing_and_is_equal(tmp_path: Path, reader: Counting) -> None:
    file = trace_file(tmp_path)
    first, second = through(reader, file), through(reader, file)
    assert reader.times == 1
    assert_same(first, second)
    assert second[HOST_OPS]["name"].dtype == pl.Categorical()


def test_the_same_bytes_under_another_name_are_found_and_renamed(tmp_path: Path, reader: Counting) -> None:
    through(reader, trace_file(tmp_path))
    other = through(reader, trace_file(tmp_path, "other.json"))
    assert reader.times == 1
    assert other.source == str(tmp_path / "other.json")
    assert other[SOURCES]["path"].to_list() == [str(tmp_path / "other.json")]


def test_other_bytes_of_the_same_length_are_read(tmp_path: Path, reader: Counting) -> None:
    through(reader, trace_file(tmp_path, traceName="a"))
    through(reader, trace_file(tmp_path, traceName="b"))
    assert reader.times == 2
    assert len(entries(tmp_path)) == 2


def test_another_version_of_the_reader_reads_anew(tmp_path: Path, reader: Counting) -> None:
    file = trace_file(tmp_path)
    through(reader, file)
    reader.version = 2
    through(reader, file)
    assert reader.times == 2


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "manifest", "nested", "empty"])
def test_a_damaged_entry_is_read_again_and_mended(tmp_path: Path, reader: Counting, harm: str) -> None:
    file = trace_file(tmp_path)
    first = through(reader, file)
    (entry,) = entries(tmp_path)
    table = entry / "host_ops.parquet"
    content = bytearray(table.read_bytes())
    match harm:
        case "flip":
            content[len(content) // 2] ^= 1
            table.write_bytes(content)
        case "cut":
            table.write_bytes(content[:-10])
        case "remove":
            table.unlink()
        case "manifest":
            (entry / "manifest.json").write_text('{"tables": {"nonsense": 1}, "notes": []}')
        case "nested":
            (entry / "manifest.json").write_text("[" * 100_000)
        case "empty":
            (entry / "manifest.json").write_text("")
    assert_same(through(reader, file), first)
    assert reader.times == 2
    assert_same(through(reader, file), first)
    assert reader.times == 2


def test_the_entries_used_longest_ago_go_first(
    tmp_path: Path, reader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [trace_file(tmp_path, f"{name}.json", traceName=name * 9) for name in "abc"]
    for file in files[:2]:
        through(reader, file)
    through(reader, files[0])  # a is now the one used last
    size = sum(part.stat().st_size for part in entries(tmp_path)[0].iterdir())
    monkeypatch.setenv("TIMESINK_CACHE_BYTES", str(2 * size + size // 2))
    through(reader, files[2])
    assert reader.times == 3
    through(reader, files[0])
    assert reader.times == 3
    through(reader, files[1])
    assert reader.times == 4


def test_a_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, reader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(blocked))
    assert through(reader, trace_file(tmp_path))[HOST_OPS].height == 1


def test_small_files_are_not_kept_and_every_file_has_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(tmp_path / "cache"))
    file = trace_file(tmp_path)
    assert read(file)[SOURCES]["sha256"].to_list() == [cache.digest_of(file)]
    assert not (tmp_path / "cache").exists()


def test_a_reading_that_is_interrupted_keeps_nothing_and_ends_the_digest(
    tmp_path: Path, reader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.json"
    file.write_text("x" * 10)
    digests: list[Event] = []

    def endless(path: Path, stopped: Event) -> str:
        digests.append(stopped)
        assert stopped.wait(60)
        return ""

    def interrupted(path: Path, limits: ReadLimits) -> Trace:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "digest_of", endless)
    monkeypatch.setattr(reader, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        through(reader, file)
    assert [stopped.is_set() for stopped in digests] == [True]
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*"))
