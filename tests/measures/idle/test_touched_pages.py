"""Gaps before a page of unified memory moves: code of the CPU, but for the time that it works through a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.programs import Program

from timesink import read
from timesink.measures.idle.blame import idle_blame


@pytest.mark.parametrize(
    ("gap_us", "own_us", "page_us"), [(20_000, 15_000, 5_000), (6_000, 1_000, 5_000), (5_000, 0, 5_000), (900, 0, 900)]
)
def test_of_a_gap_before_a_page_the_last_five_milliseconds_are_the_pages(
    gap_us: int, own_us: int, page_us: int, tmp_path: Path
) -> None:
    program = Program()
    program.launch("first(float*)", 1000)
    program.wait()
    ended = program.free[0, 7]
    program.page(ended + gap_us, 10)
    program.pause(gap_us + 10)
    program.launch("last(float*)", 1000)
    program.wait()
    blame = idle_blame(read(program.nsys(tmp_path), cache=False))
    before = blame.stretches.filter(blame.stretches["end_ns"] <= round(1000 * (ended + gap_us)))
    told = {row["cause"]: row["end_ns"] - row["start_ns"] for row in before.iter_rows(named=True)}
    waited = told.pop("sync", 0)
    assert told.get("migration") == pytest.approx(1000 * page_us, abs=waited + 1)
    assert told.get("untraced", 0) == pytest.approx(1000 * own_us, abs=waited + 1)
    assert all(row["host"] is not None for row in before.iter_rows(named=True) if row["cause"] == "untraced")
