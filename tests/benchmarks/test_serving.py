"""Servers with planted faults, as captured on an H200: the cause that is named, its price, and idle time told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.serving import adopt, suite
from benchmarks.serving.score import Scored, scored

import timesink
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.waits import collective_waits

MEASURED = json.loads((adopt.CAPTURES / "measured.json").read_text())
POINTS = 5.0


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    for tool in ("nsys/", "exchange/"):
        adopt.unpacked(folder, tool)
    return folder


@pytest.fixture(scope="module")
def score(captures: Path) -> Callable[[str], Scored]:
    def of(name: str) -> Scored:
        return scored(suite.find(name), "nsys", captures / "nsys" / f"{name}.sqlite", MEASURED[name])

    return of


@pytest.mark.parametrize("name", adopt.CHOSEN["nsys"])
def test_the_planted_fault_is_named_first_and_priced(score: Callable[[str], Scored], name: str) -> None:
    found = score(name)
    assert found.first in found.program.causes
    assert found.points <= POINTS, (found.told, found.measured)
    assert found.unassigned <= 0.05


def test_a_skew_of_experts_is_foretold_by_what_balance_was_measured_to_win(captures: Path) -> None:
    trace = timesink.read([captures / "exchange" / f"share_72.rank{rank}.json" for rank in (0, 1)])
    times = json.loads((adopt.CAPTURES / "exchange.json").read_text())
    middle = {share: sorted(blocks)[len(blocks) // 2] for share, blocks in times.items()}
    _, first = timesink.diagnose(trace).findings[0]
    assert first.bottleneck is Bottleneck.STRAGGLER
    assert first.recoverable is not None
    assert first.of_ms is not None
    told = first.recoverable.value / first.of_ms
    assert abs(told - (1 - middle["0.5"] / middle["0.72"])) <= 0.04
    assert collective_waits(trace).matched.unmatched_count == 0  # though ranks send each other different amounts
