"""What verifies and captures a program runs with the standard library, NumPy, SciPy, Rich and Click alone."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import timesink

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


def test_what_pyarrow_alone_reads_says_how_to_have_it(tmp_path: Path) -> None:
    """The usual captures need none of it."""
    folder = tmp_path / "run_pqtdir"
    folder.mkdir()
    pl.DataFrame({"id": [1], "value": ["gemm"]}).write_parquet(folder / "StringIds.parquet")
    blocked = BLOCKED.replace('"polars", "pyarrow", "duckdb"', '"pyarrow"')
    program = f"{blocked}import runpy; sys.argv[0] = 'timesink'; runpy.run_module('timesink', run_name='__main__')"
    demo = Path(timesink.__file__).parent / "cli" / "demo" / "gpt_before.json.xz"
    for capture, status, words in ((folder, 2, "pyarrow, which is not installed"), (demo, 0, "input pipeline")):
        command = [sys.executable, "-c", program, "diagnose", str(capture)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ran.returncode, words in ran.stdout + ran.stderr) == (status, True), ran.stderr
