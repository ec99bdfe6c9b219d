"""A full disk, a killed writer, two writers: what was there stays, and what is there is whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timesink.readers import ReadLimits, cache
from timesink.readers.kineto import READERS
from timesink.verify import ledger, records

EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}

# Nothing may be written beyond the first bytes of a file: what a full disk looks like to a writer.
FULL = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
FULL += "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); "


def python(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def started(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)


BASELINE = """
import sys; from pathlib import Path; from timesink.verify import records
records.write(Path(sys.argv[1]), {"schema_version": 1, "runs": list(range(4000))})
"""


def test_a_full_disk_leaves_the_old_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    records.write(path, {"schema_version": 1, "runs": []})
    done = python(FULL + BASELINE, path, check=False)
    assert done.returncode != 0 and "File too large" in done.stderr
    assert records.load(path, 1, {})["runs"] == [] and [*tmp_path.iterdir()] == [path]


ADD = """
import sys; from pathlib import Path; from timesink.verify import ledger; from timesink.errors import UsageError
try:
    ledger.add(Path(sys.argv[1]), "h" * 300)
except UsageError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_leaves_the_old_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.add(path, "first")
    before = path.read_bytes()
    done = python(FULL + ADD, path, check=False)
    assert "cannot be written: File too large; make room" in done.stderr
    assert path.read_bytes() == before


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


ENDLESS_BASELINE = """
import sys; from pathlib import Path; from timesink.verify import records
print(flush=True)
for number in range(10**9):
    records.write(Path(sys.argv[1]), {"schema_version": 1, "runs": [number] * 20000})
"""
ENDLESS_LEDGER = """
import sys; from pathlib import Path; from timesink.verify import ledger
print(flush=True)
for number in range(10**9):
    ledger.add(Path(sys.argv[1]), "h" * 2000)
"""


def killed_while_writing(code: str, path: Path, after_s: float) -> None:
    with started(code, path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.11])
def test_a_killed_writer_leaves_a_whole_baseline(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "baseline.json"
    records.write(path, {"schema_version": 1, "runs": [-1]})
    killed_while_writing(ENDLESS_BASELINE, path, after_s)
    runs = records.load(path, 1, {"runs": list})["runs"]
    assert len(set(runs)) == 1 and len(runs) in (1, 20000)


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.11])
def test_a_killed_writer_leaves_whole_entries(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "ledger.jsonl"
    killed_while_writing(ENDLESS_LEDGER, path, after_s)
    entries = ledger.read(path)
    assert ledger.add(path, "after it").number == len(entries) + 1
    assert [entry.number for entry in ledger.read(path)] == list(range(1, len(entries) + 2))


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


MANY_ENTRIES = """
import sys; from pathlib import Path; from timesink.verify import ledger
for number in range(25):
    ledger.add(Path(sys.argv[1]), sys.argv[2])
"""


def test_two_writers_of_one_ledger_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for process in [started(MANY_ENTRIES, path, name) for name in "ab"]:
        assert process.wait() == 0
    entries = ledger.read(path)
    assert [entry.number for entry in entries] == list(range(1, 51))
    assert sorted(entry.hypothesis for entry in entries) == ["a"] * 25 + ["b"] * 25


READ = """
import os, sys; os.environ["TIMESINK_CACHE_DIR"] = sys.argv[2]
from pathlib import Path; from timesink.readers import cache, read; cache.WORTH_BYTES = 0
for _ in range(8):
    print(sum(frame.height for frame in read(Path(sys.argv[1])).tables.values()))
"""


def test_two_readers_share_one_cache(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [EVENT]}))
    said = []
    for process in [started(READ, trace, tmp_path / "cache") for _ in range(2)]:
        said.append(process.communicate()[0])
        assert process.returncode == 0
    assert len({line for text in said for line in text.splitlines()}) == 1
    assert len([*(tmp_path / "cache").iterdir()]) == 1


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
