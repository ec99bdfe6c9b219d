"""What is on this machine: profilers, drivers, permissions. Each probe runs one program or reads one file."""

from __future__ import annotations

import ctypes.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timesink.readers.nsys.tool import find_nsys

PATIENCE_S = 20
NSIGHT_COMPUTE = Path("/opt/nvidia/nsight-compute")
NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
PARANOIA = Path("/proc/sys/kernel/perf_event_paranoid")
_VERSION = re.compile(r"\d+\.\d+[\w.\-]*")


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing looked for: what was found (empty: nothing), and what to do where that is not enough."""

    name: str
    found: str
    place: str = ""
    remedy: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it works as it is."""
        return bool(self.found) and not self.remedy


def tool_probes() -> tuple[Probe, ...]:
    """nsys, ncu and nvidia-smi."""
    return (
        nsys_probe(),
        ncu_probe(),
        _program("nvidia-smi", "install the NVIDIA driver, or run on a machine with a GPU"),
    )


def nsys_probe(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Probe:
    """The nsys that the readers would use; where it is the one Nsight Compute carries, what it still lacks."""
    nsys = find_nsys(environment, root)
    if nsys is None:
        remedy = "install Nsight Systems (package nsight-systems), or Nsight Compute, which carries one"
        return Probe("nsys", "", remedy=remedy)
    version = _version(str(nsys))
    lacks = bundled_remedies(nsys) if "nsight-compute" in nsys.parts else _loss_remedies(version)
    return Probe("nsys", version, str(nsys), "; ".join(lacks))


def ncu_probe() -> Probe:
    """The ncu on the PATH, else the newest under Nsight Compute's folder."""
    place = shutil.which("ncu") or _newest("*/ncu", NSIGHT_COMPUTE)
    if not place:
        return Probe("ncu", "", remedy="install Nsight Compute (package nsight-compute)")
    return Probe("ncu", _version(place), place, counter_remedy())


def bundled_remedies(nsys: Path) -> list[str]:
    """What Nsight Compute's nsys lacks before it can import its reports: a link to the importer, and two libraries."""
    host = nsys.parent.parent
    importers = sorted(host.glob("linux-desktop-glibc_*"))
    link = host / "host-linux-x64"
    remedies = []
    if importers and not link.exists():
        remedies.append(f"ln -sfn {importers[-1].name} {link}")
    missing = [
        package for library, package in (("dw", "libdw1"), ("elf", "libelf1")) if not ctypes.util.find_library(library)
    ]
    if missing:
        remedies.append(f"apt-get install {' '.join(missing)}")
    return remedies


def counter_remedy(parameters: Path = NVIDIA_PARAMETERS) -> str:
    """Whether the driver lets ordinary users read GPU counters, as ncu and nsys --gpu-metrics need."""
    if "RmProfilingAdminOnly: 1" not in _text(parameters) or _is_root():
        return ""
    return (
        "GPU counters are for root only: run ncu as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    )


def gpu_probes() -> tuple[Probe, ...]:
    """One per GPU that nvidia-smi lists, with its clocks."""
    if not shutil.which("nvidia-smi"):
        return ()
    query = "index,name,driver_version,clocks.sm,clocks.max.sm,mig.mode.current"
    listed = _output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    return tuple(_gpu(line) for line in listed.splitlines() if line.count(",") == query.count(","))


def sampling_probe(path: Path = PARANOIA) -> Probe:
    """Whether the kernel lets nsys sample CPU stacks and context switches."""
    level = _text(path).strip()
    enough = level.lstrip("-").isdigit() and (int(level) <= 2 or _is_root())
    remedy = "" if enough else "nsys cannot sample the CPU: sysctl kernel.perf_event_paranoid=2"
    return Probe("CPU sampling", f"perf_event_paranoid {level}" if level else "unknown", str(path), remedy)


def _gpu(line: str) -> Probe:
    index, name, driver, clock, most, mig = (part.strip() for part in line.split(","))
    partitioned = f", MIG {mig}" if mig == "Enabled" else ""
    return Probe(f"GPU {index}", f"{name}, driver {driver}, SM clock {clock} of {most}{partitioned}")


def _program(name: str, remedy: str) -> Probe:
    place = shutil.which(name)
    return Probe(name, _version(place), place) if place else Probe(name, "", remedy=remedy)


def _loss_remedies(version: str) -> list[str]:
    if version and _numbers(version) < (2024,):
        return [f"nsys {version} loses most kernels of CUDA 13 programs: use Nsight Systems 2025.1 or later for them"]
    return []


def _newest(pattern: str, folder: Path) -> str:
    found = list(folder.glob(pattern))
    return str(max(found, key=lambda path: _numbers(str(path)))) if found else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _version(program: str) -> str:
    said = _output([program, "--version"])
    numbers = _VERSION.findall(said)
    return max(numbers, key=len) if numbers else "found, but it states no version"


def _output(arguments: list[str]) -> str:
    """What a program prints; empty where it fails or takes too long."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_root() -> bool:
    import os

    return hasattr(os, "geteuid") and os.geteuid() == 0
