"""What names, machines and assumed figures mean, declared once; here the regular expression that knows its meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final


class Pattern(str):
    """A regular expression that knows what it is for.

    It finds its match anywhere in a name unless it is anchored. `search`, `sub` and the like are those of `re`: it is
    compiled when one of them is first asked for. `means` says what a name that matches is, and in brackets who writes
    such names, where the pattern does not say it. Every name of `does` must match and none of `does_not`; those are
    names of real traces, or such as people give. Polars and `re` take it for the text that it is.
    """

    means: str
    does: tuple[str, ...]
    does_not: tuple[str, ...]

    def __new__(cls, regex: str, means: str, does: str | tuple[str, ...], does_not: str | tuple[str, ...]) -> Pattern:
        """The pattern `regex`, its meaning and its examples."""
        pattern = super().__new__(cls, regex)
        pattern.means = means
        pattern.does = (does,) if isinstance(does, str) else does
        pattern.does_not = (does_not,) if isinstance(does_not, str) else does_not
        return pattern

    if TYPE_CHECKING:
        search: Callable[..., re.Match[str] | None]
        match: Callable[[str], re.Match[str] | None]
        fullmatch: Callable[[str], re.Match[str] | None]
        finditer: Callable[[str], Iterator[re.Match[str]]]
        findall: Callable[[str], list[Any]]
        sub: Callable[..., str]
        subn: Callable[[str, str], tuple[str, int]]
    else:

        def __getattr__(self, method: str) -> Any:
            if method not in _OF_RE:
                raise AttributeError(method)
            from timesink.startup import regex

            found = getattr(regex(self), method)
            setattr(self, method, found)  # where it is found from now on
            return found


_OF_RE: Final = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn")
