"""How much runs of one unchanged program differ here, and what two captures with one run per side can then say.

A capture shows one run; its steps say nothing of how much the next run would differ. The run-to-run deviation is
measured once per environment and workload, stored, and reused. Only with it can two captures be compared, and only as
far as this deviation allows.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from timesink.model.arrays import Float64Array
from timesink.records import Record, replace
from timesink.verify import BrokenRecord, limits, load, write
from timesink.verify.environment import Environment
from timesink.verify.outcomes import ChangeVerdict, Outcome, Reason, RunRow, inconclusive
from timesink.verify.statistics import interval_verdict, lag1_correlation, steady_part, t_interval, trend

VERSION = 1


class Calibration(Record):
    """Run-to-run deviation as a share of the step time, with `df` degrees of freedom.

    It is the deviation of all runs around their common mean, over all sessions recorded: what differs between sessions
    (placement, temperature, neighbours) is in it as far as several sessions were made.
    """

    run_sd_ratio: float
    df: int
    sessions: int


def location(root: Path, environment: Environment, workload: str) -> Path:
    """The file that holds the calibration of an environment and workload."""
    return root / "calibrations" / f"{environment.key}-{workload}.json"


def deviation(means: Sequence[float], sessions: int = 1) -> Calibration:
    """From run means (any unit): the standard deviation of their logarithms."""
    logs = np.log(np.asarray(means, dtype=np.float64))
    if len(logs) < 2:
        raise BrokenRecord(f"{len(logs)} runs give no deviation", remedy="timesink gate calibrate with 5 runs")
    return Calibration(float(logs.std(ddof=1)), len(logs) - 1, sessions)


def calibrate(
    launch: Callable[[int], RunRow], runs: int, progress: Callable[[str], None] = lambda _: None
) -> list[RunRow]:
    """Run the same command `runs` times in fresh processes, after one that is discarded."""
    made = []
    for number in range(1, runs + 2):
        row = launch(number)
        warm_up = " (warm-up, discarded)" if number == 1 else ""
        progress(f"run {number} of {runs + 1}: {row.mean_s * 1e3:.4g} ms per step{warm_up}")
        made.append(row)
    return made[1:]


def store(path: Path, environment: Environment, command: str, rows: Sequence[RunRow]) -> Calibration:
    """Append a session to the record and return the calibration over all of its sessions."""
    new = {"schema_version": VERSION, "environment": dict(environment.hard), "command": command, "sessions": []}
    record: dict[str, Any] = _load(path) if path.is_file() else new
    session = {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "run_means_s": [row.mean_s for row in rows],
        "steps": min(row.steps for row in rows),
        "unsteady_runs": sum(not row.settled for row in rows),
    }
    record["sessions"] = [*record["sessions"], session]
    write(path, record)
    return read(path)


def read(path: Path) -> Calibration:
    """The calibration in a record. `BrokenRecord` where the file is damaged."""
    sessions, remedy = _load(path)["sessions"], "run timesink gate calibrate anew"
    try:
        means = [float(mean) for session in sessions for mean in session["run_means_s"]]
    except (KeyError, TypeError, ValueError) as broken:
        raise BrokenRecord(f"{path} has a session without run means: {broken}", remedy=remedy) from broken
    if not all(np.isfinite(mean) and mean > 0 for mean in means):
        raise BrokenRecord(f"{path} holds a run mean that is not a positive number", remedy=remedy)
    found = deviation(means, len(sessions))
    if found.run_sd_ratio >= 1:
        raise BrokenRecord(f"{path} holds run means that differ beyond belief", remedy=remedy)
    return found


def made_on(path: Path) -> str:
    """The GPU a record was made on, as nvidia-smi names it; "" where the record does not say."""
    return str(_load(path)["environment"].get("gpu", ""))


def _load(path: Path) -> dict[str, Any]:
    return load(path, VERSION, {"environment": dict, "sessions": list})


_LEAST_BATCHES = 4


class RunDeviation(Record):
    """The run-to-run deviation a verdict rests on. `assumed`: stated by the user, so the verdict is tagged."""

    ratio: float
    df: float
    assumed: bool

    @classmethod
    def measured(cls, calibration: Calibration) -> Self:
        """From a calibration."""
        return cls(calibration.run_sd_ratio, calibration.df, False)

    @classmethod
    def stated(cls, ratio: float) -> Self:
        """From `--assume-run-sd`."""
        return cls(ratio, limits.ASSUMED_DF, True)


def judge_captures(
    before: Sequence[float], after: Sequence[float], threshold_ratio: float, deviation: RunDeviation | None
) -> ChangeVerdict:
    """The verdict on two series of step times (any one unit), warm-up already left out.

    The interval is of the log ratio of mean step times. Its standard error is that of batch means within the runs or
    that of two runs, whichever is larger.
    """
    undecided = partial(inconclusive, threshold_ratio)
    series, settled = zip(*(_cut_warm_up(side) for side in (before, after)), strict=True)
    if any(np.any(~np.isfinite(side) | (side <= 0)) for side in series):
        return undecided(Reason.BAD_VALUES, "a step time is not a positive number", "check the capture")
    if (shortest := min(map(len, series))) < 2 * _LEAST_BATCHES:
        why, remedy = f"{shortest} steady steps on one side", "capture 10 steps or more, better 100"
        return undecided(Reason.TOO_FEW_RUNS, why, remedy)
    if not all(settled):
        return undecided(Reason.NOT_STEADY, "step times never settle", "capture more steps, later")
    drift = max(map(trend, series), key=abs)
    if abs(drift) > threshold_ratio:
        why = f"step times drift by {100 * drift:+.1f} % within a capture"
        return undecided(Reason.DRIFT, why, "capture more steps, or lock the clocks")
    batches = [batch_logs(side) for side in series]
    notes = _batch_notes(series, batches)
    log_ratio, level = math.log(series[1].mean() / series[0].mean()), 1 - limits.ALPHA
    error, df = _error_within(batches)
    if deviation is None:
        effect = t_interval(log_ratio, error, df, level).effect(level)
        why = "the interval holds how steps differ, and not how runs do"
        to_resolve = "timesink verify with both commands, or timesink gate calibrate and --calibration"
        return replace(undecided(Reason.ONE_RUN_A_SIDE, why, to_resolve), effect=effect, notes=notes)
    error_between = math.sqrt(2) * deviation.ratio
    if error_between >= error:
        error, df = error_between, deviation.df
    verdict = interval_verdict(t_interval(log_ratio, error, df, level), threshold_ratio, level)
    if verdict.outcome is Outcome.INCONCLUSIVE:
        way = "timesink verify with both commands"
        verdict = replace(verdict, explanation="the interval crosses a threshold", to_resolve=way)
    if deviation.assumed:
        notes = (*notes, f"rests on an assumed run-to-run deviation of {100 * deviation.ratio:g} %: it fails no gate")
    return replace(verdict, run_sd_ratio=deviation.ratio, tagged=deviation.assumed, notes=notes)


def batch_logs(series: Float64Array) -> Float64Array:
    """Logarithms of the means of up to eight equal, contiguous batches; what does not fit is left out at the front."""
    count = min(limits.BATCHES, len(series) // 2)
    size = len(series) // count
    logs: Float64Array = np.log(series[len(series) - count * size :].reshape(count, size).mean(-1))
    return logs


def _cut_warm_up(series: Sequence[float]) -> tuple[Float64Array, bool]:
    """The steady part and whether there is one. Short captures keep every step: warm-up was left out by their marks."""
    values = np.asarray(series, dtype=np.float64)
    if len(values) < limits.MSER_MIN_STEPS:
        return values, True
    steady = steady_part(values)
    return steady.kept, steady.settled


def _error_within(batches: Sequence[Float64Array]) -> tuple[float, float]:
    """Standard error of the difference of batch means, with Welch's degrees of freedom."""
    parts = [float(logs.var(ddof=1)) / len(logs) for logs in batches]
    total = sum(parts)
    if total == 0:
        return 0.0, float(min(len(logs) for logs in batches) - 1)
    df = total**2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, batches, strict=True))
    return math.sqrt(total), df


def _batch_notes(series: Sequence[Float64Array], batches: Sequence[Float64Array]) -> tuple[str, ...]:
    notes = []
    size = min(len(side) // len(logs) for side, logs in zip(series, batches, strict=True))
    if size < limits.MSER_BATCH:
        notes.append(f"batches of {size} steps: the noise within a run is known roughly")
    if max(lag1_correlation(logs - logs.mean()) for logs in batches) > limits.BATCH_LAG1:
        notes.append("consecutive batches are alike: the noise within a run is understated")
    return tuple(notes)
