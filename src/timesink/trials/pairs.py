"""What blocks of steps say, with a change and without it in turns: the ratio with its range, and when it is decided."""

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from statistics import median
from typing import Final, NamedTuple

from timesink.trials.records import Tried

LEAST_PAIRS: Final = 4
_MOST_PAIRS: Final = 12
_HELD: Final = 0.92  # of all trials a range holds the true ratio in at least so many, from five pairs on
_SHORTEST, _AGREE = 3, 0.01  # so many of the shortest pieces that are the same within this share repeat


class TimedBlock(NamedTuple):
    """Milliseconds a step: the mean of a block, and its shortest piece."""

    mean: float
    shortest: float


Pair = tuple[TimedBlock, TimedBlock]
"""With the changes, and without."""


def interval(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The ratio of neighbouring blocks, with and without: its median, and the narrowest range of order that holds the
    true one in `_HELD` of all trials, by the tails of the binomial distribution, whatever the noise: of four pairs
    their extremes (87 of 100), of five (94), of eight all but one at each end (93), of eleven two (93)."""
    ratios = sorted(changed.mean / plain.mean for changed, plain in pairs)
    count, inner = len(ratios), 0
    while 1 - 2 * sum(comb(count, below) for below in range(inner + 2)) / 2**count >= _HELD:
        inner += 1
    return median(ratios), ratios[inner], ratios[-1 - inner]


def is_decided(pairs: Sequence[Pair], worth: float) -> bool:
    """Whether more pairs would change nothing: none of the first was worth it, the range is narrow, or it lies on one
    side of what matters while the shortest pieces of both kinds repeat."""
    if len(pairs) < LEAST_PAIRS:
        return len(pairs) > 1 and all(changed.mean > (1 - worth / 2) * plain.mean for changed, plain in pairs)
    _, low, high = interval(pairs)
    shortest = [sorted(block.shortest for block in blocks)[:_SHORTEST] for blocks in zip(*pairs, strict=True)]
    repeat = all(pieces[-1] <= (1 + _AGREE) * pieces[0] for pieces in shortest)
    is_sure = high < 1 - worth or low > 1 - worth
    return len(pairs) >= _MOST_PAIRS or high - low < 1.5 * worth or (repeat and is_sure)


def summarized(tried: Tried, pairs: Sequence[Pair]) -> Tried:
    """What blocks in turns say of a change."""
    middle, low, high = interval(pairs)
    changed, plain = zip(*pairs, strict=True)
    return replace(
        tried,
        pairs=len(pairs),
        with_ms=median(block.mean for block in changed),
        without_ms=median(block.mean for block in plain),
        ratio=middle,
        low=low,
        high=high,
        shortest=min(block.shortest for block in changed) / min(block.shortest for block in plain),
    )
