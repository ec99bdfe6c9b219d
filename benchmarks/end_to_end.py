"""`timesink diagnose` from a gzip'd trace to the verdict, beside HTA and TraceLens, and how it grows.

    python -m benchmarks.end_to_end [--hta PYTHON] [--tracelens PYTHON]

Each rival runs under an interpreter that has it. HTA loads the file and takes its temporal and its idle breakdown;
TraceLens writes its performance report. Their imports are not counted, ours are. Without an interpreter, and for the
2 GB trace, where HTA needs eight minutes (`--beside-largest` takes them), recorded figures stand in (two cores, a trace
of the same size and kind from another seed): such rows say so, and are no side-by-side measurement.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.inputs import traces
from benchmarks.runs import (
    TIMESINK,
    Row,
    Run,
    at_least,
    at_most,
    best_of,
    in_turn,
    median,
    noted,
    over_floor,
    run,
    show,
    unpack,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rival:
    """A tool that answers part of the same questions. Seconds and bars are by megabytes of text."""

    name: str
    script: Path
    recorded_s: Mapping[int, float]
    bars: Mapping[int, float]


NAME = "end to end"
_HERE = Path(__file__).parent
HTA = Rival("HTA 0.5.0", _HERE / "rival_hta.py", {500: 48.9, 2000: 465.0}, {500: 50.0, 2000: 100.0})
TRACELENS = Rival("TraceLens 171dd74", _HERE / "rival_tracelens.py", {500: 43.9, 2000: 250.0}, {})
BESIDE_MB = 500
LARGEST_BESIDE_BAR = 60.0
"""Times as fast as HTA run beside it at 2 GB, where the machine that its seconds were recorded on is not at hand."""
SECONDS_BAR = 1.8
MEMORY_BAR_MB = 2000
LARGEST_BAR_MB = 6000
LONG_S = 20.0  # a longer run is taken once
BLAME_BAR = 1.0


def rows(
    runs: int, sizes: tuple[int, int, int] = (125, 500, 2000), hta: str = "", tracelens: str = ""
) -> Iterator[Row]:
    """Sizes are megabytes of text: one, four and sixteen times as many events."""
    with traces(*sizes) as files:
        taken: dict[int, Run] = {}
        for size, file in zip(sizes, files, strict=True):
            ours = [*TIMESINK, "diagnose", "--no-cache", "--format", "json", str(file)]
            mine = [run(ours)]
            while len(mine) < runs and mine[0].seconds < LONG_S:
                mine.append(run(ours))
            taken[size] = median(mine)
            yield noted(NAME, f"diagnose, {size} MB, median of {len(mine)}", taken[size])
            yield over_floor(NAME, f"diagnose, {size} MB", taken[size].seconds, "unpack", best_of(runs, unpack, file))
            for rival, python in ((HTA, hta), (TRACELENS, tracelens)):
                yield from _beside(rival, python, size, file, taken[size])
            if size == BESIDE_MB:
                yield at_most(NAME, f"diagnose, {size} MB", taken[size].seconds, SECONDS_BAR, "s")
            if size == max(HTA.bars):
                yield at_most(NAME, f"peak memory, {size} MB", taken[size].peak_mb, MEMORY_BAR_MB, "MB")
        yield from _growth(sizes, files, taken)
        yield from _stages(sizes[1], files[1], runs)


def _beside(rival: Rival, python: str, size: int, file: Path, ours: Run) -> Iterator[Row]:
    """The rival run once, as it takes a minute or more; where it is not at hand, its recorded seconds."""
    if size not in rival.recorded_s:
        return
    theirs_s, whose = rival.recorded_s[size], "recorded"
    if python and size == BESIDE_MB:
        theirs = run([python, str(rival.script), str(file)])
        theirs_s, whose = json.loads(theirs.text.splitlines()[-1])["seconds"], "beside it"
        yield noted(NAME, f"{rival.name}, {size} MB, imports included", theirs)
        yield Row(NAME, f"{size} MB, CPU time: {rival.name} / diagnose", f"{theirs.cpu_s / ours.cpu_s:.1f} x")
    what, times = f"{size} MB, wall clock: {rival.name} ({whose}, {theirs_s:.1f} s) / diagnose", theirs_s / ours.seconds
    yield at_least(NAME, what, times, rival.bars[size]) if rival.bars else Row(NAME, what, f"{times:.1f} x")


def _growth(sizes: tuple[int, int, int], files: list[Path], taken: dict[int, Run]) -> Iterator[Row]:
    """The exponent of time in size between neighbours; 1 is linear. The processor's time, which a busy machine moves
    less than the wall clock; the packed bytes stand for the number of events, which they follow."""
    for (small, file), (large, other) in zip(
        zip(sizes, files, strict=True), zip(sizes[1:], files[1:], strict=False), strict=False
    ):
        times = taken[large].cpu_s / taken[small].cpu_s
        exponent = math.log(times) / math.log(other.stat().st_size / file.stat().st_size)
        yield Row(NAME, f"growth exponent of CPU time, {small} to {large} MB", f"{exponent:.2f}")


def _stages(size: int, file: Path, runs: int) -> Iterator[Row]:
    """Everything after decoding, blame and prices included, against decoding."""
    taken = in_turn([[sys.executable, "-m", "benchmarks.end_to_end", "--stages", str(file)]], runs)[0]
    stages = json.loads(taken.text)
    events = f"{stages['rows'] / 1e6:.1f} M rows of tables"
    yield Row(
        NAME, f"{size} MB ({events}): decode, then diagnose", f"{stages['read_s']:.2f} s, {stages['rest_s']:.2f} s"
    )
    yield at_most(NAME, "diagnosis, blame and prices included / decoding", stages["rest_s"] / stages["read_s"],
                  BLAME_BAR, "x")  # fmt: skip


def beside_largest(python: str, megabytes: int = 2000) -> Iterator[Row]:
    """HTA once on the largest of the traces, for ten minutes or more, and a diagnosis of it before and after."""
    with traces(megabytes) as files:
        ours = [*TIMESINK, "diagnose", "--no-cache", "--format", "json", str(files[0])]
        before = run(ours)
        theirs = run([python, str(HTA.script), str(files[0])])
        mine = max(before, run(ours), key=lambda taken: taken.seconds)
    yield noted(NAME, f"diagnose, {megabytes} MB, the slower of two", mine)
    yield noted(NAME, f"{HTA.name}, {megabytes} MB, imports included", theirs)
    yield Row(NAME, f"{megabytes} MB, CPU time: {HTA.name} / diagnose", f"{theirs.cpu_s / mine.cpu_s:.1f} x")
    times = json.loads(theirs.text.splitlines()[-1])["seconds"] / mine.seconds
    yield at_least(NAME, f"{megabytes} MB, wall clock: {HTA.name} / diagnose", times, LARGEST_BESIDE_BAR)


def largest(megabytes: int) -> Iterator[Row]:
    """One diagnosis of so much text, packed: the largest trace that must fit."""
    with traces(megabytes) as files:
        taken = run([*TIMESINK, "diagnose", "--no-cache", "--format", "json", str(files[0])])
    yield noted(NAME, f"diagnose, {megabytes} MB, once", taken)
    yield at_most(NAME, f"peak memory, {megabytes} MB", taken.peak_mb, LARGEST_BAR_MB, "MB")


def stages(file: Path, clock: Callable[[], float] = perf_counter) -> dict[str, float]:
    """Seconds by this clock of decoding and of all that follows, in one process, imports apart."""
    from timesink.diagnosis.engine import diagnose
    from timesink.diagnosis.registry import all_rules
    from timesink.readers import read, reader_of

    rules = all_rules()
    reader_of(file)
    started = clock()
    trace = read(file, cache=False)
    decoded = clock()
    diagnose(trace, rules)
    done = clock()
    total = sum(trace[table].height for table in trace)
    return {"read_s": decoded - started, "rest_s": done - decoded, "rows": total}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta", default="", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    parser.add_argument("--tracelens", default="", metavar="PYTHON", help="an interpreter with TraceLens")
    parser.add_argument("--largest", type=int, metavar="MB", help="only one diagnosis of so much text, and its memory")
    parser.add_argument("--beside-largest", action="store_true", help="only HTA on 2 GB, ten minutes or more")
    parser.add_argument("--stages", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stages:
        print(json.dumps(stages(chosen.stages)))
    elif chosen.beside_largest:
        show(beside_largest(chosen.hta))
    else:
        every = rows(chosen.runs, hta=chosen.hta, tracelens=chosen.tracelens)
        show(largest(chosen.largest) if chosen.largest else every)
