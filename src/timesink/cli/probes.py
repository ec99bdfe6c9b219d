"""Which profilers are on this machine, and whether the driver and the kernel let them work."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from timesink.cli.probe import Probe, output_of, text_of
from timesink.tool_places import find_tool, importer_link

NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
PARANOIA = Path("/proc/sys/kernel/perf_event_paranoid")
_VERSION = re.compile(r"\d+\.\d+[\w.\-]*")
_LOSES_KERNELS = (2024,)


def tool_probes() -> tuple[Probe, ...]:
    """nsys, ncu and nvidia-smi."""
    return (
        nsys_probe(),
        ncu_probe(),
        _program("nvidia-smi", "install the NVIDIA driver, or run on a machine with a GPU"),
    )


def nsys_probe(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Probe:
    """The nsys that readers and captures use; where it is the one Nsight Compute carries, what it still lacks."""
    nsys = find_tool("nsys", environment, root)
    if nsys is None:
        remedy = "install Nsight Systems (package nsight-systems), or Nsight Compute, which carries one"
        return Probe("nsys", "", remedy=remedy)
    version = _version(str(nsys))
    lacks = bundled_remedies(nsys) if "nsight-compute" in nsys.parts else _loss_remedies(version)
    return Probe("nsys", version, str(nsys), "; ".join(lacks))


def ncu_probe(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Probe:
    """The ncu that captures use, and whether it may read counters."""
    place = find_tool("ncu", environment, root)
    if place is None:
        return Probe("ncu", "", remedy="install Nsight Compute (package nsight-compute)")
    return Probe("ncu", _version(str(place)), str(place), counter_remedy())


def bundled_remedies(nsys: Path) -> list[str]:
    """What Nsight Compute's nsys lacks before it can import its reports: a link to the importer, and two libraries."""
    link = importer_link(nsys)
    remedies = [] if link is None else [f"ln -sfn {link[1]} {link[0]}"]
    missing = [
        package for library, package in (("dw", "libdw1"), ("elf", "libelf1")) if not ctypes.util.find_library(library)
    ]
    if missing:
        remedies.append(f"apt-get install {' '.join(missing)}")
    return remedies


def counter_remedy(parameters: Path = NVIDIA_PARAMETERS, is_root: bool | None = None) -> str:
    """Whether the driver lets ordinary users read GPU counters, as ncu and nsys --gpu-metrics need."""
    if "RmProfilingAdminOnly: 1" not in text_of(parameters) or (_is_root() if is_root is None else is_root):
        return ""
    return (
        "GPU counters are for root only (ERR_NVGPUCTRPERM): run ncu as root, or have the administrator write 'options "
        "nvidia NVreg_RestrictProfilingToAdminUsers=0' to /etc/modprobe.d/nvidia.conf and reload the driver"
    )


def sampling_probe(path: Path = PARANOIA) -> Probe:
    """Whether the kernel lets nsys sample CPU stacks and context switches."""
    level = text_of(path).strip()
    enough = level.lstrip("-").isdigit() and (int(level) <= 2 or _is_root())
    remedy = "" if enough else "nsys cannot sample the CPU: sysctl kernel.perf_event_paranoid=2"
    return Probe("CPU sampling", f"perf_event_paranoid {level}" if level else "unknown", str(path), remedy)


def _program(name: str, remedy: str) -> Probe:
    place = shutil.which(name)
    return Probe(name, _version(place), place) if place else Probe(name, "", remedy=remedy)


def _loss_remedies(version: str) -> list[str]:
    if version and tuple(int(part) for part in re.findall(r"\d+", version)) < _LOSES_KERNELS:
        return [f"nsys {version} loses most kernels of CUDA 13 programs: use Nsight Systems 2025.1 or later for them"]
    return []


def _version(program: str) -> str:
    numbers = _VERSION.findall(output_of([program, "--version"]))
    return max(numbers, key=len) if numbers else "found, but it states no version"


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
