"""Which profiler answers a question: a list of rules, each with the words that speak for it (`choice.toml`).

Of the rules whose words occur in the question, the one with most words wins: "bank conflict" are two, "idle" is one; of
equals the earlier in the list. No model is behind it, and the words that matched are shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CaptureAdvice:
    """The first capture to make: `options` of `timesink capture`, why, why not the others, cost, what to read first."""

    name: str
    options: tuple[str, ...]
    why: str
    not_others: str
    read_first: str
    words: str = ""

    @property
    def tool(self) -> str:
        """The profiler: torch, nsys or ncu."""
        return self.options[0]

    @property
    def counts_steps(self) -> bool:
        """Whether it records steps, of which a program with slow ones had better record few."""
        return self.tool != "ncu" and "--whole" not in self.options and "--delay" not in self.options

    @property
    def patterns(self) -> list[str]:
        """Each word with any ending, as a regular expression that means the same in JavaScript."""
        # built from what people say: a word begins where no other goes on
        return [rf"(?<!\w){re.escape(word)}\w*" for word in " ".join(self.words.split()).split(", ")]

    def find_words(self, text: str) -> tuple[str, ...]:
        """Its words that stand in the text."""
        found = (re.search(pattern, text) for pattern in self.patterns)
        return tuple(match.group() for match in found if match is not None)


@dataclass(frozen=True, slots=True)
class Gauge:
    """One figure, from `low` to `high` by `step`. From `at` on it speaks for the answer `above`, under it for `below`
    ('' for none); each clears what else spoke for the other. `phrase` is how it is said; its words count as those of
    the question do: a share that one kernel takes has fewer than idle time, which hides how slow kernels are. `said` is
    how a question states it, with `#%` or `#s` for a share or a time; ranks are a word of their rule."""

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
    said: Sequence[str] = ()

    @property
    def patterns(self) -> list[str]:
        """What states it, as regular expressions that mean the same in JavaScript; groups: its number and its unit."""
        times = "|".join(unit for unit in _UNITS if unit not in _SHARES)
        # built from what people say: a number, with or without a space before its unit
        number, shares = r"(\d+(?:\.\d+)?) ?", "|".join(_SHARES)
        texts = (text.replace("#%", f"{number}({shares})").replace("#s", f"{number}({times})") for text in self.said)
        # neither a part of a longer word or number, nor with an ending: 20 sheep are no seconds
        return [rf"(?<![\w.]){text}(?!\w)" for text in texts]

    def speaks(self, value: float) -> tuple[str, str]:
        """The answer that the figure speaks for, and the one it speaks against; '' for none."""
        return (self.above, self.below) if value >= self.at else (self.below, self.above)

    def words(self, value: float) -> str:
        """How it is said: ``utilization 60 %``."""
        return self.phrase.replace("#", f"{value:g}")


@dataclass(frozen=True, slots=True)
class CaptureChoice:
    """The answer, and the words of the question that led to it; without words nothing matched."""

    answer: CaptureAdvice
    matched: tuple[str, ...]


_RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ANSWERS = tuple(CaptureAdvice(**{**rule, "options": tuple(rule["options"])}) for rule in _RULES["answers"])
GAUGES = tuple(Gauge(**gauge) for gauge in _RULES["gauges"])
COSTS: Mapping[str, str] = _RULES["costs"]
UNSURE: str = _RULES["unsure"]
QUESTIONS: Sequence[str] = _RULES["questions"]  # for who knows no word of it: each leads to a profiler
_SLOW_STEP_MS: float = _RULES["slow_step_ms"]
_FEWER_STEPS: tuple[str, ...] = tuple(_RULES["fewer_steps"])
_UNITS: Mapping[str, float] = _RULES["units"]
_SHARES = ("%", "percent")
_BUSY, STEP = GAUGES[0], ANSWERS[-1]
_KERNEL = next(answer for answer in ANSWERS if answer.name == "kernel")
# The page that answers without Python looks for the same.
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?(?:%|percent)")
_SPEAKS_OF_USE = ("utilis", "utiliz", "busy", "gpu")


def choose(symptom: str, kernel: str | None = None, gauges: Mapping[str, float] | None = None) -> CaptureChoice:
    """The capture that answers a symptom. A kernel's name decides at once; figures (`gauges`, by the names in `GAUGES`,
    before those that the symptom states) count with its words; `step` is what is left where no other rule has a word.
    """
    if kernel is not None:
        one = (*_KERNEL.options, "--kernels", re.escape(kernel))
        return CaptureChoice(replace(_KERNEL, options=one), (kernel,))
    figures, text = stated(symptom)
    known = {**figures, **(gauges or {})}
    matches = {answer.name: answer.find_words(text) for answer in ANSWERS}
    for gauge in GAUGES:
        if gauge.name in known:
            named, other = gauge.speaks(known[gauge.name])
            if named:
                matches[named] = (*matches[named], gauge.words(known[gauge.name]))
            if named and other:
                matches[other] = ()
    # a phrase says more than one word of it
    best = max(ANSWERS[:-1], key=lambda answer: sum(len(phrase.split()) for phrase in matches[answer.name]))
    answer = best if matches[best.name] else STEP
    matched = matches[answer.name]
    if known.get("step_ms", 0.0) >= _SLOW_STEP_MS and answer.counts_steps:
        answer = replace(answer, options=(*answer.options, *_FEWER_STEPS))
    return CaptureChoice(answer, matched)


def stated(symptom: str) -> tuple[dict[str, float], str]:
    """The figures that a symptom states, by the names in `GAUGES`, and its other words."""
    text, figures = symptom.lower(), dict[str, float]()
    for gauge in GAUGES:
        for pattern in gauge.patterns:
            if (match := re.search(pattern, text)) is not None:
                figures[gauge.name] = float(match[1]) * _UNITS[match[2]]
                text = f"{text[: match.start()]} {text[match.end() :]}"
    share = _PERCENT.search(text)
    if share is not None and any(word in text for word in _SPEAKS_OF_USE):
        figures[_BUSY.name] = float(share[1])
    return figures, text


def command_of(answer: CaptureAdvice, program: Sequence[str]) -> list[str]:
    """The exact command line."""
    return ["timesink", "capture", *answer.options, "--", *program]


def tool_named(to_decide: str) -> str:
    """The tool that an undecided verdict asks for: torch, nsys, ncu, or none of them."""
    text = to_decide.lower()
    if "nsight compute" in text or "ncu" in text.split():
        return "ncu"
    if "capture torch" in text or "torch.profiler" in text:
        return "torch"
    return "nsys" if "nsight systems" in text or "nsys" in text.split() else ""
