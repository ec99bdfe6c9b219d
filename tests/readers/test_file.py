"""Every file that is read has its digest, and a reading that is interrupted ends it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from timesink.model.tables import SOURCES
from timesink.model.trace import Trace
from timesink.readers import ReadLimits, file, read
from timesink.readers.kineto import READERS

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
