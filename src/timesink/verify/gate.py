"""Is this change allowed in? The step time of new runs against a stored baseline: of a program, or of one test.

The same-job A/B (`experiment`) is the better gate where the old build can be run; this one serves where it cannot.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from timesink import __version__
from timesink.records import Record, replace
from timesink.untrusted import dashed
from timesink.verify import LONGEST_RUN_S, limits
from timesink.verify import baseline as baselines
from timesink.verify.baseline import Baseline, Unusable, add_runs, find
from timesink.verify.counters import Counter, gate_counters
from timesink.verify.environment import (
    Command,
    Environment,
    boxes,
    command_differences,
    differences,
    environment,
    not_one_change,
    short_hash,
)  # fmt: skip
from timesink.verify.experiment import ExperimentPlan, Verification, to_result, verify
from timesink.verify.gpu_watch import GpuWatch, visible_devices
from timesink.verify.outcomes import ChangeVerdict, GateResult, GateRow, Outcome, Reason, RunRow, inconclusive, invalid
from timesink.verify.runs import SIDES, FoundSteps, Launcher, Side, StepsFile, StepSource
from timesink.verify.statistics import geometric_mean, interval_verdict, t_interval

_STEP_TIME = "step time (mean)"


def gate_step_time(
    baseline: Baseline | Unusable,
    make_runs: Callable[[], Sequence[RunRow]],
    today: date,
    threshold_ratio: float = limits.STEP_THRESHOLD,
    canary_ratio: float | None = None,
) -> tuple[GateRow, tuple[RunRow, ...]]:
    """The step-time row. `make_runs` makes at least three runs; a slow-down fails only if a second set agrees.

    A baseline past its age without a canary is stale: nothing is run against it.
    """
    if isinstance(baseline, Unusable):
        verdict = invalid(threshold_ratio, baseline.reason, baseline.explanation, baseline.to_resolve)
        return GateRow(_STEP_TIME, "s", None, None, verdict), ()
    stored = [run.mean for run in baseline.runs]
    before = geometric_mean(stored)
    age = (today - baseline.last_run).days if baseline.last_run else 0
    if age > limits.BASELINE_AGE and canary_ratio is None:
        why = f"the newest baseline run is {age} days old (limit {limits.BASELINE_AGE})"
        stale = inconclusive(threshold_ratio, Reason.STALE_BASELINE, why, "update the baseline, or pass --canary")
        return GateRow(_STEP_TIME, "s", before, None, stale), ()
    rows = list(make_runs())
    verdict = _judge_runs(stored, rows, threshold_ratio, canary_ratio or 1.0)
    if verdict.outcome is Outcome.SLOWER:
        again = list(make_runs())
        second = _judge_runs(stored, again, threshold_ratio, canary_ratio or 1.0)
        rows += again
        if second.outcome is not Outcome.SLOWER:
            why = f"slower in the first {len(rows) - len(again)} runs, {second.label} in the next {len(again)}"
            to_resolve = "compare with the old build in the same job"
            verdict = inconclusive(threshold_ratio, Reason.UNCONFIRMED, why, to_resolve)
    return GateRow(_STEP_TIME, "s", before, geometric_mean([row.mean_s for row in rows]), verdict), tuple(rows)


def against_baseline(
    stored: Sequence[float], new: Sequence[float], threshold_ratio: float, canary_ratio: float = 1.0
) -> ChangeVerdict:
    """New run means against stored ones: t prediction interval of the new mean, on the log scale, plus the threshold.

    `canary_ratio` is how much slower a frozen reference program runs today than when the baseline was made; the new
    means are divided by it.
    """
    undecided = partial(inconclusive, threshold_ratio)
    if len(stored) < limits.BASELINE_RUNS:
        why = f"{len(stored)} stored runs of at least {limits.BASELINE_RUNS}"
        return undecided(Reason.INSUFFICIENT_BASELINE, why, "update the baseline with more runs")
    if len(new) < limits.BASELINE_NEW_RUNS:
        why = f"{len(new)} new runs of at least {limits.BASELINE_NEW_RUNS}"
        return undecided(Reason.TOO_FEW_RUNS, why, "make more runs")
    values = np.array([*stored, *new], dtype=np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0) and math.isfinite(canary_ratio) and canary_ratio > 0):
        return undecided(Reason.BAD_VALUES, "a run mean is not a positive number", "check the step source")
    before, after = np.log(stored), np.log(np.asarray(new) / canary_ratio)
    sd = float(before.std(ddof=1))
    error = sd * math.sqrt(1 / len(after) + 1 / len(before))
    interval = t_interval(after.mean() - before.mean(), error, len(before) - 1, limits.BASELINE_LEVEL)
    verdict = interval_verdict(interval, threshold_ratio, limits.BASELINE_LEVEL)
    explanation, to_resolve = f"{len(new)} new runs against {len(stored)} stored", ""
    if verdict.outcome is Outcome.INCONCLUSIVE:
        explanation += "; the prediction interval crosses a threshold"
        to_resolve = "compare with the old build in the same job: timesink verify"
    return replace(verdict, explanation=explanation, to_resolve=to_resolve, run_sd_ratio=sd)


def _judge_runs(
    stored: Sequence[float], rows: Sequence[RunRow], threshold_ratio: float, canary_ratio: float
) -> ChangeVerdict:
    """The verdict of one set of runs, unless the set itself cannot be used."""
    unsettled = sum(not row.settled for row in rows)
    if unsettled > limits.UNSTEADY_RUNS * len(rows):
        why = f"{unsettled} of {len(rows)} runs never settle"
        return inconclusive(threshold_ratio, Reason.NOT_STEADY, why, "time more steps per run")
    if foreign := [name for row in rows for name in row.foreign]:
        why, to_resolve = f"shared with {foreign[0]}", "take the GPU for yourself"
        return inconclusive(threshold_ratio, Reason.FOREIGN_PROCESS, why, to_resolve)
    return against_baseline(stored, [row.mean_s for row in rows], threshold_ratio, canary_ratio)


class StoredGate(Record):
    """A program held against the baseline of its suite in this environment; ratios as the options state them."""

    root: Path
    suite: str
    threshold_ratio: float
    share_tolerance: float
    canary_ratio: float | None

    def run(
        self,
        command: Command,
        workload: str,
        launcher: Launcher,
        measured: Mapping[str, Counter],
        *,
        allowed: Sequence[str],
        progress: Callable[[str], None],
    ) -> GateResult:
        """Make the runs that the baseline calls for and compare the step time and the counters.

        The hard facts of the environment that are `allowed` may differ from the baseline's.
        """
        here = environment(command)
        stored = find(self.root, self.suite, here, workload, allowed, command.argv)
        kept = stored.counters if isinstance(stored, Baseline) else {}
        differing = differences(stored.environment, here.hard) if isinstance(stored, Baseline) else stored.differences
        numbers = count(2)

        def make_runs() -> list[RunRow]:
            rows = []
            for _ in range(limits.BASELINE_NEW_RUNS):
                rows.append(row := launcher.launch("after", next(numbers)))
                progress(f"run {row.number}: {row.mean_s * 1e3:.4g} ms per step")
            return rows

        if isinstance(stored, Baseline):
            progress(f"one run to warm up, then {limits.BASELINE_NEW_RUNS}; as many again where they are slower")
            launcher.launch("after", 1)  # warms disks and caches; not counted
        today = datetime.now(UTC).date()
        first, runs = gate_step_time(stored, make_runs, today, self.threshold_ratio, self.canary_ratio)
        notes = tuple(filter(None, [launcher.watch.remark]))
        rows = gate_counters(kept, measured, share_tolerance=self.share_tolerance)
        return GateResult(self.suite, "stored baseline", (first, *rows), differing, runs=runs, notes=notes)


_NAME_CHARACTERS = 60


class PerfTest(Record):
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
        stored = find(self.root, self.suite, self.here, self.work)
        if isinstance(stored, Unusable):
            new = stored.reason is Reason.MISSING_BASELINE
            option = "--gpuperf-update-new-only" if new else "--gpuperf-update --gpuperf-reason '...'"
            stored = replace(stored, to_resolve=f"run pytest {option} on the trunk and commit the file")
        with self._fresh_runs() as make_runs:
            today, new_runs = datetime.now(UTC).date(), partial(make_runs, limits.BASELINE_NEW_RUNS)
            row, runs = gate_step_time(stored, new_runs, today, self.threshold_ratio)
        return replace(row, name=self.test_id), runs

    def update(self, runs: int, reason: str, *, new_only: bool) -> Path | None:
        """Add runs to the baseline; None where one exists and only new ones were asked for."""
        path = baselines.location(self.root, self.suite, self.here)
        if new_only and path.is_file():
            return None
        start = baselines.read(path) if path.is_file() else Baseline(self.suite, self.here.hard, self.work, ())
        with self._fresh_runs() as make_runs:
            rows = make_runs(runs)
        now = datetime.now(UTC)
        update = baselines.Update(now.date().isoformat(), reason)
        baselines.save(path, add_runs(start, baselines.summarise_runs(rows, now, ""), {}, update), __version__)
        return path

    @contextmanager
    def _fresh_runs(self) -> Iterator[Callable[[int], list[RunRow]]]:
        """A function that makes so many runs, each in a fresh process. The first run of all is discarded."""
        with launching(dict.fromkeys(SIDES, self.command), StepsFile(), self.timeout_s) as launcher:
            made: list[RunRow] = []

            def make_runs(wanted: int) -> list[RunRow]:
                for _ in range(wanted if made else wanted + 1):
                    made.append(launcher.launch("after", len(made) + 1))
                return made[-wanted:]

            yield make_runs


def environment_of(command: Command, extra: Mapping[str, str]) -> Environment:
    """Where the tests run, with facts that a project adds by hook."""
    return Environment({**environment(command).hard, **extra})


@contextmanager
def launching(
    commands: Mapping[Side, Command],
    source: StepSource,
    timeout_s: float = LONGEST_RUN_S,
    allow_writes: bool = False,
) -> Iterator[Launcher]:
    """A launcher with a folder of its own, the GPU watched meanwhile. The folder goes. Runs change no file outside of
    it, unless they may."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timesink-")))
        watch = stack.enter_context(GpuWatch(folder, visible_devices(commands.values())))
        box = stack.enter_context(boxes(allow_writes))
        yield Launcher(commands, source, folder, watch, timeout_s, box)


def two_sides(plan: ExperimentPlan, launcher: Launcher, suite: str, progress: Callable[[str], None]) -> GateResult:
    """Both builds, run here in turns; runs that take long are ended early, where steps are found in them."""
    source, launches = launcher.source, [launcher.launch]

    def shorten(steps: int) -> None:
        launches.append(replace(launcher, source=replace(source, most=steps)).launch)

    def launch(side: Side, number: int) -> RunRow:
        return launches[-1](side, number)

    can_end = isinstance(source, FoundSteps) and source.most is None
    return result_of(verify(plan, launch, progress, shorten if can_end else None), suite, launcher)


def result_of(verification: Verification, suite: str, launcher: Launcher) -> GateResult:
    """A verification as renderers take it, with what its commands differ in and what the GPU watch remarked."""
    result = to_result(verification, suite)
    differing = command_differences(launcher.commands["before"], launcher.commands["after"])
    notes = (*result.notes, *not_one_change(differing), *filter(None, [launcher.watch.remark]))
    return replace(result, differences=differing, notes=notes)
