"""A full cache, an entry cut off, what a killed writer left: what is there is whole. See also the fault matrix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from timesink.readers import ReadLimits, cache
from timesink.readers.kineto import READERS
from timesink.verify import ledger

EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}

# Nothing may be written beyond the first bytes of a file: what a full disk looks like to a writer.
FULL = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
FULL += "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); "


def python(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def test_a_full_disk_costs_the_cache_and_not_the_reading(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [EVENT]}))
    code = (
        "import sys; from pathlib import Path; from timesink.readers import cache, read; cache.WORTH_BYTES = 0; "
        + FULL
        + "print(sum(frame.height for frame in read(Path(sys.argv[1])).tables.values()))"
    )
    code = f"import os; os.environ['TIMESINK_CACHE_DIR'] = {str(tmp_path / 'cache')!r}; {code}"
    assert int(python(code, trace).stdout) > 0
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_entry_cut_off_anywhere_costs_itself_alone(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ledger.jsonl"
    for hypothesis in ("first", "second é"):
        ledger.add(path, hypothesis)
    path.write_bytes(path.read_bytes()[:-cut])
    whole = cut == 1  # only the end of the line is gone: an editor may have done that
    assert len(ledger.read(path)) == 1 + whole
    ledger.add(path, "third")
    kept = ["first", "second é", "third"] if whole else ["first", "third"]
    assert [entry.hypothesis for entry in ledger.read(path)] == kept


def test_what_a_killed_writer_of_the_cache_left_goes_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH_BYTES", 0)
    old, fresh = tmp_path / "cache" / ".new-old", tmp_path / "cache" / ".new-fresh"
    for folder in (old, fresh):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [EVENT]}))
    cache.read_through(READERS[0], trace, ReadLimits())
    assert not old.exists() and fresh.exists()
