"""Measure and capture the whole suite on the GPUs of one machine, one process a GPU at a time, and pack the results.

`run_all.sh` calls it. Stages, in the order given: `measure:K` (fresh process number K), `torch`, `nsys`. Programs go in
groups; a group that dies, or stands at one program for too long, is started again with the programs it had not reached,
so that one failure costs one program. Programs of several ranks come first, each group a job of torchrun. NVLink
multicast stays off. Results are packed beside the next stage, so that a call that is cut leaves what was done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.faults import pack, suite, trim

GROUPS_PER_SLOT = 2
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
TASK_LIMIT_S = 240.0
PACKING_S = 35.0
NSYS = ("-t", "cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--resolve-symbols=false", "--force-overwrite=true")


@dataclass(frozen=True, slots=True)
class Task:
    stage: str
    group: int
    cases: tuple[str, ...]
    attempt: int = 0
    gpus: int = 1
    variant: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.stage.replace(':', '')}.{self.group}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Site:
    """Where things lie, and until when to work."""

    scratch: Path
    deadline: float
    gpus: int
    nsys: str
    dry: bool
    lost: set[str] = field(default_factory=set)
    """Programs at which a process died: no later stage tries them."""
    program_s: float = TASK_LIMIT_S
    """How long a process may stand at one program, its own start included."""

    def remaining_s(self) -> float:
        return self.deadline - time.monotonic()


def groups(cases: Sequence[suite.Case], count: int) -> list[tuple[str, ...]]:
    """Programs in `count` groups of about the same cost, the severities of one together."""
    by_fault: dict[str, list[str]] = {}
    for case in cases:
        by_fault.setdefault(case.fault, []).append(str(case))

    def cost(name: str) -> int:
        fault = suite.find(name)
        loads = fault.topic == "loading" or fault.bottleneck == "input_pipeline"
        return len(by_fault[name]) * (6 if fault.compiles else 3 if loads else 2)

    loads, filled = [0] * count, [[] for _ in range(count)]
    for name in sorted(by_fault, key=cost, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += cost(name)
        filled[lightest].extend(by_fault[name])
    return [tuple(names) for names in filled if names]


def dealt(cases: Sequence[suite.Case], count: int) -> list[tuple[str, ...]]:
    """Programs dealt to `count` groups in turn: what the registry lists first comes first in each."""
    names = list(dict.fromkeys(case.fault for case in cases))
    parts = [tuple(str(case) for case in cases if case.fault in names[at::count]) for at in range(count)]
    return [part for part in parts if part]


def tasks_of(
    cases: Sequence[suite.Case], stages: Sequence[str], gpus: int, per_slot: int = GROUPS_PER_SLOT
) -> list[list[Task]]:
    """The tasks of every stage, in order.

    One group of programs per job of ranks, `per_slot` where a report holds them all; those whose fault is their
    environment in tasks of their own: of the two variants to measure, every other stage begins with the other.
    """
    by_kind: dict[tuple[int, tuple[tuple[str, str], ...]], list[suite.Case]] = {}
    for case in cases:
        fault = suite.find(case.fault)
        by_kind.setdefault((fault.gpus, fault.environment), []).append(case)
    found = []
    for number, stage in enumerate(stages):
        tasks: list[Task] = []
        for (width, environment), part in sorted(by_kind.items()):
            slots = max(1, gpus // width)
            many = slots > 1 and (width == 1 or stage == "nsys")
            variants = [("", environment)]
            if environment and (stage.startswith("measure") or suite.find(part[0].fault).fix_captured):
                variants = [("fault", environment), ("fix", ())][:: 1 if number % 2 else -1]
            count = 1 if environment and width > 1 else slots * (per_slot if many else 1)
            for names in (groups if width == 1 else dealt)(part, count):
                for variant, around in variants:
                    tasks.append(Task(stage, len(tasks), names, 0, width, variant, around))
        found.append(tasks)
    return found


def command(site: Site, task: Task) -> list[str]:
    module = "measure" if task.stage.startswith("measure") else "capture"
    job = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(task.gpus)] if task.gpus > 1 else []
    python = [sys.executable, *job, "-m", f"benchmarks.faults.{module}"]
    only = ["--only", ",".join(task.cases), *(["--dry"] if site.dry else [])]
    variant = ["--variant", task.variant] if task.variant else []
    if module == "measure":
        return [*python, *only, *variant, "--out", str(site.scratch / f"{task.name}.json")]
    out = ["--out", str(site.scratch / task.stage), "--taken", f"{task.name}.taken.json"]
    run = [*python, task.stage, *only, *variant, *out]
    report = str(report_of(site, task))
    return [site.nsys, "profile", *NSYS, "-o", report, *run] if task.stage == "nsys" and not site.dry else run


def report_of(site: Site, task: Task) -> Path:
    """The report's path without its ending, and without dots, which nsys would take for one."""
    return site.scratch / task.name.replace(".", "-")


