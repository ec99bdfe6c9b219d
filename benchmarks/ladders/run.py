"""All programs on the GPU of one machine: built and compiled side by side, measured and captured one at a time.

    python -m benchmarks.ladders.run OUT [--seconds 540] [--only a,b] [--dry]

`run_on_gpu.sh` calls it. OUT gets `measured.json`, rewritten after every program, `torch.tar` and `nsys.tar` with the
captures cut and made anonymous, and `logs.tar.xz`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults import trim
from benchmarks.ladders import suite

NSYS = (
    "-t", "cuda,osrt", "-c", "cudaProfilerApi", "--capture-range-end=stop", "--sample=none", "--cpuctxsw=none",
    "--resolve-symbols=false", "--force-overwrite=true",
)  # fmt: skip
ROUNDS = ("measure0", "measure1", "nsys")
"""A round begins when the one before is done."""
BUILD_S, TURN_S, PACK_S = 230.0, 40.0, 25.0
NSYS_S = 45.0
"""What is kept for the last round."""
LAST_NS = 1 << 62


@dataclass(frozen=True)
class Site:
    out: Path
    scratch: Path
    deadline: float
    nsys: str
    dry: bool
    begun: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begun:5.0f} s  {text}", flush=True)


def started(site: Site, name: str, label: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.ladders.measure", name, "--label", label, "--wait"]
    command += ["--out", str(site.scratch), *(["--dry"] if site.dry else [])]
    if label == "nsys" and not site.dry:
        command = [site.nsys, "profile", *NSYS, "-o", str(site.scratch / f"{name}-nsys"), *command]
    around = {
        **os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "4", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{site.scratch}-inductor", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    log = (site.scratch / f"{name}.{label}.log").open("wb")
    return subprocess.Popen(command, env=around, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def waited(site: Site, paths: Sequence[Path], process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether one of the files came before the process ended or the time was up."""
    until = time.monotonic() + min(limit_s, site.left_s())
    while time.monotonic() < until:
        if any(path.exists() for path in paths):
            return True
        if process.poll() is not None:
            return any(path.exists() for path in paths)
        time.sleep(0.05)
    return False


def ended(process: subprocess.Popen[bytes], limit_s: float) -> None:
    try:
        process.wait(max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def one_round(site: Site, names: Sequence[str], label: str) -> None:
    """Start all, wait until all are warm, then let one after another do its work while the others are stopped."""
    began = time.monotonic()
    processes = {name: started(site, name, label) for name in names}
    warm = []
    for name, process in processes.items():
        ready = site.scratch / f"{name}.{label}.ready"
        if waited(site, [ready], process, BUILD_S - (time.monotonic() - began)):
            warm.append(name)
        else:
            site.say(f"{name} {label}: not built: {tail(site, name, label)}")
            ended(process, 1)
    site.say(f"{len(warm)} of {len(processes)} are warm; stolen so far {stolen_s():.1f} s")
    built_s = time.monotonic() - began
    if label != "nsys":
        for name in warm:
            os.killpg(processes[name].pid, signal.SIGSTOP)
    with ThreadPoolExecutor(8) as after:
        for at, name in enumerate(warm):
            process = processes[name]
            os.killpg(process.pid, signal.SIGCONT)
            share_s = turn_s(site, label, built_s, (len(warm) - at, len(warm)))
            part = site.scratch / f"{name}.{label}.part"
            part.write_text(f"{share_s:.1f}")
            part.rename(part.with_suffix(".go"))
            waited(site, [site.scratch / f"{name}.{label}.done"], process, share_s + TURN_S)
            if label == "nsys":
                after.submit(ended, process, 40)
            else:
                ended(process, 10)
                site.say(f"{name} {label} {share_s:.0f} s, stolen {stolen_s():.1f} s: {merged(site, name)}")


def turn_s(site: Site, label: str, built_s: float, turns: tuple[int, int]) -> float:
    """Seconds for the next of (turns left, turns in a round): the first round keeps as many for the second, and the
    time to build that."""
    left, whole = turns
    if label == ROUNDS[0]:
        return max(5.0, (site.left_s() - NSYS_S - built_s) / (left + whole) - 4)
    return max(5.0, (site.left_s() - NSYS_S) / left - 2)


def stolen_s() -> float:
    """Seconds of this machine's cores that its host gave to others, since it started."""
    with Path("/proc/stat").open() as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def tail(site: Site, name: str, label: str) -> str:
    return (site.scratch / f"{name}.{label}.log").read_text(errors="replace")[-600:]


def merged(site: Site, name: str) -> str:
    """All measurements so far to OUT; what is new of one program, in short."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(site.scratch.glob("*.measure*.json")):
        program, label, _ = path.name.split(".")
        found.setdefault(program, {})[label] = json.loads(path.read_text())
    (site.out / "measured.json").write_text(json.dumps(found))
    last = found.get(name, {})
    if not last:
        return "no result"
    newest = last[max(last)]
    return " ".join(
        f"{variant}={result['ms']:.2f}{'' if result['receipts_equal'] else '!'}"
        if "ms" in result
        else f"{variant}=FAILED"
        for variant, result in newest.items()
    )


def packed(site: Site, tool: str, names: Iterable[str]) -> None:
    """The captures of one tool, cut and each compressed, in one archive."""
    with ProcessPoolExecutor(min(12, os.cpu_count() or 1)) as pool:
        done = [path for path in pool.map(prepared, [(site, tool, name) for name in names]) if path]
    with tarfile.open(site.out / f"{tool}.tar", "w") as archive:
        for path in done:
            archive.add(path, arcname=path.name)
    site.say(f"{tool}: {len(done)} captures, {sum(path.stat().st_size for path in done) / 1e3:.0f} KB")


def prepared(job: tuple[Site, str, str]) -> Path | None:
    site, tool, name = job
    try:
        if tool == "torch":
            small = site.scratch / f"{name}.json"
            trim.trim_torch(site.scratch / f"{name}.torch.json", small, suite.STEPS)
        else:
            small, report = site.scratch / f"{name}.sqlite", site.scratch / f"{name}-nsys.nsys-rep"
            whole = site.scratch / f"{name}-whole.sqlite"
            line = [site.nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", str(whole), str(report)]
            subprocess.run(line, timeout=60, check=True, capture_output=True)
            trim.cut(whole, small, 0, LAST_NS)
        subprocess.run(["xz", "-k", "-f", "-6", str(small)], check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        print(f"{name} {tool}: not packed: {problem}", flush=True)
        return None
    return small.with_name(small.name + ".xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/ladders"))
    parser.add_argument("--only", default="")
    parser.add_argument("--nsys", default=os.environ.get("NSYS") or shutil.which("nsys") or "nsys")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    shutil.rmtree(given.scratch, ignore_errors=True)
    given.scratch.mkdir(parents=True)
    given.out.mkdir(parents=True, exist_ok=True)
    site = Site(given.out, given.scratch, time.monotonic() + given.seconds - PACK_S, given.nsys, given.dry)
    names = [ladder.name for ladder in suite.LADDERS if not given.only or ladder.name in given.only.split(",")]
    for label in ROUNDS:
        one_round(site, names, label)
    for tool in ("torch",) if site.dry else ("torch", "nsys"):
        packed(site, tool, names)
    with tarfile.open(site.out / "logs.tar.xz", "w:xz") as archive:
        for path in sorted(site.scratch.glob("*.log")):
            archive.add(path, arcname=path.name)
    site.say("done")


if __name__ == "__main__":
    main()
