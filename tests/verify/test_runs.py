import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timesink.errors import MissingTool, ToolFailed, UsageError
from timesink.verify.environment import Command, Finished, run
from timesink.verify.runs import JsonFile, OutputPattern, StepsFile, same_check


def finished(folder: Path, stdout: str = "", stderr: str = "") -> Finished:
    (folder / "stdout.txt").write_text(stdout)
    (folder / "stderr.txt").write_text(stderr)
    return Finished(time.time(), time.time(), folder / "stdout.txt", folder / "stderr.txt")


def test_step_writes_one_line_per_step_and_costs_nothing_without_a_file(tmp_path: Path) -> None:
    program = "import timesink\nfor i in range(4): timesink.step(check=i / 2)\n"
    target = tmp_path / "steps.jsonl"
    for variables in ({"TIMESINK_STEPS": str(target)}, {}):
        environment = {k: v for k, v in os.environ.items() if k not in ("TIMESINK_STEPS", "RANK")}
        subprocess.run([sys.executable, "-c", program], env={**environment, **variables}, check=True)
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(0 < line["seconds"] < 1 for line in lines)
    assert lines[-1]["check"] == "1.5"


def test_step_waits_before_it_reads_the_clock(tmp_path: Path) -> None:
    program = "import time, timesink\nfor i in range(3): timesink.step(wait=lambda: time.sleep(0.02))\n"
    environment = {**os.environ, "TIMESINK_STEPS": str(tmp_path / "s")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert all(json.loads(line)["seconds"] >= 0.02 for line in (tmp_path / "s").read_text().splitlines())


def test_a_forked_worker_writes_nothing_into_its_parents_file(tmp_path: Path) -> None:
    program = (
        "import os, timesink\ntimesink.step(); timesink.step()\n"
        "if os.fork() == 0:\n    timesink.step(); os._exit(0)\n"
        "os.wait(); timesink.step()\n"
    )
    environment = {**os.environ, "TIMESINK_STEPS": str(tmp_path / "s")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert [json.loads(line)["step"] for line in (tmp_path / "s").read_text().splitlines()] == [1, 2]


def test_of_several_ranks_the_slowest_gives_each_steps_time(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step":1,"seconds":1.0,"check":"a"}\n{"step":2,"seconds":5.0}\n')
    (tmp_path / "steps.jsonl.rank1").write_text(
        '{"step":1,"seconds":2.0}\n{"step":2,"seconds":4.0}\n{"step":3,"seconds":9.0}\n'
    )
    times = StepsFile().collect(tmp_path, finished(tmp_path))
    assert times.seconds == (2.0, 5.0)
    assert times.check == "a"


@pytest.mark.parametrize("line", ["{", "[]", '{"step": 1}', '{"seconds": -1}', '{"seconds": NaN}', '{"seconds": "x"}'])
def test_a_broken_step_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "steps.jsonl").write_text(line + "\n")
    with pytest.raises(ToolFailed, match=r"step|line 1"):
        StepsFile().collect(tmp_path, finished(tmp_path))


def test_no_step_times_says_how_to_hand_them_over(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"timesink\.step\(\)"):
        StepsFile().collect(tmp_path, finished(tmp_path))


@pytest.mark.parametrize(("unit", "seconds"), [("s", 12.5), ("ms", 0.0125), ("us", 12.5e-6), ("ns", 12.5e-9)])
def test_the_patterns_group_names_the_unit(tmp_path: Path, unit: str, seconds: float) -> None:
    pattern = OutputPattern.parse(rf"took (?P<{unit}>[\d.]+)", r"^loss (\S+)$")
    times = pattern.collect(tmp_path, finished(tmp_path, "took 12.5 x\nloss 2.0\ntook 12.5\nloss 1.5\n"))
    assert times.seconds == pytest.approx((seconds, seconds))
    assert times.check == "1.5"


def test_a_pattern_without_a_unit_or_a_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names a unit"):
        OutputPattern.parse(r"took ([\d.]+)")
    with pytest.raises(UsageError, match="not a regular expression"):
        OutputPattern.parse(r"took (?P<ms>[\d.+")
    with pytest.raises(ToolFailed, match="matches nothing"):
        OutputPattern.parse(r"took (?P<ms>\d+)").collect(tmp_path, finished(tmp_path, "nothing"))


def test_a_json_files_key_names_list_and_unit(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text('{"step_times_ms": [1.5, 2.5], "check": 7}')
    times = JsonFile(target, "step_times_ms").collect(tmp_path, finished(tmp_path))
    assert times.seconds == pytest.approx((0.0015, 0.0025))
    assert times.check == "7"


def test_a_json_file_left_over_from_an_earlier_run_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("[1.0]")
    os.utime(target, (1, 1))
    with pytest.raises(ToolFailed, match="did not write"):
        JsonFile(target).collect(tmp_path, finished(tmp_path))


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "same"),
    [("1.0", "1.0", 0, True), ("1.0", "1.00", 0, True), ("1.0", "1.001", 1e-2, True), ("1.0", "1.1", 1e-2, False),
     ("nan", "nan", 1, False), ("abc", "abc", 0, True), ("abc", "abd", 1, False), ("inf", "inf", 1, False)],
)  # fmt: skip
def test_checks_agree_as_text_or_within_the_tolerance(one: str, other: str, tolerance: float, same: bool) -> None:
    assert same_check(one, other, tolerance) is same


def test_a_command_is_split_without_a_shell() -> None:
    command = Command.parse("A=1 B='x y' python -c 'print(1); $(reboot)' && rm")
    assert command.environment == {"A": "1", "B": "x y"}
    assert command.argv == ("python", "-c", "print(1); $(reboot)", "&&", "rm")


@pytest.mark.parametrize("text", ["", "A=1", "python 'x"])
def test_a_command_without_a_program_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Command.parse(text)


def test_a_failing_program_is_reported_with_its_status_and_last_words(tmp_path: Path) -> None:
    failing = Command((sys.executable, "-c", "import sys; print('no memory', file=sys.stderr); sys.exit(3)"))
    with pytest.raises(ToolFailed, match=r"status 3.*no memory"):
        run(failing, tmp_path, extra={}, timeout_s=30)
    with pytest.raises(MissingTool, match="no program"):
        run(Command(("/no/such/program",)), tmp_path, extra={}, timeout_s=30)


def test_a_program_past_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    child = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\ntime.sleep(60)"
    with pytest.raises(ToolFailed, match="ran past"):
        run(Command((sys.executable, "-c", child)), tmp_path, extra={}, timeout_s=1.0)
    pid = int((tmp_path / "stdout.txt").read_text())
    time.sleep(0.1)
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
