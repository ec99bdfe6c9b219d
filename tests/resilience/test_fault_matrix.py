"""Commands killed, interrupted or refused at any of their writes: old or new, never half, never a traceback.

An entry of a ledger cut off: what is there is whole. See also the fault matrix.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.resilience.faults import JOBS

from timesink.model.tables import HOST_OPS
from timesink.readers import read
from timesink.verify import ledger

DRIVER = Path(__file__).with_name("faults.py")
CODES = {"killed": (0, -9, -25), "interrupted": (0, 130), "full": (2,), "together": (0,), "at any moment": (0, -9)}
KILLS, SEED = int(os.environ.get("TIMESINK_KILLS", "40")), int(os.environ.get("TIMESINK_KILLS_SEED", "1"))


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What every writer left behind after every fault, by kind."""
    command = [sys.executable, DRIVER, tmp_path_factory.mktemp("faults"), str(KILLS), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CODES)
def test_every_writer_leaves_old_or_new(
    faults: dict[str, list[dict[str, Any]]], kind: str, record_property: Callable[[str, object], None]
) -> None:
    found = faults[kind]
    assert {one["job"] for one in found} >= {"baseline", "ledger"} and len(found) > len(JOBS) - 4
    for one in found:
        assert one["state"] in ("old", "new") and "Traceback" not in one["said"], one
        if one["at"] == -1:
            assert (one["code"], one["state"], one.get("left", [])) == (0, "new", []), one
        else:
            assert one["code"] in CODES[kind], one
            if one["code"] == 2 and one["said"]:
                assert "File too large" in one["said"], one
    if kind == "together":
        assert [one["lines"] for one in found if one["job"] == "ledger"] == [1 + 8 * 4]
    if kind == "at any moment":
        stopped = [one for one in found if one["code"] == -9]
        states = Counter(one["state"] for one in stopped)
        kills = len(found) - len({one["job"] for one in found})
        record_property("figure", f"{kills} kills, {len(stopped)} of them in time: {dict(states)}")
        assert len(stopped) >= KILLS // 3 and {one["job"] for one in stopped} >= {"redact", "folder"}
    if kind == "killed":
        assert {one["code"] for one in found} >= {0, -9, -25}


def named(path: Path, names: str) -> None:
    event = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 8, "dur": 2}
    path.write_text(json.dumps({"traceEvents": [{**event, "name": name, "ts": at} for at, name in enumerate(names)]}))
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("home", ["/proc/self/none", "/dev/null/none", "", None])
def test_a_home_that_nobody_may_write_to_costs_nothing_but_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    for name in ("TIMESINK_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self/none")
        monkeypatch.setenv("HOME", home)
    else:
        monkeypatch.setenv("TIMESINK_CACHE_DIR", "/proc/self/none")
    named(tmp_path / "trace.json", "ab")
    assert read(tmp_path / "trace.json")[HOST_OPS]["name"].to_list() == ["a", "b"]


def test_a_reader_that_leaves_ends_an_answer_quietly(tmp_path: Path) -> None:
    named(tmp_path / "trace.json", "ab" * 20)
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "timesink", "show", "tables", tmp_path / "trace.json", "-f", "json"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}

# Nothing may be written beyond the first bytes of a file: what a full disk looks like to a writer.
FULL = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
FULL += "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); "


def python(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


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
