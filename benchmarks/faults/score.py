"""Score diagnoses and prices against the measured truth; `make scoreboard` prints it.

python -m benchmarks.faults.score [--tool torch] [--split tune] [--only a,b] [--blind] [--details] [--json OUT]
python -m benchmarks.faults.score --floors  # every split that has floors, held against floors.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import multiprocessing
import os
import re
import statistics
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults import floors, scoring, suite, sweep
from benchmarks.faults.adopt import MEASURED, archive
from benchmarks.faults.doubles import changes
from benchmarks.faults.floors import ALL
from benchmarks.faults.pack import unpacked
from benchmarks.faults.scoring import Figures, Foretold, Observation

from timesink.records import replace

TOOLS = ("torch", "nsys")
DISAGREEMENT = 0.25
"""Slowest over fastest process, above which a case is diagnosed but not priced."""
HEADINGS = (
    "split",
    "tool",
    "costly",
    "top-1",
    "top-3",
    "healthy",
    "false",
    "priced",
    "MAE",
    "rel.",
    "sign",
    "coverage",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One archive to score: the captures of one program by one tool, and what was measured of it."""

    fault: str
    tool: str
    measured: dict[str, dict[str, Any]]
    blind: bool = False


def truth(measured: dict[str, Any] | None) -> tuple[float, float, float] | None:
    """Measured gain as a share, and the unprofiled steps of fault and fix in ms; None without equal receipts."""
    if not measured or not measured["fault_ms"] or not measured["fix_ms"] or not all(measured["receipts_equal"]):
        return None
    fault, fix = statistics.median(measured["fault_ms"]), statistics.median(measured["fix_ms"])
    return 1 - fix / fault, fault, fix


def agreed(measured: dict[str, Any]) -> bool:
    """Whether the processes measured about the same: otherwise their median is no truth to hold a price against."""
    mended = measured.get("first_fixed_ms", measured["fix_ms"])
    return all(max(times) <= (1 + DISAGREEMENT) * min(times) for times in (measured["fault_ms"], mended))


SETTINGS = ".settings"
"""Beside a capture of the fourth set: what a manifest says of its run."""
RANK = re.compile(r"\.rank\d+$")


