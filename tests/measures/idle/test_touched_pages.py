"""Gaps before a page of unified memory moves: code of the CPU, but for the time that it works through a page."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gate.programs import Program

from timesink import read
from timesink.measures.idle import pieces
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
    assert told.get("unrecorded_code", 0) == pytest.approx(1000 * own_us, abs=waited + 1)
    assert all(row["host"] is not None for row in before.iter_rows(named=True) if row["cause"] == "unrecorded_code")
    if not own_us:  # nobody's code: the page may be another thread's
        assert all(row["host"] is None for row in before.iter_rows(named=True) if row["cause"] == "migration")


@given(st.lists(st.integers(-1, 9), max_size=12))
def test_of_each_op_the_last_launch_up_to_it_is_known(calls: list[int]) -> None:
    work: Any = SimpleNamespace(ops=SimpleNamespace(call=np.array(calls, np.int64)))
    nothing: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_waits_by_device", lambda _: {})
        patch.setattr(pieces, "_last_sources", lambda _: (nothing, nothing))
        found = pieces.GapCutter.of(work, nothing, nothing).launched_before
    launched = [[call for call in calls[: at + 1] if call >= 0] for at in range(len(calls))]
    assert found.tolist() == [before[-1] if before else -1 for before in launched]
