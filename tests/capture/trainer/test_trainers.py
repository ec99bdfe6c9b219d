"""Transformers, Lightning, Accelerate, torch.profiler and a loop of one's own record themselves, as released."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.capture.conftest import SOURCE

from timesink.capture.manifest import Capture

pytestmark = pytest.mark.slow  # imports the trainers
PROGRAM = Path(__file__).with_name("released_trainers.py")
TRAINERS = ("profiler", "own", "transformers", "accelerate", "lightning")


@pytest.fixture(scope="module")
def told(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each trainer told."""
    done = subprocess.run(
        [torch_python, str(PROGRAM), str(tmp_path_factory.mktemp("trainers"))],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"trainer"')]
    return {line["trainer"]: line for line in lines}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_released_trainer_records_its_steps(told: dict[str, dict[str, Any]], trainer: str) -> None:
    if "absent" in told[trainer]:
        pytest.skip(f"{told[trainer]['absent']} is not installed (pip install {told[trainer]['absent']})")
    capture = Capture.load(Path(told[trainer]["folder"]))
    assert capture.is_complete
    (entry,) = capture.manifest["files"]
    assert entry["counts"]["steps"] == 2
    by_us = trainer not in ("profiler", "accelerate")
    assert (capture.unprofiled_step_ms is not None) == by_us


def test_outside_of_the_window_no_line_of_timesink_runs_in_the_step(told: dict[str, dict[str, Any]]) -> None:
    """Of a handler; a recorder's `step` is one call that returns."""
    assert told["lightning"]["frames"] == {"profile.step": 0, "StepRecorder.step": 12 - 6}