def captures_in(folder: Path) -> dict[str, list[Path]]:
    """Files by capture, `fault.severity.variant`: one, or one a rank."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix != SETTINGS):
        found.setdefault(RANK.sub("", path.stem), []).append(path)
    return found


def diagnosed(paths: Sequence[Path], unprofiled_ms: float | None) -> tuple[Any, Any]:
    """Trace of all ranks, and its diagnosis, told the unprofiled step time unless that is None."""
    import timesink
    from timesink.readers import read

    trace = timesink.read(paths[0]) if len(paths) == 1 else read(paths)
    trace = trace.with_settings(settings_beside(paths[0]))
    return trace, timesink.diagnose(trace, unprofiled_step_ms=unprofiled_ms)


def settings_beside(path: Path) -> dict[str, str]:
    """What a manifest would say of the run of this capture; nothing where none was kept."""
    from timesink.capture.recorded_run import settings_of

    kept = path.with_suffix(SETTINGS)
    if not kept.exists():
        return {}
    said = json.loads(kept.read_text())
    return settings_of({"ranks": [{"settings": said["settings"]}], "gpus": said["gpus"]})


Gpu = tuple[int, int]


def foretold(findings: Sequence[tuple[str, Gpu, Any]], owed: str, step_ms: float) -> Foretold | None:
    """The sum of what the findings of the planted bottleneck promise on the GPU that gains most, at most the whole
    step: GPUs wait for each other, so what each of them gains does not add up."""
    by_rank: dict[Gpu, list[Any]] = {}
    for name, rank, worth in findings:
        if name == owed and worth is not None:
            by_rank.setdefault(rank, []).append(worth)
    if not by_rank:
        return None
    promised = max(by_rank.values(), key=lambda part: sum(worth.value for worth in part))
    value = sum(worth.value for worth in promised)
    low = sum(worth.value if worth.low is None else worth.low for worth in promised)
    high = sum(worth.most for worth in promised)
    return Foretold(*(min(1.0, part / step_ms) for part in (value, low, high)))


def told(fault: suite.Fault, findings: Sequence[tuple[str, Any]]) -> list[str]:
    """The bottleneck that each finding counts as: one of the fault's cause as what is owed, and then its symptom, which
    is what is left beside it, as no longer that."""
    names, cause = [kind_of(finding) for _, finding in findings], suite.CAUSES.get(fault.name)
    if cause not in names:
        return names
    return [
        fault.bottleneck if name == cause else f"rest of {name}" if name == fault.bottleneck else name for name in names
    ]


def kind_of(told: Any) -> str:
    """The planted kind of what a finding or a diagnosis names."""
    return suite.OF_KIND.get(told.bottleneck.value, told.bottleneck.value)


def gpu_of(finding: Any) -> Gpu:
    """The rank and GPU of a finding: the first where it names none."""
    return finding.where.rank or 0, finding.where.device or 0


def observed(
    capture: str, paths: Sequence[Path], tool: str, measured: dict[str, dict[str, Any]], blind: bool = False
) -> Observation | None:
    """One capture diagnosed and held against the truth; None where there is no truth."""
    from benchmarks.faults import formulas

    name, severity, variant = capture.split(".")
    fault = suite.find(name)
    known = truth(measured.get(f"{name}/{severity}"))
    if known is None:
        return None
    gain, fault_ms, fix_ms = known
    case = measured[f"{name}/{severity}"]
    if "first_fixed_ms" in case:
        gain = 1 - statistics.median(case["first_fixed_ms"]) / fault_ms
    unprofiled_ms = fault_ms if variant == "fault" else fix_ms
    frame = Observation(
        name, severity, variant, tool, fault.split, fault.bottleneck, gain, "", settled=agreed(case),
        second=fault.second, changes=tuple(changes(fault, case)),
    )  # fmt: skip
    try:
        trace, diagnosis = diagnosed(paths, None if blind else unprofiled_ms)
    except Exception as problem:  # noqa: BLE001 - a crash is a miss, and is shown
        return dataclasses.replace(frame, verdict="crashed", problem=f"{type(problem).__name__}: {problem}"[:200])
    profiled_ms = formulas.mean_step_ms(trace)
    names = told(fault, diagnosis.findings)
    findings = [(n, gpu_of(one), one.recoverable) for n, (_, one) in zip(names, diagnosis.findings, strict=True)]
    verdict = kind_of(diagnosis)
    return dataclasses.replace(
        frame,
        verdict=fault.bottleneck if verdict == suite.CAUSES.get(fault.name) else verdict,
        findings=tuple((name, worth.value / unprofiled_ms if worth else 0.0) for name, _, worth in findings),
        foretold=foretold(findings, fault.bottleneck, unprofiled_ms),
        formulas=formulas.prices(trace, fault.bottleneck),
        slowdown=profiled_ms / unprofiled_ms if profiled_ms else None,
    )


def archive_observed(job: Job) -> list[Observation]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            unpacked(archive(job.fault, job.tool), Path(folder))
        except (OSError, lzma.LZMAError, tarfile.TarError) as problem:
            raise SystemExit(f"{job.fault}.{job.tool}.tar.xz cannot be opened: {problem}") from problem
        captures = captures_in(Path(folder))
        seen = [observed(capture, paths, job.tool, job.measured, job.blind) for capture, paths in captures.items()]
    return [observation for observation in seen if observation]


def swept(task: tuple[Job, sweep.How, frozenset[str] | None]) -> list[sweep.Swept]:
    """For the capture with its fault and these assumptions: figures as it is, and moved. Without a list the names of
    all that its diagnosis reads."""
    from timesink.readers import read

    job, how, names = task
    known = truth(job.measured.get(f"{job.fault}/high"))
    if known is None:
        return []
    gain, step_ms, _ = known
    fault = suite.find(job.fault)
    with tempfile.TemporaryDirectory() as folder:
        unpacked(archive(job.fault, job.tool), Path(folder))
        paths = captures_in(Path(folder)).get(f"{job.fault}.high.fault")
        if not paths:
            return []
        trace = sweep.without_marks(read(paths)) if how == "unmarked" else read(paths)

    def figures() -> sweep.Figures:
        import timesink

        anew = replace(trace)  # of which nothing is remembered
        diagnosis = timesink.diagnose(anew, unprofiled_step_ms=step_ms if how == "told" else None)
        names = told(fault, diagnosis.findings)
        priced = [(n, gpu_of(one), one.recoverable) for n, (_, one) in zip(names, diagnosis.findings, strict=True)]
        promised = foretold(priced, fault.bottleneck, step_ms)
        error = None if promised is None else abs(promised.value - gain)
        every = tuple(
            (card.code, worth and (worth.value, worth.low, worth.high))
            for card, worth in ((card, finding.recoverable) for card, finding in diagnosis.findings)
        )
        return kind_of(diagnosis), None if promised is None else promised.value, error, every

    with sweep.watched() as seen:
        base = figures()
    found = []
    for name in sorted(seen if names is None else names):
        sides = []
        for factor in () if names is None else sweep.SIDES:
            with sweep.moved(name, factor):
                sides.append(figures())
        found.append((name, base, sides))
    return found


def jobs(options: argparse.Namespace) -> list[Job]:
    if not MEASURED.exists():
        raise SystemExit(f"{MEASURED} is missing: make the captures on a GPU first (benchmarks/faults/README.md)")
    measured = json.loads(MEASURED.read_text())
    wanted = {case.fault for case in suite.cases(options.only)}
    every = floors.splits() if options.floors else sweep.SPLITS if options.sweep else suite.SPLITS
    splits = (options.split,) if options.split else every
    return [
        Job(fault.name, tool, measured, options.blind)
        for fault in suite.FAULTS
        for tool in TOOLS
        if fault.name in wanted
        and options.tool in ("", tool)
        and fault.split in splits
        and archive(fault.name, tool).exists()
    ]


def figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def row(split: str, tool: str, found: Figures) -> tuple[str, ...]:
    return (
        split, tool, str(found.costly), figure(found.top1, ".0%"), figure(found.top3, ".0%"), str(found.healthy),
        figure(found.false_verdicts, ".0%"), str(found.priced), figure(found.mean_error_points, ".1f"),
        figure(found.median_relative_error, ".0%"), figure(found.sign_right, ".0%"), figure(found.coverage, ".0%"),
    )  # fmt: skip


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns as wide as they need."""
    widths = [max(len(line[column]) for line in (headings, *rows)) for column in range(len(headings))]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def groups(observations: Sequence[Observation]) -> Iterator[tuple[str, str, list[Observation]]]:
    """Every split and tool with captures, then all splits together where there are several."""
    splits = [split for split in suite.SPLITS if any(item.split == split for item in observations)]
    for split in [*splits, ALL] if len(splits) > 1 else splits:
        for tool in TOOLS:
            part = [item for item in observations if item.tool == tool and split in (ALL, item.split)]
            if part:
                yield split, tool, part


