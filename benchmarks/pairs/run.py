"""Run and capture every pair on the GPU of this machine: timed without a profiler, by torch.profiler, by nsys.

    python -m benchmarks.pairs.run all OUT [--dry]      # processes for everything below; OUT gets archives and logs
    python -m benchmarks.pairs.run torch OUT [--dry]    # each side in a process of its own
    python -m benchmarks.pairs.run nsys OUT             # the program that Nsight Systems watches

While a side is timed or recorded it has the GPU to itself: a lock on a file is held from its warm-up on. Processes are
forked from one that has imported PyTorch and not touched the GPU. Beside a trace lies the manifest of its run, as
`timesink capture` writes it; every run of a session of calibration is a process whose whole time is taken.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import importlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.blocks import blocks_ms

STEPS, LEAD_IN, WARM = 5, 2, 6
LONGEST_S, PACKING_S, STARTS_BY = 80, 35, 0.35
LANES, SIDES = 3, ("before", "after")
SESSIONS, SPINS = 10, 82
SPIN = """
import sys, time
begun, total = time.perf_counter(), 0
for number in range(900_000):
    total += number * number
print(time.perf_counter() - begun)
"""
START_UPS = {
    "plain": """
import torch, torch.nn as nn
torch.backends.cudnn.benchmark = True
layers = nn.Conv2d(3, 64, 7, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
model = nn.Sequential(*layers).cuda()
images = torch.randn(16, 3, 96, 96).cuda()
model(images)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(60):
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
""",
    "transformers": """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_head=8, n_embd=512)).cuda()
