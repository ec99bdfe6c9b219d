"""What the messages of ncu's own rules say of one launch, in figures: of some no table of a details page has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from timesink.knowledge import profiler_texts as texts
from timesink.startup import dataclass, field, regex

_SECTORS: Final = "memory_l2_theoretical_sectors_global"
_PASSES: Final = "memory_l1_wavefronts_shared"
_OPS: Final = {"loads": "ld", "stores": "st"}
_BYTES: Final = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"


@dataclass(frozen=True, slots=True)
class Told:
    """Figures of one launch's messages. `counters` are such as a report holds under these names; `stalls` has cycles by
    reason, of those the rule named; `pipe` is the busiest arithmetic pipe and how busy it is, 0 to 1; `roofs` are the
    shares of the FP32 and the FP64 peak.

    `has_spoken`: some rule ran, and all can be read (redacted ones may not be); only then what is not here is none.
    `has_hot_slices`: some slices of L2 work far longer than others. `conflicts`: passes that loads and stores of shared
    memory repeat."""

    has_spoken: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    pipe: tuple[str, float] | None = None
    names_local: bool = False
    has_hot_slices: bool = False
    conflicts: float = 0.0
    roofs: tuple[float, float] | None = None

    @property
    def waits(self) -> dict[str, float]:
        """The reasons that are waits: of one that was ready another warp was chosen."""
        return {reason: waited for reason, waited in self.stalls.items() if reason != "not_selected"}

    @property
    def may_wait_at_barriers(self) -> bool:
        """Whether barriers may be what warps wait for most: named as such, or no reason is named."""
        return not self.waits or max(self.waits, key=lambda reason: self.waits[reason]) == "barrier"


def told_in(messages: Iterable[str]) -> Told:
    """What the messages of one launch say."""
    counters: dict[str, float] = {}
    stalls: dict[str, float] = {}
    pipe, roofs, names_local, has_hot, has_spoken, is_cut, conflicts = None, None, False, False, False, False, 0.0
    for message in messages:
        has_spoken = True
        has_hot |= bool(regex(texts.HOT_SLICES).search(message))
        if found := regex(texts.EXCESS_SECTORS).search(message) or regex(texts.EXCESS_PASSES).search(message):
            name = _PASSES if "wavefronts" in found.group() else _SECTORS
            excess, total = (found.group(group).replace(",", "") for group in (1, 2))
            if excess.isdecimal() and total.isdecimal():
                counters |= {name: float(total), f"{name}_ideal": max(0.0, float(total) - float(excess))}
            else:
                is_cut = True
        elif found := regex(texts.CONFLICTS).search(message):
            conflicts += float(found.group(1)) if found.group(1).isdecimal() else 0.0
        elif found := regex(texts.USED_BYTES).search(message):
            names_local |= found.group("space") == "local"
            if found.group("space") == "global":
                counters[f"{_BYTES}{_OPS[found.group('op')]}.ratio"] = float(found.group("bytes"))
        elif found := regex(texts.STALLED).search(message):
            reason = next((name for name, words in texts.STALL_WORDS.items() if regex(words).search(message)), "")
            stalls[reason] = float(found.group(1))
        elif found := regex(texts.BUSIEST_PIPE).search(message):
            pipe = (found.group("part") or found.group("pipe")).lower(), float(found.group("percent")) / 100
        elif found := regex(texts.FP_ROOFS).search(message):
            roofs = float(found.group("fp32")) / 100, float(found.group("fp64")) / 100
    return Told(has_spoken and not is_cut, counters, stalls, pipe, names_local, has_hot, conflicts, roofs)
