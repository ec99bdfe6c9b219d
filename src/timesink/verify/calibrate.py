"""How much runs of one unchanged program differ here: measured once per environment and workload, reused afterwards.

A capture shows one run; its steps say nothing of how much the next run would differ. Only with this record can two
captures be compared, and only as far as this deviation allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from timesink.verify.environment import Environment
from timesink.verify.limits import CALIBRATION_RUNS
from timesink.verify.outcomes import RunRow
from timesink.verify.records import BrokenRecord, load, write

VERSION = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Run-to-run deviation as a share of the step time, with `df` degrees of freedom.

    It is the deviation of all runs around their common mean, over all sessions recorded: what differs between sessions
    (placement, temperature, neighbours) is in it as far as several sessions were made.
    """

    run_sd_ratio: float
    df: int
    sessions: int

    @property
    def enough(self) -> bool:
        """Whether it was measured with enough runs to be used for a verdict."""
        return self.df + 1 >= CALIBRATION_RUNS.default


def location(root: Path, environment: Environment, workload: str) -> Path:
    """Where the calibration of an environment and workload lies."""
    return root / "calibrations" / f"{environment.key}-{workload}.json"


def deviation(means: Sequence[float], sessions: int = 1) -> Calibration:
    """From run means (any unit): the standard deviation of their logarithms."""
    logs = np.log(np.asarray(means, dtype=np.float64))
    if len(logs) < 2:
        raise BrokenRecord(f"{len(logs)} runs give no deviation", remedy="run timesink calibrate with 5 runs or more")
    return Calibration(float(logs.std(ddof=1)), len(logs) - 1, sessions)


def calibrate(
    launch: Callable[[int], RunRow], runs: int, progress: Callable[[str], None] = lambda _: None
) -> list[RunRow]:
    """Run the same command `runs` times in fresh processes, after one that is discarded."""
    made = []
    for number in range(1, runs + 2):
        row = launch(number)
        progress(
            f"run {number} of {runs + 1}: {row.mean_s * 1e3:.4g} ms per step"
            + (" (warm-up, discarded)" if number == 1 else "")
        )
        made.append(row)
    return made[1:]


def store(path: Path, environment: Environment, command: str, rows: Sequence[RunRow]) -> Calibration:
    """Append a session to the record and return the calibration over all of its sessions."""
    record: dict[str, Any] = {
        "schema_version": VERSION,
        "environment": dict(environment.hard),
        "command": command,
        "sessions": [],
    }
    if path.is_file():
        record = _load(path)
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
    sessions = _load(path)["sessions"]
    try:
        means = [float(mean) for session in sessions for mean in session["run_means_s"]]
    except (KeyError, TypeError, ValueError) as broken:
        raise BrokenRecord(
            f"{path} has a session without run means: {broken}", remedy="run timesink calibrate anew"
        ) from broken
    if not all(np.isfinite(mean) and mean > 0 for mean in means):
        raise BrokenRecord(f"{path} holds a run mean that is no positive number", remedy="run timesink calibrate anew")
    return deviation(means, len(sessions))


def made_on(path: Path) -> str:
    """The GPU a record was made on, as nvidia-smi names it; "" where the record does not say."""
    return str(_load(path)["environment"].get("gpu", ""))


def _load(path: Path) -> dict[str, Any]:
    return load(path, VERSION, {"environment": dict, "sessions": list})
