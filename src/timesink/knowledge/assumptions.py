"""The figures that nobody can read off a trace: what a fix leaves, what recording costs, where a line is drawn.

`Assumption` is the sibling of a rule's `Limit`. All are declared in `assumptions.json` by subject, each with its unit,
its reason and its source, and printed as docs/assumptions.md; code reads them as `fixes.LOADING_LEFT`. The environment
variable `TIMESINK_ASSUMPTIONS` replaces some for one run: ``fixes.loading_left=0.2,replay.event_cost_us=1:2:4``, one
figure or all three.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timesink.errors import UsageError
from timesink.knowledge import Pattern
from timesink.records import State

VARIABLE: Final = "TIMESINK_ASSUMPTIONS"


class Assumption(State, eq=False):
    """One assumed figure with the range it may lie in.

    `value` is what is expected. For a share or a cost that a price uses, `low` is the figure that wins least and `high`
    the one that wins most, whichever is larger; a price takes all three. For a threshold they are the least and the
    greatest figure that could be defended. `source` says where the figures are from, `set_on` which split of
    benchmarks/faults they were set on, if any, and `rules` the codes of the rules that use them: none where many do.
    """

    low: float
    value: float
    high: float
    unit: str
    why: str
    source: str
    set_on: str = ""
    rules: str = ""
    name: str = ""
    changed: bool = False

    def at(self, case: Enum) -> float:
        """The figure at a case: 0 wins least, 1 is expected, 2 wins most."""
        return (self.low, self.value, self.high)[case.value]

    @property
    def whole(self) -> int:
        """The value of a count."""
        return round(self.value)

    @property
    def ns(self) -> int:
        """The value of a time in whole nanoseconds; the unit must be us."""
        return round(self.value * 1000)  # ns per us

    def replace(self, figures: tuple[float, ...]) -> None:
        """Take these instead: all three, or the value alone, which widens the range where it is outside."""
        if len(figures) == 1:
            (value,) = figures
            least, most = sorted((self.low, self.high))
            below, above = min(least, value), max(most, value)
            figures = (below, value, above) if self.low <= self.high else (above, value, below)
        self.low, self.value, self.high = figures
        self.changed = True


class Subject:
    """The assumptions about one subject as attributes: `machines.DRAM_BUSY` is `dram_busy` of its part of the file."""

    def __init__(self, subject: str, declared: Mapping[str, Any]) -> None:
        self.about: str = declared["about"]
        for name, fields in declared.items():
            if name != "about":
                setattr(self, name.upper(), Assumption(**fields, name=f"{subject}.{name}"))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Assumption: ...


def read_replacements(text: str) -> dict[str, tuple[float, ...]]:
    """The figures by name that the environment variable gives; `UsageError` where it cannot be read."""
    replaced = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, figures = part.partition("=")
        try:
            numbers = tuple(float(figure) for figure in figures.split(":"))
        except ValueError:
            numbers = ()
        if not equals or len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
            raise UsageError(
                f"{VARIABLE}: {part!r} is not an assumption",
                remedy="write name=value or name=low:value:high, such as fixes.loading_left=0.2",
            )
        replaced[name.strip().lower()] = numbers
    return replaced


def collect_assumptions(subjects: Mapping[str, Subject], text: str) -> dict[str, Assumption]:
    """The assumptions of all subjects by name, `subject.variable`, with the replacements of `text` applied."""
    every = {
        found.name: found
        for subject in subjects.values()
        for found in vars(subject).values()
        if isinstance(found, Assumption)
    }
    for name, figures in read_replacements(text).items():
        if name not in every:
            raise UsageError(f"{VARIABLE}: no assumption {name!r}", remedy="timesink explain --assumptions lists them")
        every[name].replace(figures)
    return every


def changed() -> tuple[str, ...]:
    """What this run assumes otherwise than declared, one sentence each."""
    return tuple(
        f"{name} was taken for {assumption.value:g} {assumption.unit}, as {VARIABLE} says"
        for name, assumption in ALL.items()
        if assumption.changed
    )


SUBJECTS: Final = {
    subject: Subject(subject, declared)
    for subject, declared in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
fixes, replay, machines, steps, idle, kernels, ranks = SUBJECTS.values()
ALL: Final = collect_assumptions(SUBJECTS, os.environ.get(VARIABLE, ""))
OPTIONAL_PART: Final = Pattern(
    r"\[([^\[\]]*)\]", "part of a rule's text, left out where its figure is not known", "[, {n} times]", "{n} times"
)
_FIGURE: Final = re.compile(rf"\{{((?:{'|'.join(SUBJECTS)})\.\w+)(?::([a-z ]+))?\}}")


@cache
def fill_figures(text: str) -> str:
    """The text with this run's figures in place of ``{fixes.attention_products}``: ``15 %``.

    ``{fixes.x:low}`` and ``:high`` are the other ends, ``:gone`` what a share leaves, ``:ms`` a time of us in ms, and
    ``:words`` a plain fraction in words: ``three fifths``, ``twice``. `KeyError` for a name that no assumption has.

    Sentences and pages take their figures from here, so that none of them says another one than was used.
    """
    return _FIGURE.sub(lambda found: _figure_text(ALL[found[1]], (found[2] or "").split()), text)


def _figure_text(assumption: Assumption, asked: list[str]) -> str:
    value = assumption.low if "low" in asked else assumption.high if "high" in asked else assumption.value
    if "gone" in asked:
        value = 1 - value
    if "words" in asked and (words := _fraction_text(value)):
        return words
    if "ms" in asked:
        return f"{value / 1000:g} ms"
    if assumption.unit.startswith("of "):
        return f"{100 * value:.3g} %"
    return f"{value:g} us" if assumption.unit.startswith("us") else f"{value:g}{' times' * ('words' in asked)}"


def _fraction_text(value: float) -> str:
    """``a twentieth``, ``three fifths``, ``twice``; '' for other figures."""
    fraction = Fraction(value).limit_denominator(20)
    top, part = fraction.numerator, _PARTS.get(fraction.denominator)
    if value == 2:
        return "twice"
    if part is None or not 0 < top < fraction.denominator or abs(value - fraction) > 1e-9:
        return ""
    return f"a {part}" if top == 1 and part != "half" else part if top == 1 else f"{_TOPS[top]} {part}s"


_TOPS: Final = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PARTS: Final = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 8: "eighth", 10: "tenth", 20: "twentieth"}
