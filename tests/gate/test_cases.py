"""Minimal inputs of faults that headlines and plans had: invented rows, each with what is right."""

from pathlib import Path

import pytest
from tests.gate.answers import Answers
from tests.gate.test_gate import ROOT, answers_of_file

from timesink.diagnosis.plan.ladder import plan


@pytest.fixture
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> Answers:
    of = answers_of_file(ROOT / "tests" / "data" / "cases" / request.param, tmp_path)
    assert of is not None
    return of


@pytest.mark.parametrize("answers", ["nccl_slow.sqlite.xz"], indirect=True)
def test_a_bound_of_a_fifth_of_the_step_is_the_headline(answers: Answers) -> None:
    """Kernels of 2 ms take 6 ms beside all-reduce."""
    cause, _, saved = answers.verdict.partition(" A fix saves at most ")
    assert cause.startswith("1 kernel takes 200 % longer beside communication on rank 0, which costs 192 ms of the ")
    assert cause.endswith(" (19.0 %).")
    assert saved.startswith("192 ms")


@pytest.mark.parametrize("answers", ["no_cuda_calls.sqlite.xz"], indirect=True)
def test_an_export_without_calls_has_a_plan_and_a_report(answers: Answers) -> None:
    assert answers.plan.startswith("plan: 1 change")
    assert answers.report.lower().startswith("<!doctype html>")


@pytest.mark.parametrize("answers", ["nccl_slow.sqlite.xz", "no_cuda_calls.sqlite.xz"], indirect=True)
def test_what_needs_another_kind_of_capture_is_not_applicable(answers: Answers) -> None:
    """Undecided are those that the file's own tables leave open, and no other."""
    counted = answers.screen.partition(" n/a · ")[2]
    left_open = [one for one in answers.json["undecided"] if not one["why"].startswith("the trace has no table")]
    assert int(counted.partition(" undecided")[0]) == len(left_open) < len(answers.json["undecided"])


@pytest.mark.parametrize("answers", ["um_faults.sqlite.xz"], indirect=True)
def test_kernels_that_wait_for_pages_are_told_to_prefetch(answers: Answers) -> None:
    """Migrations run in 2.64 of each kernel's 3.00 ms, 2.87 from first to last; it may wait before and behind them."""
    assert "Kernels may also wait for pages, for at most 98.5 % of their time" in answers.verdict
    assert "A fix saves at most 2.93 ms" in answers.verdict
    assert "prefetch_pages" in answers.plan
    assert "remove_sync" not in answers.plan  # the CPU touches these pages between two kernels
    assert "host_python" not in answers.plan  # nobody knows yet what the CPU does there
    assert "Most of it: thread 4242" in answers.doors["-v"]


@pytest.mark.parametrize("answers", ["same_data_each_step.sqlite.xz"], indirect=True)
def test_data_that_goes_to_and_fro_each_step_stays_on_the_device(answers: Answers) -> None:
    """Two arrays of 512 MB go both ways around each kernel of 21 ms."""
    assert "round-trip copies and their waits take 525 ms" in answers.verdict
    assert "keep_on_device" in answers.plan
    assert "graph" not in answers.plan


@pytest.mark.parametrize(
    ("answers", "busy_ms"),
    [("device_delay.sqlite.xz", 13.26), ("host_after_copy.sqlite.xz", 2.82), ("offload_loop.sqlite.xz", 8.0),
     ("13_one_wait_then_starved_by_host.json.gz", 3.45)],
    indirect=["answers"],
)  # fmt: skip
def test_no_plan_falls_below_what_the_gpu_has_to_run(answers: Answers, busy_ms: float) -> None:
    """A wait and a bound on the same idle time win it once."""
    made = plan(answers.trace, answers.diagnosis)
    assert min((rung.after_ms for rung in made.rungs), default=busy_ms) >= 0.995 * busy_ms


@pytest.mark.parametrize("answers", ["13_one_wait_then_starved_by_host.json.gz"], indirect=True)
def test_a_model_that_one_process_copies_to_all_gpus_is_told_no_cuda_graph(answers: Answers) -> None:
    assert all(words in answers.screen for words in ("Use DistributedDataParallel, one", "process per GPU"))
    assert "one_process_per_gpu" in answers.plan
    assert "graph" not in answers.plan.partition("What each change wins alone")[0].replace("/graph", "")
