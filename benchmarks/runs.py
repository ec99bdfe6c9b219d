"""What every speed benchmark is made of: commands run in turn, each in a process of its own, and rows of one table."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
# An installed package has its bytecode. Where a variable forbids writing it, every run would compile the sources anew.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
TIMESINK = (sys.executable, "-c", "from timesink.cli.app import main; main()")


@dataclass(frozen=True, slots=True)
class Run:
    """One process: wall-clock and processor seconds, and the most memory it held, its imports included."""

    seconds: float
    cpu_s: float
    peak_mb: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `met` is None where the line has no bar, or is none of ours."""

    benchmark: str
    what: str
    figure: str
    bar: str = ""
    met: bool | None = None


def run(command: Sequence[str]) -> Run:
    """Run a command to its end. `RuntimeError` with its last words where it fails."""
    started = perf_counter()
    with Popen(command, stdout=PIPE, stderr=DEVNULL, cwd=ROOT, env=ENVIRONMENT, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}: {text[-500:]}")
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6, text)


def in_turn(commands: Sequence[Sequence[str]], runs: int) -> list[Run]:
    """The medians of each command, the commands taking turns so that a busy machine slows all of them."""
    taken = [[run(command) for command in commands] for _ in range(runs)]
    return [median(column) for column in zip(*taken, strict=True)]


def median(runs: Iterable[Run]) -> Run:
    """Each figure's median, and the text of the last run."""
    kept = list(runs)
    return Run(
        statistics.median(run.seconds for run in kept),
        statistics.median(run.cpu_s for run in kept),
        statistics.median(run.peak_mb for run in kept),
        kept[-1].text,
    )


def at_least(benchmark: str, what: str, ratio: float, bar: float) -> Row:
    """A ratio that should be no smaller than its bar."""
    return Row(benchmark, what, f"{ratio:.3g} x", f">= {bar:g} x", ratio >= bar)


def at_most(benchmark: str, what: str, value: float, bar: float, unit: str) -> Row:
    """A figure that should be no larger than its bar."""
    return Row(benchmark, what, f"{_plain(value)} {unit}", f"<= {bar:g} {unit}", value <= bar)


def over_floor(benchmark: str, what: str, seconds: float, floor: str, floor_s: float) -> Row:
    """A time beside what no program can do it in."""
    return Row(benchmark, f"{what} / the floor: {floor}", f"{_plain(seconds / floor_s)} x ({floor_s * 1e3:,.1f} ms)")


def best_of(runs: int, work: Callable[[Path], object], path: Path) -> float:
    """The least wall-clock seconds of some work on a file, here and now: what a floor is."""
    taken = []
    for _ in range(runs):
        start = perf_counter()
        work(path)
        taken.append(perf_counter() - start)
    return min(taken)


def look_at(path: Path) -> None:
    """Bring the file's bytes into memory and look at each once (a count of line ends)."""
    window = bytearray(1 << 20)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(window):
            window.count(b"\n", 0, count)


def unpack(path: Path) -> None:
    """Unpack the file, in the pieces of the reader."""
    from timesink.untrusted.budget import ReadLimits
    from timesink.untrusted.unpack import UnpackedFile

    for _ in UnpackedFile(path, ReadLimits()):
        pass


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def noted(benchmark: str, what: str, taken: Run) -> Row:
    """A run without a bar of its own."""
    return Row(benchmark, what, f"{taken.seconds:.2f} s ({taken.cpu_s:.2f} s of CPU), {taken.peak_mb:,.0f} MB")


def show(rows: Iterable[Row]) -> bool:
    """Print the rows as a Markdown table as they come, with the load of the machine. Whether every bar was met."""
    good = True
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| benchmark | what | figure | bar | |\n|---|---|---|---|---|")
    for row in rows:
        good = good and row.met is not False
        verdict = {None: "", True: "met", False: "missed"}[row.met]
        print(f"| {row.benchmark} | {row.what} | {row.figure} | {row.bar} | {verdict} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    return good
