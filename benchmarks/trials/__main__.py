"""Trials of the scripts of this folder, of its traps, or with `--healthy` of programs with nothing to win.

python -m benchmarks.trials out/ [--only nanogpt,policy] [--healthy] [--budget 180] [--seconds 540] [--gpus 4]
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

from benchmarks.faults.suite import FAULTS, SIZES

HERE = Path(__file__).parent
SCRIPTS = (
    "hf_language", "hf_images", "nanogpt", "timm_ema", "lightning_module", "accelerate_loop", "diffusion", "policy",
    "batch_inference", "ddp",
)  # fmt: skip
TRAPS = ("diverges", "unpicklable", "recompiles", "hooks", "memory")
SWITCHABLE = frozenset(
    {"bf16", "tf32", "channels_last", "fused_optimizer", "loader_workers", "pin_memory", "no_recomputation", "compile"}
    | {"drop_debugging"}
)


def programs(healthy: bool) -> dict[str, list[str]]:
    """Of each its command: the scripts and traps, or the healthy programs of the suite at their largest."""
    if healthy:
        return {
            fault.name: [sys.executable, "-m", "benchmarks.trials.suite_script", fault.name, SIZES[0]]
            for fault in FAULTS
            if fault.healthy and fault.gpus == 1
        }
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    found = {name: [sys.executable, str(HERE / f"{name}.py")] for name in SCRIPTS}
    found["ddp"][1:1] = launcher
    return found | {f"trap_{kind}": [sys.executable, str(HERE / "traps.py"), kind] for kind in TRAPS}


def run(name: str, command: list[str], gpu: int, given: argparse.Namespace) -> None:
    """One trial; its page and what it printed go to files, a line to the screen."""
    started, page, log = time.monotonic(), given.out / f"{name}.json", given.out / f"{name}.txt"
    line = [sys.executable, "-m", "timesink", "try", "--quiet", "--budget", given.budget]
    visible = {"CUDA_VISIBLE_DEVICES": str(gpu)} if given.gpus > 1 and "torch.distributed.run" not in command else {}
    with log.open("wb") as file:
        ran = subprocess.run(
            [*line, "--format", "json", "-o", str(page), "--", *command],
            stdout=file, stderr=subprocess.STDOUT, check=False, env={**os.environ, **visible, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    note = json.loads(page.read_text())["lede"] if page.exists() else log.read_text()[-500:]
    print(f"{name}: exit {ran.returncode} in {time.monotonic() - started:.0f} s: {note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--budget", default="180")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no trial after so long")
    parser.add_argument("--gpus", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began, waiting = time.monotonic(), queue.SimpleQueue[tuple[str, list[str]]]()
    for name, command in programs(given.healthy).items():
        if not given.only or name in given.only.split(","):
            waiting.put((name, command))

    def work(gpu: int) -> None:
        while time.monotonic() - began < given.seconds:
            try:
                name, command = waiting.get_nowait()
            except queue.Empty:
                return
            run(name, command, gpu, given)

    workers = [Thread(target=work, args=(gpu,)) for gpu in range(given.gpus)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
