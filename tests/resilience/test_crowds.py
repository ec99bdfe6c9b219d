"""A folder of more files than any run has is answered at once, at every door, with what to do."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact
from timesink.cli.app import run
from timesink.cluster import find_files
from timesink.errors import UnreadableTrace
from timesink.readers import trace_files
from timesink.untrusted.budget import VARIABLE, usual_limits
from timesink.untrusted.unpack import plain_files

MOST = 4_096
COUNT = 100_000
TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5}]}'
SOON_S = 10.0  # of CPU time: the machine may be busy


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of 100,000 traces: names of one file."""
    folder = tmp_path_factory.mktemp("crowd")
    first = folder / "rank0.json"
    first.write_text(TRACE)
    for number in range(1, COUNT):
        if number % 50_000 == 0:  # as many names of one file as file systems allow
            first = folder / f"rank{number}.json"
            first.write_text(TRACE)
        else:
            (folder / f"rank{number}.json").hardlink_to(first)
    yield folder
    for path in folder.iterdir():
        path.unlink()


LINES = (
    ("diagnose", "FOLDER"), ("show", "steps", "FOLDER"), ("kernels", "FOLDER"), ("ranks", "FOLDER"), ("plan", "FOLDER"),
    ("report", "FOLDER", "-o", "OUT"), ("compare", "FOLDER", "FOLDER"), ("capture", "--redact", "FOLDER"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_hundred_thousand_files_are_answered_soon(
    line: tuple[str, ...],
    crowd: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    given = {"FOLDER": str(crowd), "OUT": str(tmp_path / "out.html")}
    begun = time.process_time()
    assert run([given.get(word, word) for word in line]) == 2
    taken = time.process_time() - begun
    record_property("figure", f"{COUNT:,} files, {' '.join(line)}: {taken:.1f} s of CPU time")
    assert taken < SOON_S
    told = capsys.readouterr().err
    assert f"more than {MOST:,} files" in told and f"{VARIABLE}=2" in told


def test_as_many_files_as_a_run_has_are_taken_and_more_with_a_larger_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usual_limits().files == MOST
    for number in range(3):
        (tmp_path / f"rank{number}.json").write_text(TRACE)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "rank3.json").write_text(TRACE)
    monkeypatch.setenv(VARIABLE, str(4.5 / MOST))
    assert len(trace_files(tmp_path)) == len(find_files([str(tmp_path)])) == 3
    assert len([*plain_files(tmp_path)]) == 4
    monkeypatch.setenv(VARIABLE, str(3.5 / MOST))  # three files: what lies below counts where all of it is walked
    for refused in (lambda: trace_files(tmp_path), lambda: [*plain_files(tmp_path)]):
        with pytest.raises(UnreadableTrace, match="more than 3 files"):
            refused()
    with pytest.raises(CaptureError, match="more than 3 files"):
        redact(tmp_path, tmp_path.parent / "copy")
    monkeypatch.setenv(VARIABLE, str(2.5 / MOST))
    with pytest.raises(UnreadableTrace, match="3 files are named, and no more than 2"):
        find_files([str(tmp_path / "rank*.json")])
