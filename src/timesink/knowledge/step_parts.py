"""What each part of a step is called: device work, and the causes of idle time. Every view uses these words."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from timesink.knowledge import table_rows


def _words(kind: str) -> Mapping[str, str]:
    return MappingProxyType({row["part"]: row["words"] for row in table_rows(__file__) if row["of"] == kind})


IDLE_WORDS: Final = _words("idle")
"""Causes of idle time, by the names that JSON and SQL have them under."""

WORK_WORDS: Final = _words("work")
"""Kinds of device work. Exposed: nothing was computed beside it."""


def part_words(kind: str) -> str:
    """`compute`, or `idle: blocking waits`."""
    if kind in WORK_WORDS:
        return WORK_WORDS[kind]
    return f"idle: {IDLE_WORDS[kind]}" if kind in IDLE_WORDS else kind.replace("_", " ")
