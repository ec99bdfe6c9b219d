"""Stored baselines: run summaries of the trunk, committed with the code, keyed by suite and environment.

One JSON file per suite and environment holds, per metric, the runs that count (never raw traces), the statistic they
were made for, and why each update was made. New runs are compared with a Student t prediction interval. An update never
keeps runs from before a lasting change together with runs after it.
"""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from math import inf, isnan
from pathlib import Path
from typing import Any

from timesink.errors import UsageError, did_you_mean
from timesink.records import Record, as_plain, field, from_plain, replace
from timesink.verify import BrokenRecord, calibration, check_suite, load, text_of, write
from timesink.verify.changepoint import judge_history
from timesink.verify.counters import Counter
from timesink.verify.environment import Environment, accepting, differences
from timesink.verify.limits import BASELINE_LEVEL, HISTORY_MAX, MSER_BATCH
from timesink.verify.outcomes import Reason, RunRow

VERSION = 1
STATISTIC: Mapping[str, Any] = {
    "summary": "mean of the steady part",
    "steady state": f"MSER-{MSER_BATCH}",
    "interval": "t prediction interval of log means",
    "level": BASELINE_LEVEL,
}


class BaselineRun(Record):
    """One run of the trunk: seconds per step, steps counted, when, at which commit."""

    mean: float
    median: float
    n: int
    date: str
    sha: str = ""


class Update(Record):
    """When the runs of a baseline were made or added to, why, at which commit."""

    date: str
    reason: str
    sha: str = ""


class Baseline(Record):
    """What is stored of one suite in one environment. `updates` are oldest first."""

    suite: str
    environment: Mapping[str, str]
    workload: str
    runs: tuple[BaselineRun, ...]
    counters: Mapping[str, Counter] = field(default_factory=dict)
    updates: tuple[Update, ...] = ()

    @property
    def last_run(self) -> date | None:
        """The day of the newest run."""
        days = [datetime.fromisoformat(run.date).date() for run in self.runs]
        return max(days, default=None)


class Unusable(Record):
    """Why there is no baseline to compare with, and what to do: always an invalid comparison, never a pass."""

    reason: Reason
    explanation: str
    to_resolve: str
    differences: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def location(root: Path, suite: str, environment: Environment) -> Path:
    """`<root>/baselines/<suite>/<environment key>.json`. `UsageError` where the suite's name is no plain file name."""
    check_suite(suite)
    return root / "baselines" / suite / f"{environment.key}.json"


def find(
    root: Path,
    suite: str,
    environment: Environment,
    workload: str,
    allowed: Sequence[str] = (),
    argv: Sequence[str] = (),
) -> Baseline | Unusable:
    """The baseline for this environment and workload, or why there is none, and what makes one of the program `argv`.
    `allowed`: hard facts that may differ."""
    path = location(root, suite, environment)
    update = f"timesink gate baseline update --suite {suite} --reason '...' -- {shlex.join(argv)}"
    make = f"run `{update}` on the trunk and commit the file"
    others = sorted(path.parent.glob("*.json")) if path.parent.is_dir() else []
    if not others:
        suites = [folder.name for folder in path.parent.parent.glob("*") if any(folder.glob("*.json"))]
        meant = did_you_mean(suite, {name: name for name in sorted(suites)})
        why = f"no baseline for suite {suite!r} under {path.parent}" + (f": {meant}" if meant else "")
        return Unusable(Reason.MISSING_BASELINE, why, make)
    try:
        candidates = [read(other) for other in ([path] if path.is_file() else others)]
    except BrokenRecord as broken:
        return Unusable(Reason.CORRUPT_BASELINE, broken.message, broken.remedy)
    distances = [differences(candidate.environment, environment.hard) for candidate in candidates]
    nearest, distance = min(zip(candidates, distances, strict=True), key=lambda pair: len(set(pair[1]) - set(allowed)))
    if set(distance) - set(allowed):
        forbidding = sorted(set(distance) - set(allowed))
        names, way = ", ".join(forbidding), f"{make}, or accept with {accepting(forbidding)}"
        return Unusable(
            Reason.OTHER_ENVIRONMENT, f"no baseline was made here; the nearest differs in {names}", way, distance
        )
    if nearest.workload != workload:
        why = f"the baseline timed other work ({nearest.workload}, now {workload}): command or configuration changed"
        return Unusable(Reason.OTHER_WORK, why, make)
    return nearest


