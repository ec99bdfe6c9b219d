"""Which call of one rank is which call of another, where no sequence numbers say so: aligned sequences of tokens.

Training repeats itself, so a window that opened a step late looks the same shifted by a step. Among shifts that match
equally well the clocks decide: calls that really belong together end within microseconds of each other, always equally
far apart; a wrong step shows the jitter of whole steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

# The least share of the shorter sequence that a shift must cover.
_OVERLAP: Final = 0.5
# A shift takes the place of the plain one only where its ends agree this many times better.
_BETTER: Final = 2.0
# No more shifts than this are tried: periods beyond it need sequence numbers.
_SHIFTS: Final = 512
_LONGEST_FOR_GAPS: Final = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """Calls of one rank in order: what each is, and when it ended by that rank's clock."""

    token: Numbers
    end_ns: Numbers

    def __len__(self) -> int:
        return int(self.token.size)


def aligned(reference: TokenSequence, other: TokenSequence) -> tuple[Numbers, Numbers]:
    """Positions in the reference and in the other that are the same call, ascending."""
    if not len(reference) or not len(other):
        return _pair(range(0), range(0))
    shifts = _fitting_shifts(reference.token, other.token)
    if shifts:
        spread = [_spread_ns(reference, other, shift) for shift in shifts]
        best = int(np.argmin(spread))
        chosen = best if spread[best] * _BETTER < spread[0] else 0
        return _overlap(len(reference), len(other), shifts[chosen])
    return _common(reference.token, other.token)


def _overlap(reference: int, other: int, shift: int) -> tuple[Numbers, Numbers]:
    """Position i + shift of the reference is position i of the other."""
    first, last = max(0, -shift), min(other, reference - shift)
    place = np.arange(first, last, dtype=np.int64)
    return place + shift, place


def _fitting_shifts(reference: Numbers, other: Numbers) -> list[int]:
    """Shifts at which every call of the overlap is of the same kind, the nearest to none first."""
    shorter = min(reference.size, other.size)
    least = max(1, int(np.ceil(_OVERLAP * shorter)))
    every = sorted(range(least - other.size, reference.size - least + 1), key=lambda shift: (abs(shift), shift))
    found = []
    for shift in every[:_SHIFTS]:
        mine, theirs = _overlap(reference.size, other.size, shift)
        if np.array_equal(reference[mine], other[theirs]):
            found.append(shift)
    return found


def _spread_ns(reference: TokenSequence, other: TokenSequence, shift: int) -> float:
    """How far the differences of ends lie from their median, in the median."""
    mine, theirs = _overlap(len(reference), len(other), shift)
    apart = other.end_ns[theirs] - reference.end_ns[mine]
    return float(np.median(np.abs(apart - np.median(apart))))


def _common(reference: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
    """Matching blocks of sequences in which calls are missing."""
    first, second = reference[:_LONGEST_FOR_GAPS].tolist(), other[:_LONGEST_FOR_GAPS].tolist()
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    pairs = [(block.a + at, block.b + at) for block in blocks for at in range(block.size)]
    return _pair([a for a, _ in pairs], [b for _, b in pairs])


def _pair(first: range | list[int], second: range | list[int]) -> tuple[Numbers, Numbers]:
    return np.array(first, np.int64), np.array(second, np.int64)
