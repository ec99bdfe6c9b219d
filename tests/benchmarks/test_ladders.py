"""The ladder suite: captures stored by column come back alike, and what was measured is read as its page says."""

import io
import json
import lzma
import shutil
import sqlite3
import tarfile
from pathlib import Path

import pytest
from benchmarks.ladders import adopt, columns, suite
from benchmarks.ladders.adopt import CAPTURES
from benchmarks.ladders.truth import Truth, everything

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        *(
            {
                "ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 7, "ts": 4462236682236.851 + 17 * at, "dur": 1.8,
                "args": {"External id": at, "Input Dims": [[8, 8], []]},
            }
            for at in range(6)
        ),
    ],
}  # fmt: skip
NAMES = ["aten::add", "aten::mm"] * suite.STEPS
BLOCKS = {"blocks_ms": [1.00004], "receipts_equal": True}


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
    return {
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": 10.0 * at, "dur": 5.0}
            for at, name in enumerate(NAMES)
        ]
    }


@pytest.mark.slow
def test_results_of_one_program_are_taken_beside_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "CAPTURES", tmp_path)
    monkeypatch.setattr(adopt, "MEASURED", tmp_path / "measured.json")
    shutil.copy(CAPTURES / "nsys.columns.xz", tmp_path)
    (tmp_path / "torch.columns.xz").write_bytes(
        columns.pack({"one": columns.split_trace(TRACE), "two": columns.split_trace(TRACE)})
    )
    (tmp_path / "measured.json").write_text(json.dumps({"one": {"base": {}}, "two": {"base": {}}}))
    before = columns.unpack((CAPTURES / "nsys.columns.xz").read_bytes())
    results = tmp_path / "results"
    results.mkdir()
    (results / "measured.json").write_text(json.dumps({"two": {"measure0": {"base": BLOCKS}}, "new": {}}))
    tar_of(results / "torch.tar", "two.json", json.dumps(five_steps()).encode())
    database = tmp_path / "new.sqlite"
    columns.write_tables(before["dit_sampling"], database)
    tar_of(results / "nsys.tar", "new.sqlite", database.read_bytes())

    monkeypatch.setattr("sys.argv", ["adopt", str(results), "--steps", str(suite.STEPS)])
    adopt.main()

    measured = json.loads((tmp_path / "measured.json").read_text())
    assert measured == {"one": {"base": {}}, "two": {"base": {"blocks_ms": [[1.0]], "equal": True}}}
    found = columns.unpack((tmp_path / "torch.columns.xz").read_bytes())
    assert found.keys() == {"one", "two"}
    assert columns.joined_trace(found["one"]) == TRACE
    assert [event["name"] for event in columns.joined_trace(found["two"])["traceEvents"]] == NAMES
    after = columns.unpack((tmp_path / "nsys.columns.xz").read_bytes())
    assert after == {**before, "new": before["dit_sampling"]}


def tar_of(path: Path, name: str, content: bytes) -> None:
    packed = lzma.compress(content)
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo(f"{name}.xz")
        member.size = len(packed)
        archive.addfile(member, io.BytesIO(packed))


def test_four_programs_were_set_aside_and_every_rung_was_measured() -> None:
    aside = {ladder.name for ladder in suite.LADDERS if suite.split(ladder.name) == "aside"}
    assert aside == {"convnext_training", "graph_training", "recommender_training", "transducer_decoding"}
    assert {ladder.name for ladder in suite.FIRST} <= everything().keys() <= {ladder.name for ladder in suite.LADDERS}
    for name in everything():
        truth, ladder = Truth(name), suite.find(name)
        assert all(truth.gain(changes) is not None for changes in ladder.variants())
        assert truth.spent_ms(truth.best_order()) <= truth.spent_ms(ladder.changes)
