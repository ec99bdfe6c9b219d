"""Real Nsight Systems on a machine without a GPU: OS runtime calls and NVTX ranges, captured, redacted, read."""

import importlib.util
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from timesink import capture
from timesink.capture.profilers import NsysOptions
from timesink.capture.tools import find_installed

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECRET = "hunter2-planted-secret"
PROGRAM = """
import sys, threading, time
sys.path.insert(0, {source!r})
import timesink
print({secret!r})
for number in range(5):
    with timesink.annotate("sleeping"):
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def done(nsys: Path, tmp_path_factory: pytest.TempPathFactory) -> capture.Capture:
    """One capture for all tests, with secrets in the environment, the arguments, the output and the folder's name."""
    folder = tmp_path_factory.mktemp("with space")
    script = folder / "a program.py"
    script.write_text(PROGRAM.format(source=str(SOURCE), secret=SECRET), encoding="utf-8")
    os.environ["PLANTED_TOKEN"] = SECRET
    try:
        program = [sys.executable, str(script), "--password", SECRET]
        return capture.nsys(program, out=folder / "out", tool=nsys, traces=["nvtx", "osrt"], whole=True, quiet=True)
    finally:
        del os.environ["PLANTED_TOKEN"]


def test_os_runtime_calls_are_captured_and_read(done: capture.Capture) -> None:
    from timesink.model.tables import OS_CALLS

    assert done.is_complete
    assert done.manifest["files"][0]["counts"]["OS runtime calls"] > 0
    counted = done.manifest["files"][0]["counts"]["OS runtime calls"]
    calls = done.read()[OS_CALLS]
    assert 0 < counted - calls.height <= 0.1 * counted or calls.height == counted  # calls that never ended are left out


def test_annotations_are_ranges(done: capture.Capture) -> None:
    from timesink.model.tables import RANGES

    if importlib.util.find_spec("nvtx") is None:
        pytest.skip("the package nvtx, through which a program without torch reaches NVTX, is not installed")
    names = done.read()[RANGES]["name"].cast(str).to_list()
    assert names.count("sleeping") == 5


def test_nothing_planted_is_left(done: capture.Capture) -> None:
    """Not in the database, not in its free pages, not in the manifest; the raw report is gone."""
    left = [path for path in done.folder.rglob("*") if path.is_file() and path.name != "log.txt"]
    assert {path.name for path in left} == {"report.sqlite", "manifest.json"}
    for path in left:
        content = path.read_bytes()
        host = os.uname().nodename
        for planted in (SECRET, "PLANTED_TOKEN", str(done.folder), *([host] if len(host) > 3 else [])):
            assert planted.encode() not in content, (path.name, planted)


def test_the_tool_takes_every_option_that_its_help_names(nsys: Path, tmp_path: Path) -> None:
    """The real parser of arguments, not ours, judges the command line: with a path that has a space in it."""
    tool = find_installed("nsys", nsys)
    options = NsysOptions(("cuda", "nvtx", "osrt"), memory=True, delay_s=0.1, duration_s=5)
    argv = options.command(tool, tmp_path / "a folder", ["true"], by_range=True)
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert "unrecognised" not in said
    assert "invalid" not in said.lower()
    assert "usage: nsys" not in said.lower()


def test_a_percent_in_a_name_would_leak_a_variable(nsys: Path, tmp_path: Path) -> None:
    """Why such folders are refused: the real nsys does expand it."""
    argv = [nsys, "profile", "-t", "osrt", "--sample=none", "--cpuctxsw=none", "-o", tmp_path / "%q{PLANTED}", "true"]
    subprocess.run(list(map(str, argv)), env={**os.environ, "PLANTED": SECRET}, capture_output=True, check=False)
    assert [path for path in tmp_path.iterdir() if SECRET in path.name]


def test_an_export_with_events_survives_redaction(done: capture.Capture, command_line: Callable[..., object]) -> None:
    """A second redaction finds nothing more to take, and loses no row."""
    before = _rows(done.files[0])
    target = done.folder.parent / "again.sqlite"
    command_line("capture", "--redact", done.files[0], "-o", target)
    assert _rows(target) == before


def _rows(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: db.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in tables}
