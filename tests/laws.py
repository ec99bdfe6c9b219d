"""How many examples a law is held to, where it needs more or fewer than most laws do."""

from hypothesis import settings

USUAL = 50


def examples(count: int) -> int:
    """So many of them where a usual law gets 50, and fewer in proportion where the profile asks for fewer."""
    return max(1, round(count * settings().max_examples / USUAL))
