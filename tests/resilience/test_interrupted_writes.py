"""An entry of a ledger cut off: what is there is whole. See also the fault matrix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from timesink.verify import ledger

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
