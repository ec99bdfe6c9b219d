"""The commands as a continuous-integration job runs them: a real program, fresh processes, files, exit codes."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from timesink.cli.app import run
from timesink.render.schemas import schema

PROGRAM = """\
import json, os, random, sys, zlib
noise = random.Random(zlib.crc32(os.environ["TIMESINK_STEPS"].split(os.sep)[-2].encode()))  # by run number and side
scale = float(os.environ.get("SCALE", "1")) * (1 + noise.gauss(0, 0.002))
with open(os.environ["TIMESINK_STEPS"], "w") as file:
    for step in range(120):
        seconds = 1e-5 * scale * (1 + noise.gauss(0, 0.01) + (0.4 if step < 7 else 0))
        line = {"step": step + 1, "seconds": seconds, "check": os.environ.get("LOSS", "7.25")}
        file.write(json.dumps(line) + chr(10))
print("done")
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Timesink = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "TIMESINK_", "RANK"))]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def timesink(folder: Path, capsys: pytest.CaptureFixture[str]) -> Timesink:
    def call(*arguments: str, **variables: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = run(arguments)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return call


FOUR = ("--pairs", "4")
RUN = ("--", sys.executable, "program.py")


@pytest.mark.slow
def test_a_ci_job_passes_no_change_and_fails_a_regression_with_reports(folder: Path, timesink: Timesink) -> None:
    summary = folder / "summary.md"
    ci = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    even = timesink("gate", *FOUR, "--toggle", "SCALE=1/1", "--suite", "train", *RUN, **ci)
    assert (even.returncode, "::error" in even.stderr) == (0, False), even.stderr
    reports = ("--junit-xml", "j.xml", "--comment", "c.md", "--openmetrics", "m.txt", "--gitlab-codequality", "q.json")
    toggle = (*FOUR, "--toggle", "SCALE=1/1.08", "--suite", "train", "-f", "json")
    slow = timesink("gate", *toggle, *reports, *RUN, **ci)
    assert slow.returncode == 1, slow.stderr
    document = json.loads(slow.stdout)
    jsonschema.Draft202012Validator(schema("gate")).validate(document)
    assert (document["outcome"], document["exit_code"], len(document["runs"])) == ("slower", 1, 8)
    assert "::error title=timesink%3A step time (mean)::slower: +" in slow.stderr
    assert "<failure" in (folder / "j.xml").read_text()
    assert (folder / "c.md").read_text().startswith("<!-- timesink:train -->")
    assert (folder / "m.txt").read_text().endswith("# EOF\n")
    (failed,) = json.loads((folder / "q.json").read_text())
    assert failed["severity"] == "major" and failed["description"].startswith("step time (mean): slower: +")
    assert "no difference" in summary.read_text()
    assert "slower" in summary.read_text()


@pytest.mark.slow
def test_exit_zero_reports_a_regression_and_fails_nothing(folder: Path, timesink: Timesink) -> None:
    slow = timesink("verify", *FOUR, "--toggle", "SCALE=1/1.08", "--exit-zero", *RUN)
    assert slow.returncode == 0
    assert "slower: +" in slow.stdout


def test_another_result_is_invalid_and_exits_with_4(folder: Path, timesink: Timesink) -> None:
    wrong = timesink("verify", "--toggle", "LOSS=7.25/nan", *RUN)
    assert (wrong.returncode, "wrong result" in wrong.stdout) == (4, True), wrong.stdout


@pytest.mark.slow
@pytest.mark.parametrize("warm_up", [0, 2])
def test_pairs_that_warm_up_run_first_and_are_not_counted(folder: Path, timesink: Timesink, warm_up: int) -> None:
    arguments = ("--pairs", "2", "--warm-up-pairs", str(warm_up), "--toggle", "SCALE=1/1", "-f", "json", *RUN)
    done = timesink("verify", *arguments)
    assert [run["number"] for run in json.loads(done.stdout)["runs"]] == list(range(2 * warm_up + 1, 2 * warm_up + 5))


@pytest.mark.slow
def test_noise_exits_with_3_only_where_strict(folder: Path, timesink: Timesink) -> None:
    arguments = ("--threshold", "0.01%", "--pairs", "2", "--toggle", "SCALE=1/1", *RUN)
    assert timesink("verify", *arguments).returncode == 0
    strict = timesink("verify", "--strict", *arguments)
    assert (strict.returncode, "too noisy" in strict.stdout) == (3, True)


def test_a_program_that_fails_exits_with_5_and_a_wrong_request_with_2(folder: Path, timesink: Timesink) -> None:
    failing = timesink("verify", "--before", "false", "--after", "true")
    assert (failing.returncode, "status 1" in failing.stderr) == (5, True)
    for arguments in (
        ("verify",), ("verify", "--toggle", "X", *RUN), ("verify", "--toggle", "A=1/2"),
        ("gate", "calibrate", *RUN[:1]),
        ("verify", "--threshold", "x", "--toggle", "A=1/2", *RUN), ("gate", "--pairs", "a", "--toggle", "A=1/2", *RUN),
        ("gate", "--history", "none.jsonl"), ("gate", "baseline", "update", "--reason", " ", *RUN),
    ):  # fmt: skip
        assert timesink(*arguments).returncode == 2, arguments


@pytest.mark.slow
def test_a_stored_baseline_passes_no_change_fails_a_regression_and_is_never_passed_by_accident(
    folder: Path, timesink: Timesink
) -> None:
    def gate(*extra: str, **variables: str) -> Done:
        return timesink("gate", "--suite", "s", *extra, *RUN, **variables)

    assert gate().returncode == 4
    (folder / "m.json").write_text('{"launches per step": 812}')
    made = timesink("gate", "baseline", "update", "--suite", "s", "--reason", "first", "--metrics", "m.json", *RUN)
    assert (made.returncode, made.stdout.count("\n+")) != (0, 0), made.stderr
    assert '"reason": "first"' in made.stdout
    assert gate("--metrics", "m.json").returncode == 0
    assert gate("--metrics", "m.json", SCALE="1.1").returncode == 1
    assert gate().returncode == 4  # the counter is in the baseline and was not measured
    (folder / "m.json").write_text('{"launches per step": 813}')
    worse = gate("--metrics", "m.json")
    assert (worse.returncode, "launches per step" in worse.stdout) == (1, True)
    file = next((folder / ".timesink" / "baselines" / "s").glob("*.json"))
    file.write_text(file.read_text()[:200])
    damaged = gate("--metrics", "m.json")
    assert (damaged.returncode, "corrupt baseline" in damaged.stdout) == (4, True)
    again = ("gate", "baseline", "update", "--suite", "s", "--reason", "damaged", "--runs", "1")
    assert timesink(*again, *RUN).returncode == 2
    assert timesink(*again, "--replace", *RUN).returncode == 0


@pytest.mark.slow
def test_a_baseline_of_another_machine_is_invalid_and_names_what_differs(folder: Path, timesink: Timesink) -> None:
    timesink("gate", "baseline", "update", "--suite", "s", "--reason", "first", *RUN)
    file = next((folder / ".timesink" / "baselines" / "s").glob("*.json"))
    content = json.loads(file.read_text())
    content["environment"]["gpu"] = "NVIDIA A100"
    file.with_name("000000000000.json").write_text(json.dumps(content))
    file.unlink()
    foreign = timesink("gate", "--suite", "s", *RUN)
    assert (foreign.returncode, "differs in gpu" in " ".join(foreign.stdout.split())) == (4, True), foreign.stdout
    assert timesink("gate", "--suite", "s", "--allow-env-diff", "gpu", *RUN).returncode == 0


def test_a_lasting_change_in_the_history_is_an_alert_that_fails_nothing(folder: Path, timesink: Timesink) -> None:
    means = [1.0, 1.001] * 10 + [1.1, 1.101] * 5
    (folder / "h.jsonl").write_text("".join(json.dumps({"mean": mean, "sha": "x"}) + "\n" for mean in means))
    alert = timesink("gate", "--history", "h.jsonl", "-f", "json")
    document = json.loads(alert.stdout)
    assert (alert.returncode, document["metrics"][0]["verdict"]["outcome"]) == (0, "slower")
    assert document["outcome"] == "slower"


@pytest.mark.slow
def test_verify_closes_the_ledgers_entry_with_the_measured_gain(folder: Path, timesink: Timesink) -> None:
    opened = timesink(
        "verify", "--ledger", "add", "fewer copies", "--predicted", "0.0005,0.0008,0.0011", "--finding", "CPY101"
    )
    assert opened.stdout.startswith("Entry 1 is open in .timesink/ledger.jsonl. ")
    timesink("verify", *FOUR, "--toggle", "SCALE=1/0.92", "--ledger", "1", *RUN)
    shown = json.loads(timesink("verify", "--ledger", "show", "1", "-f", "json").stdout)
    (listed,), (before, after) = shown["entries"], shown["progress"]
    assert before["step_ms"] - after["step_ms"] == pytest.approx(listed["measured_ms"])
    assert (before["after"], after["after"], before["ratio"]) == ("before", "1 fewer copies", 1)
    assert (listed["outcome"], listed["within"]) == ("faster", True)
    assert listed["measured_ms"] == pytest.approx(0.0008, abs=0.0001)


@pytest.mark.slow
def test_calibration_is_kept_and_grows_by_sessions(folder: Path, timesink: Timesink) -> None:
    for sessions in (1, 2):
        done = timesink("gate", "calibrate", "--runs", "5", "-f", "json", *RUN)
        found = json.loads(done.stdout)["calibration"][0]
        assert (found["sessions"], found["runs"]) == (sessions, 5 * sessions)
    assert 0.0005 < found["run_sd_ratio"] < 0.006


@pytest.mark.slow
def test_a_pattern_on_the_output_and_a_json_file_hand_over_steps_too(folder: Path, timesink: Timesink) -> None:
    (folder / "printing.py").write_text(
        "for i in range(70): print(f'step {i} took {0.1 + i % 3 / 10000} ms, loss 2.5')\n"
    )
    pattern = r"took (?P<ms>[\d.]+) ms"
    both = ("--before", "python3 printing.py", "--after", "python3 printing.py", "--pairs", "2")
    done = timesink("verify", *both, "--step-pattern", pattern, "--check-pattern", r"loss (\S+)")
    assert (done.returncode, "no difference" in done.stdout, "were not compared" in done.stdout) == (0, True, False), (
        done.stdout
    )
    (folder / "writing.py").write_text("import json; json.dump({'t_ms': [0.1, 0.101] * 40}, open('out.json', 'w'))\n")
    both = ("--before", "python3 writing.py", "--after", "python3 writing.py", "--pairs", "2")
    done = timesink("verify", *both, "--steps-json", "out.json:t_ms")
    assert (done.returncode, "no difference" in done.stdout) == (0, True), done.stderr
