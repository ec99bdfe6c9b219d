"""The start of a program whose truth it measures itself, as the agent in it told it; and what is read of it."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from timesink.capture.agent.recording import Agent
from timesink.capture.agent.start_up import IMPORTS, INTERPRETER, PROGRAM, UNSEEN, StartUpWatch
from timesink.capture.recorded_run import RecordedRun, start_up_of
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.running import agent_environment
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.measures.timeline.start_up_parts import NOTHING, start_up_parts
from timesink.measures.timeline.start_up_parts import UNSEEN as UNSEEN_OF_MEASURE
from timesink.model.trace import Trace
from timesink.verify.compare import compare_captures
from timesink.views.summary import summary_page

SLOW = "import time\ntime.sleep(0.8)\n"
BATCHES = "import time\ndef batch():\n    time.sleep(0.6)\n"
PROGRAM_TEXT = """
import json, sys, time
times = [time.perf_counter()]
import slow_library
times.append(time.perf_counter())
import datasets
def prepare():
    end = time.perf_counter() + 0.8
    while time.perf_counter() < end:
        pass
prepare()
times.append(time.perf_counter())
import own_module
times.append(time.perf_counter())
datasets.batch()
times.append(time.perf_counter())
import timesink
for _ in range(30):
    timesink.step()
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


@pytest.fixture
def started(tmp_path: Path) -> tuple[list[float], dict[str, object]]:
    """What the program says of its imports, its own code and its first batch, in seconds; and the facts of its rank."""
    for name, text in (("slow_library", SLOW), ("datasets", BATCHES)):
        package = tmp_path / "site-packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
    (tmp_path / "own_module.py").write_text(SLOW)
    script = tmp_path / "train.py"
    script.write_text(PROGRAM_TEXT)
    out = tmp_path / "out"
    out.mkdir()
    plan = AgentPlan(Mode.RANGE, str(out), StepSchedule(settle=2, timed=1, warm_up=1, active=2), stop=False)
    environment = agent_environment(plan)
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'site-packages'}"
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), json.loads((out / "ranks" / "0.json").read_text())


@pytest.mark.slow
def test_a_start_is_told_as_the_program_measured_it(started: tuple[list[float], dict[str, object]]) -> None:
    """Each part within a tenth and 0.2 s, imports by package, own code by its place; 95 % of all is owned."""
    (imports_s, own_s, module_s, batch_s), facts = started
    (found,) = start_up_parts(RecordedRun(start_up=start_up_of({"ranks": [facts]})).told_to(Trace("a start", {})))
    spent: Counter[str] = Counter()
    for kind, _, time_ns in found.parts:
        spent[kind] += time_ns
    by_detail = {(kind, detail): time_ns / 1e9 for kind, detail, time_ns in found.parts}
    assert by_detail[IMPORTS, "slow_library"] == pytest.approx(imports_s, rel=0.1, abs=0.2)
    assert by_detail[PROGRAM, "train.py: prepare"] == pytest.approx(own_s, rel=0.1, abs=0.2)
    assert by_detail[PROGRAM, "own_module.py: <module>"] == pytest.approx(module_s, rel=0.1, abs=0.2)
    assert spent["first batches"] / 1e9 == pytest.approx(batch_s, rel=0.1, abs=0.2)
    assert spent[INTERPRETER] > 0
    assert sum(spent.values()) == found.span_ns
    assert found.owned_ratio >= 0.95
    assert found.span_ns / 1e9 > imports_s + own_s + batch_s


def test_a_redacted_manifest_keeps_the_figures() -> None:
    """Under a key that says what they are; names of the program's own may go."""
    parts = [["imports", "torch", 12_345_678_901], ["the model built", "", 987_654_321]]
    manifest = {"ranks": [{"rank": 0, "start_up_ns": parts}]}
    kept = start_up_of(Cleaner().value(manifest))
    assert [row[1:] for row in kept] == [tuple(part) for part in parts]


def test_an_agent_that_a_running_program_makes_knows_no_start(tmp_path: Path) -> None:
    agent = Agent(AgentPlan(Mode.RANGE, str(tmp_path), StepSchedule(1, 1, 0, 1), stop=False))
    for _ in range(4):
        agent.explicit_step()
    assert agent.facts["phase"] == "done"
    assert "start_up_ns" not in agent.facts


def test_another_process_than_the_one_that_was_watched_tells_nothing() -> None:
    watch = StartUpWatch()
    watch._process += 1
    assert watch.end() == []
    watch._process -= 1
    parts = watch.end()
    assert sum(time_ns for *_, time_ns in parts) > 0
    assert watch.end() == parts  # which nothing is added to any more


def test_a_stretch_without_a_look_is_owned_where_its_two_ends_agree() -> None:
    watch = StartUpWatch()
    watch._is_over.wait(0.02)
    for seen, longer in ((("a", ""), UNSEEN), (("a", "x"), "a"), (("b", ""), UNSEEN)):
        before = dict(watch._spent_ns)
        watch._looked_ns -= 10**12
        watch._look(seen)
        grown = max(watch._spent_ns, key=lambda key: watch._spent_ns[key] - before.get(key, 0))
        assert grown[0] == longer
        watch._before = ("a", "") if seen[0] == "a" else seen
    watch.end()


BAD = ([["k", "d", 0]], [["k", "d", -1]], [["", "d", 5]], [["k", "d", 1.5]], [["k", "d"]], [[1, "d", 5]], "x", None, 7)


@pytest.mark.parametrize("parts", BAD)
def test_what_is_of_another_form_counts_as_not_said(parts: object) -> None:
    good = ["imports", "torch", 5]
    assert start_up_of({"ranks": [{"rank": 0, "start_up_ns": parts}]}) == ()
    if isinstance(parts, list):
        assert start_up_of({"ranks": [{"rank": 0, "start_up_ns": [*parts, good]}]}) == ((0, "imports", "torch", 5),)


def test_a_first_run_is_compared_with_a_second_one() -> None:
    """The slowest rank of each; parts sum to the change, and the summary has the same figures."""
    assert UNSEEN_OF_MEASURE == UNSEEN != NOTHING
    first = Trace("a start", {}).with_start_up(
        ((0, IMPORTS, "torch", 5), (1, IMPORTS, "torch", 900), (1, "compilation", "", 70))
    )
    second = Trace("a start", {}).with_start_up(((0, IMPORTS, "torch", 300), (0, "first batches", "", 11)))
    found = {part.name: part.delta_ns for part in compare_captures((first, second)).start_up}
    assert found == {"imports: torch": -600, "compilation": -70, "first batches": 11}
    assert compare_captures((first, Trace("a start", {}))).start_up == ()
    (sheet,) = [sheet for sheet in summary_page(first, 20).sheets if sheet.key == "start_up"]
    assert [row[-2] for row in sheet.rows] == [5, 900, 70]
