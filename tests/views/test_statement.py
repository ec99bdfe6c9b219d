"""The sentences that a team writes down of a run."""

from importlib.resources import files
from pathlib import Path

import pytest
from tests.measures.steps.spike_traces import simulated

from timesink.cli.app import run
from timesink.errors import UsageError
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace
from timesink.views.statement import statement_page

DEMO = Path(str(files("timesink.cli").joinpath("demo")))
LOGS = Path(__file__).resolve().parents[1] / "data/compile"


@pytest.fixture(scope="module")
def demo() -> tuple[Trace, Trace]:
    before, after = (read(DEMO / f"gpt_{side}.json.xz") for side in ("before", "after"))
    return before, after


def said(trace: Trace, before: Trace | None = None) -> dict[str, str]:
    return {str(about): str(text) for about, text in statement_page(trace, before).sheets[0].rows}


def test_time_and_throughput_are_stated_with_their_scope(demo: tuple[Trace, Trace]) -> None:
    before, after = demo
    named = replace(after, facts={"resolution": "512"})
    lines = said(named, before)
    assert lines["attribution"].endswith("(at resolution=512, as profiled)")
    assert "throughput" not in lines
    assert lines["profiled step"] == (
        "the median step takes 9.32 ms (11 steady steps, resolution=512; no throughput: a profiler ran), 12.3 ms "
        "before (-24.5 %; one run each)"
    )


def test_steps_without_a_profiler_count_where_they_were_timed(demo: tuple[Trace, Trace]) -> None:
    timed = replace(demo[0], unprofiled_steps_ns=(10e6, 11e6, 12e6))
    assert said(timed)["throughput"] == "the median step takes 11.0 ms, 90.9 steps/s (3 steps without a profiler)"
    assert "before" not in said(timed, demo[1])["throughput"]  # whose steps a profiler slowed


def test_graph_breaks_are_stated_as_a_change_with_the_first_place() -> None:
    broken, whole = read(LOGS / "item_break.text.log"), read(LOGS / "dynamic_shape.text.log")
    assert said(broken, whole)["graph"] == "graph_breaks 0 -> 1, first at benchmarks/compiling/programs.py:72"
    assert "graph" not in said(broken)


def test_steps_that_stand_out_are_stated_apart_with_their_causes() -> None:
    """One collection of garbage of 38 steps: by itself, and not as what a step takes."""
    lines = said(simulated(3, "gc")[0])
    assert "against p50 681 us: 1 garbage collection" in lines["spikes"]
    assert lines["profiled step"].startswith("the median step takes 681 us")
    assert "spikes" not in said(simulated(3, None)[0])


def test_the_command_prints_the_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "statement", str(DEMO / "gpt_before.json.xz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["attribution", "profiled step"]


def test_a_trace_that_shows_nothing_of_it_is_refused() -> None:
    with pytest.raises(UsageError, match="no steps"):
        statement_page(Trace("empty", {}))
