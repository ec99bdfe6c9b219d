"""What was foretold against what was measured: the figures of the scoreboard, from plain observations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

COSTLY = 0.03
"""A fault is owed a diagnosis where its fix wins at least this share of the step."""
FREE = 0.02
"""Below this share, measured or foretold, a gain counts as none."""
NONE = "none"
UNDECIDED = "undecided"
"""Of a healthy program no false verdict, and no answer either: as many as a floor says may have it."""
ARTEFACT = "profiler_overhead"
WORTH_NAMING = 0.05
"""A change that wins this share of the step, alone or after the others, is owed among the findings."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """A gain as a share of the step."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One capture diagnosed. `gain` is measured; `findings` are (bottleneck, share of the step), best first.

    `slowdown` is the profiled over the unprofiled step. Not `settled`: the processes disagree on the truth, so that
    there is no gain to foretell, though there is a fault to name. `second` is the bottleneck of a second fault, whose
    program's `gain` is that of the first alone; `changes` are what each fix wins, alone or after the other.
    """

    fault: str
    severity: str
    variant: str
    tool: str
    split: str
    owed: str
    gain: float
    verdict: str
    findings: tuple[tuple[str, float], ...] = ()
    foretold: Foretold | None = None
    formulas: dict[str, float] = field(default_factory=dict)
    slowdown: float | None = None
    settled: bool = True
    problem: str = ""
    second: str = ""
    changes: tuple[tuple[str, float], ...] = ()

    @property
    def right(self) -> bool:
        """Whether the verdict is what was planted, or one of two things that were."""
        return self.verdict in {self.owed, self.second or self.owed}

    @property
    def healthy(self) -> bool:
        return self.owed == NONE

    @property
    def planted(self) -> bool:
        """Whether this is the capture of a fault, not of a healthy or mended program."""
        return not self.healthy and self.variant == "fault"

    @property
    def priced(self) -> bool:
        """Whether there is a gain to foretell: a planted fault with a fix, measured alike by all processes."""
        return self.planted and self.owed != ARTEFACT and self.settled

    @property
    def costly(self) -> bool:
        """Whether the verdict owed is the planted bottleneck: it costs, or, for an artefact, the profiler dominates."""
        if self.owed == ARTEFACT:
            return self.slowdown is not None and self.slowdown >= 1 / 0.6
        return self.planted and self.gain >= COSTLY


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the scoreboard; a figure without cases is None. Gains in points are hundredths of the step."""

    costly: int
    top1: float | None
    top3: float | None
    healthy: int
    false_verdicts: float | None
    undecided_verdicts: float | None
    priced: int
    mean_error_points: float | None
    median_relative_error: float | None
    sign_right: float | None
    coverage: float | None


def share(flags: Iterable[bool]) -> float | None:
    values = list(flags)
    return sum(values) / len(values) if values else None


def top(observation: Observation, count: int) -> bool:
    """Whether the planted bottleneck is among the first `count` different ones found."""
    names = list(dict.fromkeys([observation.verdict, *(name for name, _ in observation.findings)]))
    return not {observation.owed, observation.second}.isdisjoint(names[:count])


def named(observations: Iterable[Observation]) -> tuple[int, int]:
    """Of the changes that are worth naming, how many are among the findings, and how many there are."""
    flags = [
        kind in {item.verdict, *(name for name, _ in item.findings)}
        for item in observations
        if item.planted
        for kind, gain in item.changes
        if gain >= WORTH_NAMING
    ]
    return sum(flags), len(flags)


def gains(observations: Iterable[Observation], predict: Callable[[Observation], float]) -> list[tuple[float, float]]:
    """(foretold, measured) for every planted fault with a fix in the program; not found counts as a gain of nothing."""
    return [(predict(item), item.gain) for item in observations if item.priced]


def foretold_value(observation: Observation) -> float:
    return observation.foretold.value if observation.foretold else 0.0


def mean_error_points(pairs: Sequence[tuple[float, float]]) -> float | None:
    return 100 * statistics.fmean(abs(a - b) for a, b in pairs) if pairs else None


def median_relative_error(pairs: Sequence[tuple[float, float]]) -> float | None:
    errors = [abs(a - b) / b for a, b in pairs if b >= COSTLY]
    return statistics.median(errors) if errors else None


def sign_right(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Of the gains that are none, how many were foretold as none."""
    return share(a < FREE for a, b in pairs if abs(b) < FREE)


def coverage(observations: Iterable[Observation]) -> float | None:
    """How often the measured gain lies between low and high, where one was foretold; half a point is noise."""
    noise = 0.005
    told = ((item.foretold, item.gain) for item in observations if item.priced)
    return share(found.low - noise <= gain <= found.high + noise for found, gain in told if found)


def figures(observations: Sequence[Observation]) -> Figures:
    costly = [item for item in observations if item.costly]
    healthy = [item for item in observations if item.healthy]
    pairs = gains(observations, foretold_value)
    return Figures(
        costly=len(costly),
        top1=share(item.right for item in costly),
        top3=share(top(item, 3) for item in costly),
        healthy=len(healthy),
        false_verdicts=share(item.verdict not in (NONE, UNDECIDED) for item in healthy),
        undecided_verdicts=share(item.verdict == UNDECIDED for item in healthy),
        priced=len(pairs),
        mean_error_points=mean_error_points(pairs),
        median_relative_error=median_relative_error(pairs),
        sign_right=sign_right(pairs),
        coverage=coverage(observations),
    )


def formula_figures(observations: Sequence[Observation], name: str) -> tuple[float | None, float | None, float | None]:
    """Mean error in points, median relative error, sign accuracy of a peer's formula on the same captures."""
    pairs = gains(observations, lambda item: item.formulas.get(name, 0.0))
    return mean_error_points(pairs), median_relative_error(pairs), sign_right(pairs)
