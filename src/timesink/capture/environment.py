"""What a second person needs to know of the machine, and no more: allow-lists, never the whole environment."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

_PATIENCE_S = 20.0
GPU_FIELDS = (
    "index",
    "name",
    "driver_version",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.limit",
    "power.draw",
    "temperature.gpu",
    "persistence_mode",
    "compute_mode",
    "mig.mode.current",
    "compute_cap",
)


def gpus() -> list[dict[str, str]]:
    """One entry per GPU that nvidia-smi lists; none where it is absent."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    text = output([tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(GPU_FIELDS)]


def cuda_version() -> str:
    """The newest CUDA the driver can run, as nvidia-smi states it; empty where it does not."""
    tool = shutil.which("nvidia-smi")
    found = re.search(r"CUDA Version\s*:\s*([\d.]+)", output([tool, "-q", "-d", "COMPUTE"])) if tool else None
    return found.group(1) if found else ""


def git_state(folder: Path) -> dict[str, object]:
    """Commit and whether tracked files differ from it; empty outside a repository."""
    tool = shutil.which("git")
    if tool is None:
        return {}
    commit = output([tool, "-C", str(folder), "rev-parse", "HEAD"]).strip()
    if not commit:
        return {}
    changed = output([tool, "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "is_dirty": bool(changed.strip()), "changed_files": len(changed.splitlines())}


def machine() -> dict[str, object]:
    """System, processor and memory; no host name."""
    found: dict[str, object] = {"system": f"{platform.system()} {platform.release()}", "cpus": os.cpu_count() or 0}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {**found, "processor": model} if model else found


def output(argv: list[str]) -> str:
    """What a program prints; empty where it fails, is slow or is not there."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
