"""Capture five programs with all three tools on a GPU machine: what it takes, what it costs, what comes out.

    PYTHONPATH=src:. python benchmarks/capture_on_gpu.py OUTDIR --gpus 4 --seconds 290

Needs PyTorch, Triton, Nsight Compute and an nsys; of timesink only the capture package, so nothing else is installed.
DEBS: a folder of Debian packages with libdw1 and libelf1 where nsys needs them and the machine has none.
Leaves OUTDIR/results.json, one line per capture, and OUTDIR/captures.tar with manifests, traces, reports and logs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timesink import capture
from timesink.capture.errors import CaptureError
from timesink.capture.manifest import Capture
from timesink.capture.schedule import StepSchedule
from timesink.untrusted.nvidia_tools import find_tool, importer_link

HERE = Path(__file__).resolve().parent
STEPS = StepSchedule(settle=12, timed=20, warm_up=2, active=6)
ONE_STEP = StepSchedule(settle=12, timed=20, warm_up=0, active=1)
KERNELS = 8
LARGEST_BYTES = 4 << 20
FREE = ("train", "loader", "compiled", "kernel")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=290)
    parser.add_argument("--only", default="", help="these programs, separated by commas")
    parser.add_argument("--one", nargs="+", help="programs of this process (given by the process that started it)")
    options = parser.parse_args()
    deadline = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        return series(options.one, options.out, deadline)
    prepare(options.out)
    groups = shared_out(options.gpus)
    if options.only:
        groups = [(gpus, [name for name in names if name in options.only.split(",")]) for gpus, names in groups]
    groups = [(gpus, names) for gpus, names in groups if names]
    started = [begin(devices, names, options.out, options.seconds) for devices, names in groups]
    for process in started:
        process.wait()
    return finish(options.out)


def shared_out(gpus: int) -> list[tuple[str, list[str]]]:
    """(GPUs, programs) for each process; the two-GPU program needs two of them."""
    if gpus >= 4:
        return [("0", ["train", "kernel"]), ("1", ["compiled", "loader"]), ("2,3", ["ddp"])]
    if gpus == 3:
        return [("0", list(FREE)), ("1,2", ["ddp"])]
    if gpus == 2:
        return [("0,1", ["ddp", *FREE])]
    return [("0", list(FREE))]


def prepare(out: Path) -> None:
    """Libraries and the importer's link that Nsight Compute's nsys lacks; what the tools say of themselves."""
    if debs := os.environ.get("DEBS"):
        libraries = Path(tempfile.mkdtemp())
        for package in sorted(Path(debs).glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(libraries)], check=True)
        places = sorted({str(path.parent) for path in libraries.rglob("*.so.*")})
        os.environ["LD_LIBRARY_PATH"] = ":".join([*places, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])
    nsys, ncu = find_tool("nsys"), find_tool("ncu")
    if nsys is not None and (link := importer_link(nsys)) is not None:
        link[0].symlink_to(link[1])
    said = {"nsys": [str(nsys), "profile", "--help"], "ncu": [str(ncu), "--help"], "nvidia-smi": ["nvidia-smi", "-q"]}
    for name, argv in said.items():
        if shutil.which(argv[0]) is None:
            continue
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        (out / f"{name}.txt").write_text(re.sub(r"(?m)^.*(Serial|UUID|Bus Id|Hostname).*$", "", done.stdout))


def begin(devices: str, names: list[str], out: Path, seconds: float) -> subprocess.Popen[bytes]:
    """A process for one group of GPUs, with a temporary folder of its own: ncu locks a file in it."""
    folder = tempfile.mkdtemp()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices, "TMPDIR": folder}
    argv = [sys.executable, __file__, str(out), "--seconds", str(seconds), "--one", *names]
    with (out / f"log.{devices}.txt").open("wb") as log:
        return subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT)


def series(names: list[str], out: Path, deadline: float) -> int:
    """All captures of some programs, one after the other, as far as time allows."""
    results = []
    for name in names:
        for tool, make in captures_of(name, out / name, lambda: deadline - time.time()):
            began = time.time()
            if deadline - began < 15:
                results.append({"program": name, "tool": tool, "error": "no time left"})
                continue
            try:
                results.append(row(name, tool, make(), time.time() - began))
            except CaptureError as error:
                results.append({"program": name, "tool": tool, "error": str(error), "wall_s": time.time() - began})
            print(json.dumps(results[-1]), flush=True)
            (out / f"results.{names[0]}.json").write_text(json.dumps(results, indent=1))
    return 0


def captures_of(name: str, folder: Path, left: Any) -> Iterator[tuple[str, Any]]:
    """(tool, call) for each capture of a program, in the order they are made."""
    program = [sys.executable, "-m", "benchmarks.capture_programs", name]
    if name == "ddp":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        program = [*launcher, "-m", "benchmarks.capture_programs", name]
    if name == "kernel":
        own = {"whole": True, "unprofiled": "none"}
        yield "torch", lambda: capture.torch(program, out=folder / "torch", timeout_s=left(), **own)
        yield "nsys", lambda: capture.nsys(program, out=folder / "nsys", timeout_s=left(), **own)
        chosen = {"kernels": "scaled_sum", "launch_skip": 5, "launch_count": 2, "source": True, **own}
        yield "ncu", lambda: capture.ncu(program, out=folder / "ncu", timeout_s=left(), **chosen)
        return
    yield (
        "torch",
        lambda: capture.torch(program, steps=STEPS, out=folder / "torch", timeout_s=left(), auto_ranges=True),
    )
    separate = {"steps": STEPS, "unprofiled": "separate", "auto_ranges": True}
    yield "nsys", lambda: capture.nsys(program, out=folder / "nsys", timeout_s=left(), **separate)
    yield (
        "ncu",
        lambda: capture.ncu(
            program,
            steps=ONE_STEP,
            out=folder / "ncu",
            timeout_s=left(),
            unprofiled="none",
            launch_count=KERNELS,
            kernels=top_kernels(folder / "torch") or None,
        ),
    )
    if name == "train":
        inside = {"steps": STEPS, "unprofiled": "inside"}
        yield (
            "nsys, timed inside",
            lambda: capture.nsys(program, out=folder / "nsys-inside", timeout_s=left(), **inside),
        )
        stacks = {"steps": STEPS, "stacks": True, "memory": True}
        yield "torch, stacks", lambda: capture.torch(program, out=folder / "torch-stacks", timeout_s=left(), **stacks)


def top_kernels(folder: Path) -> str:
    """The three kernels that take most time in a trace, as a regular expression on function names."""
    times: Counter[str] = Counter()
    for path in folder.glob("rank0.json.gz"):
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        for event in events:
            if event.get("cat") == "kernel" and "nccl" not in event["name"].lower():
                named = event["name"].replace("(anonymous namespace)::", "")
                times[re.sub(r"<.*|\(.*", "", named).split("::")[-1].split(" ")[-1]] += event["dur"]
    return "^(" + "|".join(re.escape(name) for name, _ in times.most_common(3)) + ")" if times else ""


def row(program: str, tool: str, done: Capture, wall_s: float) -> dict[str, Any]:
    """One line of the results."""
    return {
        "program": program,
        "tool": tool,
        "unprofiled_step_ms": done.unprofiled_step_ms,
        "profiled_step_ms": done.profiled_step_ms,
        "overhead_ratio": done.overhead_ratio,
        "run_s": done.manifest["seconds"],
        "wall_s": round(wall_s, 2),
        "bytes": sum(entry["bytes"] for entry in done.manifest["files"]),
        "counts": [entry["counts"] for entry in done.manifest["files"]],
        "missing": list(done.missing),
        "step_source": sorted({rank.get("step_source", "") for rank in done.manifest["ranks"]}),
    }


def finish(out: Path) -> int:
    """Join the results, and pack what was captured: databases compressed, what is too large left out and named."""
    results = [line for path in sorted(out.glob("results.*.json")) for line in json.loads(path.read_text())]
    left_out = []
    folders = [path for path in sorted(out.iterdir()) if path.is_dir()]
    with tarfile.open(out / "captures.tar", "w") as tar:
        for path in [*sorted(out.glob("*.txt")), *sorted(out.glob("results.*.json"))]:
            tar.add(path, path.name)
            path.unlink()
        for path in [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]:
            packed = path
            if path.suffix in (".sqlite", ".ncu-rep"):
                packed = path.with_name(path.name + ".xz")
                packed.write_bytes(lzma.compress(path.read_bytes(), preset=1))
            if packed.stat().st_size > LARGEST_BYTES:
                left_out.append([str(packed.relative_to(out)), packed.stat().st_size])
            else:
                tar.add(packed, str(packed.relative_to(out)))
    for folder in folders:
        shutil.rmtree(folder)
    (out / "results.json").write_text(json.dumps({"captures": results, "left_out": left_out}, indent=1))
    for line in results:
        print(json.dumps(line))
    failed = [line for line in results if line.get("error") or line.get("missing")]
    print(f"{len(results)} captures, {len(failed)} of them incomplete; too large to keep: {left_out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
