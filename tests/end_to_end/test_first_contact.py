"""What a new user met that was wrong and has no better place: named after the defects of the first contact."""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from timesink.cli.app import run
from timesink.readers import read
from timesink.verify.environment import Command, environment
from timesink.verify.gate import PerfTest

BEFORE = str(files("timesink.cli").joinpath("demo/gpt_before.json.xz"))
Captured = pytest.CaptureFixture[str]


def said(capsys: Captured, *words: str, code: int = 0) -> str:
    assert run(list(words)) == code
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_first_contact_defect_10_the_diagnosis_and_the_idle_times_use_the_same_words(capsys: Captured) -> None:
    diagnosis, idle = said(capsys, "diagnose", BEFORE), said(capsys, "show", "idle", BEFORE)
    bar = diagnosis.partition("idle 37.0 %: ")[2].partition(" (of the recorded step)")[0]
    causes = dict(re.findall(r"([a-z][a-zA-Z ]*?) (\d[\d.]* %)", bar))
    assert causes.pop("other")
    assert len(causes) >= 3
    for cause, share in causes.items():
        assert cause in idle
        assert share in idle


def test_first_contact_defect_20_a_missing_baseline_names_the_option_that_makes_it(tmp_path: Path) -> None:
    command = Command((sys.executable, "-c", "0"))
    row, runs = PerfTest("test_perf.py::test_step", command, tmp_path, 0.05, environment()).compare()
    assert runs == ()
    assert "pytest --gpuperf-update-new-only" in str(row)


def test_first_contact_defect_22_who_waits_for_several_files_is_told_how_many_are_read(tmp_path: Path) -> None:
    for rank in range(3):
        event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0}}
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": [event]}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    told: list[tuple[int, int]] = []
    read(tmp_path, cache=False, watch=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]
