"""Laws of `timesink query`: it answers what the tables hold, and reaches nothing else."""

import json
import sys
import time
from importlib.resources import as_file, files
from pathlib import Path

import polars as pl
import pytest
from tests.tables import trace_of

from timesink.cli.app import run
from timesink.errors import UsageError
from timesink.export.examples import EXAMPLES
from timesink.export.held import holdings
from timesink.export.sql import Allowance, ask
from timesink.measures.idle.blame import idle_blame
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.readers import read

pytest.importorskip("duckdb", reason="duckdb is not installed (pip install duckdb)")

BY_HAND = trace_of("""
| device_ops | name | stream | start_us | end_us |
| a          | gemm | 7      | 0        | 30     |
| b          | relu | 7      | 40       | 60     |
| c          | gemm | 20     | 50       | 70     |
""")
FORBIDDEN = (
    "DROP TABLE device_ops",
    "CREATE TABLE x AS SELECT 1",
    "SELECT 1; SELECT 2",
    "COPY device_ops TO 'stolen.csv'",
    "ATTACH 'stolen.db'",
    "INSTALL httpfs",
    "LOAD json",
    "SET threads = 9",
    "PRAGMA database_list",
    "",
    "-- nothing",
)


@pytest.fixture(scope="module")
def demo() -> Trace:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        return read(path, cache=False)


def test_an_answer_by_hand() -> None:
    answer = ask(BY_HAND, "SELECT name, sum(end_ns - start_ns) AS t FROM device_ops GROUP BY name ORDER BY name")
    assert answer.columns == ("name", "t")
    assert answer.rows == (("gemm", 50_000), ("relu", 20_000))
    assert not answer.truncated


@pytest.mark.slow
def test_every_table_holds_the_rows_of_the_trace(demo: Trace) -> None:
    for held in holdings(demo):
        assert ask(demo, f"SELECT count(*) FROM {held.name}").rows == ((held.frame.height,),)
        assert ask(demo, f"SELECT * FROM {held.name} LIMIT 1").columns == tuple(held.frame.columns)


def test_idle_time_in_sql_is_the_idle_time_of_the_measure(demo: Trace) -> None:
    assert ask(demo, "SELECT sum(end_ns - start_ns) FROM idle").rows == ((idle_blame(demo).idle_ns,),)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_runs_and_finds_something(demo: Trace, example: object) -> None:
    assert ask(demo, example.sql).rows
    assert ask(demo, example.sql) == ask(demo, example.sql)


def test_all_examples_are_written_down() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "query.md"
    text = page.read_text(encoding="utf-8")
    assert len(EXAMPLES) == 11
    assert [one.name for one in EXAMPLES if f"`{one.name}`" not in text] == []


def test_the_example_of_kernels_agrees_with_polars(demo: Trace) -> None:
    kernels = demo[DEVICE_OPS].filter(pl.col("kind") == "kernel")
    slow = (
        kernels.with_columns(pl.col("name").cast(pl.String), (pl.col("end_ns") - pl.col("start_ns")).alias("t"))
        .group_by("name")
        .agg(pl.len(), pl.col("t").sum())
        .sort(["t", "name"], descending=[True, False])
        .head(10)
    )
    assert list(ask(demo, EXAMPLES[0].sql).rows) == slow.rows()


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_only_one_select_is_run(sql: str) -> None:
    with pytest.raises(UsageError, match="exactly one SELECT"):
        ask(BY_HAND, sql)


def test_no_file_and_no_variable_of_this_program_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timesink.export.sql.apart", lambda work, *_: work())  # here, where its opens are heard
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nhunter2\n")
    hidden = pl.DataFrame({"password": ["hunter2"]})
    opened: list[str] = []
    watching = True
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if watching and event == "open" else None)
    for source in (f"'{secret}'", f"read_csv('{secret}')", f"read_text('{secret}')", f"glob('{tmp_path}/*')", "hidden"):
        with pytest.raises(UsageError):
            ask(BY_HAND, f"SELECT * FROM {source}")
    watching = False
    assert hidden.height
    assert not [path for path in opened if "secret" in path]


def test_a_query_that_takes_too_long_is_stopped(demo: Trace) -> None:
    began = time.perf_counter()
    with pytest.raises(UsageError, match=r"longer than 0\.3 s"):
        ask(
            demo,
            "SELECT count(*) FROM host_ops a, host_ops b, host_ops c WHERE a.start_ns + b.start_ns + c.start_ns = 7",
            Allowance(seconds=0.3),
        )
    assert time.perf_counter() - began < 10


def test_rows_beyond_the_allowance_are_left_out_and_said() -> None:
    answer = ask(BY_HAND, "SELECT name FROM device_ops ORDER BY start_ns", Allowance(rows=2))
    assert answer.rows == (("gemm",), ("relu",))
    assert answer.truncated
    assert not ask(BY_HAND, "SELECT name FROM device_ops", Allowance(rows=3)).truncated


def test_an_unknown_column_is_an_error_that_names_the_tables() -> None:
    with pytest.raises(UsageError, match="device_ops"):
        ask(BY_HAND, "SELECT duration FROM kernels")


def test_without_duckdb_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match="pip install 'duckdb"):
        ask(BY_HAND, "SELECT 1")


def test_the_command_writes_values_in_the_units_of_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """First contact defect 19."""
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        sql = "SELECT 1500000 AS wait_ns, 0.25 AS idle_ratio, 'x' AS name"
        assert run(["query", str(path), sql, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == [{"wait_ns": 1500000, "idle_ratio": 0.25, "name": "x"}]
        assert run(["query", str(path), sql]) == 0
        assert "1.50 ms" in capsys.readouterr().out
        assert run(["query", str(path), "DROP TABLE steps"]) == 2


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT length(repeat('ab', 400000000) || repeat('cd', 400000000))", "memory|larger|exceed|allocate"),
        ("SELECT levenshtein(repeat('ab', 60000), repeat('ba', 60000))", r"longer than 0\.2 s"),
    ],
)
def test_a_query_that_no_interrupt_reaches_is_ended_from_outside(
    sql: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timesink.export.sql._TO_STOP_S", 0.3)
    with pytest.raises(UsageError, match=why):
        ask(BY_HAND, sql, Allowance(seconds=0.2 if "levenshtein" in sql else 20.0, memory_megabytes=256))
