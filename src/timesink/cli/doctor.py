"""`timesink doctor`: versions, and what would keep a capture from working or make its times doubtful.

A `Probe` is one thing that is looked at, by running a program or by reading a file: profilers, the permissions that the
driver and the kernel grant them, GPUs, the container, disks.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.records import Record
from timesink.untrusted import numbers_in, stated_version
from timesink.untrusted.nvidia_tools import ask, find_tool, importer_link

if TYPE_CHECKING:
    from timesink.views import Page

LIBRARIES = ("polars", "numpy", "scipy", "pyarrow", "isal", "click", "rich", "torch")


def doctor_page() -> Page:
    """What is installed, what works as it is, and what to do for the rest."""
    from timesink.views import Page, listed

    probes = (*tool_probes(), *gpu_probes(), sampling_probe(), container_probe(), *disk_probes())
    tools = ((one.name, one.is_ready, one.found or "nothing", one.place or None) for one in probes)
    to_do = ((one.name, one.remedy) for one in probes if one.remedy)
    versions = [("timesink", _installed("timesink"), _native()), ("Python", platform.python_version(), sys.executable)]
    versions.append(("system", platform.system(), platform.release()))
    versions += [(name, _installed(name), "") for name in LIBRARIES]
    sheets = (
        listed("doctor.tools", tools),
        listed("doctor.to_do", to_do),
        listed("doctor.versions", versions),
    )
    return Page("timesink doctor", sheets)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _native() -> str:
    from timesink import _native

    return f"compiled part {_native.__file__}"


class Probe(Record):
    """What was found (empty: nothing), where, and what to do where that is not enough."""

    name: str
    found: str
    place: str = ""
    remedy: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it works as it is."""
        return bool(self.found) and not self.remedy


def text_of(path: Path) -> str:
    """What a file holds; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
PARANOIA = Path("/proc/sys/kernel/perf_event_paranoid")
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
    stated = _version(str(nsys))
    lacks = bundled_remedies(nsys) if "nsight-compute" in nsys.parts else _loss_remedies(stated)
    return Probe("nsys", stated, str(nsys), "; ".join(lacks))


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


def _loss_remedies(stated: str) -> list[str]:
    if stated and numbers_in(stated) < _LOSES_KERNELS:
        return [f"nsys {stated} loses most kernels of CUDA 13 programs: use Nsight Systems 2025.1 or later for them"]
    return []


def _version(program: str) -> str:
    return stated_version(ask([program, "--version"])) or "found, but it states no version"


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


LEAST_FREE_BYTES = 2 << 30
LEAST_SHARED_BYTES = 1 << 30
_CAP_SYS_ADMIN, _CAP_SYS_PTRACE = 21, 19
_GIB = 1 << 30
_GPU_QUERY = (
    "index,name,driver_version,clocks.sm,clocks.max.sm,clocks.applications.graphics,persistence_mode,mig.mode.current"
)
# nvmlClocksEventReasons: what holds a clock down, apart from an idle GPU and from clocks set on purpose.
_SLOWING = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


def gpu_probes() -> tuple[Probe, ...]:
    """One per GPU that nvidia-smi lists: clocks, what slows them, MIG."""
    if not shutil.which("nvidia-smi"):
        return ()
    listed = ask(["nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader"])
    reasons = _reasons()
    lines = [line for line in listed.splitlines() if line.count(",") == _GPU_QUERY.count(",")]
    return tuple(gpu_probe(line, reasons.get(line.partition(",")[0].strip(), 0)) for line in lines)


def gpu_probe(line: str, reasons: int = 0) -> Probe:
    """One GPU from its line of nvidia-smi, and the bits of what holds its clock down."""
    index, name, driver, clock, most, _, persistence, mig = (part.strip() for part in line.split(","))
    slowed = [why for bit, why in _SLOWING.items() if reasons & bit]
    remedies = []
    if slowed:
        remedies.append(f"its clock is held down by {', '.join(slowed)}: times taken now are not its usual ones")
    if mig == "Enabled":
        remedies.append("MIG is on: ncu profiles one instance without GPU-wide counters; nsys has no GPU metrics")
    if persistence == "Disabled":
        remedies.append("persistence mode is off, so first calls are slow: nvidia-smi -pm 1")
    found = f"{name}, driver {driver}, SM clock {clock} of {most}"
    return Probe(f"GPU {index}", found, remedy="; ".join(remedies))


def _reasons() -> dict[str, int]:
    """The reasons' bits by GPU index; older drivers know the field by another name."""
    for field in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        rows = ask(["nvidia-smi", f"--query-gpu=index,{field}", "--format=csv,noheader"]).splitlines()
        pairs = [row.partition(",")[::2] for row in rows]
        found = {index.strip(): int(bits, 16) for index, bits in pairs if bits.strip().startswith("0x")}
        if found:
            return found
    return {}


def container_probe(root: Path = Path("/")) -> Probe:
    """Whether this is a container, and what it withholds: capabilities, shared memory, memory."""
    status = text_of(root / "proc/self/status")
    capable = int(next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0"), 16)
    inside = (root / ".dockerenv").exists() or (root / "run/.containerenv").exists() or _in_cgroup(root)
    remedies = []
    if inside and not capable >> _CAP_SYS_ADMIN & 1:
        remedies.append("GPU counters may be refused (ERR_NVGPUCTRPERM): start it with --cap-add SYS_ADMIN")
    if inside and not capable >> _CAP_SYS_PTRACE & 1:
        remedies.append("CPU sampling may be refused: start it with --cap-add SYS_PTRACE")
    memory = root / "dev/shm"
    if memory.is_dir() and (shared := shutil.disk_usage(memory).total) < LEAST_SHARED_BYTES:
        remedies.append(f"/dev/shm has {shared >> 20} MiB, and DataLoader workers use it: start it with --shm-size 8g")
    found = "inside one" if inside else "none"
    if limit := memory_limit(root):
        found += f", memory limit {limit / _GIB:.1f} GiB"
    return Probe("container", found, remedy="; ".join(remedies))


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the control group allows, version 2 or 1; None without a limit."""
    for place in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = text_of(root / place).strip()
        if text.isdigit() and int(text) < 1 << 60:  # version 1 writes "none" as a huge number
            return int(text)
    return None


def disk_probes(folder: Path | None = None) -> tuple[Probe, ...]:
    """Room where captures go, and where nsys and ncu keep their raw data meanwhile."""
    places = (("disk for captures", folder or Path.cwd()), ("disk for raw data", Path(tempfile.gettempdir())))
    return tuple(_disk(name, place) for name, place in places)


def _disk(name: str, place: Path) -> Probe:
    free = shutil.disk_usage(place).free
    remedies = []
    if free < LEAST_FREE_BYTES:
        variable = "--output" if name == "disk for captures" else "TMPDIR"
        remedies.append(f"a capture may need {LEAST_FREE_BYTES / _GIB:.0f} GiB: point {variable} elsewhere")
    if not os.access(place, os.W_OK):
        remedies.append("it cannot be written to")
    return Probe(name, f"{free / _GIB:.1f} GiB free", str(place), "; ".join(remedies))


def _in_cgroup(root: Path) -> bool:
    groups = text_of(root / "proc/1/cgroup")
    return any(word in groups for word in ("docker", "kubepods", "containerd", "libpod", "lxc"))
