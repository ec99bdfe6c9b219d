"""Figures of assumptions in sentences: texts of rules and pages say what this run assumes."""

import re
from fractions import Fraction
from functools import cache
from typing import Final

from timesink.knowledge import Pattern
from timesink.knowledge.assumptions import ALL, SUBJECTS, Assumption

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
