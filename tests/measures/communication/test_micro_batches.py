"""Micro-batches are counted where the profiler names the messages and where it knows their kernels alone."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from benchmarks.faults.adopt import archive
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from pytest import MonkeyPatch

from timesink.measures.communication import pipelines as of
from timesink.measures.communication.pipelines import pipeline, pipeline_of
from timesink.measures.ranks.job import CALLS, SCHEMAS, Job
from timesink.readers import read


@pytest.mark.parametrize(
    ("name", "tool", "count"),
    [
        ("batches_one_at_a_time", "torch", 1),
        ("batches_one_at_a_time", "nsys", 1),
        ("few_pieces_by_turns", "torch", 2),
        ("few_pieces_by_turns", "nsys", 2),
        ("stages_of_unlike_length", "torch", 8),
        ("stages_of_unlike_length", "nsys", 8),
    ],
)
def test_captures_have_the_micro_batches_that_ran(name: str, tool: str, count: int, tmp_path: Path) -> None:
    unpacked(archive(name, tool), tmp_path)
    line = pipeline(read(captures_in(tmp_path)[f"{name}.high.fault"]))
    assert line is not None
    assert line.micro_batches == count


def pieces(schedule: str, count: int, last: bool) -> list[int]:
    """What a stage computes before each of its messages, forward 10 and back 20; an optimizer's step takes 1."""
    if schedule == "inference":
        return [10] * count
    if schedule == "GPipe":
        return [10] * (count - 1) + [30] + [20] * (count - 1) + [1]
    return [30] * count + [1] if last else [10] * min(2, count) + [30] * max(count - 2, 0) + [20] * min(2, count)


def counted(of_rank: list[list[int]]) -> int | None:
    """The micro-batches of a pipeline whose stages compute so much before each of a step's messages."""
    calls, steps = [], []
    for rank, of_step in enumerate(of_rank):
        for step in range(3):
            begin = at = 100_000 * step
            for work in of_step:
                at += work + 1
                fields = {
                    "rank": rank,
                    "device": rank,
                    "stream": 7,
                    "kind": "sendrecv",
                    "start_ns": at - 1,
                    "end_ns": at,
                }
                calls.append({**dict.fromkeys(CALLS), **fields, "work_before_ns": work, "labelled": False})
            steps.append({"rank": rank, "device": rank, "step": step, "start_ns": begin, "end_ns": begin + 100_000,
                          "compute_ns": 60_000, "host_busy_ns": None})  # fmt: skip
    tables = {"calls": calls, "steps": steps}
    line = pipeline_of(Job(**{name: pl.DataFrame(tables.get(name, []), schema) for name, schema in SCHEMAS.items()}))
    assert line is not None
    return line.micro_batches


@pytest.mark.parametrize("count", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("schedule", ["inference", "GPipe", "1F1B"])
def test_pieces_between_messages_without_a_label_are_counted(schedule: str, count: int) -> None:
    assert counted([pieces(schedule, count, last) for last in (False, True)]) == count


def test_a_quarter_of_a_long_piece_is_a_piece_and_less_is_not() -> None:
    assert counted([[100, 100, 100, 100, 28]] * 2) == 5
    assert counted([[100, 100, 100, 100, 23]] * 2) == 4


def test_a_piece_half_as_long_again_is_a_way_back() -> None:
    assert counted([[100, 100, 160, 160]] * 2) == 2
    assert counted([[100, 100, 140, 140]] * 2) == 4


@pytest.mark.parametrize(
    ("idle_ms", "standing_ms", "told_ms", "share"),
    [
        ([1, 1, 1], [40, 30, 35], 100.0, 0.0),  # stages wait for each other
        ([1, 80, 1], [80, 5, 80], 100.0, 0.8),  # all wait for the launches of rank 1
        ([1, 80, 1], [80, 5, 80], 0.0, 0.0),  # nobody knows the step
        ([1, 80, 1], [80, 5, 80], 60.0, 40 / 60),  # recording makes the step 40 ms longer
        ([1, 80, 1], [80, 5, 80], 25.0, 0.0),  # it is all of what rank 1 is idle for beyond what it stands
        ([1, 80, 1], [80, 5, 80], 120.0, 80 / 120),
        ([30, 20, 1], [40, 25, 35], 100.0, 0.0),  # its messages take longer than its launches
        ([60, 20, 1], [40, 15, 35], 100.0, 0.2),  # of the GPU that stands least
    ],
)
def test_a_pipeline_may_wait_for_the_launches_of_one_rank(
    idle_ms: list[float], standing_ms: list[float], told_ms: float, share: float, monkeypatch: MonkeyPatch
) -> None:
    """Of a recorded step of 100 ms; a GPU of a rank that is no stage counts in none."""
    parts = {
        (rank, rank): SimpleNamespace(idle=idle, exposed_communication=standing)
        for rank, (idle, standing) in enumerate(zip([*idle_ms, 99], [*standing_ms, 0], strict=True))
    }
    line = SimpleNamespace(ranks=(0, 1, 2), overlap=SimpleNamespace(period_ns=100e6))
    for name, value in {"pipeline": line, "device_timeline": SimpleNamespace(by_device=parts)}.items():
        monkeypatch.setattr(of, name, lambda _, value=value: value)
    monkeypatch.setattr(of, "per_step_ns", lambda _trace, _key, part_ms: part_ms * 1e6)
    assert of.paced_by_host(SimpleNamespace(), told_ms * 1e6) == pytest.approx(share)  # type: ignore[arg-type]


def test_nothing_paces_what_is_no_pipeline(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(of, "pipeline", lambda _: None)
    assert of.paced_by_host(SimpleNamespace(), 1.0) == 0.0  # type: ignore[arg-type]
