"""The log of stages that a program writes, and what `timesink pipeline` makes of it."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

import timesink
from timesink.capture.errors import CaptureError
from timesink.measures.communication.stage_logs import read_stage_logs


def test_a_logged_loop_is_read_as_the_stages_that_it_worked(tmp_path: Path) -> None:
    marks = []
    with timesink.stages(tmp_path / "run.jsonl", depth=1) as log:
        for _ in range(5):
            with log.stage("encode"):
                time.sleep(0.004)
            with log.send():
                time.sleep(0.001)
            marks.append(time.perf_counter_ns())
            with log.stage("decode"):
                time.sleep(0.002)
    logs = read_stage_logs([tmp_path / "run.jsonl"])
    assert [rank.parts for rank in logs.ranks] == [("decode", "encode")]
    assert (dict(logs.facts), logs.one_clock, logs.series.height) == ({"depth": "1"}, True, 4)
    between = [late - early for early, late in pairwise(marks)]
    assert logs.series["period_ns"].sum() == pytest.approx(sum(between), rel=0.2)
    assert (logs.series["stage0_ns"] >= 6_000_000).all()
    assert (logs.series["transfer_ns"] >= 1_000_000).all()


def test_each_process_of_a_job_writes_its_own_and_one_machine_has_one_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with timesink.stages(tmp_path / "run.jsonl") as log:
            for item in range(4):
                with log.stage("A", item):
                    pass
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["run.rank0.jsonl", "run.rank1.jsonl"]
    logs = read_stage_logs(paths)
    assert ([rank.rank for rank in logs.ranks], logs.one_clock) == ([0, 1], True)


def test_many_parts_are_written_as_they_come_and_the_rest_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = timesink.stages(path)
    for _ in range(2100):
        with log.stage("A"):
            pass
    early = len(path.read_text().splitlines())
    log.close()
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert 1 < early < len(lines) == 2101
    assert [line["item"] for line in lines[1:]] == list(range(2100))


def test_a_part_that_fails_is_logged_and_its_error_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), timesink.stages(tmp_path / "run.jsonl") as log, log.stage("A"):
        _ = 1 / 0
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 2


def test_what_cannot_be_logged_says_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be written"):
        timesink.stages(tmp_path / "absent" / "run.jsonl")
    with pytest.raises(CaptureError, match="no GPU"):
        timesink.stages(tmp_path / "run.jsonl", device=True)
