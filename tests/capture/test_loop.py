"""The loop resumes what is there, leaves out what it cannot make, and joins diagnoses without losing a ruling."""

import json
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.capture.conftest import Program
from tests.capture.stand_ins import NCU_HELP, tool
from tests.readers import ncu_reports as made

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.manifest import Capture
from timesink.cli.loop import LoopOptions, Stages, loop
from timesink.diagnosis.undiagnosable import joined
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Card,
    Clear,
    Diagnosis,
    NotApplicable,
    Ruling,
    StepFigures,
    Undecided,
    Verdict,
)
from timesink.errors import UsageError

DATA = Path(__file__).resolve().parents[1] / "data/capture/compiled"
Timesink = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A loop whose captures with torch and nsys are made; the one with ncu is not."""
    shutil.copytree(DATA, tmp_path / "loop")
    packed = tmp_path / "loop/nsys/report.sqlite.xz"
    packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
    packed.unlink()
    return tmp_path / "loop"


def test_a_resumed_loop_runs_no_program(command_line: Timesink, folder: Path, tmp_path: Path) -> None:
    """The program would leave a mark. PATH holds no ncu, so that stage is left out and said."""
    program = ["python", "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    done = command_line("capture", "--loop", "--output", folder, "--", *program, PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    stages = {stage["stage"]: stage for stage in json.loads((folder / "loop.json").read_text())}
    assert stages["torch"]["resumed"] and stages["nsys"]["resumed"]
    assert stages["ncu"]["folder"] is None
    assert "ncu" in stages["ncu"]["why"]
    script = (folder / "session.sh").read_text().splitlines()
    programs = [json.loads((folder / name / "manifest.json").read_text())["program"] for name in ("torch", "nsys")]
    timed = "--auto-ranges --steps 6 --settle 5 --timed 10"
    assert [line for line in script if line.startswith("timesink")] == [
        f"timesink capture torch {timed} -o {folder}/torch -- {programs[0]}",
        f"timesink capture nsys {timed} -o {folder}/nsys -- {programs[1]}",
        f"timesink diagnose {folder}/torch",
    ]
    diagnosis = json.loads((folder / "diagnosis.json").read_text())
    assert len(diagnosis["sources"]) == 2
    assert any(
        note.startswith(("decided by the nsys capture", "the nsys capture decides")) for note in diagnosis["notes"]
    )
    assert diagnosis["verdict"]["bottleneck"] in (folder / "diagnosis.md").read_text()


def test_the_loop_profiles_the_kernels_of_a_bench(
    folder: Path, tmp_path: Path, executable: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ncu runs on the bench alone, without the steps of the program; the diagnosis says where the kernels are from."""
    report = tmp_path / "made.ncu-rep"
    metrics = [made.metric(0, 1e6)]
    report.write_bytes(
        made.report(made.block([made.kernel("gemm", metrics)], ["gpu__time_duration.sum"], made.session()))
    )
    run = f'echo "$@" > {tmp_path}/argv; while [ "$1" != --export ]; do shift; done; cp {report} "$2"'
    bin_folder = executable("ncu", tool("NVIDIA Nsight Compute", NCU_HELP, "2024.1.0", run)).parent
    bench = executable("bench", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    options = LoopOptions(kernel_bench=f"{bench} --small", fact=["resolution=512"], quiet=True)
    assert loop(["python", "train.py"], folder, None, True, chosen=options) == 0
    argv = (tmp_path / "argv").read_text().split()
    assert argv[-2:] == [str(bench), "--small"]
    assert "--profile-from-start" not in argv
    assert json.loads((folder / "ncu/manifest.json").read_text())["facts"] == {"resolution": "512"}
    document = json.loads((folder / "diagnosis.json").read_text())
    assert any("kernels were profiled in" in note and "bench --small" in note for note in document["notes"])
    assert document["facts"] == {"resolution": "512"}
    # A loop that goes on without the bench still says where the stored kernels are from.
    assert loop(["python", "train.py"], folder, None, True, chosen=LoopOptions(quiet=True)) == 0
    notes = json.loads((folder / "diagnosis.json").read_text())["notes"]
    assert any("kernels were profiled in" in note and "bench --small" in note for note in notes)


@pytest.mark.parametrize("bench", ["", "no-such-program --small", "python 'bench.py"])
def test_a_bench_that_starts_nothing_is_refused(bench: str) -> None:
    with pytest.raises(UsageError, match="starts no program"):
        assert LoopOptions(kernel_bench=bench).bench


def test_a_broken_attempt_is_moved_aside_and_made_again(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/log.txt").touch()
    made = []

    def capture(out: Path) -> Capture:
        made.append(out)
        return Capture(out, (), {"ranks": []})

    Stages(tmp_path).make("torch", "why", capture)
    assert made == [tmp_path / "torch"]
    assert (tmp_path / "torch.incomplete-1/log.txt").exists()


def test_a_failed_stage_is_no_stage(tmp_path: Path) -> None:
    def fails(out: Path) -> Capture:
        raise CaptureError(Fault.FAILED, "no")

    stages = Stages(tmp_path)
    with pytest.raises(CaptureError):
        stages.make("nsys", "why", fails)
    assert stages.done == []


def diagnosis(*verdicts: Verdict) -> Diagnosis:
    rulings = tuple(Ruling(Card(f"AAA{n}", "name", "", "", ""), verdict) for n, verdict in enumerate(verdicts))
    return Diagnosis((), StepFigures(0, None, None, None), (), rulings, (), Bottleneck.NONE, "")


OPEN, OTHER, CLEAR, NOT = Undecided("a", "b"), Undecided("c", "d"), Clear(()), NotApplicable("e")


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [(OPEN, CLEAR, CLEAR), (OPEN, OTHER, OPEN), (OPEN, NOT, OPEN), (CLEAR, OPEN, CLEAR), (NOT, CLEAR, NOT)],
)
def test_what_one_capture_decides_settles_what_the_other_cannot(
    first: Verdict, second: Verdict, result: Verdict
) -> None:
    both = joined(diagnosis(first, CLEAR), diagnosis(second, CLEAR))
    assert [ruling.verdict for ruling in both.rulings] == [result, CLEAR]
    assert joined(diagnosis(first), None).rulings[0].verdict is first
