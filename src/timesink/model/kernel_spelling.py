"""Names of kernels as different profilers spell them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CASTS = re.compile(r"\((?:unsigned )?(?:int|long|long long|bool|char|short|unsigned)\)(?=[-\d])")
_UNNAMED = ("(anonymous namespace)::", "<unnamed>::")


def function_name(demangled: str) -> str:
    """The bare name: without return type, namespaces, template arguments and parameters."""
    name = demangled
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    bare = "".join(_outside_brackets(name)).strip()
    last = re.split(r"\s|::", bare)[-1]
    return last or demangled


def plain_name(demangled: str) -> str:
    """The whole name with the differences between demanglers removed: casts before numbers, blanks, unnamed scopes."""
    name = _CASTS.sub("", demangled)
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    return re.sub(r"\s+", "", name)


def _outside_brackets(name: str) -> Iterator[str]:
    depth = 0
    for letter in name:
        if letter in "<(":
            if depth == 0 and letter == "(":
                return
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif depth == 0:
            yield letter
