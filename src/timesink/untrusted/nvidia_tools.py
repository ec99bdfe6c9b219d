"""Where NVIDIA's profilers are on a machine: readers export with nsys, capture runs both. Standard library only."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from timesink.untrusted import numbers_in

_NSYS = (
    "usr/local/cuda*/bin/nsys",
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",  # comes last: it lacks a link to its importer
)
_NCU = ("usr/local/cuda*/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
_PATTERNS = {"nsys": _NSYS, "ncu": _NCU}


def find_tool(name: str, environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Path | None:
    """The `nsys` or `ncu` to use: on the PATH, in CUDA_HOME or CUDA_PATH, else the newest where installers put it."""
    return next(_candidates(name, os.environ if environment is None else environment, root), None)


def _candidates(name: str, environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    on_path = shutil.which(name, path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environment.get(variable):
            yield from _runnable([Path(home) / "bin" / name])
    for pattern in _PATTERNS[name]:
        yield from _runnable(sorted(root.glob(pattern), key=_numbers, reverse=True))


def importer_link(nsys: Path) -> tuple[Path, str] | None:
    """For the nsys that Nsight Compute carries: the link it lacks (place, target) before it can import, or None."""
    if "nsight-compute" not in nsys.parts:
        return None
    host = nsys.parent.parent
    importers = sorted(host.glob("linux-desktop-glibc_*"), key=_numbers)
    link = host / "host-linux-x64"
    return (link, importers[-1].name) if importers and not link.exists() else None


def _numbers(path: Path) -> tuple[int, ...]:
    """So that 2025.10 is newer than 2025.9."""
    return numbers_in(str(path))


def _runnable(paths: list[Path]) -> Iterator[Path]:
    yield from (path for path in paths if path.is_file() and os.access(path, os.X_OK))


def ask(argv: Sequence[str], timeout_s: float = 20.0, *, else_: str = "") -> str:
    """What a program prints; empty where it fails or is not there, `else_` where it does not answer in time."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return else_
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
