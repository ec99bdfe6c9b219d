"""What ncu's own rules say of a kernel in words: figures that its details page prints in no table.

A rule that ran and is silent says something too: of 264 launches it spoke of every one that had an excess sector, and
of every reason that 30 % of a warp's cycles went to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from timesink.knowledge import profiler_texts as texts
from timesink.startup import dataclass, field, regex

TOLD_FROM: Final = 0.3  # of a warp's cycles between two instructions: the rule on stalls names reasons from here on
_SECTORS: Final = "memory_l2_theoretical_sectors_global"
_PASSES: Final = "memory_l1_wavefronts_shared"
_OPS: Final = {"loads": "ld", "stores": "st"}
_BYTES: Final = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"


@dataclass(frozen=True, slots=True)
class Told:
    """Figures of one launch's messages. `counters` are such as a report holds under these names; `stalls` has cycles by
    reason, of those the rule named; `pipe` is the busiest arithmetic pipe and how busy it is, 0 to 1.

    `has_spoken`: some rule ran at all; only then what is not here is none. `has_hot_slices`: some slices of L2 work far
    longer than others."""

    has_spoken: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    pipe: tuple[str, float] | None = None
    names_local: bool = False
    has_hot_slices: bool = False


def told_in(messages: Iterable[str]) -> Told:
    """What the messages of one launch say."""
    counters: dict[str, float] = {}
    stalls: dict[str, float] = {}
    pipe, names_local, has_hot, has_spoken = None, False, False, False
    for message in messages:
        has_spoken = True
        has_hot |= bool(regex(texts.HOT_SLICES).search(message))
        if found := regex(texts.EXCESS_SECTORS).search(message):
            counters |= _with_ideal(_SECTORS, found)
        elif found := regex(texts.EXCESS_PASSES).search(message):
            counters |= _with_ideal(_PASSES, found)
        elif found := regex(texts.USED_BYTES).search(message):
            names_local |= found.group("space") == "local"
            if found.group("space") == "global":
                counters[f"{_BYTES}{_OPS[found.group('op')]}.ratio"] = float(found.group("bytes"))
        elif found := regex(texts.STALLED).search(message):
            reason = next((name for name, words in texts.STALL_WORDS.items() if regex(words).search(message)), "")
            stalls[reason] = float(found.group(1))
        elif found := regex(texts.BUSIEST_PIPE).search(message):
            pipe = (found.group("part") or found.group("pipe")).lower(), float(found.group("percent")) / 100
    return Told(has_spoken, counters, stalls, pipe, names_local, has_hot)


def _with_ideal(name: str, found: re.Match[str]) -> dict[str, float]:
    excess, total = (float(found.group(group).replace(",", "")) for group in (1, 2))
    return {name: total, f"{name}_ideal": max(0.0, total - excess)}
