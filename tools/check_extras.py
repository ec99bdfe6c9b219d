"""Install the wheel of a folder with each extra into a fresh environment, and do there what the extra is for.

python tools/check_extras.py dist            all of them
python tools/check_extras.py dist query mcp  these
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TRACE: Final = Path(__file__).resolve().parents[1] / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
_LOGGED: Final = "from pathlib import Path; from timesink.capture.figure_logs import open_logs; open_logs({!r}, Path())"
_RUN: Final = "from timesink.cli.app import run; assert run([{}]) == 0"
USES: Final = {
    "arrow": "import timesink; assert timesink.read({trace!r}).table('device_ops', to='arrow').num_rows > 2000",
    "query": _RUN.format("'query', {trace!r}, 'select count(*) from device_ops'"),
    "perfetto": _RUN.format("'report', '--export', 'perfetto', {trace!r}, '-o', 'x.pftrace'"),
    "mcp": "import duckdb, timesink.mcp.server",
    "remote": _RUN.format("'ranks', 'file://' + {trace!r}"),
    "dask": "from timesink.cluster.engines import local_cluster\nwith local_cluster(1): pass",
    "transformers": "from timesink.capture.transformers import *",
    "lightning": "from timesink.capture.lightning import *",
    **{name: _LOGGED.format(name) for name in ("tensorboard", "mlflow", "wandb")},
}
"""What each extra is for, as Python that runs in an empty folder."""
ALL: Final = ("arrow", "query", "perfetto", "mcp", "remote", "dask")
"""What the extra `all` holds."""


def use(python: Path, extra: str, folder: Path) -> None:
    """Do what it is for; `CalledProcessError` where that fails."""
    for name in ALL if extra == "all" else (extra,):
        subprocess.run([python, "-c", USES[name].replace("{trace!r}", repr(str(TRACE)))], check=True, cwd=folder)


def main(wheel: Path, extras: list[str]) -> None:
    for extra in extras or [*USES, "all"]:
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "env" / "bin" / "python"
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            subprocess.run([python, "-m", "pip", "install", "-qq", f"{wheel.resolve()}[{extra}]"], check=True)
            use(python, extra, Path(folder))
        print(f"{extra}: installed and used", flush=True)


if __name__ == "__main__":
    (found,) = Path(sys.argv[1]).glob("*.whl")
    main(found, sys.argv[2:])
