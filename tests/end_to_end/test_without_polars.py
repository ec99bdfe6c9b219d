"""What verifies and captures a program runs with the standard library, NumPy, SciPy, Rich and Typer alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("polars", "pyarrow", "duckdb"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    "module", ["timesink.render.text", "timesink.render.gate.ci", "timesink.cli.verify.verify", "timesink.cli.capture"]
)
def test_a_module_loads_where_polars_is_absent(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"{BLOCKED}import {module}"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
