"""What the program runs with: the processors it may use, switches of torch, and what chooses its kernels."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def program_settings() -> dict[str, str]:
    """What this process runs with: `cpus` it may use, `threads` of one operator, `ranks_here` on this machine, each
    switch of torch as on or off, and what chooses its kernels."""
    found = {"cpus": str(usable_cpus())}
    if os.environ.get("LOCAL_WORLD_SIZE", "").isdigit():
        found["ranks_here"] = os.environ["LOCAL_WORLD_SIZE"]
    found["launch_blocking"] = _switch(os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"))
    torch = sys.modules.get("torch")
    for told in (_switches, _kernel_choices) if torch is not None else ():
        with suppress(AttributeError, RuntimeError):  # another version has other switches
            found |= told(torch)
    return found


def _switches(torch: Any) -> dict[str, str]:
    cudnn = torch.backends.cudnn
    return {
        "threads": str(torch.get_num_threads()),
        "anomaly_mode": _switch(torch.is_anomaly_enabled()),
        "deterministic": _switch(torch.are_deterministic_algorithms_enabled()),
        "cudnn_deterministic": _switch(cudnn.deterministic),
        "cudnn_benchmark": _switch(cudnn.benchmark),
    }


def _kernel_choices(torch: Any) -> dict[str, str]:
    """What decides which kernels run: attention backends that may be chosen, fp32 products, graphs compiled so far."""
    kinds = ("flash", "mem_efficient", "cudnn", "math")
    allowed = {kind: getattr(torch.backends.cuda, f"{kind}_sdp_enabled", lambda: False)() for kind in kinds}
    return {
        "compiled_graphs": str(count_graphs()),
        "attention": ", ".join(kind for kind in kinds if allowed[kind]) or "none",
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


def count_graphs() -> int:
    """How many graphs `torch.compile` has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


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
