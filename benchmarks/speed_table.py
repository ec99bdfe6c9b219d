"""What people wait for, in one table: CPU time of whole commands, beside floors and rivals, on the same files.

    python -m benchmarks.peers                 # once: rivals to stand beside, where the network has them
    python -m benchmarks.speed_table [--runs 3] [--seed TRACE] [--hta PYTHON] [--tracelens PYTHON] [--nsys-ai COMMAND]
    make docs                                  # the page of the docs from the figures

Every figure is user and system time of a process of its own, the least of some runs, the commands taking turns: a
machine that others use moves that less than the clock. Writes benchmarks/speed_table.json. Needs about 1.5 GB of disk
and, on two quiet cores, seven minutes with rivals. `--quick` takes small inputs, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.end_to_end import HTA, TRACELENS, stages
from benchmarks.faults.pack import unpacked
from benchmarks.inputs import CACHE, grown, packed, seed
from benchmarks.peers import interpreter, nsys_ai
from benchmarks.runs import ENVIRONMENT, ROOT, TIMESINK, Run, run

from benchmarks import shapes, sqlite
from timesink.recipes.table import EDITS, proposals

RESULTS = ROOT / "benchmarks" / "speed_table.json"
PLAN_BAR, REPORT_BAR, GZIP_BAR, TEN_BAR_S, WARM_BAR_S, STAGES_BAR, FLAT_BAR = 1.5, 2.0, 1.1, 0.5, 0.25, 1.0, 1.2
DEVICES, RANKS = (1, 25, 100, 400), (16, 64, 256)
LARGEST_JOB = 1_024
FINDERS_BAR_S = 0.2
CAPTURES = 12  # the largest of the fault suite, and every public one that is at hand
_PUBLIC = ROOT.parent / "shared" / "data" / "public"
Figure = dict[str, Any]


def cpu_s(commands: dict[str, Sequence[str]], runs: int) -> dict[str, float]:
    """The least CPU seconds of each command, the commands taking turns."""
    taken: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            taken[name].append(run(command))
    return {name: min(one.cpu_s for one in runs_of) for name, runs_of in taken.items()}


def figure(what: str, value: float, unit: str, bar: float | None = None, beside: str = "") -> Figure:
    """One row: the figure, the bar that it should not exceed, and what else was seen."""
    return {"what": what, "value": round(value, 3), "unit": unit, "bar": bar, "beside": beside}


def ours(command: str, *files: Path, cache: bool = False) -> list[str]:
    """A command of timesink on files."""
    kept = [] if cache else ["--no-cache"]
    page = ["-o", str(CACHE / "speed_table.html")] if command == "report" else []
    return [*TIMESINK, command, *kept, *map(str, files), *page]


def commands_of(file: Path, runs: int) -> dict[str, float]:
    """CPU seconds of `diagnose`, `plan` and `report` of a file."""
    return cpu_s({name: ours(name, file) for name in ("diagnose", "plan", "report")}, runs)


def sizes(files: dict[int, Path], runs: int) -> Iterator[Figure]:
    """The three commands by size of the text, and the cache."""
    for size, file in files.items():
        taken = commands_of(file, runs)
        once = taken["diagnose"]
        yield figure(f"`diagnose`, {size} MB", once, "s", TEN_BAR_S if size == min(files) else None)
        yield figure(f"`plan` / `diagnose`, {size} MB", taken["plan"] / once, "x", PLAN_BAR, f"{taken['plan']:.2f} s")
        yield figure(f"`report` / `diagnose`, {size} MB", taken["report"] / once, "x", REPORT_BAR,
                     f"{taken['report']:.2f} s")  # fmt: skip
    yield from warm(files[sorted(files)[1]], runs)


def warm(file: Path, runs: int) -> Iterator[Figure]:
    """A second question of the same file, which the cache holds by then."""
    run(ours("diagnose", file, cache=True))
    size = file.stat().st_size / 1e6
    seconds = cpu_s({"": ours("diagnose", file, cache=True)}, runs)[""]
    yield figure(f"`diagnose` again, from the cache, {size:.0f} MB packed", seconds, "s", WARM_BAR_S)


def unpacking(file: Path, size: int, runs: int) -> Iterator[Figure]:
    """The whole command beside what unpacking the file takes by gzip and by ourselves; diagnosing beside decoding."""
    unpack = f"from benchmarks.runs import unpack; from pathlib import Path; unpack(Path({str(file)!r}))"
    taken = cpu_s({
        "ours": ours("diagnose", file), "gzip": ["gzip", "-dc", str(file)], "unpack": [TIMESINK[0], "-c", unpack],
        "look": ["sh", "-c", f"wc -l < {file.with_suffix('')}"],
    }, runs)  # fmt: skip
    floors = f"`gzip -dc` {taken['gzip']:.2f} s; floors: unpacked by ISA-L {taken['unpack']:.2f} s, "
    floors += f"text read once {taken['look']:.2f} s"
    yield figure(f"`diagnose` / `gzip -dc`, {size} MB", taken["ours"] / taken["gzip"], "x", GZIP_BAR, floors)
    text = file.with_suffix("")
    asked = [TIMESINK[0], "-m", "benchmarks.speed_table", "--stages"]
    packed_s, plain_s = ([json.loads(run([*asked, str(path)]).text) for _ in range(runs)] for path in (file, text))
    read_s, rest_s = (min(one[part] for one in packed_s) for part in ("read_s", "rest_s"))
    beside = f"{read_s:.2f} s read, unpacking included, {rest_s:.2f} s diagnosed"
    yield figure(f"diagnosis / reading, {size} MB", rest_s / read_s, "x", STAGES_BAR, beside)
    slowness = min(one["read_s"] for one in plain_s) / (text.stat().st_size / 1e9)
    yield figure("a GB of plain text read into tables", slowness, "s", 1.0, f"{1 / slowness:.2f} GB/s a core")


def captures(runs: int, count: int) -> Iterator[Figure]:
    """The worst ratios among the largest captures of the fault suite and the public ones."""
    every = (ROOT / "benchmarks" / "faults" / "captures").glob("*.tar.xz")
    archives = sorted(every, key=lambda archive: (-archive.stat().st_size, archive.name))
    public = [*_PUBLIC.glob("kineto/resnet50*"), *_PUBLIC.glob("nsys/*.sqlite")] if count >= CAPTURES else []
    worst: dict[str, tuple[float, str]] = {"plan": (0.0, ""), "report": (0.0, "")}
    met, seen = 0, 0
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for archive in archives[:count]:
            unpacked(archive, Path(folder))
        found = [path for path in Path(folder).rglob("*") if path.suffix in (".json", ".sqlite")]
        largest = sorted(found, key=lambda path: -path.stat().st_size)[:count]
        for file in [*largest, *public]:
            taken = commands_of(file, runs)
            ratios = {name: taken[name] / taken["diagnose"] for name in worst}
            for name, ratio in ratios.items():
                worst[name] = max(worst[name], (ratio, file.name))
            met, seen = met + (ratios["plan"] <= PLAN_BAR and ratios["report"] <= REPORT_BAR), seen + 1
    for name, bar in (("plan", PLAN_BAR), ("report", REPORT_BAR)):
        beside = f"{worst[name][1]}; both bars met by {met} of {seen}"
        yield figure(f"`{name}` / `diagnose`, the worst of {seen} captures", worst[name][0], "x", bar, beside)


def many(devices: Sequence[int], ranks: Sequence[int], largest: int) -> Iterator[Figure]:
    """Traces of many devices, ten kernels each, and jobs of many ranks, a hundred kernels each."""
    ENVIRONMENT["TIMESINK_BUDGET"] = "1000"  # 400 GPUs in one file are refused otherwise
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        taken = []
        for count in devices:
            file = Path(folder) / f"{count}.json"
            shapes.UNITS_OF_A_DEVICE = 10
            shapes.write("devices", 40 * count, file)
            taken.append(cpu_s({"": ours("diagnose", file)}, 1)[""])
        yield _flat("GPU", "in one file", devices, taken)
        job = _job(Path(folder), largest)
        taken = [cpu_s({"": ours("diagnose", *job[:count])}, 1)[""] for count in ranks]
        yield _flat("rank", "together", ranks, taken)
        seconds = cpu_s({"": ours("report", *job)}, 1)[""]
        yield figure(f"`report` of {largest:,} ranks", seconds, "s", None, f"{1e3 * seconds / largest:.0f} ms a rank")


def _flat(thing: str, where: str, counts: Sequence[int], taken: Sequence[float]) -> Figure:
    """What one more costs among many, over what it costs among fewer."""
    last, before = ((taken[n] - taken[n - 1]) / (counts[n] - counts[n - 1]) for n in (len(counts) - 1, len(counts) - 2))
    each = ", ".join(f"{count} {seconds:.2f} s" for count, seconds in zip(counts, taken, strict=True))
    what = f"one more {thing} of {counts[-1]} / one of {counts[-2]} {where}"
    return figure(what, last / before, "x", FLAT_BAR, f"{each}: {1e3 * last:.0f} ms each")


def _job(folder: Path, count: int) -> list[Path]:
    """So many ranks of a job, a file each."""
    plain = folder / "plain.json"
    shapes.write("plain", 400, plain)
    trace, files = json.loads(plain.read_text()), []
    for rank in range(count):
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": count}
        files.append(folder / f"rank{rank:04d}.json")
        files[-1].write_text(json.dumps(trace))
    return files


def finders(runs: int) -> Iterator[Figure]:
    """Looking for all edits in the longest files of these benchmarks."""
    files = sorted(Path(__file__).parent.rglob("*.py"), key=lambda file: -file.stat().st_size)[:6]
    lines, taken = sum(len(file.read_bytes().splitlines()) for file in files), list[float]()
    for _ in range(runs):
        began = process_time()
        list(proposals(files, list(EDITS), {}))
        taken.append(process_time() - began)
    yield figure("edits looked for in 2,000 lines", 2_000 / lines * min(taken), "s", FINDERS_BAR_S, f"{lines:,} lines")


def rivals(files: dict[int, Path], hta: str, tracelens: str, nsys: str) -> Iterator[Figure]:
    """Each rival once on the same file, imports included, as ours are: how many times our CPU it takes."""
    sizes_of = sorted(files)
    mine = {size: cpu_s({"": ours("diagnose", files[size])}, 2)[""] for size in sizes_of}
    hta_too = "traceinsight (HTA)", HTA.script, hta, sizes_of
    for name, script, python, taken_sizes in (hta_too, ("TraceLens", TRACELENS.script, tracelens, sizes_of[:2])):
        for size in taken_sizes if python else []:
            seconds = run([python, str(script), str(files[size].resolve())]).cpu_s
            told = f"{seconds:.1f} s beside our {mine[size]:.2f}"
            yield figure(f"{name} / `diagnose`, {size} MB", seconds / mine[size], "times", None, told)
    if nsys:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            path = Path(folder) / "export.sqlite"
            sqlite.grow(next(one for one in sqlite.SEEDS if one.is_file()), path, 50_000, 100_000)
            alone = ["env", "-C", folder, nsys]  # it keeps a session where it runs, and refuses one whose file is gone
            seconds = run([*alone, "diagnose", str(path)]).cpu_s
            own = cpu_s({"": ours("diagnose", path)}, 2)[""]
        told = f"{seconds:.1f} s beside our {own:.2f}"
        yield figure("nsys-ai / `diagnose`, export of 50,000 kernels", seconds / own, "times", None, told)


def growth(files: dict[int, Path], told: Sequence[Figure]) -> dict[str, list[tuple[float, float]]]:
    """CPU seconds by GB of text, for the plot: ours, and rivals'."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in told:
        name, _, size = one["what"].partition(", ")
        if size.endswith(" MB") and int(size.split()[0]) in files:
            gigabytes = files[int(size.split()[0])].with_suffix("").stat().st_size / 1e9
            if name == "`diagnose`":
                lines.setdefault("timesink", []).append((gigabytes, one["value"]))
            elif one["unit"] == "times":
                lines.setdefault(name.partition(" /")[0], []).append((gigabytes, float(one["beside"].split()[0])))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=Path, default=seed(), help="the trace that is grown")
    parser.add_argument("--hta", default=str(interpreter("HTA") or ""), metavar="PYTHON")
    parser.add_argument("--tracelens", default=str(interpreter("TraceLens") or ""), metavar="PYTHON")
    parser.add_argument("--nsys-ai", default=str(nsys_ai() or ""), metavar="COMMAND")
    parser.add_argument("--stages", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stages:
        print(json.dumps(stages(options.stages, process_time)))
        return
    quick, runs = options.quick, 1 if options.quick else options.runs
    load = os.getloadavg()[0]
    files = {size: packed(grown(size, options.seed)) for size in ((1, 2, 4) if quick else (10, 100, 500))}
    parts: list[Callable[[], Iterator[Figure]]] = [
        lambda: sizes(files, runs),
        lambda: unpacking(files[max(files)], max(files), runs),
        lambda: captures(min(runs, 2), 1 if quick else CAPTURES),
        lambda: many((1, 2, 4) if quick else DEVICES, (1, 2, 4) if quick else RANKS, 8 if quick else LARGEST_JOB),
        lambda: finders(runs),
        lambda: rivals(files, *(("", "", "") if quick else (options.hta, options.tracelens, options.nsys_ai))),
    ]
    told: list[Figure] = []
    for part in parts:
        for one in part():
            told.append(one)
            print(one["what"], one["value"], one["unit"], one["bar"] or "", one["beside"], sep=" | ", flush=True)
    if not quick:
        machine = f"{os.cpu_count()} cores, {platform.machine()}, load {load:.1f} to {os.getloadavg()[0]:.1f}"
        made = {"date": date.today().isoformat(), "machine": machine, "runs": runs, "figures": told}
        RESULTS.write_text(json.dumps({**made, "growth": growth(files, told)}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
