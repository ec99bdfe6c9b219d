"""A regular expression for names, with what it means and the names that show it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from timesink._native import may_match

__all__ = ["Pattern", "patterns_in", "regex"]


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


class _Late:
    """A regular expression that is compiled when it is first used: of hundreds, most traces need a few."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._of = regex, flags
        self._words_of = {0: regex, re.IGNORECASE: f"(?i){regex}"}.get(flags, "")

    def search(self, text: str, *place: int) -> re.Match[str] | None:
        """As of the compiled one, which is made for the first text that may match."""
        return self._search(text, *place) if may_match(self._words_of, text) else None

    @cached_property
    def _search(self) -> Callable[..., re.Match[str] | None]:
        return re.compile(*self._of).search

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        found = getattr(re.compile(*self._of), method)
        setattr(self, method, found)  # where it is found from now on
        return found


if TYPE_CHECKING:
    from re import compile as regex
else:
    regex = _Late
