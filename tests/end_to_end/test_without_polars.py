"""What verifies and captures a program runs with the standard library, NumPy, SciPy, Rich and Click alone."""

import os
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


THREADS = """
import sys
from pathlib import Path
from threading import Thread
from timesink.startup import start_small
start_small([Path("none.json")])
import numpy, polars
stand_in, values = numpy.ma, numpy.arange(3)
mask = numpy.ma.getmask(values)
found = []
threads = [Thread(target=lambda: found.append(stand_in.MaskedArray)) for _ in range(8)]  # each loads the real module
for thread in threads: thread.start()
for thread in threads: thread.join()
assert numpy.ma is not stand_in is not sys.modules["numpy.ma"]
assert len(found) == 8 and len(set(map(id, found))) == 1
assert mask is numpy.ma.nomask, "what Polars compares it with"
polars.Series(values)
"""


def test_a_thread_that_loads_masked_arrays_disturbs_no_other() -> None:
    """Whoever chooses NumPy's threads has it loaded by its own importer, masked arrays included."""
    command = [sys.executable, "-c", THREADS]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
