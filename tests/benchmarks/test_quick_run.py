"""The benchmarks run from end to end on small inputs and print one table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_quick_run_fills_every_row_with_a_positive_figure() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ") and "figure" not in line]
    assert {row[0].removeprefix("| ") for row in rows} == {
        "shapes",
        "start-up",
        "decode",
        "end to end",
        "sqlite",
        "window",
        "ranks",
        "report",
    }
    for row in rows:
        figure = re.match(r"-?[\d.,]+", row[2])
        assert figure, row
        if "growth exponent" not in row[1]:  # of such small inputs it may be anything
            assert float(figure[0].replace(",", "")) > 0, row
        assert row[4].strip(" |") in ("met", "missed", ""), row
