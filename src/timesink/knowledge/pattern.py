"""A regular expression for names, with what it means and the names that show it."""

from __future__ import annotations

from collections.abc import Iterator


class Pattern(str):
    """A regular expression that knows what it is for.

    It finds its match anywhere in a name unless it is anchored. `means` says what a name that matches is, and `seen`
    who writes such names, where the pattern does not say it. Every name of `does` must match and none of `does_not`;
    those are names of real traces, or such as people give. Polars and `re` take it for the text that it is.
    """

    means: str
    does: tuple[str, ...]
    does_not: tuple[str, ...]
    seen: str

    def __new__(
        cls, regex: str, means: str, does: str | tuple[str, ...], does_not: str | tuple[str, ...], seen: str = ""
    ) -> Pattern:
        """The pattern `regex`, its meaning and its examples."""
        pattern = super().__new__(cls, regex)
        pattern.means, pattern.seen = means, seen
        pattern.does = (does,) if isinstance(does, str) else does
        pattern.does_not = (does_not,) if isinstance(does_not, str) else does_not
        return pattern


def patterns_in(value: object) -> Iterator[Pattern]:
    """Every pattern of a value that may be one, or a tuple or dictionary of some."""
    if isinstance(value, Pattern):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from patterns_in(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from patterns_in(part)
