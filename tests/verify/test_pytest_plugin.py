"""The plugin in a project of its own: baselines, failures, options; timed runs are child processes of pytest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """\
import os, random, time, pytest

now_ns = 0
with open("processes", "a+") as processes:  # the n-th process draws the n-th noise, in every run of this test
    processes.write("x")
    noise = random.Random(processes.tell())
pause_ns = float(os.environ.get("PAUSE_MS", "2")) * 1e6 * (1 + noise.gauss(0, 0.002))
time.perf_counter_ns = lambda: int(now_ns)  # a clock that only work moves: no verdict depends on this machine's load

def work():
    global now_ns
    now_ns += pause_ns * (1 + noise.gauss(0, 0.01))

@pytest.mark.gpu_perf(gpu=False, max_regression="5%", steps=60)
def test_called(gpu_perf):
    gpu_perf(work)

@pytest.mark.gpu_perf(gpu=False)
def test_block(gpu_perf):
    with gpu_perf as step:
        for _ in range(60):
            work()
            step()

def test_needs_a_gpu(gpu_perf):
    gpu_perf(int)

def test_plain():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_perf.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\ngpuperf_runs = 8\n")
    return tmp_path


def run_pytest(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTEST_", "TIMESINK_")) and k != "CUDA_VISIBLE_DEVICES"
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "timesink.pytest_plugin", "-p", "no:cacheprovider", *arguments],
        cwd=project, capture_output=True, text=True, check=False, timeout=300,
        env={**hidden, "CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
    )  # fmt: skip


@pytest.mark.slow
def test_baselines_are_made_on_request_kept_and_compared_with(project: Path) -> None:
    missing = run_pytest(project, "-k", "called")
    assert (missing.returncode, "missing baseline" in missing.stdout) == (1, True), missing.stdout
    made = run_pytest(project, "-k", "called", "--gpuperf-update-new-only", "--gpuperf-reason", "first")
    assert (made.returncode, made.stdout.count("baseline written")) == (0, 1), made.stdout
    files = sorted(project.glob(".timesink/baselines/*/*.json"))
    assert [len(json.loads(file.read_text())["runs"]) for file in files] == [8]
    assert json.loads(files[0].read_text())["updates"][0]["reason"] == "first"
    same = run_pytest(project, "-k", "called", "--gpuperf-json", "out.json")
    assert same.returncode == 0, same.stdout
    assert json.loads((project / "out.json").read_text())["metrics"][0]["name"] == "test_perf.py::test_called"
    slow = run_pytest(project, "-k", "called", PAUSE_MS="2.4")
    assert (slow.returncode, "slower: +" in slow.stdout) == (1, True), slow.stdout


@pytest.mark.parametrize("name", ["called", "block"])
def test_a_timed_child_hands_over_sixty_steps(project: Path, name: str) -> None:
    steps = project / "steps.jsonl"
    done = run_pytest(project, "-k", name, TIMESINK_GPUPERF_CHILD="1", TIMESINK_STEPS=str(steps))
    seconds = [json.loads(line)["seconds"] for line in steps.read_text().splitlines()]
    assert (done.returncode, len(seconds), 0.0018 < min(seconds) < 0.0022) == (0, 60, True), done.stdout


def test_without_a_gpu_tests_that_need_one_are_skipped_not_failed(project: Path) -> None:
    done = run_pytest(project, "-k", "needs_a_gpu", "-rs")
    assert (done.returncode, "no GPU" in done.stdout) == (0, True), done.stdout


def test_only_skip_and_disable(project: Path) -> None:
    assert "1 deselected" in run_pytest(project, "--gpuperf-only", "--gpuperf-disable").stdout
    assert "1 passed, 3 skipped" in run_pytest(project, "--gpuperf-skip").stdout
    assert "4 passed" in run_pytest(project, "--gpuperf-disable").stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["mean:3%", "step_time", "step_time:x"])
def test_a_wrong_threshold_is_a_usage_error(project: Path, option: str) -> None:
    done = run_pytest(project, "-k", "called", "--gpuperf-compare-fail", option)
    assert (done.returncode, "UsageError" in done.stdout) == (1, True), done.stdout


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    heavy = ["numpy", "scipy", "polars", "torch", "rich", "timesink.verify"]
    program = f"import timesink.pytest_plugin, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
