"""What around the tools keeps a capture from working or makes its times doubtful: containers, disks, clocks, MIG."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from timesink.cli.probe import Probe, output_of, text_of

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
    listed = output_of(["nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader"])
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
        rows = output_of(["nvidia-smi", f"--query-gpu=index,{field}", "--format=csv,noheader"]).splitlines()
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
    shared = _size_of(root / "dev/shm")
    if shared is not None and shared < LEAST_SHARED_BYTES:
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
        variable = "--out" if name == "disk for captures" else "TMPDIR"
        remedies.append(f"a capture may need {LEAST_FREE_BYTES / _GIB:.0f} GiB: point {variable} elsewhere")
    if not os.access(place, os.W_OK):
        remedies.append("it cannot be written to")
    return Probe(name, f"{free / _GIB:.1f} GiB free", str(place), "; ".join(remedies))


def _in_cgroup(root: Path) -> bool:
    groups = text_of(root / "proc/1/cgroup")
    return any(word in groups for word in ("docker", "kubepods", "containerd", "libpod", "lxc"))


def _size_of(place: Path) -> int | None:
    return shutil.disk_usage(place).total if place.is_dir() else None
