"""Short exchanges that follow each other are told from units between products, in both profilers."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults.adopt import archive
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.collectives import exchange_runs
from timesink.readers import read


@pytest.mark.parametrize(
    ("name", "tool", "count", "in_row"),
    [
        ("experts_exchanged_one_by_one", "torch", 99, 33),
        ("experts_exchanged_one_by_one", "nsys", 99, 33),
        ("gradients_reduced_one_by_one", "nsys", 192, 192),
    ],
)
def test_a_row_of_exchanges_is_one_finding(name: str, tool: str, count: int, in_row: int, tmp_path: Path) -> None:
    unpacked(archive(name, tool), tmp_path)
    paths = captures_in(tmp_path)[f"{name}.high.fault"]
    trace = read(paths if len(paths) > 1 else paths[0])
    assert {round(runs.in_row) for runs in exchange_runs(trace)} == {in_row}
    found = [one for _, one in diagnose(trace).findings if one.bottleneck is Bottleneck.COMMUNICATION_SMALL]
    assert f"launches {count} small exchanges, {in_row} in a row" in found[0].message


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("sharded_layers", "torch"),
        ("sharded_layers", "nsys"),
        ("mixed_lengths", "torch"),
        ("mixed_lengths", "nsys"),
        ("many_pieces_by_turns", "torch"),
        ("batches_one_at_a_time", "nsys"),
    ],
)
def test_units_and_buckets_and_messages_of_stages_are_no_row(name: str, tool: str, tmp_path: Path) -> None:
    unpacked(archive(name, tool), tmp_path)
    paths = next(paths for capture, paths in captures_in(tmp_path).items() if capture.endswith("fault"))
    assert exchange_runs(read(paths if len(paths) > 1 else paths[0])) == ()
