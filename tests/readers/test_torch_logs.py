"""Logs of torch.compile: every record is kept or counted, whatever version wrote it and whatever befell the file."""

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from timesink.cli.app import run
from timesink.model.tables import COMPILE_EVENTS
from timesink.readers import read
from timesink.readers.torch_logs.events import graph_break, recompilation
from timesink.readers.torch_logs.records import Losses, records

# Counts of tlparse 0.4.3 ("Stats { ok: …, fail_payload_md5: … }"), which leaves entries of the string table out.
TLPARSE = {
    "simple": (64, 0),
    "corrupted": (64, 1),
    "comp_failure": (3, 0),
    "comp_metrics": (12, 0),
    "chromium_events": (61, 0),
    "cache_hit_miss": (369, 0),
}


@pytest.mark.parametrize("name", sorted(TLPARSE))
def test_records_and_losses_are_those_that_tlparse_counts(shared_data: Path, name: str) -> None:
    losses, text = Losses(), (shared_data / "public/torch_logs" / f"{name}.log").read_text()
    kept = [record for record in records(text.split("\n"), losses) if "str" not in (record.envelope or {})]
    assert (len(kept), losses.payloads) == TLPARSE[name]
    assert (losses.records, losses.foreign) == (0, 0)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("comp_metrics", {"compile": 3, "graph_break": 2}),
        ("comp_failure", {"compile": 1, "failure": 1}),
        ("cache_hit_miss", {"compile": 6, "cache_miss": 2, "cache_hit": 1, "cache_bypass": 3}),
        ("chromium_events", {"compile": 4, "graph_break": 2, "failure": 1}),
    ],
)
def test_events_of_known_logs(shared_data: Path, name: str, counts: dict[str, int]) -> None:
    events = read(shared_data / "public/torch_logs" / f"{name}.log")[COMPILE_EVENTS]
    assert counts_of(events) == counts


def test_a_break_of_an_old_version_is_placed_where_the_next_function_goes_on(shared_data: Path) -> None:
    events = read(shared_data / "public/torch_logs/comp_metrics.log")[COMPILE_EVENTS]
    assert events.filter(pl.col("event") == "graph_break")["line"].to_list() == [9551, 9553]


def test_times_are_those_that_the_compiler_states_since_1970(shared_data: Path) -> None:
    first = read(shared_data / "public/torch_logs/comp_metrics.log")[COMPILE_EVENTS]["start_ns"][0]
    assert abs(first - 1_712_154_528_052_368_400) < 1_000_000  # start_time of the first compilation, lines have ms


def test_a_log_cut_anywhere_is_read_to_its_end_and_says_what_it_lost(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "public/torch_logs/cache_hit_miss.log").read_bytes()
    for share in (0.1, 0.37, 0.5, 0.93):
        path = tmp_path / "cut.log"
        path.write_bytes(whole[: int(len(whole) * share)])
        trace = read(path)
        assert 0 < trace[COMPILE_EVENTS].height < 73 + 6
        lost = [note for note in trace.notes if note.kind.value == "data_loss"]
        assert len(lost) == 1 and lost[0].count == 1


def line(clock: str, rest: str, rank: str = "") -> str:
    return f"{rank}V1120 11:00:{clock} 77 torch/_dynamo/x.py:1] {rest}"


def structured(clock: str, payload: str | None = None, **envelope: Any) -> str:
    if payload is None:
        return line(clock, json.dumps(envelope))
    digest = hashlib.md5(payload.encode()).hexdigest()
    below = "".join(f"\n\t{part}" for part in payload.split("\n"))
    return line(clock, json.dumps({**envelope, "has_payload": digest})) + below


def counts_of(events: pl.DataFrame) -> dict[str, int]:
    counted = events.filter(pl.col("event") != "phase")["event"].cast(pl.String).value_counts()
    return dict(counted.iter_rows())


def log(path: Path, *lines: str) -> pl.DataFrame:
    path.write_text("\n".join(lines) + "\n")
    return read(path)[COMPILE_EVENTS]


def test_a_structured_recompilation_has_its_function_and_the_guard_that_failed(tmp_path: Path) -> None:
    frame = {"frame_id": 3, "frame_compile_id": 1, "attempt": 0}
    events = log(
        tmp_path / "rank_2.log",
        structured("00.000000", str=["model.py", 0]),
        structured("01.000000", "3/0: L['n'] == 4", artifact={"name": "recompile_reasons"}, **frame),
        structured("01.500000", dynamo_start={"stack": [{"line": 9, "name": "step", "filename": 0}]}, **frame),
        structured(
            "02.000000", compilation_metrics={"co_name": "step", "guard_count": 5, "graph_op_count": 2}, **frame
        ),
    )
    row = events.filter(pl.col("event") == "recompile").row(0, named=True)
    assert (row["rank"], row["function"], row["reason"]) == (2, "step", "L['n'] == 4")
    compiled = events.filter(pl.col("event") == "compile").row(0, named=True)
    assert compiled["end_ns"] - compiled["start_ns"] == 500_000_000