def environment(site: Site, task: Task, slot: int) -> dict[str, str]:
    gpus = range(slot * task.gpus, (slot + 1) * task.gpus)
    return {
        **os.environ,
        **NO_MULTICAST,
        **dict(task.environment),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{site.scratch}-inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "4",
    }


def pinned(site: Site, task: Task, slot: int) -> list[str]:
    """A share of the cores for each GPU."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) * task.gpus // site.gpus)
    mine = cores[slot * share % len(cores) :][:share]
    return ["taskset", "-c", ",".join(map(str, mine))]


def run(site: Site, task: Task, slot: int) -> None:
    """One process to its end, or to its limit; its output goes to a log."""
    begin = time.monotonic()
    with (site.scratch / f"{task.name}.log").open("w") as log:
        process = subprocess.Popen(
            [*pinned(site, task, slot), *command(site, task)],
            env=environment(site, task, slot), stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        if not ended(site, task, process):
            for number in [*descendants(process.pid), process.pid]:  # torchrun gives ranks sessions of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, 9)
            process.wait()
            log.write(f"\nstopped after {time.monotonic() - begin:.0f} s\n")
    print(f"{task.name} in slot {slot}: exit {process.returncode}, {time.monotonic() - begin:.0f} s", flush=True)


def ended(site: Site, task: Task, process: subprocess.Popen[bytes]) -> bool:
    """Whether a process came to its end within its limit, and never stood at one program for longer than allowed."""
    moved, done = time.monotonic(), 0
    limit = moved + min(TASK_LIMIT_S, site.remaining_s())
    while (now := time.monotonic()) < min(limit, moved + site.program_s):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            return True
        if (count := len(reached(site, task))) > done:
            moved, done = now, count
    return False


def descendants(process: int) -> Iterator[int]:
    """Children of a process and theirs, the last first."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))
                yield int(child)


