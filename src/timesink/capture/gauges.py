"""Figures that people know of their program before they capture it, and which capture each of them speaks for.

The sliders of the page "Which tool first?" and options of `timesink which` are these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gauge:
    """One figure, from `low` to `high` by `step`. From `at` on it speaks for the answer `above`, under it for `below`
    ('' for none); each clears what else spoke for the other. `phrase` is how it is said; its words count as those of
    the question do: a share that one kernel takes has fewer than idle time, which hides how slow kernels are."""

    name: str
    label: str
    unit: str
    low: float
    high: float
    step: float
    at: float
    above: str
    below: str
    phrase: str

    def speaks(self, value: float) -> tuple[str, str]:
        """The answer that the figure speaks for, and the one it speaks against; '' for none."""
        return (self.above, self.below) if value >= self.at else (self.below, self.above)

    def words(self, value: float) -> str:
        """How it is said: ``utilisation 60 %``."""
        return self.phrase.replace("#", f"{value:g}")


SLOW_STEP_MS = 10_000.0  # two dozen steps of it are minutes
FEWER_STEPS = ("--settle", "1", "--timed", "2", "--steps", "2")
GAUGES = (
    # From 90 % on the device is what limits, and gaps explain at most a tenth of the step.
    Gauge("gpu_busy", "GPU busy", "%", 0, 100, 1, 90, "step", "gaps", "utilisation # %"),
    Gauge("short_kernels", "kernels under 10 us", "%", 0, 100, 5, 50, "gaps", "", "short #%"),
    Gauge("one_kernel", "of the step in one kernel", "%", 0, 100, 5, 20, "kernel", "", "kernel #%"),
    Gauge("ranks", "ranks", "", 1, 64, 1, 2, "ranks", "", "# ranks"),
    Gauge("step_ms", "a step takes", "ms", 0, 60_000, 500, SLOW_STEP_MS, "", "", ""),
)
