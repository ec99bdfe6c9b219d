"""Check verdicts on a real GPU: A/A verifications must stay quiet, planted slow-downs must be found.

usage: PYTHONPATH=src python benchmarks/verify_on_gpu.py OUTDIR [--gpus N] [--first-gpu I] [--minutes M] [--threshold T]

Needs nvcc, NumPy and SciPy. Every run is a fresh process of a compiled program. Writes OUTDIR/results.json (one entry
per verification), OUTDIR/steps.npz (raw step times in seconds: <job>_<run>_<side>) and OUTDIR/nvidia_smi.txt.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timesink.errors import TimesinkError
from timesink.records import as_plain
from timesink.verify.environment import Command
from timesink.verify.experiment import ExperimentPlan, verify
from timesink.verify.gpu_watch import GpuWatch
from timesink.verify.outcomes import RunRow
from timesink.verify.runs import Launcher, StepsFile

HERE = Path(__file__).resolve().parent
STEPS = 150
JOBS = [0.0, 0.02, 0.0, 0.03, 0.0, 0.05, 0.0] * 3 + [0.02, 0.0, 0.03, 0.0] * 2 + [0.0] * 4  # 20 without a change


class OutOfTime(Exception):
    pass


@dataclass(frozen=True)
class Bench:
    program: Path
    threshold_ratio: float
    deadline_s: float

    def one(self, job: int, planted: float, gpu: int, folder: Path) -> dict[str, object]:
        """One verification on one GPU; raises OutOfTime past the deadline."""
        place = {"CUDA_VISIBLE_DEVICES": str(gpu), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        commands = {
            "before": Command((str(self.program), str(STEPS), "0"), place),
            "after": Command((str(self.program), str(STEPS), f"{planted:.4f}"), place),
        }
        started = time.monotonic()
        with GpuWatch(folder, str(gpu)) as watch:
            session = Launcher(commands, StepsFile(), folder, watch, timeout_s=60)

            def launch(side: str, number: int) -> RunRow:
                if time.monotonic() > self.deadline_s:
                    raise OutOfTime
                return session.launch(side, number)

            done = verify(ExperimentPlan(threshold_ratio=self.threshold_ratio), launch)
            return {
                "job": job,
                "planted_ratio": planted,
                "gpu": gpu,
                "wall_s": round(time.monotonic() - started, 2),
                "watch_absent": watch.absent,
                "verdict": as_plain(done.verdict),
                "notes": done.notes,
                "runs": [as_plain(row) for pair in done.pairs for row in pair],
            }


def raw_steps(folder: Path, job: int) -> dict[str, np.ndarray]:
    """The step times of every finished run of a job, as written by the program."""
    kept = {}
    for path in sorted(folder.glob("run*/steps.jsonl")):
        seconds = [json.loads(line)["seconds"] for line in path.read_text().splitlines()]
        kept[f"{job:02d}_{path.parent.name}"] = np.array(seconds)
    return kept


def work(
    bench: Bench, jobs: queue.Queue[tuple[int, float]], gpu: int, results: list[dict], steps: dict, lock: threading.Lock
) -> None:
    while time.monotonic() < bench.deadline_s:
        try:
            job, planted = jobs.get_nowait()
        except queue.Empty:
            return
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                result = bench.one(job, planted, gpu, folder)
            except OutOfTime:
                return
            except TimesinkError as failed:
                result = {"job": job, "planted_ratio": planted, "gpu": gpu, "error": str(failed)}
            raw = raw_steps(folder, job)
            log = folder / "nvidia_smi.csv"
            result["nvidia_smi_tail"] = log.read_text()[-600:] if log.is_file() else ""
        with lock:
            results.append(result)
            steps.update(raw)
            verdict = result.get("verdict") or {}
            print(
                f"gpu {gpu} job {job:2d} planted {planted:.0%}: {verdict.get('outcome', result.get('error'))}",
                verdict.get("effect"),
                result.get("wall_s"),
                flush=True,
            )


def smi(*asked: str) -> str:
    try:
        done = subprocess.run(["nvidia-smi", *asked], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as absent:
        return f"$ nvidia-smi {' '.join(asked)}\n{absent}\n"
    return f"$ nvidia-smi {' '.join(asked)}\n{done.stdout}{done.stderr}\n"


def summary(results: list[dict]) -> dict[str, dict[str, int]]:
    """Outcomes by planted slow-down."""
    table: dict[str, dict[str, int]] = {}
    for result in results:
        row = table.setdefault(f"{result['planted_ratio']:.2f}", {})
        outcome = str((result.get("verdict") or {}).get("outcome", "error"))
        row[outcome] = row.get(outcome, 0) + 1
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--threshold", type=float, default=0.01)
    parser.add_argument("--arch", default="sm_90")
    given = parser.parse_args()
    started = time.monotonic()
    given.outdir.mkdir(parents=True, exist_ok=True)
    program = Path(tempfile.mkdtemp()) / "verify_workload"
    subprocess.run(
        ["nvcc", "-O2", f"-arch={given.arch}", "-o", str(program), str(HERE / "verify_workload.cu")], check=True
    )
    before = smi("-q") + smi("--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader,nounits")
    fields = (
        "name,uuid,memory.total,mig.mode.current,power.limit,driver_version,clocks.max.sm,compute_cap,persistence_mode"
    )
    before += smi(f"--query-gpu={fields}", "--format=csv")

    bench = Bench(program, given.threshold, started + given.minutes * 60)
    jobs: queue.Queue[tuple[int, float]] = queue.Queue()
    for job in enumerate(JOBS):
        jobs.put(job)
    results: list[dict] = []
    steps: dict[str, np.ndarray] = {}
    lock = threading.Lock()
    workers = [
        threading.Thread(target=work, args=(bench, jobs, gpu, results, steps, lock))
        for gpu in range(given.first_gpu, given.first_gpu + given.gpus)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    results.sort(key=lambda result: result["job"])
    report = {
        "threshold_ratio": given.threshold,
        "steps_per_run": STEPS,
        "gpus": given.gpus,
        "wall_s": round(time.monotonic() - started, 1),
        "outcomes": summary(results),
        "verifications": results,
    }
    (given.outdir / "results.json").write_text(json.dumps(report, indent=1))
    np.savez_compressed(given.outdir / "steps.npz", **steps)
    (given.outdir / "nvidia_smi.txt").write_text(before + smi())
    print(json.dumps(report["outcomes"], indent=1))


if __name__ == "__main__":
    main()