def peers(observations: Sequence[Observation]) -> str:
    """The peers' formulas on the same captures, the fault being known to them."""
    from benchmarks.faults import formulas

    rows = []
    for split, tool, part in groups(observations):
        own = scoring.figures(part)
        figures = {"timesink": (own.mean_error_points, own.median_relative_error, own.sign_right)}
        figures |= {name: scoring.formula_figures(part, name) for name in formulas.NAMES}
        for name, (points, relative, sign) in figures.items():
            rows.append((split, tool, name, figure(points, ".1f"), figure(relative, ".0%"), figure(sign, ".0%")))
    return table(("split", "tool", "price by", "MAE", "rel.", "sign"), rows)


def promised_too_much(observations: Sequence[Observation]) -> str:
    """How many captures are promised more than their true step, and of how many of these that step is known."""
    above = [item for item in observations if any(value > 1.0 for _, value in item.findings)]
    settled = sum(item.settled for item in above)
    return f"promised more than the true step: {len(above)} captures, {settled} of which all processes timed alike"


def details(observations: Sequence[Observation]) -> str:
    rows = []
    for item in observations:
        says = (
            f"{100 * item.foretold.value:.1f} ({100 * item.foretold.low:.1f}–{100 * item.foretold.high:.1f})"
            if item.foretold
            else "–"
        )
        found = ", ".join(f"{name} {100 * value:.0f}" for name, value in item.findings[:3]) or item.problem
        part = "".join(word[0] for word in item.split.split("_"))
        mark = "ok" if item.right else "miss" if item.costly else "FALSE" if item.healthy else ""
        rows.append(
            (f"{item.fault}/{item.severity}/{item.variant}", item.tool, part, item.owed, item.verdict, mark,
             f"{100 * item.gain:.1f}", says, found)
        )  # fmt: skip
    return table(("case", "tool", "", "owed", "verdict", "", "gain %", "foretold %", "findings %"), rows)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=("", *TOOLS), default="")
    parser.add_argument(
        "--split",
        choices=suite.SPLITS,
        help="one only; limits are set on the tune ones, the evaluate ones are looked at last, fresh is scored once",
    )
    parser.add_argument("--only", default="", help="fault, fault/severity or topic:, separated by commas")
    parser.add_argument("--blind", action="store_true", help="withhold the unprofiled step; gains are held against it")
    parser.add_argument("--details", action="store_true", help="every case: owed, verdict, measured and foretold gain")
    parser.add_argument("--json", type=Path, help="write every observation there")
    parser.add_argument("--floors", action="store_true", help="fail where a figure is worse than floors.json")
    parser.add_argument("--set-floors", action="store_true", help="write the figures of these splits to floors.json")
    parser.add_argument(
        "--sweep", action="store_true", help="move each assumption by a quarter: what moves, and by how much"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.set_floors and (options.tool or options.only or options.blind):
        parser.error("floors are those of whole splits, told the unprofiled step")
    return options


def main() -> int:
    options = parsed()
    # spawn: a forked child of a process that used Polars can hang
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        if options.sweep:
            captures = list(enumerate(jobs(options)))  # the two rarer ways only for every third capture
            inputs = [(job, how) for at, job in captures for how in sweep.HOW if how == "told" or at % 3 == 0]
            found = sweep.over(inputs, lambda tasks: pool.map(swept, tasks, chunksize=1))
            print(table(sweep.HEADINGS, sweep.rows(found)))
            return 0
        observations = [item for part in pool.map(archive_observed, jobs(options), chunksize=1) for item in part]
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(item) for item in observations], indent=1))
    if options.details:
        print(details(observations), end="\n\n")
    parts = list(groups(observations))
    found = [(split, tool, scoring.figures(part)) for split, tool, part in parts]
    print(table(HEADINGS, [row(*one) for one in found]))
    for split, tool, part in parts:
        print("\n{} {}: {} of {} changes worth naming are named".format(split, tool, *scoring.named(part)), end="")
    print()
    if options.blind:
        print(f"\n{promised_too_much(observations)}")
    print()
    print(peers(observations))
    if options.set_floors:
        floors.keep(found)
    breaches = floors.breaches(found, floors.known()) if options.floors else []
    print("".join(f"\n{line}" for line in breaches), end="\n" if breaches else "")
    return int(bool(breaches))


if __name__ == "__main__":
    raise SystemExit(main())
