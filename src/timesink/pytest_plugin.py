"""pytest plugin: the fixture `gpu_perf` times a test in fresh processes and fails it where it became slower.

In the test, ``gpu_perf(function)`` times calls of a function; ``with gpu_perf as step: ...`` times the code between
calls of ``step()``. The parent process runs the test once as a plain test; the timed runs are child processes that run
this one test alone. Nothing heavy is imported until the fixture is used.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from timesink.verify.gate import PerfTest
    from timesink.verify.outcomes import GateRow, RunRow

CHILD = "TIMESINK_GPUPERF_CHILD"
_INI = {
    "gpuperf_baseline": "folder that holds the baselines [.timesink]",
    "gpuperf_max_regression": "slow-down that fails a test [2%]",
    "gpuperf_steps": "calls timed per run [120]",
    "gpuperf_runs": "runs added by an update [10]",
}
_results: pytest.StashKey[list[tuple[GateRow, tuple[RunRow, ...]]]] = pytest.StashKey()
_updated: pytest.StashKey[list[str]] = pytest.StashKey()


class GpuPerfHooks:
    """Hooks that a project's conftest.py may implement."""

    @pytest.hookspec
    def pytest_gpuperf_update_machine_info(self, config: pytest.Config, machine_info: dict[str, str]) -> None:
        """Add hard facts of the machine (clock lock, cooling): runs compare only where all facts agree."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks above."""
    pluginmanager.add_hookspecs(GpuPerfHooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """All options begin with --gpuperf."""
    group = parser.getgroup("gpuperf", "GPU performance (timesink)")
    group.addoption("--gpuperf-baseline", metavar="DIR", help="folder that holds the baselines")
    group.addoption("--gpuperf-update", action="store_true", help="add runs to the baselines instead of comparing")
    group.addoption("--gpuperf-update-new-only", action="store_true", help="make the baselines that are missing")
    group.addoption("--gpuperf-reason", metavar="TEXT", default="", help="why the baselines change; kept in them")
    group.addoption("--gpuperf-compare-fail", metavar="step_time:3%", help="slow-down that fails, whatever markers say")
    group.addoption("--gpuperf-json", metavar="FILE", help="write all comparisons as JSON")
    group.addoption("--gpuperf-strict", action="store_true", help="fail where nothing can be said")
    group.addoption("--gpuperf-disable", action="store_true", help="run each test once, time nothing")
    group.addoption("--gpuperf-only", action="store_true", help="run only tests that use gpu_perf")
    group.addoption("--gpuperf-skip", action="store_true", help="skip tests that use gpu_perf")
    for name, text in _INI.items():
        parser.addini(name, text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the result lists."""
    line = "gpu_perf(metric='step_time', max_regression='3%', steps=120, gpu=True): how gpu_perf judges this test"
    config.addinivalue_line("markers", line)
    config.stash[_results], config.stash[_updated] = [], []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """--gpuperf-only and --gpuperf-skip."""
    perf = [item for item in items if "gpu_perf" in getattr(item, "fixturenames", ())]
    if config.getoption("gpuperf_skip"):
        for item in perf:
            item.add_marker(pytest.mark.skip(reason="--gpuperf-skip"))
    if config.getoption("gpuperf_only"):
        config.hook.pytest_deselected(items=[item for item in items if item not in perf])
        items[:] = perf


@pytest.fixture
def gpu_perf(request: pytest.FixtureRequest) -> Iterator[GpuPerf]:
    """Time this test and hold it against its baseline: call it with a function, or use it as a context manager."""
    perf = GpuPerf(request)
    yield perf
    if not perf.used:
        pytest.fail("the fixture gpu_perf was asked for and not used", pytrace=False)


class GpuPerf:
    """What the fixture hands to the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.used = False
        self._request = request
        self._config = request.config
        marker = request.node.get_closest_marker("gpu_perf")
        self._marked: dict[str, Any] = dict(marker.kwargs) if marker else {}
        known = {"metric", "max_regression", "steps", "gpu", "runs"}
        if unknown := set(self._marked) - known:
            raise pytest.UsageError(f"gpu_perf takes {', '.join(sorted(known))}, not {', '.join(sorted(unknown))}")
        if self._marked.get("metric", "step_time") != "step_time":
            raise pytest.UsageError("gpu_perf judges the metric step_time; gate counters with `timesink gate`")

    def __call__(self, body: Callable[..., object], *arguments: object, **named: object) -> None:
        """Time `body(*arguments, **named)`, one call per step."""
        self.used = True
        if os.environ.get(CHILD):
            from timesink.capture.in_program import time_steps

            time_steps(lambda: body(*arguments, **named), int(self._setting("steps", "120")))
            return
        body(*arguments, **named)
        self._judge()

    def __enter__(self) -> Callable[[], None]:
        """The function to call at the end of every step."""
        self.used = True
        from timesink.capture.in_program import gpu_wait, step

        wait = gpu_wait()
        step(wait=wait)
        return lambda: step(wait=wait)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not os.environ.get(CHILD):
            self._judge()

    def _judge(self) -> None:
        """In the parent: make the timed runs, compare or update, and fail the test where it is slower."""
        test = self._test()
        if test is None:
            return
        options = self._config.option
        if options.gpuperf_update or options.gpuperf_update_new_only:
            runs, reason = int(self._setting("runs", "10")), options.gpuperf_reason or "pytest --gpuperf-update"
            path = test.update(runs, reason, new_only=not options.gpuperf_update)
            if path is not None:
                self._config.stash[_updated].append(str(path))
                return
        row, runs_made = test.compare()
        self._config.stash[_results].append((row, runs_made))
        self._report(row)

    def _test(self) -> PerfTest | None:
        """The performance test, or None where timing is off; skips where there is no GPU."""
        if self._config.getoption("gpuperf_disable"):
            return None
        from timesink.verify.gate import PerfTest, environment_of

        command, facts = self._command(), dict[str, str]()
        self._config.hook.pytest_gpuperf_update_machine_info(config=self._config, machine_info=facts)
        here = environment_of(command, facts)
        if self._marked.get("gpu", True) and here.hard.get("gpu") == "none":
            pytest.skip("no GPU: gpu_perf times nothing")
        if (why := _too_many_workers(here.hard.get("gpu count", "0"))) is not None:
            warnings.warn(pytest.PytestWarning(why), stacklevel=2)
            return None
        root = self._config.getoption("gpuperf_baseline") or self._config.getini("gpuperf_baseline") or ".timesink"
        return PerfTest(self._request.node.nodeid, command, self._config.rootpath / root, self._threshold(), here)

    def _command(self) -> Any:
        """Python running this one test with the same configuration, as a child that hands over its step times."""
        from timesink.verify.environment import Command

        node = self._request.node
        place = str(node.path) + node.nodeid[len(node.nodeid.split("::", 1)[0]) :]
        plugin = [] if self._config.pluginmanager.has_plugin("timesink") else ["-p", "timesink.pytest_plugin"]
        inifile = ["-c", str(self._config.inipath)] if self._config.inipath else []
        argv = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            *plugin,
            *inifile,
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
        ]
        variables = {CHILD: "1"}
        if worker := os.environ.get("PYTEST_XDIST_WORKER", ""):
            variables["CUDA_VISIBLE_DEVICES"] = worker.removeprefix("gw")
        return Command((*argv, "--rootdir", str(self._config.rootpath), place), variables)

    def _setting(self, name: str, default: str) -> str:
        return str(self._marked.get(name) or self._config.getini(f"gpuperf_{name}") or default)

    def _threshold(self) -> float:
        """Option before marker before ini file before 2 %."""
        option = self._config.getoption("gpuperf_compare_fail") or ""
        metric, colon, value = option.partition(":")
        if option and (metric != "step_time" or not colon):
            raise pytest.UsageError(f"--gpuperf-compare-fail {option!r}: write it as step_time:3%")
        text = (value or self._setting("max_regression", "2%")).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise pytest.UsageError(f"{text!r} is not a share: write it as 3%") from None
        return number

    def _report(self, row: GateRow) -> None:
        """Numbers into the test's properties; a failure where slower or invalid, a warning where inconclusive."""
        from timesink.render.gate import sentence, why
        from timesink.verify.outcomes import Outcome

        verdict = row.verdict
        self._request.node.user_properties.append(("gpu_perf.outcome", str(verdict.outcome)))
        if verdict.effect is not None:
            self._request.node.user_properties.append(("gpu_perf.ratio", f"{verdict.effect.ratio:.6g}"))
        text = f"gpu_perf {sentence(row)}" + (f". {why(verdict)}" if why(verdict) else "")
        match verdict.outcome:
            case Outcome.SLOWER:
                pytest.fail(f"{text}\nif this is meant, run pytest --gpuperf-update", pytrace=False)
            case Outcome.INVALID:
                pytest.fail(text, pytrace=False)
            case Outcome.INCONCLUSIVE if self._config.getoption("gpuperf_strict"):
                pytest.fail(text, pytrace=False)
            case Outcome.INCONCLUSIVE:
                warnings.warn(pytest.PytestWarning(text), stacklevel=2)
            case Outcome.FASTER | Outcome.NO_DIFFERENCE:
                pass


def _too_many_workers(gpus: str) -> str | None:
    """Why timing is off under pytest-xdist: workers that share a GPU disturb each other."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if workers > int(gpus):
        return f"gpu_perf is off: {workers} pytest workers share {gpus} GPUs"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line per comparison and per baseline written; the JSON file."""
    results, updated = config.stash[_results], config.stash[_updated]
    if not results and not updated:
        return
    from timesink.model.presentable import Origin
    from timesink.render import Format, Style, written
    from timesink.render.gate import MARKS, sentence
    from timesink.untrusted import scrub_sentence
    from timesink.untrusted.whole_file import write_whole
    from timesink.verify.outcomes import GateResult

    terminalreporter.section("gpu_perf")
    for row, _ in results:
        terminalreporter.line(scrub_sentence(f"{MARKS[row.verdict.outcome]} {row.name}: {sentence(row)}"))
    for path in updated:
        terminalreporter.line(f"baseline written: {path}")
    target = config.getoption("gpuperf_json")
    if target:
        made = tuple(run for _, runs in results for run in runs)
        result = GateResult("pytest", "stored baseline", tuple(row for row, _ in results), runs=made)
        write_whole(Path(target), written(result, Format.JSON, Style(origin=Origin("pytest"))))