def read(path: Path) -> Baseline:
    """A baseline file. `BrokenRecord` where it is damaged or was made for another statistic."""
    record = load(path, VERSION, {"suite": str, "environment": dict, "workload": str, "runs": list, "statistic": dict})
    if record["statistic"] != dict(STATISTIC):
        raise BrokenRecord(
            f"{path} was made for another statistic: {record['statistic']}", remedy="make the baseline anew"
        )
    try:
        return _checked(from_plain(Baseline, record))
    except ValueError as broken:
        raise BrokenRecord(
            f"{path} holds a damaged entry: {broken}", remedy="restore it from version control"
        ) from broken


def _checked(baseline: Baseline) -> Baseline:
    """The baseline. `ValueError` for a figure or a date that none can have."""
    for run in baseline.runs:
        datetime.fromisoformat(run.date)
        if not 0 < run.mean < inf:
            raise ValueError(f"a run mean of {run.mean} s")
    if any(isnan(counter.value) for counter in baseline.counters.values()):
        raise ValueError("a counter that is not a number")
    return baseline


def text(baseline: Baseline, tool_version: str) -> str:
    """The file's text: what `save` writes, and what a diff is made from."""
    return text_of(_record(baseline, tool_version))


def save(path: Path, baseline: Baseline, tool_version: str) -> None:
    """Write the file."""
    write(path, _record(baseline, tool_version))


def summarise_runs(rows: Sequence[RunRow], when: datetime, sha: str = "") -> tuple[BaselineRun, ...]:
    """Run rows as they are stored."""
    stamp = when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return tuple(BaselineRun(row.mean_s, row.median_s, row.steps - row.dropped, stamp, sha) for row in rows)


def _record(baseline: Baseline, tool_version: str) -> dict[str, Any]:
    return {
        "schema_version": VERSION, "tool_version": tool_version, "statistic": dict(STATISTIC), **as_plain(baseline),
    }  # fmt: skip


def add_runs(old: Baseline, runs: Sequence[BaselineRun], counters: Mapping[str, Counter], update: Update) -> Baseline:
    """The baseline with these runs added; runs before a confirmed change point and runs beyond the newest 80 go.

    Counters given replace those stored; none given leaves them.
    """
    kept = [*old.runs, *runs][-HISTORY_MAX:]
    _, change = judge_history([run.mean for run in kept])
    if change is not None:
        kept = kept[change.index :]
    return replace(old, runs=tuple(kept), counters=dict(counters or old.counters), updates=(*old.updates, update))


class KeptFile(Record):
    """A committed file that was found in order: a configuration, a baseline or a calibration, and what it holds."""

    path: Path
    kind: str
    holds: str


def check_kept_file(path: Path) -> KeptFile:
    """The file. `UsageError` or `BrokenRecord` names what is wrong with it, and where."""
    if path.suffix == ".toml":
        return KeptFile(path, "configuration", _list_choices(path))
    if "calibrations" in path.parts:
        return KeptFile(path, "calibration", f"{calibration.read(path).df + 1} runs")
    kept = read(path)
    if not kept.runs:
        raise BrokenRecord(f"{path} holds no run", remedy="make it anew: timesink gate baseline update")
    return KeptFile(path, f"baseline of {kept.suite}", f"{len(kept.runs)} runs, {len(kept.counters)} counters")


def _list_choices(path: Path) -> str:
    """What a configuration chooses. `UsageError` for a rule or a limit that there is not."""
    from timesink.diagnosis.rule_names import check_limits, rules_called
    from timesink.untrusted import configuration
    from timesink.verify.limit_texts import parse_limit

    found = configuration.read(path)
    if found is None:
        return "no [tool.timesink]"
    try:
        rules_called(found.skip)
        check_limits(found.limits)
        budgets = [parse_limit(text) for suite in found.suites.values() for text in suite.get("limits", ())]
    except UsageError as error:
        raise UsageError(f"{found.path}: {error.message}", remedy=error.remedy) from error
    held = {"skipped rule": found.skip, "limit": found.limits, "suite": found.suites, "budget": budgets}
    return ", ".join(f"{len(one)} {name}{'s' * (len(one) > 1)}" for name, one in held.items() if one) or "nothing"
