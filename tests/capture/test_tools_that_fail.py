"""Every way a capture with nsys or ncu goes wrong, against stand-ins that fail on demand; nothing is left running."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.capture.conftest import Program
from tests.capture.stand_ins import NCU_HELP, NSYS_HELP, tool

from timesink import capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.running import LEAST_FREE_BYTES
from timesink.cli.app import run

Timesink = Callable[..., subprocess.CompletedProcess[str]]
RECORDING = """
for word in "$@"; do case $word in --output=*) out=${word#--output=};; esac; done
if [ "$1" = export ]; then cp "$EXPORTED" "$7"; else echo data > "$out.nsys-rep"; fi
"""


def nsys_that(executable: Program, run: str) -> Path:
    return executable("nsys", tool("NVIDIA Nsight Systems", NSYS_HELP, "2025.3.1", run))


def ncu_that(executable: Program, run: str) -> Path:
    return executable("ncu", tool("NVIDIA Nsight Compute", NCU_HELP, "2025.3.1", run))


def test_a_missing_tool_is_named_with_its_package(
    command_line: Timesink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nsys", "ncu"):
        done = command_line("capture", name, "--tool", tmp_path / name, "--output", tmp_path / "out", "--", "true")
        assert done.returncode == 5
        assert f"there is no {name}" in done.stderr
    monkeypatch.setattr("timesink.capture.tools.find_tool", lambda name: None)
    with pytest.raises(CaptureError, match="nsys is not on this machine") as caught:
        capture.nsys(["true"], out=tmp_path / "out")
    assert caught.value.fault is Fault.MISSING
    assert "nsight-systems" in caught.value.remedy


def test_missing_permission_is_said_with_its_remedy(executable: Program, tmp_path: Path) -> None:
    run = 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters"; exit 1'
    with pytest.raises(CaptureError, match="ERR_NVGPUCTRPERM") as caught:
        capture.ncu(["true"], out=tmp_path / "out", tool=ncu_that(executable, run), quiet=True)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.remedy


def test_a_full_disk_is_said(executable: Program, tmp_path: Path) -> None:
    run = 'echo "write failed: No space left on device"; exit 1'
    with pytest.raises(CaptureError, match="the disk is full"):
        capture.nsys(["true"], out=tmp_path / "out", tool=nsys_that(executable, run), quiet=True)


def test_a_disk_without_room_is_refused_before_anything_runs(
    executable: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": LEAST_FREE_BYTES - 1})
    monkeypatch.setattr("timesink.capture.running.shutil.disk_usage", lambda place: usage)
    with pytest.raises(CaptureError, match="1023 MiB free"):
        capture.nsys(["true"], out=tmp_path / "out", tool=nsys_that(executable, "touch ran"), quiet=True)
    assert not Path("ran").exists()


def test_a_rank_that_cannot_write_its_trace_is_said(tmp_path: Path) -> None:
    from timesink.capture.running import CaptureSettings, refuse_unrecorded

    failed = {"rank": 3, "world": 4, "phase": "failed", "error": "OSError: [Errno 28] No space left on device"}
    with pytest.raises(CaptureError, match="rank 3 could not record: OSError") as caught:
        refuse_unrecorded([failed], CaptureSettings(tmp_path))
    assert "free some space" in caught.value.remedy


def test_an_empty_capture_says_what_is_missing(
    executable: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export is a real database without a table."""
    empty = tmp_path / "empty.sqlite"
    with sqlite3.connect(empty) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    monkeypatch.setenv("EXPORTED", str(empty))
    done = capture.nsys(["true"], out=tmp_path / "out", tool=nsys_that(executable, RECORDING), quiet=True)
    assert done.missing == ("report.sqlite holds no CUDA API calls", "report.sqlite holds no kernels")
    assert not done.is_complete
    again = capture.Capture.load(done.folder)
    assert (again.missing, again.files) == (done.missing, done.files)


def test_the_raw_report_goes_unless_it_is_to_be_kept(
    executable: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "e.sqlite"
    sqlite3.connect(exported).execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    monkeypatch.setenv("EXPORTED", str(exported))
    path = nsys_that(executable, RECORDING)
    for keep in (False, True):
        done = capture.nsys(["true"], out=tmp_path / str(keep), tool=path, quiet=True, keep_report=keep)
        assert (done.folder / "report.nsys-rep").exists() is keep


@pytest.mark.parametrize(
    ("options", "named"),
    [({"gpu_metrics": True, "traces": ["cuda", "ucx"]}, "--trace=ucx"), ({"python_gil": True}, "--trace=python-gil")],
)
def test_an_option_this_version_lacks_is_refused(
    executable: Program, tmp_path: Path, options: dict[str, object], named: str
) -> None:
    with pytest.raises(CaptureError, match=f"2025.3.1 has no option {named}"):
        capture.nsys(["true"], out=tmp_path / "out", tool=nsys_that(executable, "exit 9"), **options)
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="ncu has no option 'metric'") as caught:
        capture.ncu(["true"], out=tmp_path / "out", metric="x")
    assert "metrics" in caught.value.remedy


def test_a_variable_in_the_folders_name_is_never_expanded(
    executable: Program, command_line: Timesink, tmp_path: Path
) -> None:
    """nsys and ncu would write the variable's value into the file's name."""
    path = nsys_that(executable, f"touch {tmp_path}/ran")
    done = command_line(
        "capture", "nsys", "--tool", path, "--output", tmp_path / "%q{SECRET}", "--", "true", SECRET="s3"
    )
    assert done.returncode == 2
    assert "choose a folder without %" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert "s3" not in done.stdout + done.stderr


def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "old.txt").touch()
    with pytest.raises(CaptureError, match="already holds files"):
        capture.torch(["python", "x.py"], out=tmp_path)


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no program '/no/python'") as caught:
        capture.torch(["/no/python", "x.py"], out=tmp_path / "out")
    assert caught.value.fault is Fault.REQUEST


