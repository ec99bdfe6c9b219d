"""What a result keeps of one report of `timesink verify`, and of the machine it was made on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def measured(told: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Verdict, step times in ms and their ratio, from the JSON report of a verification over that many pairs."""
    metric = told["metrics"][0]
    return {
        "outcome": told["outcome"], "headline": told["headline"], "pairs": pairs,
        "before_ms": metric["before"] * 1e3 if metric["before"] else None,
        "after_ms": metric["after"] * 1e3 if metric["after"] else None,
        "effect": metric["verdict"]["effect"], "run_sd_ratio": metric["verdict"]["run_sd_ratio"],
        "reason": metric["verdict"]["reason"], "notes": metric["verdict"]["notes"],
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """GPU, driver and versions."""
    import torch

    asked = "name,driver_version,clocks.max.sm,power.limit,memory.total"
    try:
        words = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
        gpu = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except FileNotFoundError:
        gpu = ""
    return {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda,
            "python": sys.version.split()[0]}  # fmt: skip
