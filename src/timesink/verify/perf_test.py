"""One performance test: fresh processes of the same test, held against its stored baseline."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from timesink import __version__
from timesink.verify import baseline as baselines
from timesink.verify.baseline import updated
from timesink.verify.environment import Environment, environment, short_hash
from timesink.verify.gate import gate_step_time
from timesink.verify.gpu_watch import GpuWatch, visible_devices
from timesink.verify.limits import BASELINE_NEW_RUNS
from timesink.verify.outcomes import GateRow, RunRow
from timesink.verify.processes import Command
from timesink.verify.runs import Launcher, StepsFile

_NAME = 60


@dataclass(frozen=True, slots=True)
class PerfTest:
    """A test by its id, the command that runs it once in a fresh process, and where its baseline lies."""

    test_id: str
    command: Command
    root: Path
    threshold_ratio: float
    here: Environment
    timeout_s: float = 600.0

    @property
    def suite(self) -> str:
        """The test id as a file name; a hash keeps long or odd ids apart."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.test_id).strip("-.")[-_NAME:].strip("-.")
        return f"{plain or 'test'}-{short_hash(self.test_id)[:6]}"

    @property
    def work(self) -> str:
        """The same test is the same work; a changed test updates its baseline on purpose."""
        return short_hash(["pytest", self.test_id])

    def compare(self) -> tuple[GateRow, tuple[RunRow, ...]]:
        """Runs of now against the baseline."""
        stored = baselines.find(self.root, self.suite, self.here, self.work)
        with tempfile.TemporaryDirectory(prefix="timesink-") as name:
            launch = self._numbered_runs(Path(name))
            with launch.watch:
                count = int(BASELINE_NEW_RUNS.default)
                row, runs = gate_step_time(
                    stored, lambda: launch.many(count), datetime.now(UTC).date(), self.threshold_ratio
                )
        return replace(row, name=self.test_id), runs

    def update(self, runs: int, reason: str, *, new_only: bool) -> Path | None:
        """Add runs to the baseline; None where one exists and only new ones were asked for."""
        path = baselines.location(self.root, self.suite, self.here)
        if new_only and path.is_file():
            return None
        start = (
            baselines.read(path) if path.is_file() else baselines.Baseline(self.suite, self.here.hard, self.work, ())
        )
        with tempfile.TemporaryDirectory(prefix="timesink-") as name:
            launch = self._numbered_runs(Path(name))
            with launch.watch:
                rows = launch.many(runs)
        now = datetime.now(UTC)
        update = (now.date().isoformat(), reason, "")
        baselines.save(path, updated(start, baselines.summaries(rows, now, ""), {}, update), __version__)
        return path

    def _numbered_runs(self, folder: Path) -> _NumberedRuns:
        watch = GpuWatch(folder, visible_devices([self.command]))
        both = {"before": self.command, "after": self.command}
        return _NumberedRuns(Launcher(both, StepsFile(), folder, watch, self.timeout_s))  # type: ignore[arg-type]


class _NumberedRuns:
    """Numbered runs of one session; the first is discarded."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.watch = launcher.watch
        self._made = 0

    def many(self, count: int) -> list[RunRow]:
        if not self._made:
            self._one()
        return [self._one() for _ in range(count)]

    def _one(self) -> RunRow:
        self._made += 1
        return self._launcher.launch("after", self._made)


def environment_of(command: Command, extra: Mapping[str, str]) -> Environment:
    """Where the tests run, with facts that a project adds by hook."""
    here = environment(command)
    return Environment({**here.hard, **extra})