def test_a_program_past_its_time_is_ended(executable: Program, tmp_path: Path) -> None:
    sleeps = str(executable("sleeps.py", "#!/bin/sh\nexec sleep 60\n"))
    began = time.monotonic()
    with pytest.raises(CaptureError, match="time limit"):
        capture.torch([sleeps], out=tmp_path / "out", timeout_s=0.5)
    assert time.monotonic() - began < 30


def test_an_interrupt_ends_the_tool_and_everything_it_started(executable: Program, tmp_path: Path) -> None:
    """The stand-in starts a grandchild that ignores interrupts; both are gone when the command has ended."""
    run = f"""
sh -c 'trap "" INT TERM; echo $$ > {tmp_path}/grandchild; exec sleep 60' &
echo started > {tmp_path}/started
trap "exit 1" INT
while true; do sleep 0.1; done
"""
    path = nsys_that(executable, run)
    argv = [
        sys.executable,
        "-m",
        "timesink",
        "capture",
        "nsys",
        "--tool",
        path,
        "--output",
        tmp_path / "out",
        "--",
        "true",
    ]
    with subprocess.Popen(list(map(str, argv)), stderr=subprocess.PIPE, text=True) as command:
        _until((tmp_path / "started").exists)
        _until((tmp_path / "grandchild").exists)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "interrupted" in said
    grandchild = int((tmp_path / "grandchild").read_text())
    _until(lambda: not _runs(grandchild))


def test_words_of_the_program_reach_the_tool_unchanged(
    executable: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell reads them: spaces, quotes, dollars and semicolons arrive as they are."""
    exported = tmp_path / "e.sqlite"
    sqlite3.connect(exported).execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    monkeypatch.setenv("EXPORTED", str(exported))
    words = ["true", "a b", "$HOME", "'; touch ran;'", "*"]
    run = f'if [ "$1" = profile ]; then for w in "$@"; do echo "$w"; done > {tmp_path}/words; fi\n{RECORDING}'
    capture.nsys(words, out=tmp_path / "out", tool=nsys_that(executable, run), quiet=True)
    assert (tmp_path / "words").read_text().splitlines()[-len(words) :] == words


def test_printing_and_checking_run_nothing(executable: Program, command_line: Timesink, tmp_path: Path) -> None:
    path = ncu_that(executable, f"touch {tmp_path}/ran")
    for option in ("--print", "--dry-run"):
        done = command_line("capture", "ncu", "--tool", path, option, "--output", tmp_path / "out", "--", "true", "a b")
        assert done.returncode == 0, done.stderr
        assert "true 'a b'" in done.stdout or "ready: ncu 2025.3.1" in done.stdout
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["ncu", "nsys"])
def test_a_command_line_is_printed_without_the_tool(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("timesink.capture.tools.find_tool", lambda _: None)
    assert run(["capture", name, "--print", "--", "true", "a b"]) == 0
    said = capsys.readouterr().out
    assert f" {name} " in f" {said}"
    assert said.endswith("true 'a b'\n")
    assert run(["capture", name, "--", "true"]) != 0
    assert f"{name} is not on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metrics", "code", "says"),
    [
        ("dram__bytes.sum,l2__throughput.avg.pct_of_peak_sustained_elapsed", 2, "use lts__throughput.avg"),
        ("sm__throughput.avg_pct_of_peak_sustained_elapsed", 2, "no roll-up or sub-metric"),
        ("dram__bytes_reed.sum", 0, "dram__bytes_read.sum is"),
        ("regex:sm__.*,group:memory__chart,dram__bytes.sum", 0, ""),
    ],
)
def test_metrics_that_exist_on_no_chip_are_refused_before_anything_runs(
    metrics: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", "ncu", "--print", "--metrics", metrics, "--", "true"]) == code
    told = capsys.readouterr()
    assert says in " ".join(told.err.split())
    assert ("--metrics" in told.out) is (code == 0)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
