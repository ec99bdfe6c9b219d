"""Capture compiled programs and training loops with one slow step on real GPUs, each in a process of its own.

    python benchmarks/compile_on_gpu.py OUTDIR [--gpus N] [--seconds 200] [--dry]

Needs PyTorch with CUDA and Triton; of timesink only the capture package. Programs for two GPUs are left out where there
is one. Writes OUTDIR/compile.tar: traces (.json.xz), TORCH_TRACE logs, TORCH_LOGS text, what was measured.
OUTDIR/results.json says how every program ended.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_pool import Pool  # noqa: E402

SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
PROGRAMS = (
    "layer_breaks", "layer_breaks_training", "layer_breaks_wide", "reduce_overhead", "int_argument", "dynamic_shape",
    "print_break", "item_break",
)  # fmt: skip
SPIKES = ("recompile,gc,gc_marked,none", "empty_cache,allocator_retry,checkpoint,slow_batch")
CAPTURED = ("gc,none", "gc_again,slow_batch", "checkpoint,recompile")
ON_TWO = (
    ("program", "collective_break", "broken"), ("program", "collective_break", "fixed"),
    ("spike", "late_peer,none_on_two", "0"),
)  # fmt: skip
LARGEST_TAR_BYTES = 15_500_000
Job = tuple[str, str, str]


def jobs(gpus: int) -> list[tuple[Job, int]]:
    """Every program with the number of GPUs it needs, those for two first."""
    two = [(job, 2) for job in ON_TWO] if gpus > 1 else []
    one = [("program", name, variant) for name in PROGRAMS for variant in ("broken", "fixed")]
    slow = [("spike", kinds, "0") for kinds in SPIKES] + [("captured", kinds, "0") for kinds in CAPTURED]
    return [*two, *((job, 1) for job in (*slow, *one))]


def environment(gpus: list[int], port: int, logs: Path) -> dict[str, str]:
    return {
        **os.environ, **SAFE,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "TORCH_TRACE": str(logs),
        "TORCH_LOGS": "graph_breaks,recompiles,guards,perf_hints",
        "TORCHINDUCTOR_CACHE_DIR": str(logs / "cache"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "TORCHDYNAMO_EXTENDED_ADVICE": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def launch(job: Job, gpus: list[int], work: Path, port: int, limit_s: float, dry: bool) -> dict[str, object]:
    """Run every rank of one program; the row says how it ended."""
    begin, stem = time.monotonic(), f"{job[1]}.{job[2]}"
    logs = work / f"{stem}.trace"
    logs.mkdir()
    command = [sys.executable, "-m", "benchmarks.compiling.worker", *job, str(work), *(["--dry"] if dry else [])]
    ranks = []
    for number in range(len(gpus)):
        place = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(len(gpus))}
        env = environment(gpus, port, logs) | (place if len(gpus) > 1 else {})
        with (work / f"{stem}.rank{number}.log").open("w") as text, (work / f"{stem}.out").open("w") as said:
            ranks.append(subprocess.Popen(command, cwd=work, env=env, stdout=said, stderr=text))
    codes = []
    for process in ranks:
        try:
            codes.append(process.wait(timeout=max(1.0, limit_s - (time.monotonic() - begin))))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    row = {"job": list(job), "exit": codes, "wall_s": round(time.monotonic() - begin, 1)}
    if any(codes):
        row["error"] = (work / f"{stem}.rank0.log").read_text()[-1200:]
    return row


def pack(work: Path, out: Path) -> None:
    """Traces, logs and measurements into one archive, the least needed left out where it would be too large."""
    wanted = [p for p in sorted(work.rglob("*")) if p.suffix in (".json", ".log") and "cache" not in p.parts]
    wanted.sort(key=lambda path: (path.suffix == ".json" and ".1.rank" in path.name, path.name))
    packed = out / "packed"
    packed.mkdir(exist_ok=True)

    def press(path: Path) -> tuple[Path, bytes]:
        return path, lzma.compress(path.read_bytes(), preset=7)

    total, left_out = 0, []
    with tarfile.open(out / "compile.tar", "w") as tar, ThreadPoolExecutor(8) as threads:
        for path, data in threads.map(press, wanted):
            if total + len(data) > LARGEST_TAR_BYTES:
                left_out.append(path.name)
                continue
            total += len(data) + 1024
            small = packed / f"{path.relative_to(work)}.xz".replace("/", "__")
            small.write_bytes(data)
            tar.add(small, arcname=f"compile/{path.relative_to(work)}.xz")
            small.unlink()
    packed.rmdir()
    print(f"packed {total} bytes; left out: {left_out}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    given.outdir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="compiling-"))
    pool, rows, deadline_s = Pool(given.gpus), [], time.monotonic() + given.seconds

    def run(job: Job, gpus: list[int], port: int) -> None:
        try:
            row = launch(job, gpus, work, port, min(90.0, deadline_s - time.monotonic()), given.dry)
        finally:
            pool.give(gpus)
        rows.append(row)
        print(json.dumps(row), flush=True)

    workers = []
    for number, (job, count) in enumerate(jobs(given.gpus)):
        if given.only not in job[1]:
            continue
        gpus = pool.take(count)
        if time.monotonic() > deadline_s:
            print(f"out of time before {job}", flush=True)
            pool.give(gpus)
            break
        workers.append(threading.Thread(target=run, args=(job, gpus, 29700 + number)))
        workers[-1].start()
    for worker in workers:
        worker.join()
    rows.sort(key=lambda row: str(row["job"]))
    (given.outdir / "results.json").write_text(json.dumps(rows, indent=1))
    pack(work, given.outdir)


if __name__ == "__main__":
    main()
