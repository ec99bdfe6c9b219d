"""The gate against what is stored: baselines of a suite, or the trunk's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.cli.experiment_setup import facts, one_command, session, tell
from timesink.cli.reading import read_traces
from timesink.outcomes import GateResult, GateRow, RunRow

if TYPE_CHECKING:
    from timesink.experiments.baseline import Counter
    from timesink.experiments.step_source import StepSource


def counters(metrics: Path | None, captures: Sequence[Path] | None) -> dict[str, Counter]:
    """Counters from a file of the user's and from a profile, compiler logs beside it included."""
    from timesink.experiments.captured_metrics import captured_metrics
    from timesink.experiments.given_files import read_counters

    captured = captured_metrics(read_traces(captures)) if captures else {}
    return {**captured, **(read_counters(metrics) if metrics else {})}


def from_history(path: Path, suite: str, threshold_ratio: float) -> GateResult:
    """Whether the trunk changed for good; an alert that fails nothing."""
    from timesink.experiments.changepoint import judge_history
    from timesink.experiments.given_files import read_history

    means = read_history(path)
    verdict, found = judge_history(means, threshold_ratio)
    before = means[-1] / verdict.effect.ratio if verdict.effect and means else None
    row = GateRow("step time (mean)", "s", before if found else None, means[-1] if found else None, verdict)
    return GateResult(suite, "trunk history", (row,), notes=(f"{len(means)} points in {path.name}",))


@dataclass(frozen=True, slots=True)
class StoredGate:
    """A program held against the baseline of its suite in this environment."""

    root: Path
    suite: str
    program: tuple[str, ...]
    source: StepSource
    threshold_ratio: float
    share_tolerance: float
    canary_ratio: float | None

    def run(
        self,
        measured: Mapping[str, Counter],
        config_files: Sequence[Path],
        fact_texts: Sequence[str],
        allowed: Sequence[str],
        timeout_s: float,
        keep: Path | None,
    ) -> GateResult:
        """Make the runs the baseline calls for and compare everything."""
        from timesink.experiments import baseline as baselines
        from timesink.experiments.environment import differences, environment, workload
        from timesink.experiments.gate import gate_counters, gate_step_time
        from timesink.experiments.limits import BASELINE_NEW_RUNS

        command = one_command(self.program)
        here = environment(command)
        work = workload(command, config_files, facts(fact_texts))
        stored = baselines.find(self.root, self.suite, here, work, allowed)
        known = stored.counters if isinstance(stored, baselines.Baseline) else {}
        differing = (
            differences(stored.environment, here.hard) if isinstance(stored, baselines.Baseline) else stored.differences
        )
        with session({"before": command, "after": command}, self.source, timeout_s, keep) as made:
            numbers = iter(range(2, 1000))

            def make_runs() -> list[RunRow]:
                rows = [made.launch("after", next(numbers)) for _ in range(int(BASELINE_NEW_RUNS.default))]
                for row in rows:
                    tell(f"run {row.number}: {row.mean_s * 1e3:.4g} ms per step")
                return rows

            if isinstance(stored, baselines.Baseline):
                made.launch("after", 1)  # warms disks and caches; not counted
            today = datetime.now(UTC).date()
            first, runs = gate_step_time(stored, make_runs, today, self.threshold_ratio, self.canary_ratio)
            notes = (made.watch.remark,) if made.watch.remark else ()
        rows = gate_counters(known, measured, share_tolerance=self.share_tolerance) if known or measured else []
        return GateResult(self.suite, "stored baseline", (first, *rows), differing, runs=runs, notes=notes)
