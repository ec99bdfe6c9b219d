"""Whole numbers for the shares of a sum, so that they sum to it."""

from collections.abc import Sequence


def apportion(totals: Sequence[int], count: int) -> list[int]:
    """Whole numbers near `totals / count` that sum to the rounded mean of their sum, by largest remainders."""
    target = (2 * sum(totals) + count) // (2 * count)
    shares = [total // count for total in totals]
    by_remainder = sorted(range(len(totals)), key=lambda i: (-(totals[i] % count), i))
    for i in by_remainder[: target - sum(shares)]:
        shares[i] += 1
    return shares
