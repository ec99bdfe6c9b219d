"""Environments with the libraries and tools that stand beside timesink in the tables.

    python -m benchmarks.peers        # makes them below benchmarks/.cache; needs the network once

HTA and TraceLens have one each. TraceLens is not on PyPI: the package of that name there is another project.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from benchmarks.inputs import CACHE

FOLDER = CACHE / "peers"
TRACELENS = "TraceLens @ git+https://github.com/AMD-AGI/TraceLens@171dd74721ca1ec45709e5805b68ae1f65e27811"
PACKAGES = ("orjson==3.13.0", "msgspec==0.22.0", "pysimdjson==7.0.2", "nsys-ai==0.3.0")
ENVIRONMENTS = {
    "nsys-ai": (FOLDER, PACKAGES),
    "HTA": (CACHE / "peers-hta", ("HolisticTraceAnalysis==0.5.0",)),
    "TraceLens": (CACHE / "peers-tracelens", (TRACELENS,)),
}
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


def interpreter(peer: str = "nsys-ai") -> Path | None:
    """The Python of the environment that has this peer, or None where it was not made."""
    python = ENVIRONMENTS[peer][0] / "bin" / "python"
    return python if python.is_file() else None


def nsys_ai() -> Path | None:
    """The command of nsys-ai, or None."""
    command = FOLDER / "bin" / "nsys-ai"
    return command if command.is_file() else None


def loading(name: str, file: Path) -> list[str]:
    """The command that loads a file with that library and prints its seconds."""
    return [str(interpreter()), "-c", TIMED.format(load=LOADS[name]), str(file)]


def make() -> int:
    """Make every environment; the exit code of the first that fails."""
    for folder, packages in ENVIRONMENTS.values():
        venv.create(folder, with_pip=True)
        failed = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", *packages], check=False).returncode
        if failed:
            return failed
    return 0
