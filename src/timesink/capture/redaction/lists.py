"""The closed lists of what stays in a copy: the cleaner and the proof read them, each with a judge of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from timesink.knowledge import kept_texts

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of a name in capitals, in camel case or with underscores
_SHORT = 3  # letters
_OFTEN, _VERY_OFTEN = 3, 10  # times: what this program writes so often is no slip; of short words it takes more
_NOT_SAID = {"secret", "secrets", "password", "folder", "folders", "hostname", "somebody"}
_AUTHORS = {"ann", "williams", "yang", "young"}  # of sources and examples
_LISTS = Path(__file__).parent
_OURS = _LISTS.parents[1]


@cache
def words() -> frozenset[str]:
    """Words of operators, kernels and calls (`words.txt`, by tools/known_words.py), of Nsight Compute's counters, and
    those that this program says."""
    return said() | {*_LISTS.joinpath("words.txt").read_text("utf-8").split()}


@cache
def said() -> frozenset[str]:
    """What this program writes often, in its knowledge of profilers, its rules, its reports; and names of counters."""
    ours = (path for path in _OURS.rglob("*") if path.suffix in (".py", ".txt", ".md") and path.parent != _LISTS)
    found = Counter(word for path in ours for word in _of(path.read_text("utf-8")))
    often = {word for word, count in found.items() if count >= (_OFTEN if len(word) > _SHORT else _VERY_OFTEN)}
    counters = " ".join(row.split()[0] for row in _rows("metric_names/names.txt"))
    return frozenset(word for word in often - _NOT_SAID - _AUTHORS | {*_of(counters)} if len(word) > 1)


@cache
def standing_alone() -> frozenset[str]:
    """Short words, and what the names of GPUs are made of, such as H100 and 80GB."""
    names = " ".join(row[:30] for row in _rows("gpus.txt")[1:])
    return kept_texts.SHORT_WORDS.union(re.findall(r"\w+", names))  # words of a name


def _rows(name: str) -> list[str]:
    return _OURS.joinpath("knowledge", name).read_text("utf-8").splitlines()


def _of(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text))
