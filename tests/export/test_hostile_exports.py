"""One test over all exports: whatever a trace is named, no file of ours acts where it is looked at."""

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from tests.render.test_hostile_names import ACTS_ON_TERMINAL, HOSTILE, LOG_COMMAND
from tests.strategies import frame

from timesink.export.held import SUFFIXES, write_table
from timesink.export.perfetto import write_perfetto
from timesink.export.tracks import write_speedscope
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace

# A surrogate cannot stand in a table: Arrow text is UTF-8.
NAMES = [name.encode("utf-8", "replace").decode() for name in HOSTILE]


def trace(name: str) -> Trace:
    row = {"rank": 0, "process": 1, "thread": 7, "name": name, "file": name, "line": 3, "start_ns": 1, "end_ns": 9}
    return Trace("test", {FRAMES: frame(FRAMES, [row])})


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_holds_a_hostile_name_and_does_not_act(tmp_path: Path, suffix: str, name: str) -> None:
    path = tmp_path / f"frames{suffix}"
    write_table(trace(name)[FRAMES], path)
    if suffix == ".parquet":
        assert pl.read_parquet(path)["name"].to_list() == [name]
        return
    text = path.read_text("utf-8")
    if suffix == ".json":
        assert json.loads(text)["name"] == name
        return
    assert not ACTS_ON_TERMINAL.search(text) and not LOG_COMMAND.search(text)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["name"][:1] not in ("=", "+", "-", "@", "\t", "\r")
    assert len(row["name"]) >= len(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_flame_graph_stays_one_document(name: str) -> None:
    file = io.StringIO()
    write_speedscope(trace(name), file)
    document = json.loads(file.getvalue())
    assert len(document["shared"]["frames"]) == 1 and len(document["profiles"]) == 1
    assert not ACTS_ON_TERMINAL.search(document["shared"]["frames"][0]["name"])


@pytest.mark.parametrize("name", NAMES)
def test_a_perfetto_trace_holds_no_name_that_acts(name: str) -> None:
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Message

    file = io.BytesIO()
    assert write_perfetto(trace(name), None, file) == 1
    read = Message()
    read.ParseFromString(file.getvalue())
    assert not any(ACTS_ON_TERMINAL.search(text) for text in _texts(read))


def _texts(message: object) -> list[str]:
    found: list[str] = []
    for _, value in message.ListFields():  # type: ignore[attr-defined]
        for part in value if hasattr(value, "__iter__") and not isinstance(value, (str, bytes)) else [value]:
            if isinstance(part, str):
                found.append(part)
            elif hasattr(part, "ListFields"):
                found += _texts(part)
    return found
