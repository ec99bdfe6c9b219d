"""The ladder suite: captures stored by column come back alike, and what was measured is read as its page says."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from benchmarks.ladders import adopt, columns, suite
from benchmarks.ladders.truth import Truth

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        *(
            {
                "ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 7, "ts": 4523795278996.635 + 17 * at, "dur": 1.8,
                "args": {"External id": at, "Input Dims": [[8, 8], []]},
            }
            for at in range(6)
        ),
    ],
}  # fmt: skip


def test_a_trace_is_the_same_after_packing() -> None:
    packed = columns.pack({"one": columns.split_trace(TRACE)})
    assert columns.joined_trace(columns.unpack(packed)["one"]) == TRACE


def test_tables_are_the_same_after_packing(tmp_path: Path) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    with sqlite3.connect(first) as database:
        database.execute("CREATE TABLE calls (start INTEGER, 'end' INTEGER, name TEXT, stream INTEGER)")
        rows = [(10, 15, "a", None), (-3, 2**40, "a", 7), (2**60, 2**60 + 1, "a", None)]
        database.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE empty (value REAL)")
    columns.write_tables(columns.unpack(columns.pack({"one": columns.split_tables(first)}))["one"], second)
    assert sqlite3.connect(second).execute("SELECT * FROM calls").fetchall() == rows
    assert sqlite3.connect(second).execute("SELECT * FROM empty").fetchall() == []


def test_a_capture_is_cut_after_whole_steps() -> None:
    cut = columns.joined_trace(adopt.shorter_torch(json.dumps(five_steps()).encode(), 3))
    assert [event["name"] for event in cut["traceEvents"]] == ["aten::add", "aten::mm"] * 3


def test_an_operator_that_not_every_step_has_ends_no_step() -> None:
    stray = {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "tid": 1, "ts": 26.0, "dur": 1.0}
    trace = five_steps()
    trace["traceEvents"] = [*trace["traceEvents"], stray]  # type: ignore[misc]
    cut = columns.joined_trace(adopt.shorter_torch(json.dumps(trace).encode(), 3))
    names = [event["name"] for event in cut["traceEvents"] if event["name"] != "aten::copy_"]
    assert names == ["aten::add", "aten::mm"] * 3


def five_steps() -> dict[str, object]:
    names = ["aten::add", "aten::mm"] * suite.STEPS
    return {
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": 10.0 * at, "dur": 5.0}
            for at, name in enumerate(names)
        ]
    }


def test_four_programs_were_set_aside_and_every_rung_was_measured() -> None:
    aside = {ladder.name for ladder in suite.LADDERS if suite.split(ladder.name) == "aside"}
    assert aside == {"convnext_training", "graph_training", "recommender_training", "transducer_decoding"}
    for ladder in suite.LADDERS:
        truth = Truth(ladder.name)
        assert all(truth.gain(changes) is not None for changes in ladder.variants())
        assert truth.spent_ms(truth.best_order()) <= truth.spent_ms(ladder.changes)
