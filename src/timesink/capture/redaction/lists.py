"""The closed lists of what stays in a copy: the cleaner and the proof read them, each with a judge of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of a name in capitals, in camel case or with underscores
_SHORT = 3  # letters
_OFTEN, _VERY_OFTEN = 3, 10  # times: what this program writes so often is no slip; of short words it takes more
_NOT_SAID = frozenset(("secret", "secrets", "password", "folder", "folders", "hostname", "somebody", "ann"))
_AUTHORS = frozenset(("williams", "yang", "young"))  # of sources
_OURS = files("timesink")


@cache
def words() -> frozenset[str]:
    """Words of operators, kernels and calls (`words.txt`, by tools/known_words.py), of Nsight Compute's counters, and
    those that this program says."""
    return said() | {*_OURS.joinpath("capture/redaction/words.txt").read_text("utf-8").split()}


@cache
def said() -> frozenset[str]:
    """What this program writes often, in its knowledge of profilers, its rules, its reports; and names of counters."""
    found = Counter(word for text in _texts(_OURS) for word in _of(text))
    often = {word for word, count in found.items() if count >= (_OFTEN if len(word) > _SHORT else _VERY_OFTEN)}
    counters = (
        row.split()[0] for row in _OURS.joinpath("knowledge/metric_names/names.txt").read_text("utf-8").splitlines()
    )
    return frozenset(word for word in often - _NOT_SAID - _AUTHORS | {*_of(" ".join(counters))} if len(word) > 1)


@cache
def products() -> frozenset[str]:
    """What the names of GPUs are made of, such as H100 and 80GB."""
    rows = _OURS.joinpath("knowledge/gpus.txt").read_text("utf-8").splitlines()[1:]
    return frozenset(part for row in rows for part in re.findall(r"\w+", row[:30]))  # words of a name


def _texts(folder: Traversable) -> Iterator[str]:
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.is_dir() and part.name != "redaction":
            yield from _texts(part)
        elif part.name.endswith((".py", ".txt", ".md")):
            yield part.read_text("utf-8")


def _of(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text))