def export(site: Site, task: Task) -> None:
    report = report_of(site, task).with_suffix(".nsys-rep")
    if site.dry or not report.exists():
        return
    database = report.with_suffix(".sqlite")
    with (site.scratch / f"{task.name}.export.log").open("w") as log:
        line = [site.nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", str(database), str(report)]
        subprocess.run(
            line, stdout=log, stderr=subprocess.STDOUT, timeout=min(120, max(5, site.remaining_s())), check=False
        )
    if database.exists():
        trim.trim_nsys(database, site.scratch / "nsys")


def reached(site: Site, task: Task) -> dict[str, object]:
    """What a task's process has written of its cases so far."""
    measured = task.stage.startswith("measure")
    path = site.scratch / f"{task.name}.json" if measured else site.scratch / task.stage / f"{task.name}.taken.json"
    found: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    return found


def unreached(site: Site, task: Task) -> tuple[str, ...]:
    """The cases of programs that a dead process had not come to; the program it was at is lost."""
    done = {"/".join(name.split("/")[:2]) for name in reached(site, task)}
    left = [case for case in task.cases if case not in done]
    site.lost.update(case.split("/")[0] for case in left[:1])
    return without(left, site.lost)


def without(cases: Sequence[str], programs: set[str]) -> tuple[str, ...]:
    return tuple(case for case in cases if case.split("/")[0] not in programs)


def keep(site: Site, task: Task, packer: pack.Packer) -> None:
    """Pack what a task left, beside the tasks that follow."""
    try:
        if task.stage.startswith("measure"):
            packer.write_measured()
            return
        if task.stage == "nsys":
            export(site, task)
        packer.add(task.stage, {case.split("/")[0] for case in task.cases} - site.lost)
    except (OSError, subprocess.SubprocessError, ValueError, sqlite3.Error) as problem:
        print(f"{task.name}: {problem}", flush=True)


def work(
    site: Site, tasks: queue.PriorityQueue[tuple[int, int, Task]], slot: int, then: Callable[[Task], object]
) -> None:
    while site.remaining_s() > 20:
        try:
            priority, order, task = tasks.get_nowait()
        except queue.Empty:
            return
        task = replace(task, cases=without(task.cases, site.lost))
        if not task.cases:
            continue
        try:
            run(site, task, slot)
        except (OSError, subprocess.SubprocessError, ValueError, sqlite3.Error) as problem:
            print(f"{task.name}: {problem}", flush=True)
        rest = unreached(site, task)
        then(replace(task, cases=tuple(case for case in task.cases if case not in rest)))
        if rest and task.attempt < 3:
            tasks.put((priority, order, replace(task, cases=rest, attempt=task.attempt + 1)))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--stages", default="measure:0,torch,measure:1,measure:2")
    parser.add_argument("--only", default="", help="fault, fault/severity or topic:, separated by commas")
    parser.add_argument("--split", choices=suite.SPLITS, default="", help="the programs of one split only")
    parser.add_argument("--seconds", type=float, default=540, help="wall-clock limit of the whole call")
    parser.add_argument("--packing", type=float, default=PACKING_S, help="seconds of it kept for packing what is left")
    parser.add_argument("--program-seconds", type=float, default=TASK_LIMIT_S, help="limit of one program of a process")
    parser.add_argument("--groups", type=int, default=GROUPS_PER_SLOT, help="processes a GPU, or a report, of a stage")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/fault-suite"))
    parser.add_argument("--nsys", default=os.environ.get("NSYS") or shutil.which("nsys") or "nsys")
    parser.add_argument("--label", default="all", help="part of the names of the results")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    begin = time.monotonic()
    shutil.rmtree(options.scratch, ignore_errors=True)
    options.scratch.mkdir(parents=True)
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = begin + options.seconds - options.packing
    site = Site(options.scratch, deadline, options.gpus, options.nsys, options.dry, program_s=options.program_seconds)
    cases = suite.cases(options.only, options.split)
    stages = tasks_of(cases, options.stages.split(","), options.gpus, options.groups)
    packer, left = pack.Packer(site.scratch, options.out, options.label), 0
    with ThreadPoolExecutor(options.gpus) as packing:
        for width in sorted({task.gpus for tasks in stages for task in tasks}, reverse=True):
            waiting: queue.PriorityQueue[tuple[int, int, Task]] = queue.PriorityQueue()
            for priority, tasks in enumerate(stages):
                for task in tasks:
                    if task.gpus == width:
                        waiting.put((priority, task.group, task))
            then = lambda task: packing.submit(keep, site, task, packer)  # noqa: E731
            slots = range(max(1, options.gpus // width))
            threads = [threading.Thread(target=work, args=(site, waiting, slot, then)) for slot in slots]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            left += waiting.qsize()
    packer.finish()
    failed = {
        name: case["failed"][-1].splitlines()[-1] for name, case in pack.merged(site.scratch).items() if case["failed"]
    }
    print(json.dumps({"seconds": round(time.monotonic() - begin), "left": left, "failed": failed}, indent=1))


if __name__ == "__main__":
    main()
