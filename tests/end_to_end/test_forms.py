"""A form of input is read, split or refused by every door alike: by each command, by the server for agents, in Python.

Forms are what people have of jobs of several GPUs: ranks merged into one file, a report of a node, folders with gaps,
one rank of many, logs of operations.
"""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.readers.nsys_exports import CALL, KERNEL, STRINGS, write_sqlite
from tests.readers.test_kineto_merged import SPELLINGS, rank_events, written

from timesink.cli.app import run
from timesink.errors import TimesinkError
from timesink.mcp.captures import Captures
from timesink.model.tables import DEVICE_OPS
from timesink.readers import read

LOGGED: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "by category": lambda rank, at: {"ph": "X", "cat": "forward-compute", "pid": rank, "ts": 10 * at, "dur": 5},
    "without one": lambda rank, at: {"ph": "X", "pid": rank, "tid": 0, "ts": 10 * at, "dur": 5},
    "begin and end": lambda rank, at: {"ph": "BE"[at % 2], "pid": rank, "tid": 0, "ts": 10 * at},
    "instants": lambda rank, at: {"ph": "i", "s": "t", "pid": rank, "tid": 0, "ts": 10 * at},
}


def log_of(path: Path, kind: str, cut: int | None = None) -> Path:
    events = [{"name": "forward", **LOGGED[kind](rank, at)} for rank in (0, 1) for at in range(9)]
    path.write_text(json.dumps({"traceEvents": events})[:cut])
    return path


def of_job(path: Path, rank: int, world: int) -> Path:
    facts = {"rank": rank, "world_size": world, "backend": "nccl"}
    events = rank_events(0, lambda _, pid: pid)
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": facts, "traceEvents": events}))
    return path


def node(path: Path) -> Path:
    """A report of a node: torchrun started two processes, each with a GPU of its own."""
    rows = [(100 * at, at % 2) for at in range(12)]
    kernels = "\n".join(f"{at + 20} {at + 80} {gpu} 1 7 {at + 1} {7 + gpu}: 1" for at, gpu in rows)
    calls = "\n".join(f"{at} {at + 9} {7 + gpu}:{7 + gpu} {at + 1} 2" for at, gpu in rows)
    head = "start end deviceId contextId streamId correlationId globalPid demangledName"
    text = f"{STRINGS}\n\n{KERNEL}\n{head}\n{kernels}\n\n{CALL}\nstart end globalTid correlationId nameId\n{calls}"
    return write_sqlite(path, text)


def several(folder: Path, *made: tuple[str, Callable[[Path], Path]]) -> Path:
    folder.mkdir()
    for name, make in made:
        make(folder / name)
    return folder


def alike(path: Path) -> Path:
    events = [event for rank in (0, 1) for event in rank_events(rank, lambda _, pid: pid)]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def packed(path: Path) -> Path:
    path.write_bytes(b"PAR1" + bytes(90) + b"PAR1")
    return path


