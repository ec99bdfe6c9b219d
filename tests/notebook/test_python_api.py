"""The Python API: what the commands answer, from a path or a trace, and its ways out (first contact defect 29)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from time import process_time
from traceback import format_exception

import jsonschema
import pytest
from tests.verify.test_commands import PROGRAM

import timesink
from timesink import Trace
from timesink.diagnosis.engine import diagnose as diagnose_plain
from timesink.errors import UnreadableTrace, UsageError
from timesink.mcp.captures import Captures
from timesink.model.tables import DEVICE_OPS
from timesink.render.schemas import schema, schemas_of
from timesink.verify.outcomes import Outcome

DEMO = Path(str(files("timesink.cli"))) / "demo"
BEFORE, AFTER = DEMO / "gpt_before.json.xz", DEMO / "gpt_after.json.xz"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return timesink.read(BEFORE, cache=False)


def test_a_path_and_its_trace_have_the_same_diagnosis(trace: Trace) -> None:
    of_path, of_trace = (timesink.diagnose(capture).to_dict() for capture in (str(BEFORE), trace))
    assert {**of_path, "sources": ()} == {**of_trace, "sources": ()}


def test_tables_answer_to_their_names(trace: Trace) -> None:
    assert trace["device_ops"] is trace[DEVICE_OPS]
    assert "device_ops" in trace
    assert "os_calls" not in trace
    with pytest.raises(KeyError, match="not recorded; the trace holds api_calls"):
        trace["os_calls"]


def test_files_of_several_ranks_are_one_trace(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.json.gz" for rank in (0, 1)]
    for path in paths:
        path.write_bytes(BEFORE.read_bytes())
    for given in (paths, tmp_path):
        assert timesink.read(given, cache=False).rank_numbers == (0, 1)
    waiting = timesink.read(tmp_path, cache=False).ranks()
    assert waiting.table("budgets")["rank"].to_list() == [0, 1]
    assert waiting.to_dict()["source"] == [str(path) for path in paths]


def test_every_result_is_short_in_a_prompt_and_whole_when_written(trace: Trace) -> None:
    results = (
        timesink.diagnose(trace),
        timesink.summary(trace, top=3),
        timesink.idle(trace),
        timesink.what_if(trace, "remove_sync"),
        timesink.compare(trace, AFTER),
    )
    for result in results:
        assert len(repr(result)) < 200
        assert result.to_dict() == json.loads(result.to_json())
        assert result.to_html().startswith("<!doctype html>")
        assert result.to_markdown()
        assert "\x1b" not in result.to_text()
        assert result._repr_html_().startswith('<div class="timesink">')
    assert len(repr(trace)) < 200


def test_every_answer_says_which_command_gives_it_and_of_which_file(trace: Trace) -> None:
    answers = {
        "diagnose": trace.diagnose(),
        "summary": trace.summary(),
        "idle": trace.idle(),
        "kernels": trace.kernels(),
        "ranks": trace.ranks(),
        "plan": trace.plan(),
        "what-if": trace.what_if("remove_sync"),
        "tables": trace,
    }
    for command, answer in answers.items():
        document = answer.to_dict()
        assert (document["command"], document["source"]) == (command, [str(BEFORE)])
        (name, *_) = schemas_of(command)
        jsonschema.validate(document, schema("page" if command == "kernels" else name))


def test_a_window_is_what_the_file_read_through_it_has(trace: Trace) -> None:
    cut = trace.window("40ms:100ms")
    assert isinstance(cut, timesink.Trace)
    assert cut["device_ops"].equals(timesink.read(BEFORE, window="40ms:100ms", cache=False)["device_ops"])
    for wrong in ("40ms", "9s:10s"):
        with pytest.raises(UsageError):
            trace.window(wrong)


def test_tables_come_as_polars_arrow_and_pandas(trace: Trace) -> None:
    ops = trace.table("device_ops")
    assert ops is trace["device_ops"]
    assert trace.table("device_ops", to="arrow").column("start_ns").to_pylist() == ops["start_ns"].to_list()
    causes = trace.idle().table("causes")
    assert causes["idle_ns"].sum() == sum(row["idle_ns"] for row in trace.idle().to_dict()["causes"])
    for wrong, said in (("device_op", "did you mean device_ops"), ("os_calls", "was not recorded; the trace holds")):
        with pytest.raises(UsageError, match=said):
            trace.table(wrong)
    with pytest.raises(UsageError, match="choose one of: polars, arrow, pandas"):
        trace.table("device_ops", to="numpy")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="causes, places"):
        trace.idle().table("kernels")


def test_pandas_keeps_whole_nanoseconds(trace: Trace) -> None:
    pytest.importorskip("pandas", reason="pip install pandas")
    frame = trace.table("device_ops", to="pandas")
    assert frame["end_ns"].tolist() == trace["device_ops"]["end_ns"].to_list()


def test_without_pandas_the_way_out_is_named(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        trace.table("device_ops", to="pandas")


def test_what_is_no_capture_is_refused_with_what_to_give(trace: Trace) -> None:
    """First contact defect 29: `diagnose("path")` once ended in a TypeError."""
    for given in (42, trace["device_ops"], [trace]):
        with pytest.raises(
            UsageError, match=r"give a path, a folder, a list of paths, or what timesink\.read returned"
        ):
            timesink.diagnose(given)  # type: ignore[arg-type]
    with pytest.raises(UnreadableTrace, match="check the path"):
        timesink.diagnose("no/such/file.json")
    with pytest.raises(UsageError, match=r"read it first: timesink\.read\('run\.json'\)"):
        diagnose_plain("run.json")  # type: ignore[arg-type]


def test_a_trace_that_cannot_answer_says_so() -> None:
    log = Path(__file__).resolve().parents[1] / "data" / "compile" / "item_break.text.log"
    for ask in (timesink.idle, timesink.kernels, timesink.what_if):
        with pytest.raises((UsageError, UnreadableTrace)):
            ask(log)


def test_what_the_capture_noted_comes_along(tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(BEFORE.read_bytes())
    manifest = {
        "timesink_manifest": 1,
        "files": [{"file": "rank0.json.gz"}],
        "ranks": [{"rank": 0, "unprofiled": {"step_ms": 5.0}, "settings": {"threads": "16"}}],
        "facts": {"resolution": "512"},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    path = tmp_path / "rank0.json.gz"
    served = Captures([tmp_path]).open(str(path)).trace
    for trace in (timesink.read(tmp_path, cache=False), timesink.read(path, cache=False), served):
        assert (trace.unprofiled_step_ns, trace.facts) == (5e6, {"resolution": "512"})
        assert trace.settings == {"threads": "16"}


def test_importing_the_package_imports_nothing_else() -> None:
    """What makes `import timesink` take under 20 ms: there is nothing to load."""
    code = "import sys; before = set(sys.modules); import timesink; print(*sorted(set(sys.modules) - before))"
    place = {**os.environ, "PYTHONPATH": str(Path(timesink.__file__).parents[1])}
    # -S: an editable installation has a hook of its own, which loads more
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=place)
    assert set(ran.stdout.split()) <= {"__future__", "timesink"}


def test_an_error_shows_the_line_that_called_and_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace) as caught:
        timesink.diagnose(tmp_path / "no.json")
    shown = "".join(format_exception(caught.value))
    assert "head_of" not in shown
    assert len(shown.splitlines()) <= 12
    assert caught.value._render_traceback_() == [f"UnreadableTrace: {caught.value}"]


@pytest.mark.slow
def test_two_programs_are_compared_and_a_capture_is_held_to_limits(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    program = f"{sys.executable} program.py"
    slower = timesink.verify_change(program, f"SCALE=1.2 {program}", pairs=(4,))
    assert (slower.outcome, slower.exit_code()) == (Outcome.SLOWER, 1)
    assert timesink.gate(trace, "mean(steps.period_ns) <= 13 ms").exit_code() == 0
    assert timesink.gate(trace, "mean(steps.period_ns) <= 12 ms").exit_code() == 1
    assert timesink.gate(AFTER, "mean(steps.period_ns) <= 0.9x", baseline=trace).exit_code() == 0


@pytest.mark.slow
def test_two_functions_are_compared_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that can be switched inside of a process: what processes differ in is not in the way."""
    monkeypatch.setattr(time, "perf_counter", process_time)  # a busy machine takes no part

    def takes(seconds: float) -> Callable[[], None]:
        def body() -> None:
            until = process_time() + seconds
            while process_time() < until:
                pass

        return body

    same = timesink.verify_change(takes(2e-4), takes(2e-4), threshold_ratio=0.5, pairs=(4,))
    assert same.outcome in (Outcome.NO_DIFFERENCE, Outcome.INCONCLUSIVE)
    slower = timesink.verify_change(takes(2e-4), takes(8e-4), threshold_ratio=0.1, pairs=(6,))
    assert slower.outcome is Outcome.SLOWER
    with pytest.raises(UsageError, match="one side is a function"):
        timesink.verify_change(takes(1e-4), "python new.py")
