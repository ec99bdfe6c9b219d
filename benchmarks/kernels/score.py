"""Score the diagnosis on the suite: is the limiter the planted one, and is each fix's measured gain within its bound?

    python benchmarks/kernels/score.py [REPORTS]

prints one line per pair and the totals; exits with 1 where fewer than nine in ten limiters are right, or a bound is
broken.
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

from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.readers import read

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

    @property
    def is_right(self) -> bool:
        return self.planted == self.found

    @property
    def is_within(self) -> bool:
        return self.gain <= self.bound


def scores(reports: Path = HERE / "reports") -> list[Score]:
    """Every pair of the manifest, by name."""
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    times = json.loads((reports / "times.json").read_text(encoding="utf-8"))
    faults = {limits.kernel.function.removesuffix("_fault"): limits for limits in _faults(reports)}
    return [_score(entry["pair"], entry["limiter"], faults[entry["pair"]], times[entry["pair"]]) for entry in manifest]


def _score(pair: str, planted: str, limits: KernelLimits, times: dict[str, float]) -> Score:
    gain = times["fault_us"] / times["fix_us"]
    return Score(pair, planted, limits.limiter.value, gain, limits.bounds[limits.limiter])


def _faults(reports: Path) -> Iterator[KernelLimits]:
    for packed in sorted(reports.glob("*.ncu-rep.xz")):
        with unpacked(packed) as report:
            every = kernel_limits(read(report, cache=False))
        yield from (one for one in every if one is not None and one.kernel.function.endswith("_fault"))


@contextmanager
def unpacked(packed: Path) -> Iterator[Path]:
    """The report without its compression, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="timesink-kernels-") as folder:
        target = Path(folder) / packed.stem
        target.write_bytes(lzma.decompress(packed.read_bytes()))
        yield target


def main(arguments: list[str]) -> int:
    found = scores(Path(arguments[0]) if arguments else HERE / "reports")
    for one in found:
        marks = ("ok" if one.is_right else f"planted {one.planted}", "" if one.is_within else "BOUND BROKEN")
        print(f"{one.pair:20} {one.found:22} gain {one.gain:7.2f} x  bound {one.bound:7.2f} x  {' '.join(marks)}")
    right, within = sum(one.is_right for one in found), sum(one.is_within for one in found)
    print(f"limiter right in {right} of {len(found)}; measured gain within its bound in {within} of {len(found)}")
    return 0 if right >= WANTED_RATIO * len(found) and within == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