REFUSED: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    **{
        f"log, {kind}": (lambda path, kind=kind: log_of(path / "log.json", kind), "it holds only", "need a reader")  # type: ignore[misc]
        for kind in LOGGED
    },
    "log, cut off": (lambda path: log_of(path / "a.json", "by category", -40), "the text breaks off", "need a reader"),
    "log in Parquet": (lambda path: packed(path / "log.parquet"), "such as a log of operations", "need a reader"),
    "ranks alike in one file": (lambda path: alike(path / "merged.json"), "of several ranks", "rank0.json rank1.json"),
    "two files of a rank": (
        lambda path: several(path / "job", *((name, lambda a: of_job(a, 0, 2)) for name in ("a.json", "b.json"))),
        "2 files claim rank 0",
        "names such as rank0.json.gz",
    ),
    "two reports of nodes": (
        lambda path: several(path / "job", ("a.sqlite", node), ("b.sqlite", node)),
        "2 files claim rank 0",
        "names such as node0.sqlite",
    ),
}  # fmt: skip
READ: dict[str, tuple[Callable[[Path], Path], tuple[int, ...]]] = {
    "merged by a server": (lambda path: written(path / "merged.json", 2, SPELLINGS["brackets"]), (0, 1)),
    "merged by a script": (lambda path: written(path / "merged.json", 2, SPELLINGS["million"]), (0, 1)),
    "one rank of many": (lambda path: of_job(path / "trace.json", 3, 8), (3,)),
    "a folder with gaps": (
        lambda path: several(
            path / "job",
            *((f"rank{at}.json", lambda a, at=at: of_job(a, at, 4)) for at in (0, 1, 3)),  # type: ignore[misc]
        ),
        (0, 1, 3),
    ),
    "a report of a node": (lambda path: node(path / "node0.sqlite"), (0, 1)),
    "reports of nodes": (
        lambda path: several(path / "job", *((f"run_node{at}.sqlite", node) for at in (1, 0, 2))),
        (0, 1, 2, 3, 4, 5),
    ),
    "a report of the second node": (
        lambda path: several(path / "job", ("node1.sqlite", node), ("node3.sqlite", node)),
        (2, 3, 6, 7),
    ),
}
DOORS: dict[str, Callable[[Path], list[object]]] = {
    "diagnose": lambda path: ["diagnose", path],
    "JSON": lambda path: ["diagnose", path, "-f", "json"],
    "report": lambda path: ["report", path, "-o", "-"],
    "export": lambda path: ["report", "--export", "table", path, "--table", "device_ops", "-o", path.parent / "x.csv"],
    "ranks": lambda path: ["ranks", path],
    "pipeline": lambda path: ["ranks", "--pipeline", path],
    "query": lambda path: ["query", path],
    "SQL": lambda path: ["query", path, "SELECT DISTINCT rank FROM device_ops"],
    "compare": lambda path: ["compare", path, path],
    "plan": lambda path: ["plan", path],
    "kernels": lambda path: ["kernels", path],
    "limits": lambda path: ["gate", "--limits", path, "--limit", "max(kernels.count) <= 9"],
    "memory": lambda path: ["memory", "show", path],
    **{
        f"show {what}": lambda path, what=what: ["show", path, *what.split()]  # type: ignore[misc]
        for what in ("", "idle", "ops", "ranges", "calls", "lines", "compile", "checks", "tables", "statement")
    },
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_read_is_refused_at_every_door_with_the_way_out(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, why, way_out = REFUSED[form]
    path = make(tmp_path)
    with pytest.raises(TimesinkError) as python:
        read(path)
    with pytest.raises(TimesinkError) as agent:
        Captures([tmp_path]).open(str(path))
    assert str(agent.value) == str(python.value)
    for door, line in DOORS.items():
        code = run([str(word) for word in line(path)])
        said = capsys.readouterr()
        assert code == 2, door
        assert (door, why in words(said.out + said.err), way_out in words(said.out + said.err)) == (door, True, True)
        assert door == "JSON" or not said.out, door


def test_a_log_among_the_ranks_of_a_job_is_left_out_and_named_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_job(tmp_path / "rank0.json", 0, 3)
    of_job(tmp_path / "rank1.json", 1, 3)
    log_of(tmp_path / "rank2.json", "by category")
    for door, line in DOORS.items():
        assert run([str(word) for word in line(tmp_path)]) == 2, door
        said = capsys.readouterr()
        assert "rank2.json: it holds only" in words(said.out + said.err), door
        assert (door in ("JSON", "ranks")) == bool(said.out), door
    for window in ([], ["--window", "0ms:1ms"]):
        assert run(["diagnose", str(tmp_path), *window]) == 2
        assert "rank2.json: it holds only" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("form", READ)
def test_what_can_be_read_is_the_same_job_at_every_door(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, ranks = READ[form]
    path = make(tmp_path)
    trace = read(path)
    assert trace.rank_numbers == tuple(trace[DEVICE_OPS]["rank"].unique().sort()) == ranks
    assert Captures([tmp_path]).open(str(path)).trace.rank_numbers == ranks

    def answer(*line: object) -> str:
        assert run([str(word) for word in line]) == 0, line
        return capsys.readouterr().out

    rows = list(csv.reader(io.StringIO(answer(*DOORS["SQL"](path), "-f", "csv"))))
    assert sorted(int(rank) for (rank,) in rows[1:]) == list(ranks)
    assert sorted({source["rank"] for source in json.loads(answer(*DOORS["JSON"](path)))["sources"]}) == list(ranks)
    told = rf"{len(ranks)} ranks of " if len(ranks) > 1 else "1 rank: nothing to compare it with; `timesink diagnose`"
    assert re.match(told, answer("ranks", path))
    tables = json.loads(answer("show", path, "tables", "-f", "json"))["tables"]
    assert {table["table"]: table["rows"] for table in tables}["sources"] == len(ranks)
    for door in ("report", "compare", "show ", "show idle"):
        answer(*DOORS[door](path))
