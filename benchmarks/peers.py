"""An environment with the libraries and tools that stand beside timesink in the tables.

    python -m benchmarks.peers        # makes benchmarks/.cache/peers; needs the network once

HTA pins old packages and gets an interpreter of its own (`--hta`), as does TraceLens (`--tracelens`), which is not on
PyPI: the package of that name there is another project. Ours: `pip install git+https://github.com/AMD-AGI/TraceLens@171dd74`.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.inputs import CACHE

FOLDER = CACHE / "peers"
PACKAGES = ("orjson==3.13.0", "msgspec==0.22.0", "pysimdjson==7.0.2", "nsys-ai==0.3.0")
# What each library does with the bytes of a trace, imports apart.
LOADS = {
    "orjson.loads": "import orjson; load = orjson.loads",
    "msgspec.json.decode": "import msgspec; load = msgspec.json.decode",
    "simdjson parse, nothing taken out": "import simdjson; load = simdjson.Parser().parse",
}
TIMED = """
import json, sys, time
{load}
text = open(sys.argv[1], "rb").read()
start = time.perf_counter(); found = load(text)["traceEvents"]; seconds = time.perf_counter() - start
assert len(found) > 1000
print(json.dumps({{"seconds": seconds}}))
"""


def interpreter() -> Path | None:
    """The Python of the environment, or None where it was not made."""
    python = FOLDER / "bin" / "python"
    return python if python.is_file() else None


def nsys_ai() -> Path | None:
    """The command of nsys-ai, or None."""
    command = FOLDER / "bin" / "nsys-ai"
    return command if command.is_file() else None


def loading(name: str, file: Path) -> list[str]:
    """The command that loads a file with that library and prints its seconds."""
    return [str(interpreter()), "-c", TIMED.format(load=LOADS[name]), str(file)]


if __name__ == "__main__":
    venv.create(FOLDER, with_pip=True)
    sys.exit(subprocess.run([FOLDER / "bin" / "python", "-m", "pip", "install", *PACKAGES], check=False).returncode)
