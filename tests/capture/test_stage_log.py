"""The log of stages that a program writes, and what `timesink ranks --pipeline` makes of it."""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import timesink
from timesink.capture import stage_log
from timesink.capture.errors import CaptureError
from timesink.measures.communication.stage_logs import read_stage_logs
from timesink.views.pipeline import PipelineGate, Staged, compared_page, pipeline_page


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


def test_of_each_ten_items_two_are_timed_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Item k takes k times 10 us in A and 5 ms more in B, and the next begins 1 us later."""
    now = [0]
    monkeypatch.setattr(stage_log, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    with timesink.stages(tmp_path / "run.jsonl", every=10) as log:
        for item in range(100):
            with log.stage("A"):
                now[0] += 10_000 * item
            with log.stage("B"):
                now[0] += 5_000_000
            now[0] += 1_000
    logs = read_stage_logs([tmp_path / "run.jsonl"])
    assert logs.series["item"].to_list() == [item for item in range(100) if item % 10 == 1]
    assert logs.series["period_ns"].to_list() == [1_000 + 10_000 * item + 5_000_000 for item in range(1, 100, 10)]
    assert logs.series["stage0_ns"].to_list() == [10_000 * item + 5_000_000 for item in range(1, 100, 10)]
    assert logs.series["idle0_ns"].null_count() == logs.series["mesh_idle_ns"].null_count() == 10
    page, _ = pipeline_page(Staged(logs), PipelineGate(None))
    assert any(note.startswith("2 of each 10 items were timed") for note in page.notes)
    assert not [column for sheet in page.sheets for column in sheet.columns if "idle" in column.key]
    sides = (Staged(logs), Staged(logs))
    assert "idle" not in str(compared_page(sides, PipelineGate(None))[0].sheets)
    with pytest.raises(CaptureError, match="not a count of items"):
        timesink.stages(tmp_path / "run.jsonl", every=0)


def test_what_cannot_be_logged_says_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be written"):
        timesink.stages(tmp_path / "absent" / "run.jsonl")
    with pytest.raises(CaptureError, match="no GPU"):
        timesink.stages(tmp_path / "run.jsonl", device=True)


class FakeEvents:
    """Events of a device that runs a microsecond behind; each holds what the device had done when it was recorded."""

    made = recorded = 0

    def new(self) -> list[int]:
        FakeEvents.made += 1
        return [FakeEvents.made]

    def stream(self, number: int) -> int:
        return number

    def record(self, event: list[int], stream: int) -> int:
        event[:] = [time.perf_counter_ns() + 1000]
        FakeEvents.recorded += 1
        return 0

    def over(self, event: list[int]) -> bool:
        return True

    def wait(self, event: list[int]) -> None: ...

    def between_ns(self, early: list[int], late: list[int]) -> int:
        return late[0] - early[0]


def test_on_a_device_parts_that_follow_at_once_share_a_mark_and_no_mark_is_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = [7]
    properties = SimpleNamespace(uuid="GPU-1")
    cuda = SimpleNamespace(
        is_available=lambda: True, current_device=lambda: 0, get_device_properties=lambda _device: properties,
        current_stream=lambda *_: SimpleNamespace(synchronize=lambda: None, cuda_stream=stream[0]),
    )  # fmt: skip
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None), _C=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(stage_log, "_DriverEvents", FakeEvents)
    monkeypatch.setattr(stage_log, "_SAME_NS", 50_000)  # a test machine may be slow between two lines
    with timesink.stages(tmp_path / "run.jsonl") as log:
        for item in range(3000):  # read and written on the way
            with log.stage("A", item):
                pass
            with log.stage("B", item):
                if item % 100 == 0:
                    stream[0] ^= 1  # the begin of the next is in another stream
            if item % 7 == 0:
                time.sleep(0.0001)  # something is launched here
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]]
    assert [row["item"] for row in rows] == [item for item in range(3000) for _ in "AB"]
    times = [time_ns for row in rows for name, time_ns in row.items() if name != "item"]
    assert times == sorted(times)
    shared = sum(early == late for early, late in pairwise(times))
    assert FakeEvents.recorded == 1 + len(times) - shared
    assert 3000 < shared < 5999 - 400


def test_a_part_within_a_part_has_a_begin_of_its_own(tmp_path: Path) -> None:
    with timesink.stages(tmp_path / "run.jsonl") as log, log.stage("A"), log.stage("B"):
        pass
    inner, outer = (json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:])
    assert outer["tA0"] <= inner["tB0"] <= inner["tB1"] <= outer["tA1"]
