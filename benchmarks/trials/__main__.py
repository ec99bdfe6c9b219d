"""Trials of the scripts of this folder, or with `--ladders` of the programs of the ladders, one after another.

python -m benchmarks.trials out/ [--only nanogpt,policy] [--ladders] [--budget 180] [--seconds 540]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.ladders.suite import LADDERS, Ladder

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


def programs(ladders: bool) -> dict[str, tuple[list[str], list[str]]]:
    """Of each its command and the options of its trial."""
    if ladders:
        return {
            ladder.name: (
                [sys.executable, "-m", "benchmarks.trials.ladder_script", ladder.name],
                [
                    "--only",
                    ",".join((*(name for name in ladder.changes if name in SWITCHABLE), *of_compile(ladder))),
                ],
            )
            for ladder in LADDERS
            if SWITCHABLE & set(ladder.changes)
        }
    found = {name: ([sys.executable, str(HERE / f"{name}.py")], []) for name in SCRIPTS}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    found["ddp"] = ([sys.executable, *launcher, str(HERE / "ddp.py")], [])
    return found | {f"trap_{kind}": ([sys.executable, str(HERE / "traps.py"), kind], []) for kind in TRAPS}


def of_compile(ladder: Ladder) -> list[str]:
    """Programs of the ladders compile their repeated blocks."""
    return ["compile_blocks"] if "compile" in ladder.changes else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--ladders", action="store_true")
    parser.add_argument("--budget", default="180")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no trial after so long")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for name, (command, options) in programs(given.ladders).items():
        if (given.only and name not in given.only.split(",")) or time.monotonic() - began > given.seconds:
            continue
        started, page = time.monotonic(), given.out / f"{name}.json"
        line = [sys.executable, "-m", "timesink", "try", "--quiet", "--budget", given.budget, *options]
        with (given.out / f"{name}.txt").open("wb") as log:
            ran = subprocess.run(
                [*line, "--format", "json", "-o", str(page), "--", *command],
                stdout=log, stderr=subprocess.STDOUT, check=False, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        said = (given.out / f"{name}.txt").read_text()[-500:]
        note = json.loads(page.read_text())["notes"][:1] if page.exists() else said
        print(f"{name}: exit {ran.returncode} in {time.monotonic() - started:.0f} s: {note}", flush=True)


if __name__ == "__main__":
    main()
