"""Programs of several ranks on real GPUs: measured without a profiler, captured with torch.profiler and nsys, packed.

    python benchmarks/ranks_on_gpu.py OUTDIR [--gpus 2] [--seconds 230]

Each program runs in a torchrun of its own, so that one that hangs costs itself only. NVLink multicast stays off.
Writes OUTDIR/ranks.<gpus>.tar: per program and variant an archive of the ranks' traces, `measured.json`, logs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.faults import trim  # noqa: E402 - the path must be there first

PROGRAMS = (
    "straggler_host", "straggler_device", "no_overlap", "tiny_buckets", "pipeline", "serving", "healthy_ddp",
    "healthy_fsdp", "gathered_tensors", "synchronised_exchange", "redundant_exchange",
)  # fmt: skip
UNDER_NSYS = ("straggler_host", "pipeline", "healthy_ddp")
TOGETHER = 4  # programs in one torchrun: joining a job costs more than most programs
RUN_LIMIT_S, PACKING_S = 75.0, 25.0
NSYS = ("-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--resolve-symbols=false", "--force-overwrite=true")
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def environment() -> dict[str, str]:
    return {
        **os.environ,
        **SAFE,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "4",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        **_nsys_libraries(),
    }


def _nsys_libraries() -> dict[str, str]:
    """Libraries that nsys needs from the packages in the folder `DEBS`, where it is given."""
    if not os.environ.get("DEBS"):
        return {}
    target = Path("/tmp/ranks-libraries")
    for package in sorted(Path(os.environ["DEBS"]).glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(target)], check=False)
    folders = sorted({str(path.parent) for path in target.rglob("*.so.*")})
    return {"LD_LIBRARY_PATH": ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")}


def find_nsys() -> str | None:
    """nsys on the path, or the one that Nsight Compute bundles, whose importer must lie under the name it looks for."""
    if os.environ.get("NSYS") or shutil.which("nsys"):
        return os.environ.get("NSYS") or shutil.which("nsys")
    for tool in sorted(Path("/opt/nvidia/nsight-compute").glob("*/host/target-linux-x64/nsys")):
        wanted = tool.parent.parent / "host-linux-x64"
        if not wanted.exists():
            wanted.symlink_to("linux-desktop-glibc_2_11_3-x64")
        return str(tool)
    return None


def torchrun(options: argparse.Namespace, programs: Sequence[str], mode: str, scratch: Path) -> list[str]:
    dry = ["--dry"] if options.dry else []
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.gpus)]
    return [
        *launch, "-m", "benchmarks.ranks.worker", str(scratch), "--only", ",".join(programs), "--mode", mode, *dry,
    ]  # fmt: skip


def run(command: list[str], log: Path, limit_s: float) -> int | None:
    """Exit status, or None where it was stopped at its limit. The whole group of processes ends with it."""
    with log.open("a") as out:
        process = subprocess.Popen(
            command, env=environment(), stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT
        )
        try:
            return process.wait(max(limit_s, 1.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            time.sleep(2)
            os.killpg(process.pid, 9)
            process.wait()
            out.write(f"\nstopped after {limit_s:.0f} s\n")
            return None


def torch_stage(options: argparse.Namespace, scratch: Path, deadline: float) -> dict[str, dict[str, object]]:
    """Programs in small groups; the rest of a group that died is tried once more, without the one it died at."""
    found: dict[str, dict[str, object]] = {}
    waiting = [list(options.only[at : at + TOGETHER]) for at in range(0, len(options.only), TOGETHER)]
    while waiting and deadline - time.monotonic() > 15:
        group = waiting.pop(0)
        begin = time.monotonic()
        for old in scratch.glob("measured.torch.rank*.json"):
            old.unlink()
        log = scratch / f"torch.{group[0]}.log"
        limit_s = min(RUN_LIMIT_S, deadline - time.monotonic())
        status = run(torchrun(options, group, "torch", scratch), log, limit_s)
        results = scratch / "measured.torch.rank0.json"
        done = json.loads(results.read_text()) if results.exists() else {}
        found.update(done)
        print(f"{','.join(group)}: exit {status}, {time.monotonic() - begin:.0f} s", flush=True)
        rest = [name for name in group if name not in done]
        if rest and status != 0:
            found[rest[0]] = {"failed": log.read_text()[-1500:]}
            if rest[1:]:
                waiting.insert(0, rest[1:])
    return found


def nsys_stage(options: argparse.Namespace, scratch: Path, deadline: float) -> None:
    """All ranks in one report, cut into one file a program and variant."""
    nsys = find_nsys()
    if nsys is None or options.dry:
        print("no nsys here" if nsys is None else "nsys is left out of a dry run")
        return
    programs = [name for name in UNDER_NSYS if name in options.only]
    report = scratch / "job"
    command = [nsys, "profile", *NSYS, "-o", str(report), *torchrun(options, programs, "nsys", scratch)]
    run(command, scratch / "nsys.log", min(RUN_LIMIT_S, deadline - time.monotonic()))
    database = report.with_suffix(".sqlite")
    line = [nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", str(database)]
    run([*line, str(report.with_suffix(".nsys-rep"))], scratch / "nsys.log", deadline - time.monotonic())
    if database.exists():
        print("nsys:", cut_all(database, scratch / "nsys"), flush=True)


def cut_all(report: Path, folder: Path) -> list[str]:
    """Each program and variant as a report of its own, from when the first rank began it to when the last was done."""
    database = sqlite3.connect(f"file:{report}?mode=ro", uri=True)
    query = (
        "SELECT coalesce(n.text, s.value) AS name, min(n.start), max(n.end) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId WHERE name LIKE ? GROUP BY name ORDER BY 2"
    )
    ranges = database.execute(query, (f"{trim.CASE}%",)).fetchall()
    database.close()
    folder.mkdir(parents=True, exist_ok=True)
    for name, begin, end in ranges:
        trim.cut(report, folder / f"{name.removeprefix(trim.CASE).replace('/', '.')}.sqlite", begin, end)
    return [name for name, _, _ in ranges]


def small(source: Path, target: Path) -> None:
    """A trace without host name or folders, its rank kept."""
    trace = json.loads(source.read_bytes())
    trace.pop("trace_id", None)
    for name in ("host_name", "hostname"):
        if name in trace:
            trace[name] = "node"  # one name for one host: which ranks share a clock is a fact of the capture
    trace["traceName"] = source.name
    trace["traceEvents"] = [trim.scrubbed(event) for event in trace["traceEvents"]]
    target.write_text(json.dumps(trace, separators=(",", ":")))


def archived(scratch: Path, stem: str, tool: str) -> Path:
    """The ranks of one program and variant in one solid archive: they share most of their text."""
    target = scratch / "packed" / f"{stem}.{tool}.tar.xz"
    ending = {"torch": "rank*.json*", "nsys": "sqlite"}[tool]
    with tarfile.open(target, "w:xz", preset=6) as archive:
        for path in sorted((scratch / "nsys" if tool == "nsys" else scratch).glob(f"{stem}.{ending}")):
            kept = path
            if path.suffix == ".json":
                kept = scratch / "packed" / path.name
                small(path, kept)
            info = archive.gettarinfo(kept, arcname=path.name)
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            with kept.open("rb") as content:
                archive.addfile(info, content)
    return target


def pack(options: argparse.Namespace, scratch: Path, found: dict[str, dict[str, object]]) -> None:
    (scratch / "packed").mkdir()
    (scratch / "measured.json").write_text(json.dumps({"gpus": options.gpus, "programs": found}, indent=1))
    jobs = sorted({(".".join(path.name.split(".")[:2]), "torch") for path in scratch.glob("*.rank0.json")
                   if not path.name.startswith("measured")})  # fmt: skip
    jobs += sorted((path.stem, "nsys") for path in (scratch / "nsys").glob("*.sqlite"))
    with ThreadPoolExecutor(8) as pool:
        archives = list(pool.map(lambda job: archived(scratch, *job), jobs))
    target = options.out / f"ranks.{options.gpus}.tar"
    with tarfile.open(target, "w") as archive:
        for path in [scratch / "measured.json", *sorted(scratch.glob("*.log")), *archives]:
            archive.add(path, arcname=path.name)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB in {len(archives)} archives")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PROGRAMS))
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    options = parser.parse_args()
    begin = time.monotonic()
    deadline = begin + options.seconds - PACKING_S
    scratch = Path(f"/tmp/ranks-suite-{options.gpus}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    options.out.mkdir(parents=True, exist_ok=True)
    found = torch_stage(options, scratch, deadline)
    nsys_stage(options, scratch, deadline)
    pack(options, scratch, found)
    for name, result in found.items():
        print(name, {key: result[key] for key in ("fault_ms", "fix_ms", "receipts_equal", "failed") if key in result})
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
