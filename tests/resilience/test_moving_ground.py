"""A file that changes while it is read, and a clock that goes backwards."""

import json
import sys
import time
from pathlib import Path

import pytest

from timesink.errors import ToolFailed
from timesink.model.tables import HOST_OPS
from timesink.model.trace import NoteKind, Trace
from timesink.readers import ReadLimits
from timesink.readers.file import read_with_digest
from timesink.readers.kineto import READERS
from timesink.verify import environment
from timesink.verify.environment import Command
from timesink.verify.runs import JsonFile, StepsFile

EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}


def written(path: Path, names: str) -> Path:
    path.write_text(json.dumps({"traceEvents": [{**EVENT, "name": name, "ts": at} for at, name in enumerate(names)]}))
    return path


class Replaced:
    """The Kineto reader, whose file another program replaces as soon as it was read."""

    format = "replaced"

    def recognises(self, path: Path, head: bytes) -> bool:
        return True

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        trace = READERS[0].read(path, limits)
        other = written(path.with_name("other.json"), "xyz")
        other.replace(path)
        return trace


def test_a_file_replaced_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json", "ab")
    trace = read_with_digest(Replaced(), path, ReadLimits())
    assert trace[HOST_OPS]["name"].to_list() == ["a", "b"]
    (note,) = [note for note in trace.notes if "replaced while it was read" in note.message]
    assert note.kind is NoteKind.DAMAGE
    again = read_with_digest(READERS[0], path, ReadLimits())
    assert again[HOST_OPS]["name"].to_list() == ["x", "y", "z"]


STEPS = "import os\nwith open(os.environ['TIMESINK_STEPS'], 'w') as f: f.write('{\"seconds\": 0.5}\\n' * 4)"


def test_a_clock_set_back_does_not_change_step_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    times = iter([now, now - 3600.0])
    monkeypatch.setattr(environment.time, "time", lambda: next(times))
    source = StepsFile()
    finished = environment.run(
        Command((sys.executable, "-c", STEPS)), tmp_path, extra=source.environment(tmp_path, {}), timeout_s=60
    )
    assert finished.ended_s < finished.started_s
    assert source.collect(tmp_path, finished).seconds == (0.5,) * 4


def test_step_times_that_look_older_than_their_run_are_refused_and_not_used(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text("[1.0, 2.0]")
    later = environment.Finished(time.time() + 3600.0, time.time() + 3601.0, path, path)
    with pytest.raises(ToolFailed, match="did not write"):
        JsonFile(path).collect(tmp_path, later)
