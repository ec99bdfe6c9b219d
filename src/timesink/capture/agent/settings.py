"""Settings of a running program that decide how fast it runs and that no profiler records, as short texts by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def program_settings() -> dict[str, str]:
    """What this process runs with: `cpus` it may use, `threads` of one operator, `ranks_here` on this machine, and each
    switch of torch as on or off."""
    found = {"cpus": str(usable_cpus())}
    if os.environ.get("LOCAL_WORLD_SIZE", "").isdigit():
        found["ranks_here"] = os.environ["LOCAL_WORLD_SIZE"]
    found["launch_blocking"] = _switch(os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"))
    torch = sys.modules.get("torch")
    try:
        return {**found, **(_of_torch(torch) if torch is not None else {})}
    except (AttributeError, RuntimeError):  # another version has other switches
        return found


def _of_torch(torch: Any) -> dict[str, str]:
    cudnn = torch.backends.cudnn
    return {
        "threads": str(torch.get_num_threads()),
        "anomaly_mode": _switch(torch.is_anomaly_enabled()),
        "deterministic": _switch(torch.are_deterministic_algorithms_enabled()),
        "cudnn_deterministic": _switch(cudnn.deterministic),
        "cudnn_benchmark": _switch(cudnn.benchmark),
    }


def _switch(is_on: bool) -> str:
    return "on" if is_on else "off"


def usable_cpus() -> int:
    """Processors this process may use: those it is bound to, or fewer where its container is given less time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return max(1, min(bound, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no container of that kind, or "max"
        return bound
