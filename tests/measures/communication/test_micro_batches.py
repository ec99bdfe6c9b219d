"""Micro-batches are counted where the profiler names the messages and where it knows their kernels alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.faults.adopt import archive
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in

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
                          "compute_ns": 60_000, "host_ns": None, "host_busy_ns": None})  # fmt: skip
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
