"""What is committed beside the code: configurations, baselines, calibrations; whether a gate could use each."""

from __future__ import annotations

from pathlib import Path

from timesink.diagnosis.registry import all_rules, find_all
from timesink.errors import UsageError, unknown
from timesink.model.record import dataclass
from timesink.untrusted.configuration import ProjectConfiguration
from timesink.untrusted.configuration import read as configuration
from timesink.verify import baseline, calibration
from timesink.verify.records import BrokenRecord
from timesink.verify.table_limits import parse_limit


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that was found in order: what it is, and what it holds."""

    path: Path
    kind: str
    holds: str


def checked(path: Path) -> KeptFile:
    """The file. `UsageError` or `BrokenRecord` names what is wrong with it, and where."""
    if path.suffix == ".toml":
        found = configuration(path)
        return KeptFile(path, "configuration", "no [tool.timesink]" if found is None else _of(found))
    if "calibrations" in path.parts:
        return KeptFile(path, "calibration", f"{calibration.read(path).df + 1} runs")
    kept = baseline.read(path)
    if not kept.runs:
        raise BrokenRecord(f"{path} holds no run", remedy="make it anew: timesink baseline update")
    return KeptFile(path, f"baseline of {kept.suite}", f"{len(kept.runs)} runs, {len(kept.counters)} counters")


def _of(found: ProjectConfiguration) -> str:
    """What the configuration chooses. `UsageError` for a rule or a limit that there is not."""
    try:
        find_all(found.skip)
        known = [f"{rule.code}.{name}" for rule in all_rules() for name in rule.limits]
        for name in found.limits:
            if name not in known:
                raise unknown("limit", name, known, "timesink rules")
        budgets = [parse_limit(text) for suite in found.suites.values() for text in suite.get("limits", ())]
    except UsageError as error:
        raise UsageError(f"{found.path}: {error.message}", remedy=error.remedy) from error
    held = {"skipped rule": found.skip, "limit": found.limits, "suite": found.suites, "budget": budgets}
    return ", ".join(f"{len(one)} {name}{'s' * (len(one) > 1)}" for name, one in held.items() if one) or "nothing"
