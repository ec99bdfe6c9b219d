"""Measure the memory of every program in benchmarks/memory/configurations.py, each in a process of its own.

usage: python benchmarks/memory_on_gpu.py OUTDIR [--gpus N] [--only TEXT] [--minutes M]

Needs PyTorch with CUDA and nothing of timesink. Programs for two GPUs are left out where there is one. Writes
OUTDIR/<name>.json (peaks by phase, device use, addresses by kind), OUTDIR/<name>.pickle.xz (the allocator's snapshot
of rank 0), OUTDIR/<name>.log, and OUTDIR/results.json (one row per program).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_pool import Pool  # noqa: E402
from benchmarks.memory.configurations import CONFIGURATIONS  # noqa: E402


def ranks_of(config: dict[str, Any]) -> int:
    return int(config.get("parallel", {}).get("data", 1))


def launch(config: dict[str, Any], gpus: list[int], outdir: Path, port: int, timeout_s: float) -> dict[str, Any]:
    """Run every rank of one program; the row says how it ended."""
    started = time.monotonic()
    place = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCH_SYMBOLIZE_MODE": "dladdr",
        "NCCL_NVLS_ENABLE": "0",
        "WORLD_SIZE": str(len(gpus)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with (outdir / f"{config['name']}.log").open("w") as log:
        command = [sys.executable, "-m", "benchmarks.memory.program", config["name"], str(outdir)]
        ranks = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for rank in range(len(gpus))
        ]
        codes = []
        for process in ranks:
            try:
                codes.append(process.wait(timeout=max(1.0, timeout_s - (time.monotonic() - started))))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
    return {"name": config["name"], "exit": codes, "wall_s": round(time.monotonic() - started, 1)}


def row_of(row: dict[str, Any], outdir: Path, ranks: int) -> dict[str, Any]:
    path = outdir / f"{row['name']}.json"
    if ranks > 1:
        path = outdir / f"{row['name']}.rank0.json"
    if not path.is_file():
        return row
    measured = json.loads(path.read_text())
    keys = ("peak_bytes", "peak_reserved_bytes", "device_used_bytes", "context_bytes", "parameters", "seconds")
    return {**row, **{key: measured[key] for key in keys}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    given.outdir.mkdir(parents=True, exist_ok=True)
    chosen = [c for c in CONFIGURATIONS if given.only in c["name"] and ranks_of(c) <= given.gpus]
    chosen.sort(key=ranks_of, reverse=True)
    pool, lock, rows = Pool(given.gpus), threading.Lock(), []
    deadline_s = time.monotonic() + given.minutes * 60

    def work(config: dict[str, Any], gpus: list[int], port: int) -> None:
        try:
            row = launch(config, gpus, given.outdir.resolve(), port, min(90.0, deadline_s - time.monotonic()))
        finally:
            pool.give(gpus)
        row = row_of(row, given.outdir, len(gpus))
        with lock:
            rows.append(row)
            print(json.dumps(row), flush=True)

    workers = []
    for number, config in enumerate(chosen):
        gpus = pool.take(ranks_of(config))
        if time.monotonic() > deadline_s:
            print(f"out of time before {config['name']}", flush=True)
            break
        workers.append(threading.Thread(target=work, args=(config, gpus, 29600 + number)))
        workers[-1].start()
    for worker in workers:
        worker.join()
    rows.sort(key=lambda row: str(row["name"]))
    (given.outdir / "results.json").write_text(json.dumps(rows, indent=1))
    for row in rows:
        if any(row["exit"]):
            print(row["name"], (given.outdir / f"{row['name']}.log").read_text()[-1500:])


if __name__ == "__main__":
    main()
