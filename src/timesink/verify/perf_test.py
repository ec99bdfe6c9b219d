"""One performance test: fresh processes of the same test, held against its stored baseline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from timesink import __version__
from timesink.model.record import dataclass, replace
from timesink.untrusted.plain_text import dashed
from timesink.verify import baseline as baselines
from timesink.verify.baseline import updated
from timesink.verify.environment import Environment, environment, short_hash
from timesink.verify.gate import gate_step_time
from timesink.verify.gpu_watch import GpuWatch, visible_devices
from timesink.verify.limits import BASELINE_NEW_RUNS
from timesink.verify.outcomes import GateRow, Reason, RunRow
from timesink.verify.processes import Command
from timesink.verify.runs import SIDES, Launcher, StepsFile

_NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class PerfTest:
    """A test by its id, the command that runs it once in a fresh process, and the folder of its baseline."""

    test_id: str
    command: Command
    root: Path
    threshold_ratio: float
    here: Environment
    timeout_s: float = 600.0

    @property
    def suite(self) -> str:
        """The test id as a file name; a hash keeps long or odd ids apart."""
        plain = dashed(self.test_id, "_.-").strip("-.")[-_NAME_CHARACTERS:].strip("-.")
        return f"{plain or 'test'}-{short_hash(self.test_id)[:6]}"

    @property
    def work(self) -> str:
        """The same test is the same work; a changed test updates its baseline on purpose."""
        return short_hash(["pytest", self.test_id])

    def compare(self) -> tuple[GateRow, tuple[RunRow, ...]]:
        """Runs of now against the baseline."""
        stored = baselines.find(self.root, self.suite, self.here, self.work)
        if isinstance(stored, baselines.Unusable):
            new = stored.reason is Reason.MISSING_BASELINE
            option = "--gpuperf-update-new-only" if new else "--gpuperf-update --gpuperf-reason '...'"
            stored = replace(stored, to_resolve=f"run pytest {option} on the trunk and commit the file")
        with self._fresh_runs() as make_runs:
            row, runs = gate_step_time(
                stored,
                lambda: make_runs(int(BASELINE_NEW_RUNS.default)),
                datetime.now(UTC).date(),
                self.threshold_ratio,
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
        with self._fresh_runs() as make_runs:
            rows = make_runs(runs)
        now = datetime.now(UTC)
        update = (now.date().isoformat(), reason, "")
        baselines.save(path, updated(start, baselines.summaries(rows, now, ""), {}, update), __version__)
        return path

    @contextmanager
    def _fresh_runs(self) -> Iterator[Callable[[int], list[RunRow]]]:
        """A function that makes so many runs, each in a fresh process. The first run of all is discarded."""
        with tempfile.TemporaryDirectory(prefix="timesink-") as name:
            folder = Path(name)
            with GpuWatch(folder, visible_devices([self.command])) as watch:
                commands = dict.fromkeys(SIDES, self.command)
                launcher = Launcher(commands, StepsFile(), folder, watch, self.timeout_s)
                made: list[RunRow] = []

                def make_runs(wanted: int) -> list[RunRow]:
                    for _ in range(wanted if made else wanted + 1):
                        made.append(launcher.launch("after", len(made) + 1))
                    return made[-wanted:]

                yield make_runs


def environment_of(command: Command, extra: Mapping[str, str]) -> Environment:
    """Where the tests run, with facts that a project adds by hook."""
    here = environment(command)
    return Environment({**here.hard, **extra})
