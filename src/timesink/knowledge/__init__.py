"""What names, machines and assumed figures mean, declared once; here regular expressions for names, with what they mean
and the names that show it.

The patterns of a subject stand in the Markdown file beside its module, one section each::

    ## PROFILER_STEP
    a step marked by prof.step() (torch.profiler)

    - regex: `^ProfilerStep#\\d+$`
    - is: `ProfilerStep#12`
    - is not: `ProfilerStep*`

``{{NAME}}`` in a regex is another pattern, from above it, whose groups lose their names. Patterns of one kind are
headed ``KIND: key``. A section with ``- words:`` lists names that are taken as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
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


class Patterns:
    """The patterns of the Markdown file beside a module as attributes, those of one kind in a dictionary of its name;
    `words` are its lists of names. All but these lists go into `names`, the module's, too."""

    def __init__(self, module: str, names: dict[str, Any] | None = None) -> None:
        self.words: dict[str, tuple[str, ...]] = {}
        for section in Path(module).with_suffix(".md").read_text(encoding="utf-8").split("\n## ")[1:]:
            heading, means, *lines = section.split("\n")
            if listed := [line.removeprefix("- words: ") for line in lines if line.startswith("- words: ")]:
                self.words[heading] = tuple(" ".join(listed).split())
                continue
            said: dict[str, list[str]] = {"- regex": [], "- is": [], "- is not": []}
            for key, colon, text in (line.partition(": `") for line in lines):
                if colon:
                    said[key].append(text[:-1])
            regex = re.sub(r"\{\{(\w+)\}\}", self._nameless, said["- regex"][0])
            pattern = Pattern(regex, means, tuple(said["- is"]), tuple(said["- is not"]))
            kind, _, key = heading.partition(": ")
            if key:
                vars(self).setdefault(kind, {})[key] = pattern
            else:
                setattr(self, kind, pattern)
        if names is not None:
            names |= {name: value for name, value in vars(self).items() if name != "words"}

    def _nameless(self, named: re.Match[str]) -> str:
        return re.sub(r"\?P<\w+>", "", vars(self)[named[1]])

    def kind(self, name: str) -> dict[str, Pattern]:
        """The patterns of one kind, by their keys, in the order of the file."""
        return dict(vars(self)[name])

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Pattern: ...


def table_rows(module: str) -> Iterator[dict[str, str]]:
    """The rows of the text file beside a module, by the heads of its columns, which stand two blanks apart; ``-`` is
    what there is none of."""
    head, *rows = Path(module).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    columns = re.split(" {2,}", head)
    for row in rows:
        yield dict(zip(columns, re.split(" {2,}", row), strict=True))
