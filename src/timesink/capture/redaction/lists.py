"""The closed lists of what stays in a copy: the cleaner and the proof read them, each with a judge of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of a name in capitals, in camel case or with underscores
_PART = re.compile(r"\w+")  # of a product's name
_SHORT = 3  # letters: words so short are said by `words.txt` alone
_OFTEN = 3  # times: what this program writes so often is no slip
_NOT_SAID = frozenset(("secret", "secrets", "password", "folder", "folders", "hostname", "somebody"))
_AUTHORS = frozenset(("williams", "yang", "young"))  # of sources
_OURS = files("timesink")


@cache
def words() -> frozenset[str]:
    """Words of operators, kernels and calls (`words.txt`, by tools/known_words.py) and those that this program says."""
    return said() | {*_OURS.joinpath("capture/redaction/words.txt").read_text("utf-8").split()}


@cache
def said() -> frozenset[str]:
    """What this program writes often: its knowledge of profilers, its rules, its reports."""
    found = Counter(word for text in _texts(_OURS) for word in _of(text))
    often = {word for word, count in found.items() if count >= _OFTEN and len(word) > _SHORT}
    return frozenset(often - _NOT_SAID - _AUTHORS)


@cache
def metric_words() -> frozenset[str]:
    """Words of the names of Nsight Compute's counters."""
    return words() | {*_of(_OURS.joinpath("knowledge/metric_names/names.txt").read_text("utf-8"))}


@cache
def products() -> frozenset[str]:
    """What the names of GPUs are made of, such as H100 and 80GB."""
    rows = _OURS.joinpath("knowledge/gpus.txt").read_text("utf-8").splitlines()[1:]
    return frozenset(part for row in rows for part in _PART.findall(row[:30]))


def _texts(folder: Traversable) -> Iterator[str]:
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.is_dir() and part.name != "redaction":
            yield from _texts(part)
        elif part.name.endswith((".py", ".txt", ".md")):
            yield part.read_text("utf-8")


def _of(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text))
