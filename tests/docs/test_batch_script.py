"""The SLURM script of the guide: its syntax, and a run of all of it on this machine with a stand-in for `srun`."""

import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.test_run import RANKS, kineto

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "a-thousand-ranks.md"
# Runs its command as often as --ntasks says, and ends when those do, as the real one does; both ends here.
SRUN = """#!/bin/bash
count=${1#--ntasks=}; shift
trap 'kill $(jobs -p) 2>/dev/null' TERM
for ((task = 0; task < count; task++)); do "$@" & done
wait
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = re.search(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    path = tmp_path / "ranks.sbatch"
    path.write_text(found[1], "utf-8")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_is_sound_shell(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_script_reads_a_job_over_tls_and_leaves_nothing_behind(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is an extra")
    pytest.importorskip("cryptography", reason="TLS of Dask needs it")
    if shutil.which("bash") is None or shutil.which("openssl") is None:
        pytest.skip("needs bash and openssl")
    traces, programs, scratch = (tmp_path / name for name in ("traces", "programs", "scratch"))
    for folder in (traces, programs, scratch):
        folder.mkdir()
    for rank in range(RANKS):
        (traces / f"rank{rank}.json.gz").write_bytes(gzip.compress(kineto(rank, late_us=5 * (rank == 2)).encode()))
    dask = f'exec "{sys.executable}" -m dask "$@" --host 127.0.0.1'
    for name, text in {
        "srun": SRUN,
        "dask": f"#!/bin/bash\n{dask}\n",
        "timesink": f'#!/bin/bash\nexec "{sys.executable}" -m timesink "$@"\n',
    }.items():
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    page = tmp_path / "page.json"
    places = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SCRATCH": str(scratch), "WORKERS": "2"}
    own = {**os.environ, **places, "TIMESINK_CACHE_DIR": str(tmp_path / "cache")}
    command = ["bash", str(script), str(traces), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RANKS} ranks of {RANKS} files: " in page.read_text("utf-8")
    assert "timesink: warning" not in done.stderr
    assert list(scratch.iterdir()) == []  # the key is gone
    assert stat.S_IMODE(page.stat().st_mode) & 0o077 == 0
