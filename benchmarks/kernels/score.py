"""Score the diagnosis on the suite: is the limiter the planted one, and is each fix's measured gain within its bound?

    python benchmarks/kernels/score.py [REPORTS [MANIFEST]]

prints one line per pair and the totals; exits with 1 where fewer than nine in ten limiters are right, or a bound is
broken. Where the manifest wants words of the advice, a limiter is right only with them.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timesink.measures.counters.bounds import fused_bound
from timesink.measures.counters.causes import FUSE, is_tiny
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.waste import Cause
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.rules.ncu.causes import ADVICE, said_of
from timesink.units import NS_PER_US

HERE = Path(__file__).resolve().parent
WANTED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Score:
    """One pair: what was planted, what was found, what the fix gained, what the bound allowed."""

    pair: str
    planted: str
    found: str
    gain: float
    bound: float
    advice_is_right: bool = True

    @property
    def is_right(self) -> bool:
        return self.planted == self.found and self.advice_is_right

    @property
    def is_within(self) -> bool:
        return self.gain <= self.bound


def scores(reports: Path = HERE / "reports", manifest: Path = HERE / "manifest.json") -> list[Score]:
    """Every pair of the manifest, in its order."""
    times = json.loads((reports / "times.json").read_text(encoding="utf-8"))
    faults = dict(_faults(reports))
    entries = json.loads(manifest.read_text(encoding="utf-8"))
    return [_score(entry, faults[entry["pair"]], times[entry["pair"]]) for entry in entries]


def _score(entry: dict[str, Any], limits: KernelLimits, times: dict[str, float]) -> Score:
    """A kernel too small to profile alone is told as one of occupancy, whatever it waits for; its bound is that of the
    whole chain of launches, which the manifest counts, against the time of its kernels."""
    gain = times["fault_us"] / times["fix_us"]
    found, bound, advice = limits.limiter, limits.bounds[limits.limiter], said_of(limits)[1]
    if is_tiny(limits):
        lengths_ns = [limits.kernel.duration_ns or 0.0] * entry["launches"]
        found, bound = Cause.OCCUPANCY, fused_bound(lengths_ns)
        gain = min(gain, sum(lengths_ns) / NS_PER_US / times["fix_us"])
        advice = ADVICE[FUSE]
    is_said = entry.get("advice", "").casefold() in advice.casefold()
    return Score(entry["pair"], entry["limiter"], found.value, gain, bound, is_said)


def _faults(reports: Path) -> Iterator[tuple[str, KernelLimits]]:
    """Pairs and their faults, of a chain the longest launch: the kernels named so; of a report without any, named for
    its pair, the longest."""
    for packed in sorted([*reports.glob("*.ncu-rep.xz"), *reports.glob("*.raw.csv.xz")]):
        yield from faults_in(packed)[0]


def faults_in(packed: Path) -> tuple[list[tuple[str, KernelLimits]], Trace]:
    """Pairs and faults of one report, and its trace."""
    with unpacked(packed) as report:
        trace = read(report, cache=False)
    every = [one for one in kernel_limits(trace) if one is not None]
    every.sort(key=lambda one: one.kernel.duration_ns or 0.0)
    named = [(one.kernel.function, one) for one in every if one.kernel.function.endswith("_fault")]
    faults = [(function.removesuffix("_fault"), one) for function, one in named]
    return faults or [(packed.name.removesuffix(".ncu-rep.xz"), every[-1])], trace


@contextmanager
def unpacked(packed: Path) -> Iterator[Path]:
    """The report without its compression, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="timesink-kernels-") as folder:
        target = Path(folder) / packed.stem
        target.write_bytes(lzma.decompress(packed.read_bytes()))
        yield target


def main(arguments: list[str]) -> int:
    found = scores(*map(Path, arguments))
    for one in found:
        wrong = f"planted {one.planted}" if one.planted != one.found else "other advice"
        marks = ("ok" if one.is_right else wrong, "" if one.is_within else "BOUND BROKEN")
        print(f"{one.pair:20} {one.found:22} gain {one.gain:7.2f} x  bound {one.bound:7.2f} x  {' '.join(marks)}")
    right, within = sum(one.is_right for one in found), sum(one.is_within for one in found)
    print(f"limiter right in {right} of {len(found)}; measured gain within its bound in {within} of {len(found)}")
    return 0 if right >= WANTED_RATIO * len(found) and within == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