ids = torch.randint(0, 50257, (4, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(60):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
""",
    "compiled": """
import torch, torch.nn as nn
layers = [part for _ in range(4) for part in (nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024))]
model = nn.Sequential(*layers).cuda()
run = torch.compile(model)
rows = torch.randn(4096, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(60):
    optimizer.zero_grad()
    run(rows).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
""",
}


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """The GPU for this process alone."""
    with (out / "gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def done(dry: bool) -> None:
    import torch

    if not dry:
        torch.cuda.synchronize()


def timed_ms(step: Any, dry: bool) -> list[float]:
    """Blocks of steps without a profiler: the mean step of each."""
    (first_ms,) = blocks_ms(step, partial(done, dry), 1, 1)
    return blocks_ms(step, partial(done, dry), *((1, 1) if dry else (5, max(4, min(30, round(60 / first_ms))))))


def prepared(name: str, is_changed: bool, dry: bool) -> Any:
    """The program of this side, warm."""
    import torch
    from benchmarks.pairs import programs

    torch.manual_seed(0)
    if dry:
        torch.set_num_threads(1)
    step = programs.BUILDERS[name](programs.Machine(dry), is_changed)
    for _ in range(1 if dry else WARM):
        step()
    done(dry)
    return step


def take_torch(name: str, side: str, out: Path, dry: bool) -> None:
    """One side: timed, then recorded; its folder gets a trace and a manifest."""
    import torch
    from benchmarks.pairs import programs
    from torch.profiler import ProfilerActivity, profile, schedule

    if not dry:
        torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        done(dry)
    if name == "compile_off":
        prepared(name, side == "after", dry)
    with alone(out):
        programs.reset() if name != "compile_off" else None
        step = prepared(name, side == "after", dry)
        blocks, settings = timed_ms(step, dry), _settings()
        made = out / "torch" / f"{name}.{side}"
        made.mkdir(parents=True, exist_ok=True)
        activities = [ProfilerActivity.CPU] + ([] if dry else [ProfilerActivity.CUDA])
        config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
        with profile(
            activities=activities, schedule=schedule(wait=0, warmup=LEAD_IN, active=STEPS, repeat=1),
            record_shapes=True, experimental_config=config,
        ) as profiler:  # fmt: skip
            for _ in range(LEAD_IN + STEPS):
                step()
                profiler.step()
            done(dry)
        _not_busy()
    profiler.export_chrome_trace(str(made / "raw.json"))
    _keep(made, settings, blocks)


def _settings() -> dict[str, str]:
    from timesink.capture.agent.settings import program_settings

    return program_settings()


def _not_busy() -> None:
    Path(os.environ.get("GPU_BUSY_FLAG", "none")).unlink(missing_ok=True)


def _keep(made: Path, settings: dict[str, str], blocks: list[float]) -> None:
    from benchmarks.faults.trim import trim_torch

    trim_torch(made / "raw.json", made / "rank0.json", STEPS)
    (made / "raw.json").unlink()
    rank = {"rank": 0, "settings": settings, "unprofiled": {"step_ms": statistics.median(blocks), "steps_ms": blocks}}
    manifest = {"timesink_manifest": 1, "files": [{"file": "rank0.json"}], "ranks": [rank], "missing": []}
    (made / "manifest.json").write_text(json.dumps(manifest))


def one_side(name: str, side: str, out: Path, dry: bool) -> int:
    """`take_torch`; what fails is written down and stops no other."""
    begun = time.perf_counter()
    try:
        take_torch(name, side, out, dry)
        print(f"torch {name} {side} {time.perf_counter() - begun:.1f} s", flush=True)
        return 0
    except Exception:  # noqa: BLE001 - any failure is this side's result
        print(f"torch {name} {side} failed: {traceback.format_exc()[-1500:]}", flush=True)
        _not_busy()
        return 1


def in_order(names: Iterable[str]) -> list[str]:
    """The one that another process disturbs last: that has begun by then."""
    return sorted(names, key=lambda name: name == "gpu_shared")


def all_torch(out: Path, dry: bool, only: str) -> None:
    """Every side, forked; where forked ones fail, in processes of their own."""
    from benchmarks.pairs import programs

    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # another check starts the driver, which a fork does not survive
    for imported in ("torch._dynamo", "torch.profiler"):  # else each process does, at its first optimizer step
        importlib.import_module(imported)
    waiting = [
        (name, side)
        for name in in_order(programs.OWED)
        for side in SIDES
        if name in (only.split(",") if only else programs.OWED)
    ]
    running: dict[int, tuple[str, str]] = {}
    forks, failed = True, list[tuple[str, str]]()
    while waiting or running:
        while waiting and len(running) < LANES:
            name, side = waiting.pop(0)
            if not forks:
                command = [sys.executable, "-m", "benchmarks.pairs.run", "one", str(out), "--only", f"{name}.{side}"]
                running[os.posix_spawn(command[0], [*command, *(["--dry"] if dry else [])], os.environ)] = name, side
            elif pid := os.fork():
                running[pid] = name, side
            else:
                signal.alarm(LONGEST_S)
                os._exit(one_side(name, side, out, dry))
        pid, status = os.wait()
        shot = running.pop(pid, None)
        if shot and status and forks:
            failed.append(shot)
            if len(failed) == LANES and not list(out.glob("torch/*/manifest.json")):
                forks, waiting, failed = False, [*failed, *waiting], []
                print("forked processes fail: each gets one of its own", flush=True)


def all_nsys(out: Path, dry: bool) -> None:
    """Every side in one process, each a range `case NAME/SIDE` of steps."""
    import torch
    from benchmarks.pairs import programs

    for name in in_order(programs.OWED):
        for side in SIDES:
            begun = time.perf_counter()
            try:
                programs.reset()
                if name == "compile_off":
                    prepared(name, side == "after", dry)
                with alone(out):
                    step = prepared(name, side == "after", dry)
                    for _ in range(LEAD_IN):
                        step()
                    done(dry)
                    torch.cuda.nvtx.range_push(f"case {name}/{side}")
                    for number in range(STEPS):
                        torch.cuda.nvtx.range_push(f"step {number}")
                        step()
                        torch.cuda.nvtx.range_pop()
                    done(dry)
                    torch.cuda.nvtx.range_pop()
                    _not_busy()
                print(f"nsys {name} {side} {time.perf_counter() - begun:.1f} s", flush=True)
            except Exception:  # noqa: BLE001 - any failure is this side's result
                print(f"nsys {name} {side} failed: {traceback.format_exc()[-1500:]}", flush=True)
                _not_busy()
            step = None
            gc.collect()


def busy(flag: Path) -> None:
    """Work on the GPU while the flag is there."""
    import torch

    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    parent = os.getppid()
    while os.getppid() == parent:
        if flag.exists():
            for _ in range(40):
                matrix = torch.tanh(matrix @ matrix)
            torch.cuda.synchronize()
        else:
            time.sleep(0.01)


def spins(out: Path) -> None:
    """Sessions of a program that computes for a tenth of a second, each run a process: its whole time, what it says,
    and what a fixed computation takes around it."""
    found = []
    for _ in range(SESSIONS):
        session = []
        for _ in range(SPINS):
            probed = _probe_s()
            begun = time.perf_counter()
            told = subprocess.run([sys.executable, "-I", "-S", "-c", SPIN], capture_output=True, text=True, check=False)
            outside = time.perf_counter() - begun
            session.append([outside, float(told.stdout or 0), (probed + _probe_s()) / 2])
        found.append(session)
        (out / "spins.json").write_text(json.dumps(found))


def _probe_s() -> float:
    """As `timesink verify` probes the host."""
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(60_000):
            pass
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[2]


def start_ups(out: Path, name: str) -> None:
    """One program captured as `timesink capture` does, twice: steps, and whole."""
    from timesink import capture
    from timesink.capture.schedule import StepSchedule

    script = out / f"{name}.py"
    script.write_text(START_UPS[name])
    for whole in (False, True):
        steps = StepSchedule(settle=5, timed=3, warm_up=1, active=2)
        folder = out / "start_up" / f"{name}{'.whole' * whole}"
        try:
            capture.torch([sys.executable, str(script)], steps=steps, out=folder, quiet=True, whole=whole)
            print(f"start-up {folder.name} taken", flush=True)
        except Exception:  # noqa: BLE001 - any failure is this capture's result
            print(f"start-up {folder.name} failed: {traceback.format_exc()[-1500:]}", flush=True)


NSYS = (
    "profile", "-t", "cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--resolve-symbols=false",
    "--force-overwrite=true", "-o",
)  # fmt: skip


def nsys_lane(out: Path, scratch: Path, program: list[str]) -> list[str]:
    """The commands of the lane of Nsight Systems, one after the other in a shell."""
    nsys, report = os.environ.get("NSYS") or shutil.which("nsys") or "", scratch / "pairs"
    if not nsys:
        return ["echo", "no nsys"]
    line = " ".join([nsys, *NSYS, str(report), *program, "nsys", str(scratch)])
    export = f"{nsys} export --type sqlite --force-overwrite=true -o {report}.sqlite {report}.nsys-rep"
    cut = f"{sys.executable} -m benchmarks.faults.trim nsys {report}.sqlite {scratch}/nsys"
    return ["bash", "-c", f"{line}; {export} && {cut}"]


def everything(out: Path, seconds: float, dry: bool, only: str) -> None:
    """All lanes at once; then starts; then archives. What has not ended by then is left out."""
    begun, scratch = time.monotonic(), Path(os.environ.get("SCRATCH", "/tmp/pairs"))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    os.environ["GPU_BUSY_FLAG"] = flag = str(scratch / "busy.on")
    program = [sys.executable, "-m", "benchmarks.pairs.run"]
    dries = ["--dry"] if dry else []

    def start(name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (scratch / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    other = None if dry else start("busy", [*program, "busy", flag])
    lanes = {
        "torch": start("torch", [*program, "torch", str(scratch), "--only", only, *dries]),
        "spins": start("spins", [*program, "spins", str(scratch)]),
    }
    if not dry:
        lanes["nsys"] = start("nsys", nsys_lane(out, scratch, program))
    until = begun + seconds - PACKING_S
    _wait(lanes["torch"], begun + STARTS_BY * seconds)
    for name in START_UPS if not dry else ():
        lanes[name] = start(f"start_up.{name}", [*program, "start", str(scratch), "--only", name])
    for lane in lanes.values():
        _wait(lane, until)
    for lane in (*lanes.values(), *([other] if other else [])):
        if lane.poll() is None:
            os.killpg(lane.pid, 9)
    _archive(scratch, out)
    print(f"{time.monotonic() - begun:.0f} s", flush=True)


def _wait(lane: subprocess.Popen[bytes], until: float) -> None:
    while lane.poll() is None and time.monotonic() < until:
        time.sleep(0.1)


def _archive(scratch: Path, out: Path) -> None:
    """One archive of all captures, by pair and tool, and one of the rest, in the folder that comes back."""
    from benchmarks.pairs.programs import OWED

    out.mkdir(parents=True, exist_ok=True)
    (scratch / "packed").mkdir()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_packed, [(scratch, name, tool) for name in OWED for tool in ("torch", "nsys")]))
    logs = [path.name for path in scratch.glob("*.log")]
    rest = [one for one in (*logs, "spins.json", "start_up") if (scratch / one).exists()]
    subprocess.run(["tar", "-C", scratch / "packed", "-cf", out / "pairs.captures.tar", "."], check=False)
    subprocess.run(["tar", "-C", scratch, "-cJf", out / "pairs.rest.tar.xz", *rest], check=False)
    print({path.name: path.stat().st_size for path in out.iterdir()}, flush=True)


def _packed(job: tuple[Path, str, str]) -> None:
    from benchmarks.faults import pack

    scratch, name, tool = job
    files: dict[str, Path] = {}
    for side in SIDES:
        made = scratch / "torch" / f"{name}.{side}"
        kinds = {"json": made / "rank0.json", "manifest": made / "manifest.json"}
        kinds = kinds if tool == "torch" else {"sqlite": scratch / "nsys" / f"{name}.{side}.sqlite"}
        files |= {f"{name}.{side}.{kind}": path for kind, path in kinds.items() if path.exists()}
    try:
        if files:
            pack.write(scratch / "packed" / f"{name}.{tool}.tar.xz", files)
    except Exception as problem:  # noqa: BLE001 - a capture that was cut off stops no other
        print(f"{name} {tool}: not packed: {problem!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("all", "torch", "one", "nsys", "busy", "spins", "start"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    out, only, dry = given.out, given.only, given.dry
    match given.what:
        case "all":
            everything(out, given.seconds, dry, only)
        case "torch":
            all_torch(out, dry, only)
        case "one":
            raise SystemExit(one_side(*only.split("."), out, dry))
        case "nsys":
            all_nsys(out, dry)
        case "busy":
            busy(out)
        case "spins":
            spins(out)
        case "start":
            start_ups(out, only)


if __name__ == "__main__":
    main()
