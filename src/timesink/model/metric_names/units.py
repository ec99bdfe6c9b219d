"""Units of profiler metrics: the base unit a name implies, and the scale of the unit texts that ncu prints."""

from __future__ import annotations

import re

# What a counter counts, told by the last word of its base name (before the first point).
_COUNTED = (
    (r"bytes(_|$|\.)", "bytes"),
    (r"sectors?(_|$|\.)", "sector"),
    (r"requests?(_|$|\.)", "request"),
    (r"warps?(_|$|\.)", "warp"),
    (r"cycles(_|$|\.)", "cycle"),
    (r"inst(_|$|\.)|inst_executed", "inst"),
)
_UNITLESS = re.compile(r"\.ratio$|\.max_rate$|^breakdown:|^device__|^pmsampling:")
_PERCENT = re.compile(r"\.pct(\.|_|$)|_pct$|_pct_|\.pct_of_peak")


def base_unit(metric: str) -> str | None:
    """The unit a report's value of that metric has, as far as its name tells; None where it does not.

    Reports store no units. `.per_second` gives ``/s``, `.per_cycle_*` gives ``/cycle``; cycles per second are ``Hz``.
    """
    base = metric.rpartition(":")[2]
    if _PERCENT.search(metric):
        return "%"
    if "time_duration" in base:
        return "ns"
    if base.startswith("launch__"):
        return "bytes" if "_mem_" in base and "limit" not in base else None
    return None if _UNITLESS.search(metric) else _counted(base)


def _counted(base: str) -> str | None:
    counted = next((unit for pattern, unit in _COUNTED if re.search(pattern, base.split(".", maxsplit=1)[0])), None)
    if counted is not None and ".per_second" in base:
        return "Hz" if counted == "cycle" else f"{counted}/s"
    if counted is not None and (".per_cycle" in base or base.endswith(".peak_sustained")):
        return f"{counted}/cycle"
    return counted


_PREFIX = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PER_TIME = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "nsecond": 1e9, "usecond": 1e6, "msecond": 1e3, "second": 1.0}
_NOUN = re.compile(r"^([KkMGTP]?)(bytes?|hz|Hz)$")


def normalised(unit: str) -> tuple[str | None, float]:
    """A printed unit as timesink spells it, and the factor from printed values to it.

    Both spellings of ncu are taken: ``Gbyte/second``, ``nsecond``, ``cycle/nsecond`` up to 2024; ``Gbyte/s``, ``ns``,
    ``Ghz`` since 2025. An unknown unit stays as it is, with factor 1.
    """
    if not unit:
        return None, 1.0
    if unit in _SECONDS:
        return "ns", _SECONDS[unit]
    top, _, bottom = unit.partition("/")
    name, factor = _noun(top)
    if not bottom:
        return name, factor
    if bottom in _PER_TIME:
        per_second = factor * _PER_TIME[bottom]
        return ("Hz" if name == "cycle" else f"{name}/s"), per_second
    below, below_factor = _noun(bottom)
    return f"{name}/{below}", factor / below_factor


def _noun(word: str) -> tuple[str, float]:
    found = _NOUN.match(word)
    if not found:
        return word, 1.0
    noun = "Hz" if found.group(2).lower() == "hz" else "bytes"
    return noun, _PREFIX[found.group(1)]
