"""Steps of programs that hand nothing over: found by the agent in the program, or whole runs."""

import atexit
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.capture.conftest import torch_python  # noqa: F401 - a fixture
from tests.verify.runs_by_hand import pairs, row

from timesink.capture.agent.marks import StepMark
from timesink.capture.agent.recording import Agent, StepTimer
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.cli.app import run as timesink
from timesink.errors import UsageError
from timesink.records import replace
from timesink.verify.environment import Command, run
from timesink.verify.experiment import ExperimentPlan, judge, to_result, verify
from timesink.verify.outcomes import Outcome, Reason, RunRow
from timesink.verify.runs import FoundSteps, WholeRuns

# The README's case: training scripts that know nothing of timesink. Input that is made in the loop, and made before it.
SLOW = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Text(Dataset):
    def __len__(self): return 320
    def __getitem__(self, index): time.sleep(WAIT); return torch.full((8,), float(index))

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in DataLoader(Text(), batch_size=8):
    optimizer.zero_grad(); loss = model(batch).square().mean(); loss.backward(); optimizer.step()
print(f"loss {loss.item() > 0}")
"""


def timer(folder: Path, most: int | None = None) -> StepTimer:
    schedule = StepSchedule(settle=1, timed=0, warm_up=0, active=most or 1)
    return StepTimer(AgentPlan(Mode.STEPS, str(folder), schedule, stop=most is not None))


def found(folder: Path) -> dict[str, object]:
    (file,) = folder.glob("found-*.json")
    facts: dict[str, object] = json.loads(file.read_text())
    return facts


@pytest.mark.parametrize(
    ("backend", "is_member", "left"),
    [("gloo", True, 1), ("gloo", False, 0), ("nccl", True, 0), ("mpi", True, 0), (None, False, 0)],
)
def test_a_program_that_is_ended_leaves_its_group_only_where_no_rank_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str | None, is_member: bool, left: int
) -> None:
    """Gloo's threads abort a process that ends in a group; after the program's own endings, which may leave it too."""
    leavings, endings = list[str](), list[Callable[[], None]]()
    group = SimpleNamespace(
        is_available=lambda: backend is not None,
        is_initialized=lambda: is_member,
        get_backend=lambda: backend,
        get_rank=lambda: 0,
        get_world_size=lambda: 2,
        destroy_process_group=lambda: leavings.append("left"),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    monkeypatch.setattr(atexit, "register", endings.append)
    agent, optimizer = timer(tmp_path, most=2), object()
    with pytest.raises(SystemExit, match="0"):
        for _ in range(9):
            agent.optimizer_stepped(optimizer)
    assert leavings == []  # its own endings come first
    for ending in endings:
        ending()
    assert len(leavings) == left


def test_the_best_mark_of_steps_counts_and_a_better_one_starts_anew(tmp_path: Path) -> None:
    agent, first, second = timer(tmp_path), object(), object()
    for _ in range(9):
        agent.batch_handed_out(first)
        agent.batch_handed_out(second)
    assert agent.source is StepMark.LOADER
    for _ in range(5):
        agent.optimizer_stepped(first)
        agent.optimizer_stepped(second)
        agent.step_ended(StepMark.FORWARD)
    agent.write()
    facts = found(tmp_path)
    assert (facts["mark"], facts["rank"], len(facts["steps_ms"])) == ("optimizer", 0, 4)  # type: ignore[arg-type]


def test_a_program_is_ended_after_so_many_steps_but_not_by_what_may_precede_the_training(tmp_path: Path) -> None:
    agent = timer(tmp_path, most=3)
    agent.evidence.optimizer_made()
    for _ in range(10):
        agent.step_ended(StepMark.LOADER)
        agent.step_ended(StepMark.FORWARD)
    with pytest.raises(SystemExit) as ended:
        for _ in range(10):
            agent.step_ended(StepMark.OPTIMIZER)
    assert ended.value.code == 0
    assert len(found(tmp_path)["steps_ms"]) == 3  # type: ignore[arg-type]


def test_a_program_that_only_evaluates_shows_its_steps_though_it_has_an_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("timesink.capture.agent.marks.time.monotonic", lambda: now[0])
    agent = Agent(AgentPlan(Mode.TIME, str(tmp_path), StepSchedule(settle=1, timed=2, warm_up=0, active=1), stop=False))
    agent.evidence.optimizer_made()
    for second in range(80):
        now[0] = 100.0 + second
        assert (agent.source is not None) == (second > 60)
        assert agent.evidence.module_called(trains=False)
        agent.step_ended(StepMark.FORWARD)
    assert agent.finished


def test_a_step_inside_a_cuda_graph_is_no_step_until_the_graph_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, capturing = timer(tmp_path), [True]
    monkeypatch.setattr("timesink.capture.agent.recording.is_capturing", lambda: capturing[0])
    agent.step_ended(StepMark.FORWARD)
    agent.optimizer_stepped(object())
    assert (agent.source, agent.captured) == (None, StepMark.OPTIMIZER)
    capturing[0] = False
    for _ in range(3):
        agent.step_ended(agent.captured)
    agent.write()
    assert len(found(tmp_path)["steps_ms"]) == 2  # type: ignore[arg-type]


def test_a_capture_settles_and_times_anew_once_steps_are_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = AgentPlan(Mode.TIME, str(tmp_path), StepSchedule(settle=2, timed=3, warm_up=0, active=1), stop=False)
    agent, optimizer, capturing = Agent(plan), object(), [False]
    monkeypatch.setattr("timesink.capture.agent.recording.is_capturing", lambda: capturing[0])
    for _ in range(4):
        agent.optimizer_stepped(optimizer)
    capturing[0] = True
    agent.optimizer_stepped(optimizer)
    capturing[0] = False
    for replay in range(5):
        assert not agent.finished, replay
        agent.optimizer_stepped(optimizer)
    assert agent.finished
    (told,) = (tmp_path / "ranks").glob("*.json")
    assert len(json.loads(told.read_text())["unprofiled"]["steps_ms"]) == 3


def collected(folder: Path, source: FoundSteps, program: str = "pass") -> object:
    command = Command((sys.executable, "-c", program))
    return source.collect(folder, run(command, folder, extra=source.environment(folder, {}), timeout_s=60))


def test_of_several_processes_those_with_the_best_mark_count_and_of_ranks_the_slowest(tmp_path: Path) -> None:
    for name, facts in {
        "1": {"rank": 0, "mark": "loader", "steps_ms": [1.0] * 9},
        "2": {"rank": 0, "mark": "optimizer", "steps_ms": [2.0, 5.0]},
        "3": {"rank": 1, "mark": "optimizer", "steps_ms": [3.0, 4.0, 9.0]},
        "4": {"rank": 1, "mark": "optimizer", "steps_ms": [8.0]},
    }.items():
        (tmp_path / f"found-{name}.json").write_text(json.dumps(facts))
    steps = FoundSteps()._found(tmp_path)
    assert steps is not None
    assert (steps.mark, steps.seconds) == ("optimizer", (0.003, 0.005))


def test_first_contact_defect_13_a_program_without_steps_is_told_of_whole_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no step was seen") as caught:
        collected(tmp_path, FoundSteps())
    assert "--whole" in caught.value.remedy


def test_the_variable_of_the_command_itself_is_kept_beside_the_agents(tmp_path: Path) -> None:
    given = FoundSteps().environment(tmp_path, {"PYTHONPATH": "/mine"})
    assert given["PYTHONPATH"].endswith("inject:/mine")


def test_whole_runs_are_timed_from_outside_and_their_result_is_read(tmp_path: Path) -> None:
    import re

    program = "import time; time.sleep(0.05); print('loss 7')"
    steps = collected(tmp_path, WholeRuns(re.compile(r"loss (\d+)")), program)  # type: ignore[arg-type]
    assert (steps.mark, steps.check, len(steps.seconds)) == ("whole", "7", 1)  # type: ignore[attr-defined]
    assert steps.seconds[0] >= 0.05  # type: ignore[attr-defined]


def launch(ratio: float, **after: object) -> Callable[[str, int], RunRow]:
    noise = (0.999, 1.0, 1.001, 1.0, 0.999, 1.001)

    def made(side: str, number: int) -> RunRow:
        is_after = side == "after"
        plain = row(0.01 * noise[number % 6] * (ratio if is_after else 1), side, number, mark="optimizer")
        return replace(plain, **(after if is_after else {}))  # type: ignore[arg-type]

    return made


def test_sides_that_make_other_numbers_of_steps_do_other_work() -> None:
    done = verify(ExperimentPlan(), launch(0.5, steps=100, mark="loader"))
    assert (done.verdict.outcome, done.verdict.reason) == (Outcome.INVALID, Reason.OTHER_WORK)
    assert "at each batch" in done.verdict.explanation
    assert "--whole" in done.verdict.to_resolve
    assert verify(ExperimentPlan(), launch(0.5, steps=190)).verdict.outcome is Outcome.FASTER


def test_how_steps_were_found_is_said() -> None:
    assert (
        verify(ExperimentPlan(), launch(0.5)).notes[0].startswith("steps found in a run: before 200, at each step of")
    )


def test_whole_runs_have_one_row_and_no_word_of_steps() -> None:
    done = verify(ExperimentPlan(), launch(0.5, mark="whole", steps=1))
    assert done.verdict.outcome is Outcome.INVALID  # one side whole, the other not
    both = verify(ExperimentPlan(), lambda side, number: replace(launch(0.5)(side, number), mark="whole", steps=1))
    result = to_result(both, "")
    assert [one.name for one in result.rows] == ["run time"]
    assert "set-up" in result.notes[0]
    assert not any("warm-up" in note for note in both.verdict.notes)


def spiked(*ratios: float) -> list[tuple[RunRow, RunRow]]:
    """Pairs whose means are noise of slow steps on both sides, and whose medians differ by 5 %."""
    return [
        (
            replace(before, median_s=0.009 * (1 + index * 1e-4)),
            replace(after, median_s=0.00945 * (1 + index % 3 * 1e-4), mean_s=after.mean_s * 1.05),
        )
        for index, (before, after) in enumerate(pairs(*ratios))
    ]


def test_first_contact_defect_13_slow_steps_of_both_sides_are_looked_past() -> None:
    noisy = spiked(1.09, 0.95, 1.2, 1.02, 0.9, 1.15, 0.93, 1.1, 0.94, 1.04)
    mean = judge(noisy, ExperimentPlan())
    assert mean.outcome is Outcome.SLOWER
    assert mean.effect is not None
    assert mean.effect.ratio == pytest.approx(1.05, rel=0.01)
    assert "the median step; slow steps add 11 % before and 14 % after" in mean.notes[0]
    assert judge(noisy[:6], ExperimentPlan()).reason is Reason.TOO_NOISY
    assert judge(noisy[:6], ExperimentPlan(statistic="median")).outcome is Outcome.SLOWER


def test_the_statistic_asked_for_is_gated_and_the_other_shown() -> None:
    plan = ExperimentPlan(statistic="median")
    result = to_result(verify(plan, launch(0.9)), "")
    assert [(one.name, one.gated) for one in result.rows] == [("step time (median)", True), ("step time (mean)", False)]


@pytest.mark.parametrize(
    ("ratio", "asked", "short"), [(0.8, 1.1, False), (0.95, 1.1, True), (1.0, 1.1, True), (1.2, 1.1, True)]
)
def test_a_speed_up_that_is_asked_for_fails_the_gate_unless_proven(ratio: float, asked: float, short: bool) -> None:
    from timesink.render.gate import headline, mark

    done = verify(ExperimentPlan(least_speed_up=asked), launch(ratio))
    assert len(done.pairs) == 6  # proven or disproven at the first look
    result = to_result(done, "")
    assert (done.verdict.falls_short, result.exit_code()) == (short, int(short))
    assert f"speed-up of 1.1x {'not proven' if short else 'proven'}" in headline(result)
    assert (mark(result) == "✗") is short


def test_pairs_are_made_until_the_speed_up_is_proven_or_missed() -> None:
    noise = iter(np.random.default_rng(1).normal(1, 0.08, 120))
    done = verify(
        ExperimentPlan(least_speed_up=1.3),
        lambda side, number: row(0.01 * next(noise) * (0.77 if side == "after" else 1), side, number),
    )
    assert done.verdict.outcome is Outcome.FASTER
    assert len(done.pairs) == 30  # faster at once, and 1.3x stays open


def test_what_forbids_a_verdict_proves_no_speed_up() -> None:
    unsteady = [(before, replace(after, settled=False)) for before, after in pairs(*[0.5] * 6)]
    assert judge(unsteady, ExperimentPlan(least_speed_up=1.1)).falls_short


@pytest.mark.parametrize(
    "arguments",
    [
        ["--whole", "--step-pattern", "(?P<ms>1)"], ["--whole", "--steps", "5"], ["--at-least", "0.9"],
        ["--at-least", "x"], ["--steps-json", "f", "--check-pattern", "x"], ["--statistic", "mode"],
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert timesink(["verify", "--before", "true", "--after", "true", *arguments]) == 2
    assert timesink(["gate", "--at-least", "1.1", "--", "true"]) == 2


@pytest.mark.slow
def test_first_contact_defect_13_an_unmodified_training_script_is_verified(
    torch_python: str,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides = []
    for name, wait in (("old", "0.004"), ("new", "0")):
        (tmp_path / f"{name}.py").write_text(SLOW.replace("WAIT", wait), encoding="utf-8")
        sides += [f"--{'before' if name == 'old' else 'after'}", f"{torch_python} {tmp_path / name}.py"]
    plan = ["--pairs", "2", "--warm-up-pairs", "0", "--statistic", "median", "--check-pattern", r"loss (\w+)"]
    timesink(["verify", *sides, *plan, "--steps", "20", "-f", "json"])
    told = json.loads(capsys.readouterr().out)
    assert [(one["steps"], one["mark"], one["check"]) for one in told["runs"]] == [(20, "optimizer", None)] * 4
    times = {one["side"]: one["median_s"] for one in told["runs"]}
    assert times["before"] > 0.032  # eight samples that sleep; what a loaded machine adds is no matter
    assert times["after"] < times["before"]


def test_reports_for_continuous_integration_fail_and_say_what_is_missing() -> None:
    from timesink.render.gate import ci

    result = to_result(verify(ExperimentPlan(least_speed_up=1.1), launch(0.95)), "train")
    assert "::error" in ci.workflow_commands(result)
    for report in (ci.workflow_commands(result), ci.junit_xml(result)):
        assert "speed-up of 1.1x not proven (1.05x to 1.06x)" in report
    assert '<failure message="speed-up' in ci.junit_xml(result)