def test_text_of_several_lines_is_one_event(tmp_path: Path) -> None:
    events = log(
        tmp_path / "text.log",
        "step 0 loss 4.2",
        line("00.000000", "[0/0] [__graph_breaks] Graph break in user code at model.py:12", "[rank1]:"),
        line("00.000000", "[0/0] [__graph_breaks] Graph Break Reason: Unsupported Tensor.item() call", "[rank1]:"),
        line("01.000000", "[0/1] [__recompiles] Recompiling function step in model.py:9", "[rank1]:"),
        line("01.000000", "[0/1] [__recompiles]     triggered by the following guard failure(s):", "[rank1]:"),
        line("01.000000", "[0/1] [__recompiles]     - 0/0: n == 4      # return n * x  # model.py:10", "[rank1]:"),
        line("02.000000", "[0/8] torch._dynamo hit config.recompile_limit (8)", "[rank1]:"),
        line("02.000000", "[0/8]    function: 'step' (model.py:9)", "[rank1]:"),
    )
    assert events.select(pl.col("event").cast(pl.String), "rank", "compilation", "line", "reason").rows() == [
        ("graph_break", 1, 0, 12, "Unsupported Tensor.item() call"),
        ("recompile", 1, 1, 9, "n == 4"),
        ("limit", 1, 8, 9, "recompile_limit (8)"),
    ]


def test_what_is_damaged_is_counted_and_the_rest_kept(tmp_path: Path) -> None:
    good = structured("03.000000", compilation_metrics={"co_name": "f", "guard_count": 1}, frame_id=0)
    bad_payload = structured("02.000000", "x", artifact={"name": "fx_graph_cache_hit"}, frame_id=0) + "y"
    path = tmp_path / "bad.log"
    path.write_text("\n".join([line("01.000000", '{"dynamo_start": {'), bad_payload, "Killed", good]) + "\n")
    trace = read(path)
    assert {note.message.split(" ")[0]: note.count for note in trace.notes if note.kind.value != "assumed"} == {
        "records": 1,
        "payloads": 1,
        "lines": 1,
    }
    assert counts_of(trace[COMPILE_EVENTS]) == {"cache_hit": 1, "compile": 1}


def test_a_compilation_without_an_end_is_kept_and_said_so(tmp_path: Path) -> None:
    events = log(
        tmp_path / "open.log", structured("00.000000", dynamo_start={"stack": []}, frame_id=0, frame_compile_id=0)
    )
    assert events["reason"].to_list() == ["the log ends before this compilation does"]


def test_logs_of_two_ranks_keep_their_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_ab.log").write_text(
            structured("00.000000", compilation_metrics={"co_name": "f", "guard_count": 1}, frame_id=0) + "\n"
        )
    assert sorted(read([tmp_path])[COMPILE_EVENTS]["rank"].unique()) == [0, 1]


def test_a_log_beside_a_trace_claims_no_rank_of_its_own(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7, "args": {"device": 0}}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    beside = tmp_path / "compile.log"
    beside.write_text(
        structured("00.000000", compilation_metrics={"co_name": "f", "guard_count": 1}, frame_id=0) + "\n"
    )
    both = read([trace, beside])
    assert both[COMPILE_EVENTS]["rank"].to_list() == [0]
    assert not [note for note in both.notes if "claim rank" in note.message]


def test_a_program_s_own_output_alone_gives_no_diagnosis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log of graph breaks without a break holds nothing else; so it is read, and says that it has no record."""
    path = tmp_path / "out.log"
    path.write_text("epoch 1\nepoch 2\n")
    assert run(["diagnose", str(path)]) == 2
    assert "only lines from other sources than PyTorch's loggers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (
            ["Graph break: from user code at:", '  File "a.py", line 3, in f', '  File "b.py", line 7, in g'],
            ("b.py", 7, None),
        ),
        (["Graph break: inline in skipfiles from user code at:", '  File "a.py", line 3, in f'],
         ("a.py", 3, "inline in skipfiles")),
        (["Graph break in user code at a.py:3", "Reason: Unsupported: call"], ("a.py", 3, "Unsupported: call")),
        (
            [
                "Graph break (user stack suppressed due to duplicate graph break) in user code at a.py:3",
                "Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call:",
                "",
                "Failed to trace builtin operator",
            ],
            ("a.py", 3, "Failed to trace builtin operator"),
        ),
    ],
)  # fmt: skip
def test_a_graph_break_is_understood_in_the_words_of_every_version(
    message: list[str], place: tuple[str, int, str | None]
) -> None:
    assert graph_break(message)[:3] == place


def test_the_newest_failed_guard_is_the_reason() -> None:
    message = [
        "Recompiling function f in a.py:1",
        "  triggered by the following guard failure(s):",
        "  - User stack trace:",
        "  - 0/1: n == 1    # n",
        '  -   File "a.py", line 1',
        "  - 0/0: n == 0",
    ]
    assert recompilation(message) == ("a.py", 1, "n == 1", "f")
